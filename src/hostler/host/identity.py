"""Which VM a Node is, by rank of evidence. Never a guess: two candidates, or a contradiction, is a refusal. Pure.

A kubelet writes its own system UUID, its labels and annotations, and its providerID once. So a UUID alone proves
nothing: with the UUID of another VM, a kubelet would have that VM drained and stopped. What it cannot write is its
Node's name, a VM's name, what another VM's guest says of itself, a custom attribute in vCenter, and a Machine.

UUIDs are compared in both byte orders, see `hostler.uuids`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TypeAlias

from hostler.host.conditions import names
from hostler.kube.records import Node
from hostler.uuids import canonical

ATTRIBUTE = "hostler-node"  # the custom attribute of a VM: NODE, or CLUSTER/NODE


class Rank(IntEnum):
    """How strong the evidence is that a Node is a VM: the lower, the stronger."""

    VCENTER = 1  # the VM's custom attribute `hostler-node`, or our own mark
    MACHINE = 2  # a Machine of this cluster: its nodeRef is the Node, its providerID is the VM's
    NAME = 3  # a UUID and a name agree, or the names are equal and one side has no UUID to compare
    PROVIDER_ID = 4  # the kubelet's word alone
    SYSTEM_UUID = 5  # the same, and it may change it at any time

    @property
    def proven(self) -> bool:
        """More than the kubelet's own word."""
        return self <= Rank.NAME


class Refusal(StrEnum):
    """Why nobody acts on what a Node says which VM it is. A label of a metric, too."""

    UNPROVEN = "unproven"  # nothing but the kubelet's own word
    OUTRANKED = "outranked"  # another Node has a stronger claim to the VM
    CONTESTED = "contested"  # another Node has a claim to the VM that is as strong
    OTHER_NODE = "other-node"  # vCenter says that the VM is another Node
    SEVERAL_VMS = "several-vms"  # more than one VM fits
    OTHER_UUID = "other-uuid"  # the VM of its name has another UUID


@dataclass(frozen=True, slots=True)
class Claimant:
    """A Node, as far as it says which VM it is. `machines`: UUIDs in the providerIDs of the Machines that are it."""

    name: str
    provider: str | None = None
    system: str | None = None
    machines: frozenset[str] = frozenset()

    @property
    def uuids(self) -> frozenset[str]:
        """What its kubelet says, each in one spelling."""
        return frozenset(uuid for uuid in (self.provider, self.system) if uuid is not None)


@dataclass(frozen=True, slots=True)
class Machine:
    """A VM as vCenter knows it. `uuids` are all it goes by (BIOS, instance)."""

    key: str
    name: str
    uuids: tuple[str, ...] = ()
    guest: str = ""  # the host name that its guest reports; "" while it does not
    attribute: str = ""  # `hostler-node`
    marked: str = ""  # the Node in our own mark

    @property
    def called(self) -> str:
        return self.name or self.key

    @property
    def known(self) -> frozenset[str]:
        """Its UUIDs, each in one spelling."""
        return frozenset(uuid for uuid in map(canonical, self.uuids) if uuid is not None)


@dataclass(frozen=True, slots=True)
class Same:
    machine: Machine
    rank: Rank
    why: str


@dataclass(frozen=True, slots=True)
class NotFound:
    why: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """A person has to look: nothing may be done to the VM but start it again.

    `machine`: the one that it would be, if it is just one and no other Node is proven to be it.
    """

    reason: Refusal
    why: str
    machine: Machine | None = None


Identified: TypeAlias = Same | NotFound | Doubt


@dataclass(frozen=True, slots=True)
class Claims:
    """What one Node claims, before anybody asks what other Nodes do."""

    answer: Identified
    ranks: Mapping[str, Rank]  # by the key of each VM it may be; one that is proven claims no other


def provider_uuid(provider_id: str) -> str | None:
    """The UUID in `vsphere://<uuid>`, in one spelling; None for any other providerID."""
    return canonical(provider_id.removeprefix("vsphere://")) if provider_id.startswith("vsphere://") else None


def node_uuids(node: Node) -> frozenset[str]:
    """The UUIDs a node goes by, each in one spelling."""
    return claimant_of(node).uuids


