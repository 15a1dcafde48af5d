"""Is every vSphere node's VM fit for the CSI driver? All nodes from one bulk read, every failing one named. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hostler.host import identity
from hostler.host.conditions import names
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.identity import Doubt, claimant_of, node_uuids
from hostler.host.platform import Class
from hostler.instant import Instant, parse
from hostler.kube.records import Node
from hostler.platform.model import CheckRound, NodeCheck, PlacedNode, Result
from hostler.uuids import canonical

HARDWARE_LEAST = 15
ESXI_LEAST, ESXI_FOR_UPGRADE = (6, 7, 3), (7, 0, 2)
OS = "kubernetes.io/os"
# Between two looks: after a failure a minute, doubled each time; after a pass an hour.
FIRST_SECONDS, LONGEST_SECONDS = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class Machine:
    """One VM as a vCenter described it in a bulk read."""

    uuid: str  # in one spelling
    name: str
    hardware: str
    esxi: str
    vcenter: str
    moref: str = ""
    guest: str = ""  # the host name that its guest reports


Answers = Mapping[str, Fact[Sequence[Machine]]]  # by vCenter


def nodes_to_check(nodes: Iterable[PlacedNode]) -> list[PlacedNode]:
    """The Linux nodes of class vsphere; no other node is checked by anything."""
    return [
        placed
        for placed in nodes
        if placed.found.kind is Class.VSPHERE
        and (placed.node.status.node_info.operating_system or placed.node.metadata.labels.get(OS, "linux")) == "linux"
    ]


def uuids_of(nodes: Iterable[PlacedNode]) -> frozenset[str]:
    """Every UUID to ask for: in one read, for all of them."""
    return frozenset(uuid for placed in nodes for uuid in node_uuids(placed.node))


def judge_nodes(
    nodes: Iterable[PlacedNode], answers: Answers, before: CheckRound, now: Instant, grace: float
) -> CheckRound:
    """The new round: each node's result, or the last known one where a vCenter did not answer."""
    silent = {name: fact.why for name, fact in answers.items() if isinstance(fact, Unknown)}
    found, known = _by_uuid(answers), list(nodes)
    claimed: dict[str, list[Node]] = {}
    for placed in known:
        for uuid in node_uuids(placed.node):
            claimed.setdefault(uuid, []).append(placed.node)
    results: dict[str, NodeCheck] = {}
    for placed in nodes_to_check(known):
        made = _check(placed.node, found, claimed, silent, now, grace)
        if made.result is Result.UNKNOWN:
            made = before.results.get(placed.name, made)
        results[placed.name] = made
    if not answers:
        return CheckRound(results, before.at, "no vCenter is configured", before.unknown_since or now)
    if silent:
        why = f"{names(silent)} did not answer: {silent[min(silent)]}"
        return CheckRound(results, before.at, why, before.unknown_since if before.unknown else now)
    return CheckRound(results, now)


def _by_uuid(answers: Answers) -> dict[str, list[Machine]]:
    found: dict[str, list[Machine]] = {}
    for fact in answers.values():
        if isinstance(fact, Known):
            for machine in fact.value:
                found.setdefault(machine.uuid, []).append(machine)
    return found


def _check(
    node: Node,
    found: Mapping[str, Sequence[Machine]],
    claimed: Mapping[str, Sequence[Node]],
    silent: Mapping[str, str],
    now: Instant,
    grace: float,
) -> NodeCheck:
    machines = {
        (machine.vcenter, machine.moref): machine for uuid in node_uuids(node) for machine in found.get(uuid, ())
    }
    if len(machines) > 1:  # by their ids: copies may have one name as well as one UUID
        twice = names(f"{machine.name} ({machine.moref}) in {machine.vcenter}" for machine in machines.values())
        return NodeCheck(Result.AMBIGUOUS, f"more than one VM has its UUID: {twice}")
    if not machines:
        return _absent(node, silent, now, grace)
    machine = next(iter(machines.values()))
    others = {other.metadata.name: other for uuid in node_uuids(node) for other in claimed.get(uuid, ())}
    refused = _of_another(node, machine, others)
    if refused:
        return NodeCheck(Result.CONTESTED, f"more than one node claims VM {machine.name}: {refused}")
    return _judge_machine(machine)


