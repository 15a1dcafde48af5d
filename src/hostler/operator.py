"""Wires the capabilities together.

One process, one loop: watch caches fill, controllers look at keys, every write passes one guard. Any replica reads and
answers; only the leader acts. On SIGTERM what was begun is finished, the lease is given back, then it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from hostler import __version__
from hostler.apis.fleet import NAME, Fleet, Pause
from hostler.capabilities import CAPABILITIES, IGNORE_INCUMBENT, ONLY, configured
from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources
from hostler.errors import Complaint, Exit
from hostler.explain.authentication import Authenticator
from hostler.explain.callers import READER
from hostler.explain.client import lease_annotations
from hostler.explain.nodes import NodeExplainers
from hostler.explain.read_api import Reads, Refusals, admission
from hostler.explain.registry import Registry
from hostler.fleet.controller import FleetController
from hostler.history.actions import ActionFeed
from hostler.history.metrics import HistoryMetrics
from hostler.history.read_api import HistoryReads
from hostler.history.recorder import Recorder as HistoryRecorder
from hostler.history.stores import make_store
from hostler.host.ceiling import is_out
from hostler.host.conditions import Condition
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.keeper import Keeper
from hostler.install.roles import Account
from hostler.inventory.model import node_key
from hostler.inventory.nodes import node_layer
from hostler.inventory.operations_api import OperationReads
from hostler.inventory.read_api import HostReads
from hostler.inventory.service import InventoryService
from hostler.inventory.sources import StoreSource
from hostler.inventory.stopping import StopSources
from hostler.kube import kinds, tls
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.clock import Steps
from hostler.kube.config import load
from hostler.kube.connection_check import ServerVersion, check, holds_lease
from hostler.kube.controller import Controller, Reconcile
from hostler.kube.election import Timing
from hostler.kube.events import Recorder
from hostler.kube.http import Server
from hostler.kube.lease import Leadership
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Pod, PodDisruptionBudget, VolumeAttachment, Workload
from hostler.kube.replica import Alone, new_identity
from hostler.kube.watch import Watch
from hostler.safety.guard import Guard
from hostler.safety.incumbent_watch import Lookout
from hostler.safety.switches import choose, load_part
from hostler.settings import foundation as say
from hostler.settings.model import Settings
from hostler.shared import Shared, Writers, drain_policy, make_vcenters
from hostler.web.files import Page
from hostler.web.login import Sessions, WebLogin, read_key
from hostler.web.stream import HostStream

if TYPE_CHECKING:
    from hostler.capability import Capability
    from hostler.safety.vcenter_trust import TrustSecret
    from hostler.vsphere.vcenter import VCenter

log = structlog.get_logger("hostler")

AGENT = f"hostler/{__version__} (operator)"  # in an audit log: not a person who uses the commands
# How long a stop waits for what was begun; Kubernetes sends SIGKILL after thirty.
GRACE = 20.0
# After handing over because our own node goes, we do not take the lease back for this long if somebody else wants it.
HANDOVER_SECONDS = 60.0


def run(settings: Settings) -> None:
    """Run until told to stop. A Complaint is something the person who started us can mend."""
    tls.small_buffers()
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    operator = Operator(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, operator.stop, signal.Signals(number).name)
    await operator.main()


class Operator:
    """One replica. `main` returns when it has stopped in good order, and raises a Complaint if it could not start."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dry_run = settings[say.DRY_RUN]
        self._stopping = asyncio.Event()
        self._contact: asyncio.Task[ServerVersion] | None = None
        self._handing_over: asyncio.Task[bool] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._metrics = Metrics()
        self._steps = Steps(self._metrics.clock_stepped)
        self._client = Client(load(say.kubeconfig_path(settings), settings[say.CONTEXT] or None), user_agent=AGENT)
        self._identity = new_identity(settings[say.POD_NAME])
        self._budget = WriteBudget(
            settings[say.WRITES_PER_SECOND], settings[say.WRITE_BURST], changed=self._metrics.write_rate
        )
        # Looked for every second while its CRD is not there: the first `hostler pause` may come with it.
        self._pauses = Watch(self._client, kinds.PAUSE, Pause, metrics=self._metrics, absent=1.0)
        self._fleet = Watch(self._client, kinds.FLEET, Fleet, metrics=self._metrics)
        self._nodes = Watch(self._client, kinds.NODE, Node, metrics=self._metrics)
        self._sources = Sources(
            Watch(self._client, kinds.POD, Pod, metrics=self._metrics, indexes=POD_INDEXES),
            Watch(self._client, kinds.POD_DISRUPTION_BUDGET, PodDisruptionBudget, metrics=self._metrics),
            Watch(
                self._client,
                kinds.VOLUME_ATTACHMENT,
                VolumeAttachment,
                metrics=self._metrics,
                indexes=ATTACHMENT_INDEXES,
            ),
            Watch(self._client, kinds.DAEMON_SET, Workload, metrics=self._metrics),
        )
        address = settings[say.HTTP_ADDRESS]
        self._leader: Leadership | Alone = Alone()
        authenticator = Authenticator(
            self._client,
            Account(settings[say.NAMESPACE], READER).user,
            metrics_open=not settings[say.METRICS_AUTHENTICATION],
        )
        refusals = Refusals(self._metrics.registry)
        admit = admission(authenticator, lambda: self._leader.gate(), refusals)
        login: WebLogin | None = None
        if settings[say.WEB_AUTH] == "kubernetes":
            sessions = Sessions(read_key(settings[say.WEB_KEY_FILE]))
            login = WebLogin(authenticator, sessions, admit, refusals, lambda: self._leader.gate())
            admit = login.admit
        self._server = Server(address.host, address.port, self._metrics, admit=admit, setting=say.HTTP_ADDRESS.name)
        if login is not None:
            login.mount(self._server)
        self._vcenters: tuple[VCenter, ...] = ()
        self._trust: TrustSecret | None = None
        self._capabilities: dict[str, Capability] = {}
        self._controllers: dict[str, Controller] = {}

    def stop(self, why: str) -> None:
        """Finish what was begun, then end. Asked twice, end at once."""
        if self._stopping.is_set():
            log.warning("ending at once; the lease is left to run out", why=why)
            os._exit(Exit.INTERRUPTED)  # with a SystemExit every task would be ended first, and complain of the others
        log.info("stopping; what was begun is finished first", why=why)
        self._stopping.set()
        if self._contact is not None:
            self._contact.cancel()

    async def main(self) -> None:
        try:
            await self._start()
            await self._until_stopped()
        finally:
            await self._end()

    # -- beginning

    async def _start(self) -> None:
        self._contact = asyncio.create_task(self._greet())
        await asyncio.wait([self._contact])
        if self._contact.cancelled():
            return  # told to stop while the API server let us wait
        version = self._contact.result()
        self._wire()
        await self._server.start()
        self._leader = self._candidate()
        self._leader.listen(self._led)
        log.info(
            "started",
            version=__version__, kubernetes=str(version), identity=self._identity, dry_run=self._dry_run,
            capabilities=[choice.capability.name for choice in self._guard.choices if choice.on],
        )  # fmt: skip
        for vcenter in self._vcenters:
            vcenter.start()
        for watch in self._watches():
            self._begin(watch.run(), watch.kind.resource)
        for controller in self._controllers.values():
            self._begin(controller.run(), controller.name)
        self._begin(self._leader.run(), "lease")
        self._begin(self._lookout.run(), "lookout")
        self._begin(self._recorder.run(), "events")
        self._begin(self._history_recorder.run(), "history")
        self._begin(self._host_stream.run(), "page")
        self._begin(self._resync(), "resync")
        self._begin(self._metrics.measure_loop(), "loop lag")
        self._begin(self._steps.run(), "clock")
        for name, capability in self._capabilities.items():
            self._begin(capability.run(), f"capability {name}")

    async def _greet(self) -> ServerVersion:
        version = await check(self._client)
        if self._settings[say.LEADER_ELECTION] and not self._dry_run:
            await holds_lease(self._client, self._settings[say.NAMESPACE])
        return version

    def _wire(self) -> None:
        settings = self._settings
        only, ignored = settings[ONLY], settings[IGNORE_INCUMBENT]
        self._guard = Guard(
            self._pauses,
            self._fleet,
            leader=lambda: self._leader.gate(),
            choices=choose(CAPABILITIES, only, configured(settings)),
            dry_run=self._dry_run,
            ignore_incumbent=ignored,
        )
        feed = self._feed = ActionFeed(
            settings[say.CLUSTER_NAME],
            self._sources.node_of,
            lambda *about: self._picture.recorded_as(*about),
            time.time,
        )
        self._sources.pods.store.listen(feed.pod_changed)
        writers = Writers(self._client, self._guard, self._budget, self._dry_run, self._metrics, feed.wrote)
        events = writers.of("fleet", WriteBudget(5, 50))
        self._recorder = Recorder(events, self._identity, self._metrics, listener=feed.refused)
        given = settings.given(say.MAX_UNAVAILABLE)
        history = writers.of("history", WriteBudget(2, 20))  # a budget of its own: no other write waits for a log
        self._history = make_store(settings, self._client, history, self._guard.gate_for("history"))
        self._status = FleetController(
            self._fleet, self._nodes, self._guard, writers.of("fleet"), metrics=self._metrics,
            limit=str(settings[say.MAX_UNAVAILABLE]) if given else "",
            leader=lambda: self._identity if self._leader.held() else self._leader.holder,
            unready=self._unready, conditions=self._capability_conditions,
        )  # fmt: skip
        self._keeper = Keeper(self._nodes, writers.of("holds"), self._recorder, time.time)
        self._controllers = {
            "fleet": Controller("fleet", self._as_leader(self._status.reconcile), metrics=self._metrics),
            "holds": Controller("holds", self._as_leader(self._keeper.reconcile), metrics=self._metrics, workers=4),
        }
        on = [choice.capability for choice in self._guard.choices if choice.on]
        if any(capability.asks_vcenters for capability in on):
            self._vcenters, self._trust = make_vcenters(settings, self._metrics, writers)
        for vcenter in self._vcenters:
            vcenter.listen_actions(feed.asked)
        shared = Shared(
            self._client, settings, writers, self._recorder, self._metrics, fleet=self._fleet, nodes=self._nodes,
            sources=self._sources, drain=drain_policy(settings), ceiling=self._status.room, vcenters=self._vcenters,
            as_leader=self._as_leader, acting=lambda: self._leader.acting(), changed=self._status_changed,
            stepped=self._steps.last,
        )  # fmt: skip
        self._capabilities = {one.name: load_part(one.made_by)(shared) for one in on if one.made_by}
        for capability in self._capabilities.values():
            self._controllers |= capability.controllers
        self._lookout = Lookout(self._client, self._guard, changed=self._wake_all)
        self._listen()
        self._serve()

    def _status_changed(self) -> None:
        self._controllers["fleet"].queue.add(NAME, after=0.1)

    def _capability_conditions(self) -> Iterator[Condition]:
        """The conditions of the capabilities, under names of their own."""
        for capability in self._capabilities.values():
            yield from capability.conditions()
        if self._trust is not None:
            yield from self._trust.conditions(self._vcenters)

    def _candidate(self) -> Leadership | Alone:
        """A dry run takes no lease: it writes nothing anywhere, and may run beside the real one."""
        settings = self._settings
        if self._dry_run or not settings[say.LEADER_ELECTION]:
            return Alone()
        service = settings[say.SERVICE] if settings[say.POD_NAME] else ""
        annotations = lease_annotations(service=service, url=self._server.url)
        timing = Timing(
            int(settings[say.LEASE_DURATION_SECONDS]),
            settings[say.LEASE_RENEW_SECONDS],
            settings[say.LEASE_RETRY_SECONDS],
        )
        return Leadership(
            self._client, settings[say.LEASE_NAME], settings[say.NAMESPACE], identity=self._identity, timing=timing,
            annotations=annotations,
        )  # fmt: skip

    def _serve(self) -> None:
        registry = Registry()
        NodeExplainers(
            self._nodes, self._sources, self._status.room, self._guard.gate_for("holds"),
            self._settings[say.UNINITIALISED_GRACE_SECONDS], drain_policy(self._settings), time.time,
        ).register(registry)  # fmt: skip
        for name, capability in self._capabilities.items():
            capability.register(registry, self._guard.gate_for(name))
        reads = Reads(
            registry, self._guard, self._status, self._settings, identity=self._identity,
            leadership=lambda: self._leader.gate(), dry_run=self._dry_run,
        )  # fmt: skip
        reads.mount(self._server)
        for capability in self._capabilities.values():
            capability.serve(self._server, reads.notes)
        if "maintenance" not in self._capabilities:
            reads.off(self._server, "/v1/maintenance", "maintenance")
        inventory = self._picture = self._inventory()
        HostReads(inventory, reads.notes).mount(self._server)
        OperationReads(inventory, reads.notes).mount(self._server)
        self._host_stream = HostStream(inventory, reads.notes, lambda: self._leader.gate(), self._server.admit)
        self._host_stream.mount(self._server)
        Page().mount(self._server)
        recorder = HistoryRecorder(
            self._history, inventory, self._feed, HistoryMetrics(self._metrics.registry),
            lambda: self._leader.token, lambda: not self._unready(),
        )  # fmt: skip
        self._history_recorder = recorder

        def history_notes() -> tuple[str, ...]:
            unread = [f"{name} cannot be read: {why}." for name, why in self._history.unreadable.items()]
            return (*reads.notes(), *filter(None, (recorder.trouble,)), *unread)

        HistoryReads(
            self._history, inventory, history_notes, lambda: recorder.trouble, lambda: self._leader.gate()
        ).mount(self._server)  # fmt: skip
        for number, watch in enumerate(self._watches(), 1):  # a kind may be watched twice, for other fields
            self._server.ready_if(f"{watch.kind.resource} ({number})", watch.not_in_step)

    def _inventory(self) -> InventoryService:
        cluster, own_node = self._settings[say.CLUSTER_NAME], self._settings[say.NODE_NAME]
        nodes = StoreSource(
            self._nodes.store, lambda name: node_key(cluster, name), lambda node: node_layer(node, cluster)
        )
        others = [source for one in self._capabilities.values() if (source := one.host_source(cluster)) is not None]

        def leader_node() -> Fact[str]:
            return Known(own_node, time.time()) if self._leader.held() else Unknown("this replica does not lead")

        stopping = StopSources(self._nodes, self._sources, others, leader_node)
        return InventoryService(uuid4().hex, (nodes, *others), stopping, time.time)

    # -- what wakes what

    def _listen(self) -> None:
        fleet, holds = self._controllers["fleet"], self._controllers["holds"]

        def node_changed(key: str, before: Node | None, after: Node | None) -> None:
            if after is not None and self._keeper.concerns(after):
                holds.queue.add(key)
            if FleetController.concerns(before, after):
                fleet.queue.add(NAME, after=0.1)  # a hundred nodes changing together are one status
            if key == self._settings[say.NODE_NAME] and after is not None and is_out(after):
                self._our_node_goes(before)

        self._nodes.store.listen(node_changed)
        for capability in self._capabilities.values():
            capability.listen()
        for vcenter in self._vcenters:
            vcenter.listen(lambda changed, vcenter=vcenter: None if changed else self._vcenter_stands(vcenter))  # type: ignore[misc]
        for store in (self._pauses.store, self._fleet.store):
            store.listen(lambda *_: self._wake_all())

    def _wake_all(self) -> None:
        fleet, holds = self._controllers["fleet"], self._controllers["holds"]
        fleet.queue.add(NAME, after=0.05)
        for capability in self._capabilities.values():
            capability.wake_all()
        for node in self._nodes.store.values():
            if self._keeper.concerns(node):
                holds.queue.add(node.metadata.name, priority=2)

    def _vcenter_stands(self, vcenter: VCenter) -> None:
        for capability in self._capabilities.values():
            capability.vcenter_changed()
        self._status_changed()
        if self._trust is not None:
            self._trust.report(vcenter, self._recorder)

    def _led(self, held: bool) -> None:
        self._metrics.leading(held)
        for capability in self._capabilities.values():
            capability.led(held)
        if held:
            self._wake_all()
            for vcenter in self._vcenters:
                self._vcenter_stands(vcenter)  # what the last leader saw, and could not tell any more

    def _our_node_goes(self, before: Node | None) -> None:
        """Our own node was taken out of service: whoever drains it next must not be the pod that is evicted first."""
        if (before is not None and is_out(before)) or not self._leader.held():
            return
        log.info("our own node goes out of service; handing the lease over", node=self._settings[say.NODE_NAME])
        self._handing_over = asyncio.get_running_loop().create_task(self._leader.yield_to_others(HANDOVER_SECONDS))

    async def _resync(self) -> None:
        """Everything is looked at again now and then: a forgotten wake-up must not last."""
        while True:
            await asyncio.sleep(self._settings[say.RESYNC_SECONDS])
            self._wake_all()

    def _as_leader(self, reconcile: Reconcile) -> Reconcile:
        """Only the leader acts, and a hand-over waits for what it has begun."""

        async def led(key: str) -> float | None:
            with self._leader.acting():
                return await reconcile(key)

        return led

    # -- running and ending

    def _watches(self) -> Iterator[Watch[Any]]:
        yield from (self._pauses, self._fleet, self._nodes)
        yield from (self._sources.pods, self._sources.budgets, self._sources.attachments, self._sources.daemon_sets)
        for capability in self._capabilities.values():
            yield from capability.watches()

    def _unready(self) -> list[str]:
        return [why for watch in self._watches() if (why := watch.not_in_step()) is not None]

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def _until_stopped(self) -> None:
        """Until a signal comes, or a part ends that should not: then we end too, loudly, and are started afresh."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            done, _ = await asyncio.wait([stopping, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            task.result()
            raise RuntimeError(f"the part {task.get_name()!r} ended by itself")

    async def _end(self) -> None:
        """In this order: begin nothing new, finish what was begun, tell it, let the next one lead, close the doors."""
        if self._tasks:
            for controller in self._controllers.values():
                controller.stop()
            working = [task for task in self._tasks if task.get_name() in self._controllers]
            _, late = await asyncio.wait(working, timeout=GRACE) if working else (set(), set())
            if late:
                log.warning("not everything finished in time", left=sorted(task.get_name() for task in late))
            for capability in self._capabilities.values():
                await capability.finish()
            # Before the next one leads: a call that is still on its way to a vCenter is cut.
            await asyncio.gather(*(vcenter.stop() for vcenter in self._vcenters))
            await self._history_recorder.finish()
            await self._recorder.stop()
            await self._leader.stop(within=2.0)
        for task in self._tasks:
            task.cancel()
        for task, end in zip(self._tasks, await asyncio.gather(*self._tasks, return_exceptions=True), strict=True):
            if isinstance(end, Exception) and not isinstance(end, Complaint):  # that is for who started us, and no bug
                log.error("a part of the operator failed", part=task.get_name(), exc_info=end)
        await self._server.stop()
        for capability in self._capabilities.values():
            await capability.close()
        await self._client.close()
        if self._tasks:
            await self._history.close()
            log.info("stopped")
