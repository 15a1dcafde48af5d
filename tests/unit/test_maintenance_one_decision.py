"""What explain and plan say comes next is what the operator decides: in any world, for every policy and state."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hostler.explain.registry import Explanation
from hostler.host.facts import Known, fresh
from hostler.host.holds import HOLDS
from hostler.kube.records import OwnerReference, Pod, PodMetadata, PodPhase, PodSpec, PodStatus
from hostler.kube.watch import Watch
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import (
    CancelTask,
    Decision,
    Evictions,
    PatchNode,
    PowerOff,
    PowerOn,
    Relocate,
    SetMark,
    ShutDown,
    TellMachine,
)
from hostler.maintenance.explain import MaintenanceExplainers
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import (
    BOOT_BEFORE,
    HOST,
    POLICY,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    Attempts,
    Wish,
    World,
    stamp_of,
)
from hostler.maintenance.placement import STOP
from hostler.maintenance.simulate import simulate
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import ENTER_MAINTENANCE, Backing, Cluster, Pci, Task, VmDevice
from tests.unit.maintenance_any_world import QUICK, any_world
from tests.unit.maintenance_world import VC, Play
from tests.unit.maintenance_yard import NOW, UUIDS, Yard

HIDDEN = ("note on", "mark", "unmark")  # a plan leaves them out

# -- the simulated course begins with the operator's own decision


@settings(QUICK, max_examples=150)
@given(any_world())
def test_a_simulated_course_begins_with_what_is_decided(world: World) -> None:
    policy, site = Play().policy, world.sites[VC]
    (subject,) = world.subjects
    known = fresh(site, NOW, policy.max_age)
    assume(isinstance(known, Known) and isinstance(known.value, Inventory))
    assert isinstance(known, Known)
    assert isinstance(known.value, Inventory)
    assume(not known.value.tasks_of("vm-a"))  # what is under way is assumed to come to its end
    entered = known.value.copy()
    host = entered.host("host-esx1")
    assert host is not None
    if host.in_maintenance is not True:
        entered.put(Task("task-now", ENTER_MAINTENANCE, "running", host.moref))
    memory = Memory()  # what a look at it adds: a VM that is off does not run since a minute ago
    memory.note("a", **{one.name: getattr(subject.remembered, one.name) for one in fields(subject.remembered)})
    subject = replace(subject, remembered=memory.saw(subject, Known(entered, known.at), NOW))
    world = replace(world, subjects=(subject,))
    decided = decide(replace(world, sites={VC: Known(entered, known.at)}), policy, NOW)
    pods = {subject.name: subject.drain} if subject.drain is not None else {}
    forecast = simulate(world, policy, NOW, VC, host.moref, pods)
    assert forecast.first == decided
    (one,) = decided.decisions
    if one.action is not None:
        assert forecast.steps[0].what == one.action


# -- and both are what people read


GPU = ("10de", "20b5")
DEVICES = ((VmDevice(Backing.DYNAMIC, allowed=(":".join(GPU),)),), (), (VmDevice(Backing.FIXED, "0000:00:00.0"),))


@st.composite
def any_yard(draw: st.DrawFn) -> Yard:
    """One worker on h1, any policy in any state; the host is in service, entering or in maintenance."""
    yard = Yard()
    yard.put(Cluster, "c1", name="compute", drs_enabled=draw(st.booleans()), drs_behaviour="fullyAutomated")
    for host in ("h1", "h2"):
        pci = tuple(Pci(f"0000:{n:02x}:00.0", *GPU) for n in range(draw(st.integers(0, 1)) if host == "h2" else 1))
        yard.host(host, pci=pci, passthrough=tuple(one.id for one in pci), power="poweredOn", standby="none",
                  cluster="c1", in_maintenance=host == "h1" and draw(st.booleans()))  # fmt: skip
    state = draw(st.sampled_from(["", "", "draining", "powered-off", "migrated"]))
    policy = draw(st.sampled_from([*Wish, "odd"]))
    since = stamp_of(NOW - draw(st.sampled_from([5, 500])))
    about = {
        POLICY: policy, STATE: state, HOST: "h1" if state else "", SINCE: since if state else "",
        BOOT_BEFORE: draw(st.sampled_from(["b", "before"])) if state else "",
        SHUTDOWN_SINCE: since if state == "draining" and draw(st.booleans()) else "",
        HOLDS: '[{"holder":"maintenance","why":"w","since":"","cordonedBefore":false}]' if state else "",
    }  # fmt: skip
    power = draw(st.sampled_from(["poweredOff", "poweredOn"])) if state in ("", "powered-off") else "poweredOn"
    yard.vm("a", UUIDS[0], devices=draw(st.sampled_from(DEVICES)), power=power, tools="guestToolsRunning")
    yard.node("a", UUIDS[0], annotations={key: value for key, value in about.items() if value})
    if state:
        node = yard.nodes.store.get("a")
        assert node is not None
        spec = msgspec.structs.replace(node.spec, unschedulable=True)
        metadata = msgspec.structs.replace(node.metadata, resource_version="50")
        yard.nodes.store.put(msgspec.structs.replace(node, metadata=metadata, spec=spec))
    if draw(st.booleans()):  # no mark is tried now, and its guest was asked to shut down
        tried = Attempts(3, NOW + 60, "no attributes here")
        yard.memory.note("a", mark=tried, shutdown_asked=about[SHUTDOWN_SINCE], shutdown_at=NOW - 500)
    lacks = draw(st.sampled_from([(), (), (), STOP]))
    yard.memory.rights[("vc", "vm-a-0")] = Known(lacks, NOW - draw(st.sampled_from([0, 100])))
    for watch in (yard.sources.pods, yard.sources.budgets, yard.sources.attachments, yard.sources.daemon_sets):
        read_once(watch)
    for number in range(draw(st.integers(0, 2))):
        yard.sources.pods.store.put(pod(f"web-{number}"))
    return yard


def pod(name: str) -> Pod:
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="rs", controller=True)
    return Pod(
        metadata=PodMetadata(name=name, namespace="web", uid=name, resource_version="1", owner_references=(owner,)),
        spec=PodSpec(node_name="a"),
        status=PodStatus(phase=PodPhase.RUNNING),
    )


def read_once(watch: Watch[Any]) -> None:
    """Its cache is complete and fresh, with nothing in it."""
    watch.store.begin_sync()
    watch.store.end_sync(0)
    watch.heard = watch._clock()


def explainers(yard: Yard) -> MaintenanceExplainers:
    return MaintenanceExplainers(yard.controller(), lambda: None, lambda: None)


def said_of(action: Any) -> list[tuple[str, str]]:
    """Verb and target of an action, read off what it would write."""
    match action:
        case None:
            return []
        case PatchNode(body=body):
            annotations, taints = body["metadata"].get("annotations", {}), body.get("spec", {}).get("taints")
            if STATE in annotations and annotations[STATE] is None:
                return [("release", "a")]
            if annotations.get(STATE) == "draining":
                return [("hold", "a")]
            if taints is not None:
                return [("taint" if taints else "untaint", "a")]
            return [("note on", "a")]
        case Evictions(evictions):
            return [("evict", one.key) for one in evictions]
        case TellMachine(machine):
            return [("annotate", f"Machine {machine}")]
        case SetMark(mark=mark):
            return [("mark" if mark is not None else "unmark", "VM a")]
    verbs = {ShutDown: "shut down", PowerOff: "power off", Relocate: "move", PowerOn: "power on",
             CancelTask: "cancel a task of"}  # fmt: skip
    return [(verbs[type(action)], "VM a")]


def shown(found: Explanation | None) -> list[tuple[str, str]]:
    assert found is not None
    return [(one.verb, one.target) for one in found.actions]


def agrees(found: Explanation | None, one: Decision) -> None:
    assert found is not None
    text = f"{one.why}." + (f" Next: {one.next}." if one.next else "")
    assert found.outcome[1:] == text[1:], "but for its first letter"
    assert shown(found) == said_of(one.action)


@settings(QUICK, max_examples=150)
@given(any_yard())
def test_explain_and_plan_say_what_is_decided(yard: Yard) -> None:
    people = explainers(yard)
    _, found = people.controller.look(also=("a",))
    now = found.of("a")
    assert now is not None
    agrees(people.node("a"), now)
    planned = people.plan("h1")
    assert planned is not None
    yard.enter("h1")
    _, found = people.controller.look(also=("a",))
    then = found.of("a")
    assert then is not None
    agrees(people.node("a"), then)
    (rule,) = [one for one in planned.rules if one.decided]
    assert (rule.outcome, rule.why[1:]) == (then.phase.value, people.node("a").outcome[1:])  # type: ignore[union-attr]
    first = said_of(then.action)
    if first and first[0][0] not in HIDDEN:
        assert shown(planned)[: len(first)] == first
