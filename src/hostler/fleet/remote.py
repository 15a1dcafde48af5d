"""How the CLI asks a running operator: by its URL, or through the API server's proxy to the pod that leads.

A dry run takes no lease, so where nobody holds one a ready pod with the chart's label is asked. No vCenter
password and no port-forward is needed: the user's own RBAC decides whether the proxy lets them through.
"""

from __future__ import annotations

import ipaddress
from typing import TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from hostler import __version__
from hostler.errors import Complaint, Exit
from hostler.fleet.wire import REASONS, VERSION_HEADER, Refused
from hostler.kube.client import Client, words_of
from hostler.kube.errors import Forbidden, NotFound, ServerError
from hostler.kube.kinds import LEASE, POD
from hostler.kube.lease import pod_of
from hostler.kube.records import Lease, Metadata, PodConditionType, PodStatus, Record

T = TypeVar("T")
# Written on the lease by its holder. A pod says its port; a process outside the cluster says its URL.
URL_ANNOTATION = "hostler.dev/url"
PORT_ANNOTATION = "hostler.dev/port"
# What the chart puts on every pod of the operator, and calls its port.
POD_LABEL = "app.kubernetes.io/part-of=hostler"  # whatever the chart's nameOverride says
PORT_NAME = "http"
SECONDS = 15.0
_NO_DECODE = "The operator's answer cannot be read; it may be of another version than this CLI ({})."


class _Port(Record, frozen=True):
    name: str = ""
    container_port: int = 0


class _Container(Record, frozen=True):
    ports: tuple[_Port, ...] = ()


class _Containers(Record, frozen=True):
    containers: tuple[_Container, ...] = ()


class _OperatorPod(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: _Containers = _Containers()
    status: PodStatus = PodStatus()

    def port(self) -> int:
        """Where it answers; 0 while it is not ready, or if it names no such port."""
        ready = any(one.type is PodConditionType.READY and one.status == "True" for one in self.status.conditions)
        if not ready or self.metadata.deletion_timestamp:
            return 0
        named = (port for part in self.spec.containers for port in part.ports if port.name == PORT_NAME)
        return next((port.container_port for port in named), 0)


def lease_annotations(*, pod: str, url: str, port: int) -> dict[str, str]:
    """What the holder of the lease says about how to reach it."""
    return {PORT_ANNOTATION: str(port), URL_ANNOTATION: ""} if pod else {URL_ANNOTATION: url, PORT_ANNOTATION: ""}


async def ask_url(url: str, path: str, type: type[T]) -> T:
    """Ask the operator at `url`."""
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(url + path, allow_redirects=False) as answer,
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


async def ask_leader(client: Client, namespace: str, lease_name: str, path: str, type: type[T]) -> T:
    """Ask the operator that holds the lease, or a ready one where nobody does, through the API server's pod proxy."""
    pod, port = await _leader(client, namespace, lease_name)
    proxy = f"{POD.path(namespace)}/{quote(f'{pod}:{port}', safe=':')}/proxy{path}"
    try:
        return _decode(200, "", await client.request("GET", proxy, timeout=SECONDS), type)
    except Forbidden as error:
        raise Complaint(
            f"You may not reach the operator through the API server: {error}.",
            hint=f'Ask for "get" on "pods/proxy" in namespace {namespace}, or use --operator URL.',
            code=Exit.REFUSED,
        ) from error
    except NotFound as error:
        if error.reason in REASONS:  # the operator's own answer, passed on by the proxy
            raise Complaint(error.message, code=Exit.REFUSED) from error
        raise Complaint(
            f"The operator is to be pod {namespace}/{pod}, but it does not answer: {error}.",
            hint="If it has just ended, another takes over in some seconds; if none runs any more, start one.",
            code=Exit.UNREACHABLE,
        ) from error
    except ServerError as error:
        raise Complaint(
            f"The API server cannot reach pod {namespace}/{pod} on port {port}: {error}.",
            hint=f"See `kubectl -n {namespace} describe pod {pod}`; its HOSTLER_HTTP_ADDRESS must not be loopback.",
            code=Exit.UNREACHABLE,
        ) from error


async def _leader(client: Client, namespace: str, name: str) -> tuple[str, int]:
    """Pod and port of the operator that leads."""
    try:
        lease = await client.get(LEASE, name, namespace, type=Lease)
    except NotFound:
        return await _any_ready(client, namespace, f"No operator has run here: there is no lease {namespace}/{name}")
    except Forbidden as error:
        raise Complaint(
            f"You may not read the operator's lease: {error}.",
            hint=f'Ask for "get" on "leases.coordination.k8s.io" in namespace {namespace}, or use --operator URL.',
            code=Exit.REFUSED,
        ) from error
    holder = lease.spec.holder_identity or ""
    if not holder:
        return await _any_ready(client, namespace, f"No operator leads: the lease {namespace}/{name} is free")
    url, port = (lease.metadata.annotations.get(key, "") for key in (URL_ANNOTATION, PORT_ANNOTATION))
    if url:
        raise _outside(pod_of(holder), url)
    if not port.isdigit():
        raise Complaint(
            f"The operator that leads ({holder}) does not say how it can be reached.",
            hint="It is of an older version than this CLI; upgrade it, or use --operator URL.",
            code=Exit.UNREACHABLE,
        )
    return pod_of(holder), int(port)


async def _any_ready(client: Client, namespace: str, why: str) -> tuple[str, int]:
    """Pod and port of an operator that holds no lease: a dry run, or one that has just started."""
    try:
        pods = await client.list(POD, namespace, type=_OperatorPod, labels=POD_LABEL)
    except Forbidden as error:
        raise Complaint(
            f"{why}, and you may not look for a dry run: {error}.",
            hint=f'Ask for "list" on "pods" in namespace {namespace}, or use --operator URL.',
            code=Exit.REFUSED,
        ) from error
    ready = sorted((one.metadata.name, port) for one in pods if (port := one.port()))
    if ready:
        return ready[0]
    if pods:
        named = min(one.metadata.name for one in pods)
        raise Complaint(
            f"{why}, and none of its pods is ready.",
            hint=f"If one is starting, try again in some seconds; else `kubectl -n {namespace} describe pod {named}` "
            "says why it does not run, and its log why it ended.",
            code=Exit.UNREACHABLE,
        )
    raise Complaint(
        f"{why}, and no pod with the label {POD_LABEL}.",
        hint="Start one with `hostler run`, or say where it is: --namespace, or --operator URL.",
        code=Exit.UNREACHABLE,
    )


def _outside(host: str, url: str) -> Complaint:
    """The operator is a process and no pod. Its URL comes from the cluster, so it is shown and not followed."""
    where = f" It listens only on its own machine, {host}." if _loopback(url) else ""
    return Complaint(
        f"The operator runs outside the cluster, as a process on {host}.{where}",
        hint=f"Use: --operator {url}",
        code=Exit.UNREACHABLE,
    )


def _loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
        raise Complaint(refused.message, code=Exit.REFUSED)
    if status == 404:
        raise _no_operator(said)
    text = body[:200].decode(errors="replace").strip()
    raise Complaint(f"The operator could not answer (HTTP {status}): {text}", hint="See its log.", code=Exit.FAILED)
