"""Our own small HTTP server: health, readiness, metrics, and read-only routes of the capabilities, on one port."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from yarl import URL

from hostler.errors import Complaint, Exit
from hostler.kube.metrics import Metrics

log = structlog.get_logger("hostler.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# None: go on. An answer: the caller gets that one, and no route is asked.
Admit = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
# None: fine. A sentence: not, and why.
Check = Callable[[], str | None]

LARGEST_BODY = 64 * 1024
MOST_AT_ONCE = 64
MOST_CONNECTIONS = 256
SILENT_SECONDS = 10.0
_STATUS = {Exit.SETTING: 400, Exit.USAGE: 400, Exit.UNREACHABLE: 503, Exit.REFUSED: 409}
_WITHOUT_TARGET = web.RequestKey("without_target", bool)
_PORT_TROUBLE = {
    errno.EADDRINUSE: "another process already listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this user may not listen on that port",
}


def without_strangers(name: str, refused: Callable[[], None] = lambda: None) -> logging.Logger:
    """The log of an HTTP server, without requests it cannot parse: for those it only calls `refused`.

    Otherwise any client could fill the log with tracebacks.
    """

    def worth_saying(record: logging.LogRecord) -> bool:
        if not isinstance(record.exc_info and record.exc_info[1], HttpProcessingError):
            return True
        refused()
        return False

    found = logging.Logger(name)
    found.parent = logging.getLogger("aiohttp.server")
    found.addFilter(worth_saying)
    return found


def refuse_without_target(server: web.Server, refused: Callable[[], None] = lambda: None) -> None:
    """Answer 400 to a request without a URL, and call `refused`.

    aiohttp's parser hands such requests out (`CONNECT` and nothing more), and aiohttp fails on them outside of any
    handler: the task ends with an unhandled AttributeError, and the connection gets no answer.
    """
    make, handle = server.request_factory, server.request_handler

    def make_any(message: Any, *rest: Any) -> web.BaseRequest:
        if message.url is not None:
            return make(message, *rest)
        request = make(message._replace(url=URL("/")), *rest)
        request[_WITHOUT_TARGET] = True
        return request

    async def handle_any(request: Any) -> web.StreamResponse:
        if not request.get(_WITHOUT_TARGET):
            return await handle(request)
        refused()
        answer = web.Response(status=400, text="the request names no path\n")
        answer.force_close()
        return answer

    server.request_factory, server.request_handler = make_any, handle_any


class Connections:
    """The connections of one server: a client that opens many, or never asks, must not use up our file descriptors."""

    def __init__(self, server: web.Server, most: int, silent_seconds: float) -> None:
        self._server, self._most, self._silent_seconds = server, most, silent_seconds
        self._silent: set[web.RequestHandler] = set()  # those that have not asked anything yet

    def accept(self) -> asyncio.Protocol:
        if len(self._server.connections) >= self._most:
            return _Closed()
        connection = self._server()
        self._silent.add(connection)
        asyncio.get_running_loop().call_later(self._silent_seconds, self._close_if_silent, connection)
        return connection

    def heard(self, request: web.Request) -> None:
        """A whole request has come over its connection, which stays."""
        self._silent.discard(request.protocol)

    def _close_if_silent(self, connection: web.RequestHandler) -> None:
        if connection in self._silent and connection.transport is not None:
            connection.transport.close()
        self._silent.discard(connection)


class _Closed(asyncio.Protocol):
    """Hangs up at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Server:
    """One port. Add routes and checks, then `start()`; `stop()` lets answers under way finish."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        *,
        admit: Admit,
        setting: str = "HOSTLER_HTTP_ADDRESS",
        patience: float = 30.0,
    ) -> None:
        """`admit` is asked before every route; `setting` is what a user would change; `patience` is how long one
        answer may take."""
        self._host, self._port, self._setting, self._patience = host, port, setting, patience
        self.admit = admit
        self._metrics = metrics
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._at_once = 0
        self._streams = set[str]()
        self._app = web.Application(client_max_size=LARGEST_BODY, middlewares=[self._guard])
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._connections: Connections | None = None
        self.add_get("/healthz", self._healthz)
        self.add_get("/readyz", self._readyz)
        self.add_get("/metrics", self._show_metrics)

    # -- what others add

    def add_get(self, path: str, handler: Handler) -> None:
        """A read-only route, with aiohttp's patterns (`/v1/explain/{name}`). Only before `start()`."""
        self._app.router.add_get(path, handler)

    def add_post(self, path: str, handler: Handler) -> None:
        """A route that changes something of the caller's own. `admit` has to tell whether they may."""
        self._app.router.add_post(path, handler)

    def add_delete(self, path: str, handler: Handler) -> None:
        self._app.router.add_delete(path, handler)

    def add_stream(self, path: str, handler: Handler) -> None:
        """A route without patterns whose answers may last for hours. It bounds their number and its readers itself."""
        self._streams.add(path)
        self.add_get(path, handler)

    def alive_if(self, name: str, check: Check) -> None:
        """`/healthz` fails while `check` gives a sentence; Kubernetes then restarts us, so use it sparingly."""
        self._live[name] = check

    def ready_if(self, name: str, check: Check) -> None:
        """`/readyz` fails while `check` gives a sentence, and names it."""
        self._ready[name] = check

    # -- running

    @property
    def port(self) -> int:
        """The port in use; of interest when 0 was asked for."""
        sockets = self._listening.sockets if self._listening else ()
        return int(sockets[0].getsockname()[1]) if sockets else self._port

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            keepalive_timeout=30,
            shutdown_timeout=5,
            logger=without_strangers("hostler.http"),
        )
        await self._runner.setup()
        assert self._runner.server is not None
        refuse_without_target(self._runner.server)
        self._connections = Connections(self._runner.server, MOST_CONNECTIONS, SILENT_SECONDS)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connections.accept, self._host, self._port, backlog=64, reuse_address=True
            )
        except OSError as error:
            await self.stop()
            raise self._no_port(error) from error
        log.info("serving health, metrics and reads", url=self.url)

    async def stop(self) -> None:
        """Close the port, and give answers under way five seconds."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _no_port(self, error: OSError) -> Complaint:
        # From Python 3.12 on asyncio passes over addresses the machine has not, and then has no errno to give.
        why = _PORT_TROUBLE.get(error.errno or errno.EADDRNOTAVAIL, error.strerror or str(error))
        return Complaint(
            f"cannot listen on {self._host}:{self._port}: {why}.",
            hint=f"Set {self._setting} to a free address, or stop what uses this one.",
            code=Exit.SETTING,
        )

    # -- answers

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The edge: bounded in number and time, and a bug in one route is an answer, not an end."""
        if self._connections is not None:
            self._connections.heard(request)
        if self._at_once >= MOST_AT_ONCE:
            return web.Response(status=503, text="too many requests at once\n", headers={"Retry-After": "1"})
        self._at_once += 1
        try:
            async with asyncio.timeout(self._patience) as patience:
                refusal = await self.admit(request)
                if refusal is not None:  # an empty response is falsy
                    return refusal
                if request.path not in self._streams:
                    return await handler(request)
                patience.reschedule(None)
                self._at_once -= 1
                try:
                    return await handler(request)
                finally:
                    self._at_once += 1
        except web.HTTPException:
            raise
        except TimeoutError:
            return web.Response(status=504, text=f"no answer within {self._patience:g} s\n")
        except Complaint as complaint:
            return web.Response(status=_STATUS.get(complaint.code, 500), text=f"{complaint}\n")
        except Exception:  # the edge of this loop; counted and logged
            log.exception("bug in a route", path=request.path)
            self._metrics.loop_failed("http")
            return web.Response(status=500, text="internal error; see the operator's log\n")
        finally:
            self._at_once -= 1

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        # That there is an answer at all shows that the event loop is alive.
        return _verdict(self._live)

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        return _verdict(self._ready)

    async def _show_metrics(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": self._metrics.content_type})


def _verdict(checks: dict[str, Check]) -> web.Response:
    """`ok`, or 503 with one line per check that is not."""
    amiss = [f"{name}: {why}" for name, check in sorted(checks.items()) if (why := check()) is not None]
    return web.Response(status=503 if amiss else 200, text="\n".join(amiss or ["ok"]) + "\n")
