"""What the API server can answer, as types. Callers match on the type, never on the text."""

from __future__ import annotations

import math
from typing import Any

import msgspec

# Seconds. Who asks us to stay away for longer (or for no number at all) has made a mistake, and is asked again then.
LONGEST_WAIT = 300.0
# Characters of a server's own sentence that go any further, into a log for example.
LONGEST_MESSAGE = 4096


class ApiError(Exception):
    """The API server refused. `message` and `reason` are its own."""

    def __init__(
        self, code: int, reason: str, message: str, *, retry_after: float | None = None, details: Any = None
    ) -> None:
        super().__init__(message or reason or f"HTTP {code}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.details = details if isinstance(details, dict) else {}

    @property
    def causes(self) -> list[dict[str, str]]:
        """For example the PodDisruptionBudget that refused an eviction."""
        found = self.details.get("causes")
        return [cause for cause in found if isinstance(cause, dict)] if isinstance(found, list) else []


class BadRequest(ApiError):
    """400: we sent something the server does not understand."""


class Unauthorized(ApiError):
    """401: it does not know who we are; a token has expired or is wrong."""


class Forbidden(ApiError):
    """403: it knows us, and we may not."""


class NotFound(ApiError):
    """404: no such object, or no such resource (a CRD that is not installed)."""


class Conflict(ApiError):
    """409: another client wrote first (resourceVersion), or another field manager owns the field."""


class AlreadyExists(Conflict):
    """409 on create."""


class Gone(ApiError):
    """410: the version asked for is no longer kept; list again."""


class Invalid(ApiError):
    """422: the object breaks its schema or a rule."""


class TooManyRequests(ApiError):
    """429: the server's flow control, or on an eviction a PodDisruptionBudget."""


class ServerError(ApiError):
    """5xx: it tried and failed; may be worth another try."""


class Unreachable(Exception):
    """No answer at all: refused, cut, timed out, wrong certificate. Whether a write arrived is unknown."""


class SomethingElse(Unreachable):
    """What answered is no API server: a load balancer without a backend, a proxy's page, a login portal."""


class TooLarge(Unreachable):
    """A server that another party runs sends more than we take. `limit` names what it may send, as a noun."""

    def __init__(self, server: str, limit: str) -> None:
        super().__init__(f"{server} sends an answer of more than {limit}")
        self.limit = limit


class WriteRefused(Exception):
    """A write was not sent because we must not write now. `why` is a sentence for users."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict,
    410: Gone, 422: Invalid, 429: TooManyRequests,
}  # fmt: skip


class Status(msgspec.Struct):
    """The body of every refusal (and of an ERROR line in a watch)."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Any = None


_STATUS = msgspec.json.Decoder(Status)


def from_status(status: Status, *, retry_after: float | None = None) -> ApiError:
    """The typed error for a Status object."""
    cls = _BY_CODE.get(status.code, ServerError if status.code >= 500 else ApiError)
    if cls is Conflict and status.reason == "AlreadyExists":
        cls = AlreadyExists
    if retry_after is None and isinstance(status.details, dict):
        seconds = status.details.get("retryAfterSeconds")
        retry_after = float(min(seconds, LONGEST_WAIT)) if isinstance(seconds, (int, float)) else None
    if retry_after is not None:
        retry_after = min(retry_after, LONGEST_WAIT) if math.isfinite(retry_after) and retry_after > 0 else None
    message = status.message[:LONGEST_MESSAGE]
    return cls(status.code, status.reason[:LONGEST_MESSAGE], message, retry_after=retry_after, details=status.details)


# What every API server serves: there, an object is missing or another server has answered.
EVERYWHERE = (
    "/api/v1/", "/apis/apps/v1/", "/apis/policy/v1/", "/apis/coordination.k8s.io/v1/", "/apis/apiextensions.k8s.io/v1/",
)  # fmt: skip


def is_foreign(error: ApiError, body: bytes, path: str) -> bool:
    """Whether a 404 is not from Kubernetes: believed, it would mean an empty cluster, or that a running pod is gone.

    An API server gives its reason for an object that is not there, and these very words for a kind it does not serve.
    (Others written in Go have the same words; whether a kind is served is for `kube.discovery` to find out.)
    """
    if error.code != 404 or error.reason:
        return False
    return body.strip() != b"404 page not found" or path.startswith(EVERYWHERE)


def from_response(code: int, body: bytes, retry_after: str | None) -> ApiError:
    """The typed error for a response; a body that is not a Status (a proxy's page) is quoted, cut short."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        status = Status(message=body[:200].decode(errors="replace").strip())
    status.code = code
    try:
        seconds = float(retry_after) if retry_after else None
    except ValueError:
        seconds = None
    return from_status(status, retry_after=seconds)
