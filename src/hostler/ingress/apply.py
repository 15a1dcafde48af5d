"""From a placement to the one patch that makes it so: the fields we own, and whether they differ. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from hostler.host.conditions import names
from hostler.ingress.model import APPLIED, Placed, Placement, Verb, Write
from hostler.ingress.placement import describe_selector
from hostler.kube.kinds import Kind

# Of a pod spec. A workload that we create leaves them out: server-side apply then owns them alone.
PLACEMENT_FIELDS = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


# Those that decide which nodes the pods may run on.
WHERE_FIELDS = frozenset(("nodeSelector", "tolerations", "affinity"))


def apply(kind: Kind, current: Placed, placed: Placement) -> tuple[Write, ...]:
    """The patch that makes the workload as decided; nothing where it is so already."""
    body = placement_body(placed, current)
    digest = digest_of(placed)
    differs = differences(current, placed)
    if not differs and current.metadata.annotations.get(APPLIED) == digest:
        return ()
    meta = current.metadata
    # The uid: applying to an object deleted a moment ago is a conflict then, and not a new object with half a template.
    about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "annotations": {APPLIED: digest}}
    body = {"metadata": about, **body}
    what = f"{names(differs)} not as decided" if differs else "what was applied before is out of date"
    why = f"{what}; its pods belong on {placed.where} nodes ({describe_selector(placed.node_selector)})"
    return (Write(Verb.APPLY, kind, meta.name, meta.namespace, why, body),)


def placement_body(placed: Placement, current: Placed | None = None) -> dict[str, Any]:
    """The fields we own, as server-side apply wants them; what is not here is left to its owners.

    Tolerations keep the order that `current` has: another order means the same, and would replace every pod.
    """
    there = current.spec.template.spec.tolerations if current is not None else ()
    pod: dict[str, Any] = {
        "nodeSelector": dict(placed.node_selector),
        "tolerations": [dict(one) for one in (there if _alike(there, placed.tolerations) else placed.tolerations)],
    }
    if placed.affinity:
        pod["affinity"] = dict(placed.affinity)
    if placed.spread:
        pod["topologySpreadConstraints"] = [dict(one) for one in placed.spread]
    spec: dict[str, Any] = {"template": {"spec": pod}}
    if placed.replicas is not None:
        spec["replicas"] = placed.replicas
    if placed.strategy:
        spec["strategy"] = dict(placed.strategy)
    return {"spec": spec}


def digest_of(placed: Placement) -> str:
    """Equal placements have equal digests, in whatever order their tolerations are."""
    body = placement_body(placed)
    body["spec"]["template"]["spec"]["tolerations"] = _ordered(placed.tolerations)
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _ordered(tolerations: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps(dict(one), sort_keys=True) for one in tolerations)


def _alike(some: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]) -> bool:
    return _ordered(some) == _ordered(others)


def differences(current: Placed, placed: Placement) -> list[str]:
    """The names of the fields that are not as decided. In affinity and spread, others' entries do not count."""
    pod = current.spec.template.spec
    found = []
    if placed.replicas is not None and current.spec.replicas != placed.replicas:
        found.append("replicas")
    if pod.node_selector != placed.node_selector:
        found.append("nodeSelector")
    if not _alike(pod.tolerations, placed.tolerations):
        found.append("tolerations")
    if any(
        (pod.affinity.get(group) or {}).get(rule) != wanted
        for group, rules in placed.affinity.items()
        for rule, wanted in rules.items()
    ):
        found.append("affinity")
    if any(wanted not in pod.topology_spread_constraints for wanted in placed.spread):
        found.append("topologySpreadConstraints")
    if placed.strategy and current.spec.strategy != placed.strategy:
        found.append("strategy")
    return found
