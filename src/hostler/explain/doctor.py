"""What is not as it should be in a fleet, and what mends it. Pure: `hostler doctor` gathers the facts and prints this.

A finding is a problem (something does not work, or waits for a person), a warning (it may surprise), or fine: what was
looked at and found in order is said too, so that silence never means "not looked at".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from hostler.explain.wire import StatusAnswer
from hostler.fleet.decide import INCUMBENT_FOUND, READY
from hostler.host.conditions import Status, count, names
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.holds import MAINTENANCE, holds_of
from hostler.host.label import Label
from hostler.host.maintenance import OUT_OF_SERVICE, SINCE, STATE, State
from hostler.instant import Instant, parse
from hostler.kube.records import Node
from hostler.safety.pause_state import PAUSED

LEAST_KUBERNETES = (1, 26)  # the eviction API and server-side apply as we use them
# Clocks of two machines are compared here, so only for spans that dwarf any difference.
STALE_SECONDS = 86_400.0
_LOOK = "Check --kubeconfig and --context; to look at them you need `list` on {}."
RIGHTS_UNREAD = (
    "Give our user System.Read on its VMs. Meanwhile a maintenance goes on after 60 s without knowing whether a VM can "
    "be started again; HOSTLER_MAINTENANCE_UNKNOWN_RIGHTS_HOLD=true holds it instead."
)
_ON_POOLS = "Resource.AssignVMToPool"  # the one privilege that is needed on resource pools, and not on VMs


class Level(StrEnum):
    FINE = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    level: Level
    what: str
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class VCenterSeen:
    """One vCenter as the machine that runs `hostler doctor` sees it."""

    name: str
    trouble: str = ""  # why we cannot log in
    lacks: tuple[str, ...] = ()  # "privilege (what for)"
    lacks_optional: tuple[str, ...] = ()
    unverified: bool = False
    untrusted: str = ""  # why nothing says which certificate to expect, so that it was not logged in to
    rights_unread: str = ""  # why it does not say what our user may do


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was looked at; what could not be looked at is Unknown with the reason."""

    version: str  # of the CLI
    server: Fact[str]
    fleet_kind: Fact[bool]
    pause_kind: Fact[bool]
    operator: Fact[StatusAnswer]
    nodes: Fact[tuple[Node, ...]]
    label: str = ""  # of the nodes maintenance looks after; empty: nobody is to be looked after
    rights: Fact[tuple[str, ...]] | None = None  # what the operator's account lacks; None: there is nobody to ask about
    vcenters: Mapping[str, VCenterSeen] = field(default_factory=dict)
    capabilities: tuple[Finding, ...] = ()  # what the capabilities themselves found
    way: str = ""  # to an operator that does not answer
    paused_field: bool = False  # the Fleet has spec.paused, which only versions before the kind Pause read


def examine(facts: Facts, now: Instant) -> list[Finding]:
    """Every finding, problems first."""
    vcenters = [_vcenter(one) for one in facts.vcenters.values()]
    found = [*_server(facts), *_operator(facts), *_rights(facts), *_nodes(facts, now), *vcenters, *facts.capabilities]
    if all(
        isinstance(one, Unknown)
        for one in (facts.server, facts.fleet_kind, facts.pause_kind, facts.nodes, facts.operator)
    ):
        found = [found[0], *vcenters]  # nobody answers there: one cause, said once
    order = [Level.PROBLEM, Level.WARNING, Level.FINE]
    return sorted(found, key=lambda one: order.index(one.level))


def _server(facts: Facts) -> Iterator[Finding]:
    what = "Kubernetes"
    match facts.server:
        case Unknown(why=why):
            yield Finding(Level.PROBLEM, what, why, "Check --kubeconfig and --context.")
        case Known(version):
            read = re.match(r"v?(\d+)\.(\d+)", version)
            if read and (int(read[1]), int(read[2])) < LEAST_KUBERNETES:
                least = ".".join(map(str, LEAST_KUBERNETES))
                yield Finding(Level.PROBLEM, what, f"It is {version}; Hostler needs {least}.", "Upgrade the cluster.")
            else:
                yield Finding(Level.FINE, what, f"It is {version}.")
    match facts.fleet_kind:
        case Unknown(why=why):
            yield Finding(Level.WARNING, "Fleet", why, _LOOK.format("fleets.hostler.dev"))
        case Known(False):
            yield Finding(
                Level.WARNING, "Fleet", "The kind Fleet is not installed, so there is no status in the cluster.",
                "hostler crds --apply",
            )  # fmt: skip
    match facts.pause_kind:
        case Unknown(why=why):
            yield Finding(Level.WARNING, "Pause", why, _LOOK.format("pauses.hostler.dev"))
        case Known(False):
            yield Finding(
                Level.WARNING, "Pause", "The kind Pause is not installed, so there is no stop button.",
                "hostler crds --apply",
            )  # fmt: skip
    if facts.paused_field:
        why = "The Fleet has spec.paused: true, which this version does not read: it pauses nothing."
        yield Finding(Level.PROBLEM, "stop button", why, "hostler crds --apply, then `hostler pause --why ...`.")


