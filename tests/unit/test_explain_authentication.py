"""What is asked of the API server about a caller, how often, and what is believed of its answer."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hostler.explain import authentication
from hostler.explain.authentication import (
    ADDRESS_BURST,
    BURST_IN_ALL,
    GOOD_SECONDS,
    MOST_ADDRESSES,
    MOST_KEPT,
    Attempts,
    Authenticator,
    Kept,
    TokenVerdict,
    User,
    judge_bearer,
    judge_reader,
)
from hostler.explain.callers import AUDIENCE, Caller, Refusal
from hostler.kube.client import Client
from tests.unit.answering import answering
from tests.unit.nowhere import Nowhere

READER = "system:serviceaccount:there:hostler-reader"
GOOD = TokenVerdict(authenticated=True, user=User(username=READER), audiences=(AUDIENCE,))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_reader_and_its_audience_are_admitted() -> None:
    assert judge_reader(GOOD, READER) is None


OTHERS = ("", READER.upper(), f"{READER} ", "system:serviceaccount:here:hostler-reader", "hostler-reader")


@given(
    st.booleans(),
    st.sampled_from([READER, *OTHERS]),
    st.lists(st.sampled_from([AUDIENCE, "", "another", AUDIENCE.upper()]), max_size=3),
)
def test_nothing_else_is_admitted_as_the_reader(authenticated: bool, name: str, audiences: list[str]) -> None:
    verdict = TokenVerdict(authenticated=authenticated, user=User(username=name), audiences=tuple(audiences))
    admitted = authenticated and name == READER and AUDIENCE in audiences
    assert (judge_reader(verdict, READER) is None) is admitted


def test_a_bearer_has_a_name() -> None:
    assert judge_bearer(GOOD) is None
    assert judge_bearer(TokenVerdict(authenticated=True)) is Refusal.BAD_CREDENTIAL
    assert judge_bearer(TokenVerdict(user=User(username="x"))) is Refusal.BAD_CREDENTIAL


def test_answers_are_kept_for_a_while_and_not_without_end() -> None:
    clock = Clock()
    kept: Kept[bool] = Kept(60, clock)
    kept.put("a", True)
    clock.now += 59
    assert kept.get("a")
    clock.now += 1
    assert kept.get("a") is None
    for number in range(3 * MOST_KEPT):
        kept.put(number, True)
    assert sum(kept.get(number) is not None for number in range(3 * MOST_KEPT)) == MOST_KEPT


def test_one_address_cannot_use_up_what_others_have() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    assert [attempts.take("bad") for _ in range(ADDRESS_BURST + 5)] == [True] * ADDRESS_BURST + [False] * 5
    assert attempts.take("other")
    clock.now += 1
    assert [attempts.take("bad") for _ in range(2)] == [True, False], "one per second"
    attempts.give_back("bad")
    assert attempts.take("bad"), "good ones cost nothing"


def test_many_addresses_are_bounded_together() -> None:
    attempts = Attempts(Clock())
    taken = sum(attempts.take(f"10.0.{number % 256}.{number}") for number in range(2 * MOST_ADDRESSES))
    assert taken == BURST_IN_ALL


def caller(token: str, peer: str = "10.0.0.1") -> Caller:
    return Caller("/v1/status", peer, "10.0.0.2", tokens=(token,))


def test_while_the_api_server_is_away_nobody_is_answered() -> None:
    async def run() -> None:
        async with Client(Nowhere()) as client:
            authenticator = Authenticator(client, READER, metrics_open=False)
            assert await authenticator.refuse_caller(caller("a.b.c")) is Refusal.UNVERIFIED
            assert await authenticator.refuse_caller(caller("a.b.c")) is Refusal.UNVERIFIED, "it is asked again"
            probe = Caller("/healthz", "10.0.0.1", "10.0.0.2")
            assert await authenticator.refuse_caller(probe) is None

    asyncio.run(run())


def test_what_waits_for_the_api_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "MOST_WAITING", 3)

    async def run() -> None:
        async with Client(Nowhere()) as client:
            authenticator = Authenticator(client, READER, metrics_open=False)
            asked = [authenticator.refuse_caller(caller(f"token-{number}")) for number in range(10)]
            said = await asyncio.gather(*asked)
            assert said.count(Refusal.UNVERIFIED) == 3
            assert said.count(Refusal.TOO_MANY_ATTEMPTS) == 7

    asyncio.run(run())


def test_a_flood_keeps_out_no_credential_that_was_good_lately() -> None:
    async def review(request: web.Request) -> web.StreamResponse:
        spec = (await request.json())["spec"]
        good = {"authenticated": True, "user": {"username": READER}, "audiences": spec["audiences"]}
        status = good if spec["token"] == "good" else {"authenticated": False}
        return web.json_response({"status": status})

    async def run() -> None:
        clock = Clock()
        async with answering(review) as client:
            authenticator = Authenticator(client, READER, metrics_open=False, clock=clock)
            assert await authenticator.refuse_caller(caller("good")) is None
            clock.now += GOOD_SECONDS
            wrong = [await authenticator.refuse_caller(caller(f"wrong-{n}")) for n in range(ADDRESS_BURST + 5)]
            assert wrong[-1] is Refusal.TOO_MANY_ATTEMPTS
            assert await authenticator.refuse_caller(caller("good")) is None, "it is reviewed again, beside the flood"

    asyncio.run(run())
