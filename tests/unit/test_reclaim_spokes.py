"""Which Secret has the kubeconfig of an old cluster."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from aiohttp import web

from hostler.host.facts import Known
from hostler.reclaim.model import Cluster
from hostler.reclaim.spokes import Spokes
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
