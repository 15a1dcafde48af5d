"""Puts objects into the API server, many at a time over kept connections: 5,000 nodes take seconds."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
import msgspec

from hostler.errors import Complaint, Exit
from hostler.sandbox import http
from hostler.sandbox.build import Progress
from hostler.sandbox.expand import Object, waves
from hostler.sandbox.fleet import Fleet

if TYPE_CHECKING:
    from hostler.sandbox.life import Sandbox

T = TypeVar("T")
AT_ONCE = 48
SETTLE_SECONDS = 60.0
_encode = msgspec.json.Encoder().encode


def load_fleet(box: Sandbox, fleet: Fleet, progress: Progress) -> None:
    """Everything in the fleet file, then wait until its workloads stand (or say that they do not)."""
    rate = sum(1 for _ in fleet.each_node()) * 4 / box.state.options.node_lease_duration_seconds
    if rate > 400 and box.state.options.kwok:
        progress.say(f"The kubelets of this fleet will write {rate:.0f} leases per second; longer leases cost less.")
    for name, objects in waves(fleet):
        if objects:
            begin = time.monotonic()
            create(box, objects)
            progress.say(f"Made {len(objects)} {name} in {time.monotonic() - begin:.1f} s.")
    if fleet.workloads and box.state.options.kwok:
        _settle(box, progress)


def create(box: Sandbox, objects: Iterable[Object]) -> None:
    """Create objects of any kind; one that is there already is left as it is."""
    in_own_loop(_create_all(box.server, http.trust(box.layout, "admin"), list(objects)))


def in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also for a caller that has a running loop of its own (a test)."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001  carried to the caller's thread
            failed.append(error)

    thread = threading.Thread(target=run, name="sandbox-load")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


async def _create_all(server: str, tls: ssl.SSLContext, objects: list[Object]) -> None:
    connector = aiohttp.TCPConnector(limit=AT_ONCE, ssl=tls)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(server, connector=connector, timeout=timeout) as session:
        paths = Paths(session)
        owners = [owner for one in objects for owner in one["metadata"].get("ownerReferences", [])]
        await paths.learn({(one["apiVersion"], one["kind"]) for one in (*objects, *owners)})
        queue = iter(objects)

        async def worker() -> None:
            for one in queue:
                await _create(session, paths.of(one), await _owned(session, paths, one))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(objects))):
                    group.create_task(worker())
        except* Complaint as refused:
            first = refused.exceptions[0]
        else:
            return
        raise first


async def _create(session: aiohttp.ClientSession, path: str, one: Object) -> None:
    """POST until it is there. What a cluster says while it is still waking up is waited for, nothing else."""
    end = time.monotonic() + 30
    body, headers = _encode(one), {"Content-Type": "application/json"}
    while True:
        async with session.post(path, data=body, headers=headers) as answer:
            # Read to the end in every case: a connection with an unread answer is closed, not used again.
            text = await answer.read()
            if answer.status == 201 and "status" in one and _has_status_of_its_own(one["apiVersion"]):
                return await _write_status(session, f"{path}/{one['metadata']['name']}/status", one)
            if answer.status in (201, 409):
                return None
            said = _message(text) or f"HTTP {answer.status}"
            waking = answer.status in (429, 500, 503, 504) or (answer.status == 403 and "serviceaccount" in said)
            if not waking or time.monotonic() > end:
                name = one["metadata"].get("name", "without a name")
                raise Complaint(
                    f"The API server refused {one['kind']} {name}: {said.rstrip('.')}.",
                    hint="Mend that object where it comes from: the fleet file.",
                    code=Exit.SETTING,
                )
            await asyncio.sleep(float(answer.headers.get("Retry-After", 0.1)))


def _has_status_of_its_own(version: str) -> bool:
    """A custom object's status is not taken with the object; Kubernetes' own kinds take it."""
    group = version.rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


async def _write_status(session: aiohttp.ClientSession, path: str, one: Object) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(path, data=_encode({"status": one["status"]}), headers=headers) as answer:
        text = await answer.read()
    if answer.status not in (200, 404):  # 404: the kind keeps no status apart, so it was taken with the object
        name = one["metadata"]["name"]
        raise Complaint(
            f"The API server refused the status of {one['kind']} {name}: {_message(text)}", code=Exit.SETTING
        )


async def _owned(session: aiohttp.ClientSession, paths: Paths, one: Object) -> Object:
    """Its owners with their uids: an owner without the right one does not exist, and its things are collected."""
    owners = one["metadata"].get("ownerReferences", [])
    if all("uid" in owner for owner in owners):
        return one
    found = []
    for owner in owners:
        where = {**owner, "metadata": {"namespace": one["metadata"].get("namespace", "default")}}
        async with session.get(f"{paths.of(where)}/{owner['name']}") as answer:
            text = await answer.read()
        if answer.status != 200:
            raise Complaint(
                f"{one['kind']} {one['metadata'].get('name')} names the owner {owner['kind']} {owner['name']}, which "
                "does not exist.",
                hint="Put the owner before it.",
                code=Exit.SETTING,
            )
        found.append({**owner, "uid": msgspec.json.decode(text)["metadata"]["uid"]})
    return {**one, "metadata": {**one["metadata"], "ownerReferences": found}}


def _message(text: bytes) -> str:
    """What a Kubernetes Status says; a server that is just coming up may answer in plain text."""
    try:
        return str(msgspec.json.decode(text).get("message", ""))
    except (msgspec.DecodeError, AttributeError):
        return text.decode(errors="replace").strip()


class Paths:
    """Where each kind lives, learned from the API server's own discovery."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._known: dict[tuple[str, str], tuple[str, bool]] = {}

    async def learn(self, wanted: set[tuple[str, str]]) -> None:
        for version in sorted({version for version, _ in wanted}):
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            async with self._session.get(root) as answer:
                text = await answer.read()
            found: Mapping[str, Any] = msgspec.json.decode(text) if answer.status == 200 else {}
            for resource in found.get("resources", []):
                if "/" not in resource["name"]:
                    self._known[version, resource["kind"]] = (f"{root}|{resource['name']}", resource["namespaced"])
        for version, kind in sorted(wanted - self._known.keys()):
            raise Complaint(
                f"The sandbox does not serve {kind} of {version}.",
                hint="If it comes from a CRD, install it with --crds (for `metal:` --crds capi,metal3), or put the CRD "
                "itself into another step.",
                code=Exit.SETTING,
            )

    def of(self, one: Object) -> str:
        place, namespaced = self._known[one["apiVersion"], one["kind"]]
        root, _, plural = place.partition("|")
        if not namespaced:
            return f"{root}/{plural}"
        return f"{root}/namespaces/{one['metadata'].get('namespace', 'default')}/{plural}"


