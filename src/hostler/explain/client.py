"""How the CLI asks a running operator: by its URL, or through the API server's proxy to the Service of its pods.

The user's own RBAC decides whether the proxy lets them through. The proxy takes their login off, so the operator would
not know who asks: they bring a short-lived token of the ServiceAccount hostler-reader, which has no rights. Their own
token never leaves for the operator. No vCenter password and no port-forward is needed.

A Service leads to any replica. One that does not lead refuses who wants the leader, and the next try may reach it; a
replica that does not lead answers in the end. A dry run takes no lease and is asked all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from hostler import __version__
from hostler.errors import Complaint, Exit
from hostler.explain.callers import AUDIENCE, READER, TOKEN_HEADER, Refusal, names_loopback
from hostler.explain.wire import (
    LEADER_HEADER,
    NOT_LEADING,
    REASONS,
    UNKNOWN_KIND,
    UNKNOWN_NAME,
    VERSION_HEADER,
    Refused,
)
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Forbidden, NotFound, ServerError, Unreachable
from hostler.kube.kinds import LEASE, SERVICE, SERVICE_ACCOUNT
from hostler.kube.records import Lease, Record
from hostler.kube.replica import pod_of
from hostler.kube.transport import words_of

T = TypeVar("T")
# Written on the lease by its holder: a pod names its Service, a process outside the cluster its URL.
URL_ANNOTATION = "hostler.dev/url"
SERVICE_ANNOTATION = "hostler.dev/service"
SERVICE_NAME = "hostler"  # where the lease names none
PORT_NAME = "http"  # of the Service
SECONDS = 15.0
TOKEN_SECONDS = 600  # the shortest that the API server makes
TRIES = 16  # to reach the leader; with two replicas all but one in 65,536 reach it
SILENCES = 3  # of pods that take a request and say nothing: each costs the user SECONDS
FAILURES = 8  # of pods that do not answer: one may be on its way out, and be chosen again
_NO_DECODE = "The operator's answer cannot be read; it may be of another version than this CLI ({})."
_ROLE = "ClusterRole hostler-viewer has it"
_HINTS = {
    Refusal.NO_CREDENTIAL: "Leave --operator out, or give the kubeconfig of the operator's cluster.",
    Refusal.BAD_CREDENTIAL: "Check that the kubeconfig, --context and --operator-namespace are those of this operator.",
    Refusal.TOO_MANY_ATTEMPTS: "Try again in some seconds.",
    Refusal.UNVERIFIED: "Check the API server; the operator's log has the error.",
    Refusal.REVIEW_FORBIDDEN: "Grant it: `helm upgrade`, or `hostler rights -o yaml | kubectl apply -f -`.",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the operator is. `service` is empty unless a user names it."""

    namespace: str
    lease: str
    service: str = ""


class TokenWanted(Complaint):
    """The operator at a URL answers only those who bring a token, and none was brought."""


class NoOperator(Complaint):
    """No operator is there, or none of its pods answers. What an operator that answers says no to is none of this."""


class NotKnown(Complaint):
    """The operator explains no such kind, or knows none of that name."""


class _TokenStatus(Record, frozen=True):
    token: str = ""


class _TokenRequest(Record, frozen=True):
    status: _TokenStatus = _TokenStatus()


def lease_annotations(*, service: str, url: str) -> dict[str, str]:
    """What the holder of the lease says about how to reach it. `service` is empty for a process outside the cluster."""
    return {SERVICE_ANNOTATION: service, URL_ANNOTATION: "" if service else url}


