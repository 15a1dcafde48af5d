"""How `hostler web` reaches the operator: through the API server's proxy, or by a URL.

Answers are passed on as they come. The token of the reader is added here, so the browser never has it. It lasts ten
minutes and is made again in time.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from hostler.errors import Complaint, Exit
from hostler.explain.callers import TOKEN_HEADER, Refusal
from hostler.explain.client import (
    FAILURES,
    PORT_NAME,
    TOKEN_SECONDS,
    TRIES,
    Place,
    failure_of,
    find_service,
    request_token,
)
from hostler.explain.wire import LEADER_HEADER, NOT_LEADING, REASONS, Refused
from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.errors import ApiError, ServerError, Unreachable
from hostler.kube.kinds import SERVICE
from hostler.kube.transport import words_of

T = TypeVar("T")
# The operator sends something every 15 seconds, and says nothing for 25 to who polls.
TIMES = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=40)
AGAIN_SECONDS = 0.1  # between two replicas


class Declined(Exception):
    """The operator, or what is before it, says no: passed on to the page as it is."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class Upstream(ABC):
    @abstractmethod
    def open(self, path: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """An answer with a good status, to be read as it comes; else Declined."""


class Token:
    """The reader's token, made when it is wanted and again before it ends."""

    def __init__(self, make: Callable[[], Awaitable[str]], clock: Clock = boottime) -> None:
        self._make, self._clock = make, clock
        self._until, self._text = -1.0, ""
        self._making = asyncio.Lock()

    async def get(self) -> str:
        async with self._making:  # a page asks several things at once
            if self._clock() >= self._until:
                self._text = await self._make()
                self._until = self._clock() + 0.8 * TOKEN_SECONDS
            return self._text

    def forget(self) -> None:
        self._until = -1.0


class ThroughApiServer(Upstream):
    """To the replica that leads, by the way that the user's own rights allow."""

    def __init__(self, client: Client, place: Place) -> None:
        self._client, self._place = client, place
        self._token = Token(lambda: request_token(client, place.namespace))

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        service, unled = await self._declining(find_service(self._client, self._place))
        way = f"{SERVICE.path(self._place.namespace, service)}:{PORT_NAME}/proxy{path}"
        renewed, failures = False, 0
        for left in reversed(range(TRIES)):
            token = await self._declining(self._token.get())
            answered = self._client.stream(
                "GET", way, timeout=TIMES, headers={TOKEN_HEADER: token, LEADER_HEADER: "true", "Accept": "*/*"}
            )
            try:
                response = await answered.__aenter__()
            except ApiError as error:
                if error.reason == NOT_LEADING and left:
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                if error.reason == Refusal.BAD_CREDENTIAL and not renewed:
                    renewed = True
                    self._token.forget()
                    continue
                failures += 1
                if isinstance(error, ServerError) and error.reason not in REASONS and failures < FAILURES and left:
                    await asyncio.sleep(AGAIN_SECONDS)  # a pod that is on its way out may be chosen again
                    continue
                if error.reason in REASONS:
                    raise Declined(error.code or 502, error.reason, error.message) from error
                raise _declined(failure_of(error, self._place, service, unled)) from error
            except Unreachable as error:
                raise Declined(502, "", f"The API server does not answer: {error}.") from error
            try:
                yield response
            finally:
                await answered.__aexit__(None, None, None)
            return
        raise AssertionError("the last try raises")

    async def _declining(self, asked: Awaitable[T]) -> T:
        try:
            return await asked
        except Complaint as complaint:
            raise _declined(complaint) from complaint
        except ApiError as error:
            raise Declined(error.code or 502, "", f"The API server refused: {error}.") from error
        except Unreachable as error:
            raise Declined(502, "", f"The API server does not answer: {error}.") from error


class AtUrl(Upstream):
    """To an operator that the user named. It gets a token of the reader only if it asks for one."""

    def __init__(self, session: aiohttp.ClientSession, url: str, make_token: Callable[[], Awaitable[str]]) -> None:
        self._session, self._url = session, url
        self._token = Token(make_token)
        self._wanted = False

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        for _ in range(2):
            headers = {LEADER_HEADER: "true"}
            try:
                if self._wanted:
                    headers[TOKEN_HEADER] = await self._token.get()
                response = await self._session.get(
                    self._url + path, headers=headers, timeout=TIMES, allow_redirects=False
                )
            except Complaint as complaint:
                raise _declined(complaint) from complaint
            except (aiohttp.ClientError, TimeoutError, OSError, ApiError, Unreachable) as error:
                raise Declined(502, "", f"No operator answers at {self._url}: {words_of(error)}.") from error
            async with response:
                if response.status == 200:
                    yield response
                    return
                declined = await _read_refusal(response)
            if declined.reason not in (Refusal.NO_CREDENTIAL, Refusal.BAD_CREDENTIAL):
                break
            self._wanted = True
            self._token.forget()
        raise declined


async def _read_refusal(response: aiohttp.ClientResponse) -> Declined:
    try:
        refused = msgspec.json.decode(await response.read(), type=Refused)
    except (msgspec.MsgspecError, aiohttp.ClientError, TimeoutError):
        return Declined(response.status, "", f"What answers there is not an operator (HTTP {response.status}).")
    return Declined(response.status, refused.reason, refused.message)


def _declined(complaint: Complaint) -> Declined:
    status = 403 if complaint.code is Exit.REFUSED else 502
    return Declined(status, "", f"{complaint.sentence} {complaint.hint}".strip())
