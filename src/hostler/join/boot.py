"""What boot configs are made from: the cluster's pointer, version, CA, and a token. And serving one config for a while.

A config is served under a path nobody can guess: over HTTPS, or over HTTP with its hash as the proof.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from aiohttp import web

from hostler.apis.openshift import (
    CLUSTER_VERSION,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    ClusterVersion,
    MachineConfig,
    MachineConfigPool,
)
from hostler.errors import Complaint, Exit
from hostler.join import ignition, kubeadm
from hostler.join.served_certificate import ROOT_CA
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists, ApiError, NotFound, Unreachable
from hostler.kube.http import refuse_without_target, without_strangers
from hostler.kube.kinds import CONFIG_MAP, SECRET
from hostler.kube.records import Object, Record, Secret

T = TypeVar("T")
USER_DATA = ("openshift-machine-api", "worker-user-data-managed", "userData")
PATIENCE_SECONDS = 10.0
BY_TAINT = "should the node come with the uninitialized taint, `hostler run --only platform` takes it away"


class _Map(Record, frozen=True):
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where new workers fetch their config from, and by which CA they know it."""

    server: str
    root_ca: bytes
    origin: str  # for people


async def pointer_of(client: Client) -> Pointer:
    """The pointer the cluster itself gives its workers. The CA is never made up: no Secret, no config."""
    namespace, name, key = USER_DATA
    where = f"Secret {namespace}/{name}"
    try:
        found = await client.get(SECRET, name, namespace, type=Secret)
    except NotFound:
        raise Complaint(
            f"There is no {where} in this cluster, which holds the machine config server's CA.",
            hint="Give it with --root-ca and --server; for plain Kubernetes see `hostler join cloud-init`.",
            code=Exit.REFUSED,
        ) from None
    try:
        server, root_ca = ignition.read_pointer(json.loads(found.data.get(key, b"")))
    except ValueError as error:
        raise Complaint(f"{where} cannot be used: {error}.", hint="Give --root-ca and --server.") from error
    return Pointer(server, root_ca, where)


async def verify(pointer: Pointer) -> None:
    """The machine config server answers, and with a certificate of that CA; a Complaint says which is not so."""
    parts = urlsplit(f"https://{pointer.server}")
    try:
        tls = ssl.create_default_context(cadata=pointer.root_ca.decode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or ignition.PORT, ssl=tls)
        writer.transport.abort()
        await asyncio.sleep(0)
    except ssl.SSLCertVerificationError as error:
        raise Complaint(
            f"{pointer.server} does not serve a certificate of the CA from {pointer.origin}: {error.verify_message}.",
            hint="A worker would refuse it too. Was the CA rotated? --no-check writes the config all the same.",
            code=Exit.REFUSED,
        ) from error
    except (OSError, TimeoutError, ValueError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise Complaint(
            f"The machine config server {pointer.server} cannot be reached from here: {why}.",
            hint="If only the new machine can reach it, use --no-check.",
            code=Exit.UNREACHABLE,
        ) from error


@dataclass(frozen=True, slots=True)
class Without:
    """The kubelet's drop-in against its cloud provider, or none; and a sentence on it."""

    drop_in: str
    note: str


async def without_cloud_provider(client: Client, pool: str = "worker") -> Without:
    """Made from the unit that the cluster gives its workers; where that cannot be read the sentence says so."""
    try:
        found = await client.get(MACHINE_CONFIG_POOL, pool, type=MachineConfigPool)
        rendered = found.status.configuration.name or found.spec.configuration.name
        if not rendered:
            return Without("", f"MachineConfigPool {pool} has no rendered config yet; {BY_TAINT}.")
        config = await client.get(MACHINE_CONFIG, rendered, type=MachineConfig)
    except (ApiError, Unreachable) as error:
        return Without("", f"The unit of the cluster's kubelets cannot be read ({error}); {BY_TAINT}.")
    listed = config.spec.config.systemd if config.spec.config is not None else None
    units = [unit for unit in (listed.units if listed is not None else ()) or () if unit.name == ignition.KUBELET_UNIT]
    others = [dropin.contents or "" for unit in units for dropin in unit.dropins or ()]
    try:
        made = ignition.make_drop_in(units[0].contents or "" if units else "", others)
    except ValueError as error:
        return Without("", f"MachineConfig {rendered}: {error}; {BY_TAINT}.")
    if not made:
        return Without("", f"The kubelet of MachineConfig {rendered} waits for no cloud provider.")
    said = f"The kubelet is started without the cloud provider that MachineConfig {rendered} gives it."
    return Without(made, said)


async def version_of(client: Client) -> str:
    """The OpenShift version; empty where this is no OpenShift."""
    found = await client.find(CLUSTER_VERSION, "version", type=ClusterVersion)
    return found.status.desired.version if found is not None else ""


async def cluster_ca(client: Client) -> bytes:
    """The CA of the API server as every pod gets it."""
    namespace, name, key = ROOT_CA
    found = await client.find(CONFIG_MAP, name, namespace, type=_Map)
    text = (found.data or {}).get(key, "") if found is not None else ""
    if not text:
        raise Complaint(
            f"Cannot tell the cluster's CA: ConfigMap {namespace}/{name} has no {key}.",
            hint="Give it with --ca FILE.",
            code=Exit.REFUSED,
        )
    return text.encode()


async def make_token(client: Client, host: str, seconds: float) -> kubeadm.Token:
    """A bootstrap token for one host that ends by itself."""
    for _ in range(5):
        token = kubeadm.new_token()
        body: dict[str, Any] = kubeadm.token_secret(token, time.time() + seconds, host)
        try:
            await client.create(SECRET, body, kubeadm.NAMESPACE, type=Object)
        except AlreadyExists:
            continue  # one in two thousand million
        return token
    raise Complaint("No free token id was found in five tries.", hint="Try again.")


NAME = "worker.ign"


@dataclass(frozen=True, slots=True)
class Terms:
    """For how long, and how often."""

    seconds: float
    times: int = 0  # 0: for every request


async def serve(
    content: bytes,
    host: str,
    port: int,
    terms: Terms,
    tls: ssl.SSLContext | None,
    ready: Callable[[str], None],
    fetched: Callable[[str], None],
) -> int:
    """Serve until the time is over or it was fetched often enough; how often it was fetched. `ready` gets the path."""
    path, done, served = f"/{secrets.token_urlsafe(16)}/{NAME}", asyncio.Event(), 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal served
        if terms.times and served >= terms.times:
            raise web.HTTPGone(text="It was fetched as often as it may be.")
        served += 1
        fetched(request.remote or "an unknown address")
        if terms.times and served >= terms.times:
            asyncio.get_running_loop().call_later(0.5, done.set)  # after the answer has gone out
        return web.Response(body=content, content_type="application/vnd.coreos.ignition+json")

    application = web.Application()
    application.router.add_get(path, answer, allow_head=False)  # a look at the head is no fetch
    runner = web.AppRunner(application, access_log=None, logger=without_strangers("hostler.join"))
    await runner.setup()
    if runner.server is not None:
        refuse_without_target(runner.server)
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            where = f"{host or 'every address'}:{port}"
            raise Complaint(f"Nothing can be served at {where}: {error.strerror}.", code=Exit.REFUSED) from error
        ready(f":{runner.addresses[0][1]}{path}")
        try:
            async with asyncio.timeout(terms.seconds):
                await done.wait()
        except TimeoutError:
            pass
    finally:
        await runner.cleanup()
    return served
