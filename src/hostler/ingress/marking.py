"""Which workloads of the Fleet may be placed: those that their owner marked, or that the operator's own setting names.

The Fleet alone proves nothing: an account that may patch it need not be one that may move the workload. A user who can
set the label could have moved the workload anyway. It is a label and not an annotation because writers of
`deployments/status` can change annotations, but not labels. Those of `daemonsets/status` can change both; no role that
Kubernetes has for people contains it.
"""

from __future__ import annotations

from collections.abc import Collection

from hostler.apis.fleet import IngressWorkload
from hostler.ingress.model import APPLIED, Placed, Refusal, RefusedBy

MARK, MANAGED = "hostler.dev/ingress", "managed"
SYSTEM_NAMESPACE = "kube-system"  # what runs here keeps the cluster alive: a label is not enough
SETTING = "HOSTLER_INGRESS_WORKLOADS"


def key_of_workload(asked: IngressWorkload) -> str:
    """`Deployment/NAMESPACE/NAME`, as the setting, the metrics and the Fleet's status call it."""
    return f"{asked.kind}/{asked.namespace}/{asked.name}"


def check_workload(asked: IngressWorkload, current: Placed, named: Collection[str]) -> Refusal | None:
    """Why this workload is not placed although the Fleet names it; None: it may be. `named`: keys of the setting.

    Judged by the object that would be written, not by what the Fleet calls it.
    """
    kind, about = "DaemonSet" if asked.kind == "DaemonSet" else "Deployment", current.metadata
    key = f"{kind}/{about.namespace}/{about.name}"
    if key in named:
        return None
    # The object exists, so its names are proper ones: they can stand in a command.
    if about.namespace == SYSTEM_NAMESPACE:
        by = RefusedBy.SYSTEM_NAMESPACE
        only = f"only workloads that the operator's own setting {SETTING} names are placed in {SYSTEM_NAMESPACE}"
        why = f"{only}; add {key} to it"
    elif about.labels.get(MARK) != MANAGED:
        by = RefusedBy.NOT_MARKED
        command = f"kubectl label {kind.lower()} {about.name} -n {about.namespace} --overwrite {MARK}={MANAGED}"
        why = f"its owner has not marked it; to mark it, run `{command}`"
    else:
        return None
    before = " Hostler placed it before; it stays as it is." if APPLIED in about.annotations else ""
    return Refusal(by, f"{kind} {about.namespace}/{about.name} is not placed: {why}.{before}")
