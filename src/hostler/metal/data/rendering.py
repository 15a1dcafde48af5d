"""Renders one Metal3Data: its addresses, its two Secrets, and what its status says of that."""

from __future__ import annotations

from typing import Any

import structlog

from hostler.apis import capi, metal3
from hostler.apis.metal3 import BareMetalHost
from hostler.apis.metal3_data import Data, DataTemplate
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists
from hostler.kube.kinds import SECRET
from hostler.kube.records import Metadata, Object
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.data.addresses import Addresses
from hostler.metal.data.content import CannotRender, Context, check_links, render_meta_data, render_network_data
from hostler.metal.data.decide import RenderedSecret, is_installed_with, is_rendered_for, names_secrets, why_not_ours
from hostler.metal.model import owner_key, owner_reference
from hostler.metal.toolbox import Toolbox

log = structlog.get_logger("hostler.metal")
LONGEST = 512  # of an error message, by the CRD


class InTheWay(Exception):
    """Somebody else's Secret has the name of ours."""


async def put_secret(
    client: Client, writer: Writer, data: Data, name: str, field: str, content: bytes
) -> dict[str, str]:
    """Create the Secret, or write it again; the reference to it."""
    namespace = data.metadata.namespace
    labels = {capi.CLUSTER_NAME: data.metadata.labels.get(capi.CLUSTER_NAME, "")}
    owners = [owner_reference(metal3.METAL3_DATA, data.metadata)]
    body = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners},
        "type": names.SECRET_TYPE,
        "data": {field: content},  # bytes are written as base64
    }
    try:
        await writer.create(SECRET, body, namespace, type=Object, why=f"rendered for {data.metadata.name}")
    except AlreadyExists:
        # Of an earlier try of ours, or of a machine of the same name: what is rendered now counts.
        found = await client.get(SECRET, name, namespace, type=RenderedSecret)
        if why := why_not_ours(found):
            raise InTheWay(f"Secret {name} is in the way and not ours ({why}): delete it or rename it") from None
        ours = [one.uid for one in found.metadata.owner_references] == [data.metadata.uid]
        if ours and found.data.get(field) == content and found.metadata.labels == labels:
            return {"name": name, "namespace": namespace}  # written before a crash, and not once more
        meta = {"resourceVersion": found.metadata.resource_version, "labels": labels, "ownerReferences": owners}
        change = {"metadata": meta, "data": {field: content}}
        await writer.patch(SECRET, name, change, namespace, type=Object, why=f"rendered again for {data.metadata.name}")
    return {"name": name, "namespace": namespace}


class DataRenderer:
    def __init__(self, tools: Toolbox, addresses: Addresses) -> None:
        self._caches, self._data, self._client = tools.caches, tools.data, tools.client
        self._writer, self._addresses = tools.writer, addresses

    def context_of(self, data: Data) -> Context | str:
        """Everything the rendering needs; a sentence where something is not there yet."""
        namespace = data.metadata.namespace
        claim = self._data.claims.store.get(names.key(namespace, data.spec.claim.name))
        if claim is None:
            return f"Metal3DataClaim {data.spec.claim.name} does not exist."
        machine = self._caches.machines.store.get(owner_key(claim.metadata, metal3.METAL3_MACHINE.kind))
        if machine is None:
            return f"the Metal3Machine of claim {claim.metadata.name} does not exist."
        owner = self._caches.capi_machines.store.get(owner_key(machine.metadata, "Machine"))
        if owner is None:
            return f"Metal3Machine {machine.metadata.name} has no Machine."
        host = self._caches.own_host(machine)
        if host is None:
            return f"Metal3Machine {machine.metadata.name} has no host yet."
        return Context(owner.metadata, machine.metadata, host, data.spec.index, namespace)

    async def render(self, data: Data) -> None:
        """Once for a host: what was rendered stays as it is, whatever changes around it."""
        context = self.context_of(data)
        if data.status.ready and (
            isinstance(context, str) or context.host.imaged or is_rendered_for(data, context.host)
        ):  # fmt: skip
            if isinstance(context, str):
                return
            if names.RENDERED_FOR not in data.metadata.annotations:
                await self._mark(data, context.host)
            elif is_rendered_for(data, context.host):
                await self._addresses.give_back_before(data, context.host, begin=False)
            return
        if not isinstance(context, str) and is_installed_with(data, context.host):
            if data.metadata.annotations.get(names.RENDERED_FOR) != context.host.metadata.uid:
                await self._mark(data, context.host)
            await self._report_ready(data, f"host {context.host.metadata.name} is installed with it")
            return
        template = self._data.templates.store.get(names.key(data.metadata.namespace, data.spec.template.name))
        if template is None:
            await self.report_error(data, f"Metal3DataTemplate {data.spec.template.name} does not exist.")
            return
        if isinstance(context, str):
            await self.report_error(data, context)
            return
        try:
            if template.spec.network_data is not None:
                check_links(template.spec.network_data)
            addresses = await self._addresses.all(data, template, context)
            if isinstance(addresses, str):
                await self.report_error(data, addresses)
                return
            context = Context(
                context.machine, context.metal3_machine, context.host, context.index, context.namespace, addresses
            )
            await self._secrets(data, template, context)
        except CannotRender as why:
            await self.report_error(data, f"It cannot be rendered: {why}.")

    async def _mark(self, data: Data, host: BareMetalHost) -> None:
        """Taken over, moved or restored: it is this host's from now on, and not whichever comes after it."""
        annotations = {names.RENDERED_FOR: host.metadata.uid}
        change = {"metadata": {"annotations": annotations, "resourceVersion": data.metadata.resource_version}}
        why = f"it was rendered for host {host.metadata.name}"
        await self._patch(data.metadata, change, why)

    async def _secrets(self, data: Data, template: DataTemplate, context: Context) -> None:
        meta, network = template.spec.meta_data, template.spec.network_data
        name, namespace = context.metal3_machine.name, data.metadata.namespace
        # What this rendering lacks is taken out: it was the host's before.
        spec: dict[str, dict[str, str] | None] = {"metaData": None, "networkData": None}
        if meta is not None:
            content, called = render_meta_data(meta, context), f"{name}-metadata"
            spec["metaData"] = await put_secret(self._client, self._writer, data, called, "metaData", content)
        if network is not None:
            content = render_network_data(network, context)
            spec["networkData"] = await put_secret(
                self._client, self._writer, data, f"{name}-networkdata", "networkData", content
            )
        if not names_secrets(data, context.host, spec):
            mark = {"annotations": {names.RENDERED_FOR: context.host.metadata.uid}}
            change = {"metadata": mark, "spec": spec}
            await self._patch(data.metadata, change, "its secrets are made")
        await self._addresses.give_back_before(data, context.host, begin=True)
        await self._report_ready(data, "it is rendered")
        log.debug("rendered", data=names.key(namespace, data.metadata.name))

    async def _report_ready(self, data: Data, why: str) -> None:
        ready = {"status": {"ready": True, "errorMessage": None}}
        await self._patch(data.metadata, ready, why, "status")

    async def report_error(self, data: Data, error: str) -> None:
        if data.status.error_message == error[:LONGEST]:
            return
        change = {"status": {"errorMessage": error[:LONGEST], "ready": False}}
        await self._patch(data.metadata, change, error, "status")

    async def _patch(self, meta: Metadata, change: dict[str, Any], why: str, subresource: str | None = None) -> None:
        await self._data.datas.patch(self._writer, meta.name, change, meta.namespace, why=why, subresource=subresource)
