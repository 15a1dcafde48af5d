"""Whether the vSphere CSI driver may be uninstalled, and who may delete nodes that are no VMs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hostler.apis.openshift import ClusterCSIDriver, ClusterCSIDriverSpec
from hostler.host.platform import classify
from hostler.kube.records import Metadata, Node
from hostler.platform.csi_driver import BEFORE, Refusal, Use, decide_removal
from hostler.platform.model import CSI_DRIVER, PlacedNode
from hostler.platform.status import node_deletion


def driver(state: str = "Managed", **annotations: str) -> ClusterCSIDriver:
    return ClusterCSIDriver(
        metadata=Metadata(annotations=annotations), spec=ClusterCSIDriverSpec(management_state=state)
    )


@pytest.mark.parametrize(
    ("found", "use", "refused", "said"),
    [
        (None, Use(), Refusal.NOT_INSTALLED, "There is no ClusterCSIDriver"),
        (driver(), Use(volumes=("pv-1", "pv-2")), Refusal.IN_USE, "is in use: PersistentVolume pv-1 and pv-2."),
        (driver(), Use(attachments=("csi-1",)), Refusal.IN_USE, "VolumeAttachment csi-1."),
        (
            driver(),
            Use(classes=("thin-csi",), claims=("shop/data",)),
            Refusal.IN_USE,
            "StorageClass thin-csi; of it PersistentVolumeClaim shop/data.",
        ),
        (driver("Unmanaged", **{BEFORE: "Managed"}), Use(), Refusal.SET_ASIDE, "set aside by Hostler"),
        (driver("Removed"), Use(volumes=("pv-1",)), None, "is Removed already"),
        (driver(), Use(), None, "becomes Removed"),
        (driver(""), Use(), None, "becomes Removed"),
        (driver("Unmanaged"), Use(), None, "becomes Removed"),
    ],
)
def test_the_driver_goes_only_where_nothing_needs_it(
    found: ClusterCSIDriver | None, use: Use, refused: Refusal | None, said: str
) -> None:
    verdict = decide_removal(CSI_DRIVER, found, use)
    assert (verdict.refused, said in verdict.why) == (refused, True)
    assert bool(verdict.hint) == (refused is not None)


def test_another_name_is_refused_with_the_right_one() -> None:
    verdict = decide_removal("csi.example.com", driver(), Use())
    assert (verdict.refused, CSI_DRIVER in verdict.hint) == (Refusal.ANOTHER_DRIVER, True)


def node(name: str, provider: str) -> PlacedNode:
    body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"providerID": provider}}
    made = msgspec.convert(body, Node)
    return PlacedNode(made, classify(made, 0.0, 0.0))


def test_a_cloud_controller_that_deletes_others_nodes_is_named() -> None:
    nodes = [node("metal-1", "metal3://a/b/c"), node("vm-1", "vsphere://42"), node("plain", "")]
    said = node_deletion(["kube-system/vsphere-cloud-controller-manager"], nodes)
    assert said.startswith(
        "kube-system/vsphere-cloud-controller-manager may delete these Nodes while they are NotReady"
    )
    assert ": metal-1. " in said
    assert node_deletion([], nodes) == ""
    assert node_deletion(["kube-system/vsphere-cpi"], nodes[1:]) == ""
