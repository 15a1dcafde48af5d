"""A simulator of Baremetal Operator and the machines below it, for the sandbox; never part of the operator."""
