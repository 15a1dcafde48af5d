"""The states and kinds of hosts: one vocabulary over all capabilities. The CLI starts with it. Pure."""

from __future__ import annotations

from enum import StrEnum


class HostKind(StrEnum):
    ESXI = "esxi"
    BARE_METAL = "bare-metal"
    VM = "vm"
    AGENT = "agent"
    NODE_ONLY = "node-only"
    EXPECTED = "expected"


class HostState(StrEnum):
    """One vocabulary over all capabilities. In this order: where layers differ, the first one is the host's state."""

    FAILED = "failed"
    RECLAIMING = "reclaiming"
    DEPROVISIONING = "deprovisioning"
    DRAINING = "draining"
    STOPPED = "stopped"
    RETURNING = "returning"
    JOINING = "joining"
    PROVISIONING = "provisioning"
    CLAIMED = "claimed"
    UNKNOWN = "unknown"
    HELD = "held"
    IN_SERVICE = "in service"
    PROVISIONED = "provisioned"
    DISCOVERED = "discovered"
    AVAILABLE = "available"


STATE_ORDER = {state: place for place, state in enumerate(HostState)}
# What is meant to end. In any other state a host may stay for years.
PASSING = frozenset({
    HostState.RECLAIMING, HostState.DEPROVISIONING, HostState.DRAINING, HostState.STOPPED, HostState.RETURNING,
    HostState.JOINING, HostState.PROVISIONING, HostState.CLAIMED,
})  # fmt: skip
# What serves, or could: `hostler hosts --out` leaves these away.
NOT_OUT = frozenset({HostState.IN_SERVICE, HostState.PROVISIONED, HostState.DISCOVERED, HostState.AVAILABLE})


class SortBy(StrEnum):
    NAME = "name"
    STATE = "state"
    SINCE = "since"
    CLUSTER = "cluster"
    WHERE = "where"
    KIND = "kind"
