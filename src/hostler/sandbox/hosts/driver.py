"""Plays Baremetal Operator on every BareMetalHost: `python -m hostler.sandbox.hosts.driver --dir D`.

It is a simulator: no BMC is contacted and no disk is written. What it writes, and in which order, is decided by
`walk.py`; here it is only carried out. It also answers Metal3's IPClaims (`pools.py`), so that there are addresses.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from pathlib import Path

import aiohttp
import msgspec

from hostler.sandbox import http
from hostler.sandbox.follow import follow, patch, say
from hostler.sandbox.hosts.boot import Boots
from hostler.sandbox.hosts.control_planes import ControlPlanes
from hostler.sandbox.hosts.model import Json, Memory, Pace, Put, Secret
from hostler.sandbox.hosts.pools import Pools
from hostler.sandbox.hosts.walk import Look
from hostler.sandbox.life import Sandbox

HOSTS = "/apis/metal3.io/v1alpha1"
ENVIRONMENT = {"environment.metal3.io": "baremetal"}
WORKERS = 8


def path_of(host: Json) -> str:
    meta = host["metadata"]
    return f"{HOSTS}/namespaces/{meta['namespace']}/baremetalhosts/{meta['name']}"


def key_of(one: Json) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"


class Driver:
    """Every host, one step at a time; hosts beside each other."""

    def __init__(self, session: aiohttp.ClientSession, pace: Pace) -> None:
        self._session, self._pace = session, pace
        self._hosts: dict[str, Json] = {}
        self._secrets: dict[str, Json] = {}
        self.boots = Boots(session, self._secrets)
        self.control_planes = ControlPlanes(session, self.boots.clusters)
        self._memories: dict[str, Memory] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._active: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.secrets_known = asyncio.Event()
        self.hosts_known = asyncio.Event()

    # -- what is known

    def hosts_listed(self, hosts: list[Json]) -> None:
        found = {key_of(one): one for one in hosts}
        for key in self._hosts.keys() - found.keys():
            self._forget(key)
        self._hosts = found
        self.hosts_known.set()
        for key, host in found.items():
            self._touch(key)
            self.boots.host_changed(key, host)

    def host_changed(self, what: str, host: Json) -> None:
        key = key_of(host)
        if what == "DELETED":
            self._hosts.pop(key, None)
            self._forget(key)
            return
        known = self._hosts.get(key)
        # An event from before our own last write must not be acted on again.
        if known is None or int(host["metadata"]["resourceVersion"]) > int(known["metadata"]["resourceVersion"]):
            self._hosts[key] = host
            self._touch(key)
            self.boots.host_changed(key, host)

    def secrets_listed(self, secrets: list[Json]) -> None:
        self._secrets.clear()
        self._secrets.update({key_of(one): one for one in secrets})
        self.secrets_known.set()
        for key in self._hosts:
            self._touch(key)
        for one in secrets:
            self._look_for_cluster("ADDED", one)

    def secret_changed(self, what: str, secret: Json) -> None:
        key = key_of(secret)
        if what == "DELETED":
            self._secrets.pop(key, None)
        else:
            self._secrets[key] = secret
        for name, host in self._hosts.items():
            if f"{host['metadata']['namespace']}/{_credentials(host)}" == key:
                self._touch(name)
        self._look_for_cluster(what, secret)

    def _look_for_cluster(self, what: str, secret: Json) -> None:
        if self.boots.secret_changed(what, secret):
            self.control_planes.wake()
            for key, host in self._hosts.items():
                self.boots.host_changed(key, host)

    def _forget(self, key: str) -> None:
        self._memories.pop(key, None)
        self.boots.host_gone(key)
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def _touch(self, key: str) -> None:
        if key not in self._waiting:
            self._waiting.add(key)
            self._queue.put_nowait(key)

    # -- what is done

    async def work(self) -> None:
        await self.secrets_known.wait()
        await self.hosts_known.wait()
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._waiting.discard(key)
            if key in self._active:
                asyncio.get_running_loop().call_later(0.05, self._touch, key)
                continue
            self._active.add(key)
            try:
                await self._look(key)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                say(f"host {key} could not be written: {error!r}; trying again")
                asyncio.get_running_loop().call_later(0.5, self._touch, key)
            finally:
                self._active.discard(key)

    async def _look(self, key: str) -> None:
        while (host := self._hosts.get(key)) is not None:
            secret = await self._secret(host)
            memory = self._memory(key, host["metadata"]["uid"])
            put = Look(host, secret, memory, self._pace, time.time()).next()
            if not isinstance(put, Put):
                if timer := self._timers.pop(key, None):
                    timer.cancel()
                if put.seconds is not None:
                    loop = asyncio.get_running_loop()
                    self._timers[key] = loop.call_later(put.seconds + 0.001, self._touch, key)
                return
            if not await self._put(key, put):
                return

    def _memory(self, key: str, uid: str) -> Memory:
        """A host that was deleted and created again under its name, as a restore does, is another one."""
        known = self._memories.get(key)
        if known is None or known.uid != uid:
            known = self._memories[key] = Memory(uid=uid)
        return known

    async def _put(self, key: str, put: Put) -> bool:
        """Write the whole object with its version; False: somebody was faster, and the watch will tell."""
        path = f"{path_of(put.host)}{'/status' if put.status else ''}"
        async with self._session.put(path, data=msgspec.json.encode(put.host)) as answer:
            body = await answer.read()
            if answer.status in (404, 409):
                return False
            if answer.status >= 400:
                say(f"host {key} was refused: {body.decode(errors='replace')[:500]}")
                asyncio.get_running_loop().call_later(5, self._touch, key)
                return False
        after: Json = msgspec.json.decode(body)
        if after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers"):
            self._hosts.pop(key, None)
            self._forget(key)
            return False
        if put.status and _state(after) != _state(self._hosts.get(key, {})):
            say(f"host {key} is {_state(after)}")
        self._hosts[key] = after
        self.boots.host_changed(key, after)
        return True

    async def _secret(self, host: Json) -> Secret | None:
        name, namespace = _credentials(host), host["metadata"]["namespace"]
        found = self._secrets.get(f"{namespace}/{name}")
        if found is None:
            return None
        if (found["metadata"].get("labels") or {}).items() >= ENVIRONMENT.items():
            data = found.get("data") or {}
            return Secret(found["metadata"]["resourceVersion"], bool(data.get("username") and data.get("password")))
        owner = {
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": host["metadata"]["name"],
            "uid": host["metadata"]["uid"],
        }  # fmt: skip
        change = {"metadata": {"labels": ENVIRONMENT, "ownerReferences": [owner]}}
        body = await patch(self._session, f"/api/v1/namespaces/{namespace}/secrets/{name}", change)
        if body is None:
            return None
        self._secrets[f"{namespace}/{name}"] = msgspec.json.decode(body)
        return await self._secret(host)


def _credentials(host: Json) -> str:
    return str((host["spec"].get("bmc") or {}).get("credentialsName", ""))


def _state(host: Json) -> str:
    status = host.get("status") or {}
    return f"{status.get('provisioning', {}).get('state', 'new')} {status.get('errorType', '')}".strip()


async def drive(
    server: str, tls: aiohttp.TCPConnector, pace: Pace, ready: Path | None = None, *, capi: bool = False
) -> None:
    """Until SIGTERM. `capi`: Cluster API runs beside, and its clusters may have been given a control plane."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    timeout = aiohttp.ClientTimeout(total=30)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        server, connector=tls, timeout=timeout, headers=headers, read_bufsize=4 * 1024**2
    ) as session:
        driver, pools = Driver(session, pace), Pools(session)
        tasks = [
            follow(session, f"{HOSTS}/baremetalhosts", dict, driver.hosts_listed, driver.host_changed),
            follow(session, "/api/v1/secrets", dict, driver.secrets_listed, driver.secret_changed),
            *pools.tasks(),
            driver.work(),
            *(driver.control_planes.tasks() if capi else ()),
        ]
        running = [asyncio.create_task(task) for task in tasks]
        announce = asyncio.create_task(_announce(driver, ready))
        await asyncio.wait([*running, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        for task in (*running, announce):
            task.cancel()
        outcomes = await asyncio.gather(*running, announce, return_exceptions=True)
        await driver.boots.close()
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def _announce(driver: Driver, ready: Path | None) -> None:
    await driver.secrets_known.wait()
    await driver.hosts_known.wait()
    say("simulating Baremetal Operator: no BMC is contacted, no disk is written")
    if ready is not None:
        ready.write_text(f"{os.getpid()}\n")


def main() -> None:
    arguments = argparse.ArgumentParser(prog="hostler.sandbox.hosts.driver", description=__doc__)
    arguments.add_argument("--dir", required=True, type=Path)
    arguments.add_argument("--provisioning", type=float, default=Pace().provisioning, help="seconds")
    arguments.add_argument("--deprovisioning", type=float, default=Pace().deprovisioning, help="seconds")
    arguments.add_argument("--ready", type=Path, help="a file to write once everything is followed")
    given = arguments.parse_args()
    box = Sandbox.open(given.dir)
    pace = Pace(provisioning=given.provisioning, deprovisioning=given.deprovisioning, error_minute=2.0)

    async def run() -> None:
        tls = aiohttp.TCPConnector(ssl=http.trust(box.layout, "keeper"))
        await drive(box.server, tls, pace, given.ready, capi="capi" in box.state.options.extras)

    asyncio.run(run())


if __name__ == "__main__":
    main()