def _operator(facts: Facts) -> Iterator[Finding]:
    what = "operator"
    if isinstance(facts.operator, Unknown):
        way = facts.way or "Start it, or say where it is: --operator-namespace, --operator."
        yield Finding(Level.PROBLEM, what, facts.operator.why, way)
        return
    answer = facts.operator.value
    yield Finding(Level.FINE, what, f"{answer.status.leader or answer.identity} leads, version {answer.version}.")
    if answer.version != facts.version:
        why = f"The operator is {answer.version} and this command {facts.version}."
        yield Finding(Level.WARNING, "versions", why, "Use the same version of both.")
    if answer.dry_run:
        yield Finding(Level.WARNING, what, "It is a dry run: nothing is written.", "Unset DRY_RUN to let it act.")
    unknown = [one for one in answer.status.conditions if one.type == PAUSED and one.status is Status.UNKNOWN]
    for one in unknown:
        yield Finding(Level.PROBLEM, "stop button", one.message, "Nothing is written until it is known: its log.")
    if answer.paused and not unknown:
        yield Finding(Level.WARNING, "stop button", answer.pause, "kubectl get pauses; hostler resume")
    for one in answer.status.conditions:
        if one.type == INCUMBENT_FOUND and one.status is not Status.FALSE:
            yield Finding(Level.WARNING, "incumbent", one.message, "End the other controller, or --ignore-incumbent.")
        if one.type == READY and one.status is not Status.TRUE and not answer.paused:
            yield Finding(Level.PROBLEM, what, one.message, "hostler status")


def _rights(facts: Facts) -> Iterator[Finding]:
    match facts.rights:
        case Unknown(why=why):
            yield Finding(Level.WARNING, "rights", why, "`hostler rights` lists what it needs, and why.")
        case Known(lacks) if lacks:
            why = f"The operator's ServiceAccount may not {names(lacks)}."
            yield Finding(
                Level.PROBLEM, "rights", why, "`helm upgrade`, or `hostler rights -o yaml | kubectl apply -f -`."
            )
        case Known():
            yield Finding(Level.FINE, "rights", "The operator's ServiceAccount has every right that it needs.")


# -- nodes


def _nodes(facts: Facts, now: Instant) -> Iterator[Finding]:
    if isinstance(facts.nodes, Unknown):
        yield Finding(Level.PROBLEM, "nodes", facts.nodes.why, _LOOK.format("nodes"))
        return
    nodes = facts.nodes.value
    if facts.label:
        yield _label(nodes, Label(facts.label))
    troubles = [finding for node in nodes for finding in _node(node, now)]
    yield from troubles
    if not troubles:
        yield Finding(Level.FINE, "nodes", f"{count(len(nodes), 'node')}: no leftover taint, hold or state.")


def _label(nodes: Iterable[Node], label: Label) -> Finding:
    matching = sum(label.on(node) for node in nodes)
    if matching:
        return Finding(Level.FINE, "GPU_NODE_LABEL", f"{label.text} is on {count(matching, 'node')}.")
    mend = "Label the GPU workers, or set GPU_NODE_LABEL to the label they have."
    return Finding(Level.PROBLEM, "GPU_NODE_LABEL", label.nowhere(), mend)


def _node(node: Node, now: Instant) -> Iterator[Finding]:
    what = f"node/{node.metadata.name}"
    state = node.metadata.annotations.get(STATE, "")
    since = parse(node.metadata.annotations.get(SINCE))
    holds = holds_of(node)
    if isinstance(holds, Unknown):
        yield Finding(Level.PROBLEM, what, f"{holds.why}.", "Mend or remove the annotation.")
        holds = ()
    if state and state not in tuple(State):
        why = f'Annotation {STATE} is "{state}", which is no state.'
        yield Finding(Level.PROBLEM, what, why, f"One of {', '.join(State)}, or remove it.")
    elif state and since is not None and now - since > STALE_SECONDS:
        days = (now - since) / 86_400
        why = f"It is {state} for maintenance since {days:.0f} days." if days >= 2 else f"It is {state} since a day."
        yield Finding(Level.WARNING, what, why, f"hostler explain {what}")
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints) and not state:
        why = f"It has the taint {OUT_OF_SERVICE}, but no maintenance: pods cannot stay on it."
        yield Finding(Level.PROBLEM, what, why, f"If the machine runs: kubectl taint node {node.metadata.name} "
                      f"{OUT_OF_SERVICE}-")  # fmt: skip
    if not state and any(hold.holder == MAINTENANCE for hold in holds):
        why = "It carries a hold of maintenance, but no maintenance of it is under way."
        mend = (
            "The operator releases it once its VM runs, its ESXi host is in service and the node is Ready. By hand: "
            f"hostler release {node.metadata.name} --holder {MAINTENANCE}"
        )
        yield Finding(Level.WARNING, what, why, mend)
    other = [hold for hold in holds if hold.holder != MAINTENANCE and not hold.implied]
    if other:
        held, holders = [hold.said() for hold in other], [hold.holder for hold in other]
        whose = shlex.quote(holders[0]) if len(holders) == 1 else "NAME"
        mend = f"hostler release {node.metadata.name} --holder {whose}"
        yield Finding(Level.WARNING, what, f"It is held by {names(held)}.", mend)
    yielded = [hold.holder for hold in holds if hold.yielded]
    if yielded:
        why = f"It was uncordoned by hand although {names(yielded)} held it; the hold has given way."
        yield Finding(Level.WARNING, what, why, "Release the hold, or cordon the node again.")


