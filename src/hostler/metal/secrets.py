"""The Secrets of rendered data: written once more for the same machine, never over somebody else's."""

from __future__ import annotations

from hostler.apis import capi, metal3
from hostler.apis.metal3_data import Data
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists
from hostler.kube.kinds import SECRET
from hostler.kube.records import Object
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.data_use import RenderedSecret
from hostler.metal.writes import owner_reference


class InTheWay(Exception):
    """Somebody else's Secret has the name of ours."""


def whose(secret: RenderedSecret) -> str:
    """Whose a Secret is that has the name of ours, as words; empty: of an earlier try or another machine of ours."""
    stranger = next((one for one in secret.metadata.owner_references if one.kind != metal3.METAL3_DATA.kind), None)
    if stranger is not None:
        return f"it belongs to {stranger.kind} {stranger.name}"
    return "" if secret.type == names.SECRET_TYPE else f"its type is {secret.type or 'not known'}"


async def put(client: Client, writer: Writer, data: Data, name: str, field: str, content: bytes) -> dict[str, str]:
    """Make the Secret, or make it anew; the reference to it."""
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
        if why := whose(found):
            raise InTheWay(f"Secret {name} is in the way and not ours ({why}): delete it or rename it") from None
        ours = [one.uid for one in found.metadata.owner_references] == [data.metadata.uid]
        if ours and found.data.get(field) == content and found.metadata.labels == labels:
            return {"name": name, "namespace": namespace}  # written before a crash, and not once more
        meta = {"resourceVersion": found.metadata.resource_version, "labels": labels, "ownerReferences": owners}
        change = {"metadata": meta, "data": {field: content}}
        await writer.patch(SECRET, name, change, namespace, type=Object, why=f"rendered anew for {data.metadata.name}")
    return {"name": name, "namespace": namespace}
