"""Which host a machine gets, and how it is taken."""
