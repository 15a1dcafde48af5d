"""Hosts that are expected to join, as the Fleet says, until their node is there; and which requests wait.

Other expected hosts are BareMetalHosts, Machines and Agents: those are shown by what stands for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hostler.apis.fleet import NAME, ExpectedHost
from hostler.host.conditions import cut
from hostler.instant import Instant, iso, parse
from hostler.inventory.model import Host, Layer, LayerKind, Line, expected_key, node_key
from hostler.inventory.sources import RecordedAs, Source
from hostler.inventory.states import HostState
from hostler.join.controller import JoinReconciler
from hostler.join.model import SIGNING_REQUEST, Act, Decision, Verdict
from hostler.kube.kinds import Kind

JOIN = "join"
NEVER = float("inf")
FIRST_BOOT = "its first boot"


class JoinSource(Source):
    def __init__(self, reconciler: JoinReconciler, cluster: str, clock: Callable[[], Instant]) -> None:
        """`cluster`: what this cluster is called in the picture."""
        self._reconciler, self._cluster, self._clock = reconciler, cluster, clock
        self._nodes = reconciler.caches.nodes.store
        self._listeners: list[Callable[[], None]] = []
        self._stale = True
        self._judged: Decision | None = None
        self._until = NEVER  # when the next one is not expected any more
        self._shown: set[str] = set()
        reconciler.caches.fleet.store.listen(lambda *_: self._wake())
        self._nodes.listen(lambda _, before, after: self._wake() if before is None or after is None else None)

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def take(self) -> Mapping[str, Layer | None]:
        now, decision = self._clock(), self._reconciler.decision
        if not self._stale and decision is self._judged and now < self._until:
            return {}
        self._stale, self._judged, self._until = False, decision, NEVER
        waiting = {
            verdict.node: verdict for verdict in decision.verdicts.values() if _waits(verdict) and not verdict.serving
        }
        found: dict[str, Layer | None] = dict.fromkeys(self._shown)
        for entry in self._expected(now):
            layer = self._layer(entry, waiting.get(entry.name))
            found[layer.key] = layer
        self._shown = {key for key, layer in found.items() if layer is not None}
        return found

    def notes(self, host: Host) -> tuple[str, ...]:
        """Requests of its node that are pending."""
        if not host.node:
            return ()
        verdicts = self._reconciler.decision.verdicts.values()
        found = (verdict for verdict in verdicts if verdict.node == host.node and _waits(verdict))
        return tuple(f"Certificate request {verdict.csr} is pending: {cut(verdict.why)}" for verdict in found)

    def recorded_as(self, kind: Kind, namespace: str, name: str) -> RecordedAs | None:
        """A certificate request is its node's. Whoever may ask for one chooses the name: a strange name is nobody's."""
        verdict = self._reconciler.decision.verdicts.get(name) if kind == SIGNING_REQUEST else None
        if verdict is None or not verdict.node or verdict.unknown_name:
            return None
        return RecordedAs(node_key(self._cluster, verdict.node))

    def _wake(self) -> None:
        self._stale = True
        for listener in self._listeners:
            listener()

    def _expected(self, now: Instant) -> Iterator[ExpectedHost]:
        fleet = self._reconciler.caches.fleet.store.get(NAME)
        for entry in fleet.spec.join.expected if fleet is not None else ():
            until = parse(entry.until)
            if until is not None and until > now and self._nodes.get(entry.name) is None:
                self._until = min(self._until, until)
                yield entry

    def _layer(self, entry: ExpectedHost, verdict: Verdict | None) -> Layer:
        until = parse(entry.until)
        limit = iso(until) if until is not None else "an unknown time"
        why = f"It is expected until {limit} and has not asked for a certificate."
        if verdict is not None:
            why = f"Certificate request {verdict.csr} is pending: {cut(verdict.why)}"
        since = verdict.created if verdict is not None else parse(entry.since)
        line = Line(JOIN, HostState.JOINING, why, since, waiting="" if verdict is not None else FIRST_BOOT)
        key = expected_key(self._cluster, entry.name)
        return Layer(key, LayerKind.EXPECTED, entry.name, (line,), cluster=self._cluster, node=entry.name)


def _waits(verdict: Verdict) -> bool:
    return verdict.act in (Act.WAIT, Act.LEAVE)
