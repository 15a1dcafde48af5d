"""The step API over HTTP(S): instructions and answers, registration, boot artifacts. It holds nothing.

A token is checked before anything is read. Connections are bounded in number (`connections.py`), requests in size, in
number at once and in rate per host; what is refused changes nothing. Bodies are never unpacked: a small one could
become a large one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web

from hostler.reclaim.artifacts import NAMES
from hostler.reclaim.hub.agents import HubAgents, Trouble
from hostler.reclaim.hub.artifact_files import ArtifactFiles, Download, Unreadable
from hostler.reclaim.hub.connections import MOST_CONNECTIONS, Connections, keep_open
from hostler.reclaim.hub.instructions import Registration, Reply
from hostler.reclaim.hub.tokens import Claims, Denial, Denied, Keys, Opens

log = structlog.get_logger("hostler.hub")

BASE = "/api/assisted-install/v2/infra-envs/{infra_env}"
LARGEST_BODY = 64 * 1024
# This part of the connections may be requests being answered; who has one of the others is told to ask again. So many
# of them may ask the API server: the others wait their turn.
ANSWERED, ASKING_AT_ONCE = 0.75, 64
# So many with a token, and as many without: kernel and rootfs are open to strangers, who must not keep hosts waiting.
# So many of them may be one host's: it takes one after the other, and may have lost the one before.
DOWNLOADS_AT_ONCE, DOWNLOADS_PER_HOST = 64, 4
PATIENCE = 30.0  # seconds for a body to come and an answer to be made, else the client is told to ask again
# Per host: so many requests at once after a silence, then so many per second. A polling agent needs far fewer.
BURST, RATE = 20.0, 2.0
HOSTS_REMEMBERED = 10_000
# A refusal is logged once in so many seconds per reason: strangers do not fill our disk.
LOGGED_AGAIN = 10.0
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KNOWN, _STRANGERS = "hosts", "strangers"
_NO_KEY = "This hub has no signing key yet; ask again."
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def open_artifacts(directory: str, hub_url: str) -> ArtifactFiles:
    """The artifacts of this directory, at their address under `hub_url`; an empty name is no directory."""
    return ArtifactFiles(Path(directory) if directory else None, f"{hub_url.rstrip('/')}{BASE}/boot-artifacts")


class Rates:
    """A bucket per host. Lost with the process, which only means that everybody has a full one again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, who: str) -> bool:
        now = self._clock()
        left, at = self._left.pop(who, (BURST, now))
        left = min(BURST, left + (now - at) * RATE)
        if len(self._left) >= HOSTS_REMEMBERED:
            self._left.pop(next(iter(self._left)))
        self._left[who] = (max(0.0, left - 1), now)
        return left >= 1


