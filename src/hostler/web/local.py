"""The server behind `hostler web`: the page for one person, on this machine only.

It listens on 127.0.0.1. Who may use it knows its path, which is random: other users of the machine, and other pages in
the same browser, do not. A wrong path, or a Host header that is not ours (a name that was made to point here), is not
found.
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import compare_digest, token_urlsafe
from urllib.parse import unquote

import msgspec
from aiohttp import web

from hostler.errors import Complaint, Exit
from hostler.explain.wire import VERSION_HEADER, Refused
from hostler.kube.http import refuse_without_target, without_strangers
from hostler.web.files import READABLE, START, File, answer_file, read_files
from hostler.web.upstream import Declined, Upstream

HOST = "127.0.0.1"
PASSED_ON = ("Content-Type", VERSION_HEADER)


class LocalServer:
    """`port` 0: any that is free."""

    def __init__(self, upstream: Upstream, port: int = 0, files: Mapping[str, File] | None = None) -> None:
        self._upstream, self._port = upstream, port
        self._files = read_files() if files is None else files
        self._secret = token_urlsafe(24)
        self._app = web.Application()
        self._app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}/{self._secret}/"

    async def start(self) -> None:
        self._runner = web.AppRunner(
            self._app, access_log=None, shutdown_timeout=1, handler_cancellation=True,
            logger=without_strangers("hostler.web"),
        )  # fmt: skip
        await self._runner.setup()
        if self._runner.server is not None:
            refuse_without_target(self._runner.server)
        site = web.TCPSite(self._runner, HOST, self._port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise Complaint(
                f"Cannot listen on {HOST}:{self._port}: {error.strerror}.",
                hint="Leave --port out, or give one that is free.",
                code=Exit.USAGE,
            ) from error
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = self._path_within(request)
        if path is None:
            raise web.HTTPNotFound
        if path == "/":
            return answer_file(request, self._files[START])
        if (file := self._files.get(path.removeprefix("/page/"))) is not None and path.startswith("/page/"):
            return answer_file(request, file)
        parts = unquote(path).split("/")
        if not READABLE.fullmatch(path) or "." in parts or ".." in parts:
            raise web.HTTPNotFound
        return await self._pass_on(request, path + (f"?{request.rel_url.raw_query_string}" if request.query else ""))

    def _path_within(self, request: web.Request) -> str | None:
        """What stands behind the random part; None: whoever asks does not know it, or came by another name."""
        hosts = (f"{HOST}:{self._port}", f"localhost:{self._port}")
        first, slash, rest = request.rel_url.raw_path.removeprefix("/").partition("/")
        known = compare_digest(first.encode(), self._secret.encode())
        fine = request.method == "GET" and request.headers.getall("Host", []) in ([hosts[0]], [hosts[1]])
        return f"/{rest}" if known and slash and fine else None

    async def _pass_on(self, request: web.Request, path: str) -> web.StreamResponse:
        try:
            async with self._upstream.open(path) as found:
                headers = {name: found.headers[name] for name in PASSED_ON if name in found.headers}
                response = web.StreamResponse(headers={**headers, "Cache-Control": "no-store"})
                await response.prepare(request)
                async for piece in found.content.iter_any():
                    await response.write(piece)
                return response
        except Declined as declined:
            body = msgspec.json.encode(Refused(declined.reason, declined.message))
            return web.Response(body=body, status=declined.status, content_type="application/json")
