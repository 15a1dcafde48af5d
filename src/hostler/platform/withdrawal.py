"""Taking back what platform put into a cluster (`hostler platform withdraw`), and uninstalling the CSI driver by name.

Needs no operator. Each write goes to the very object that was looked at; what another client made is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from hostler.apis.openshift import CLUSTER_CSI_DRIVER, CLUSTER_OPERATOR, ClusterCSIDriver
from hostler.errors import Complaint, Exit
from hostler.explain.doctor import Finding, Level
from hostler.host.conditions import names
from hostler.host.facts import Fact, Unknown
from hostler.kube.client import Client
from hostler.kube.errors import Conflict, NotFound
from hostler.kube.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, VOLUME_ATTACHMENT, Kind
from hostler.kube.records import Metadata, Object, Record, key_of
from hostler.platform.admission_policy import LABELS, PREFIX
from hostler.platform.conditions import OPERATOR_NAME
from hostler.platform.csi_driver import BEFORE, PROVISIONERS, REMOVED, UNMANAGED, Use, decide_driver, decide_removal
from hostler.platform.model import BINDING, CSI_DRIVER, POLICY
from hostler.platform.observe import Volume

T = TypeVar("T")
WITHDRAW = "hostler platform withdraw"
# A binding first: a policy without one says nothing, and a binding without its policy would be an error.
DELETED = (BINDING, POLICY, CLUSTER_OPERATOR)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Objects of ours by kind, and the ClusterCSIDriver if it has our note."""

    made: tuple[tuple[Kind, Metadata], ...] = ()
    driver: ClusterCSIDriver | None = None

    @property
    def set_aside(self) -> bool:
        return self.driver is not None and self.driver.spec.management_state == UNMANAGED

    def named(self) -> list[str]:
        them = [f"{kind.kind} {about.name}" for kind, about in self.made]
        return [*them, f"ClusterCSIDriver {CSI_DRIVER}, {UNMANAGED}"] if self.set_aside else them

    def describe(self) -> list[str]:
        """What would be done about each, for people."""
        lines = [f"{kind.kind} {about.name} is deleted" for kind, about in self.made]
        return lines if self.driver is None else [*lines, decide_driver(self.driver, wanted=False).why]


async def find_leftovers(client: Client) -> Leftovers:
    """Everything that is ours, read once. A kind that is not installed has nothing of ours."""
    ours = ",".join(f"{key}={value}" for key, value in LABELS.items())
    made: list[tuple[Kind, Metadata]] = []
    for kind in DELETED:
        chosen = {"fields": f"metadata.name={OPERATOR_NAME}"} if kind is CLUSTER_OPERATOR else {"labels": ours}
        try:
            listed = await client.list(kind, type=Object, **chosen)
        except NotFound:
            continue
        made += [
            (kind, item.metadata)
            for item in listed
            if kind is CLUSTER_OPERATOR or item.metadata.name.startswith(PREFIX)
        ]
    driver = await find_driver(client)
    return Leftovers(tuple(made), driver if driver is not None and driver.metadata.annotations.get(BEFORE) else None)


async def take_back_leftovers(client: Client, left: Leftovers) -> None:
    """Delete what is ours, and give the driver back as it was; not if it changed since it was looked at."""
    try:
        for kind, about in left.made:
            try:
                await client.delete(kind, about.name, uid=about.uid)
            except NotFound:
                continue  # gone meanwhile
        if left.driver is not None:
            patch = decide_driver(left.driver, wanted=False).patch
            await client.patch(CLUSTER_CSI_DRIVER, CSI_DRIVER, patch, type=Object)
    except Conflict as error:
        raise Complaint(
            f"Something changed meanwhile: {error}.", hint=f"`{WITHDRAW}` again.", code=Exit.REFUSED
        ) from None


def leftover_findings(left: Fact[Leftovers], *, on: Fact[bool]) -> Iterator[Finding]:
    """What `hostler doctor` says of it; `on`: whether the operator has platform switched on."""
    if isinstance(left, Unknown):
        why = f"What it may have left behind could not be looked at: {left.why}"
        yield Finding(
            Level.WARNING, "platform", why, f"Whoever may list {names(kind.plural for kind in DELETED)} sees it."
        )
        return
    if isinstance(on, Unknown):
        if left.value.made or left.value.set_aside:
            why = f"Cannot tell whether an operator still keeps {names(left.value.named())}: {on.why}"
            yield Finding(Level.WARNING, "platform", why, "hostler doctor --operator URL")
        return
    if left.value.set_aside:
        why = f"ClusterCSIDriver {CSI_DRIVER} is {UNMANAGED} by our doing: the driver is not updated."
        if on.value:
            yield Finding(Level.WARNING, "platform", why, "HOSTLER_PLATFORM_WAY=auto gives it back.")
        else:
            why = f"{why} No operator that has platform on was found, so it is not given back."
            yield Finding(Level.PROBLEM, "platform", why, WITHDRAW)
    if on.value:
        return
    if left.value.made:
        them = names(f"{kind.kind} {about.name}" for kind, about in left.value.made)
        why = f"No operator that has platform on was found, and it left {them}."
        yield Finding(Level.WARNING, "platform", why, WITHDRAW)
    elif not left.value.set_aside:
        yield Finding(Level.FINE, "platform", "Nothing of it is left in the cluster.")


STORAGE_CLASS = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)


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
    return await client.find(CLUSTER_CSI_DRIVER, CSI_DRIVER, type=ClusterCSIDriver)


async def find_use(client: Client) -> Use:
    """What needs the driver now. What may not be listed is an error: it is not nothing."""
    volumes = [volume for volume in await client.list(PERSISTENT_VOLUME, type=Volume) if volume.needs_driver]
    attachments = [
        attachment
        for attachment in await client.list(VOLUME_ATTACHMENT, type=_Attachment)
        if attachment.spec.attacher == CSI_DRIVER
    ]
    classes = {
        storage_class.metadata.name for storage_class in await client.list(STORAGE_CLASS, type=_StorageClass)
        if storage_class.provisioner in PROVISIONERS
    }  # fmt: skip
    claims = [
        claim
        for claim in await client.list(PERSISTENT_VOLUME_CLAIM, type=_Claim)
        if claim.spec.storage_class_name in classes
    ]
    return Use(
        _sorted(volume.metadata.name for volume in volumes),
        _sorted(attachment.metadata.name for attachment in attachments),
        _sorted(claim.spec.storage_class_name for claim in claims),
        _sorted(key_of(claim.metadata) for claim in claims),
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
        sentence = f"ClusterCSIDriver {CSI_DRIVER} changed meanwhile; nothing was changed."
        raise Complaint(sentence, hint="Ask again.", code=Exit.REFUSED) from None


def _sorted(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(found)))
