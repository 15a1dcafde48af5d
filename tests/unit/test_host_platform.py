"""Every node has exactly one platform class, by the table of the specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.host.platform import INSTANCE_TYPE, PLATFORM_TYPES, UNINITIALIZED, Class, classify
from hostler.instant import iso
from hostler.kube.records import Metadata, Node, NodeSpec, Taint

OPENSHIFT, UPSTREAM = PLATFORM_TYPES
NOW, GRACE = 1_000_000.0, 120.0


def node(provider: str = "", labels: dict[str, str] | None = None, taint: bool = False, age: float = 0) -> Node:
    return Node(
        metadata=Metadata(name="n", labels=labels or {}, creation_timestamp=iso(NOW - age)),
        spec=NodeSpec(provider_id=provider, taints=(Taint(key=UNINITIALIZED, effect="NoSchedule"),) if taint else ()),
    )


@pytest.mark.parametrize(
    ("given_node", "kind", "platform"),
    [
        (node("vsphere://4237-abc"), Class.VSPHERE, "vsphere"),
        (node(labels={OPENSHIFT: "vsphere"}), Class.VSPHERE, "vsphere"),
        (node(labels={UPSTREAM: "vsphere"}), Class.VSPHERE, "vsphere"),
        (node(labels={INSTANCE_TYPE: "vsphere-vm.cpu-4.mem-16gb.os-rhel"}), Class.VSPHERE, "vsphere"),
        (node("vsphere://x", {OPENSHIFT: "baremetal"}), Class.VSPHERE, "vsphere"),
        (node("aws:///eu-1a/i-1"), Class.OTHER, "aws"),
        (node("aws:///eu-1a/i-1", {OPENSHIFT: "vsphere"}), Class.VSPHERE, "vsphere"),
        (node("metal3://ns/host/machine"), Class.OTHER, "metal3"),
        (node("odd"), Class.OTHER, "odd"),
        (node("://x"), Class.OTHER, "unknown"),
        (node(labels={INSTANCE_TYPE: "m5.large"}), Class.LABELLED, ""),
        (node(labels={INSTANCE_TYPE: ""}), Class.LABELLED, ""),
        (node(labels={OPENSHIFT: "baremetal"}), Class.LABELLED, "baremetal"),
        (node(labels={UPSTREAM: "baremetal"}, taint=True), Class.LABELLED, "baremetal"),
        (node(taint=True, age=GRACE - 1), Class.UNINITIALISED, ""),
        (node(taint=True, age=GRACE), Class.FOREIGN, ""),
        (node(taint=True, age=-30), Class.UNINITIALISED, ""),
        (node(), Class.FOREIGN, ""),
        (node(labels={"kubernetes.io/os": "linux"}), Class.FOREIGN, ""),
    ],
)
def test_the_first_rule_that_fits(given_node: Node, kind: Class, platform: str) -> None:
    found = classify(given_node, NOW, GRACE)
    assert (found.kind, found.platform) == (kind, platform)


def test_a_node_of_unknown_age_counts_as_young_because_foreign_nodes_are_acted_upon() -> None:
    tainted = Node(spec=NodeSpec(taints=(Taint(key=UNINITIALIZED),)))
    assert classify(tainted, NOW, GRACE).kind is Class.UNINITIALISED


words = st.sampled_from(["", "vsphere", "vsphere://", "vsphere://x", "aws:///i", "vsphere-vm.4", "x", ":"]) | st.text(
    max_size=8
)
labels = st.dictionaries(st.sampled_from([INSTANCE_TYPE, OPENSHIFT, UPSTREAM, "other"]), words)
taints = st.lists(st.builds(Taint, key=st.sampled_from([UNINITIALIZED, "x"])), max_size=2).map(tuple)
nodes = st.builds(
    Node,
    metadata=st.builds(Metadata, labels=labels, creation_timestamp=st.sampled_from(["", "bad", iso(NOW), iso(0)])),
    spec=st.builds(NodeSpec, provider_id=words, taints=taints),
)


@given(nodes, st.floats(0, 2e6))
def test_every_node_has_a_class_and_a_reason(any_node: Node, now: float) -> None:
    found = classify(any_node, now, GRACE)
    assert found.kind in Class
    assert found.why
    if found.kind in (Class.FOREIGN, Class.UNINITIALISED, Class.LABELLED):
        assert not any_node.spec.provider_id
    if found.kind is Class.OTHER:
        assert found.platform