def claimant_of(node: Node, machines: Iterable[str] = ()) -> Claimant:
    """`machines`: the providerIDs of the Machines of this cluster whose nodeRef is this Node."""
    provider, system = provider_uuid(node.spec.provider_id), canonical(node.status.node_info.system_uuid)
    known = frozenset(uuid for uuid in map(provider_uuid, machines) if uuid is not None)
    return Claimant(node.metadata.name, provider, system, known)


def named_node(attribute: str, cluster: str) -> str | None:
    """The Node of this cluster that a VM's attribute names; "" where it names another cluster's, None without one.

    `cluster`: how marks on VMs name this Kubernetes cluster; "" while that is not known.
    """
    whose, slash, node = attribute.strip().rpartition("/")
    if not slash:
        return node or None
    return node if whose and whose == cluster else ""


def same_name(node: str, machine: str) -> bool:
    """One name, in any case. Where one of the two has no domain, the first label of the other counts."""
    ours, theirs = node.lower(), machine.strip().lower()
    if not ours or not theirs or ours == theirs:
        return bool(ours) and ours == theirs
    return ours == theirs.partition(".")[0] or theirs == ours.partition(".")[0]


def rank_of(node: Claimant, machine: Machine, cluster: str) -> Rank | None:
    """How strong the evidence is that this Node is this VM; None: there is none, or vCenter says otherwise."""
    named, known = named_node(machine.attribute, cluster), machine.known
    if named not in (None, node.name):
        return None
    if machine.marked == node.name:
        return Rank.VCENTER
    if named is not None:
        # A bare name may be meant for the node of that name in another cluster: CLUSTER/NODE settles it.
        bare = "/" not in machine.attribute
        return None if bare and _contradicts(node, machine) else Rank.VCENTER
    if not node.machines.isdisjoint(known):
        return Rank.MACHINE
    if not node.uuids.isdisjoint(known):
        if same_name(node.name, machine.name) or same_name(node.name, machine.guest):
            return Rank.NAME
        return Rank.PROVIDER_ID if node.provider in known else Rank.SYSTEM_UUID
    return Rank.NAME if _by_name_alone(node, machine) else None


def _by_name_alone(node: Claimant, machine: Machine) -> bool:
    """The predecessor's rule: the names are equal and one side has no UUID. A guest of another name contradicts it."""
    if machine.name != node.name or (node.uuids and machine.known):
        return False
    return not machine.guest or same_name(node.name, machine.guest)


def claim(node: Claimant, machines: Iterable[Machine], cluster: str) -> Claims:
    """The VM that one Node is, as far as itself and vCenter go. `machines`: every VM that it may be."""
    among = {machine.key: machine for machine in machines}
    ranks = {key: rank for key, machine in among.items() if (rank := rank_of(node, machine, cluster)) is not None}
    by_uuid = {key for key in ranks if _agrees(node, among[key])}
    if by_uuid:  # a name alone says nothing where a UUID speaks
        ranks = {key: rank for key, rank in ranks.items() if key in by_uuid or rank is Rank.VCENTER}
    groups = (
        [key for key in ranks if named_node(among[key].attribute, cluster) and "/" in among[key].attribute],
        [key for key in ranks if ranks[key].proven and key in by_uuid],
        [key for key in ranks if ranks[key].proven],
        list(ranks),
    )
    best = next((group for group in groups if group), [])
    if not best:
        return Claims(_none(node, among.values(), cluster), {})
    if len(best) > 1:
        why = f"{len(best)} VMs may be node {node.name}: {names(among[key].key for key in best)}"
        return Claims(Doubt(Refusal.SEVERAL_VMS, why), ranks)
    machine, rank = among[best[0]], ranks[best[0]]
    copies = [key for key in by_uuid - {machine.key} if not among[key].known.isdisjoint(machine.known)]
    if copies and rank is not Rank.VCENTER:
        why = f"{len(copies) + 1} VMs have the UUID of node {node.name}: {names([machine.key, *copies])}"
        return Claims(Doubt(Refusal.SEVERAL_VMS, why), ranks)
    kept = {machine.key: rank} if rank.proven else ranks
    return Claims(Same(machine, rank, _evidence(node, machine, rank)), kept)


