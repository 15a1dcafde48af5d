"""Which Secret has the kubeconfig of an old cluster, and what is looked at there without permission."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web

from hostler.apis.assisted import InfraEnv
from hostler.host.facts import Known, Unknown
from hostler.host.holds import Patch, place
from hostler.kube.records import Node
from hostler.reclaim.action_executor import ActionExecutor
from hostler.reclaim.executor import SpokeExecutor
from hostler.reclaim.facts import AGENTS_FROM
from hostler.reclaim.identity import HOLDER
from hostler.reclaim.model import Cluster, Host, Pin, Policy, Spoke, SpokeNode
from hostler.reclaim.old_clusters import OpenSpoke, SpokeClusters
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
            spokes, cluster = SpokeClusters(hub, cast(Any, None), lambda: 7.0), Cluster("hosts", "old", "node")
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
    assert opened.executor is None
    assert opened.why == "the kubeconfig in Secret hosts/mine cannot be used; the operator's log says why."


def test_while_the_cluster_cannot_be_read_its_reach_is_unknown() -> None:
    opened = asyncio.run(opened_by({}, status=500))
    assert isinstance(opened.reach("hosts"), Unknown)
    assert opened.executor is None


async def opened_by(kubeconfig: dict[str, Any], agents_from: str = "", status: int = 200) -> OpenSpoke:
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
        spokes = SpokeClusters(hub, cast(Any, None), lambda: 7.0, frozenset({"inventory"}))
        async with spokes.open(Cluster("hosts", "old", "node")) as opened:
            return opened


PINNED = Pin("2026-01-01T00:00:00Z", "uid-1", "boot-1")
LOST = Host(
    "agent-1", "u-1", "unbinding-pending-user-action", "", None, None, Cluster("hosts", "old", "node"), "node",
    namespace="tenant", kept=True, pinned=PINNED,
)  # fmt: skip


@pytest.mark.parametrize(
    ("host", "cordoned", "seen"),
    [
        (LOST, True, True),
        (LOST, False, False),
        (replace(LOST, kept=False), True, False),
        (replace(LOST, pinned=None), True, False),
        (replace(LOST, pinned=replace(PINNED, uid="uid-2")), True, False),
    ],
)
def test_without_permission_only_its_own_cordoned_node_is_seen(host: Host, cordoned: bool, seen: bool) -> None:
    found = asyncio.run(looked_at(host, cordoned))
    assert found.reach == Known(False, 7.0)
    assert (isinstance(found.node, Known) and isinstance(found.node.value, SpokeNode)) == seen
    assert found.remains == Known(frozenset(), 7.0)


def test_a_cordon_that_cannot_be_read_is_not_forgotten() -> None:
    found = asyncio.run(looked_at(LOST, True, status=500))
    assert isinstance(found.remains, Unknown)


async def looked_at(host: Host, cordoned: bool, status: int = 200) -> Spoke:
    """What a look finds of a host whose namespace may not act in its old cluster any more."""
    body: dict[str, Any] = {"metadata": {"name": "node", "uid": "uid-1"}}
    held = place(msgspec.convert(body, Node), HOLDER, "its host is returned", 7.0)
    assert isinstance(held, Patch)
    if cordoned:
        body = {"metadata": {**body["metadata"], **held.body["metadata"]}, "spec": held.body["spec"]}

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/nodes/node":
            return web.json_response(body, status=status)
        if request.path.split("/")[-1] in ("secrets", "configmaps", "daemonsets", "pods"):
            return web.json_response({"metadata": {}, "items": []})
        return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)

    async with answering(answer) as there:
        executor = SpokeExecutor(there, cast(Any, None), lambda: 7.0)
        opened = OpenSpoke(Known(True, 7.0), Known(frozenset({"hosts"}), 7.0), executor, client=there)
        return await SpokeClusters(there, cast(Any, None), lambda: 7.0).look(host, opened, Policy("https://hub"))


@pytest.mark.parametrize(("namespace", "copied"), [("hosts", b"{}"), ("inventory", None)])
def test_a_pull_secret_goes_to_clusters_of_its_namespace_only(namespace: str, copied: bytes | None) -> None:
    infra_env = msgspec.convert(
        {"metadata": {"name": "env", "namespace": namespace}, "spec": {"pullSecretRef": {"name": "pull"}}}, InfraEnv
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path == f"/api/v1/namespaces/{namespace}/secrets/pull"
        return web.json_response({"metadata": {"name": "pull"}, "data": {".dockerconfigjson": "e30="}})

    async def ask() -> bytes | None:
        async with answering(answer) as hub:
            none = cast(Any, None)
            return await ActionExecutor(hub, none, none, none, "").read_pull_secret(infra_env, LOST)

    assert asyncio.run(ask()) == copied
