"""The server that agents and discovery systems talk to; every replica of the operator runs it."""
