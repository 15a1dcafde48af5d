"""The Secret in which every replica finds what each vCenter is recognised by; see `vsphere.trust`.

Create-or-fail: of two replicas that meet a vCenter for the first time at once, one creates the Secret (or adds the
entry under the resourceVersion that it read), and the other reads what the winner wrote. The operator never overwrites
an entry: that takes a person (`hostler vcenter trust`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from hostler.host.conditions import Condition, Status
from hostler.kube.client import Client, Gate
from hostler.kube.clock import Clock, boottime
from hostler.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable, WriteRefused
from hostler.kube.events import Recorder
from hostler.kube.kinds import SECRET
from hostler.kube.records import Metadata, Secret
from hostler.kube.writer import Writer
from hostler.vsphere.endpoints import Endpoint
from hostler.vsphere.pins import Entry, NotAnEntry, entry_key, read_entry, write_entry
from hostler.vsphere.trust import Remembered, Says

NAME = "hostler-vcenter-trust"
TRUSTED = "VCenterTrusted"  # the condition of the Fleet
ANOTHER = "AnotherCertificate"  # its reason, and the Event's
WHY = "a vCenter is recognised by this from now on"
SECONDS = 40.0  # more than any request of the client takes
TURNS = 5  # how often another writer may be faster
# At the start it takes a moment until it is known whether Hostler is paused; so long that is waited for.
PAUSE_SECONDS, LOOK_SECONDS = 5.0, 0.1
# An API server that starts answers 403 until it has read the roles. Only one that lasts is a missing right: without a
# right to read, the next first contact ignores what is stored.
FORBIDDEN_SECONDS = 60.0


class TrustSecret:
    """The store of pins. `read` and `keep` block and are for a vCenter's thread; the rest is on the loop."""

    def __init__(self, client: Client, writer: Writer, namespace: str, held: Gate, clock: Clock = boottime) -> None:
        """`held` says why nothing may be written now. Made on a running loop, which it uses from then on."""
        self._client, self._writer, self._namespace, self._held = client, writer, namespace, held
        self._clock = clock
        self._forbidden_since: float | None = None  # None: the last look was answered
        self._loop = asyncio.get_running_loop()
        self.metadata = Metadata(name=NAME, namespace=namespace)  # with its UID once it was read

    def read(self, endpoint: Endpoint) -> Remembered:
        return self._wait(self._read(endpoint))

    def keep(self, endpoint: Endpoint, entry: Entry) -> Remembered:
        return self._wait(self._keep(endpoint, entry))

    def conditions(self, vcenters: Iterable[Judged]) -> Iterator[Condition]:
        """For the Fleet's status; none without a vCenter."""
        every = tuple(vcenters)
        if every:
            yield certificate_condition(every)

    def report(self, vcenter: Judged, recorder: Recorder) -> None:
        """An Event on the Secret where a vCenter shows another certificate."""
        if vcenter.certificate_refused:
            recorder.event(SECRET, self.metadata, "Warning", ANOTHER, "Connect", vcenter.certificate_refused)

    def _wait(self, work: Coroutine[Any, Any, Remembered]) -> Remembered:
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop has ended, and with it this process
            work.close()
            return Remembered(Says.UNKNOWN, why="the operator is stopping.")
        try:
            return asked.result(SECONDS)
        except TimeoutError:
            asked.cancel()
            return Remembered(Says.UNKNOWN, why=f"{self._place} was not read within {SECONDS:.0f} s.")

    async def _read(self, endpoint: Endpoint) -> Remembered:
        try:
            secret = await self._look()
        except Forbidden as error:
            return self._forbidden(error)
        except (ApiError, Unreachable, msgspec.MsgspecError) as error:
            return Remembered(Says.UNKNOWN, why=f"{self._place} cannot be read now ({error}).")
        found = self._entry(secret, endpoint)
        if found.says is not Says.NOTHING:
            return found
        if self._writer.dry_run:
            return Remembered(Says.NO_PLACE, why="a dry run writes nothing")
        return Remembered(Says.NOTHING, held=await self._holding())

    async def _keep(self, endpoint: Endpoint, entry: Entry) -> Remembered:
        for _ in range(TURNS):
            try:
                try:
                    secret = await self._look()
                except Forbidden as error:
                    return self._forbidden(error)
                found = self._entry(secret, endpoint)
                if found.says is not Says.NOTHING:
                    return found
                await self._write(secret, entry_key(endpoint.host, endpoint.port), entry)
            except Conflict:
                pass  # another replica was faster, and perhaps with this very vCenter
            except NotFound as error:
                if secret is None:
                    return Remembered(Says.NO_PLACE, why=f"{self._place} cannot be created ({error})")
            except Forbidden as error:
                return Remembered(Says.NO_PLACE, why=f"{self._place} may not be written ({error})")
            except WriteRefused as refused:
                return Remembered(Says.UNKNOWN, why=refused.why)
            except (ApiError, Unreachable, msgspec.MsgspecError) as error:
                return Remembered(Says.UNKNOWN, why=f"{self._place} cannot be written now ({error}).")
        return Remembered(Says.UNKNOWN, why=f"{self._place} is being written by others; it is tried again.")

    async def _look(self) -> Secret | None:
        try:
            found = await self._client.get(SECRET, NAME, self._namespace, type=Secret)
        except NotFound:
            self._forbidden_since = None
            return None
        self._forbidden_since = None
        self.metadata = found.metadata
        return found

    def _forbidden(self, error: Forbidden) -> Remembered:
        """The right to read is missing if the API server says so for long enough; before that nothing is known."""
        now = self._clock()
        if self._forbidden_since is None:
            self._forbidden_since = now
        if now - self._forbidden_since < FORBIDDEN_SECONDS:
            why = f"{self._place} may not be read yet ({error}); a missing right is believed after"
            return Remembered(Says.UNKNOWN, why=f"{why} {FORBIDDEN_SECONDS:.0f} s.")
        return Remembered(Says.NO_PLACE, why=f"{self._place} may not be read ({error})")

    def _entry(self, secret: Secret | None, endpoint: Endpoint) -> Remembered:
        data = secret.data.get(entry_key(endpoint.host, endpoint.port)) if secret is not None else None
        if data is None:
            return Remembered(Says.NOTHING)
        try:
            return Remembered(Says.PINNED, read_entry(data, endpoint.name))
        except NotAnEntry as error:
            key = entry_key(endpoint.host, endpoint.port)
            why = f"in {self._place} the entry {key} cannot be used: {error}. `hostler vcenter trust` writes it again."
            return Remembered(Says.UNREADABLE, why=why)

    async def _write(self, secret: Secret | None, key: str, entry: Entry) -> None:
        data = {key: write_entry(entry)}
        if secret is None:
            body = {"metadata": {"name": NAME, "namespace": self._namespace}, "type": "Opaque", "data": data}
            await self._writer.create(SECRET, body, self._namespace, type=Secret, why=WHY)
        else:
            version = {"resourceVersion": secret.metadata.resource_version}
            await self._writer.patch(
                SECRET, NAME, {"metadata": version, "data": data}, self._namespace, type=Secret, why=WHY
            )

    async def _holding(self) -> str:
        """Why nothing may be written; what is not known yet at the start is waited for a little."""
        why = self._held()
        for _ in range(int(PAUSE_SECONDS / LOOK_SECONDS)):
            if why is None:
                break
            await asyncio.sleep(LOOK_SECONDS)
            why = self._held()
        return why or ""

    @property
    def _place(self) -> str:
        return f"Secret {NAME} in namespace {self._namespace}"


