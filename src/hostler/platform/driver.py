"""OpenShift's ClusterCSIDriver, Unmanaged so that the CSI operator does not undo the rule, and back again. Pure.

Only where the owner asked for it. What it was before is written beside it, and a user who changes it meanwhile is not
overruled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import CLUSTER_CSI_DRIVER, ClusterCSIDriver
from hostler.platform.model import CSI_DRIVER, News, Verb, Write
from hostler.platform.targets import OPENSHIFT_DRIVER, key_of_target

BEFORE = "hostler.dev/management-state-before"
MANAGED, UNMANAGED = "Managed", "Unmanaged"
_IT = f"ClusterCSIDriver {CSI_DRIVER}"


@dataclass(frozen=True, slots=True)
class DriverVerdict:
    """The merge patch, or none; and the current state, as a sentence without its full stop."""

    patch: Mapping[str, Any] | None
    why: str
    back: bool = False  # the patch gives it back to its operator

    @property
    def writes(self) -> tuple[Write, ...]:
        if self.patch is None:
            return ()
        news = News("Normal", "ManagedAgain" if self.back else "Unmanaged", f"{self.why}.")
        about = (key_of_target(OPENSHIFT_DRIVER),)
        return (
            Write(
                Verb.PATCH, CLUSTER_CSI_DRIVER, CSI_DRIVER, self.why, body=self.patch, about=about, news=news,
                gives_back=self.back,
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DriverFacts:
    current: ClusterCSIDriver | None
    unreadable: str = ""
    displaced: bool = False  # its operator is at work, and we do not write beside it


def judge_driver(facts: DriverFacts, wanted: bool | None) -> DriverVerdict:
    """`wanted`: whether its operator is to leave the DaemonSet alone; None: not known, so it stays as it is."""
    if facts.unreadable:
        return DriverVerdict(None, f"its ClusterCSIDriver cannot be read ({facts.unreadable})")
    if facts.displaced:
        wanted = False
    if wanted is None:
        return DriverVerdict(None, "its ClusterCSIDriver stays as it is, because its DaemonSet cannot be read")
    return decide_driver(facts.current, wanted=wanted)


def decide_driver(current: ClusterCSIDriver | None, *, wanted: bool) -> DriverVerdict:
    """Set it Unmanaged where that is wanted; set back what we changed before where it is not wanted any more."""
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
