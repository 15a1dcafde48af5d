"""Which Secret has the kubeconfig of an old cluster."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web

from hostler.host.facts import Known, Unknown
from hostler.reclaim.model import Cluster
from hostler.reclaim.objects import AGENTS_FROM
from hostler.reclaim.spokes import Open, Spokes
from tests.unit.answering import answering

DEFAULT = "old-admin-kubeconfig"


@pytest.mark.parametrize(
    ("named", "secrets", "found"),
    [
        ("mine", {"mine", DEFAULT}, "mine"),
        ("mine", {DEFAULT}, None),  # it may be of an earlier cluster of this name
        ("", {DEFAULT}, DEFAULT),
        (None, {DEFAULT}, DEFAULT),
        (None, set(), None),
    ],
)
def test_a_secret_that_is_named_is_not_replaced_by_another(
    named: str | None, secrets: set[str], found: str | None
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        kind, name = request.path.split("/")[-2:]
        if kind == "secrets" and name not in secrets:
            return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)
        spec = {} if named is None else {"clusterMetadata": {"adminKubeconfigSecretRef": {"name": named}}}
        return web.json_response({"metadata": {"name": name}, "spec": spec})

    async def ask() -> object:
        async with answering(answer) as hub:
            spokes, cluster = Spokes(hub, cast(Any, None), lambda: 7.0), Cluster("hosts", "old", "node")
            return await spokes._secret(cluster, await spokes._deployment(cluster))

    assert asyncio.run(ask()) == (found if found is not None else Known(False, 7.0))


@pytest.mark.parametrize(
    ("agents_from", "namespace", "allowed"),
    [("", "hosts", True), ("", "tenant", False), ("tenant", "tenant", True), ("", "inventory", True)],
)
def test_namespaces_are_read_from_the_cluster_and_the_settings(agents_from: str, namespace: str, allowed: bool) -> None:
    opened = asyncio.run(opened_by({"current-context": "the-secret"}, agents_from))
    assert opened.reach(namespace) == Known(allowed, 7.0)


def test_a_kubeconfig_that_cannot_be_used_is_not_quoted() -> None:
    opened = asyncio.run(opened_by({"current-context": "the-secret"}))
    assert opened.hands is None
    assert opened.why == "the kubeconfig in Secret hosts/mine cannot be used; the operator's log says why."


def test_while_the_cluster_cannot_be_read_its_reach_is_unknown() -> None:
    opened = asyncio.run(opened_by({}, status=500))
    assert isinstance(opened.reach("hosts"), Unknown)
    assert opened.hands is None


async def opened_by(kubeconfig: dict[str, Any], agents_from: str = "", status: int = 200) -> Open:
    """How a cluster opens whose ClusterDeployment says this."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if status != 200:
            return web.json_response({"kind": "Status", "message": "no", "code": status}, status=status)
        kind, name = request.path.split("/")[-2:]
        metadata = {"name": name, "namespace": "hosts", "annotations": {AGENTS_FROM: agents_from}}
        if kind == "secrets":
            data = base64.b64encode(msgspec.json.encode(kubeconfig)).decode()
            return web.json_response({"metadata": metadata, "data": {"kubeconfig": data}})
        spec = {"clusterMetadata": {"adminKubeconfigSecretRef": {"name": "mine"}}}
        return web.json_response({"metadata": metadata, "spec": spec})

    async with answering(answer) as hub:
        spokes = Spokes(hub, cast(Any, None), lambda: 7.0, frozenset({"inventory"}))
        async with spokes.open(Cluster("hosts", "old", "node")) as opened:
            return opened
