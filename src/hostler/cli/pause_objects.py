"""What `hostler pause` and `hostler resume` do: create and delete Pause objects, and ask whether that was seen."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from hostler.apis.fleet import NAME, REASON_LIMIT, WHO_LIMIT, Fleet, FleetStatus, Pause
from hostler.errors import Complaint, Exit
from hostler.host.conditions import Status, cut, names
from hostler.install.apply import missing
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable
from hostler.kube.kinds import FLEET, PAUSE
from hostler.kube.records import Object
from hostler.kube.self_review import user_name
from hostler.safety.pause_state import PAUSED, SeenPause, pause_phrase, seen_pauses

T = TypeVar("T")
NAMELESS = "unnamed-user"  # how a Pause begins whose creator the API server does not name
WORDS_SECONDS = 2.0
SLUG_LENGTH, HASH_LENGTH = 40, 10


class Outcome(msgspec.Struct, rename="camel", frozen=True):
    """What came of it: whether a Pause exists now, whether the operator has seen the change, and the sentence."""

    paused: bool
    confirmed: bool
    why: str
    name: str = ""  # of the Pause that was created, or was there already
    remaining: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # could not be deleted


async def create_pause(client: Client, *, why: str, wait: float) -> Outcome:
    """Pause in the caller's name. Who has paused already changes nothing."""
    user = await _soon(user_name(client), "")
    # Cut to what the API server takes: a long reason must not keep anybody from the stop button.
    spec = {"why": cut(why, REASON_LIMIT), **({"by": cut(user, WHO_LIMIT)} if user else {})}
    pause, created = await _create(client, pause_name(user), spec)
    uid, name = pause.metadata.uid, pause.metadata.name
    if wait > 0:
        await _soon(_create_fleet(client), None)
    seen, note = await _ask_fleet(client, wait, lambda status: any(one.uid == uid for one in status.pauses))
    note = f"The operator {note} has stopped writing." if seen else note
    if created:
        done = f"Paused: created Pause {name}: {pause.spec.why}."
    else:
        done = f"Paused already by your Pause {name}: {pause.spec.why or 'no reason given'}. Nothing was changed."
    return Outcome(True, seen, f"{done} {note}", name)


async def delete_pauses(client: Client, *, every: bool, wait: float) -> Outcome:
    """Delete the caller's own pauses, or every one, and name those that remain."""
    try:
        pauses = await list_pauses(client)
    except NotFound:
        return Outcome(False, True, "Nothing is paused: this cluster does not have the kind Pause.")
    if not pauses:
        return Outcome(False, True, "Nothing was paused.")
    user = "" if every else await user_name(client)
    if not every and not user:
        named = "; ".join(pause_phrase(pause) for pause in pauses)
        raise Complaint(
            f"Cannot tell which pause is yours: the API server does not say who you are. There is {named}.",
            hint="`hostler resume --all` deletes every pause, `kubectl delete pause NAME` one of them.",
            code=Exit.REFUSED,
        )
    chosen = pauses if every else own_pauses(pauses, user)
    before = await _soon(_observed_uids(client), frozenset[str]())
    refused = {pause.name: why for pause in chosen if (why := await _delete(client, pause)) is not None}
    gone = {pause.uid for pause in chosen if pause.name not in refused}
    remaining = await list_pauses(client)
    said = [_deleted_sentence([pause.name for pause in chosen if pause.name not in refused], user, every)]
    said += [f"Could not delete Pause {name}: {why}." for name, why in refused.items()]
    if remaining:
        still = "; ".join(pause_phrase(pause) for pause in remaining)
        said.append(f"Still paused by {still}. `hostler resume --all` deletes every pause.")
        left = tuple(pause.name for pause in remaining)
        return Outcome(True, False, " ".join(said), remaining=left, refused=tuple(refused))
    seen, note = await _ask_fleet(client, wait, _Gone(gone, seen=bool(gone & before)))
    said.append(f"The operator {note} writes again where it may." if seen else note)
    return Outcome(False, seen, " ".join(said))


class _Gone:
    """Whether the operator has seen that pauses are gone.

    Its status may never have listed them, or be an old one of an operator that is dead. So only a status that listed
    one of them and then none is proof.
    """

    def __init__(self, uids: set[str], *, seen: bool) -> None:
        self._uids, self._seen = uids, seen

    def __call__(self, status: FleetStatus) -> bool:
        if any(pause.uid in self._uids for pause in status.pauses):
            self._seen = True
            return False
        said = next((one for one in status.conditions if one.type == PAUSED), None)
        return self._seen and said is not None and said.status is Status.FALSE


# -- names