class Hub:
    """Routes of the step API."""

    def __init__(
        self,
        agents: HubAgents,
        keys: Callable[[], Keys | None],
        files: ArtifactFiles,
        *,
        connections: int = MOST_CONNECTIONS,
        clock: Callable[[], float] = time.time,
        answered: Callable[[str, int], None] = lambda call, status: None,
    ) -> None:
        """`connections`: how many at once. `answered` is called with the call and the status of each answer."""
        self._agents, self._keys, self._clock = agents, keys, clock
        self._tell = answered
        self.files = files
        self.connections = Connections(connections)
        self._rates = Rates()
        self._at_once, self._at_most = 0, max(1, int(connections * ANSWERED))
        self._asking = asyncio.Semaphore(ASKING_AT_ONCE)
        self._downloads = Counter[str]()  # by `_KNOWN`, `_STRANGERS` and the host whose token it is
        self._logged: dict[Denial, float] = {}  # when a refusal was last logged

    def application(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=[self._counted, self._limited])
        path = f"{BASE}/hosts/{{host}}/instructions"
        app.router.add_get(path, self._instructions, allow_head=False)
        app.router.add_post(path, self._answered)
        app.router.add_post(f"{BASE}/hosts", self._registered)
        app.router.add_get(f"{BASE}/boot-artifacts/{{artifact}}", self._artifact)
        return app

    def unreadable(self) -> None:
        """What could not be read is counted like any other answer."""
        self._tell("other", 400)

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        call = _name_call(request)
        try:
            answer = await handler(request)
        except web.HTTPException as answered:
            self._tell(call, answered.status)
            raise
        self._tell(call, answer.status)
        return answer

    @web.middleware
    async def _limited(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._at_once >= self._at_most:
            return _refuse(503, "Too many requests at once; ask again.", retry=5)
        self._at_once += 1
        try:
            with keep_open(request):
                async with asyncio.timeout(PATIENCE):  # a download is sent after this; it has its own limit
                    return await handler(request)
        except TimeoutError:
            return _refuse(503, "It took too long; ask again.", retry=5)
        except (web.RequestPayloadError, ConnectionError):  # or it is gone, and hears nothing any more
            return _refuse(400, "The body does not match its headers.")
        except Unreadable:
            return _refuse(503, "The directory of artifacts cannot be read; ask again.", retry=10)
        finally:
            self._at_once -= 1

    async def _instructions(self, request: web.Request) -> web.StreamResponse:
        claims = self._allowed(request, Opens.HOST, request.match_info["host"])
        if isinstance(claims, web.Response):
            return claims
        served = await self.files.with_hashes(claims.infra_env)
        async with self._asking:
            found = await self._agents.ask(claims, served)
        return _trouble_response(found) if isinstance(found, Trouble) else _json_response(found)

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        claims = self._allowed(request, Opens.HOST, request.match_info["host"])
        if isinstance(claims, web.Response):
            return claims
        reply = decode_body(Reply, await request.read())
        if isinstance(reply, Malformed):
            return _refuse(400, f"The answer cannot be read: {reply.why}")
        async with self._asking:
            trouble = await self._agents.answer(claims, reply)
        return _trouble_response(trouble) if trouble is not None else web.Response(status=204)

    async def _registered(self, request: web.Request) -> web.StreamResponse:
        claims = self._allowed(request, Opens.INFRA_ENV, "")
        if isinstance(claims, web.Response):
            return claims
        given = decode_body(Registration, await request.read())
        if isinstance(given, Malformed):
            return _refuse(400, f"The registration cannot be read: {given.why}")
        if not _NAME.fullmatch(given.host_id):
            return _refuse(400, "host_id is not a valid name of an object.")
        async with self._asking:
            trouble = await self._agents.register(claims, given.host_id)
        if trouble is not None:
            return _trouble_response(trouble)
        return _json_response({"id": given.host_id, "infra_env_id": claims.infra_env}, status=201)

    async def _artifact(self, request: web.Request) -> web.StreamResponse:
        """A file of the InfraEnv, from our directory or where the InfraEnv says it is.

        The initrd has the discovery ignition in it, and that a token: it is only for hosts of its InfraEnv.
        """
        name, infra_env = request.match_info["artifact"], request.match_info["infra_env"]
        if name not in NAMES or not _NAME.fullmatch(infra_env):
            return _refuse(404, "There is no such artifact.")
        token = request.headers.get("X-Secret-Key", "")
        keys = self._keys()
        if keys is None:
            return _refuse(503, _NO_KEY, retry=10)
        claims = keys.check_infra_env(token, infra_env, self._clock())
        if isinstance(claims, Denied) and name == "initrd":
            return _refuse(claims.status, claims.why)
        found = await self.files.find(infra_env, name)
        if found is None:
            return await self._elsewhere(claims, name)
        host = claims.host if isinstance(claims, Claims) else ""
        most = max(1, min(DOWNLOADS_AT_ONCE, self.connections.limit // 8))  # with the answers never all connections
        limits = {_STRANGERS if isinstance(claims, Denied) else _KNOWN: most}
        limits |= {f"{infra_env}/{host}": DOWNLOADS_PER_HOST} if host else {}
        if any(self._downloads[who] >= limit for who, limit in limits.items()):
            return _refuse(503, "Too many downloads at once; ask again.", retry=10)

        def downloading(more: int) -> None:
            self._downloads.update(dict.fromkeys(limits, more))
            self._downloads = +self._downloads  # without those who have none

        return Download(found, downloading)

    async def _elsewhere(self, claims: Claims | Denied, name: str) -> web.StreamResponse:
        elsewhere = ""
        if isinstance(claims, Claims):
            async with self._asking:
                elsewhere = await self._agents.artifact(claims, name)
        if not elsewhere:
            return _refuse(404, f"This hub has no {name} of that InfraEnv.")
        return web.Response(status=307, headers={"Location": elsewhere})

    def _allowed(self, request: web.Request, opens: Opens, host: str) -> Claims | web.Response:
        """Whoever holds the right token for this very path, and does not ask too often."""
        token = request.headers.get("X-Secret-Key", "")
        keys = self._keys()
        if keys is None:
            return _refuse(503, _NO_KEY, retry=10)
        claims = keys.check(token, opens, request.match_info["infra_env"], host, self._clock())
        if isinstance(claims, Denied):
            if self._clock() - self._logged.get(claims.reason, 0.0) >= LOGGED_AGAIN:
                self._logged[claims.reason] = self._clock()
                log.info("refused", why=claims.why, path=request.path, remote=request.remote)
            return _refuse(claims.status, claims.why)
        if not self._rates.take(f"{claims.opens}/{claims.infra_env}/{claims.host}/{claims.id}"):
            return _refuse(429, "This host asks too often.", retry=5)
        return claims


@dataclass(frozen=True, slots=True)
class Malformed:
    """A body that is not what it should be."""

    why: str


def decode_body(kind: type[T], body: bytes) -> T | Malformed:
    """Decode what a client sent. Deeply nested JSON is rejected too."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        return Malformed(str(error))


def _name_call(request: web.Request) -> str:
    """The call, as a label of the metric."""
    if "artifact" in request.match_info:
        return "artifact"
    if "host" in request.match_info:
        return "instructions" if request.method == "GET" else "answer"
    return "registration" if "infra_env" in request.match_info else "other"


def _json_response(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _refuse(status: int, why: str, retry: int = 0) -> web.Response:
    answer = _json_response({"code": str(status), "reason": why}, status)
    if retry:
        answer.headers["Retry-After"] = str(retry)
    return answer


def _trouble_response(trouble: Trouble) -> web.Response:
    if trouble.status >= 500:
        log.warning("a request could not be answered", why=trouble.why)
        return _refuse(trouble.status, "This hub cannot answer now; ask again.", retry=10)
    return _refuse(trouble.status, trouble.why)
