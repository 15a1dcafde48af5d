"""Files over HTTP(S): asked about first, streamed to disk, resumed where they broke off, hashed, renamed when whole."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import urlsplit

from hostler.agent.host import sync_directory
from hostler.agent.refusal import Reason, Refusal, disk_refusal

CHUNK = 128 * 1024
TIMEOUT = 30.0
# What may pass is tried again for so long after a step began, and so often at least.
PATIENCE, ATTEMPTS = 2700.0, 6
LONGEST_PAUSE, LONGEST_ASKED = 30.0, 300.0  # the second where the server says itself when to come again
# Worth another try: the server or something before it is busy or restarting.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
Progress = Callable[[int], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Remote:
    """What a server says of a file before it is fetched. The size is None where it does not say."""

    size: int | None
    validator: str


@dataclass(frozen=True)
class Fetched:
    size: int
    sha256: str


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; HEAD stays HEAD, and a secret never goes to where a redirect points."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if req.get_method() not in ("GET", "HEAD"):
            return None
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise Refusal(
                Reason.DOWNLOAD_FAILED,
                f"{req.full_url} redirects to an address without TLS, where another server could answer.",
            )
        kept = {name: value for name, value in req.header_items() if name.lower() not in ("x-secret-key", "host")}
        return urllib.request.Request(newurl, headers=kept, method=req.get_method())

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302


class Web:
    """One way out: proxies of the environment, the given CA or the system's, http and https only."""

    def __init__(
        self,
        ca_file: str = "",
        pause: float = 1.0,
        *,
        origin: str = "",
        secret: Callable[[], str] = lambda: "",
        patience: float = PATIENCE,
        wait: Callable[[float], bool] = threading.Event().wait,
    ) -> None:
        """`secret` goes with requests to `origin` (the hub), and nowhere else. `wait` says whether to end instead."""
        self.pause, self._patience, self._wait = pause, patience, wait
        self._until = time.monotonic() + patience
        self._origin, self._secret = _origin(origin) if origin else None, secret
        self._opener = urllib.request.OpenerDirector()
        try:
            # A named bundle is all that is trusted; the system's is not read then, which also saves its memory.
            context = ssl.create_default_context(cafile=ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise Refusal(Reason.UNTRUSTED_CERTIFICATE, f"The CA file {ca_file} cannot be read: {error}.") from error
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=context),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.UnknownHandler(),
            _Redirects(),
        ):
            self._opener.add_handler(handler)

    def begin(self) -> None:
        """A step begins: from now on what may pass is waited for."""
        self._until = time.monotonic() + self._patience

    def open(self, request: urllib.request.Request, seconds: float = TIMEOUT) -> http.client.HTTPResponse:
        answer = self._opener.open(request, timeout=seconds)
        assert isinstance(answer, http.client.HTTPResponse)
        return answer

    def look(self, url: str) -> Remote:
        """Ask how large the file is without fetching it; a server that knows no HEAD is asked by GET."""
        check_url(url)

        def ask(method: str) -> Remote:
            with self.open(self._request(url, method)) as answer:
                return _remote(answer.headers)

        def ask_either() -> Remote:
            try:
                return ask("HEAD")
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in (405, 501):
                    raise
                return ask("GET")

        return self._patiently(url, ask_either)

    def download(
        self, url: str, place: Path, sha256: str = "", progress: Progress = lambda done: None, most: int | None = None
    ) -> Fetched:
        """The file is whole at `place` after this, hashed and on disk. What was fetched before is gone on with.

        `most`: so many bytes were announced, and there is room for them; more are not taken.
        """

        def room(done: int) -> None:
            if most is not None and done > most:
                raise Refusal(Reason.DOWNLOAD_FAILED, f"{url} goes on after the {most} bytes that were announced.")
            progress(done)

        check_url(url)
        part, note = place.with_name(f"{place.name}.part"), place.with_name(f"{place.name}.part.json")
        with _disk(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            self._patiently(url, lambda: self._stream(url, part, note, room))
            found = measure(part)
            if sha256 and found.sha256 != sha256.lower():
                part.unlink(missing_ok=True)
                raise Refusal(
                    Reason.WRONG_HASH,
                    f"{url} has sha256 {found.sha256}, but {sha256.lower()} was announced; it was not kept.",
                )
            os.replace(part, place)
            note.unlink(missing_ok=True)
            sync_directory(place.parent)
        return found

    def _stream(self, url: str, part: Path, note: Path, progress: Progress) -> None:
        """One connection: from where the last one broke off if the file is still the same one, else from the start."""
        validator = _noted(note, url)
        have = part.stat().st_size if part.exists() and validator else 0
        request = self._request(url, "GET")
        if have:
            request.add_header("Range", f"bytes={have}-")
            request.add_header("If-Range", validator)
        try:
            answer = self.open(request)
        except urllib.error.HTTPError as error:
            if error.code == 416 and have:  # nothing is left to send, or the file shrank: start again
                error.close()
                note.unlink(missing_ok=True)
                raise ConnectionError("the server did not go on from where it broke off") from error
            raise
        with answer:
            told = _remote(answer.headers)
            expected = told.size
            resumed = answer.status == 206 and _starts_at(answer.headers, have)
            # Servers that do not know If-Range, or not with an ETag, go on with whatever is there now.
            if answer.status == 206 and (not resumed or told.validator not in ("", validator)):
                note.unlink(missing_ok=True)
                raise ConnectionError("the server answered with another piece than was asked for")
            with _disk(note):
                note.write_text(json.dumps({"url": url, "validator": told.validator}))
            total = have if resumed else 0
            got = _copy(answer, part, total, progress)
            if expected is not None and got - total != expected:
                raise ConnectionError(f"{got - total} of {expected} bytes came")

    def _request(self, url: str, method: str) -> urllib.request.Request:
        ours = self._origin and _origin(url) == self._origin
        return urllib.request.Request(url, headers={"X-Secret-Key": self._secret()} if ours else {}, method=method)

    def _patiently(self, url: str, once: Callable[[], T]) -> T:
        """Try again after what may pass, waiting longer each time; what will not pass is refused at once."""
        attempt = 0
        while True:
            asked = 0.0
            try:
                return once()
            except urllib.error.HTTPError as error:
                asked = _asked(error.headers)
                error.close()
                said = f"{url} answered HTTP {error.code}"
                if error.code not in PASSING:
                    raise Refusal(
                        Reason.ARTIFACTS_UNAVAILABLE, f"{said}; check the InfraEnv's boot artifacts."
                    ) from error
            except (http.client.HTTPException, urllib.error.URLError, OSError) as error:
                cause = error.reason if isinstance(error, urllib.error.URLError) else error
                if isinstance(cause, ssl.SSLCertVerificationError):
                    raise Refusal(
                        Reason.UNTRUSTED_CERTIFICATE,
                        f"The certificate of {url} is not trusted ({cause.verify_message}); check HUB_CA.",
                    ) from error
                said = f"{url} broke off: {_describe(cause)}"
            pause = max(asked, min(LONGEST_PAUSE, self.pause * 2 ** min(attempt, 10)) * random.uniform(0.75, 1.25))  # nosec B311 # jitter
            attempt += 1
            if attempt >= ATTEMPTS and time.monotonic() + pause > self._until:
                raise Refusal(Reason.DOWNLOAD_FAILED, f"{said} ({attempt} attempts).")
            if self._wait(pause):
                raise Refusal(Reason.DOWNLOAD_FAILED, "The agent was told to end.")


def _describe(cause: object) -> str:
    """In our own text and those of the system: the text of the others can have what a server or a proxy sent."""
    if isinstance(cause, http.client.HTTPException):
        return f"it does not speak HTTP ({type(cause).__name__})"
    if isinstance(cause, ConnectionError | TimeoutError):  # those without a number are ours
        return cause.strerror or str(cause) or type(cause).__name__
    return (cause.strerror if isinstance(cause, OSError) else "") or type(cause).__name__


def _asked(headers: Message) -> float:
    """After how many seconds the server wants to be asked again; 0 where it does not say, or says it as a date."""
    said = (headers.get("Retry-After") or "").strip()
    return min(LONGEST_ASKED, float(said)) if said.isascii() and said.isdigit() else 0.0


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def check_url(url: str) -> None:
    """Only whole http and https addresses; no file:, no names and passwords in them, nothing a header could end at."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        _ = parts.port
    except ValueError:
        good = False
    if not good or any(character <= " " or character == "\x7f" for character in url):
        shown = re.split(r"[?#]", url)[0]  # a blank may stand in what follows
        raise Refusal(Reason.BAD_ARGUMENTS, f"{shown!r} is not an http or https address.")


def measure(place: Path) -> Fetched:
    """Size and sha256 of what is on disk, read again."""
    digest = hashlib.sha256()
    size = 0
    with open(place, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Fetched(size, digest.hexdigest())


def _copy(answer: http.client.HTTPResponse, part: Path, have: int, progress: Progress) -> int:
    """The body to disk; returns the file's size. Trouble of the disk is told apart from trouble of the network."""
    got = have
    with _disk(part), open(part, "ab" if have else "wb") as file:
        try:
            while chunk := _read(answer):
                got += len(chunk)
                progress(got)  # before it is written: it may be more than there is room for
                file.write(chunk)
        finally:
            file.flush()
            os.fsync(file.fileno())
    return got


class _NetworkBroke(Exception):
    """Carries an error of the network past the handler of disk errors."""


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _NetworkBroke(error) from error


@contextmanager
def _disk(place: Path) -> Iterator[None]:
    try:
        yield
    except _NetworkBroke as broke:
        raise ConnectionError(str(broke.args[0]) or type(broke.args[0]).__name__) from broke
    except OSError as error:
        raise disk_refusal(error, f"{place.name} could not be written") from error


def _remote(headers: Message) -> Remote:
    size = headers.get("Content-Length") or ""
    # A weak validator is not enough to put two pieces together.
    tag = headers.get("ETag") or ""
    validator = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified") or ""
    return Remote(int(size) if re.fullmatch(r"[0-9]{1,18}", size) else None, validator)


def _starts_at(headers: Message, offset: int) -> bool:
    return (headers.get("Content-Range") or "").startswith(f"bytes {offset}-")


def _noted(note: Path, url: str) -> str:
    """The validator of the part on disk, if it is of this address."""
    try:
        found = json.loads(note.read_text())
        return str(found["validator"]) if found["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
