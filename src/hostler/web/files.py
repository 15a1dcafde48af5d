"""The files of the page, as the package has them: read once, served with a policy that lets nothing else in.

URLs are relative: the page may stand behind a proxy that puts a path before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from aiohttp import web

from hostler.kube.http import Server

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing inline, nothing from elsewhere, in nobody's frame; forms go where the page came from.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again each time: an operator that was upgraded has other files
}
START = "index.html"
# What the page reads: a session or a local server opens nothing else.
READABLE = re.compile(r"/v1/(hosts|operations|history|explain|plan)(/.+)?")


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    type: str
    tag: str


def read_files() -> dict[str, File]:
    """By name."""
    found = {}
    for file in files("hostler.web").joinpath("page").iterdir():
        body = file.read_bytes()
        found[file.name] = File(body, TYPES[file.name.rpartition(".")[2]], f'"{sha256(body).hexdigest()[:32]}"')
    return found


def answer_file(request: web.Request, file: File) -> web.Response:
    headers = {**HEADERS, "ETag": file.tag}
    if request.headers.get("If-None-Match") == file.tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.body, headers={**headers, "Content-Type": file.type})


class Page:
    """The page on a server of ours: `/` and its files beside it under `/page/`."""

    def __init__(self, files: Mapping[str, File] | None = None) -> None:
        self._files = read_files() if files is None else files

    def mount(self, server: Server) -> None:
        server.add_get("/", self._start)
        server.add_get("/page/{name}", self._file)

    async def _start(self, request: web.Request) -> web.Response:
        return answer_file(request, self._files[START])

    async def _file(self, request: web.Request) -> web.Response:
        file = self._files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        return answer_file(request, file)
