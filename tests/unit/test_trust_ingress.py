"""Whatever the Fleet says, only workloads are written that their owner marked or that the operator's setting names."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.fleet import IngressWorkload
from hostler.host.conditions import Status
from hostler.ingress.model import APPLIED, CONTROL_PLANE, Placed, Refusal, RefusedBy
from hostler.ingress.refusals import MANAGED, MARK, check_workload
from hostler.ingress.settings import WORKLOADS
from hostler.ingress.workloads import WorkloadFacts, decide_workload, fleet_conditions
from hostler.kube.records import ManagedMetadata, Metadata, Node

NODES = (
    Node(metadata=Metadata(name="cp", labels={"kubernetes.io/os": "linux", CONTROL_PLANE: ""})),
    Node(metadata=Metadata(name="w", labels={"kubernetes.io/os": "linux"})),
)
NAMES = st.sampled_from(["coredns", "traefik", "nginx"])
SPACES = st.sampled_from(["kube-system", "kube-system2", "ingress", "Kube-System", "kube-system/x"])
KINDS = st.sampled_from(["Deployment", "DaemonSet", "deployment", "StatefulSet", ""])
SETTING = st.sets(st.sampled_from(["Deployment/kube-system/traefik", "DaemonSet/ingress/nginx"]))
LABELS = st.dictionaries(
    st.sampled_from([MARK, "hostler.dev/Ingress", "app"]), st.sampled_from([MANAGED, "Managed", "true", ""]), max_size=3
)


@st.composite
def workloads(draw: st.DrawFn) -> IngressWorkload:
    return IngressWorkload(
        kind=draw(KINDS), namespace=draw(SPACES), name=draw(NAMES),
        placement=draw(st.sampled_from(["ControlPlane", "Workers", "", "Everywhere"])),
        node_selector=draw(st.sampled_from([{}, {"kubernetes.io/os": "linux"}])),
        replicas=draw(st.one_of(st.none(), st.integers(0, 5))),
    )  # fmt: skip


@given(workloads(), SPACES, NAMES, LABELS, SETTING, st.booleans())
def test_nothing_unmarked_and_unnamed_is_ever_written(
    asked: IngressWorkload, namespace: str, name: str, labels: dict[str, str], named: set[str], before: bool
) -> None:
    about = ManagedMetadata(
        name=name, namespace=namespace, uid="u", labels=labels, annotations={APPLIED: "x"} if before else {}
    )
    decision = decide_workload(WorkloadFacts(asked, Placed(metadata=about), NODES, "", named=named), 0.0)
    kind = "DaemonSet" if asked.kind == "DaemonSet" else "Deployment"
    allowed = f"{kind}/{namespace}/{name}" in named or (namespace != "kube-system" and labels.get(MARK) == MANAGED)
    if not allowed:
        assert decision.writes == ()
        assert decision.refusal is not None
        assert [(one.type, one.reason) for one in decision.notices] == [("Warning", decision.refusal.by)]
    for write in decision.writes:
        assert (write.kind.kind, write.namespace, write.name) == (kind, namespace, name)
    assert (decision.refusal is None) == allowed


def placed(namespace: str, labels: dict[str, str] | None = None, **annotations: str) -> Placed:
    about = ManagedMetadata(name="x", namespace=namespace, uid="u", labels=labels or {}, annotations=annotations)
    return Placed(metadata=about)


@pytest.mark.parametrize(
    ("namespace", "labels", "named", "by"),
    [
        ("web", {}, (), RefusedBy.NOT_MARKED),
        ("web", {MARK: "true"}, (), RefusedBy.NOT_MARKED),
        ("web", {MARK: MANAGED}, (), None),
        ("web", {}, ("Deployment/web/x",), None),
        ("web", {}, ("DaemonSet/web/x", "Deployment/web/y"), RefusedBy.NOT_MARKED),
        ("kube-system", {MARK: MANAGED}, (), RefusedBy.SYSTEM_NAMESPACE),
        ("kube-system", {}, ("Deployment/kube-system/x",), None),
    ],
)
def test_who_may_be_placed(
    namespace: str, labels: dict[str, str], named: tuple[str, ...], by: RefusedBy | None
) -> None:
    asked = IngressWorkload(kind="Deployment", namespace=namespace, name="x")
    found = check_workload(asked, placed(namespace, labels), named)
    assert (found.by if found is not None else None) == by


def test_the_sentence_has_the_command_and_the_past() -> None:
    asked = IngressWorkload(kind="DaemonSet", namespace="web", name="x")
    found = check_workload(asked, placed("web", None, **{APPLIED: "digest"}), ())
    assert found is not None
    assert found.why == (
        "DaemonSet web/x is not placed: its owner has not marked it; to mark it, run `kubectl label daemonset x -n web "
        "--overwrite hostler.dev/ingress=managed`. Hostler placed it before; it stays as it is."
    )
    system = check_workload(msgspec.structs.replace(asked, namespace="kube-system"), placed("kube-system"), ())
    assert system is not None
    assert system.why == (
        "DaemonSet kube-system/x is not placed: only workloads that the operator's own setting "
        "HOSTLER_INGRESS_WORKLOADS names are placed in kube-system; add DaemonSet/kube-system/x to it."
    )


def test_the_fleets_status_names_what_is_refused() -> None:
    asked = IngressWorkload(kind="Deployment", namespace="web", name="x")
    refused = decide_workload(WorkloadFacts(asked, placed("web"), NODES, ""), 0.0)
    allowed = decide_workload(WorkloadFacts(asked, placed("web", {MARK: MANAGED}), NODES, ""), 0.0)
    template = Refusal(RefusedBy.ROUTER_TEMPLATE, "Not this.")
    assert fleet_conditions([]) == ()
    for decisions, of_template, reason in (
        ([("a", refused)], None, "NotMarked"),
        ([("a", allowed)], None, "AsDecided"),
        ([], template, "RouterTemplateRefused"),
        ([("a", refused)], template, "SeveralReasons"),
    ):
        found = {one.type: one for one in fleet_conditions(decisions, of_template)}["IngressRefused"]
        assert found.reason == reason
        assert (found.status is Status.TRUE) == (reason != "AsDecided")


@pytest.mark.parametrize("wrong", ["kube-system/traefik", "Pod/a/b", "Deployment/*/b", "deployment/a/b"])
def test_the_setting_names_one_workload_at_a_time(wrong: str) -> None:
    assert WORKLOADS.read(" Deployment/a/b ,,DaemonSet/c/d.e") == ("Deployment/a/b", "DaemonSet/c/d.e")
    with pytest.raises(ValueError):  # noqa: PT011
        WORKLOADS.read(wrong)
