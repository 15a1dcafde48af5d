"""One vCenter as the rest of Hostler sees it: facts, listeners, actions. Start reading here.

Everything public runs on the event loop and never blocks it; everything that blocks runs on this room's threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from hostler.host.facts import Fact, Known, Unknown, then
from hostler.instant import Instant
from hostler.vsphere import actions, bulk, faults
from hostler.vsphere.decode import Change
from hostler.vsphere.endpoints import Endpoint
from hostler.vsphere.faults import AlreadySo, Kind, Outcome, Refused, Started
from hostler.vsphere.inventory import Batch, Inventory
from hostler.vsphere.metrics import Metrics
from hostler.vsphere.outcomes import Asked, said
from hostler.vsphere.pool import Pool, post
from hostler.vsphere.records import Host, Task, Vm
from hostler.vsphere.session import Link, NotConnected, Session, Standing
from hostler.vsphere.trust import Trust
from hostler.vsphere.watcher import Watcher

T = TypeVar("T")
log = structlog.get_logger("hostler.vsphere")

STOP_SECONDS = 5.0
CANCEL_SECONDS = 0.25
# Told the ids of what changed, in one call per answer of the server; nothing in it means: how we stand has changed.
Listener = Callable[[frozenset[str]], None]


class VCenter:
    """One vCenter. `start` it on a running loop, `await stop()` it at the end."""

    def __init__(
        self,
        endpoint: Endpoint,
        metrics: Metrics,
        *,
        poll: float = 30.0,
        trust: Trust | None = None,
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        self.name = endpoint.name
        self.endpoint = endpoint
        self.poll = poll
        self.link = Link(Standing.CONNECTING, f"vCenter {self.name} has not been asked yet.", clock())
        self.inventory = Inventory()  # as last seen, however old; decisions use `facts`
        self.heard: Instant | None = None  # when the server last said anything
        self.metrics = metrics
        self._clock = clock
        self._listeners: list[Listener] = []
        self._action_listeners: list[Callable[[Asked], None]] = []
        self._pool = Pool(f"vcenter-{self.name}")
        self._session = Session(endpoint, metrics, poll, trust)
        self._ended = asyncio.Event()
        self._stopped = False
        self._doubts: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watcher: Watcher | None = None
        self._followed: frozenset[str] = frozenset()
        self._reads: list[set[str]] = []  # of each read under way, what was pushed meanwhile
        began = clock()
        metrics.silence(self.name, lambda: max(0.0, clock() - (self.heard if self.heard is not None else began)))
        metrics.connected(self.name, False)
        metrics.certificate_refused(self.name, False)

    @property
    def certificate_refused(self) -> str:
        """That it shows another certificate than the trusted one, with both fingerprints; "" where it does not."""
        return self.link.sentence if self.link.standing is Standing.BAD_CERTIFICATE else ""

    @property
    def certificate_warning(self) -> str:
        """What is wrong with how its certificate is judged; "" where nothing is."""
        forgets = self._session.trust.warning(self.endpoint)
        return self.endpoint.warning() or (
            f"What certificate vCenter {self.name} has is forgotten at a restart: {forgets}." if forgets else ""
        )

    @property
    def not_connected(self) -> str:
        """Why it is not connected, in a sentence; "" where it is."""
        return "" if self.link.connected else self.link.sentence

    # -- life

    def start(self) -> None:
        """Begin to follow it. Returns at once and never raises for anything a vCenter can do."""
        if warning := self.endpoint.warning():
            log.warning(warning, vcenter=self.name)
        loop = self._loop = asyncio.get_running_loop()
        self._watcher = Watcher(
            self._session,
            self.metrics,
            poll=self.poll,
            tell=lambda batch: post(loop, partial(self._take, batch)),
            stands=lambda link: post(loop, partial(self._stand, link)),
            ended=lambda: post(loop, self._ended.set),
            clock=self._clock,
        )
        self._watcher.start()

    async def stop(self, bound: float = STOP_SECONDS) -> None:
        """Log out and end the threads, within `bound` seconds whatever the server does."""
        if self._watcher is None or self._stopped:
            return
        self._stopped = True
        try:
            async with asyncio.timeout(bound):
                await self._let_go(self._watcher)
        except TimeoutError:
            log.warning("vCenter does not let go; its connections are cut", vcenter=self.name)
            self._session.cut()
            try:
                async with asyncio.timeout(1.0):
                    await self._ended.wait()
            except TimeoutError:
                log.warning("a thread is left in a call; it ends with the process", vcenter=self.name)
        self._pool.close()

    async def _let_go(self, watcher: Watcher) -> None:
        """Cancel the wait until the thread has ended: a cancel that overtakes the wait on its way finds nothing."""
        while not self._ended.is_set():
            await self._pool.run(watcher.stop)
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._ended.wait()
            except TimeoutError:
                continue

    def listen(self, listener: Listener) -> None:
        """Call `listener` on the loop at every change from now on. It must be quick and must not raise."""
        self._listeners.append(listener)

    def listen_actions(self, listener: Callable[[Asked], None]) -> None:
        """Call `listener` with everything that is asked for from now on. It must be quick and must not raise."""
        self._action_listeners.append(listener)

    # -- what is known

    def facts(self) -> Fact[Inventory]:
        """The inventory as of the server's last word, or why it is not known. Never raises.

        The server speaks at least once in POLL_INTERVAL_SECONDS: facts older than twice that are stale.
        """
        if not self.link.connected or not self.inventory.complete or self.heard is None:
            return Unknown(str(self.link))
        return Known(self.inventory, self.heard)

    async def check_nodes(self, uuids: Collection[str]) -> Fact[list[bulk.Checked]]:
        """Hardware and ESXi version of many VMs by UUID, in one bulk read."""
        return await self._read("node checks", lambda: bulk.check_nodes(self._session, uuids))

    async def lacking_privileges(
        self, entities: Collection[str], wanted: Collection[bulk.Privilege]
    ) -> Fact[dict[str, list[bulk.Privilege]]]:
        """Which privileges our user lacks on VMs and resource pools, by id; what vCenter left out is not in it."""
        vms = [one for one in entities if self.inventory.vm(one) is not None]
        pools = [one for one in entities if self.inventory.vm(one) is None]
        return await self._read("privileges", lambda: bulk.lacking_on(self._session, vms, pools, wanted))

    async def refresh(self, vms: Collection[str]) -> None:
        """Look how these VMs and their hosts stand, in one call: a push may come late, or not at all."""
        known = [vm for one in vms if (vm := self.inventory.vm(one)) is not None]
        hosts, ids = {vm.host for vm in known if vm.host}, [vm.moref for vm in known]
        if not self.link.connected or not ids:
            return
        with self._noting_pushes() as pushed:
            match await self._read("a look at hosts and VMs", lambda: bulk.read_standing(self._session, hosts, ids)):
                case Known((changes, shown)):
                    tasks = [task for one in changes if one.kind is Host for task in self.inventory.tasks_of(one.moref)]
                    over = [Change(Task, task.moref, None) for task in tasks if task.moref not in shown]
                    self._changed(self.inventory.refresh(_unpushed([*changes, *over], pushed)))

    @contextmanager
    def _noting_pushes(self) -> Iterator[set[str]]:
        """The ids of what is pushed while something is read: a push may be newer than what was read."""
        pushed: set[str] = set()
        self._reads.append(pushed)
        try:
            yield pushed
        finally:
            self._reads.remove(pushed)

    async def look(self, vms: Collection[str]) -> Fact[list[Vm]]:
        """These VMs as they are now, devices too: one call. For right before something drastic.

        A VM that is not in the answer is gone. What was seen counts for the next decision too.
        """
        with self._noting_pushes() as pushed:
            read = await self._read("a look at VMs", lambda: bulk.read_vms(self._session, vms))
            if isinstance(read, Known):
                self._changed(self.inventory.amend(_unpushed(read.value, pushed)))
        return then(
            read, lambda changes: [replace(Vm(one.moref), **(one.fields or {}), unread=one.unread) for one in changes]
        )

    async def follow(self, vms: Collection[str]) -> None:
        """Keep the devices of these VMs known wherever they are; replaces what was followed before."""
        if self._watcher is None:
            return
        self._followed = frozenset(vms)
        self._watcher.extra = self._beyond()  # from the next answer of the server on
        unread = [one for one in vms if self._unread(one)]
        if unread:
            await self.look(unread)

    def _unread(self, vm: str) -> bool:
        """Its devices are not known."""
        return (found := self.inventory.vm(vm)) is not None and isinstance(found.devices, Unknown)

    def _beyond(self) -> frozenset[str]:
        """Followed VMs that are on no host with devices: those of such a host are known with it."""
        found = (self.inventory.vm(one) for one in self._followed)
        hosts = {vm.moref: self.inventory.host(vm.host) for vm in found if vm is not None}
        return frozenset(one for one in self._followed if not ((host := hosts.get(one)) and host.offers_devices))

    # -- what is done

    async def shut_down_guest(self, vm: str) -> Outcome:
        return await self._act(actions.shut_down_guest, vm)

    async def power_off(self, vm: str) -> Outcome:
        return await self._act(actions.power_off, vm)

    async def power_on(self, vm: str, host: str = "") -> Outcome:
        return await self._act(actions.power_on, vm, host)

    async def relocate(self, vm: str, host: str, pool: str = "") -> Outcome:
        """Compute only."""
        return await self._act(actions.relocate, vm, host, pool)

    async def cancel_task(self, task: str) -> Outcome:
        return await self._act(actions.cancel_task, task)

    async def mark(self, vm: str, text: str) -> Outcome:
        """Write the attribute `hostler` of a VM; "" takes it away. The inventory shows it at once."""
        known = self.inventory.attribute_key(actions.ATTRIBUTE)
        outcome, key = await self._pool.run(lambda: actions.mark(self._session, vm, text, known))
        outcome = self._with_names(outcome)
        done = "marked a VM" if text else "took the mark off a VM"
        log.info(done, vcenter=self.name, vm=self.inventory.name(vm), id=vm, text=text, answer=said(outcome))
        self._report_action("mark", vm, f"mark {self.inventory.name(vm)}", outcome)
        self._doubt(outcome)
        if isinstance(outcome, Started) and key is not None:
            self._overlay(vm, key, text)
        return outcome

    async def _act(self, action: Callable[..., Outcome], *args: str) -> Outcome:
        outcome = self._with_names(await self._pool.run(lambda: action(self._session, *args)))
        what = " ".join((action.__name__.replace("_", " "), *(self.inventory.name(one) for one in args))).strip()
        log.info("asked vCenter", vcenter=self.name, to=what, ids=args, answer=said(outcome))
        self._report_action(action.__name__, args[0], what, outcome)
        self._doubt(outcome)
        return outcome

    def _report_action(self, what: str, moref: str, sentence: str, outcome: Outcome) -> None:
        task = self.inventory.task(moref)
        vm = self.inventory.vm(task.entity if task is not None else moref)
        if vm is not None:
            for listener in self._action_listeners:
                listener(Asked(self.name, vm.instance_uuid or vm.moref, what, sentence, outcome))

    def _with_names(self, outcome: Outcome) -> Outcome:
        """What is said of objects names them as people do: it ends in Events and logs."""
        match outcome:
            case AlreadySo(why):
                return AlreadySo(self.inventory.with_names(why))
            case Refused(_, sentence):
                return replace(outcome, sentence=self.inventory.with_names(sentence))
        return outcome

    def _doubt(self, outcome: Outcome) -> None:
        """A call without a session while we believe to be connected: have it looked into, and do not wait for that."""
        if (
            isinstance(outcome, Refused)
            and outcome.kind is Kind.NOT_CONNECTED
            and self.link.connected
            and self._watcher
        ):
            doubt = asyncio.ensure_future(self._pool.run(self._watcher.doubt))
            self._doubts.add(doubt)
            doubt.add_done_callback(self._doubts.discard)

    async def _read(self, what: str, read: Callable[[], T]) -> Fact[T]:
        asked = self._clock()
        try:
            return Known(await self._pool.run(read), asked)
        except NotConnected:
            return Unknown(str(self.link))
        except bulk.NoAnswer as error:
            return Unknown(f"vCenter {self.name} did not answer ({what}): {error}")
        except faults.RAISED as error:
            why = self.inventory.with_names(faults.read(error).sentence)
            return Unknown(f"vCenter {self.name} did not answer ({what}): {why}")

    # -- on the loop, from the watcher

    def _take(self, batch: Batch) -> None:
        self.heard = batch.at
        changed = self.inventory.apply(batch)
        for pushed in self._reads:
            pushed.update(one.moref for one in batch.changes)
        if batch.complete and any(self._unread(one) for one in self._followed):
            # A new session: what is followed may be elsewhere now, where nobody reads its devices.
            again = asyncio.ensure_future(self.follow(self._followed))
            self._doubts.add(again)
            again.add_done_callback(self._doubts.discard)
        if self._watcher is not None and not changed.isdisjoint(self._followed):
            self._watcher.extra = self._beyond()
        self._changed(changed)

    def _changed(self, changed: frozenset[str]) -> None:
        if changed:
            self.metrics.objects(self.name, len(self.inventory))
            self._notify(changed)

    def _stand(self, link: Link) -> None:
        self.link = link
        self.metrics.connected(self.name, link.connected)
        self.metrics.certificate_refused(self.name, bool(self.certificate_refused))
        self._notify(frozenset())

    def _notify(self, changed: frozenset[str]) -> None:
        for listener in self._listeners:
            listener(changed)

    def _overlay(self, vm: str, key: int, text: str) -> None:
        """What the server took is true now, also where its push comes later."""
        record = self.inventory.vm(vm)
        if record is None:
            return
        kept = tuple(one for one in record.attributes if one[0] != key)
        attributes = tuple(sorted((*kept, (key, text)))) if text else kept
        fields = self.inventory.fields
        if self.inventory.attribute_key(actions.ATTRIBUTE) is None:
            self.inventory.fields = replace(fields, names=(*fields.names, (key, actions.ATTRIBUTE)))
        self._changed(self.inventory.amend([Change(Vm, vm, {"attributes": attributes})]))


def _unpushed(changes: Iterable[Change], pushed: Collection[str]) -> list[Change]:
    """Of what was read, the objects of which nothing was pushed meanwhile."""
    return [one for one in changes if one.moref not in pushed]
