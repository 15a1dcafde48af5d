"""Plays every CSI driver's attacher: VolumeAttachments become attached, and go when they may.

The disk of a node that is off cannot be unmounted. It is detached only when no pod there uses it any more, or when
somebody vouches with the out-of-service taint that the node is really down.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import aiohttp
import msgspec

from hostler.sandbox.follow import Meta, patch, say
from hostler.sandbox.power import Power

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
R = TypeVar("R")


class Source(msgspec.Struct, rename="camel", frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(msgspec.Struct, rename="camel", frozen=True):
    attacher: str
    node_name: str
    source: Source


class AttachmentStatus(msgspec.Struct, frozen=True):
    attached: bool = False


class Attachment(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: AttachmentSpec
    status: AttachmentStatus = AttachmentStatus()


class _Claim(msgspec.Struct, rename="camel", frozen=True):
    claim_name: str


class _PodVolume(msgspec.Struct, rename="camel", frozen=True):
    persistent_volume_claim: _Claim | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    volumes: list[_PodVolume] = []


class _PodMeta(msgspec.Struct, frozen=True):
    name: str
    namespace: str


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMeta
    spec: _PodSpec


class _Pods(msgspec.Struct, frozen=True):
    items: list[_Pod]


class _ClaimRef(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _VolumeSpec(msgspec.Struct, rename="camel", frozen=True):
    claim_ref: _ClaimRef | None = None


class _Volume(msgspec.Struct, frozen=True):
    spec: _VolumeSpec


class Attacher:
    """Works on attachments one after the other; one that has to wait is looked at again every second."""

    def __init__(self, session: aiohttp.ClientSession, power: Power) -> None:
        self._session = session
        self._power = power
        self._known: dict[str, Attachment] = {}
        self._wake = asyncio.Event()
        self._held: set[str] = set()

    def listed(self, attachments: list[Attachment]) -> None:
        self._known = {one.metadata.name: one for one in attachments}
        self._wake.set()

    def changed(self, what: str, one: Attachment) -> None:
        if what == "DELETED":
            self._known.pop(one.metadata.name, None)
        else:
            self._known[one.metadata.name] = one
        self._wake.set()

    async def work(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), 1.0 if self._held else None)
            except TimeoutError:
                pass  # somebody waits for a pod to go
            self._wake.clear()
            for one in list(self._known.values()):
                try:
                    await self._bring_in_line(one)
                except (aiohttp.ClientError, OSError) as error:
                    say(f"volume attachment {one.metadata.name} could not be written: {error!r}; trying again")
                    await asyncio.sleep(0.5)
                    self._wake.set()

    async def _bring_in_line(self, one: Attachment) -> None:
        path = f"/apis/storage.k8s.io/v1/volumeattachments/{one.metadata.name}"
        # As the real external-attacher names it.
        ours = f"external-attacher/{one.spec.attacher.replace('.', '-')}"
        has = ours in one.metadata.finalizers
        if one.metadata.deletion_timestamp is None:
            if not has:
                finalizers = [*one.metadata.finalizers, ours]
                await patch(self._session, path, _at(one, {"finalizers": finalizers}))
            elif not one.status.attached:
                say(f"{one.spec.source.persistent_volume_name} is attached to {one.spec.node_name}")
                await patch(self._session, f"{path}/status", {"status": {"attached": True}})
        elif has:
            if why := await self._why_not(one):
                if one.metadata.name not in self._held:
                    say(f"{one.spec.source.persistent_volume_name} stays attached to {one.spec.node_name}: {why}")
                self._held.add(one.metadata.name)
                return
            self._held.discard(one.metadata.name)
            say(f"{one.spec.source.persistent_volume_name} is detached from {one.spec.node_name}")
            finalizers = [name for name in one.metadata.finalizers if name != ours]
            await patch(self._session, path, _at(one, {"finalizers": finalizers}))

    async def _why_not(self, one: Attachment) -> str:
        """Why this volume cannot be detached now, or an empty string."""
        node = self._power.nodes.get(one.spec.node_name)
        if node is None or not node.off:
            return ""
        if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
            return ""
        volume = await self._get(f"/api/v1/persistentvolumes/{one.spec.source.persistent_volume_name}", _Volume)
        claim = volume.spec.claim_ref if volume else None
        pods = await self._get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{one.spec.node_name}", _Pods)
        for pod in pods.items if pods and claim else []:
            claims = {v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim}
            if claim and pod.metadata.namespace == claim.namespace and claim.name in claims:
                return f"the node is off and pod {pod.metadata.namespace}/{pod.metadata.name} is still there"
        return ""

    async def _get(self, path: str, record: type[R]) -> R | None:
        async with self._session.get(path) as answer:
            if answer.status == 404:
                return None
            answer.raise_for_status()
            return msgspec.json.decode(await answer.read(), type=record)


def _at(one: Attachment, changes: dict[str, object]) -> dict[str, object]:
    """A patch of metadata that fails if somebody was faster: finalizers are a list, and lists are replaced whole."""
    return {"metadata": {"resourceVersion": one.metadata.resource_version, **changes}}