def pause_name(user: str) -> str:
    """A valid name of a Pause for this user, the same on every machine and another for every other user.

    A user name may have any characters and letters of both cases, so a hash of it is always part of the name.
    """
    if not user:
        return f"{NAMELESS}-{uuid.uuid4().hex[:HASH_LENGTH]}"
    slug = re.sub("[^a-z0-9]+", "-", user.lower()).strip("-")[:SLUG_LENGTH].strip("-") or "user"
    return f"{slug}-{sha256(user.encode()).hexdigest()[:HASH_LENGTH]}"


def own_pauses(pauses: tuple[SeenPause, ...], user: str) -> tuple[SeenPause, ...]:
    """Those that `create_pause` made for this user. Only the name counts: what `spec.by` says, anybody can write."""
    if not user:
        return ()
    name = pause_name(user)
    # What `_create` appends to a second one begins with a dot, and no name of another user has one.
    return tuple(pause for pause in pauses if pause.name == name or pause.name.startswith(f"{name}."))


# -- what is asked of the API server


async def list_pauses(client: Client) -> tuple[SeenPause, ...]:
    """Every Pause, newest first; one that cannot be decoded is one too. NotFound: this cluster lacks the kind."""
    found = []
    for item in await client.list(PAUSE, type=dict[str, Any]):
        try:
            found.append(msgspec.convert(item, Pause))
        except msgspec.ValidationError:
            found.append(Pause(metadata=msgspec.convert(item, Object).metadata))
    return seen_pauses(found, {})


async def _create(client: Client, name: str, spec: dict[str, str]) -> tuple[Pause, bool]:
    """The Pause, and whether it is new. Beside one that is being deleted, or cannot be read, another is created."""
    try:
        return await client.create(PAUSE, {"metadata": {"name": name}, "spec": spec}, type=Pause), True
    except NotFound:
        raise missing("Pausing", PAUSE) from None
    except AlreadyExists:
        there = await _soon(client.get(PAUSE, name, type=Pause), None)
    if there is not None and not there.metadata.deletion_timestamp:
        return there, False
    another = {"metadata": {"name": f"{name}.{uuid.uuid4().hex[:HASH_LENGTH]}"}, "spec": spec}
    return await client.create(PAUSE, another, type=Pause), True


async def _delete(client: Client, pause: SeenPause) -> str | None:
    """Delete this very Pause; why it could not be, if it could not. One that is gone, or was replaced, is not it."""
    try:
        await client.delete(PAUSE, pause.name, uid=pause.uid)
    except (NotFound, Conflict):
        return None
    except ApiError as error:
        return str(error)
    return None


async def _create_fleet(client: Client) -> None:
    """The operator confirms in the status of the Fleet: where there is none, an empty one, if the caller may."""
    try:
        await client.get(FLEET, NAME, type=Object)
    except NotFound:
        await client.create(FLEET, {"metadata": {"name": NAME}}, type=Object)


async def _observed_uids(client: Client) -> frozenset[str]:
    fleet = await client.get(FLEET, NAME, type=Fleet)
    return frozenset(pause.uid for pause in fleet.status.pauses)


async def _ask_fleet(client: Client, wait: float, seen: Callable[[FleetStatus], bool]) -> tuple[bool, str]:
    """Whether the leader's status shows it within `wait`: with the leader's name, or why that cannot be told."""
    if wait <= 0:
        return False, "Whether an operator has seen it was not waited for."
    try:
        async with asyncio.timeout(wait):
            while True:
                try:
                    status = (await client.get(FLEET, NAME, type=Fleet)).status
                except NotFound:
                    return False, "No operator can confirm it, for there is no Fleet object; see `hostler status`."
                except Forbidden as error:
                    return False, f"Whether the operator has seen it cannot be read here: {error}."
                except (ApiError, Unreachable, msgspec.MsgspecError):
                    pass  # the Pause is written: that nobody answers for a moment must not look as if it were not
                else:
                    if seen(status):
                        return True, status.leader or "at work"
                await asyncio.sleep(0.1)
    except TimeoutError:
        return False, f"No operator has confirmed it within {wait:g} s; if one should be running, see `hostler status`."


async def _soon(asked: Coroutine[Any, Any, T], instead: T) -> T:
    """What is only there for people to read is never a reason not to pause, nor to pause later."""
    try:
        async with asyncio.timeout(WORDS_SECONDS):
            return await asked
    except (TimeoutError, ApiError, Unreachable, msgspec.MsgspecError):
        return instead


def _deleted_sentence(deleted: list[str], user: str, every: bool) -> str:
    if deleted:
        return f"Deleted Pause {names(deleted, limit=len(deleted))}."
    if every:
        return "Deleted no Pause."
    if not user:
        return "The API server does not say who you are, so your own Pause cannot be told from others."
    return f"There is no Pause of yours ({pause_name(user)})."
