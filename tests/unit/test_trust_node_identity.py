"""Whatever a kubelet writes about itself reaches no VM but its own, and touches no other node's maintenance."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from hostler.apis.capi import ContractReference, Machine, MachineSpec, MachineStatus
from hostler.host.facts import Known
from hostler.host.identity import Rank, Refusal, provider_uuid
from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.metrics import Metrics
from hostler.kube.records import Condition, Metadata, Node, NodeAddress, NodeInfo, NodeSpec, NodeStatus
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import (
    BlockedBy,
    CancelTask,
    Decision,
    Evictions,
    Pass,
    PatchNode,
    Phase,
    PowerOff,
    PowerOn,
    Relocate,
    SetMark,
    ShutDown,
)
from hostler.maintenance.identities import Found, Identities
from hostler.maintenance.machines import READ_SECONDS, NodeMachines
from hostler.maintenance.model import (
    HOST,
    ORIGIN,
    POLICY,
    RELOCATE_SINCE,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    TARGET,
    TOLD,
    InDoubt,
    Mark,
    Marked,
    Policy,
    State,
)
from hostler.maintenance.observe import Observer
from hostler.maintenance.status import (
    EventReporter,
    IdentityRefused,
    MaintenanceMetrics,
    MaintenanceStatus,
    list_findings,
)
from hostler.uuids import canonical, swapped
from hostler.vsphere.records import Backing, Fields, Host, Vm, VmDevice
from tests.unit.maintenance_yard import LABEL, NOW, UUIDS, Yard
from tests.unit.nowhere import Nowhere

HOSTLER, NODE_FIELD = 7, 8  # keys of the custom attributes `hostler` and `hostler-node`
LIAR, CONTROL_PLANE, HONEST, HULL, OFF, LONE, NAMESAKE = UUIDS[:7]
CLUSTER = "c1"


def yard(by_uuid: bool = False) -> Yard:
    """`liar` on h2, which is in service; on h1, which enters: a control plane, two workers, and a VM that is off."""
    made = Yard(by_uuid=by_uuid)
    made.identities.name_cluster(CLUSTER)
    made.put(Fields, "CustomFieldsManager", names=((HOSTLER, "hostler"), (NODE_FIELD, "hostler-node")))
    made.host()
    made.host("h2")
    made.enter()
    held: dict[str, Any] = {"devices": (VmDevice(Backing.FIXED, "0000:00:00.0", ("8086:56c0",)),)}
    made.vm("liar", LIAR, host="h2", guest_name="liar", **held)
    made.vm("cp", CONTROL_PLANE, guest_name="cp", **held)
    made.vm("honest", HONEST, guest_name="honest", **held)
    made.vm("hull", HULL, guest_name="worker.example.com", **held)  # a worker whose VM is named otherwise
    made.vm("off", OFF, power="poweredOff", **held)
    made.vm("lone", LONE, **held)  # of no node at all
    for watch in (made.sources.pods, made.sources.budgets, made.sources.attachments, made.sources.daemon_sets):
        watch.store.begin_sync()
        watch.store.end_sync(0)
        watch.heard = watch._clock()
    made.node("cp", CONTROL_PLANE, labelled=False)
    made.node("honest", HONEST)
    made.node("worker", HULL)
    for number in range(8):
        made.node(f"idle-{number}", labelled=True)
    return made


def put_node(made: Yard, name: str, system: str = "", provider: str = "", **said: Any) -> None:
    """A node, with whatever its kubelet says."""
    fields = dict(said)
    version = made._version = made._version + 1
    made.nodes.store.put(
        Node(
            metadata=Metadata(
                name=name, uid=name, resource_version=str(version), labels=fields.pop("labels", {LABEL: "yes"}),
                annotations=fields.pop("annotations", {}),
            ),
            spec=NodeSpec(provider_id=provider, unschedulable=fields.pop("unschedulable", False)),
            status=NodeStatus(node_info=NodeInfo(boot_id="b", system_uuid=system), **fields),
        )
    )  # fmt: skip


def passed(made: Yard, policy: Policy | None = None) -> Pass:
    world = made.observer.world(NOW)
    rights = {("vc", vm.moref): Known(frozenset[str](), NOW) for vm in made.vcenters["vc"].inventory.vms()}
    settled = replace(world, out_since=dict.fromkeys(world.out_since, NOW - 600), rights=rights)  # type: ignore[arg-type]
    return decide(settled, policy or Policy(max_drains=9), NOW)


def decided(made: Yard, name: str) -> Decision:
    one = passed(made).of(name)
    assert one is not None, made.seen()
    return one


def refusal(made: Yard, name: str) -> Refusal | None:
    found = made.identities.of(name)
    assert isinstance(found, InDoubt), found
    return found.reason


# -- everything that a kubelet can write

SPELLED = [text for uuid in UUIDS[:6] for text in (uuid, uuid.upper(), swapped(uuid.replace("-", "")), f"{{{uuid}}}")]
TIMES = ["", "2023-11-14T21:00:00Z", "2023-11-14T22:13:10Z", "never"]
HOSTS = ["h1", "h2", "h9", ""]
WRITTEN = {
    STATE: [*State, "no-state"],
    HOST: HOSTS,
    TARGET: HOSTS,
    ORIGIN: ["-/h1/-/h1", "-/h2/-/h2", "x"],
    POLICY: ["migrate", "wait", "stay-off", "ignore", "x"],
    SINCE: TIMES,
    SHUTDOWN_SINCE: TIMES,
    RELOCATE_SINCE: TIMES,
    TOLD: ["machine:kube-system/cp autoscaler"],
    "hostler.dev/holds": ["[]", "{", '[{"holder":"maintenance","why":"x","since":"","cordonedBefore":false}]'],
    "hostler.dev/maintenance-of": ["cp"],
    "hostler-node": ["cp"],
    "cluster.x-k8s.io/cluster-name": ["own"],
    "cluster.x-k8s.io/cluster-namespace": ["capi"],
}
ANNOTATIONS = st.fixed_dictionaries({}, optional={key: st.sampled_from(words) for key, words in WRITTEN.items()})
LABELS = st.dictionaries(st.sampled_from([LABEL, "node.kubernetes.io/x", "kubernetes.io/hostname"]), st.just("cp"))
SAID = st.fixed_dictionaries(
    {
        "system": st.sampled_from(["", "x", "0" * 32, *SPELLED]),
        "provider": st.sampled_from(["", "aws:///x", "vsphere://", *(f"vsphere://{one}" for one in SPELLED)]),
        "labels": LABELS,
        "annotations": ANNOTATIONS,
        "unschedulable": st.booleans(),
        "addresses": st.sampled_from([(), (NodeAddress(type="Hostname", address="cp"),)]),
        "conditions": st.sampled_from([(), (Condition(type="Ready", status="True"),)]),
    }
)


def touched_vm(one: Decision) -> str:
    """The VM that is stopped, moved or marked, or whose task is ended; "" where none is."""
    match one.action:
        case ShutDown(vm) | PowerOff(vm) | Relocate(vm) | CancelTask(vm):
            return vm
        case SetMark(vm, mark) if mark is not None:
            return vm
    return ""


def empties(one: Decision) -> bool:
    """Its node is cordoned for a maintenance, or its pods are evicted."""
    drains = isinstance(one.action, PatchNode) and one.action.event in ("Draining", "DrainingAgain", "OutOfService")
    return drains or isinstance(one.action, Evictions)


@settings(max_examples=150, deadline=None)
@given(said=SAID)
def test_what_a_kubelet_says_reaches_no_vm_but_its_own(said: dict[str, Any]) -> None:
    made = yard()
    put_node(made, "liar", LIAR)
    others = ("honest", "worker", "cp", "vm/off", "vm/cp", "vm/lone")
    before = {name: passed(made).of(name) for name in others}
    put_node(made, "liar", **said)
    for _ in range(4):
        now = passed(made)
        assert {name: now.of(name) for name in others} == before, "no other node's maintenance is touched"
        one = now.of("liar")
        if one is None:
            return
        assert touched_vm(one) in ("", f"vm-liar-{LIAR[-1]}"), one
        assert not empties(one), one
        if not isinstance(one.action, PatchNode):
            return
        wanted = {**said["annotations"], **one.action.body["metadata"].get("annotations", {})}
        said["annotations"] = {key: value for key, value in wanted.items() if value is not None}
        said["unschedulable"] = bool(one.action.body.get("spec", {}).get("unschedulable", said["unschedulable"]))
        put_node(made, "liar", **said)


def yard_with_namesake(attribute: str = "") -> Yard:
    """The liar's own VM has another name, and the VM of its name is another cluster's node."""
    made = yard()
    made.put(Vm, f"vm-liar-{LIAR[-1]}", name="hull-2", guest_name="")
    held = (VmDevice(Backing.FIXED, "0000:00:00.0", ("8086:56c0",)),)
    made.vm("liar", NAMESAKE, devices=held, attributes=((NODE_FIELD, attribute),) if attribute else ())
    return made


@settings(max_examples=150, deadline=None)
@given(said=SAID, attribute=st.sampled_from(["", "c2/liar", "liar"]), stolen=st.booleans())
def test_a_namesake_is_reached_by_its_uuid_or_none(said: dict[str, Any], attribute: str, stolen: bool) -> None:
    """By a kubelet that says the UUID of its namesake or none at all; never where an attribute says whose it is."""
    made = yard_with_namesake(attribute)
    if stolen:
        said["system"] = NAMESAKE
    put_node(made, "liar", **said)
    silent = canonical(said["system"]) is None and provider_uuid(said["provider"]) is None
    may = (silent or stolen) and attribute != "c2/liar"
    found = made.identities.of("liar")
    assert (isinstance(found, Found) and found.moref == f"vm-liar-{NAMESAKE[-1]}") is may, found
    one = passed(made).of("liar")
    if one is not None and not may:
        assert touched_vm(one) in ("", f"vm-liar-{LIAR[-1]}"), one
        assert not empties(one), one


@pytest.mark.parametrize("uuid", ["", NAMESAKE])
def test_an_attribute_protects_the_vm_of_a_namesake(uuid: str) -> None:
    made = yard_with_namesake()
    put_node(made, "liar", uuid)
    assert empties(decided(made, "liar")), "docs/threat-model.md names this"
    made = yard_with_namesake("c2/liar")
    put_node(made, "liar", uuid)
    assert passed(made).of("liar") is None or not empties(decided(made, "liar"))


@settings(max_examples=60, deadline=None)
@given(said=SAID)
def test_a_proven_node_says_what_it_likes(said: dict[str, Any]) -> None:
    """vCenter's word is stronger than its kubelet's: whatever that says, it is its own VM."""
    made = yard()
    made.put(Vm, f"vm-liar-{LIAR[-1]}", attributes=((NODE_FIELD, f"{CLUSTER}/liar"),))
    put_node(made, "liar", **said)
    found = made.identities.of("liar")
    assert isinstance(found, Found)
    assert (found.moref, found.rank) == (f"vm-liar-{LIAR[-1]}", Rank.VCENTER)


# -- one refusal after the other


@pytest.mark.parametrize(
    ("uuid", "reason"),
    [(CONTROL_PLANE, Refusal.OUTRANKED), (HONEST, Refusal.OUTRANKED), (OFF, Refusal.UNPROVEN)],
)
def test_a_liar_is_named_with_what_the_owner_can_do(uuid: str, reason: Refusal) -> None:
    made = yard()
    put_node(made, "liar", uuid)
    assert refusal(made, "liar") is reason
    one = decided(made, "liar")
    assert (one.phase, one.action, one.unknown) == (Phase.REFUSED, None, True)
    assert one.blocked is not None
    assert one.blocked.by is BlockedBy.IDENTITY
    assert f"hostler-node of its VM in vCenter to {CLUSTER}/liar" in one.next


def test_the_other_node_goes_on() -> None:
    made = yard()
    put_node(made, "liar", HONEST, f"vsphere://{HONEST}")
    assert isinstance(decided(made, "honest").action, PatchNode)
    assert isinstance(made.identities.of("honest"), Found)


def test_with_the_setting_a_uuid_alone_counts() -> None:
    made = yard(by_uuid=True)
    made.put(Vm, f"vm-hull-{HULL[-1]}", guest_name="")
    found = made.identities.of("worker")
    assert isinstance(found, Found)
    assert found.rank is Rank.PROVIDER_ID
    put_node(made, "liar", "", f"vsphere://{HULL}")
    assert (refusal(made, "liar"), refusal(made, "worker")) == (Refusal.CONTESTED, Refusal.CONTESTED)
    put_node(made, "liar", HULL)
    assert refusal(made, "liar") is Refusal.OUTRANKED
    assert isinstance(made.identities.of("worker"), Found)


def test_a_node_that_is_gone_claims_nothing() -> None:
    made = yard(by_uuid=True)
    made.put(Vm, f"vm-hull-{HULL[-1]}", guest_name="")
    put_node(made, "liar", "", f"vsphere://{HULL}")
    assert refusal(made, "worker") is Refusal.CONTESTED
    liar = made.nodes.store.get("liar")
    assert liar is not None
    made.nodes.store.remove(msgspec.structs.replace(liar, metadata=Metadata(name="liar", resource_version="999")))
    assert isinstance(made.identities.of("worker"), Found)


@pytest.mark.parametrize(
    ("value", "is_it"), [("worker", True), (f"{CLUSTER}/worker", True), ("c2/worker", False), ("honest", False)]
)
def test_an_attribute_in_vcenter_decides(value: str, is_it: bool) -> None:
    made = yard()
    made.put(Vm, f"vm-hull-{HULL[-1]}", guest_name="")
    assert refusal(made, "worker") is Refusal.UNPROVEN
    made.put(Vm, f"vm-hull-{HULL[-1]}", attributes=((NODE_FIELD, value),))
    found = made.identities.of("worker")
    assert isinstance(found, Found) is is_it, found
    if not is_it:
        assert refusal(made, "worker") is Refusal.OTHER_NODE


def test_an_attribute_that_is_defined_later_is_seen() -> None:
    made = yard()
    made.put(Fields, "CustomFieldsManager", names=((HOSTLER, "hostler"),))
    made.put(Vm, f"vm-hull-{HULL[-1]}", guest_name="", attributes=((NODE_FIELD, "worker"),))
    assert refusal(made, "worker") is Refusal.UNPROVEN
    made.put(Fields, "CustomFieldsManager", names=((NODE_FIELD, "hostler-node"),))
    assert isinstance(made.identities.of("worker"), Found)


def machines_of(made: Yard, clock: Clock = boottime) -> NodeMachines:
    """The Machines of this cluster, empty as yet."""
    machines = NodeMachines(Client(Nowhere()), Metrics(), clock)
    made.identities = Identities(made.nodes, made.vcenters, made.observer.marks, machines)
    made.identities.name_cluster(CLUSTER)
    made.observer = Observer(made.identities, made.sources, made.memory, LABEL, made.observer._room)
    return machines


@pytest.mark.parametrize(
    ("cluster", "node", "is_it"), [("own", "worker", True), ("tenant", "worker", False), ("own", "other", False)]
)
def test_a_machine_of_this_cluster_proves_it(cluster: str, node: str, is_it: bool) -> None:
    made = yard()
    api, _ = machines_of(made).watches()
    made.put(Vm, f"vm-hull-{HULL[-1]}", guest_name="")
    said = {"cluster.x-k8s.io/cluster-name": "own", "cluster.x-k8s.io/cluster-namespace": "capi"}
    tenants = {**said, "cluster.x-k8s.io/cluster-name": "tenant"}
    put_node(made, "cp", CONTROL_PLANE, labels={"node-role.kubernetes.io/control-plane": ""}, annotations=said)
    put_node(made, "worker", HULL, annotations=tenants)
    assert refusal(made, "worker") is Refusal.UNPROVEN
    api.store.put(
        Machine(
            metadata=Metadata(name="m", namespace="capi", resource_version="5"),
            spec=MachineSpec(cluster_name=cluster, provider_id=f"vsphere://{HULL}"),
            status=MachineStatus(node_ref=ContractReference(name=node)),
        )
    )
    found = made.identities.of("worker")
    assert isinstance(found, Found) is is_it, found
    if isinstance(found, Found):
        assert found.rank is Rank.MACHINE
        put_node(made, "cp", CONTROL_PLANE)
        assert refusal(made, "worker") is Refusal.UNPROVEN, "nobody says any more which cluster this is"


def test_a_machine_wakes_only_by_what_it_proves() -> None:
    machines, told = NodeMachines(Client(Nowhere()), Metrics()), list[frozenset[str]]()
    machines.listen(told.append)
    api, _ = machines.watches()

    def put(version: str, node: str = "worker", uuid: str = HULL, **labels: str) -> None:
        api.store.put(
            Machine(
                metadata=Metadata(name="m", namespace="capi", resource_version=version, labels=labels),
                spec=MachineSpec(cluster_name="own", provider_id=f"vsphere://{uuid}"),
                status=MachineStatus(node_ref=ContractReference(name=node)),
            )
        )

    put("5")
    put("6", phase="Running")  # as its controllers write it again and again
    put("7", uuid=LONE)
    put("8", node="other", uuid=LONE)
    put("9", node="", uuid=LONE)
    put("10", node="", uuid=HULL)
    assert told == [{"worker"}, {"worker"}, {"worker", "other"}, {"other"}]


@pytest.mark.parametrize("problem", ["", "may not watch machines: forbidden", "conversion webhook failed"])
def test_machines_that_cannot_be_read_keep_no_pod_unready(problem: str) -> None:
    for watch in NodeMachines(Client(Nowhere()), Metrics()).watches():
        watch.problem = problem
        assert watch.not_in_step() is None


def test_machines_that_never_arrive_freeze_nothing_for_long() -> None:
    """A stream that is cut again and again says no problem, and is never complete."""
    made, now = yard(), [1000.0]
    machines_of(made, lambda: now[0])
    world = made.observer.world(NOW)
    assert world.unknown == "machines.cluster.x-k8s.io are still being read"
    now[0] += READ_SECONDS
    assert made.observer.world(NOW).unknown == ""
    assert isinstance(decided(made, "honest").action, PatchNode)


# -- right before the stop


def test_it_is_judged_again_right_before_the_stop() -> None:
    made = yard()
    vm = f"vm-honest-{HONEST[-1]}"
    assert made.identities.not_the_vm("honest", "vc", vm) == ""
    made.put(Vm, vm, attributes=((NODE_FIELD, "cp"),))
    assert "says that VM honest is cp" in made.identities.not_the_vm("honest", "vc", vm)
    made.put(Vm, vm, attributes=())
    put_node(made, "honest", OFF)
    assert "only the kubelet of honest" in made.identities.not_the_vm("honest", "vc", vm)


# -- a maintenance that an older version began


def older(made: Yard, what: Marked, power: str, state: State) -> None:
    """The worker in `hull` by its UUID alone, in mid-maintenance, as 0.1 wrote it."""
    mark = Mark("worker", "h1", "2023-11-14T22:00:00Z", what, cluster=CLUSTER, host_id="h1")
    made.put(Vm, f"vm-hull-{HULL[-1]}", power=power, guest_name="", attributes=((HOSTLER, mark.text()),))
    holds = '[{"holder":"maintenance","why":"x","since":"2023-11-14T22:00:00Z","cordonedBefore":false}]'
    notes = {STATE: str(state), HOST: "h1", SINCE: "2023-11-14T22:00:00Z", "hostler.dev/holds": holds}
    put_node(made, "worker", HULL, annotations=notes, unschedulable=True)


def test_a_drain_that_an_older_version_began_goes_on() -> None:
    made = yard()
    older(made, Marked.DRAINING, "poweredOn", State.DRAINING)
    found = made.identities.of("worker")
    assert isinstance(found, Found)
    assert found.rank is Rank.VCENTER
    one = decided(made, "worker")
    assert (one.phase, one.state) != (Phase.REFUSED, None)
    assert one.blocked is None or one.blocked.by is not BlockedBy.IDENTITY


def started(made: Yard, name: str) -> Decision:
    """What is done to its VM; it is written down first."""
    one = decided(made, name)
    while isinstance(one.action, PatchNode):
        annotations = {**one.action.body["metadata"]["annotations"]}
        node = made.nodes.store.get(name)
        assert node is not None
        put_node(made, name, HULL, annotations={**node.metadata.annotations, **annotations}, unschedulable=True)
        one = decided(made, name)
    return one


@pytest.mark.parametrize("marked", [True, False])
def test_a_vm_that_an_older_version_stopped_is_started_again(marked: bool) -> None:
    """Without a mark too: the predecessor wrote none, and its state is all there is."""
    made = yard()
    older(made, Marked.STOPPED, "poweredOff", State.POWERED_OFF)
    made.put(Host, "h1", in_maintenance=False)
    made.vcenters["vc"].inventory._tasks_of.clear()
    if not marked:
        made.put(Vm, f"vm-hull-{HULL[-1]}", attributes=())
        assert refusal(made, "worker") is Refusal.UNPROVEN
    assert isinstance(started(made, "worker").action, PowerOn)


def test_a_stronger_lie_does_not_hold_back_a_return() -> None:
    """Another kubelet's providerID outranks a system UUID; neither is a proof, and the VM that was stopped starts."""
    made = yard()
    older(made, Marked.STOPPED, "poweredOff", State.POWERED_OFF)
    made.put(Host, "h1", in_maintenance=False)
    made.vcenters["vc"].inventory._tasks_of.clear()
    made.put(Vm, f"vm-hull-{HULL[-1]}", attributes=())
    put_node(made, "liar", "", f"vsphere://{HULL}")
    assert refusal(made, "worker") is Refusal.OUTRANKED
    assert isinstance(started(made, "worker").action, PowerOn)


