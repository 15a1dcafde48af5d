"""The page behind an Ingress: a bearer token logs in, a cookie is the session. Off unless HOSTLER_WEB_AUTH says so.

The cookie holds the token, encrypted and authenticated with a key that all replicas have, so any replica opens it and
nothing is stored. Whose token it is and what its user may see is asked of the API server at the login, and again every
minute. No route redirects, none changes anything but the cookie, and that only for a request of this very site.
"""

from __future__ import annotations

import os
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hostler.errors import Complaint, Exit
from hostler.explain.authentication import Authenticator
from hostler.explain.callers import (
    OPEN_PATHS,
    TOKEN_HEADER,
    Refusal,
    address_of,
)
from hostler.explain.read_api import Refusals, answer, answer_not_leading
from hostler.explain.wire import Refused
from hostler.kube.http import Admit, Server
from hostler.web.files import READABLE

SESSION = "/v1/session"
COOKIE = "__Host-hostler"  # the prefix: browsers take it only if Secure, for this very host, and for every path
SECONDS = 3600
PAGE_HEADER = "X-Hostler-Page"  # sent by the page, which can show the form
LONGEST_COOKIE = 4096  # what browsers keep
SMALLEST_KEY = 32
NONCE = 12
PUBLIC = re.compile(r"/|/page/[a-z.]+")


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the form sends."""

    token: str


class Sessions:
    """Seals a token for an hour. What was changed, is too old or was sealed with another key opens to None."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._box, self._clock = AESGCM(sha256(b"hostler web session\0" + key).digest()), clock

    def seal(self, token: str) -> str:
        nonce, until = os.urandom(NONCE), int(self._clock()) + SECONDS
        return urlsafe_b64encode(nonce + self._box.encrypt(nonce, f"{until} {token}".encode(), None)).decode()

    def open(self, sealed: str) -> str | None:
        if len(sealed) > LONGEST_COOKIE:
            return None
        try:
            raw = urlsafe_b64decode(sealed.encode("ascii"))
            until, _, token = self._box.decrypt(raw[:NONCE], raw[NONCE:], None).decode().partition(" ")
        except (ValueError, InvalidTag):  # a UnicodeError is a ValueError
            return None
        return token if int(until) > self._clock() else None


def read_key(path: str) -> bytes:
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise Complaint(f"HOSTLER_WEB_KEY_FILE: {path} cannot be read: {error.strerror}.", code=Exit.SETTING) from error
    if len(key) < SMALLEST_KEY:
        raise Complaint(
            f"HOSTLER_WEB_KEY_FILE: {path} has {len(key)} bytes, and a key has at least {SMALLEST_KEY}.",
            hint="Make one: openssl rand -hex 32",
            code=Exit.SETTING,
        )
    return key


class WebLogin:
    """`admit` is what all others go through. Whoever brings a token of their own is judged by that."""

    def __init__(
        self,
        authenticator: Authenticator,
        sessions: Sessions,
        admit: Admit,
        refusals: Refusals,
        leadership: Callable[[], str | None],
    ) -> None:
        self._authenticator, self._sessions, self._others = authenticator, sessions, admit
        self._refusals, self._leadership = refusals, leadership

    def mount(self, server: Server) -> None:
        server.add_post(SESSION, self._begin)
        server.add_delete(SESSION, self._end)

    async def admit(self, request: web.Request) -> web.StreamResponse | None:
        path = request.path
        if request.method in ("POST", "DELETE"):
            return None if path == SESSION and is_same_site(request) else self._refusals.answer(Refusal.NO_SESSION)
        if PUBLIC.fullmatch(path):
            return None  # the page without a host in it
        sealed = request.cookies.get(COOKIE)
        own = TOKEN_HEADER in request.headers or "Authorization" in request.headers or path in OPEN_PATHS
        if own or not READABLE.fullmatch(path):
            return await self._others(request)
        if sealed is None:
            if PAGE_HEADER not in request.headers:
                return await self._others(request)
            if await self._authenticator.refuse_request(request) is None:  # over loopback nothing is needed
                return answer_not_leading(request, self._leadership)
            return self._refusals.answer(Refusal.NO_SESSION)
        token = self._sessions.open(sealed)
        refusal = Refusal.NO_SESSION if token is None else await self._judge(request, token)
        return answer_not_leading(request, self._leadership) if refusal is None else self._refusals.answer(refusal)

    async def _judge(self, request: web.Request, token: str) -> Refusal | None:
        peer = address_of(request.transport.get_extra_info("peername") if request.transport else None)
        return await self._authenticator.refuse_session(token, peer)

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        try:
            token = msgspec.json.decode(await request.read(), type=Login).token.strip()
        except msgspec.MsgspecError:
            return self._refusals.answer(Refusal.BAD_CREDENTIAL)
        if (refusal := await self._judge(request, token)) is not None:
            return self._refusals.answer(refusal)
        sealed = self._sessions.seal(token)
        if len(sealed) > LONGEST_COOKIE - 200:  # with its name and attributes
            return answer(
                Refused(Refusal.BAD_CREDENTIAL, "This token is too long for a session; use one of a ServiceAccount."),
                status=401,
            )
        response = web.Response(status=204)
        _set(response, sealed, SECONDS)
        return response

    async def _end(self, _: web.Request) -> web.StreamResponse:
        response = web.Response(status=204)
        _set(response, "", 0)
        return response


def is_same_site(request: web.Request) -> bool:
    """Whether the page itself asks: another site must log nobody in or out."""
    if (site := request.headers.get("Sec-Fetch-Site")) is not None:
        return site == "same-origin"
    return urlsplit(request.headers.get("Origin", "")).netloc == request.headers.get("Host", "-")


def _set(response: web.Response, value: str, seconds: int) -> None:
    response.set_cookie(COOKIE, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="Strict")
