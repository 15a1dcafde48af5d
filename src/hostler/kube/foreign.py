"""What went wrong with a server that another party runs, in our own text.

Its address comes from a kubeconfig that a tenant may write, so it can be any service that the operator reaches. What
such a service answers must not be readable in a condition or an Event: no body, no reason phrase, no bytes of a
protocol that is not HTTP. Only the status code and the kind of failure are ours to tell.
"""

from __future__ import annotations

import asyncio
import os

import aiohttp
import msgspec

from hostler.kube.errors import ApiError, SomethingElse, TooLarge, Unreachable

FAILURES = (ApiError, Unreachable, msgspec.MsgspecError)  # how asking such a server can fail
_BY_CODE = {
    401: "it does not accept the credentials of the kubeconfig",
    403: "the user of the kubeconfig may not do this",
    404: "there is no such object or kind",
    409: "another writer was first",
    422: "it finds the object invalid",
    429: "it asks for fewer requests",
}


def describe_failure(error: Exception) -> str:
    """The rest of a sentence. Nothing of the server's own text is in it."""
    match error:
        case ApiError(code=code):
            meaning = _BY_CODE.get(code, "it failed" if code >= 500 else "it refused the request")
            return f"it answered HTTP {code} ({meaning})"
        case SomethingElse():
            return "what answers at its address is not a Kubernetes API server"
        case TooLarge(limit=limit):
            return f"its answer is larger than {limit}"
        case Unreachable():
            return _describe_cause(error.__cause__)
    return "its answer cannot be read"


def _describe_cause(cause: BaseException | None) -> str:
    match cause:
        case None | asyncio.TimeoutError():
            return "no answer in time"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not trusted"
        case aiohttp.ClientSSLError():
            return "TLS could not be agreed on"
        case aiohttp.ClientConnectorDNSError():
            return "its host name does not resolve"
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) if number > 0:
            return f"it cannot be reached ({os.strerror(number)})"
        case aiohttp.ClientConnectorError() | OSError():
            return "it cannot be reached"
    return "what answers at its address does not speak HTTP as a Kubernetes API server does"
