"""`hostler web`: the page in your browser, with nothing to expose and nothing to log in to."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import explain, flags
from hostler.cli.printing import print_note, print_text
from hostler.settings.foundation import CONTEXT, LEASE_NAME, NAMESPACE, OPERATOR, SERVICE, kubeconfig_path
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.kube.client import Client
    from hostler.web.upstream import Upstream

app = typer.Typer()
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen on 127.0.0.1; 0: any free port.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Open no browser.")]
PrintUrl = Annotated[bool, typer.Option("--print-url", help="Print the URL and nothing else; opens no browser.")]


@app.command("web")
@flags.takes(*explain.ASKING)
def show_page(settings: Settings, port: Port = 0, no_browser: NoBrowser = False, print_url: PrintUrl = False) -> None:
    """Show the fleet in your browser: every host, live, with why and what comes next. Read-only; Ctrl-C ends it.

    It listens on 127.0.0.1 only, and reaches the operator as `hostler hosts` does: through the API server, with your
    rights. The address it prints is a secret: every user of this machine who has it sees the page.

    Examples: `hostler web`; `hostler web --no-browser --port 8090`; `hostler web --operator http://127.0.0.1:8080`.
    """
    import asyncio

    from hostler.cli.cluster import ask_cluster, refuse_two_targets

    look = not (no_browser or print_url) and _has_screen()
    if settings[OPERATOR]:
        refuse_two_targets(settings)
        asyncio.run(_serve_url(settings, port, look=look, quiet=print_url))
        return

    async def serve(client: Client) -> None:
        from hostler.explain.client import Place
        from hostler.web.upstream import ThroughApiServer

        named = settings[SERVICE] if settings.given(SERVICE) else ""
        place = Place(settings[NAMESPACE], settings[LEASE_NAME], named)
        await _serve(ThroughApiServer(client, place), port, look=look, quiet=print_url)

    ask_cluster(settings, serve)


async def _serve_url(settings: Settings, port: int, *, look: bool, quiet: bool) -> None:
    import aiohttp

    from hostler.explain.client import request_token
    from hostler.kube.client import Client
    from hostler.kube.config import load
    from hostler.web.upstream import AtUrl

    async def make_token() -> str:
        """Only if the operator asks for one: over loopback no cluster is needed."""
        async with Client(load(kubeconfig_path(settings), settings[CONTEXT])) as client:
            return await request_token(client, settings[NAMESPACE])

    async with aiohttp.ClientSession() as session:
        await _serve(AtUrl(session, settings[OPERATOR], make_token), port, look=look, quiet=quiet)


async def _serve(upstream: Upstream, port: int, *, look: bool, quiet: bool) -> None:
    import asyncio

    from hostler.web.local import LocalServer
    from hostler.web.upstream import Declined

    server = LocalServer(upstream, port)
    await server.start()
    try:
        print_text(server.url)
        sys.stdout.flush()
        if not quiet:
            try:
                async with upstream.open("/v1/status"):
                    print_note("The page is there until Ctrl-C. The address is a secret of yours.")
            except Declined as declined:
                print_note(f"{declined.message} The page shows this too, and tries again.")
        if look:
            await asyncio.to_thread(_open_browser, server.url)
        await asyncio.Event().wait()
    finally:
        await server.stop()


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open_browser(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        print_note("No browser could be started; open the address above in yours.")
