"""Hostler looks after the hosts under Kubernetes clusters for their whole life."""

__version__ = "0.1.0"
