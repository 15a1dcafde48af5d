"""Admits callers of the read API: the API server says whose token it is (TokenReview) and what its user may read.

Answers are kept, by a hash of the token, for a minute if good and ten seconds if not. What unknown callers can make
us ask the API server is bounded: by wrong credentials per address and in all, and by how many wait for a review.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

import msgspec
import structlog
from aiohttp import web

from hostler.explain.callers import (
    AUDIENCE,
    FORWARDING,
    TOKEN_HEADER,
    Caller,
    Credential,
    Proof,
    Refusal,
    address_of,
    credential_of,
    is_open,
    session_credential,
)
from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.errors import ApiError, Forbidden, Unreachable
from hostler.kube.kinds import ACCESS_REVIEW, Kind
from hostler.kube.records import Record

log = structlog.get_logger("hostler.reads")
V = TypeVar("V")
# What a user of the page must be allowed: a subresource that exists only for this.
PICTURE = {
    "resourceAttributes": {"group": "hostler.dev", "resource": "fleets", "subresource": "picture", "verb": "get"}
}
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
GOOD_SECONDS, BAD_SECONDS = 60.0, 10.0
GOOD_LATELY_SECONDS = 3600.0  # reviewed again after GOOD_SECONDS, but by no allowance of wrong ones
MOST_KEPT = 512
REVIEW_SECONDS = 5.0
MOST_AT_ONCE = 8  # reviews under way
MOST_WAITING = 32  # callers waiting for them: half of what the server answers at once, so that probes get through
# Wrong credentials, per second and in a burst: of one address (the API server's own is one), and of all.
PER_ADDRESS, ADDRESS_BURST = 1.0, 20
IN_ALL, BURST_IN_ALL = 20.0, 100
MOST_ADDRESSES = 1024
WARN_SECONDS = 60.0


class User(Record, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class TokenVerdict(Record, frozen=True):
    """What the API server says of a token."""

    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] = ()


class _TokenReview(Record, frozen=True):
    status: TokenVerdict = TokenVerdict()


class _Access(Record, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(Record, frozen=True):
    status: _Access = _Access()


def judge_reader(verdict: TokenVerdict, reader: str) -> Refusal | None:
    """A token that people bring: of our reader and no other account, made for asking us and for nothing else."""
    known = verdict.authenticated and verdict.user.username == reader and AUDIENCE in verdict.audiences
    return None if known else Refusal.BAD_CREDENTIAL


def judge_bearer(verdict: TokenVerdict) -> Refusal | None:
    """Whether the token belongs to someone; what they may read is asked for next."""
    return None if verdict.authenticated and verdict.user.username else Refusal.BAD_CREDENTIAL


class Kept(Generic[V]):
    """Answers for a while, and not more than so many: the oldest goes first."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds, self._clock = seconds, clock
        self._found: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        until, value = self._found.get(key, (0.0, None))
        return value if value is not None and self._clock() < until else None

    def put(self, key: Hashable, value: V) -> None:
        self._found[key] = (self._clock() + self._seconds, value)
        self._found.move_to_end(key)
        while len(self._found) > MOST_KEPT:
            self._found.popitem(last=False)


class Allowance:
    """So many at once, and so many more per second. Taken before the outcome is known, and given back if it is good."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate, self._burst, self._left, self._at = rate, burst, float(burst), now

    def take(self, now: float) -> bool:
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        self._left = min(self._burst, self._left + 1)


class Attempts:
    """Bounds wrong credentials, per address and in all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all = Allowance(IN_ALL, BURST_IN_ALL, clock())
        self._by_address: OrderedDict[str, Allowance] = OrderedDict()

    def take(self, address: str) -> bool:
        now = self._clock()
        own = self._by_address.pop(address, None) or Allowance(PER_ADDRESS, ADDRESS_BURST, now)
        self._by_address[address] = own
        while len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        if not own.take(now):
            return False
        if not self._all.take(now):
            own.give_back()
            return False
        return True

    def give_back(self, address: str) -> None:
        self._all.give_back()
        if (own := self._by_address.get(address)) is not None:
            own.give_back()


