"""The status of the Fleet object."""
