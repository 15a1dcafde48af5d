"""Bare metal hosts for Cluster API's machines: choosing, claiming, data, releasing, remediation."""
