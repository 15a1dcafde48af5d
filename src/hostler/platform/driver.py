"""OpenShift's ClusterCSIDriver, Unmanaged so that the CSI operator does not undo the rule, and back again. Pure.

Only where the owner asked for it. What it was before is written beside it, and whoever changes it meanwhile is not
overruled: there is no fight over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import ClusterCSIDriver
from hostler.platform.model import CSI_DRIVER

BEFORE = "hostler.dev/management-state-before"
MANAGED, UNMANAGED = "Managed", "Unmanaged"
_IT = f"ClusterCSIDriver {CSI_DRIVER}"


@dataclass(frozen=True, slots=True)
class DriverVerdict:
    """The merge patch, or none; and how it stands, as a sentence without its dot."""

    patch: Mapping[str, Any] | None
    why: str
    back: bool = False  # the patch gives it back to its operator


def decide_driver(current: ClusterCSIDriver | None, *, wanted: bool) -> DriverVerdict:
    """Set it Unmanaged where that is wanted, and what we set so back to what it was where it is not any more."""
    if current is None:
        return DriverVerdict(None, f"there is no {_IT}")
    state, before = current.spec.management_state or MANAGED, current.metadata.annotations.get(BEFORE, "")
    if not wanted:
        if not before:
            return DriverVerdict(None, f"{_IT} is {state}, which is not our doing")
        back = before if state == UNMANAGED else None
        why = f"{_IT} is {state} by our doing (annotation {BEFORE}), and is given back as {back or state}"
        return DriverVerdict(_patch(current, None, back), why, back=True)
    if state == UNMANAGED:
        return DriverVerdict(
            None, f"{_IT} is {UNMANAGED}: its operator leaves the DaemonSet alone, and updates it neither"
        )
    if before:
        why = f"somebody set {_IT} back to {state}, and so it stays until the annotation {BEFORE} is taken from it"
        return DriverVerdict(None, why)
    if state != MANAGED:
        return DriverVerdict(None, f"{_IT} is {state}, which is left as it is")
    return DriverVerdict(
        _patch(current, state, UNMANAGED), f"{_IT} becomes {UNMANAGED}, so that the rule is not undone"
    )


def _patch(current: ClusterCSIDriver, before: str | None, state: str | None) -> dict[str, Any]:
    meta = current.metadata
    about = {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": {BEFORE: before}}
    return {"metadata": about, **({"spec": {"managementState": state}} if state is not None else {})}
