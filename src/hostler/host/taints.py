"""The out-of-service taint: nothing runs on this node any more, so its pods and volumes may go elsewhere. Pure.

Only for a node whose machine is known to be off: on any other it lets one pod run twice.
"""

from __future__ import annotations

from typing import Any, Final

from hostler.host.maintenance import OUT_OF_SERVICE
from hostler.kube.records import Node, Taint

# On a Node: the uid of the remediation whose taint it carries. A maintenance's has a hold beside it.
OUT_OF_SERVICE_BY: Final = "hostler.dev/out-of-service-by"


def out_of_service(node: Node) -> bool:
    return any(one.key == OUT_OF_SERVICE for one in node.spec.taints)


def out_of_service_patch(node: Node, on: bool) -> dict[str, Any]:
    """The list of taints is written whole, under the node's version: Kubernetes treats it as one value."""
    kept = [_plain(one) for one in node.spec.taints if one.key != OUT_OF_SERVICE]
    if on:
        kept.append({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"})
    return {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": kept or None}}


def _plain(taint: Taint) -> dict[str, Any]:
    found = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        found["value"] = taint.value
    if taint.time_added:
        found["timeAdded"] = taint.time_added
    return found
