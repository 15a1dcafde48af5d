"""Explain, plan, status and config over real HTTP, as the CLI asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from hostler import __version__
from hostler.apis.fleet import Fleet, Pause
from hostler.capabilities import CAPABILITIES, read_settings
from hostler.errors import Complaint, Exit
from hostler.explain.client import ask_url
from hostler.explain.read_api import Reads
from hostler.explain.registry import (
    Action,
    Answer,
    Explainer,
    Explanation,
    FactSeen,
    Registry,
    RuleSeen,
    UnknownKind,
    UnknownName,
    seen,
)
from hostler.explain.wire import Config, StatusAnswer
from hostler.fleet.controller import FleetController
from hostler.host.facts import Known, Unknown
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.http import Server
from hostler.kube.kinds import FLEET, NODE, PAUSE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Node
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.safety.guard import Guard
from hostler.safety.switches import choose
from tests.unit.nowhere import Nowhere

WORKER = Explanation(
    capability="holds",
    outcome="worker-1 is in service.",
    rules=(RuleSeen("held", "does not hold", "Nobody holds it.", decided=True, facts=(FactSeen("cordoned", False),)),),
)


async def admit_all(_: web.Request) -> None:
    """Who may ask is not the story here."""


@asynccontextmanager
async def operator() -> AsyncIterator[str]:
    """The read API of an operator that has not reached its cluster yet, on a free port."""
    metrics = Metrics()
    client = Client(Nowhere())
    fleet, nodes = Watch(client, FLEET, Fleet, metrics=metrics), Watch(client, NODE, Node, metrics=metrics)
    env = {"VCENTER_HOST": "vc", "VCENTER_USER": "me", "VCENTER_PASSWORD": "hunter2"}
    guard = Guard(
        Watch(client, PAUSE, Pause, metrics=metrics),
        fleet,
        leader=lambda: "this replica does not lead",
        choices=choose(CAPABILITIES, (), ()),
    )
    writer = Writer(client, "fleet", gate=guard.gate_for("fleet"), budget=WriteBudget())
    status = FleetController(fleet, nodes, guard, writer, limit="", leader=lambda: "pod-9", metrics=metrics)
    registry = Registry()
    registry.add(
        Explainer(
            "node",
            "holds",
            explain=lambda name: WORKER if name == "worker-1" else None,
            plan=lambda name: Explanation("holds", "It will be cordoned.", actions=(Action("cordon", name, "Held."),)),
        )
    )
    registry.add(Explainer("agent", "reclaim", explain=lambda name: Explanation("reclaim", f"{name} is bound.")))
    server = Server("127.0.0.1", 0, metrics, admit=admit_all)
    reads = Reads(
        registry,
        guard,
        status,
        read_settings({}, env),
        identity="pod-1_x",
        leadership=lambda: "another leads",
        dry_run=True,
    )
    reads.mount(server)
    reads.off(server, "/v1/maintenance", "maintenance")
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()
        await client.close()


def test_a_node_that_cannot_be_read_counts_as_out_of_service() -> None:
    async def run() -> None:
        metrics = Metrics()
        async with Client(Nowhere()) as client:
            fleet, nodes = Watch(client, FLEET, Fleet, metrics=metrics), Watch(client, NODE, Node, metrics=metrics)
            pauses = Watch(client, PAUSE, Pause, metrics=metrics)
            guard = Guard(pauses, fleet, leader=lambda: None, choices=choose(CAPABILITIES, (), ()))
            writer = Writer(client, "fleet", gate=guard.gate_for("fleet"), budget=WriteBudget())
            status = FleetController(fleet, nodes, guard, writer, limit="2", leader=lambda: "", metrics=metrics)
            for number in range(4):
                nodes.store.put(Node(metadata=Metadata(name=f"n{number}", resource_version=str(number + 1))))
            assert status.room().left == 2
            nodes.store.unread("n0", 9, "it does not decode")
            assert (status.room().out, status.room().left, status.room().total) == (("n0",), 1, 4)
            assert status.room(["vm/x"], {"n1"}).left == 0
            assert status.status().counts.unavailable == 1

    asyncio.run(run())


def ask(question: Callable[[str], Awaitable[Answer | StatusAnswer | Config]]) -> Answer | StatusAnswer | Config:
    async def run() -> Answer | StatusAnswer | Config:
        async with operator() as url:
            return await question(url)

    return asyncio.run(run())


def test_explain_gives_every_rule_with_its_facts_and_what_limits_the_answer() -> None:
    answer = ask(lambda url: ask_url(url, "/v1/explain/node/worker-1", Answer))
    assert isinstance(answer, Answer)
    assert answer.explanations == (WORKER,)
    assert "This is a dry run: nothing is written." in answer.notes
    assert "Nothing is done from here: another leads." in answer.notes
    assert any("Cannot tell yet whether Hostler is paused" in note for note in answer.notes)


def test_names_with_a_slash_are_names() -> None:
    answer = ask(lambda url: ask_url(url, "/v1/explain/agent/ns/host-1", Answer))
    assert isinstance(answer, Answer)
    assert answer.explanations[0].outcome == "ns/host-1 is bound."


def test_a_read_of_what_is_switched_off_says_so() -> None:
    with pytest.raises(Complaint, match="It needs VCENTER_HOST or VCENTERS_FILE, which is not set"):
        ask(lambda url: ask_url(url, "/v1/maintenance", Answer))


def test_plan_names_the_actions() -> None:
    answer = ask(lambda url: ask_url(url, "/v1/plan/node/x", Answer))
    assert isinstance(answer, Answer)
    assert answer.explanations[0].actions == (Action("cordon", "x", "Held."),)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/explain/node/nope", 'No node named "nope" is known here (asked: holds).'),
        ("/v1/explain/cow/bella", 'Nothing here explains a "cow". What can be explained: agent, node.'),
        ("/v1/plan/agent/a/b", "Nothing plans anything for agent"),
        ("/v9/other", "is not an operator, or one too old"),
        ("/healthz", "is not an operator, or one too old"),
        ("/v1/config", "cannot be read; it may be of another version"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(path: str, words: str) -> None:
    with pytest.raises(Complaint) as caught:
        ask(lambda url: ask_url(url, path, Answer))
    assert words in caught.value.sentence


def test_status_says_who_answers_and_whether_it_leads() -> None:
    answer = ask(lambda url: ask_url(url, "/v1/status", StatusAnswer))
    assert isinstance(answer, StatusAnswer)
    assert (answer.identity, answer.leads, answer.leadership) == ("pod-1_x", False, "another leads")
    assert answer.version == __version__
    assert answer.paused  # nothing is known yet
    assert answer.status.leader == "pod-9"
    assert {one.type: one.status.value for one in answer.status.conditions}["Paused"] == "Unknown"


def test_config_shows_sources_and_hides_secrets() -> None:
    answer = ask(lambda url: ask_url(url, "/v1/config", Config))
    assert isinstance(answer, Config)
    found = {one.name: one for one in answer.settings}
    assert found["VCENTER_PASSWORD"].value == "***"
    assert found["VCENTER_HOST"].source == "environment VCENTER_HOST"


def test_nobody_there() -> None:
    with pytest.raises(Complaint, match=r"No operator answers at http://127\.0\.0\.1:9") as caught:
        asyncio.run(ask_url("http://127.0.0.1:9", "/v1/status", StatusAnswer))
    assert caught.value.code is Exit.UNREACHABLE


@pytest.mark.parametrize(("status", "body"), [(404, "no"), (200, "<html>Hello</html>"), (200, "{}")])
def test_something_else_there(status: int, body: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body)

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/v1/status", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            await ask_url(f"http://127.0.0.1:{runner.addresses[0][1]}", "/v1/status", StatusAnswer)
        finally:
            await runner.cleanup()

    with pytest.raises(Complaint, match="What answers there is not an operator"):
        asyncio.run(run())


# -- the registry


def test_two_rooms_speak_about_one_node_and_one_room_only_once() -> None:
    registry = Registry()
    registry.add(Explainer("node", "holds", lambda name: WORKER))
    registry.add(Explainer("node", "platform", lambda name: Explanation("platform", "It is foreign.")))
    assert [one.capability for one in registry.explain("Node", "worker-1").explanations] == ["holds", "platform"]
    with pytest.raises(ValueError, match="holds already explains node"):
        registry.add(Explainer("node", "holds", lambda name: None))
    with pytest.raises(UnknownKind, match="Nothing plans anything for node"):
        registry.plan("node", "worker-1")


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(UnknownKind, match="nothing yet"):
        Registry().explain("node", "x")
    registry = Registry()
    registry.add(Explainer("node", "holds", lambda name: None))
    with pytest.raises(UnknownName):
        registry.explain("node", "x")


def test_facts_carry_their_age_or_their_reason() -> None:
    assert seen("power", Known("on", 90.0), 100.0) == FactSeen("power", "on", age_seconds=10.0)
    assert seen("power", Unknown("vCenter is down"), 100.0) == FactSeen("power", known=False, why="vCenter is down")
