"""Sends a write that was decided, through the cache that shows its answer at once."""

from __future__ import annotations

from typing import TypeVar

from hostler.host.writes import Verb, Write
from hostler.kube.cache import Cache
from hostler.kube.client import FIELD_MANAGER, How
from hostler.kube.records import HasMetadata
from hostler.kube.writer import Writer

R = TypeVar("R", bound=HasMetadata)


async def send_write(write: Write, writer: Writer, cache: Cache[R], *, applies_as: str = FIELD_MANAGER) -> R | None:
    """The object after the write; None in a dry run, or where nothing is left of it.

    `applies_as`: the field manager of server-side apply.
    """
    match write.verb:
        case Verb.CREATE:
            return await cache.create(writer, write.body, write.namespace, why=write.why)
        case Verb.DELETE:
            await writer.delete(write.kind, write.name, write.namespace, uid=write.uid, why=write.why)
            return None
        case Verb.APPLY:
            return await cache.patch(
                writer, write.name, write.body, write.namespace, why=write.why, how=How.APPLY,
                subresource=write.subresource, manager=applies_as, force=True,
            )  # fmt: skip
        case Verb.PATCH:
            how, sent = (How.JSON, list(write.operations)) if write.operations else (How.MERGE, write.body)
            return await cache.patch(
                writer, write.name, sent, write.namespace, why=write.why, how=how, subresource=write.subresource
            )