async def request_token(client: Client, namespace: str) -> str:
    """A token of the reader for asking the operator, made by the API server for this very user."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS},
    }
    path = SERVICE_ACCOUNT.path(namespace, READER, "token")
    try:
        answer = await client.request("POST", path, body=msgspec.json.encode(body), timeout=SECONDS)
    except Forbidden as error:
        raise Complaint(
            f"You may not read from the operator: {error}.",
            hint=f'Ask for "create" on "serviceaccounts/token" of {READER} in namespace {namespace}; {_ROLE}.',
            code=Exit.REFUSED,
        ) from error
    except NotFound as error:
        raise NoOperator(
            f"There is no ServiceAccount {namespace}/{READER}, whose token the operator wants of everyone who asks.",
            hint="Check --operator-namespace; the chart (rbac.people) and `hostler manifests` make it.",
            code=Exit.UNREACHABLE,
        ) from error
    return msgspec.json.decode(answer, type=_TokenRequest).status.token


async def ask_url(url: str, path: str, type: type[T], *, token: str = "") -> T:
    """Ask the operator at `url`. TokenWanted: it wants a token, which goes only where a user named the URL."""
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    headers = {TOKEN_HEADER: token} if token else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(url + path, headers=headers, allow_redirects=False) as answer,
        ):
            body, version = await answer.read(), answer.headers.get(VERSION_HEADER, "")
            if answer.status == 200 and not version:
                raise _no_operator("operator unknown")  # a page, or JSON that is not ours
            return _decode(answer.status, version, body, type)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Complaint(
            f"No operator answers at {url}: {words_of(error)}.",
            hint="Check the URL (--operator) and that `hostler run` is running there.",
            code=Exit.UNREACHABLE,
        ) from error


async def ask_leader(client: Client, place: Place, path: str, type: type[T]) -> T:
    """Ask the operator that leads, or another replica where none can be reached that does, through the API server."""
    service, unled = await find_service(client, place)
    way = f"{SERVICE.path(place.namespace, service)}:{PORT_NAME}/proxy{path}"
    headers, failures = {TOKEN_HEADER: await request_token(client, place.namespace)}, 0
    for left in reversed(range(TRIES + 1)):
        wanted = {**headers, LEADER_HEADER: "true"} if left else headers
        try:
            return _decode(200, "", await client.request("GET", way, timeout=SECONDS, headers=wanted), type)
        except Unreachable as error:
            # The lease was read a moment ago, so it is the pod: one on a dead node stays in the Service and is silent.
            failures += 1
            if left and failures < SILENCES:
                continue
            raise NoOperator(
                f"No pod of Service {place.namespace}/{service} answers through the API server: {error}.",
                hint="A replica may be on a node that is down; try again, or use --operator URL.",
                code=Exit.UNREACHABLE,
            ) from error
        except ApiError as error:
            if left and error.reason == NOT_LEADING:
                continue
            failures += 1
            if isinstance(error, ServerError) and error.reason not in REASONS and left and failures < FAILURES:
                continue
            raise failure_of(error, place, service, unled) from error
    raise AssertionError("the last try returns or raises")


def failure_of(error: ApiError, place: Place, service: str, unled: str) -> Complaint:
    """What to tell a user. Refusals of the operator itself come through the proxy as they are."""
    named = f"{place.namespace}/{service}"
    if error.reason in REASONS:
        return _refused(Refused(error.reason, error.message))
    if isinstance(error, Forbidden):
        right = f'"get" on "services/proxy" of {service}:{PORT_NAME} in namespace {place.namespace}'
        return Complaint(
            f"You may not reach the operator through the API server: {error}.",
            hint=f"Ask for {right}; {_ROLE}. Or use --operator URL.",
            code=Exit.REFUSED,
        )
    first = f"{unled}, and the API server" if unled else "The API server"
    return NoOperator(
        f"{first} cannot reach a pod of Service {named}: {error}.",
        hint=f"See `kubectl -n {place.namespace} get services,pods`. If one is starting, try again in some seconds; if "
        "none is there, say where the operator is: --operator-namespace, --service, or --operator URL.",
        code=Exit.UNREACHABLE,
    )


async def find_service(client: Client, place: Place) -> tuple[str, str]:
    """The Service to ask, and, as the beginning of a sentence, why no replica is known to lead; empty if one is."""
    named = f"{place.namespace}/{place.lease}"
    try:
        lease = await client.get(LEASE, place.lease, place.namespace, type=Lease)
    except NotFound:
        return place.service or SERVICE_NAME, f"No operator has run here: there is no lease {named}"
    except Forbidden as error:
        raise Complaint(
            f"You may not read the operator's lease: {error}.",
            hint=f'Ask for "get" on "leases.coordination.k8s.io" in namespace {place.namespace}; {_ROLE}. Or use '
            "--operator URL.",
            code=Exit.REFUSED,
        ) from error
    holder = lease.spec.holder_identity or ""
    url, service = (lease.metadata.annotations.get(key, "") for key in (URL_ANNOTATION, SERVICE_ANNOTATION))
    if holder and url:
        raise _outside(pod_of(holder), url)
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", service):  # it goes into a path
        service = SERVICE_NAME
    return place.service or service, "" if holder else f"No operator leads: the lease {named} is free"


def _outside(host: str, url: str) -> Complaint:
    """The operator is a process and no pod. Its URL comes from the cluster, so it is shown and not followed."""
    where = f" It listens only on its own machine, {host}." if names_loopback(urlsplit(url).netloc) else ""
    return Complaint(
        f"The operator runs outside the cluster, as a process on {host}.{where}",
        hint=f"Use: --operator {url}",
        code=Exit.UNREACHABLE,
    )


def _no_operator(said: str) -> Complaint:
    return Complaint(
        f"What answers there is not an operator, or one too old for this question ({said}).",
        hint="Check --operator; upgrade the operator if it is older than the CLI.",
        code=Exit.REFUSED,
    )


def _refusal(text: str) -> Refused | None:
    try:
        return msgspec.json.decode(text, type=Refused)
    except msgspec.MsgspecError:
        return None


def _refused(refused: Refused) -> Complaint:
    """What the operator itself said no to."""
    if refused.reason in (UNKNOWN_KIND, UNKNOWN_NAME):
        return NotKnown(refused.message, code=Exit.REFUSED)
    if refused.reason not in tuple(Refusal):
        return Complaint(refused.message, code=Exit.REFUSED)
    refusal = Refusal(refused.reason)
    complaint = TokenWanted if refusal is Refusal.NO_CREDENTIAL else Complaint
    unchecked = refusal in (Refusal.UNVERIFIED, Refusal.REVIEW_FORBIDDEN, Refusal.TOO_MANY_ATTEMPTS)
    code = Exit.UNREACHABLE if unchecked else Exit.REFUSED
    return complaint(refused.message, hint=_HINTS.get(refusal, ""), code=code)


def _decode(status: int, version: str, body: bytes, type: type[T]) -> T:
    said = f"operator {version or 'unknown'}, CLI {__version__}"
    if status == 200:
        try:
            return msgspec.json.decode(body, type=type)
        except msgspec.MsgspecError as error:
            raise Complaint(
                _NO_DECODE.format(said), hint="Use a CLI of the operator's version.", code=Exit.FAILED
            ) from error
    refused = _refusal(body.decode(errors="replace"))
    if refused is not None:
        raise _refused(refused)
    if status == 404:
        raise _no_operator(said)
    text = body[:200].decode(errors="replace").strip()
    raise Complaint(f"The operator could not answer (HTTP {status}): {text}", hint="See its log.", code=Exit.FAILED)