def settle(node: Claimant, own: Claims, others: Mapping[str, Rank], *, by_uuid: bool) -> Identified:
    """The VM that a Node is, once other Nodes' claims to that VM are known. `others`: by name of the Node.

    A weaker claim is refused and touches nobody else; of equal ones each is refused. `by_uuid`: the owner lets a UUID
    alone count.
    """
    if not isinstance(own.answer, Same):
        return own.answer
    machine, rank = own.answer.machine, own.answer.rank
    stronger = [name for name, theirs in others.items() if theirs < rank]
    if stronger:
        why = f"VM {machine.called} is {names(stronger)} by stronger evidence than what node {node.name} says"
        proven = any(others[name].proven for name in stronger)
        return Doubt(Refusal.OUTRANKED, why, None if proven else machine)
    equal = [name for name, theirs in others.items() if theirs == rank]
    if equal:
        why = f"{names([node.name, *equal])} claim VM {machine.called} by equal evidence"
        return Doubt(Refusal.CONTESTED, why, machine)
    if not rank.proven and not by_uuid:
        why = f"only the kubelet of {node.name} says that it is VM {machine.called}: no name agrees with its UUID"
        return Doubt(Refusal.UNPROVEN, why, machine)
    return own.answer


def remedy(reason: Refusal, node: str, cluster: str) -> str:
    """What the owner can do about it."""
    value = f"set the custom attribute {ATTRIBUTE} of its VM in vCenter to {cluster}/{node}".replace(" /", " ")
    match reason:
        case Refusal.UNPROVEN:
            return f"{value}, or HOSTLER_VM_IDENTITY=uuid if every kubelet is trusted"
        case Refusal.OTHER_NODE:
            return f"{value}, if that VM is {node}"
        case _:
            return value


def _none(node: Claimant, machines: Iterable[Machine], cluster: str) -> Identified:
    among = list(machines)
    theirs = [machine for machine in among if _agrees(node, machine) and machine.attribute]
    if theirs:
        said = ", ".join(f"{machine.called} is {machine.attribute}" for machine in theirs)
        return Doubt(Refusal.OTHER_NODE, f"vCenter's attribute {ATTRIBUTE} says that VM {said}, not {node.name}")
    meant = [machine for machine in among if named_node(machine.attribute, cluster) == node.name]
    if meant:
        said = names(machine.called for machine in meant)
        why = f"attribute {ATTRIBUTE} of VM {said} is {node.name}, but the VM has another UUID than node {node.name}"
        return Doubt(Refusal.OTHER_UUID, f"{why}; it may be a node of another cluster")
    alike = [machine for machine in among if machine.name == node.name and not named_node(machine.attribute, cluster)]
    if not alike:
        return NotFound(f"no VM has the UUID or the name of node {node.name}")
    why = f"the VM named {node.name} has another UUID than node {node.name}; it may have been rebuilt"
    return Doubt(Refusal.OTHER_UUID, why)


def _agrees(node: Claimant, machine: Machine) -> bool:
    """A UUID of the Node, or of a Machine that is it, is the VM's."""
    return not (node.uuids | node.machines).isdisjoint(machine.known)


def _contradicts(node: Claimant, machine: Machine) -> bool:
    """Both sides have UUIDs, and none is the same."""
    return bool((node.uuids | node.machines) and machine.known) and not _agrees(node, machine)


def _evidence(node: Claimant, machine: Machine, rank: Rank) -> str:
    match rank:
        case Rank.VCENTER:
            what = f"attribute {ATTRIBUTE}" if machine.attribute else "mark"
            return f"the {what} of VM {machine.called} in vCenter names it"
        case Rank.MACHINE:
            return f"its Machine has the providerID of VM {machine.called}"
        case Rank.NAME if _agrees(node, machine):
            return f"its UUID and its name are those of VM {machine.called}"
        case Rank.NAME:
            return f"VM {machine.called} is the only one of its name, and one of the two has no UUID to compare"
        case Rank.PROVIDER_ID:
            return f"its providerID is that of VM {machine.called}, and nothing else says so"
        case Rank.SYSTEM_UUID:
            return f"its system UUID is that of VM {machine.called}, and nothing else says so"