def _settle(box: Sandbox, progress: Progress) -> None:
    """Wait until every workload has its pods; a fleet may be too full on purpose, so this is no failure."""
    begin = time.monotonic()
    missing: list[str] = []
    while time.monotonic() - begin < SETTLE_SECONDS:
        missing = [text for kind in ("deployments", "statefulsets", "daemonsets") for text in _unready(box, kind)]
        if not missing:
            progress.say(f"Every workload stands after {time.monotonic() - begin:.1f} s.")
            return
        time.sleep(0.2)
    progress.say(f"Not every workload came up in {SETTLE_SECONDS:.0f} s: {', '.join(missing[:5])}.")


def _unready(box: Sandbox, kind: str) -> list[str]:
    tls = http.trust(box.layout, "admin")
    found = http.ask("The API server", box.state.ports["kube-apiserver"], "GET", f"/apis/apps/v1/{kind}", tls=tls)
    missing = []
    for one in found["items"]:
        status = one.get("status", {})
        seen = status.get("observedGeneration", 0) >= one["metadata"]["generation"]
        wanted = status.get("desiredNumberScheduled", 0) if kind == "daemonsets" else one["spec"].get("replicas", 1)
        ready = status.get("numberReady", 0) if kind == "daemonsets" else status.get("readyReplicas", 0)
        if not seen or ready < wanted:
            missing.append(f"{one['metadata']['name']} has {ready} of {wanted} pods ready")
    return missing
