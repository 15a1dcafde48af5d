"""First contact, with real TLS servers and real certificates: each reason for a no has its own sentence."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from hostler.errors import Complaint, Exit
from hostler.kube.client import Client
from hostler.kube.config import check, load
from tests.unit.kube_pki import Authority, Pair

OURS, THEIRS = Authority("ours"), Authority("theirs")
GOOD = OURS.issue("server", "127.0.0.1", "localhost")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def friendly(request: web.Request) -> web.StreamResponse:
    if request.path == "/version":
        return web.json_response({"gitVersion": "v1.37.1"})
    return web.json_response({"status": {"userInfo": {"username": "someone"}}}, status=201)


@asynccontextmanager
async def serve(folder: Path, pair: Pair | None, answer: Answer = friendly) -> AsyncIterator[int]:
    """A real server on loopback; its port."""
    tls = None
    if pair is not None:
        (folder / "server.pem").write_bytes(pair.certificate + pair.key)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "server.pem")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def kubeconfig(folder: Path, server: str, user: dict[str, Any] | None = None, **cluster: Any) -> str:
    authority = base64.b64encode(OURS.certificate).decode()
    fields = {"server": server, "certificate-authority-data": authority, **cluster}
    content = {
        "clusters": [{"name": "c", "cluster": {name: value for name, value in fields.items() if value is not None}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def contact(path: str) -> str:
    async def go() -> str:
        async with Client(load(path, None), timeout=5) as client:
            found = await check(client)
            return f"{found} as {found.user}"

    return asyncio.run(go())


def meet(
    folder: Path,
    pair: Pair | None = GOOD,
    answer: Answer = friendly,
    *,
    scheme: str = "https",
    host: str = "127.0.0.1",
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
) -> str:
    """Serve, connect, and say what came of it."""

    async def go() -> str:
        async with serve(folder, pair, answer) as port:
            connection = load(kubeconfig(folder, f"{scheme}://{host}:{port}", user, **(cluster or {})), None)
            async with Client(connection, timeout=5) as client:
                found = await check(client)
                return f"{found} as {found.user}"

    return asyncio.run(go())


def refused(*args: Any, code: Exit = Exit.UNREACHABLE, **kwargs: Any) -> str:
    with pytest.raises(Complaint) as caught:
        meet(*args, **kwargs)
    assert caught.value.code is code
    assert caught.value.sentence.endswith(".")
    return str(caught.value)


def test_all_is_well(tmp_path: Path) -> None:
    assert meet(tmp_path) == "v1.37.1 as someone"


def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    mine = OURS.issue("me")
    seen = []

    async def look(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        seen.append(request.transport.get_extra_info("peercert"))
        return await friendly(request)

    async def go() -> None:
        (tmp_path / "server.pem").write_bytes(GOOD.certificate + GOOD.key)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tmp_path / "server.pem")
        tls.load_verify_locations(cadata=OURS.certificate.decode())
        tls.verify_mode = ssl.CERT_REQUIRED
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", look)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        user = {
            "client-certificate-data": base64.b64encode(mine.certificate).decode(),
            "client-key-data": base64.b64encode(mine.key).decode(),
        }
        path = kubeconfig(tmp_path, f"https://127.0.0.1:{runner.addresses[0][1]}", user)
        async with Client(load(path, None)) as client:
            await check(client)
        await runner.cleanup()

    asyncio.run(go())
    assert seen[0]["subject"] == ((("commonName", "me"),),)


def test_another_authority(tmp_path: Path) -> None:
    said = refused(tmp_path, THEIRS.issue("server", "127.0.0.1"))
    assert "shows a certificate that the CA in" in said
    assert f"{tmp_path}/config (--kubeconfig), context 'x' did not sign" in said


def test_another_name(tmp_path: Path) -> None:
    said = refused(tmp_path, OURS.issue("server", "api.example.com"))
    assert "shows a certificate for another name" in said
    assert "tls-server-name" in said


def test_a_name_given_for_tls(tmp_path: Path) -> None:
    served = OURS.issue("server", "api.example.com")
    assert meet(tmp_path, served, cluster={"tls-server-name": "api.example.com"}).startswith("v1.37.1")
    assert "(tls-server-name other)" in refused(tmp_path, served, cluster={"tls-server-name": "other"})


def test_an_expired_server_certificate(tmp_path: Path) -> None:
    assert "a certificate that has expired" in refused(tmp_path, OURS.issue("s", "127.0.0.1", days=(-9, -1)))
    assert "is not valid yet" in refused(tmp_path, OURS.issue("s", "127.0.0.1", days=(1, 9)))


def test_not_verified_when_told_so(tmp_path: Path) -> None:
    fields = {"certificate-authority-data": None, "insecure-skip-tls-verify": True}
    assert meet(tmp_path, THEIRS.issue("s", "x"), cluster=fields).startswith("v1.37.1")


def test_tls_where_there_is_none_and_none_where_there_is(tmp_path: Path) -> None:
    assert "does not speak TLS" in refused(tmp_path, None)
    assert meet(tmp_path, None, scheme="http").startswith("v1.37.1")


def test_nothing_listens(tmp_path: Path) -> None:
    with pytest.raises(Complaint, match="nothing listens there") as caught:
        contact(kubeconfig(tmp_path, "https://127.0.0.1:1"))
    assert caught.value.code is Exit.UNREACHABLE


def test_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(Complaint, match="cannot be resolved"):
        contact(kubeconfig(tmp_path, "https://no-such-host.invalid"))


def test_it_never_answers(tmp_path: Path) -> None:
    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    async def go() -> None:
        async with serve(tmp_path, GOOD, silent) as port:
            connection = load(kubeconfig(tmp_path, f"https://127.0.0.1:{port}"), None)
            async with Client(connection, timeout=0.5) as client:
                await check(client)

    with pytest.raises(Complaint, match="does not answer"):
        asyncio.run(go())


def test_a_broken_proxy(tmp_path: Path) -> None:
    said = refused(tmp_path, cluster={"proxy-url": "http://127.0.0.1:1"})
    assert "the proxy http://127.0.0.1:1 on the way" in said


def jwt(**claims: Any) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.sig"


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (jwt(exp=time.time() - 3600), "the token expired on 20"),
        (jwt(exp=time.time() + 3600), "the token or certificate is wrong or expired"),
        ("plain", "the token or certificate is wrong or expired"),
        ("a.b.c", "the token or certificate is wrong or expired"),
    ],
    ids=["expired", "not expired", "no jwt", "not json"],
)
def test_credentials_it_does_not_know(tmp_path: Path, token: str, words: str) -> None:
    async def stranger(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)

    said = refused(tmp_path, answer=stranger, user={"token": token}, code=Exit.REFUSED)
    assert words in said
    assert "does not accept the credentials of user 'u'" in said
    assert token not in said


def test_no_credentials_at_all(tmp_path: Path) -> None:
    async def open_house(request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return await friendly(request)
        return web.json_response({"status": {"userInfo": {"username": "system:anonymous"}}})

    said = refused(tmp_path, answer=open_house, user={"as": ""}, code=Exit.REFUSED)
    assert "takes us for anonymous" in said


@pytest.mark.parametrize(
    ("status", "body", "words", "code"),
    [
        (200, "<html>Welcome</html>", "is not a Kubernetes API server", Exit.UNREACHABLE),
        (200, "{}", "names no version", Exit.UNREACHABLE),
        (302, "", "it redirects (HTTP 302)", Exit.UNREACHABLE),
        (404, "404 page not found\n", "it has no /version", Exit.UNREACHABLE),
        (404, "default backend - 404", "it has no /version", Exit.UNREACHABLE),
        (503, "starting", "is in trouble: HTTP 503 starting", Exit.UNREACHABLE),
        (400, "Client sent an HTTP request to an HTTPS server.", "wants TLS", Exit.UNREACHABLE),
        (403, '{"message": "no entry"}', "refuses: no entry", Exit.REFUSED),
    ],
)
def test_something_else_answers(tmp_path: Path, status: int, body: str, words: str, code: Exit) -> None:
    async def other(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body)

    assert words in refused(tmp_path, answer=other, code=code)


def test_an_older_server_that_cannot_say_who_we_are(tmp_path: Path) -> None:
    async def old(request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return await friendly(request)
        return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)

    assert meet(tmp_path, answer=old) == "v1.37.1 as "
