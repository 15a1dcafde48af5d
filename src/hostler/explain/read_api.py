"""The operator's read-only answers over HTTP: /v1/status, /v1/config, /v1/explain and /v1/plan. Any replica answers.

`admission` stands before them all: who may not read gets a refusal, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from hostler import __version__
from hostler.explain.authentication import Authenticator
from hostler.explain.callers import SENTENCES, STATUS, Refusal
from hostler.explain.registry import Answer, Registry, UnknownKind, UnknownName
from hostler.explain.wire import (
    LEADER_HEADER,
    NOT_LEADING,
    UNKNOWN_KIND,
    UNKNOWN_NAME,
    VERSION_HEADER,
    Refused,
    StatusAnswer,
    config_of,
)
from hostler.fleet.controller import FleetController
from hostler.kube.http import Admit, Server
from hostler.safety.guard import Guard
from hostler.settings.model import Settings


class Refusals:
    """Answers of no, counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "hostler_reads_refused", "Requests of the read API refused.", ["why"], registry=registry
        )
        for why in Refusal:
            self._counter.labels(why)

    def answer(self, refusal: Refusal) -> web.Response:
        self._counter.labels(refusal).inc()
        refused = answer(Refused(refusal, SENTENCES[refusal]), status=STATUS[refusal])
        if refused.status == 401:
            refused.headers["WWW-Authenticate"] = "Bearer"
        if refused.status in (429, 503):
            refused.headers["Retry-After"] = "5"
        return refused


def admission(authenticator: Authenticator, leadership: Callable[[], str | None], refusals: Refusals) -> Admit:
    """Checks every request: the caller is known, and one that wants the leader has reached it."""

    async def admit(request: web.Request) -> web.Response | None:
        if (refusal := await authenticator.refuse_request(request)) is not None:
            return refusals.answer(refusal)
        return answer_not_leading(request, leadership)

    return admit


def answer_not_leading(request: web.Request, leadership: Callable[[], str | None]) -> web.Response | None:
    """The answer to who wants the leader and reached another replica."""
    if LEADER_HEADER in request.headers and (why := leadership()) is not None:
        return answer(Refused(NOT_LEADING, f"This replica does not answer for the fleet: {why}."), status=421)
    return None


class Reads:
    """The read API of one replica."""

    def __init__(
        self,
        registry: Registry,
        guard: Guard,
        fleet: FleetController,
        settings: Settings,
        *,
        identity: str,
        leadership: Callable[[], str | None],
        dry_run: bool,
    ) -> None:
        """`leadership` is the leader's gate: None while this replica leads, else why it does not."""
        self._registry = registry
        self._guard = guard
        self._fleet = fleet
        self._settings = settings
        self._identity = identity
        self._leadership = leadership
        self._dry_run = dry_run

    def mount(self, server: Server) -> None:
        server.add_get("/v1/status", self._status)
        server.add_get("/v1/config", self._config)
        server.add_get("/v1/explain/{kind}/{name:.+}", self._explain)
        server.add_get("/v1/plan/{kind}/{name:.+}", self._plan)

    def off(self, server: Server, path: str, capability: str) -> None:
        """A read of a capability that is switched off: say that, instead of looking like another version."""

        async def refuse(_: web.Request) -> web.Response:
            return answer(Refused(UNKNOWN_KIND, self._guard.blocked(capability) or f"{capability} is off."), status=404)

        server.add_get(path, refuse)

    async def _status(self, _: web.Request) -> web.Response:
        why = self._leadership()
        pause = self._guard.pause()
        return answer(
            StatusAnswer(
                version=__version__,
                identity=self._identity,
                leads=why is None,
                leadership=why or "This replica leads.",
                dry_run=self._dry_run,
                paused=pause.stopped,
                pause=pause.why,
                status=self._fleet.status(),
            )
        )

    async def _config(self, _: web.Request) -> web.Response:
        return answer(config_of(self._settings))

    async def _explain(self, request: web.Request) -> web.Response:
        return self._ask(self._registry.explain, request)

    async def _plan(self, request: web.Request) -> web.Response:
        return self._ask(self._registry.plan, request)

    def _ask(self, ask: Callable[[str, str, tuple[str, ...]], Answer], request: web.Request) -> web.Response:
        try:
            return answer(ask(request.match_info["kind"], request.match_info["name"], self.notes()))
        except UnknownKind as error:
            return answer(Refused(UNKNOWN_KIND, str(error)), status=404)
        except UnknownName as error:
            return answer(Refused(UNKNOWN_NAME, str(error)), status=404)

    def notes(self) -> tuple[str, ...]:
        """What limits every answer: it is paused, a dry run, or another replica acts."""
        notes = []
        if (pause := self._guard.pause()).stopped:
            notes.append(pause.why)
        if self._dry_run:
            notes.append("This is a dry run: nothing is written.")
        if (why := self._leadership()) is not None:
            notes.append(f"Nothing is done from here: {why}.")
        return tuple(notes)


def answer(body: Any, *, status: int = 200) -> web.Response:
    """A record as JSON, with the version that answers. Rooms with reads of their own use it too."""
    return web.Response(
        body=msgspec.json.encode(body),
        status=status,
        content_type="application/json",
        headers={VERSION_HEADER: __version__},
    )
