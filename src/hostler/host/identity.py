"""Which machine a node is, across sources. Never a guess: two candidates, or a contradiction, is a refusal.

UUIDs are compared in both byte orders, see `hostler.uuids`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from hostler.host.conditions import names
from hostler.kube.records import Node
from hostler.uuids import canonical as canonical
from hostler.uuids import normalise as normalise
from hostler.uuids import same_uuid as same_uuid
from hostler.uuids import swapped as swapped


def provider_uuid(provider_id: str) -> str | None:
    """The UUID in `vsphere://<uuid>`, in one spelling; None for any other providerID."""
    return canonical(provider_id.removeprefix("vsphere://")) if provider_id.startswith("vsphere://") else None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as another source knows it: a VM, a BareMetalHost. `uuids` are all it goes by (BIOS, instance)."""

    key: str
    name: str
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Same:
    machine: Machine
    why: str


@dataclass(frozen=True, slots=True)
class NotFound:
    why: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """More than one answer, or answers that contradict each other: nothing may be done to the machine."""

    why: str


Identified: TypeAlias = Same | NotFound | Doubt


def node_uuids(node: Node) -> frozenset[str]:
    """The UUIDs a node goes by, each in one spelling."""
    found = (provider_uuid(node.spec.provider_id), canonical(node.status.node_info.system_uuid))
    return frozenset(uuid for uuid in found if uuid is not None)


def same_machine(node: Node, machine: Machine) -> bool:
    """Whether a UUID says that they are one machine. A name alone never does."""
    return not node_uuids(node).isdisjoint(_uuids(machine))


def identify(node: Node, machines: Iterable[Machine]) -> Identified:
    """The machine a node is: by providerID or system UUID, then by exact name.

    A machine of the same name whose UUID is known and another is not the node: a VM built anew under an old name.
    """
    name, among = node.metadata.name, list(machines)
    found = [machine for machine in among if same_machine(node, machine)]
    if len(found) > 1:
        return Doubt(f"{len(found)} machines have the UUID of node {name}: {names(m.key for m in found)}")
    if found:
        return Same(found[0], f"its UUID is that of {found[0].name or found[0].key}")
    alike = [machine for machine in among if machine.name == name]
    if len(alike) > 1:
        return Doubt(f"{len(alike)} machines are named {name}: {names(m.key for m in alike)}")
    if not alike:
        return NotFound(f"no machine has the UUID or the name of node {name}")
    if node_uuids(node) and _uuids(alike[0]):
        return Doubt(f"the machine named {name} has another UUID than node {name}; it may be built anew")
    return Same(alike[0], f"it is the only machine named {name}, and one of the two has no UUID to compare")


def _uuids(machine: Machine) -> frozenset[str]:
    return frozenset(uuid for uuid in map(canonical, machine.uuids) if uuid is not None)
