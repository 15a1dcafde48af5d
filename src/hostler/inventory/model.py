"""What a host is in the picture: the layers it is joined from, one state, and why. Pure.

A layer is one object that stands for a machine: an ESXi host, a BareMetalHost, a VM, an Agent, a Node. Its key survives
restarts and moves, so it never contains a UID. A host is one machine: its layers, joined only on proven identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from hostler.instant import Instant
from hostler.inventory.states import HostKind, HostState


class LayerKind(StrEnum):
    """The lowest first: the key of its lowest layer is the id of a host."""

    ESXI = "esxi"
    BARE_METAL = "bare-metal"
    VM = "vm"
    AGENT = "agent"
    NODE = "node"
    EXPECTED = "expected"  # a host that is let in when it comes; nothing stands for it yet


LAYER_ORDER = {kind: place for place, kind in enumerate(LayerKind)}


HOST_KIND = {
    LayerKind.ESXI: HostKind.ESXI,
    LayerKind.BARE_METAL: HostKind.BARE_METAL,
    LayerKind.VM: HostKind.VM,
    LayerKind.AGENT: HostKind.AGENT,
    LayerKind.NODE: HostKind.NODE_ONLY,
    LayerKind.EXPECTED: HostKind.EXPECTED,
}


class Shape(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Settings shared by all records of the picture: frozen, camelCase in JSON, without what is not there.

    None is ever part of a cycle, so the garbage collector need not look at a hundred thousand of them.
    """


class Holder(Shape, frozen=True):
    """One who keeps a host out of service."""

    name: str
    why: str = ""
    since: Instant | None = None


class Where(Shape, frozen=True):
    """Where a host is, as far as its kind has it."""

    vcenter: str = ""
    compute_cluster: str = ""
    esxi: str = ""
    namespace: str = ""
    rack: str = ""
    failure_domain: str = ""
    infra_env: str = ""


class Line(Shape, frozen=True):
    """What one capability reports about one layer, from the decision it made about it."""

    capability: str
    state: HostState
    why: str
    since: Instant | None = None
    next: str = ""
    mid_step: bool = False  # it has begun something with the host and not ended it
    waiting: str = ""  # on what it waits on purpose: then it is not overdue
    operation: str = ""  # one per maintenance, claim or reclaim
    about: str = ""  # what the operation is about, by name: the ESXi host, the Metal3Machine, the Agent


class Suspect(Shape, frozen=True):
    """A layer that this one may be. It is, if that one has one of these marks; if not, the doubt is shown."""

    key: str
    marks: tuple[str, ...]
    doubt: str  # a sentence


class Layer(Shape, frozen=True):
    """One object that stands for a machine."""

    key: str
    kind: LayerKind
    name: str
    lines: tuple[Line, ...] = ()
    where: Where = Where()
    cluster: str = ""  # the Kubernetes cluster it belongs to
    node: str = ""  # its node there, also where that cluster is not read
    holders: tuple[Holder, ...] = ()
    problems: tuple[str, ...] = ()  # errors of a kubelet, a BMC or a vCenter
    same_as: tuple[str, ...] = ()  # keys of layers that are proven to be the same machine
    doubts: tuple[str, ...] = ()  # sentences: which layer it may be, and why that is not proven
    suspects: tuple[Suspect, ...] = ()
    marks: tuple[str, ...] = ()  # what it is recognised by, such as `mac:02:00:00:00:00:01`
    under: str = ""  # the key of the ESXi host a VM runs on
    labels: dict[str, str] = {}


class Host(Shape, frozen=True):
    """One physical or virtual machine."""

    id: str
    name: str
    kind: HostKind
    state: HostState
    since: Instant | None = None
    capability: str = ""
    why: str = ""
    next: str = ""
    waiting: str = ""
    where: Where = Where()
    cluster: str = ""
    node: str = ""
    holders: tuple[Holder, ...] = ()
    problems: tuple[str, ...] = ()
    mid_steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    under: str = ""
    labels: dict[str, str] = {}
    operation: str = ""


def bare_metal_key(namespace: str, name: str) -> str:
    return f"bmh:{namespace}/{name}"


def vm_key(vcenter: str, instance_uuid: str) -> str:
    return f"vm:{vcenter}/{instance_uuid}"


def esxi_key(vcenter: str, hardware_uuid: str) -> str:
    return f"esxi:{vcenter}/{hardware_uuid}"


def agent_key(namespace: str, name: str) -> str:
    return f"agent:{namespace}/{name}"


def node_key(cluster: str, name: str) -> str:
    return f"node:{cluster}/{name}"


def expected_key(cluster: str, name: str) -> str:
    return f"expected:{cluster}/{name}"


def mac_mark(address: str) -> str:
    return f"mac:{address.strip().lower()}"


def merge_where(layers: Iterable[Layer]) -> Where:
    """What the layers say together; where two differ, the lower layer is right."""
    merged: dict[str, str] = {}
    for layer in layers:
        for field in Where.__struct_fields__:
            if value := getattr(layer.where, field):
                merged.setdefault(field, value)
    return Where(**merged)
