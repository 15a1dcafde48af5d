"""What the CLI says from the objects alone, where no operator answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from hostler.capabilities import read_settings
from hostler.cli.without_operator import ALL_THAT_IS_KNOWN, read_instead, read_maintenance, read_node, read_status
from hostler.errors import Complaint, Exit
from hostler.explain.client import NoOperator
from hostler.host.maintenance import HOST, SINCE, STATE
from tests.unit.answering import answering

HELD = (
    '[{"holder": "ada", "why": "a fan", "since": "2026-01-01T00:00:00Z", "cordonedBefore": false},'
    ' {"holder": "maintenance", "why": "esx1", "since": "2026-01-01T00:00:00Z", "cordonedBefore": false}]'
)
NODES = [
    {"metadata": {"name": "w1"}},
    {
        "metadata": {
            "name": "w2",
            "annotations": {
                STATE: "powered-off", HOST: "esx1", SINCE: "2026-01-01T00:05:00Z", "hostler.dev/holds": HELD,
            },
        },
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
]  # fmt: skip
FLEET = {"metadata": {"name": "cluster"}, "status": {"leader": "pod-1", "version": "1.2", "counts": {"nodes": 7}}}
KINDS: dict[str, Any] = {
    "/api/v1/nodes": {"metadata": {}, "items": NODES},
    "/api/v1/nodes/w2": NODES[1],
    "/apis/hostler.dev/v1alpha1/fleets/cluster": FLEET,
    "/apis/hostler.dev/v1alpha1/pauses": {"metadata": {}, "items": [{"metadata": {"name": "p"}, "spec": {"why": "x"}}]},
}


def look(read: Any, kinds: dict[str, Any]) -> Any:
    async def answer(request: web.Request) -> web.Response:
        if request.path in kinds:
            return web.json_response(kinds[request.path])
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)

    async def go() -> Any:
        async with answering(answer) as client:
            return await read(client)

    return asyncio.run(go())


def test_the_status_is_the_last_one_written_and_the_pauses_of_now() -> None:
    found = look(read_status, KINDS)
    assert (found.identity, found.leads, found.leadership) == ("", False, ALL_THAT_IS_KNOWN)
    assert (found.status.leader, found.status.counts.nodes, found.version) == ("pod-1", 7, "1.2")
    assert found.paused
    assert "Hostler is paused by Pause p" in found.pause


def test_without_our_kinds_the_status_is_empty() -> None:
    found = look(read_status, {})
    assert (found.paused, found.pause, found.status.leader) == (False, "no Pause exists", "")


def test_a_maintenance_is_read_from_its_node() -> None:
    found = look(read_maintenance, KINDS)
    assert [(one.node, one.host, one.state, one.since) for one in found.rows] == [
        ("w2", "esx1", "powered-off", "2026-01-01T00:05:00Z")
    ]
    assert "the VM is off" in found.rows[0].why
    assert found.unknown == (ALL_THAT_IS_KNOWN,)


def test_a_node_says_its_maintenance_and_its_holders() -> None:
    found = look(lambda client: read_node(client, "w2"), KINDS)
    assert [one.capability for one in found.explanations] == ["maintenance", "node"]
    assert found.explanations[0].outcome.startswith("stopped: ESXi host esx1 is in maintenance")
    assert [(one.name, one.value) for one in found.explanations[0].facts] == [
        ("held by ada", "a fan"), ("held by maintenance", "esx1"),
    ]  # fmt: skip
    assert found.notes == (ALL_THAT_IS_KNOWN,)
    with pytest.raises(Complaint, match="There is no node w9 in this cluster"):
        look(lambda client: read_node(client, "w9"), KINDS)


@pytest.mark.parametrize(
    ("complaint", "flags"),
    [
        (Complaint("why", code=Exit.REFUSED), {}),
        (Complaint("why", code=Exit.UNREACHABLE), {}),
        (NoOperator("why", code=Exit.UNREACHABLE), {"operator": "http://127.0.0.1:9"}),
    ],
)
def test_only_a_missing_operator_leads_to_the_objects(complaint: Complaint, flags: dict[str, str]) -> None:
    async def never(client: object) -> None:
        raise AssertionError("nothing is read")

    with pytest.raises(Complaint, match="why") as same:
        read_instead(read_settings(flags, {}), complaint, never)
    assert same.value is complaint
