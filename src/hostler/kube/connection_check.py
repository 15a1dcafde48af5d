"""First contact with an API server: is it there, is it the right one, does it know us. A sentence for each failure."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import structlog

from hostler.errors import Complaint, Exit
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Forbidden, NotFound, SomethingElse, Unauthorized, Unreachable
from hostler.kube.kinds import NAMESPACE, SELF_REVIEW
from hostler.kube.records import Object

log = structlog.get_logger("hostler.kube")

ANONYMOUS = "system:anonymous"
# OpenSSL's verify codes (X509_V_ERR_...)
_UNTRUSTED = (18, 19, 20, 21, 27)
_EXPIRED, _NOT_YET = 10, 9
_OTHER_NAME = (62, 64)


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """Which version answered, and who it takes us for ("" if it does not say)."""

    git: str
    user: str = ""

    def __str__(self) -> str:
        return self.git


async def holds_lease(client: Client, namespace: str) -> None:
    """The namespace that is to hold the operator's lease is there, or a Complaint."""
    try:
        await client.get(NAMESPACE, namespace, type=Object)
    except NotFound:
        raise Complaint(
            f"There is no namespace {namespace}, which is to hold the operator's lease.",
            hint=f"`kubectl create namespace {namespace}`, or name another with --namespace.",
            code=Exit.SETTING,
        ) from None
    except (ApiError, Unreachable) as error:
        # Perhaps we may not read namespaces; if the lease cannot be read either, that error is reported.
        log.debug("the namespace could not be looked at", namespace=namespace, error=str(error))


async def check(client: Client) -> ServerVersion:
    """Ask the server for its version and for our name; anything in the way becomes a Complaint."""
    try:
        git = (await client.version()).get("gitVersion")
        if not isinstance(git, str) or not git:
            raise _stranger(client, "its answer to /version names no version")
        user = await _whoami(client)
    except Complaint:
        raise
    except Unreachable as error:
        raise _unreachable(client, error) from error
    except ApiError as error:
        raise await _refused(client, error) from error
    except msgspec.MsgspecError as error:
        raise _stranger(client, "its answer to /version is not JSON") from error
    if user == ANONYMOUS:
        raise Complaint(
            f"{_at(client)} answers, but takes us for anonymous: {_source(client)} holds no credentials.",
            hint="Use a kubeconfig with a token, a certificate or an exec plugin.",
            code=Exit.REFUSED,
        )
    return ServerVersion(git, user)


async def _whoami(client: Client) -> str:
    """The name by which the server knows us. Anyone may read /version, so it alone proves nothing."""
    try:
        answer = await client.create(SELF_REVIEW, {}, type=dict[str, Any])
    except NotFound:
        return ""  # a server before 1.28
    except Forbidden as error:
        # Every authenticated user may ask this; a refusal names the user.
        return ANONYMOUS if f'"{ANONYMOUS}"' in error.message else ""
    info = answer.get("status", {}).get("userInfo", {})
    return str(info.get("username", "")) if isinstance(info, dict) else ""


# -- no answer


