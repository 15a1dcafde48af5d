"""The port of the step API: TLS where there is a certificate, renewed while it listens."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import structlog
from aiohttp import web

from hostler.errors import Complaint, Exit
from hostler.kube.http import refuse_without_target, without_strangers
from hostler.reclaim.hub.connections import Connection
from hostler.reclaim.hub.server import Hub

log = structlog.get_logger("hostler.hub")

SILENT = 75  # seconds in which a whole request must come, else the connection is closed
LINGERS = 5.0  # seconds in which the rest of an unwanted body is read, so that its sender gets our answer
BACKLOG = 128


class Listener:
    """The hub's own port, with TLS where there is a certificate; `renew` takes a new one from the next call on."""

    def __init__(self, hub: Hub, host: str, port: int, certificate: str = "", key: str = "") -> None:
        self._hub, self._host, self._port = hub, host, port
        self._certificate, self._key = certificate, key
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None
        self._seen = (0.0, 0.0)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        self.renew()
        self._runner = web.AppRunner(
            self._hub.application(),
            access_log=None,
            keepalive_timeout=SILENT,
            lingering_time=LINGERS,
            logger=without_strangers("hostler.hub", self._hub.unreadable),
            auto_decompress=False,
            shutdown_timeout=5,
        )
        await self._runner.setup()
        server, connections = self._runner.server, self._hub.connections
        assert server is not None
        refuse_without_target(server, self._hub.unreadable)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(connections, server, self._context), self._host or None, self._port, backlog=BACKLOG
            )
        except OSError as error:
            raise Complaint(
                f"The hub cannot listen on {self._host or '*'}:{self._port}: {error.strerror or error}.",
                hint="Set HOSTLER_HUB_ADDRESS to a free address, or stop what uses this one.",
                code=Exit.SETTING,
            ) from error

    def renew(self) -> None:
        """Read the certificate again if its files changed; a pair that does not fit is left for the next time."""
        if not self._certificate:
            return
        try:
            seen = (Path(self._certificate).stat().st_mtime, Path(self._key).stat().st_mtime)
            if seen == self._seen:
                return
            # A context of its own each time: half of a pair would spoil the one in use.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")  # never prompt for one
        except OSError as error:
            if self._context is None:
                raise Complaint(
                    f"The hub's certificate {self._certificate} cannot be used with key {self._key}: {error}.",
                    hint="Set HOSTLER_HUB_CERTIFICATE and HOSTLER_HUB_KEY to PEM files that belong together.",
                    code=Exit.SETTING,
                ) from error
            log.warning("the new certificate is not used", error=str(error))
            return
        self._context, self._seen = context, seen

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._hub.connections.end()
