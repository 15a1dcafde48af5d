"""Serves one config for a while, under a path nobody can guess: over HTTPS, or over HTTP with its hash as the proof."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from hostler.errors import Complaint, Exit
from hostler.kube.http import refuse_without_target, without_strangers

NAME = "worker.ign"


@dataclass(frozen=True, slots=True)
class Terms:
    """For how long, and how often."""

    seconds: float
    times: int = 0  # 0: for every request


async def serve(
    content: bytes,
    host: str,
    port: int,
    terms: Terms,
    tls: ssl.SSLContext | None,
    ready: Callable[[str], None],
    fetched: Callable[[str], None],
) -> int:
    """Serve until the time is over or it was fetched often enough; how often it was fetched. `ready` gets the path."""
    path, done, served = f"/{secrets.token_urlsafe(16)}/{NAME}", asyncio.Event(), 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal served
        if terms.times and served >= terms.times:
            raise web.HTTPGone(text="It was fetched as often as it may be.")
        served += 1
        fetched(request.remote or "somebody")
        if terms.times and served >= terms.times:
            asyncio.get_running_loop().call_later(0.5, done.set)  # after the answer has gone out
        return web.Response(body=content, content_type="application/vnd.coreos.ignition+json")

    application = web.Application()
    application.router.add_get(path, answer, allow_head=False)  # a look at the head is no fetch
    runner = web.AppRunner(application, access_log=None, logger=without_strangers("hostler.join"))
    await runner.setup()
    if runner.server is not None:
        refuse_without_target(runner.server)
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            where = f"{host or 'every address'}:{port}"
            raise Complaint(f"Nothing can be served at {where}: {error.strerror}.", code=Exit.REFUSED) from error
        ready(f":{runner.addresses[0][1]}{path}")
        try:
            async with asyncio.timeout(terms.seconds):
                await done.wait()
        except TimeoutError:
            pass
    finally:
        await runner.cleanup()
    return served
