"""Metal3Remediations: a host is rebooted, and its node emptied meanwhile."""