class Authenticator:
    """The border of the read API: `refuse_caller` says why a request gets no answer, or None."""

    def __init__(self, client: Client, reader: str, *, metrics_open: bool, clock: Clock = boottime) -> None:
        """`reader` is the user whose token people bring."""
        self._client, self._reader, self._metrics_open = client, reader, metrics_open
        self._clock = clock
        self._good: Kept[bool] = Kept(GOOD_SECONDS, clock)
        self._was_good: Kept[bool] = Kept(GOOD_LATELY_SECONDS, clock)
        self._bad: Kept[Refusal] = Kept(BAD_SECONDS, clock)  # apart: a flood of bad ones must not push out good ones
        self._attempts = Attempts(clock)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._asked: dict[Hashable, asyncio.Task[Refusal | None]] = {}
        self._waiting = 0
        self._warned = -WARN_SECONDS

    async def refuse_request(self, request: web.Request) -> Refusal | None:
        transport, headers = request.transport, request.headers
        peer, local = (
            address_of(transport.get_extra_info(end) if transport else None) for end in ("peername", "sockname")
        )
        caller = Caller(
            request.path, peer, local, host=headers.get("Host", ""),
            forwarded=any(name in headers for name in FORWARDING),
            tokens=tuple(headers.getall(TOKEN_HEADER, ())),
            authorizations=tuple(headers.getall("Authorization", ())),
        )  # fmt: skip
        return await self.refuse_caller(caller)

    async def refuse_caller(self, caller: Caller) -> Refusal | None:
        if is_open(caller, metrics_open=self._metrics_open):
            return None
        return await self._refuse(credential_of(caller), caller)

    async def refuse_session(self, token: str, peer: str) -> Refusal | None:
        """Of a login on the page: the token counts, and that its user may see the picture. Loopback does not."""
        return await self._refuse(session_credential(token), Caller("", peer, ""))

    async def _refuse(self, credential: Credential | Refusal, caller: Caller) -> Refusal | None:
        if isinstance(credential, Refusal):
            return credential
        digest = hashlib.sha256(credential.token.encode()).digest()
        key = (credential.proof, digest, caller.path if credential.proof is Proof.BEARER else "")
        if self._good.get(key):
            return None
        if (known := self._bad.get(key)) is not None:
            return known
        return await self._ask_once(key, credential, caller)

    async def _ask_once(self, key: Hashable, credential: Credential, caller: Caller) -> Refusal | None:
        """Many that come with the same credential together are one question."""
        if self._waiting >= MOST_WAITING:
            return Refusal.TOO_MANY_ATTEMPTS
        task = self._asked.get(key)
        if task is None:
            # A credential that was good lately spends nothing: a flood of wrong ones keeps no Prometheus out.
            spends = not self._was_good.get(key)
            if spends and not self._attempts.take(caller.peer):
                return Refusal.TOO_MANY_ATTEMPTS
            task = asyncio.get_running_loop().create_task(self._review(key, credential, caller, spends))
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        self._waiting += 1
        try:
            # One caller that hangs up must not take the answer from the others.
            return await asyncio.shield(task)
        finally:
            self._waiting -= 1

    async def _review(self, key: Hashable, credential: Credential, caller: Caller, spends: bool) -> Refusal | None:
        try:
            async with self._turns:
                refusal = await self._judge(credential, caller.path)
        except Forbidden as error:
            return self._cannot(Refusal.REVIEW_FORBIDDEN, error)
        except (ApiError, Unreachable, msgspec.MsgspecError) as error:
            return self._cannot(Refusal.UNVERIFIED, error)
        if refusal is None:
            if spends:
                self._attempts.give_back(caller.peer)
            self._good.put(key, True)
            self._was_good.put(key, True)
        else:
            self._bad.put(key, refusal)
        return refusal

    async def _judge(self, credential: Credential, path: str) -> Refusal | None:
        if credential.proof is Proof.READER:
            return judge_reader(await self._review_token(credential.token, (AUDIENCE,)), self._reader)
        verdict = await self._review_token(credential.token, ())
        refusal = judge_bearer(verdict)
        if refusal is None and credential.proof is Proof.SESSION:
            return None if await self._may(verdict.user, PICTURE) else Refusal.NO_PICTURE
        if refusal is None and not await self._may(
            verdict.user, {"nonResourceAttributes": {"path": path, "verb": "get"}}
        ):
            return Refusal.NOT_ALLOWED
        return refusal

    async def _review_token(self, token: str, audiences: tuple[str, ...]) -> TokenVerdict:
        """Without audiences: of a token that is meant for the API server itself."""
        spec = {"token": token, **({"audiences": audiences} if audiences else {})}
        return (await self._create(TOKEN_REVIEW, spec, _TokenReview)).status

    async def _may(self, user: User, what: Mapping[str, object]) -> bool:
        spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra, **what}
        found = (await self._create(ACCESS_REVIEW, spec, _AccessReview)).status
        return found.allowed and not found.denied

    async def _create(self, kind: Kind, spec: Mapping[str, object], type: type[V]) -> V:
        body = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec})
        answer = await self._client.request("POST", kind.path(), body=body, timeout=REVIEW_SECONDS)
        return msgspec.json.decode(answer, type=type)

    def _cannot(self, refusal: Refusal, error: Exception) -> Refusal:
        """Of the error only what it is: its text may quote what was sent."""
        if self._clock() - self._warned >= WARN_SECONDS:
            self._warned = self._clock()
            code = error.code if isinstance(error, ApiError) else None
            log.warning("callers of the read API cannot be checked", why=refusal.value, error=type(error).__name__,
                        code=code)  # fmt: skip
        return refusal
