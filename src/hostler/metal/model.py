"""What is known of a machine. Pure."""

from __future__ import annotations

from hostler.apis.capi import CLUSTER_NAME, Machine
from hostler.apis.metal3 import Metal3Machine


def cluster_of(machine: Metal3Machine, owner: Machine | None) -> str:
    """The name of the cluster a Metal3Machine belongs to."""
    return (owner.spec.cluster_name if owner is not None else "") or machine.metadata.labels.get(CLUSTER_NAME, "")
