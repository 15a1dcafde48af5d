"""`takeover --check` reads a cluster once and writes nothing, whatever it finds there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from hostler.kube.errors import ApiError
from hostler.metal import names
from hostler.metal.migration.leftovers import Leftovers, find_leftovers
from hostler.metal.migration.takeover import Effect, Line, takeover_lines
from hostler.metal.scope import WATCH_FILTER, Scope
from tests.unit.answering import answering

Json = dict[str, Any]
GROUP = "infrastructure.cluster.x-k8s.io"
OLD = f"{GROUP}/v1beta1"


def machine(name: str, namespace: str = "n", **meta: Any) -> Json:
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": "u"}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"u-{name}", "resourceVersion": "5",
            "ownerReferences": [owner], "finalizers": [f"metal3machine.{GROUP}"], **meta,
        },
        "spec": {"image": {"url": "u", "checksum": "c"}, "providerID": f"metal3://n/h-{name}/{name}"},
        "status": {"initialization": {"provisioned": True}, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def host(name: str, consumer: str, namespace: str = "n") -> Json:
    reference = {"apiVersion": OLD, "kind": "Metal3Machine", "name": consumer, "namespace": namespace}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "resourceVersion": "6", "annotations": {names.BLOCK_MOVE: ""},
            "ownerReferences": [{**reference, "uid": f"u-{consumer}", "controller": True}],
        },
        "spec": {"consumerRef": reference, "image": {"url": "u"}, "online": True},
        "status": {"provisioning": {"state": "provisioned"}, "poweredOn": True},
    }  # fmt: skip


def capi_machine(name: str) -> Json:
    meta = {"name": name, "namespace": "n", "resourceVersion": "3"}
    return {"metadata": meta, "spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "b"}}}


class Server:
    """Two machines with their hosts; one CRD that may hold older objects."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.unconverted = ""  # a list that fails
        self.older: tuple[str, ...] = ("metal3machines", "metal3clusters")
        cluster = {
            "metadata": {"name": "c", "namespace": "n", "resourceVersion": "2"},
            "status": {"initialization": {"infrastructureProvisioned": True}},
        }
        self.lists: dict[str, list[Json]] = {
            "metal3machines": [machine("m1", labels={WATCH_FILTER: "mine"}), machine("m2")],
            "baremetalhosts": [host("h-m1", "m1"), host("h-m2", "m2")],
            "machines": [capi_machine("m1"), capi_machine("m2")],
            "clusters": [cluster],
        }

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path))
        if "/customresourcedefinitions/" in request.path:
            return web.json_response(self.definition(request.path.rpartition("/")[2]))
        if self.unconverted and request.path.endswith(self.unconverted):
            return web.json_response({"kind": "Status", "message": "conversion webhook failed"}, status=500)
        found = self.lists.get(request.path.rpartition("/")[2], [])
        return web.json_response({"metadata": {"resourceVersion": "9"}, "items": found})

    def definition(self, name: str) -> Json:
        stored = ["v1beta1", "v1beta2"] if name.partition(".")[0] in self.older else ["v1beta2"]
        versions = [{"name": "v1beta1"}, {"name": "v1beta2", "storage": True}]
        return {"metadata": {"name": name}, "spec": {"versions": versions}, "status": {"storedVersions": stored}}

    def lines(self, scope: Scope) -> list[Line]:
        async def run() -> list[Line]:
            async with answering(self.answer) as client:
                return await takeover_lines(client, scope)

        return asyncio.run(run())

    def left(self, scope: Scope) -> Leftovers:
        async def run() -> Leftovers:
            async with answering(self.answer) as client:
                return await find_leftovers(client, scope)

        return asyncio.run(run())


def test_it_reads_only_and_needs_no_secret() -> None:
    server = Server()
    server.lines(Scope())
    assert {method for method, _ in server.asked} == {"GET"}
    assert [path for _, path in server.asked if "secrets" in path] == []


def test_every_owner_reference_and_every_older_object_is_named() -> None:
    lines = Server().lines(Scope())
    writes = {one.what: one.why for one in lines if one.effect is Effect.WRITE}
    assert "ownerReferences" in writes["baremetalhost/n/h-m1"]
    assert "ownerReferences" in writes["baremetalhost/n/h-m2"]
    first = {one.what.rpartition("/")[2].partition(".")[0]: one.fix for one in lines if one.effect is Effect.FIRST}
    assert {*first} == {"metal3machines", "metal3clusters"}
    assert all("get $crd -A -o name" in fix for fix in first.values()), "kubectl replaces no empty list"
    assert not [one for one in lines if one.effect is Effect.JUDGED]


def test_what_nobody_converts_is_named_with_what_has_to_be_done_first() -> None:
    server = Server()
    server.unconverted = "metal3machines"
    lines = server.lines(Scope())
    assert {one.effect for one in lines} == {Effect.FIRST}
    assert [one.why for one in lines if one.what == "conversion"] == [
        "What is stored in an older version cannot be read: conversion webhook failed"
    ]
    assert len(lines) == 3


def test_an_error_that_has_nothing_to_do_with_versions_is_one() -> None:
    server = Server()
    server.unconverted = "metal3datas"
    server.older = ()
    with pytest.raises(ApiError):
        server.lines(Scope())


def test_what_is_out_of_scope_is_listed_and_not_judged() -> None:
    lines = Server().lines(Scope(watch_filter="mine"))
    assert [one.what for one in lines if one.effect is Effect.OUTSIDE] == ["metal3machine/n/m2"]
    assert not [one for one in lines if one.what == "baremetalhost/n/h-m2"]


def test_withdraw_leaves_the_hosts_of_another_scope() -> None:
    server = Server()
    assert [one.metadata.name for one in server.left(Scope()).hosts] == ["h-m1", "h-m2"]
    assert [one.metadata.name for one in server.left(Scope(watch_filter="mine")).hosts] == ["h-m1"]
    server.asked.clear()
    server.left(Scope(namespaces=("a", "b")))
    assert all("/namespaces/a/" in path or "/namespaces/b/" in path for _, path in server.asked)
