"""Several nodes are held at once: none beyond the ceiling, also when others hold nodes at the same moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from hostler.capabilities import read_settings
from hostler.cli.drain import hold_nodes
from hostler.cli.node_results import Ended
from hostler.cli.node_selection import choice_of, nodes_of
from hostler.errors import Complaint, Exit
from hostler.host.holds import HOLDS
from hostler.kube.client import Client
from tests.unit.answering import answering

THEIRS = json.dumps([{"holder": "bob", "why": "x", "since": "2026-01-01T00:00:00Z", "cordonedBefore": False}])


class Nodes:
    """Nodes as the API server keeps them; `meanwhile` happens once, right after the first write."""

    def __init__(self, *names: str, meanwhile: Callable[[Nodes], None] = lambda nodes: None) -> None:
        self.kept: dict[str, Any] = {
            name: {"metadata": {"name": name, "resourceVersion": "1", "annotations": {}, "labels": {}}, "spec": {}}
            for name in names
        }
        self.writes = 0
        self.meanwhile = meanwhile

    def hold(self, name: str) -> None:
        self.kept[name]["metadata"]["annotations"] = {HOLDS: THEIRS}
        self.kept[name]["spec"] = {"unschedulable": True}

    @property
    def held(self) -> list[str]:
        return [name for name, one in self.kept.items() if HOLDS in one["metadata"]["annotations"]]

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/api/v1/nodes":
            return web.json_response({"metadata": {}, "items": list(self.kept.values())})
        node = self.kept.get(request.path.removeprefix("/api/v1/nodes/"))
        if node is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if request.method == "PATCH":
            merge(node, await request.json())
            self.writes += 1
            if self.writes == 1:
                self.meanwhile(self)
        return web.json_response(node)


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def hold(nodes: Nodes, *names: str, limit: str | None, dry_run: bool = False) -> list[Ended]:
    async def go() -> list[Ended]:
        async with answering(nodes.answer) as client:
            return await hold_nodes(client, names, "ada", "a fan", limit, dry_run=dry_run)

    return asyncio.run(go())


def test_all_are_held_where_the_ceiling_allows_all() -> None:
    nodes = Nodes("w1", "w2", "w3", "w4")
    assert [one.word for one in hold(nodes, "w1", "w3", limit="2")] == ["held", "held"]
    assert nodes.held == ["w1", "w3"]
    assert [one.word for one in hold(nodes, "w3", "w1", limit="2")] == ["held already", "held already"]


def test_none_is_held_where_the_ceiling_allows_fewer() -> None:
    nodes = Nodes("w1", "w2", "w3", "w4")
    nodes.hold("w4")
    with pytest.raises(Complaint) as refused:
        hold(nodes, "w1", "w2", "w4", limit="2")
    assert refused.value.sentence == (
        "2 nodes are too many: MAX_UNAVAILABLE (2) allows 2 of 4 out of service at a time, and 1 is out. "
        "Nothing was changed."
    )  # fmt: skip
    assert refused.value.code is Exit.REFUSED
    assert nodes.writes == 0
    assert [one.code for one in hold(nodes, "w1", "w2", limit=None)] == [Exit.OK, Exit.OK], "--beyond-ceiling"


def test_what_others_held_meanwhile_sends_the_last_ones_back(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = Nodes("w1", "w2", "w3", "w4", "w5", meanwhile=lambda them: them.hold("w5"))
    found = hold(nodes, "w1", "w2", "w3", limit="3")
    assert [(one.node, one.word, one.code) for one in found] == [
        ("w1", "held", Exit.OK), ("w2", "held", Exit.OK), ("w3", "refused", Exit.REFUSED),
    ]  # fmt: skip
    assert nodes.held == ["w1", "w2", "w5"]
    assert "w3 was released again: others were held at the same moment" in capsys.readouterr().err


def test_what_was_held_before_is_not_given_back() -> None:
    nodes = Nodes("w1", "w2", "w3")
    hold(nodes, "w2", limit=None)
    nodes.writes, nodes.meanwhile = 0, lambda them: them.hold("w3")
    found = hold(nodes, "w2", "w1", limit="2")
    assert [(one.node, one.word) for one in found] == [("w2", "held already"), ("w1", "refused")]
    assert nodes.held == ["w2", "w3"]


def test_a_dry_run_of_several_writes_nothing() -> None:
    nodes = Nodes("w1", "w2")
    assert [one.why.startswith("Would be: ") for one in hold(nodes, "w1", "w2", limit="2", dry_run=True)] == [
        True,
        True,
    ]
    assert nodes.writes == 0


def chosen(nodes: Nodes, *named: str, selector: str = "") -> tuple[str, ...]:
    async def go(client: Client) -> tuple[str, ...]:
        return await nodes_of(client, read_settings({}, {}), choice_of(named, selector, "", ""))

    async def run() -> tuple[str, ...]:
        async with answering(nodes.answer) as client:
            return await go(client)

    return asyncio.run(run())


def test_names_stay_in_their_order_and_labels_are_sorted() -> None:
    nodes = Nodes("w2", "w1", "w3")
    for name in ("w2", "w1"):
        nodes.kept[name]["metadata"]["labels"] = {"pool": "gpu"}
    assert chosen(nodes, "w3", "w1") == ("w3", "w1")
    assert chosen(nodes, selector="pool=gpu") == ("w1", "w2")


def test_what_is_not_there_is_named_whole() -> None:
    nodes = Nodes("w1")
    with pytest.raises(Complaint, match="There are no nodes w8 and w9 in this cluster"):
        chosen(nodes, "w9", "w1", "w8")
    with pytest.raises(Complaint, match="No node matches -l pool=db"):
        chosen(nodes, selector="pool=db")
