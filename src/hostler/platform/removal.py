"""Uninstalling OpenShift's vSphere CSI driver from a whole cluster: only by name, and only where nothing needs it.

The storage operator checks every node, and stays Degraded with one that is no VM; Unmanaged freezes that, and only
`Removed` ends it. Volumes of the driver could then be neither mounted nor unmounted any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hostler.apis.openshift import CLUSTER_CSI_DRIVER, ClusterCSIDriver
from hostler.errors import Complaint, Exit
from hostler.host.conditions import names
from hostler.kube.client import Client
from hostler.kube.errors import Conflict, NotFound
from hostler.kube.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, VOLUME_ATTACHMENT, Kind
from hostler.kube.records import Metadata, Object, Record, key_of
from hostler.platform.driver import BEFORE
from hostler.platform.model import CSI_DRIVER
from hostler.platform.stranded import Volume

REMOVED = "Removed"
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
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


class _AttachmentSpec(Record, frozen=True):
    attacher: str = ""


class _Attachment(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: _AttachmentSpec = _AttachmentSpec()


class _StorageClass(Record, frozen=True):
    metadata: Metadata = Metadata()
    provisioner: str = ""


class _ClaimSpec(Record, frozen=True):
    storage_class_name: str = ""


class _Claim(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: _ClaimSpec = _ClaimSpec()


async def find_driver(client: Client) -> ClusterCSIDriver | None:
    try:
        return await client.get(CLUSTER_CSI_DRIVER, CSI_DRIVER, type=ClusterCSIDriver)
    except NotFound:
        return None


async def find_use(client: Client) -> Use:
    """What needs the driver now. What may not be listed is an error: it is not nothing."""
    volumes = [one for one in await client.list(PERSISTENT_VOLUME, type=Volume) if one.needs_driver]
    attachments = [
        one for one in await client.list(VOLUME_ATTACHMENT, type=_Attachment) if one.spec.attacher == CSI_DRIVER
    ]
    classes = {
        one.metadata.name for one in await client.list(STORAGE_CLASS, type=_StorageClass)
        if one.provisioner in PROVISIONERS
    }  # fmt: skip
    claims = [
        one for one in await client.list(PERSISTENT_VOLUME_CLAIM, type=_Claim) if one.spec.storage_class_name in classes
    ]
    return Use(
        _sorted(one.metadata.name for one in volumes),
        _sorted(one.metadata.name for one in attachments),
        _sorted(one.spec.storage_class_name for one in claims),
        _sorted(key_of(one.metadata) for one in claims),
    )


async def remove_driver(client: Client, driver: ClusterCSIDriver) -> None:
    """On the version that was looked at, and after one more look at what needs it."""
    verdict = decide_removal(CSI_DRIVER, driver, await find_use(client))
    if verdict.refused is not None:
        raise Complaint(verdict.why, hint=verdict.hint, code=Exit.REFUSED)
    about = {"uid": driver.metadata.uid, "resourceVersion": driver.metadata.resource_version}
    try:
        body = {"metadata": about, "spec": {"managementState": REMOVED}}
        await client.patch(CLUSTER_CSI_DRIVER, CSI_DRIVER, body, type=Object)
    except Conflict:
        said = f"ClusterCSIDriver {CSI_DRIVER} changed meanwhile; nothing was changed."
        raise Complaint(said, hint="Ask again.", code=Exit.REFUSED) from None


def _sorted(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(found)))
