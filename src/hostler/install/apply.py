"""Installs our own CRDs, and says how when one is missing."""

from __future__ import annotations

import asyncio
from typing import Any

from hostler.errors import Complaint, Exit
from hostler.host.conditions import names
from hostler.install.admission import BINDING, POLICY, PolicySeen, Seen
from hostler.install.crd import definitions
from hostler.kube.client import Client, How
from hostler.kube.errors import NotFound
from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION, FLEET, Kind
from hostler.kube.records import Condition, Metadata, Object, Record

# After this long the API server still not serving a new kind is a fault, not slowness.
SERVED_WITHIN = 30.0


class _Status(Record, frozen=True):
    conditions: tuple[Condition, ...] | None = None  # null until the API server has looked at it


class _Definition(Record, frozen=True):
    metadata: Metadata = Metadata()
    status: _Status = _Status()


def missing(doing: str, kind: Kind = FLEET) -> Complaint:
    """The cluster does not know a kind of ours."""
    return Complaint(
        f"{doing} needs the kind {kind.kind}, and this cluster does not know that kind.",
        hint="Install it with `hostler crds --apply`, or `hostler crds | kubectl apply -f -`.",
        code=Exit.REFUSED,
    )


async def install(client: Client) -> str:
    """Install or update our CRDs by server-side apply, and wait until they are served. Safe to repeat."""
    made = definitions()
    for kind, definition in made.items():
        await _install_kind(client, kind, definition)
    return f"{names(kind.resource for kind in made)} are installed."


async def _install_kind(client: Client, kind: Kind, made: dict[str, Any]) -> None:
    name = str(made["metadata"]["name"])
    body = {"metadata": made["metadata"], "spec": made["spec"]}
    await client.patch(CUSTOM_RESOURCE_DEFINITION, name, body, type=Object, how=How.APPLY, force=True)
    try:
        async with asyncio.timeout(SERVED_WITHIN):
            while True:
                if await _served(client, kind, name):
                    break
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise Complaint(
            f"{name} was applied, but the API server does not serve it after {SERVED_WITHIN:.0f} s.",
            hint=f"See `kubectl describe crd {name}`.",
        ) from None


async def _served(client: Client, kind: Kind, name: str) -> bool:
    definition = await client.get(CUSTOM_RESOURCE_DEFINITION, name, type=_Definition)
    conditions = definition.status.conditions or ()
    for condition in conditions:
        if condition.type == "NamesAccepted" and condition.status == "False":
            raise Complaint(f"The API server does not accept {name}: {condition.message}.", code=Exit.REFUSED)
    if not any(condition.type == "Established" and condition.status == "True" for condition in conditions):
        return False
    try:
        await client.list(kind, type=Object)
    except NotFound:
        return False  # established, but this API server has not taken it up yet
    return True


async def read_policies(client: Client) -> Seen | None:
    """Every admission policy and binding of the cluster; None: the API server does not have the kinds."""
    try:
        return await client.list(POLICY, type=PolicySeen), await client.list(BINDING, type=PolicySeen)
    except NotFound:
        return None
