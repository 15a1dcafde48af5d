"""The server behind `hostler web`: who gets an answer, and what is passed on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from hostler.errors import Complaint
from hostler.inventory.states import NOT_OUT, HostState
from hostler.web.files import POLICY, read_files
from hostler.web.local import LocalServer
from hostler.web.upstream import AtUrl, Declined, Upstream

Get = Callable[..., Awaitable[tuple[int, str]]]


class Echo(Upstream):
    """An operator that answers with the path it was asked for, or says no."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.inner = AtUrl(session, url, self._token)
        self.asked: list[str] = []
        self.no: Declined | None = None

    async def _token(self) -> str:
        return "a-token"

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        self.asked.append(path)
        if self.no is not None:
            raise self.no
        async with self.inner.open(path) as response:
            yield response


def play(story: Callable[[LocalServer, Echo, Get], Awaitable[None]]) -> None:
    async def operator(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/hosts/guarded" and request.headers.get("X-Hostler-Token") != "a-token":
            return web.json_response({"reason": "NoCredential", "message": "Who asks?"}, status=401)
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Set-Cookie": "no"})
        await response.prepare(request)
        await response.write(b"first\n")
        if request.path == "/v1/hosts/stream":
            await asyncio.sleep(60)
        return response

    async def go() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", operator)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with aiohttp.ClientSession() as session:
            echo = Echo(session, f"http://127.0.0.1:{runner.addresses[0][1]}")
            server = LocalServer(echo)
            await server.start()

            async def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
                asked = session.request(method, URL(url, encoded=True), headers=headers)
                async with asked as answer:
                    return answer.status, await answer.text()

            try:
                await story(server, echo, get)
            finally:
                await server.stop()
        await runner.cleanup()

    asyncio.run(go())


def test_only_its_own_path_and_name_are_found() -> None:
    async def story(server: LocalServer, _: Echo, get: Get) -> None:
        root = server.url.rsplit("/", 2)[0]
        port = root.rpartition(":")[2]
        assert (await get(server.url))[0] == 200
        assert (await get(server.url, Host=f"localhost:{port}"))[0] == 200
        for host in ("evil.example.com", f"evil.example.com:{port}", "127.0.0.1", f"127.0.0.1.evil.example.com:{port}"):
            assert (await get(server.url, Host=host))[0] == 404, host
        for wrong in (f"{root}/", f"{root}/index.html", f"{root}/x/", f"{root}/v1/hosts", server.url.rstrip("/")):
            assert (await get(wrong))[0] == 404, wrong
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await get(f"{server.url}v1/hosts", method))[0] == 404, method

    play(story)


@pytest.mark.parametrize(
    "path",
    ["v1/config", "v1/status", "metrics", "v1/hosts/../config", "v1/hosts/%2e%2e/config", "v1/hosts/x/%2E%2e/%2e%2e/y",
     "v1//config", "page/../v1/hosts", "page/none.js", "%76%31/hosts", "//x"],
)  # fmt: skip
def test_nothing_is_asked_but_what_the_page_reads(path: str) -> None:
    async def story(server: LocalServer, echo: Echo, get: Get) -> None:
        assert (await get(server.url + path))[0] == 404
        assert echo.asked == []

    play(story)


def test_a_query_and_an_id_are_passed_on_as_they_are() -> None:
    async def story(server: LocalServer, echo: Echo, get: Get) -> None:
        for path in ("v1/hosts/vm%3Avc%2F50%2F1", "v1/history?host=a%2Fb&since=1.5", "v1/hosts/stream-of-names"):
            assert await get(server.url + path) == (200, "first\n")
            assert echo.asked[-1] == f"/{path}"

    play(story)


def test_a_stream_is_passed_on_while_it_lasts() -> None:
    async def story(server: LocalServer, _: Echo, __: Get) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{server.url}v1/hosts/stream") as answer,
            asyncio.timeout(30),
        ):
            assert await answer.content.readuntil(b"\n") == b"first\n"
            assert "Set-Cookie" not in answer.headers

    play(story)


def test_a_refusal_reaches_the_page_with_its_sentence() -> None:
    async def story(server: LocalServer, echo: Echo, get: Get) -> None:
        echo.no = Declined(403, "", "You may not read from the operator.")
        status, body = await get(f"{server.url}v1/hosts")
        assert status == 403
        assert "You may not read from the operator." in body

    play(story)


def test_a_token_is_brought_only_where_it_is_wanted() -> None:
    async def story(server: LocalServer, _: Echo, get: Get) -> None:
        assert await get(f"{server.url}v1/hosts/guarded") == (200, "first\n")

    play(story)


def test_a_port_that_is_taken_is_one_sentence() -> None:
    async def story(server: LocalServer, echo: Echo, _: Get) -> None:
        port = int(server.url.split(":")[2].partition("/")[0])
        with pytest.raises(Complaint, match="Cannot listen on"):
            await LocalServer(echo, port).start()

    play(story)


def test_the_page_loads_nothing_from_elsewhere_and_nothing_inline() -> None:
    files = read_files()
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    page = files["index.html"].body.decode()
    assert "<style" not in page
    assert " style=" not in page
    assert "onclick" not in page
    assert page.count("<script") == page.count('<script type="module" src="page/') == 1
    for name, file in files.items():
        text = file.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//cdn" not in text, name
        assert "http://" not in text, name
        assert "https://" not in text, name
        assert 'src="/' not in text, name
        assert 'href="/' not in text, name


def test_text_of_objects_never_becomes_html() -> None:
    for name, file in read_files().items():
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ):
            assert way not in file.body.decode(), (name, way)


def test_the_page_knows_every_state_in_the_operators_order() -> None:
    table = re.findall(
        r'^  \["([a-z ]+)", "(.)", "[a-z]+", (true|false)\],$', read_files()["states.js"].body.decode(), re.M
    )
    assert [name for name, _, _ in table] == [str(state) for state in HostState]
    assert len({letter for _, letter, _ in table}) == len(table)
    assert {name for name, _, out in table if out == "false"} == {str(state) for state in NOT_OUT}
