"""Approves what every rule lets through, and says of everything else why it waits. It never denies.

One key, one pass over all pending requests: single use, rivals and floods need one view. Whom we are about to let in
is written down first, many at once; only then is each request approved, with the version that was judged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from hostler.host.conditions import Condition, Status, count, cut, names
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant, iso
from hostler.join import live as kubelets
from hostler.join.decide import decide
from hostler.join.model import (
    USED,
    Act,
    Facts,
    Live,
    Outcome,
    Policy,
    SigningRequest,
    Use,
    Verdict,
)
from hostler.join.observe import Caches, approved_of, facts_of, line_of, pending_of
from hostler.join.report import Report, is_contested
from hostler.join.shape import Misshapen, Shape, shape_of
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Conflict, NotFound, Unreachable, WriteRefused
from hostler.kube.writer import Writer

log = structlog.get_logger("hostler.join")
_FORESEEN = (ApiError, Unreachable, WriteRefused)

KEY = "requests"
BATCH = 200  # hosts written down in one patch
AT_ONCE = 16
PARSE_AT_ONCE = 50  # between two turns of the loop
LIVE_SECONDS = 60.0  # a kubelet is asked for its certificate no more often than this
LIVE_MOST = 20  # kubelets asked in one pass
REMEMBERED_SECONDS = 30 * 86400.0  # a host let in longer ago than this, whom nobody expects, is forgotten
AGAIN_SECONDS = 60.0
FLOOD = "JoinFlood"


class JoinKeeper:
    """Reconciles the one key. `verdicts` is what it last thought of every pending request.

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
        self.verdicts: Mapping[str, Verdict] = {}
        self.conditions: tuple[Condition, ...] = ()
        self.policy = policy
        self._client, self._writer, self._report = client, writer, report
        self._kubelet_ca, self._changed, self._clock = kubelet_ca, changed, clock
        self._shapes: dict[str, Shape | Misshapen] = {}
        self._live: dict[str, tuple[Instant, Fact[Live]]] = {}
        self._where = f"{caches.spoke}: " if caches.spoke is not None else ""  # in the log, before what was written

    async def reconcile(self, key: str) -> float | None:
        if not self.caches.requests.store.synced:
            return UNREAD_SECONDS
        requests = pending_of(self.caches.requests.store)
        await self._parse([*requests, *approved_of(self.caches.requests.store)])
        verdicts, facts = await self._judge(requests)
        self.verdicts = {one.csr: one for one in verdicts}
        self._say(verdicts, facts)
        await self._approve([one for one in verdicts if one.act is Act.APPROVE], facts)
        waiting = any(one.act is Act.WAIT or (one.act is Act.LEAVE and one.serving) for one in verdicts)
        return AGAIN_SECONDS if waiting else None

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

    async def _judge(self, requests: Sequence[SigningRequest]) -> tuple[list[Verdict], Facts]:
        """Judge, and once more if a kubelet had to be asked for what it serves now."""
        now, facts = self._clock(), self._facts(requests)
        verdicts = decide(requests, facts, self.policy, now, self._shapes)
        due = [one for one in verdicts if may_be_renewal(one) and self._ask_again(one.uid, now)]
        if not due or self._kubelet_ca is None:
            return verdicts, facts
        ca = await kubelets.authority(self._client, self._kubelet_ca)
        nodes = kubelets_to_ask(due, {uid: at for uid, (at, _) in self._live.items()})
        told = await asyncio.gather(*(kubelets.served_by(self._client, one, ca, now) for one in nodes))
        said = dict(zip(nodes, told, strict=True))
        self._live |= {one.uid: (now, said[one.node]) for one in due if one.node in said}
        facts = self._facts(requests)
        return decide(requests, facts, self.policy, now, self._shapes), facts

    def _ask_again(self, uid: str, now: Instant) -> bool:
        before = self._live.get(uid)
        return before is None or now - before[0] >= LIVE_SECONDS

    # -- acting

    async def _approve(self, verdicts: Sequence[Verdict], facts: Facts) -> None:
        for start in range(0, len(verdicts), BATCH):
            batch = verdicts[start : start + BATCH]
            if not await self._write_down([one for one in batch if not one.serving], facts):
                return
            limit = asyncio.Semaphore(AT_ONCE)

            async def one_of(verdict: Verdict, limit: asyncio.Semaphore = limit) -> None:
                async with limit:
                    await self._approve_one(verdict)

            done = await asyncio.gather(*(one_of(one) for one in batch), return_exceptions=True)
            failed = [one for one in done if isinstance(one, BaseException)]
            if failed:  # a bug before what is only tried again, which would hide it
                raise next((one for one in failed if not isinstance(one, _FORESEEN)), failed[0])

    async def _write_down(self, verdicts: Sequence[Verdict], facts: Facts) -> bool:
        """Whom we let in, before we do. False: not written (a dry run), so nobody is let in."""
        if not isinstance(facts.used, Known):
            return not verdicts
        new = {
            one.node: Use(one.csr, one.uid, one.created)
            for one in verdicts
            if (before := facts.used.value.get(one.node)) is None or before.uid != one.uid
        }
        if not new:
            return True
        key = f"{self.caches.namespace}/{USED}"
        there = self.caches.memory.store.get(key)
        now = self._clock()
        # An invitation may last longer than our memory does: whoever is expected is not forgotten.
        expected = facts.invited.value if isinstance(facts.invited, Known) else facts.used.value
        old = {
            name: None
            for name, use in facts.used.value.items()
            if now - use.at > REMEMBERED_SECONDS and name not in expected
        }
        lines: dict[str, Any] = {**old, **{name: line_of(use) for name, use in new.items()}}
        why = f"{self._where}{count(len(new), 'host')} let in: {names(new)}"
        if there is None:
            given = {name: line for name, line in lines.items() if line is not None}
            body = {"metadata": {"name": USED}, "data": given}
            written = await self.caches.memory.create(self._writer, body, self.caches.namespace, why=why)
        else:
            # The version: another leader's line must not be lost under ours.
            body = {"metadata": {"resourceVersion": there.metadata.resource_version}, "data": lines}
            written = await self.caches.memory.patch(self._writer, USED, body, self.caches.namespace, why=why)
        if written is None:
            for one in verdicts:
                log.info("would approve", csr=one.csr, node=one.node, why=f"{self._where}{one.why}")
            return False
        return True

    async def _approve_one(self, verdict: Verdict) -> None:
        request = self.caches.requests.store.get(verdict.csr)
        if request is None or request.metadata.uid != verdict.uid:
            return  # gone, or another of the same name: that one is judged by itself
        body, why = approval(request, verdict.why, self._clock()), f"{self._where}{verdict.why}"
        try:
            written = await self.caches.requests.patch(self._writer, verdict.csr, body, why=why, subresource="approval")
        except (Conflict, NotFound):
            return  # somebody decided it, or it is gone; the watch brings it
        if written is None:
            return
        self._report.approved(request, verdict)

    # -- saying

    def _say(self, verdicts: Sequence[Verdict], facts: Facts) -> None:
        condition = self._condition(facts)
        self._report.judged(verdicts, flood=condition.status is Status.TRUE)
        for one in verdicts:
            request = self.caches.requests.store.get(one.csr) if one.unknown_name or is_contested(one) else None
            if request is not None:
                self._report.stranger(request, one)
        before = self.conditions[0] if self.conditions else None
        if before is None or (before.status, before.reason) != (condition.status, condition.reason):
            self.conditions = (condition,)
            self._changed()

    def _condition(self, facts: Facts) -> Condition:
        match facts.crowd:
            case Known(crowd) if crowd.pending > crowd.allowed:
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


def approval(request: SigningRequest, why: str, now: Instant) -> dict[str, Any]:
    """The patch of the approval subresource; with the version that was judged, so it cannot land on another."""
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "HostlerJoin",
        "message": cut(why),
        "lastUpdateTime": iso(now),
    }
    about = {"uid": request.metadata.uid, "resourceVersion": request.metadata.resource_version}
    return {"metadata": about, "status": {"conditions": [condition]}}


def kubelets_to_ask(due: Sequence[Verdict], asked: Mapping[str, Instant]) -> list[str]:
    """The nodes whose kubelets are asked in this pass; `asked`: when, by request.

    Whoever was not asked for longest first. Each node once, however many requests it makes: it crowds out no other.
    """
    longest = sorted(due, key=lambda one: asked.get(one.uid, 0.0))
    return list(dict.fromkeys(one.node for one in longest))[:LIVE_MOST]


def may_be_renewal(one: Verdict) -> bool:
    """Only the names are in doubt: then what the kubelet serves now may tell."""
    doubts = {rule.name for rule in one.rules if rule.outcome is not Outcome.HOLDS}
    return one.serving and one.act in (Act.LEAVE, Act.WAIT) and doubts == {"its own names"}
