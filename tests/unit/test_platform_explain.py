"""What `explain` and `plan` say of platform is what the controller does, whatever the cluster looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.apis.fleet import Fleet, FleetSpec, PlatformPolicy, ScopedDaemonSet
from hostler.apis.openshift import CLUSTER_CSI_DRIVER, CLUSTER_OPERATOR, ClusterCSIDriver, ClusterOperator
from hostler.explain.registry import Registry, UnknownName
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.platform import INSTANCE_TYPE, UNINITIALIZED
from hostler.host.reverts import RevertLimits
from hostler.host.scheduling import REQUIRED
from hostler.instant import iso
from hostler.kube.kinds import DAEMON_SET, FLEET, NODE, POD
from hostler.kube.records import Metadata, Node, Pod
from hostler.platform.admission_policy import LABELS, PREFIX, manifests
from hostler.platform.conditions import OPERATOR_NAME
from hostler.platform.controller import CHECKS, SCOPE, Options, PlatformReconciler
from hostler.platform.csi_driver import BEFORE
from hostler.platform.decide import Policy
from hostler.platform.executor import PlatformExecutor
from hostler.platform.explain import PlatformExplainers
from hostler.platform.model import BINDING, CSI_DRIVER, POLICY, DaemonSet, PolicySpec, WaySetting
from hostler.platform.observe import Caches, Observer, StrandedPods
from hostler.platform.scoping import DEFAULT_TARGETS, key_of_target
from hostler.platform.status import PlatformReport
from hostler.vsphere.bulk import Checked
from tests.sizes import examples
from tests.unit.dry_runs import DryRun, put, writes_of

NOW, GRACE = 1_000_000.0, 300.0
BY_LABEL = ScopedDaemonSet(labels={"app": "csi"})
RULED = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [
    {"key": INSTANCE_TYPE, "operator": "Exists"}]}]}}}  # fmt: skip


@dataclass(frozen=True)
class AnsweringVCenter:
    """A vCenter that has none of the nodes, or does not answer."""

    answer: Fact[list[Checked]]
    name: str = "vc"

    async def check_nodes(self, uuids: Collection[str]) -> Fact[list[Checked]]:
        return self.answer


def read(record: type[Any], **fields: Any) -> Any:
    return msgspec.convert(fields, record)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    provider, labels, tainted, age = draw(
        st.sampled_from(
            [
                ("", {}, True, 9999.0),  # waits for a cloud provider that never comes
                ("", {}, True, 10.0),
                ("", {}, False, 9999.0),
                ("", {INSTANCE_TYPE: "vsphere-vm.cpu-8"}, True, 9999.0),
                ("vsphere://42100fe1-0a04-9eb7-1b73-9a3d4578b557", {INSTANCE_TYPE: "vsphere-vm.cpu-8"}, False, 9999.0),
                ("vsphere://42100fe1-0a04-9eb7-1b73-9a3d4578b557", {}, False, 10.0),
                ("aws:///a/i-1", {}, True, 9999.0),
            ]
        )
    )
    taints = [{"key": UNINITIALIZED, "effect": "NoSchedule"}] if tainted else []
    created = iso(NOW - age)
    found: Node = read(
        Node, metadata={"name": name, "uid": f"u-{name}", "labels": labels, "creationTimestamp": created},
        spec={"providerID": provider, "taints": taints},
        status={"nodeInfo": {"systemUUID": "42100fe1-0a04-9eb7-1b73-9a3d4578b557"}},
    )  # fmt: skip
    return found


@st.composite
def keepers(draw: st.DrawFn) -> PlatformReconciler:
    run = DryRun("platform")
    entries = draw(st.sampled_from([None, (), (BY_LABEL,), (BY_LABEL, *DEFAULT_TARGETS)]))
    fleet = Fleet(metadata=Metadata(name="cluster"), spec=FleetSpec(platform=PlatformPolicy(daemon_sets=entries)))
    sets, unreadable = [], []
    for target in DEFAULT_TARGETS:
        about = {"name": target.name, "namespace": target.namespace, "uid": "d", "labels": {"app": "csi"}}
        affinity = draw(st.sampled_from([None, RULED]))
        there = read(DaemonSet, metadata=about, spec={"template": {"spec": {"affinity": affinity}}})
        match draw(st.sampled_from(["there", "there", "there", "absent", "unreadable"])):
            case "there":
                sets.append(there)
            case "unreadable":
                unreadable.append(key_of_target(target))
    made = [*manifests(DEFAULT_TARGETS), *manifests([ScopedDaemonSet(namespace="a", name="b", key="gone")])]
    guarding = [one for one in made if draw(st.booleans())]
    policies = [read(PolicySpec, metadata={"name": one.name, "labels": LABELS, "uid": "p"}, spec=one.policy)
                for one in guarding]  # fmt: skip
    bindings = [read(PolicySpec, metadata={"name": one.name, "labels": LABELS, "uid": "b"}, spec=one.binding)
                for one in guarding]  # fmt: skip
    foreign = read(PolicySpec, metadata={"name": f"{PREFIX}of-a-user", "uid": "f"})
    driver = read(
        ClusterCSIDriver,
        metadata={"name": CSI_DRIVER, "annotations": draw(st.sampled_from([{}, {BEFORE: "Managed"}]))},
        spec={"managementState": draw(st.sampled_from(["Managed", "Unmanaged", "Removed"]))},
    )  # fmt: skip
    operator = read(ClusterOperator, metadata={"name": OPERATOR_NAME})
    caches = Caches(
        daemon_sets=run.watch(DAEMON_SET, DaemonSet, *sets, unreadable=unreadable),
        policies=run.watch(POLICY, PolicySpec, *policies, foreign),
        bindings=run.watch(BINDING, PolicySpec, *bindings),
        operators=run.watch(
            CLUSTER_OPERATOR, ClusterOperator, *([operator] if draw(st.booleans()) else []),
            unreadable=[OPERATOR_NAME] if not draw(st.integers(0, 5)) else [],
        ),
        drivers=run.watch(
            CLUSTER_CSI_DRIVER, ClusterCSIDriver, *([driver] if draw(st.booleans()) else []),
            unreadable=[CSI_DRIVER] if not draw(st.integers(0, 5)) else [],
        ),
        nodes=run.watch(NODE, Node, *(draw(nodes(name)) for name in ("a", "b", "c"))),
        pods=run.watch(POD, Pod),
        fleet=run.watch(FLEET, Fleet, fleet),
    )  # fmt: skip
    caches.policies.absent = caches.bindings.absent = draw(st.booleans())
    caches.operators.absent = draw(st.booleans())
    caches.nodes.store.synced = bool(draw(st.integers(0, 9)))
    answer: Fact[list[Checked]] = Known([], NOW) if draw(st.integers(0, 3)) else Unknown("no route")
    vcenters = [AnsweringVCenter(answer)] if draw(st.integers(0, 3)) else []
    displaced = draw(st.booleans())
    return keeper_over(
        run, caches, Policy(draw(st.sampled_from(WaySetting)), draw(st.booleans())), vcenters, displaced=displaced
    )


def keeper_over(
    run: DryRun, caches: Caches, policy: Policy, vcenters: list[AnsweringVCenter], *, displaced: bool = False
) -> PlatformReconciler:
    observer = Observer(caches, lambda: vcenters, StrandedPods(run.client), lambda: displaced, GRACE, clock=lambda: NOW)
    return PlatformReconciler(
        observer, PlatformExecutor(caches, run.writer, run.writer, run.recorder),
        PlatformReport(run.recorder, run.metrics, lambda: None), Options(policy), wake=lambda key: None,
    )  # fmt: skip


def planned(keeper: PlatformReconciler, thing: str) -> list[tuple[str, str, str]]:
    """What `hostler plan` says would be written; `hostler explain` must say the same."""
    registry = Registry()
    PlatformExplainers(keeper, lambda: None).register(registry)
    kind, _, name = thing.partition("/")
    try:
        explained, answer = registry.explain(kind, name), registry.plan(kind, name)
    except UnknownName:
        return []
    assert explained == answer
    return [(action.verb, action.target, action.why) for one in answer.explanations for action in one.actions]


@settings(max_examples=examples(200), deadline=None)
@given(keepers())
def test_what_is_planned_is_what_the_controller_sends(keeper: PlatformReconciler) -> None:
    plan = planned(keeper, "platform/cluster")
    of_each = [planned(keeper, f"daemonset/{key_of_target(one)}") for one in keeper.observer.targets()]
    if not keeper.observer.caches.unread():
        _, decision = keeper.decide()
        assert plan == [(write.verb, write.target, write.why) for write in decision.writes]
    sent = writes_of(lambda: keeper.reconcile(SCOPE))
    assert plan == sent
    assert {write for one in of_each for write in one} <= set(sent)
    scoped = {write for write in sent if write[1].startswith("daemonset/")}
    assert scoped <= {write for one in of_each for write in one}, "each is in the plan of its DaemonSet"


@settings(max_examples=examples(100), deadline=None)
@given(keepers())
def test_the_plan_of_a_node_is_the_taint_that_the_controller_removes(keeper: PlatformReconciler) -> None:
    sent = writes_of(lambda: keeper.reconcile(CHECKS))
    assert sent == [write for name in ("a", "b", "c") for write in planned(keeper, f"node/{name}")]


def test_a_plan_counts_the_revert_that_the_controller_counts_next() -> None:
    run, target = DryRun("platform"), DEFAULT_TARGETS[0]
    about = {"name": target.name, "namespace": target.namespace, "uid": "d"}
    node = read(Node, metadata={"name": "a", "labels": {INSTANCE_TYPE: "vsphere-vm.cpu-8"}})
    undone = read(DaemonSet, metadata=about)
    ruled = read(DaemonSet, metadata=about, spec={"template": {"spec": {"affinity": RULED}}})
    caches = Caches(
        daemon_sets=run.watch(DAEMON_SET, DaemonSet),
        policies=run.watch(POLICY, PolicySpec),
        bindings=run.watch(BINDING, PolicySpec),
        operators=run.watch(CLUSTER_OPERATOR, ClusterOperator),
        drivers=run.watch(CLUSTER_CSI_DRIVER, ClusterCSIDriver),
        nodes=run.watch(NODE, Node, node),
        pods=run.watch(POD, Pod),
        fleet=run.watch(FLEET, Fleet),
    )
    keeper = keeper_over(run, caches, Policy(WaySetting.APPLY), [])
    thing, plans = f"daemonset/{key_of_target(target)}", list[bool]()
    for _ in range(RevertLimits().reverts):
        put(caches.daemon_sets, ruled)
        asyncio.run(reconciled(keeper))
        put(caches.daemon_sets, undone)
        plans.append(bool(planned(keeper, thing)))
        asyncio.run(reconciled(keeper))
        assert bool(planned(keeper, thing)) is plans[-1], "the same after the controller counted it"
    assert plans == [True] * (RevertLimits().reverts - 1) + [False]


async def reconciled(keeper: PlatformReconciler) -> None:
    await keeper.reconcile(SCOPE)