# -- what was begun, and nobody goes on with

FINISH = {
    "maintenance": "If there is none, start one that has it on: it goes on from there. By hand: docs/install.md, "
    "Finish a node by hand.",
    "reclaim": "If there is none, start one that has it on: it goes on, or `hostler reclaim cancel`. By hand: "
    "docs/install.md, Uninstall.",
}


LOOKED_AT = {"maintenance": "nodes", "reclaim": "agents.agent-install.openshift.io"}


def begun(nodes: Fact[tuple[Node, ...]]) -> Fact[tuple[str, ...]]:
    """Nodes in mid-maintenance. That nodes cannot be listed is a finding of its own."""
    seen = nodes.value if isinstance(nodes, Known) else ()
    states = [(one.metadata.name, one.metadata.annotations.get(STATE)) for one in seen]
    return Known(tuple(f"node/{name} ({state})" for name, state in states if state in tuple(State)), 0.0)


def left_behind(capability: str, left: Fact[tuple[str, ...]], *, on: Fact[bool]) -> Iterator[Finding]:
    """`on`: whether the operator has this capability switched on."""
    match left, on:
        case Unknown(why=why), _:
            unseen = f"What it may have left behind could not be looked at: {why}"
            yield Finding(Level.WARNING, capability, unseen, _LOOK.format(LOOKED_AT[capability]))
        case Known(()), _:
            pass
        case Known(them), Unknown(why=why):
            why = f"Whether an operator still works on {names(them)} is not known: {why}"
            yield Finding(Level.WARNING, capability, why, FINISH[capability])
        case Known(them), Known(False):
            why = f"No operator that has it on was found, and nobody goes on with {names(them)}."
            yield Finding(Level.PROBLEM, capability, why, FINISH[capability])


def _vcenter(seen: VCenterSeen) -> Finding:
    what = f"vCenter {seen.name}"
    if seen.trouble:
        fix = (
            "The host, the login and the CA are settings (docs/vsphere.md); the operator's own may be others than here."
        )
        return Finding(Level.PROBLEM, what, seen.trouble, fix)
    if seen.untrusted:
        fix = (
            f"`hostler vcenter trust {seen.name}` shows its certificate; once that is accepted, or named by "
            "VCENTER_CERTIFICATE_SHA256, this login is tried."
        )
        return Finding(Level.WARNING, what, f"It was not logged in to from here. {seen.untrusted}", fix)
    if seen.rights_unread:
        return Finding(Level.WARNING, what, f"It does not say what our user may do: {seen.rights_unread}.",
                       RIGHTS_UNREAD)  # fmt: skip
    if seen.lacks:
        fix = "Add it to the role, at the vCenter's root; a role on the workers' folder alone is looked at per VM."
        if any(one.startswith(_ON_POOLS) for one in seen.lacks):
            fix += f" {_ON_POOLS} is needed only on the resource pools of HOSTLER_MAINTENANCE_CLUSTERS."
        return Finding(Level.PROBLEM, what, f"Our user lacks {names(seen.lacks)}.", fix)
    notes, fixes = [], []
    if seen.lacks_optional:
        notes.append(f"Our user lacks {names(seen.lacks_optional)}; the mark is kept in a ConfigMap instead.")
        fixes.append("Add it to the role, if you want the mark on the VM.")
    if seen.unverified:
        notes.append("Its certificate is not verified.")
        fixes.append("Unset VCENTER_TLS_PIN, or set VCENTER_CA_BUNDLE or VCENTER_TLS_VERIFY.")
    if not notes:
        return Finding(Level.FINE, what, "Connected, with every privilege.")
    return Finding(Level.WARNING, what, " ".join(notes), " ".join(fixes))