class Judged(Protocol):
    """What the condition needs of a vCenter; `vsphere.vcenter.VCenter` is the real one."""

    @property
    def certificate_refused(self) -> str: ...
    @property
    def certificate_warning(self) -> str: ...
    @property
    def not_connected(self) -> str: ...


def certificate_condition(vcenters: Iterable[Judged]) -> Condition:
    """One for all vCenters: False names those that show another certificate, with both fingerprints.

    True only where each is connected: of one that is away, nobody knows which certificate it shows now.
    """
    every = tuple(vcenters)
    refused = [one.certificate_refused for one in every if one.certificate_refused]
    if refused:
        return Condition(type=TRUSTED, status=Status.FALSE, reason=ANOTHER, message=" ".join(refused))
    warned = [one.certificate_warning for one in every if one.certificate_warning]
    if warned:
        return Condition(type=TRUSTED, status=Status.UNKNOWN, reason="WeaklyTrusted", message=" ".join(warned))
    away = [one.not_connected for one in every if one.not_connected]
    if away:
        return Condition(type=TRUSTED, status=Status.UNKNOWN, reason="NotConnected", message=" ".join(away))
    fine = "No vCenter shows another certificate than the trusted one."
    return Condition(type=TRUSTED, status=Status.TRUE, reason="Trusted", message=fine)


# -- for people: the command line, with the rights of its user


async def read_trusted(client: Client, namespace: str) -> dict[str, bytes]:
    """Every entry as it is, by its key; empty where nothing was remembered yet."""
    try:
        return (await client.get(SECRET, NAME, namespace, type=Secret)).data
    except NotFound:
        return {}


async def accept_entry(client: Client, namespace: str, key: str, entry: Entry) -> None:
    """Write an entry in place of whatever is there. A concurrent change of another entry is not lost."""
    for turn in range(TURNS):
        try:
            try:
                secret = await client.get(SECRET, NAME, namespace, type=Secret)
            except NotFound:
                body = {"metadata": {"name": NAME, "namespace": namespace}, "type": "Opaque"}
                await client.create(SECRET, {**body, "data": {key: write_entry(entry)}}, namespace, type=Secret)
            else:
                version = {"resourceVersion": secret.metadata.resource_version}
                change = {"metadata": version, "data": {key: write_entry(entry)}}
                await client.patch(SECRET, NAME, change, namespace, type=Secret)
            return
        except Conflict:
            if turn == TURNS - 1:
                raise
