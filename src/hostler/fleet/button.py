"""The stop button, pressed by a person: `Fleet.spec.paused`, and whether the operator has confirmed it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from hostler.fleet.decide import PAUSED
from hostler.fleet.install import missing
from hostler.fleet.model import NAME, REASON_LIMIT, WHO_LIMIT, Fleet
from hostler.host.conditions import Status, cut
from hostler.kube.client import Client
from hostler.kube.contact import SELF_REVIEW
from hostler.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound, Unreachable
from hostler.kube.kinds import FLEET
from hostler.kube.records import Record

SOMEBODY = "somebody"  # a name for people to read
WORDS_SECONDS = 2.0


class Pressed(msgspec.Struct, rename="camel", frozen=True):
    """What came of it: whether writes are stopped, whether the operator said so, and the sentence."""

    paused: bool
    confirmed: bool
    why: str


async def press(client: Client, *, why: str, wait: float) -> Pressed:
    """Pause. A merge patch, because it must win whoever else owns the field (GitOps, another person)."""
    by, before = await asyncio.gather(_soon(who_am_i(client), SOMEBODY), _soon(_pressed_before(client), ""))
    # Cut to what the API server takes: a long reason must not keep anybody from the stop button.
    why, by = cut(why, REASON_LIMIT), cut(by, WHO_LIMIT)
    fleet = await _write(client, {"paused": True, "pausedReason": why, "pausedBy": by}, "Pausing")
    leader = await _confirmed(client, fleet, True, wait)
    if leader is None:
        return Pressed(True, False, f"Paused by {by}: {why}. {before}{_unconfirmed(wait)}")
    return Pressed(True, True, f"Paused by {by}: {why}. {before}The operator {leader} has stopped writing.")


async def _pressed_before(client: Client) -> str:
    """Whose pause this one replaces, as a sentence: one `hostler resume` lifts both."""
    spec = (await client.get(FLEET, NAME, type=Fleet)).spec
    if not spec.paused:
        return ""
    return f"It was paused already by {spec.paused_by or 'somebody'}: {spec.paused_reason or 'no reason given'}. "


async def lift(client: Client, *, wait: float) -> Pressed:
    """Resume. Without a Fleet there is nothing to lift, and that is said."""
    try:
        before = await client.get(FLEET, NAME, type=Fleet)
    except NotFound:
        return Pressed(False, True, "Nothing is paused: there is no Fleet object in this cluster.")
    if not before.spec.paused:
        return Pressed(False, True, "Nothing was paused.")
    fleet = await _write(client, {"paused": False, "pausedReason": None, "pausedBy": None}, "Resuming")
    leader = await _confirmed(client, fleet, False, wait)
    if leader is None:
        return Pressed(False, False, f"Resumed. {_unconfirmed(wait)}")
    return Pressed(False, True, f"Resumed. The operator {leader} writes again where it may.")


async def who_am_i(client: Client) -> str:
    """The name the API server knows this person by; it is the same on every machine.

    Of an old server or a strict role it is not to be had. Any other trouble is one: by this name a hold is released.
    """
    try:
        answer = await client.create(SELF_REVIEW, {}, type=_Review)
    except (NotFound, Forbidden):
        return SOMEBODY
    return answer.status.user_info.username or SOMEBODY


async def _soon(asked: Coroutine[Any, Any, str], instead: str) -> str:
    """What is only there for people to read is never a reason not to press, nor to press later."""
    try:
        async with asyncio.timeout(WORDS_SECONDS):
            return await asked
    except (TimeoutError, ApiError, Unreachable, msgspec.MsgspecError):
        return instead


class _User(Record, frozen=True):
    username: str = ""


class _ReviewStatus(Record, frozen=True):
    user_info: _User = _User()


class _Review(Record, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def _write(client: Client, spec: dict[str, Any], doing: str) -> Fleet:
    """Patch the Fleet, or make it. Two people pressing at once both succeed."""
    for _ in range(3):
        try:
            return await client.patch(FLEET, NAME, {"spec": spec}, type=Fleet)
        except NotFound:
            pass
        given = {key: value for key, value in spec.items() if value is not None}
        try:
            return await client.create(FLEET, {"metadata": {"name": NAME}, "spec": given}, type=Fleet)
        except AlreadyExists:
            continue
        except NotFound:
            raise missing(doing) from None
    raise missing(doing)


async def _confirmed(client: Client, fleet: Fleet, paused: bool, wait: float) -> str | None:
    """The leader's name once its status speaks of this very generation; None if it does not within `wait`."""
    wanted = Status.TRUE if paused else Status.FALSE
    try:
        async with asyncio.timeout(wait):
            while True:
                if _says(fleet, wanted):
                    return fleet.status.leader or "at work"
                await asyncio.sleep(0.1)
                try:
                    fleet = await client.get(FLEET, NAME, type=Fleet)
                except (ApiError, Unreachable):
                    continue  # it is pressed: that nobody can be asked for a moment must not look as if it were not
    except TimeoutError:
        return None


def _says(fleet: Fleet, wanted: Status) -> bool:
    said = next((one for one in fleet.status.conditions if one.type == PAUSED), None)
    return said is not None and said.status is wanted and said.observed_generation >= fleet.metadata.generation


def _unconfirmed(wait: float) -> str:
    if wait <= 0:
        return "Whether an operator has seen it was not waited for."
    return f"No operator has confirmed it within {wait:g} s; if one should be running, see `hostler status`."
