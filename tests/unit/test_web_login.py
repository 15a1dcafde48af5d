"""The page behind an Ingress: who logs in, what the session opens, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from hostler.errors import Complaint
from hostler.explain.authentication import ADDRESS_BURST, GOOD_SECONDS, PICTURE, Authenticator
from hostler.explain.read_api import Refusals, admission
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics
from hostler.web.files import Page
from hostler.web.login import COOKIE, PAGE_HEADER, SECONDS, Sessions, WebLogin, read_key
from tests.unit.answering import answering

KEY = b"k" * 32
OURS = {"Sec-Fetch-Site": "same-origin"}
FORWARDED = {"X-Forwarded-For": "203.0.113.7"}  # so that loopback opens nothing


@dataclass
class Cluster:
    """What the API server says. `now` is every clock of the operator."""

    users: dict[str, str] = field(default_factory=lambda: {"good": "ann", "weak": "bob"})
    allowed: set[str] = field(default_factory=lambda: {"ann"})
    now: float = 1000.0
    asked: list[dict[str, Any]] = field(default_factory=list)
    follows: str | None = None

    async def review(self, request: web.Request) -> web.StreamResponse:
        spec = (await request.json())["spec"]
        self.asked.append(spec)
        if "token" in spec:
            name = self.users.get(spec["token"])
            return web.json_response({"status": {"authenticated": bool(name), "user": {"username": name or ""}}})
        assert {"resourceAttributes": spec["resourceAttributes"]} == PICTURE
        return web.json_response({"status": {"allowed": spec["user"] in self.allowed}})


Ask = Callable[..., Awaitable[tuple[int, str]]]


def play(story: Callable[[Cluster, Ask], Awaitable[None]]) -> None:
    async def hosts(_: web.Request) -> web.Response:
        return web.Response(text="hosts")

    async def go() -> None:
        cluster = Cluster()
        async with answering(cluster.review) as client:
            authenticator = Authenticator(client, "reader", metrics_open=False, clock=lambda: cluster.now)
            refusals = Refusals(CollectorRegistry())
            others = admission(authenticator, lambda: cluster.follows, refusals)
            sessions = Sessions(KEY, lambda: cluster.now)
            login = WebLogin(authenticator, sessions, others, refusals, lambda: cluster.follows)
            server = Server("127.0.0.1", 0, Metrics(), admit=login.admit)
            login.mount(server)
            Page().mount(server)
            for path in ("/v1/hosts", "/v1/config"):
                server.add_get(path, hosts)
            await server.start()
            jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=server.url)
            try:
                async with aiohttp.ClientSession(cookie_jar=jar, headers=FORWARDED) as session:

                    async def ask(method: str, path: str, *, page: bool = True, **more: Any) -> tuple[int, str]:
                        if page:
                            more["headers"] = {PAGE_HEADER: "true", **more.get("headers", {})}
                        async with session.request(method, server.url + path, allow_redirects=False, **more) as found:
                            ask.cookie = found.headers.get("Set-Cookie", "")  # type: ignore[attr-defined]
                            body = await found.text()
                            is_json = found.status >= 400 and found.content_type == "application/json"
                            return found.status, (await found.json())["reason"] if is_json else body

                    await story(cluster, ask)
            finally:
                await server.stop()

    asyncio.run(go())


async def log_in(ask: Ask, token: str, **headers: str) -> tuple[int, str]:
    return await ask("POST", "/v1/session", json={"token": token}, headers=headers or OURS)


def test_a_login_opens_the_picture_and_nothing_else() -> None:
    async def story(_: Cluster, ask: Ask) -> None:
        assert (await ask("GET", "/"))[0] == 200
        assert (await ask("GET", "/page/main.js"))[0] == 200
        assert await ask("GET", "/v1/hosts") == (401, "NoSession")
        assert (await log_in(ask, "good"))[0] == 204
        cookie = ask.cookie  # type: ignore[attr-defined]
        for part in (f"{COOKIE}=", "HttpOnly", "Secure", "SameSite=Strict", "Path=/", f"Max-Age={SECONDS}"):
            assert part in cookie
        assert "good" not in cookie
        assert await ask("GET", "/v1/hosts") == (200, "hosts")
        assert await ask("GET", "/v1/config") == (401, "NoCredential")
        assert await ask("GET", "/metrics") == (401, "NoCredential")
        assert (await ask("DELETE", "/v1/session", headers=OURS))[0] == 204
        assert await ask("GET", "/v1/hosts") == (401, "NoSession")

    play(story)


@pytest.mark.parametrize(("token", "answer"), [("weak", (403, "NoPicture")), ("wrong", (401, "BadCredential"))])
def test_who_may_not_see_gets_no_session(token: str, answer: tuple[int, str]) -> None:
    async def story(_: Cluster, ask: Ask) -> None:
        assert await log_in(ask, token) == answer
        assert ask.cookie == ""  # type: ignore[attr-defined]
        assert await ask("GET", "/v1/hosts") == (401, "NoSession")

    play(story)


@pytest.mark.parametrize("withdrawn", ["token", "right"])
def test_what_is_withdrawn_ends_the_session_within_a_minute(withdrawn: str) -> None:
    async def story(cluster: Cluster, ask: Ask) -> None:
        await log_in(ask, "good")
        if withdrawn == "token":
            del cluster.users["good"]
        else:
            cluster.allowed.clear()
        cluster.now += GOOD_SECONDS
        assert (await ask("GET", "/v1/hosts"))[0] in (401, 403)

    play(story)


def test_a_session_ends_after_an_hour() -> None:
    async def story(cluster: Cluster, ask: Ask) -> None:
        await log_in(ask, "good")
        cluster.now += SECONDS - 1
        assert (await ask("GET", "/v1/hosts"))[0] == 200
        cluster.now += 1
        assert await ask("GET", "/v1/hosts") == (401, "NoSession")

    play(story)


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"},
     {"Origin": "https://evil.example.com"}, {"X-Nothing": "1"}, {"Origin": "null"}],
)  # fmt: skip
def test_another_site_logs_nobody_in_or_out(headers: dict[str, str]) -> None:
    async def story(cluster: Cluster, ask: Ask) -> None:
        assert (await log_in(ask, "good", **headers))[0] == 401
        assert cluster.asked == []
        await log_in(ask, "good")
        assert (await ask("DELETE", "/v1/session", headers=headers))[0] == 401
        assert (await ask("GET", "/v1/hosts"))[0] == 200

    play(story)


def test_guesses_are_throttled_and_reach_nobody() -> None:
    async def story(cluster: Cluster, ask: Ask) -> None:
        said = [(await log_in(ask, f"guess-{number}"))[1] for number in range(ADDRESS_BURST + 10)]
        assert said == ["BadCredential"] * ADDRESS_BURST + ["TooManyAttempts"] * 10
        assert len(cluster.asked) == ADDRESS_BURST

    play(story)


def test_a_cookie_of_a_stranger_opens_nothing() -> None:
    async def story(cluster: Cluster, ask: Ask) -> None:
        for value in ("", "x", "A" * 5000, Sessions(b"another" * 8, lambda: cluster.now).seal("good"), "\xff"):
            status, reason = await ask("GET", "/v1/hosts", headers={"Cookie": f"{COOKIE}={value}"})
            assert (status, reason) == (401, "NoSession"), value
        assert cluster.asked == []

    play(story)


def test_a_replica_that_follows_sends_the_page_to_the_leader() -> None:
    async def story(cluster: Cluster, ask: Ask) -> None:
        await log_in(ask, "good")
        cluster.follows = "the lease is held by pod-1"
        assert (await ask("GET", "/v1/hosts", headers={"X-Hostler-Leader": "true"}))[0] == 421

    play(story)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"token": 1}', b'{"token":"good","to":"http://x"}', b"\xff"])
def test_what_is_no_login_is_refused(body: bytes) -> None:
    async def story(cluster: Cluster, ask: Ask) -> None:
        assert await ask("POST", "/v1/session", data=body, headers=OURS) == (401, "BadCredential")
        assert cluster.asked == []

    play(story)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=500), st.data())
def test_a_changed_session_is_none(token: str, data: st.DataObject) -> None:
    sessions = Sessions(KEY, lambda: 1000.0)
    sealed = sessions.seal(token)
    assert sessions.open(sealed) == token
    place = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_=."))
    changed = sealed[:place] + other + sealed[place + 1 :]
    assert sessions.open(changed) in (None, token)
    assert (
        changed == sealed or sessions.open(changed) is None or place >= len(sealed) - 3
    )  # bits that base64 leaves out


@pytest.mark.parametrize("content", [None, b"", b"short", b" " * 100])
def test_a_key_that_is_missing_or_short_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Complaint, match="HOSTLER_WEB_KEY_FILE"):
        read_key(str(path))


def test_a_command_without_a_token_is_asked_for_one_not_to_log_in() -> None:
    async def story(_: Cluster, ask: Ask) -> None:
        assert await ask("GET", "/v1/hosts", page=False) == (401, "NoCredential")

    play(story)
