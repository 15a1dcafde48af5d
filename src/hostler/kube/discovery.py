"""Whether an API server serves a kind at all, by its own list of what it serves.

A 404 alone does not say so: whatever stands before the API server (a load balancer without a backend, a proxy) answers
404 too, and a client that believed it would see a cluster without a single pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from hostler.kube.client import Client
from hostler.kube.errors import Forbidden, NotFound, Unreachable
from hostler.kube.kinds import Kind


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    name: str = ""
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct):
    kind: str = ""
    groups: tuple[_Group, ...] = ()


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    kind: str = ""
    resources: tuple[_Resource, ...] | None = ()


class Versions:
    """The versions in which a kind may be served, the preferred one first. `path` is of the one in use."""

    def __init__(self, kind: Kind, others: Sequence[str], namespace: str | None) -> None:
        self.versions = (kind.version, *others)
        self._paths = [replace(kind, version=version).path(namespace) for version in self.versions]
        self._refused = 0  # how many of them in a row

    @property
    def path(self) -> str:
        return self._paths[0]

    def found(self) -> None:
        self._refused = 0

    def try_next(self) -> bool:
        """The one in use is not served: use the next. False: each was tried, and it begins from the start."""
        self._paths.append(self._paths.pop(0))
        self._refused = (self._refused + 1) % len(self._paths)
        return self._refused > 0


async def serves(client: Client, kind: Kind, versions: Iterable[str]) -> bool:
    """Whether `kind` is served in one of `versions`. Raises what a request raises; Unreachable: that is not known."""
    if not kind.group:
        return True  # the core group is never missing
    try:
        found = msgspec.json.decode(await client.request("GET", "/apis"), type=_Groups)
        if found.kind != "APIGroupList":
            raise NotFound(404, "", "its list of groups is none")
    except Forbidden:
        return False  # an API server that does not let us read its list; then its 404 is all there is
    except NotFound as error:
        raise Unreachable(f"what answers at {client.connection.server} is not a whole API server: {error}") from error
    offered = {one.version for group in found.groups if group.name == kind.group for one in group.versions}
    for version in offered.intersection(versions):
        try:
            answer = await client.request("GET", f"/apis/{kind.group}/{version}")
        except (NotFound, Forbidden):
            continue  # a definition that was just deleted is in the list of groups for a moment longer
        if any(one.name == kind.plural for one in msgspec.json.decode(answer, type=_Resources).resources or ()):
            return True
    return False
