"""`hostler pause` and `resume` while the API server is away or others act: what was paused stays paused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hostler.cli.pause_objects import Outcome, create_pause, delete_pauses, own_pauses, pause_name
from hostler.errors import Complaint, Exit
from hostler.kube.client import Client
from hostler.kube.errors import Unreachable
from hostler.kube.self_review import who_am_i
from hostler.safety.pause_state import SeenPause
from tests.unit.answering import answering
from tests.unit.nowhere import Nowhere

PAUSES, FLEET = "/apis/hostler.dev/v1alpha1/pauses", "/apis/hostler.dev/v1alpha1/fleets/cluster"


@dataclass
class Cluster:
    """Pauses, and the Fleet's status as the operator would write it."""

    user: str | None = "ada"  # None: no answer to that
    pauses: dict[str, dict[str, Any]] = field(default_factory=dict)
    observed: list[list[str]] = field(default_factory=lambda: [[]])  # UIDs in the status, one list per look at it
    fleet: int = 200
    kept: frozenset[str] = frozenset()  # may not be deleted
    made: int = 0

    def add(self, name: str, **metadata: object) -> dict[str, Any]:
        self.made += 1
        about = {"name": name, "uid": f"uid-{self.made}", "resourceVersion": str(self.made), **metadata}
        self.pauses[name] = {"metadata": about, "spec": {}}
        return self.pauses[name]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        if path.endswith("selfsubjectreviews"):
            if self.user is None:
                await asyncio.Event().wait()
            return web.json_response({"status": {"userInfo": {"username": self.user}}}, status=201)
        if path == FLEET:
            seen = self.observed.pop(0) if len(self.observed) > 1 else self.observed[0]
            paused = {"type": "Paused", "status": "True" if seen else "False", "reason": "r"}
            listed = [{"name": "x", "uid": uid} for uid in seen]
            status = {"leader": "pod-1", "conditions": [paused], "pauses": listed}
            return web.json_response({"status": status}) if self.fleet == 200 else refusal(self.fleet)
        if path == PAUSES and method == "POST":
            return await self._create(await request.json())
        if path == PAUSES:
            return web.json_response({"items": list(self.pauses.values())})
        name = path.rpartition("/")[2]
        if method == "DELETE":
            if name in self.kept:
                return refusal(403)
            return web.json_response(self.pauses.pop(name))
        return web.json_response(self.pauses[name]) if name in self.pauses else refusal(404)

    async def _create(self, body: dict[str, Any]) -> web.StreamResponse:
        name = body["metadata"]["name"]
        if name in self.pauses:
            return refusal(409)
        made = self.add(name)
        made["spec"] = body["spec"]
        return web.json_response(made, status=201)

    def run(self, work: Callable[[Client], Awaitable[Outcome]]) -> Outcome:
        async def story() -> Outcome:
            async with answering(self.answer) as client, asyncio.timeout(30):
                return await work(client)

        return asyncio.run(story())

    def pause(self, wait: float = 0.3) -> Outcome:
        return self.run(lambda client: create_pause(client, why="smoke", wait=wait))

    def resume(self, *, every: bool = False, wait: float = 0.3) -> Outcome:
        return self.run(lambda client: delete_pauses(client, every=every, wait=wait))


def refusal(code: int) -> web.Response:
    reason = {403: "Forbidden", 404: "NotFound", 409: "AlreadyExists"}[code]
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.json_response({**body, "message": f"HTTP {code}"}, status=code)


# -- pause


def test_the_operator_confirms_by_the_uid_of_this_pause() -> None:
    cluster = Cluster(observed=[["another"], ["another"], ["uid-1"]])
    assert cluster.pause(wait=20).why == (
        f"Paused: created Pause {pause_name('ada')}: smoke. The operator pod-1 has stopped writing."
    )
    assert Cluster(observed=[["another"]]).pause().confirmed is False


def test_a_second_pause_of_the_same_user_changes_nothing() -> None:
    cluster = Cluster()
    cluster.pause()
    again = cluster.pause()
    assert "Paused already by your Pause" in again.why
    assert cluster.made == 1


def test_a_pause_in_deletion_is_no_pause_to_rely_on() -> None:
    cluster = Cluster()
    cluster.add(pause_name("ada"), deletionTimestamp="2026-01-01T00:00:00Z")
    made = cluster.pause()
    assert made.name.startswith(f"{pause_name('ada')}.")
    assert [one.name for one in own_pauses((SeenPause(made.name),), "ada")] == [made.name]


