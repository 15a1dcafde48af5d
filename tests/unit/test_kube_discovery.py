"""Whether a kind is served, by an API server's own list, and what is made of answers that are no such list."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from hostler.kube.discovery import serves
from hostler.kube.errors import Unreachable
from hostler.kube.kinds import FLEET, NODE, Kind
from tests.unit.answering import answering

GROUPS = {
    "kind": "APIGroupList",
    "groups": [{"name": "hostler.dev", "versions": [{"groupVersion": "hostler.dev/v1alpha1", "version": "v1alpha1"}]}],
}
RESOURCES = {"kind": "APIResourceList", "resources": [{"name": "fleets"}, {"name": "fleets/status"}]}


def ask(answers: dict[str, tuple[int, Any]], kind: Kind) -> bool:
    """What is made of these answers, by path; every other path is a page that is not there."""

    async def answer(request: web.Request) -> web.StreamResponse:
        status, body = answers.get(request.path, (404, "404 page not found"))
        return (
            web.Response(status=status, text=body) if isinstance(body, str) else web.json_response(body, status=status)
        )

    async def go() -> bool:
        async with answering(answer) as client:
            return await serves(client, kind, ("v1", "v1alpha1"))

    return asyncio.run(go())


def test_the_core_is_never_missing() -> None:
    assert ask({}, NODE)


def test_what_is_listed_is_served() -> None:
    assert ask({"/apis": (200, GROUPS), "/apis/hostler.dev/v1alpha1": (200, RESOURCES)}, FLEET)


@pytest.mark.parametrize(
    "answers",
    [
        {"/apis": (200, {"kind": "APIGroupList", "groups": []})},
        {"/apis": (200, GROUPS), "/apis/hostler.dev/v1alpha1": (200, {"kind": "APIResourceList", "resources": None})},
        {"/apis": (200, GROUPS)},  # a moment after its definition was deleted
        # It may be kept from us; a 403 is an API server's word all the same.
        {"/apis": (403, {"kind": "Status", "reason": "Forbidden"})},
    ],
)
def test_what_is_not_listed_is_not_served(answers: dict[str, tuple[int, Any]]) -> None:
    assert not ask(answers, FLEET)


@pytest.mark.parametrize("answers", [{}, {"/apis": (200, {"status": "ok"})}])
def test_a_stranger_is_not_believed(answers: dict[str, tuple[int, Any]]) -> None:
    with pytest.raises(Unreachable, match="is not a whole API server"):
        ask(answers, FLEET)
