"""The ClusterOperator that shows our conditions, where the cluster knows that kind (OpenShift). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hostler import __version__
from hostler.apis.openshift import CLUSTER_OPERATOR, ClusterOperator
from hostler.host.conditions import Condition
from hostler.platform.conditions import TYPES
from hostler.platform.model import Verb, Write

NAME = "hostler-platform"


def operator_writes(there: ClusterOperator | None, conditions: Sequence[Condition]) -> tuple[Write, ...]:
    """One object, created if it is missing; its status is written only when a condition changed."""
    shown = [one for one in conditions if one.type in TYPES]
    writes = []
    if there is None:
        body = {"metadata": {"name": NAME}, "spec": {}}
        writes.append(Write(Verb.CREATE, CLUSTER_OPERATOR, NAME, "it says how we are", body=body))
    before = there.status.conditions or () if there is not None else ()
    listed = [
        {
            "type": one.type,
            "status": str(one.status),
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": one.last_transition_time,
        }
        for one in shown
    ]
    said = [(one.type, one.status, one.reason, one.message) for one in before]
    if said != [(one.type, str(one.status), one.reason, one.message) for one in shown]:
        status = {"conditions": listed, "versions": [{"name": "operator", "version": __version__}]}
        why = "a condition changed"
        writes.append(Write(Verb.PATCH, CLUSTER_OPERATOR, NAME, why, body={"status": status}, subresource="status"))
    return tuple(writes)
