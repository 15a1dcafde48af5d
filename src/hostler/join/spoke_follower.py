"""One spoke: its connection, its watches, its own queue. What goes wrong there delays nobody else.

    kubeconfig Secret -> client -> watches of requests, nodes, memory -> JoinReconciler -> approvals in the spoke

The Secret is read again before a pass that is due 10 s after the last reading, and while the spoke does not answer:
so an exchanged kubeconfig is used, and after a deleted one nothing is approved. Nothing is asked while nothing happens.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog

from hostler.host.conditions import cut
from hostler.host.facts import Known
from hostler.join.controller import JoinReconciler
from hostler.join.model import SIGNING_REQUEST, USED, Crowd, Decision, Policy, SigningRequest
from hostler.join.observe import Caches, Memory, pending_of
from hostler.join.rules import canonical
from hostler.join.spokes import Spoke, trim_node
from hostler.join.status import SpokeMetrics, SpokeReport
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.controller import Controller, Reconcile
from hostler.kube.errors import Forbidden, Unreachable
from hostler.kube.events import Recorder
from hostler.kube.foreign_watch import ForeignWatch, TooMuch
from hostler.kube.kinds import CONFIG_MAP, NODE, Kind
from hostler.kube.memory_shares import Share, Shares
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.safety.guard import FleetWatch

log = structlog.get_logger("hostler.join")

MEMORY_NAMESPACE = "kube-system"  # of the spoke: whom we let in there goes with it, also to another hub
MOST_REQUESTS, MOST_NODES = 5_000, 10_000
# Per watch and opening: bounds the time spent on reading. A Node has some 20 KiB on the wire, of which little is kept.
REQUEST_BYTES, NODE_BYTES, MEMORY_BYTES = 64 << 20, 512 << 20, 32 << 20
MOST_KEPT = 128 << 20  # bytes in memory of all spokes together
LARGEST_ANSWER, PAGE = 4 << 20, 50  # where a spoke does not stream, and of its answers to writes
SHORTEST_SECONDS = 60.0  # a watch that used up its bytes sooner than this is a flood, and not a busy cluster
LOOK_SECONDS = 10.0  # after trouble; the same for which `Clusters` does not read a Secret again
AWAY_SECONDS = 60.0  # of trouble, then its watches are dropped
REST_FIRST, REST_MOST = 10.0, 300.0
STEADY_SECONDS = 600.0  # followed for so long, the next rest is a short one again
PASS_SECONDS = 20.0  # a hand-over of the lease waits for a pass that has begun, and a spoke may never answer
COST_SECONDS = 0.002  # of rest for every pending request before the next pass: their number is the spoke's choice
FINISH_SECONDS = 5.0
SOON, LATER = 0.2, 1.0
REFUSES = (
    "The kubeconfig of this cluster may not approve certificate requests of kubelets there, or not write ConfigMap "
    f"{MEMORY_NAMESPACE}/{USED}: see docs/join.md."
)


class Standing(StrEnum):
    """How we stand with a spoke, in our own text."""

    FOLLOWED = "its certificate requests are followed"
    CONNECTING = "it is being read"
    NO_KUBECONFIG = "its kubeconfig cannot be used"
    KUBECONFIG_UNREAD = "its kubeconfig cannot be read now"
    AWAY = "it does not answer as an API server does, or refuses us"
    TOO_MUCH = "it sends more than a cluster should"
    NO_ROOM = "it is the largest of more clusters than fit into memory"
    BROKEN = "a bug in Hostler; its log has the details"


class _Leave(Exception):
    """Stop following for now."""

    def __init__(self, standing: Standing | None = None) -> None:
        super().__init__()
        self.standing = standing  # None: begin again at once, with another kubeconfig


@dataclass(frozen=True, slots=True)
class Hub:
    """What every follower shares."""

    clusters: Clusters
    sources: Mapping[Kind, Watch[Any]]
    fleet: FleetWatch
    policy: Policy
    writer_for: Callable[[Client], Writer]
    as_leader: Callable[[Reconcile], Reconcile]
    recorder: Recorder
    metrics: Metrics
    apart: Metrics  # of watches there: their numbers must not look like those of the hub's
    by_cluster: SpokeMetrics
    shares: Shares = field(default_factory=lambda: Shares(MOST_KEPT))


class Follower:
    """Follows one spoke for as long as `run` runs. `changed` is called when `standing` changed."""

    def __init__(self, spoke: Spoke, hub: Hub, changed: Callable[[], None]) -> None:
        self.spoke, self.standing, self.why = spoke, Standing.CONNECTING, ""
        self._hub, self._changed = hub, changed
        self._report = SpokeReport(spoke, hub.recorder, hub.by_cluster)
        self._reconciler: JoinReconciler | None = None
        self._controller: Controller | None = None
        self._watches: tuple[ForeignWatch[Any], ...] = ()
        self._trouble, self._woken = asyncio.Event(), asyncio.Event()
        self._rests = 0
        hub.by_cluster.up.labels(spoke.key).set(0)

    @property
    def decision(self) -> Decision:
        """What was decided last about the requests there."""
        return self._reconciler.decision if self._reconciler is not None else Decision()

    def wake(self, after: float = 0.0, *, waiting_only: bool = False) -> None:
        """Look again. `waiting_only`: something of the hub changed, which matters only if a request is pending."""
        reconciler, controller = self._reconciler, self._controller
        if controller is not None and reconciler is not None and (reconciler.decision.verdicts or not waiting_only):
            controller.queue.add(self.spoke.key, after=max(after, COST_SECONDS * len(reconciler.decision.verdicts)))

    def retry(self) -> None:
        """Its object on the hub changed: a kubeconfig may be there now."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            opened = _now()
            try:
                await self._connect()
            except _Leave as left:
                if left.standing is None:
                    continue
                self._stand(left.standing)
            except TooMuch as error:
                if _now() - opened >= SHORTEST_SECONDS:
                    continue  # a busy cluster: its watches are opened again, and with them what they may send
                log.warning("a spoke sends too much", spoke=str(self.spoke), why=str(error))
                self._stand(Standing.TOO_MUCH)
            except Exception:
                # The edge of one spoke: a bug, or an answer nobody thought of, must not end the others.
                log.exception("cannot follow a spoke", spoke=str(self.spoke))
                self._stand(Standing.BROKEN)
            if _now() - opened >= STEADY_SECONDS:
                self._rests = 0
            await self._rest()

    async def _rest(self) -> None:
        """Longer each time; a change of its object on the hub ends it, though not in the first seconds."""
        self._rests += 1
        longest = min(REST_FIRST * 2.0 ** min(self._rests - 1, 10), REST_MOST) * (0.75 + random.random() / 2)  # nosec B311 # jitter
        await asyncio.sleep(min(REST_FIRST, longest))
        self._woken.clear()
        try:
            async with asyncio.timeout(max(longest - REST_FIRST, 0.0)):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _connect(self) -> None:
        async with self._hub.clusters.client(self.spoke.namespace, self.spoke.secret) as client:
            if isinstance(client, Unavailable):
                self.why = cut(client.discreet or client.why)  # a reader of the explanation may not read the Secret
                raise _Leave(Standing.KUBECONFIG_UNREAD if client.unread else Standing.NO_KUBECONFIG)
            self.why = ""
            await self._follow(client)

    async def _follow(self, client: Client) -> None:
        self._trouble.clear()
        dropped = asyncio.Event()
        share = self._hub.shares.open(dropped.set)
        try:
            await self._follow_within(client, share, dropped)
        finally:
            share.close()

    async def _follow_within(self, client: Client, share: Share, dropped: asyncio.Event) -> None:
        caches = self._caches(client, share)
        hub, server = self._hub, canonical(urlsplit(client.connection.server).hostname or "")
        policy = replace(hub.policy, api_server=server, clusters=frozenset({self.spoke.key}))
        reconciler = JoinReconciler(
            caches, hub.writer_for(client), self._report, policy,
            certificates=None,  # its nodes say where their kubelets are: we would connect to whatever they name
        )  # fmt: skip
        controller = Controller("join-spoke", hub.as_leader(self._guarded(client, reconciler)), metrics=hub.metrics)
        self._reconciler, self._controller = reconciler, controller
        self._listen(caches)
        working = asyncio.create_task(controller.run())
        tasks = [asyncio.create_task(watch.run()) for watch in self._watches]
        tasks += [asyncio.create_task(self._mind(client)), asyncio.create_task(self._until_read())]
        tasks.append(asyncio.create_task(_leave_when(dropped)))
        try:
            await self._until_failed([working, *tasks])
        finally:
            controller.stop()
            for task in tasks:
                task.cancel()
            _, late = await asyncio.wait([working], timeout=FINISH_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(working, *tasks, return_exceptions=True)
            self._reconciler = self._controller = None
            self._watches = ()
            self._report.judged((), Known(Crowd(0, 0), 0.0))

    async def _until_failed(self, tasks: list[asyncio.Task[None]]) -> None:
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    def _caches(self, client: Client, share: Share) -> Caches:
        hub = self._hub
        more: dict[str, Any] = {
            "metrics": hub.apart, "share": share, "troubled": self._trouble.set, "where": str(self.spoke), "page": PAGE,
        }  # fmt: skip
        requests = ForeignWatch(
            client, SIGNING_REQUEST, SigningRequest, most_bytes=REQUEST_BYTES, most_objects=MOST_REQUESTS, **more
        )
        nodes = ForeignWatch(client, NODE, Node, most_bytes=NODE_BYTES, most_objects=MOST_NODES, trim=trim_node, **more)
        memory = ForeignWatch(
            client, CONFIG_MAP, Memory, most_bytes=MEMORY_BYTES, most_objects=10, namespace=MEMORY_NAMESPACE,
            fields=f"metadata.name={USED}", **more,
        )  # fmt: skip
        self._watches = (requests, nodes, memory)
        return Caches(requests, hub.sources, memory, nodes, hub.fleet, MEMORY_NAMESPACE, self.spoke)

    def _listen(self, caches: Caches) -> None:
        def request_changed(_: str, before: SigningRequest | None, after: SigningRequest | None) -> None:
            self.wake(SOON if before is None and after is not None else LATER)

        def node_changed(_: str, before: Node | None, after: Node | None) -> None:
            if before is None or after is None or before.status.addresses != after.status.addresses:
                self.wake(SOON, waiting_only=True)

        caches.requests.store.listen(request_changed)
        caches.nodes.store.listen(node_changed)
        caches.memory.store.listen(lambda *_: self.wake(LATER, waiting_only=True))

    def _guarded(self, client: Client, reconciler: JoinReconciler) -> Reconcile:
        async def reconcile(key: str) -> float | None:
            if pending_of(reconciler.caches.requests.store) and not await self._is_current(client):
                self._trouble.set()  # `_mind` finds out the same, and ends this
                raise Unreachable(f"the kubeconfig of {self.spoke} is another now, or gone")
            try:
                async with asyncio.timeout(PASS_SECONDS):
                    return await reconciler.reconcile(key)
            except TimeoutError:
                raise Unreachable(f"{self.spoke} does not answer within {PASS_SECONDS:g} s") from None
            except Forbidden:
                self._report.event("Warning", "SpokeRefuses", REFUSES)
                raise
            except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
                # What it answered to a write. No bug of ours that an alert should be about.
                raise Unreachable(f"{self.spoke} answers what no API server does: {type(error).__name__}") from None

        return reconcile

    async def _is_current(self, client: Client) -> bool:
        async with self._hub.clusters.client(self.spoke.namespace, self.spoke.secret) as now:
            return now is client

    async def _mind(self, client: Client) -> None:
        """Waits for trouble; looks for another kubeconfig then, and gives up after a while."""
        while True:
            await self._trouble.wait()
            self._trouble.clear()
            began = _now()
            while True:
                if not await self._is_current(client):
                    raise _Leave
                await asyncio.sleep(LOOK_SECONDS)
                if self._in_step():
                    break
                self._stand(Standing.AWAY)
                if _now() - began > AWAY_SECONDS:
                    raise _Leave(Standing.AWAY)
            self._stand(Standing.FOLLOWED)
            self.wake()

    async def _until_read(self) -> None:
        for watch in self._watches:
            await watch.synced.wait()
        if not self._in_step():
            self._trouble.set()  # a kind is not served there, which no watch complains of
            return
        self._stand(Standing.FOLLOWED)
        self.wake()

    def _in_step(self) -> bool:
        return all(watch.store.synced and not watch.problem for watch in self._watches)

    def _stand(self, standing: Standing) -> None:
        self._hub.by_cluster.up.labels(self.spoke.key).set(1 if standing is Standing.FOLLOWED else 0)
        if standing is self.standing:
            return
        self.standing = standing
        log.info("spoke", spoke=str(self.spoke), standing=standing.name, why=str(standing))
        if standing is not Standing.FOLLOWED:
            self._report.event("Warning", "SpokeNotFollowed", f"Certificate requests of nodes wait there: {standing}.")
        self._changed()


async def _leave_when(dropped: asyncio.Event) -> None:
    await dropped.wait()
    raise _Leave(Standing.NO_ROOM)


def _now() -> float:
    return asyncio.get_running_loop().time()
