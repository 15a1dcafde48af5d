"""OpenShift's ClusterCSIDriver: when it is set Unmanaged, when it is given back, and when it may be uninstalled. Pure.

Unmanaged keeps the CSI operator from undoing the rule; only where the owner asked for it. What it was before is written
beside it, and a user who changes it meanwhile is not overruled.
Uninstalled (Removed) only by name, and only where nothing needs the driver: the storage operator checks every node and
stays Degraded with one that is no VM; Unmanaged freezes that, and only Removed ends it. Volumes of the driver could
then be neither mounted nor unmounted any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hostler.apis.openshift import CLUSTER_CSI_DRIVER, ClusterCSIDriver
from hostler.host.conditions import names
from hostler.host.writes import EventNote, Verb
from hostler.platform.model import CSI_DRIVER, Write
from hostler.platform.scoping import OPENSHIFT_DRIVER, key_of_target

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
        notice = EventNote("Normal", "ManagedAgain" if self.back else "Unmanaged", f"{self.why}.")
        about = (key_of_target(OPENSHIFT_DRIVER),)
        return (
            Write(
                Verb.PATCH, CLUSTER_CSI_DRIVER, CSI_DRIVER, self.why, body=self.patch, about=about, notice=notice,
                gives_back=self.back,
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DriverFacts:
    current: ClusterCSIDriver | None
    unreadable: str = ""
    displaced: bool = False  # its operator is at work, and we do not write beside it


def judge_driver(facts: DriverFacts, wanted: bool | None) -> DriverVerdict:
    """`wanted`: whether its operator is to leave the DaemonSet alone; None: unknown, so it stays as it is."""
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
        why = f"another client set {_IT} back to {state}; it stays so until the annotation {BEFORE} is removed"
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


REMOVED = "Removed"
PROVISIONERS = (CSI_DRIVER, "kubernetes.io/vsphere-volume")  # volumes of the second are migrated to the driver
PUT_BACK = (
    f"kubectl patch clustercsidriver {CSI_DRIVER} --type=merge -p "
    '\'{"spec":{"managementState":"Managed"}}\''
)  # fmt: skip


class Refusal(StrEnum):
    """Why the driver stays."""

    ANOTHER_DRIVER = "AnotherDriver"
    NOT_INSTALLED = "NotInstalled"
    SET_ASIDE = "SetAside"
    IN_USE = "InUse"


@dataclass(frozen=True, slots=True)
class Use:
    """What needs the driver, by name."""

    volumes: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()  # StorageClasses of the driver that claims name
    claims: tuple[str, ...] = ()  # these claims

    def __str__(self) -> str:
        found = (
            ("PersistentVolume", self.volumes),
            ("VolumeAttachment", self.attachments),
            ("StorageClass", self.classes),
            ("of it PersistentVolumeClaim", self.claims),
        )
        return "; ".join(f"{kind} {names(them)}" for kind, them in found if them)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it goes, or why not; the sentence says what to do."""

    refused: Refusal | None
    why: str
    hint: str = ""
    done: bool = False  # it is removed already


def decide_removal(named: str, driver: ClusterCSIDriver | None, use: Use) -> Verdict:
    it = f"ClusterCSIDriver {CSI_DRIVER}"
    if named != CSI_DRIVER:
        return Verdict(Refusal.ANOTHER_DRIVER, f"{named} is not the vSphere CSI driver.", f"Its name is {CSI_DRIVER}.")
    if driver is None:
        hint = "Only OpenShift has it; elsewhere remove the manifests that installed the driver."
        return Verdict(Refusal.NOT_INSTALLED, f"There is no {it} in this cluster.", hint)
    if driver.spec.management_state == REMOVED:
        return Verdict(None, f"{it} is {REMOVED} already.", done=True)
    if driver.metadata.annotations.get(BEFORE):
        hint = "HOSTLER_PLATFORM_WAY=auto gives it back, or `hostler platform withdraw`; then ask again."
        return Verdict(Refusal.SET_ASIDE, f"{it} is set aside by Hostler (annotation {BEFORE}).", hint)
    if needed := str(use):
        return Verdict(Refusal.IN_USE, f"{it} is in use: {needed}.", "Move or delete these first, then ask again.")
    return Verdict(None, f"{it} becomes {REMOVED}: its operator uninstalls the driver from every node of this cluster.")
