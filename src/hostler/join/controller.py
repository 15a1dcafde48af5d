"""Approves what every rule lets through, and reports of everything else why it waits. It never denies.

One key, one pass over all pending requests: single use, rivals and floods need one view.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from hostler.host.conditions import Condition, Status, cut
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.join.decide import decide
from hostler.join.executor import JoinExecutor
from hostler.join.kubelet_request import Misshapen, Shape, shape_of
from hostler.join.model import USED, Decision, Facts, Live, Policy, SigningRequest
from hostler.join.observe import Caches, approved_of, facts_of, pending_of
from hostler.join.served_certificate import (
    LIVE_SECONDS,
    kubelets_to_ask,
    may_be_renewal,
    read_kubelet_authority,
    read_served_certificate,
)
from hostler.join.status import Report
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.client import Client
from hostler.kube.writer import Writer

KEY = "requests"
PARSE_AT_ONCE = 50  # between two turns of the loop
FLOOD = "JoinFlood"


class JoinKeeper:
    """Reconciles the one key. `decision` is what was carried out last, and what `explain` and `plan` show.

    For a spoke (`caches.spoke`) `client` and `writer` are that cluster's: both its memory and its requests are there.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches,
        writer: Writer,
        report: Report,
        policy: Policy,
        *,
        kubelet_ca: str | None,
        changed: Callable[[], None],
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        """`kubelet_ca`: None asks no kubelet. `changed` is called when our condition changed."""
        self.caches = caches
        self.decision = Decision()
        self.conditions: tuple[Condition, ...] = ()
        self.policy = policy
        self._client, self._report = client, report
        self._executor = JoinExecutor(caches, writer, report, clock)
        self._kubelet_ca, self._changed, self._clock = kubelet_ca, changed, clock
        self._shapes: dict[str, Shape | Misshapen] = {}
        self._live: dict[str, tuple[Instant, Fact[Live]]] = {}

    async def reconcile(self, key: str) -> float | None:
        if not self.caches.requests.store.synced:
            return UNREAD_SECONDS
        requests = pending_of(self.caches.requests.store)
        await self._parse([*requests, *approved_of(self.caches.requests.store)])
        facts, self.decision = await self._decide(requests)
        self._report_verdicts(facts)
        await self._executor.carry_out(self.decision.batches)
        return self.decision.wake

    # -- looking

    async def _parse(self, requests: Sequence[SigningRequest]) -> None:
        """A request's text never changes: each is parsed once, and the loop goes on in between."""
        known = {one.metadata.uid for one in requests}
        self._shapes = {uid: shape for uid, shape in self._shapes.items() if uid in known}
        self._live = {uid: one for uid, one in self._live.items() if uid in known}
        for number, one in enumerate(requests):
            if one.metadata.uid not in self._shapes:
                self._shapes[one.metadata.uid] = shape_of(one.spec)
                if number % PARSE_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _facts(self, requests: Sequence[SigningRequest]) -> Facts:
        live = {uid: fact for uid, (_, fact) in self._live.items()}
        return facts_of(self.caches, live, self._shapes, self.policy, self._clock(), asked=bool(requests))

    async def _decide(self, requests: Sequence[SigningRequest]) -> tuple[Facts, Decision]:
        """Decide, and once more if a kubelet had to be asked for what it serves now."""
        now, facts = self._clock(), self._facts(requests)
        decision = self._decided(requests, facts, now)
        due = [one for one in decision.verdicts.values() if may_be_renewal(one) and self._ask_again(one.uid, now)]
        if not due or self._kubelet_ca is None:
            return facts, decision
        ca = await read_kubelet_authority(self._client, self._kubelet_ca)
        nodes = kubelets_to_ask(due, {uid: at for uid, (at, _) in self._live.items()})
        told = await asyncio.gather(*(read_served_certificate(self._client, one, ca, now) for one in nodes))
        said = dict(zip(nodes, told, strict=True))
        self._live |= {one.uid: (now, said[one.node]) for one in due if one.node in said}
        facts = self._facts(requests)
        return facts, self._decided(requests, facts, now)

    def _decided(self, requests: Sequence[SigningRequest], facts: Facts, now: Instant) -> Decision:
        remembers = self.caches.memory.store.get(f"{self.caches.namespace}/{USED}") is not None
        return decide(requests, facts, self.policy, now, self._shapes, remembers=remembers)

    def _ask_again(self, uid: str, now: Instant) -> bool:
        before = self._live.get(uid)
        return before is None or now - before[0] >= LIVE_SECONDS

    # -- reporting

    def _report_verdicts(self, facts: Facts) -> None:
        verdicts = tuple(self.decision.verdicts.values())
        condition = self._condition(facts)
        self._report.judged(verdicts, flood=condition.status is Status.TRUE)
        for one in verdicts:
            request = self.caches.requests.store.get(one.csr) if one.unknown_name or one.is_contested else None
            if request is not None:
                self._report.stranger(request, one)
        before = self.conditions[0] if self.conditions else None
        if before is None or (before.status, before.reason) != (condition.status, condition.reason):
            self.conditions = (condition,)
            self._changed()

    def _condition(self, facts: Facts) -> Condition:
        match facts.crowd:
            case Known(crowd) if crowd.is_flood:
                said = (
                    f"More than {crowd.allowed} certificate requests of nodes are pending: nothing is approved until "
                    "they are fewer. See `hostler join csrs`; approve by hand with `hostler join approve`."
                )
                return Condition(type=FLOOD, status=Status.TRUE, reason="TooManyRequests", message=said)
            case Known():
                said = "Not more certificate requests are pending than there can be hosts."
                return Condition(type=FLOOD, status=Status.FALSE, reason="AsExpected", message=said)
            case Unknown(why):
                return Condition(type=FLOOD, status=Status.UNKNOWN, reason="NotKnown", message=cut(why))
        raise AssertionError("a fact is Known or Unknown")