def test_a_state_without_proof_moves_and_marks_nothing() -> None:
    """The host of the VM stays in maintenance: it waits there, and is not relocated on a kubelet's word."""
    made = yard()
    notes = {STATE: "powered-off", HOST: "h1", SINCE: "2023-11-14T22:00:00Z"}
    put_node(made, "liar", OFF, annotations=notes)
    for _ in range(4):
        one = decided(made, "liar")
        assert not isinstance(one.action, (Relocate, SetMark, CancelTask, PowerOff, ShutDown, Evictions)), one


# -- what is shown


def test_the_metric_counts_by_reason() -> None:
    made, registry = yard(), CollectorRegistry()
    put_node(made, "liar", CONTROL_PLANE)
    made.put(Vm, f"vm-hull-{HULL[-1]}", guest_name="")
    world = made.observer.world(NOW)
    MaintenanceMetrics(registry).passed(world, decide(world, Policy(), NOW), Counter(), 0.0)
    counted = {
        reason: registry.get_sample_value("hostler_maintenance_identity_refused", {"reason": str(reason)})
        for reason in Refusal
    }
    assert counted == {**dict.fromkeys(Refusal, 0), Refusal.OUTRANKED: 1, Refusal.UNPROVEN: 1}


def test_one_event_names_it() -> None:
    made = yard()
    put_node(made, "liar", CONTROL_PLANE)
    told: list[tuple[str, str]] = []

    class Recorder:
        def event(
            self, kind: object, about: Metadata, level: str, reason: str, action: str, note: str, refusing: str = ""
        ) -> None:
            told.append((about.name, f"{level} {reason}: {note}"))

    teller = EventReporter(Recorder(), MaintenanceMetrics(CollectorRegistry()))  # type: ignore[arg-type]
    world = made.observer.world(NOW)
    for _ in range(2):
        teller.tell(world, decide(world, Policy(), NOW))
    said = [note for name, note in told if name == "liar"]
    assert len(said) == 1
    assert said[0].startswith("Warning IdentityRefused: VM cp is cp by stronger evidence")
    assert f"to {CLUSTER}/liar" in said[0]


def test_the_doctor_names_it_and_warns_of_the_setting() -> None:
    refused = IdentityRefused("liar", "unproven", "only its kubelet says so", "set the attribute")
    found = list(list_findings(Known(MaintenanceStatus(refused=(refused,), by_uuid=True), NOW)))
    assert [(one.level.name, one.what) for one in found] == [
        ("WARNING", "which VM liar is"),
        ("WARNING", "which VM a node is"),
    ]
    assert found[0].fix == "set the attribute"
    assert "HOSTLER_VM_IDENTITY=proven" in found[1].fix