def _unreachable(client: Client, error: Unreachable) -> Complaint:
    at = _at(client)
    if isinstance(error, SomethingElse):
        return _stranger(client, "it has no /version")
    for cause in _causes(error):
        if isinstance(cause, aiohttp.ClientSSLError):
            continue  # aiohttp's own also call themselves SSLError, but the real one is behind them
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _bad_certificate(client, cause)
        if isinstance(cause, ssl.SSLError):
            return _bad_handshake(client, cause)
        if isinstance(cause, aiohttp.ClientConnectorDNSError):
            return _no(f"the name of {at} cannot be resolved", "Check the server's name in the kubeconfig, and DNS.")
        if isinstance(cause, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
            return _no(
                f"the proxy {client.connection.proxy} on the way to {at} does not work: {cause}",
                "Check proxy-url in the kubeconfig, HTTPS_PROXY and NO_PROXY.",
            )
        if isinstance(cause, ConnectionRefusedError):
            return _no(f"{at} refuses the connection: nothing listens there", "Is it running, and is the port right?")
        if isinstance(cause, TimeoutError):
            return _no(f"{at} does not answer", "Check the address, firewalls and VPN.")
    return _no(f"{at} cannot be reached ({error})", "Check the address and the network.")


def _bad_certificate(client: Client, error: ssl.SSLCertVerificationError) -> Complaint:
    at, code = _at(client), error.verify_code
    if code in _UNTRUSTED:
        return _no(
            f"{at} shows a certificate that the CA in {_source(client)} did not sign",
            "It is another cluster, its CA was renewed, or something sits in between. Get a fresh kubeconfig.",
        )
    if code in _OTHER_NAME:
        wanted = client.connection.server_hostname
        named = f" (tls-server-name {wanted})" if wanted else ""
        return _no(
            f"{at} shows a certificate for another name{named}: {error.verify_message}",
            "Use a name that is in the certificate, or set tls-server-name in the kubeconfig.",
        )
    if code in (_EXPIRED, _NOT_YET):
        when = "has expired" if code == _EXPIRED else "is not valid yet"
        return _no(f"{at} shows a certificate that {when}", "Renew it, or check this machine's clock.")
    return _no(f"{at} shows a certificate that is not acceptable: {error.verify_message}")


def _bad_handshake(client: Client, error: ssl.SSLError) -> Complaint:
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return _no(
            f"{_at(client)} does not speak TLS", "Should the server's address begin with http://, or is the port wrong?"
        )
    return _no(f"{_at(client)} breaks off the TLS handshake ({error.reason or error})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all behind it, down to the operating system's."""
    left: BaseException | None = error
    for _ in range(10):
        if left is None:
            return
        yield left
        inner = getattr(left, "certificate_error", None) or getattr(left, "os_error", None)
        left = inner if isinstance(inner, BaseException) else left.__cause__ or left.__context__


# -- failures


async def _refused(client: Client, error: ApiError) -> Complaint:
    at = _at(client)
    if isinstance(error, Unauthorized):
        expired = await _token_end(client)
        how = (
            f"the token expired on {expired:%Y-%m-%d %H:%M} UTC"
            if expired
            else "the token or certificate is wrong or expired"
        )
        user = getattr(client.connection, "user", "")
        return Complaint(
            f"{at} does not accept the credentials of user {user!r} in {_source(client)}: {how}.",
            hint="Log in again, or get a fresh kubeconfig.",
            code=Exit.REFUSED,
        )
    if 300 <= error.code < 400:
        return _stranger(client, f"it redirects (HTTP {error.code})")
    if error.code == 400 and "HTTPS" in error.message:
        return _no(f"{at} wants TLS", "Begin the server's address in the kubeconfig with https://.")
    if isinstance(error, NotFound):
        return _stranger(client, "it has no /version")
    if error.code >= 500:
        return _no(f"{at} answers, but is in trouble: HTTP {error.code} {error}", "Is it starting? Look at its log.")
    return Complaint(f"{at} refuses: {error}.", hint="Ask its owner for the rights.", code=Exit.REFUSED)


async def _token_end(client: Client) -> datetime | None:
    """When our token expired, if it is a JWT that says so. Nothing is verified: it only makes the sentence better."""
    header = (await client.connection.credentials()).headers.get("Authorization", "")
    parts = header.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="), type=dict[str, Any])
        end = datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (binascii.Error, msgspec.MsgspecError, KeyError, ValueError, TypeError, OverflowError, OSError):
        return None
    return end if end < datetime.now(UTC) else None


def _stranger(client: Client, why: str) -> Complaint:
    return _no(
        f"what answers at {client.connection.server} is not a Kubernetes API server: {why}",
        "Check the server's address in the kubeconfig, and any proxy in between.",
    )


def _at(client: Client) -> str:
    return f"the API server at {client.connection.server}"


def _source(client: Client) -> str:
    return str(getattr(client.connection, "source", "the kubeconfig"))


def _no(sentence: str, hint: str = "") -> Complaint:
    return Complaint(f"{sentence}.", hint=hint, code=Exit.UNREACHABLE)