@pytest.mark.parametrize(("code", "words"), [(404, "there is no Fleet object"), (403, "cannot be read here: HTTP 403")])
def test_why_nobody_can_confirm_is_said_without_waiting(code: int, words: str) -> None:
    outcome = Cluster(fleet=code).pause(wait=25)
    assert (outcome.paused, outcome.confirmed) == (True, False)
    assert words in outcome.why


@pytest.mark.parametrize("user", [None, ""])
def test_without_a_name_the_pause_is_created_all_the_same(user: str | None) -> None:
    """What is only for people to read does not keep anybody from pausing."""
    cluster = Cluster(user=user)
    name = cluster.pause(wait=0).name
    assert name.startswith("unnamed-user-")
    assert cluster.pauses[name]["spec"] == {"why": "smoke"}


def test_without_the_kind_it_says_how_to_install_it() -> None:
    async def nothing(_: web.Request) -> web.StreamResponse:
        return refusal(404)

    async def story() -> None:
        async with answering(nothing) as client:
            with pytest.raises(Complaint, match="needs the kind Pause") as complaint:
                await create_pause(client, why="x", wait=0)
            assert "hostler crds --apply" in complaint.value.hint
            assert "does not have the kind Pause" in (await delete_pauses(client, every=False, wait=0)).why

    asyncio.run(story())


# -- resume


def test_resume_deletes_its_own_and_names_the_others() -> None:
    cluster = Cluster()
    cluster.pause()
    cluster.add("bob")["spec"] = {"by": "ada", "why": "fire"}
    outcome = cluster.resume()
    assert (outcome.paused, outcome.remaining) == (True, ("bob",))
    assert "Still paused by bob (claims to be ada): fire." in outcome.why
    assert "There is no Pause of yours" in cluster.resume().why
    assert list(cluster.pauses) == ["bob"], "what `spec.by` says does not make it ada's"


def test_resume_of_everything_names_what_it_could_not_delete() -> None:
    cluster = Cluster(kept=frozenset({"bob"}))
    cluster.pause()
    cluster.add("bob")
    outcome = cluster.resume(every=True)
    assert (outcome.paused, outcome.refused, outcome.remaining) == (True, ("bob",), ("bob",))
    assert "Could not delete Pause bob: HTTP 403." in outcome.why


def test_an_unseen_pause_cannot_be_confirmed_as_ended() -> None:
    """A status without it proves nothing: it may be of an operator that died before it saw the Pause."""
    cases: list[tuple[list[list[str]], bool]] = [
        ([["uid-1"], []], True),
        ([[]], False),
        ([[], ["uid-1"], []], True),
    ]
    for observed, confirmed in cases:
        cluster = Cluster(observed=observed)
        cluster.add(pause_name("ada"))
        assert cluster.resume(wait=1).confirmed is confirmed, observed


def test_a_pause_that_cannot_be_decoded_is_deleted_too() -> None:
    cluster = Cluster()
    cluster.add("odd")["spec"] = {"why": 3}
    assert cluster.resume(every=True).paused is False


def test_a_nameless_user_has_no_pause_of_their_own() -> None:
    cluster = Cluster(user="")
    cluster.pause(wait=0)
    with pytest.raises(Complaint, match="does not say who you are") as refused:
        cluster.resume()
    assert refused.value.code is Exit.REFUSED, "a script must not go on as if it had resumed"
    assert cluster.resume(every=True).paused is False


# -- names


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_every_user_has_a_valid_name_of_their_own(user: str, other: str) -> None:
    name = pause_name(user)
    assert re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert (pause_name(other) == name) == (user == other)
    theirs = (SeenPause(pause_name(other)), SeenPause(f"{pause_name(other)}.x7k2p"))
    assert bool(own_pauses(theirs, user)) == (user == other)


def test_a_user_named_like_a_pause_is_another_user() -> None:
    ada = pause_name("ada")
    assert own_pauses((SeenPause(pause_name(ada)),), "ada") == ()


def test_a_name_that_could_not_be_asked_for_is_not_somebodys() -> None:
    """A hold in the name of `somebody` could not be released by whoever placed it."""

    async def run() -> None:
        async with Client(Nowhere()) as client:
            with pytest.raises(Unreachable):
                await who_am_i(client)

    asyncio.run(run())


def test_the_outcome_is_json_for_machines() -> None:
    assert json.loads(msgspec.json.encode(Outcome(True, False, "w", "n"))) == {
        "paused": True, "confirmed": False, "why": "w", "name": "n", "remaining": [], "refused": [],
    }  # fmt: skip
