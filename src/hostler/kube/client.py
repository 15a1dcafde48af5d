"""The API server over HTTP: one method per verb, typed errors, nothing cached and nothing retried.

Capabilities do not write with this class but with `kube.writer.Writer`, which asks the gate first.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from hostler.kube.errors import NotFound, TooLarge
from hostler.kube.gate import Gate as Gate
from hostler.kube.kinds import POD, Kind
from hostler.kube.records import Object
from hostler.kube.transport import Transport

T = TypeVar("T")
FIELD_MANAGER = "hostler"
PAGE = 500
# For a server that another party runs: its list of pages may never end.
BOUNDED_PAGE, MOST_PAGES = 100, 200
PAGES_TOGETHER = 8  # times what one answer may have


class How(enum.StrEnum):
    """The ways to patch, by their content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"  # JSON is YAML


class Page(msgspec.Struct, kw_only=True):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        continue_: str = msgspec.field(default="", name="continue")

    metadata: Meta = msgspec.field(default_factory=Meta)
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(Page)
_ENCODER = msgspec.json.Encoder()
# The second is for servers that do not know the first.
_METADATA_ONLY = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}


class Client(Transport):
    """One API server. Safe to share between tasks; close it once."""

    def gated(self, gate: Gate) -> Client:
        """The same connections, but every write asks `gate` first. Close only the original."""
        twin = copy.copy(self)
        twin._gate = gate
        return twin

    # -- reads

    async def get(
        self, kind: Kind, name: str, namespace: str | None = None, *, type: type[T], subresource: str | None = None
    ) -> T:
        body = await self.request("GET", kind.path(namespace, name, subresource))
        return msgspec.json.decode(body, type=type)

    async def find(self, kind: Kind, name: str, namespace: str | None = None, *, type: type[T]) -> T | None:
        """Like `get`, but None for what is not there. What may not be read is an error."""
        try:
            return await self.get(kind, name, namespace, type=type)
        except NotFound:
            return None

    async def list(
        self, kind: Kind, namespace: str | None = None, *, type: type[T], labels: str = "", fields: str = ""
    ) -> list[T]:
        """Every object, page by page. For caches use `kube.watch`; this is for commands and checks."""
        decoder = msgspec.json.Decoder(type)
        params = {"limit": str(PAGE if self._largest is None else BOUNDED_PAGE)}
        if labels:
            params["labelSelector"] = labels
        if fields:
            params["fieldSelector"] = fields
        found: list[T] = []
        pages = size = 0
        while True:
            body = await self.request("GET", kind.path(namespace), params=params)
            pages, size = pages + 1, size + len(body)
            page = _PAGE.decode(body)
            found.extend(decoder.decode(item) for item in page.items or ())
            if not page.metadata.continue_:
                return found
            self._check_pages(pages, size)
            params["continue"] = page.metadata.continue_

    async def version(self) -> dict[str, Any]:
        return msgspec.json.decode(await self.request("GET", "/version"), type=dict[str, Any])

    # -- writes (raw: see Writer)

    async def create(
        self, kind: Kind, body: Mapping[str, Any], namespace: str | None = None, *, type: type[T], dry_run: bool = False
    ) -> T:
        data = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        params = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        answer = await self.request(
            "POST", kind.path(namespace), params=params, body=_ENCODER.encode(data), headers=_accept(type)
        )
        return msgspec.json.decode(answer, type=type)

    async def patch(
        self,
        kind: Kind,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        type: type[T],
        how: How = How.MERGE,
        subresource: str | None = None,
        manager: str = FIELD_MANAGER,
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Change just the fields in `body`. With `metadata.resourceVersion` in it, a merge patch is conditional."""
        params = {"fieldManager": manager}
        if how is How.APPLY:
            body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
            params["force"] = "true" if force else "false"
        if dry_run:
            params["dryRun"] = "All"
        answer = await self.request(
            "PATCH",
            kind.path(namespace, name, subresource),
            params=params,
            body=_ENCODER.encode(body),
            content=how.value,
            headers=_accept(type),
        )
        return msgspec.json.decode(answer, type=type)

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete; with `uid`, only that very object and not one of the same name made since."""
        await self.request(
            "DELETE", kind.path(namespace, name),
            body=_ENCODER.encode(_delete_options(uid, resource_version, grace_seconds, propagation, dry_run)),
        )  # fmt: skip

    async def evict(
        self, name: str, namespace: str, *, uid: str, grace_seconds: int | None = None, dry_run: bool = False
    ) -> None:
        """Ask for one pod's eviction. TooManyRequests: a PodDisruptionBudget does not allow it now."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, "", grace_seconds, "", dry_run),
        }
        await self.request("POST", POD.path(namespace, name, "eviction"), body=_ENCODER.encode(body))

    def _check_pages(self, pages: int, size: int) -> None:
        """Whether a list may ask for one more page; `pages` and `size` are what it has read."""
        if self._largest is None:
            return
        most = self._largest * PAGES_TOGETHER
        if size >= most:
            raise TooLarge(self.connection.server, f"{most >> 20} MiB in all its pages")
        if pages >= MOST_PAGES:
            raise TooLarge(self.connection.server, f"{MOST_PAGES} pages")


def _accept(type: Any) -> Mapping[str, str] | None:
    """Of a write whose answer is wanted for its metadata alone, only that is asked for: objects may be large."""
    return _METADATA_ONLY if type is Object else None


def _delete_options(uid: str, version: str, grace: int | None, propagation: str, dry_run: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid or version:
        options["preconditions"] = {
            **({"uid": uid} if uid else {}),
            **({"resourceVersion": version} if version else {}),
        }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation:
        options["propagationPolicy"] = propagation
    if dry_run:
        options["dryRun"] = ["All"]
    return options
