"""The port that API servers ask: `/mutate`, `/validate` and `/convert` by TLS, on every replica, whoever leads.

Anybody who reaches the port may ask: an answer changes nothing and tells nothing but what was sent. So what a stranger
can use up is limited: connections, bytes under way, and the time that a request may take.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

import structlog
from aiohttp import web

from hostler.errors import Complaint, Exit
from hostler.kube.http import Connections, Handler, refuse_without_target, without_strangers
from hostler.settings.readers import Address
from hostler.webhooks.certificates import Pair, load_pair
from hostler.webhooks.reviews import (
    AdmissionRequest,
    Admit,
    Convert,
    NotAReview,
    Verdict,
    answer_conversion,
    read_admission,
    read_conversion,
    write_admission,
)

log = structlog.get_logger("hostler.webhooks")

# A review holds an object twice at most, each of which etcd takes up to 1.5 MiB of; a conversion holds a list of them.
LARGEST_REVIEW, LARGEST_CONVERSION = 8 << 20, 32 << 20
MOST_BYTES = 64 << 20  # of all requests that are being read
MOST_CONNECTIONS = 512
SILENT_SECONDS, PATIENCE_SECONDS = 10.0, 10.0
# Longer than an API server keeps an idle connection (90 s): one that it has just begun to use must not be closed.
IDLE_SECONDS = 300.0
HANDSHAKE_SECONDS = 10.0
LINGERS = 1.0  # seconds in which the rest of an unwanted body is read, so that its sender gets our answer
OTHER = "other"  # a kind, an operation that we have no rules for; their names come from whoever asks

Answered = Callable[[str, str, str], None]  # kind, operation, result


class WebhookServer:
    """One port. `use` sets the certificate, then `start`; a later `use` counts for connections that come after it."""

    def __init__(
        self, address: Address, mutate: Admit, validate: Admit, convert: Convert, *, kinds: frozenset[str],
        answered: Answered, setting: str,
    ) -> None:  # fmt: skip
        """`kinds`: those that are counted by name. `setting`: what a user would change for another address."""
        self._address, self._setting = address, setting
        self._kinds, self._answered = kinds, answered
        self._convert = convert
        self._bytes = _Bytes(MOST_BYTES)
        self._app = web.Application(client_max_size=LARGEST_CONVERSION)
        self._app.router.add_post("/mutate", self._route(LARGEST_REVIEW, partial(self._review, mutate, "mutate")))
        self._app.router.add_post("/validate", self._route(LARGEST_REVIEW, partial(self._review, validate, "validate")))
        self._app.router.add_post("/convert", self._route(LARGEST_CONVERSION, self._conversion))
        self._shown: Pair | None = None
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._connections: Connections | None = None

    @property
    def shown(self) -> Pair | None:
        """The certificate that a new connection gets; None: nothing is served."""
        return self._shown if self._listening is not None else None

    @property
    def port(self) -> int:
        """The port in use; of interest when 0 was asked for."""
        sockets = self._listening.sockets if self._listening else ()
        return int(sockets[0].getsockname()[1]) if sockets else self._address.port

    def use(self, pair: Pair) -> bool:
        """Whether it can be used; one that cannot changes nothing."""
        if pair == self._shown:
            return True
        made = load_pair(pair)
        if made is None:
            return False
        made.sni_callback = self._choose
        self._context, self._shown = made, pair
        return True

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: object) -> None:
        """The newest certificate for a connection that was accepted with the first one."""
        assert self._context is not None
        connection.context = self._context

    async def start(self) -> None:
        assert self._context is not None
        self._runner = web.AppRunner(
            self._app, access_log=None, keepalive_timeout=IDLE_SECONDS, shutdown_timeout=5, lingering_time=LINGERS,
            logger=without_strangers("hostler.webhooks", self._unreadable), auto_decompress=False,
        )  # fmt: skip
        await self._runner.setup()
        assert self._runner.server is not None
        refuse_without_target(self._runner.server, self._unreadable)
        self._connections = Connections(self._runner.server, MOST_CONNECTIONS, SILENT_SECONDS)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connections.accept, self._address.host or None, self._address.port, ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS, backlog=128, reuse_address=True,
            )  # fmt: skip
        except OSError as error:
            await self.stop()
            raise Complaint(
                f"The webhooks cannot listen on {self._address}: {error.strerror or error}.",
                hint=f"Set {self._setting} to a free address, or stop what uses this one.",
                code=Exit.SETTING,
            ) from error
        log.info("serving webhooks", address=str(self._address))

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # -- answers

    def _route(self, most: int, make: Callable[[bytes], bytes]) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, most, make)

        return answer

    def _review(self, admit: Admit, operation: str, body: bytes) -> bytes:
        asked = read_admission(body)
        verdict = _judge(asked, admit)
        result = "refused" if not verdict.allowed else "changed" if verdict.patched is not None else "allowed"
        self._count(asked.kind.kind, operation, result)
        return write_admission(asked, verdict)

    def _conversion(self, body: bytes) -> bytes:
        asked = read_conversion(body)
        answer, failed = answer_conversion(asked, self._convert)
        kind = str(asked.objects[0].get("kind")) if asked.objects else OTHER
        self._count(kind, "convert", "failed" if failed else "converted")
        if failed:
            log.warning("an object was not converted", why=failed)
        return answer

    async def _answer(self, request: web.Request, most: int, make: Callable[[bytes], bytes]) -> web.StreamResponse:
        """The edge: bounded in size and time, and a bug is an answer, not an end."""
        if self._connections is not None:
            self._connections.heard(request)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), _Held(self._bytes) as held:
                parts = []
                async for part in request.content.iter_any():
                    await held.add(len(part))
                    if held.size > most:
                        return self._refuse(413, f"more than {most >> 20} MiB")
                    parts.append(part)
                return web.Response(body=make(b"".join(parts)), content_type="application/json")
        except NotAReview as error:
            return self._refuse(400, str(error))
        except TimeoutError:
            return self._refuse(503, "too much at once, or too slow")
        except Exception:  # the edge of this loop; counted and logged
            log.exception("bug in a webhook", path=request.path)
            self._count(OTHER, request.path.strip("/"), "bug")
            return web.Response(status=500, text="internal error; see the operator's log\n")

    def _refuse(self, status: int, why: str) -> web.Response:
        self._unreadable()
        answer = web.Response(status=status, text=f"{why[:500]}\n")
        answer.force_close()
        return answer

    def _unreadable(self) -> None:
        self._answered(OTHER, OTHER, "unreadable")

    def _count(self, kind: str, operation: str, result: str) -> None:
        self._answered(kind if kind in self._kinds else OTHER, operation, result)


def _judge(asked: AdmissionRequest, admit: Admit) -> Verdict:
    """An object that is nested too deeply for us is refused, and names itself."""
    try:
        return admit(asked)
    except RecursionError:
        return Verdict(False, f"{asked.kind.kind} {asked.namespace}/{asked.name} is nested too deeply.", 400)


class _Bytes:
    """How many bytes of requests are in memory at once. Who comes when there are too many waits."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._left >= size)
            self._left -= size

    async def give(self, size: int) -> None:
        async with self._changed:
            self._left += size
            self._changed.notify_all()


class _Held:
    """What one request has of them: as much as has come, and not what it says will come."""

    def __init__(self, budget: _Bytes) -> None:
        self._budget = budget
        self.size = 0

    async def add(self, size: int) -> None:
        await self._budget.take(size)
        self.size += size

    async def __aenter__(self) -> _Held:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._budget.give(self.size)
