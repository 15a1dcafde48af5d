"""Returning installed hosts without a BMC to discovery."""