def _of_another(node: Node, machine: Machine, claimants: Mapping[str, Node]) -> str:
    """Why the VM is no proof for this node: another one says that it is the VM, by evidence as strong or stronger.

    A UUID alone will do for a look at a VM's hardware: nothing is done to the VM.
    """
    vm = identity.Machine(f"{machine.name} ({machine.moref})", machine.name, (machine.uuid,), machine.guest)
    ranks = {name: identity.rank_of(claimant_of(other), vm, "") for name, other in claimants.items()}
    theirs = {name: rank for name, rank in ranks.items() if rank is not None and name != node.metadata.name}
    mine = claimant_of(node)
    found = identity.settle(mine, identity.claim(mine, [vm], ""), theirs, by_uuid=True)
    return found.why if isinstance(found, Doubt) else ""


def _absent(node: Node, silent: Mapping[str, str], now: Instant, grace: float) -> NodeCheck:
    if silent:
        return NodeCheck(Result.UNKNOWN, f"{names(silent)} did not answer: {silent[min(silent)]}")
    created = parse(node.metadata.creation_timestamp)
    if created is None or now - created < grace:
        return NodeCheck(Result.YOUNG, f"it joined less than {grace:g} s ago; its VM may not be known yet")
    if not node_uuids(node):
        return NodeCheck(Result.NOT_FOUND, "it has neither a vSphere providerID nor a system UUID")
    return NodeCheck(Result.NOT_FOUND, "no VM in any vCenter has its UUID")


def _judge_machine(machine: Machine) -> NodeCheck:
    hardware, esxi = hardware_of(machine.hardware), version_of(machine.esxi)
    at = f"VM {machine.name} in {machine.vcenter}"
    if hardware is None or esxi is None:
        missing = "hardware version" if hardware is None else "the version of its ESXi host"
        return NodeCheck(Result.UNKNOWN, f"{at} does not say its {missing}")
    if hardware < HARDWARE_LEAST:
        return NodeCheck(Result.HARDWARE, f"{at} has hardware version {hardware}, and {HARDWARE_LEAST} is needed")
    if esxi < ESXI_LEAST:
        return NodeCheck(Result.ESXI, f"{at} runs on ESXi {machine.esxi}, and {_dotted(ESXI_LEAST)} is needed")
    if esxi < ESXI_FOR_UPGRADE:
        why = f"{at} runs on ESXi {machine.esxi}, and {_dotted(ESXI_FOR_UPGRADE)} is needed before an upgrade"
        return NodeCheck(Result.ESXI_BLOCKS, why)
    return NodeCheck(Result.PASSED, f"{at}: hardware version {hardware}, ESXi {machine.esxi}")


def next_look(checks_round: CheckRound, failures: int) -> float:
    """Seconds until the next look, if nothing changes before: an hour after a pass, else a minute and doubling."""
    if not checks_round.unknown and all(check.result is Result.PASSED for check in checks_round.results.values()):
        return LONGEST_SECONDS
    return float(min(FIRST_SECONDS * 2 ** min(max(failures - 1, 0), 10), LONGEST_SECONDS))


def in_no_vcenter(node: Node, answers: Answers) -> Fact[bool]:
    """Whether a node is known to be in no vCenter: only if each was asked for its UUID and answered."""
    uuids = node_uuids(node)
    if not answers:
        return Unknown("cannot tell that it is in no vCenter: none is configured")
    if not uuids:
        return Unknown("it has no system UUID to look for")
    at = None
    for name in sorted(answers):
        match answers[name]:
            case Unknown(why):
                return Unknown(f"{name} did not answer: {why}")
            case Known(machines, seen):
                at = seen if at is None else min(at, seen)
                if any(machine.uuid in uuids for machine in machines):
                    return Known(False, seen)
    return Known(True, at or 0.0)


def hardware_of(text: str) -> int | None:
    """15 of `vmx-15`."""
    read = re.fullmatch(r"vmx-(\d{1,4})", text.strip())
    return int(read[1]) if read else None


def version_of(text: str) -> tuple[int, int, int] | None:
    """(7, 0, 2) of `7.0.2` or `7.0.2.0`; parts that are left out count as 0."""
    read = re.fullmatch(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.\d+)*", text.strip())
    return (int(read[1]), int(read[2]), int(read[3] or 0)) if read else None


def spelled(uuid: str) -> str:
    return canonical(uuid) or ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
