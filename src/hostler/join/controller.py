"""Approves what every rule lets through, and reports of everything else why it waits. It never denies.

One key, one pass over all pending requests: single use, rivals and floods need one view.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from hostler.instant import Instant
from hostler.join.decide import decide
from hostler.join.executor import JoinExecutor
from hostler.join.kubelet_request import Misshapen, Shape, shape_of
from hostler.join.model import USED, Decision, Facts, Policy, SigningRequest
from hostler.join.observe import Caches, approved_of, facts_of, pending_of
from hostler.join.served_certificate import ServedCertificates
from hostler.join.status import Report
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.writer import Writer

KEY = "requests"
PARSE_AT_ONCE = 50  # between two turns of the loop


class JoinReconciler:
    """Reconciles the one key. `decision` is what was carried out last, and what `explain` and `plan` show."""

    def __init__(
        self,
        caches: Caches,
        writer: Writer,
        report: Report,
        policy: Policy,
        certificates: ServedCertificates | None = None,
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        """For a spoke (`caches.spoke`) `writer` is that cluster's: both its memory and its requests are there.

        `certificates`: None asks no kubelet.
        """
        self.caches = caches
        self.decision = Decision()
        self.policy = policy
        self._report, self._certificates, self._clock = report, certificates, clock
        self._executor = JoinExecutor(caches, writer, report, clock)
        self._shapes: dict[str, Shape | Misshapen] = {}

    async def reconcile(self, key: str) -> float | None:
        if not self.caches.requests.store.synced:
            return UNREAD_SECONDS
        requests = pending_of(self.caches.requests.store)
        await self._parse([*requests, *approved_of(self.caches.requests.store)])
        facts, self.decision = await self._decide(requests)
        self._report_verdicts(facts)
        await self._executor.carry_out(self.decision.batches)
        return self.decision.wake

    async def _parse(self, requests: Sequence[SigningRequest]) -> None:
        """A request's text never changes: each is parsed once, and the loop goes on in between."""
        known = {request.metadata.uid for request in requests}
        self._shapes = {uid: shape for uid, shape in self._shapes.items() if uid in known}
        if self._certificates is not None:
            self._certificates.forget_all_but(known)
        for number, request in enumerate(requests):
            if request.metadata.uid not in self._shapes:
                self._shapes[request.metadata.uid] = shape_of(request.spec)
                if number % PARSE_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _decide(self, requests: Sequence[SigningRequest]) -> tuple[Facts, Decision]:
        """Decide, and once more if a kubelet had to be asked for what it serves now."""
        now = self._clock()
        facts, decision = self._decide_once(requests, now)
        if self._certificates is not None and await self._certificates.ask(decision.verdicts.values(), now):
            return self._decide_once(requests, now)
        return facts, decision

    def _decide_once(self, requests: Sequence[SigningRequest], now: Instant) -> tuple[Facts, Decision]:
        live = self._certificates.answers if self._certificates is not None else {}
        facts = facts_of(self.caches, live, self._shapes, self.policy, self._clock(), asked=bool(requests))
        remembers = self.caches.memory.store.get(f"{self.caches.namespace}/{USED}") is not None
        return facts, decide(requests, facts, self.policy, now, self._shapes, remembers=remembers)

    def _report_verdicts(self, facts: Facts) -> None:
        verdicts = tuple(self.decision.verdicts.values())
        self._report.judged(verdicts, facts.crowd)
        for verdict in verdicts:
            doubtful = verdict.unknown_name or verdict.is_contested
            request = self.caches.requests.store.get(verdict.csr) if doubtful else None
            if request is not None:
                self._report.stranger(request, verdict)
