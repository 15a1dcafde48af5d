"""Keeps the Fleet's status true: observe, decide, one patch per pass and only when something changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

import msgspec
import structlog
from prometheus_client import Gauge

from hostler import __version__
from hostler.apis.fleet import NAME, Fleet, FleetSpec, FleetStatus
from hostler.errors import Complaint
from hostler.fleet.decide import CapabilityFacts, FleetFacts, decide_status
from hostler.host.ceiling import Limit, OutOfService, Room, parse_limit, room_of
from hostler.host.conditions import Condition
from hostler.host.holds import HOLDS
from hostler.host.taints import OUT_OF_SERVICE_BY
from hostler.instant import Instant
from hostler.kube.cache import Cache
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node
from hostler.kube.writer import Writer
from hostler.safety.guard import Guard
from hostler.safety.incumbents import State

log = structlog.get_logger("hostler.fleet")
OUT = (HOLDS, OUT_OF_SERVICE_BY)  # by these a node is out of service by us
NOTHING_GOES = Limit(0, percent=False, at_least=0)


def effective_limit(spec: FleetSpec, setting: str) -> tuple[Limit, str]:
    """The ceiling in force: the Fleet's, else the setting's. What cannot be read lets nothing go, and says so."""
    if spec.max_unavailable is None:
        return parse_limit(setting), ""
    try:
        return parse_limit(str(spec.max_unavailable)), ""
    except Complaint:
        return NOTHING_GOES, (
            f"Fleet.spec.maxUnavailable is {spec.max_unavailable!r}, which is neither a number nor a percentage; "
            "no node is taken out of service until it is mended."
        )


class FleetController:
    """Reconciles the one key `cluster`. Without a Fleet object the status is still made, for HTTP and metrics."""

    def __init__(
        self,
        fleet: Cache[Fleet],
        nodes: Cache[Node],
        guard: Guard,
        writer: Writer,
        *,
        limit: str,
        leader: Callable[[], str],
        metrics: Metrics,
        unready: Callable[[], Iterable[str]] = tuple,
        conditions: Callable[[], Iterable[Condition]] = tuple,
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        """`limit` is the text of MAX_UNAVAILABLE; `leader` names who leads; `unready` says what is out of step.

        `conditions` gives the conditions of the capabilities, under names that are theirs alone (`PlatformDegraded`).
        """
        self._fleet = fleet
        self._nodes = nodes
        self._out = OutOfService(nodes.store)
        self._guard = guard
        self._writer = writer
        self._limit = limit
        self._leader = leader
        self._unready = unready
        self._conditions = conditions
        self._clock = clock
        self._shown = FleetStatus()
        self._was_paused = False
        registry = metrics.registry
        self._paused = Gauge("hostler_paused", "1 while a Pause exists, or while that is not known.", registry=registry)
        self._counts = Gauge("hostler_nodes", "Nodes, by what is the case.", ["what"], registry=registry)
        self._writes = Gauge("hostler_capability_writes", "1: may write.", ["capability"], registry=registry)

    @staticmethod
    def concerns(before: Node | None, after: Node | None) -> bool:
        """Whether a change of a node can change the status; heartbeats cannot."""
        if before is None or after is None:
            return True
        return any(before.metadata.annotations.get(one) != after.metadata.annotations.get(one) for one in OUT)

    def room(self, also_out: Iterable[str] = (), touched: Collection[str] | None = None) -> Room:
        """What the ceiling leaves now, as `host.ceiling.room_of` has it. A node that cannot be read counts as out."""
        limit, _ = effective_limit(self._spec(), self._limit)
        return room_of(self._out.count(), limit, (*also_out, *self._nodes.store.unreadable), touched)

    def status(self) -> FleetStatus:
        """The status as of now, whether or not there is a Fleet to write it to."""
        fleet = self._fleet.store.get(NAME)
        before = fleet.status if fleet is not None else self._shown
        self._shown = decide_status(self._facts(fleet), before, self._clock())
        return self._shown

    async def reconcile(self, key: str) -> float | None:
        status = self.status()
        self._notice()
        self._measure(status)
        fleet = self._fleet.store.get(key)
        if fleet is None or fleet.status == status:
            return None
        body = {"status": msgspec.to_builtins(status)}
        await self._fleet.patch(self._writer, key, body, why="the fleet's status changed", subresource="status")
        return None

    def _spec(self) -> FleetSpec:
        fleet = self._fleet.store.get(NAME)
        return fleet.spec if fleet is not None else FleetSpec()

    def _facts(self, fleet: Fleet | None) -> FleetFacts:
        pause = self._guard.pause()
        limit, problem = effective_limit(self._spec(), self._limit)
        left = self.room()
        return FleetFacts(
            generation=fleet.metadata.generation if fleet is not None else 0,
            pause=pause,
            leader=self._leader(),
            version=__version__,
            capabilities=tuple(self._capabilities()),
            nodes=left.total,
            nodes_known=self._nodes.store.synced,
            held=len(left.out),
            out=left.out,
            ceiling=left.allowed,
            limit=str(limit),
            limit_problem=problem,
            unready=tuple(self._unready()),
            conditions=tuple(self._conditions()),
        )

    def _capabilities(self) -> Iterable[CapabilityFacts]:
        for choice in self._guard.choices:
            name = choice.capability.name
            verdict = self._guard.verdict(name)
            ignored = self._guard.ignores(name)
            found = verdict is not None and verdict.state is State.FOUND and not ignored
            unknown = verdict is not None and verdict.state is State.UNKNOWN and not ignored
            yield CapabilityFacts(
                name=name,
                on=choice.on,
                why=choice.why,
                blocked=(self._guard.blocked(name) or "") if choice.on else "",
                incumbent=verdict.incumbent if verdict is not None and found else "",
                incumbent_why=verdict.why if verdict is not None and found else "",
                incumbent_unknown=verdict.why if verdict is not None and unknown else "",
            )

    def _notice(self) -> None:
        """That a pause begins or ends is in the log too."""
        pause = self._guard.pause()
        if pause.known and pause.stopped != self._was_paused:
            self._was_paused = pause.stopped
            if pause.stopped:
                log.warning("paused", why=pause.why)
            else:
                log.info("no longer paused", why=pause.why)

    def _measure(self, status: FleetStatus) -> None:
        self._paused.set(1 if self._guard.pause().stopped else 0)
        for what in ("nodes", "held", "unavailable", "ceiling"):
            self._counts.labels(what).set(getattr(status.counts, what))
        for one in status.capabilities:
            self._writes.labels(one.name).set(1 if one.writes else 0)
