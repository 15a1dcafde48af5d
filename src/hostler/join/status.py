"""What others see of verdicts: metrics, Events and explanations, of the hub and of spokes.

Events are on the request itself, or for a spoke on its object in the hub. A spoke's text is another party's. Its Events
on the hub carry our own text, and a node's name only where our own inventory has it; they do not differ from request to
request, so a spoke cannot fill the hub with Events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import Counter, Gauge

from hostler.explain.registry import Action, Explanation, RuleSeen
from hostler.host.conditions import Condition, Status, cut
from hostler.host.facts import Fact, Known, Unknown
from hostler.join.model import SIGNING_REQUEST, Act, Crowd, Decision, Outcome, SigningRequest, Verdict
from hostler.join.spokes import Spoke
from hostler.kube.events import EventType, Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata

FLOOD = "JoinFlood"


class Report(Protocol):
    """Told after every pass, and of every approval."""

    def judged(self, verdicts: Sequence[Verdict], crowd: Fact[Crowd]) -> None: ...
    def stranger(self, request: SigningRequest, verdict: Verdict) -> None: ...
    def approved(self, request: SigningRequest, verdict: Verdict) -> None: ...


class HubReport:
    """Of the cluster the operator runs in."""

    def __init__(self, recorder: Recorder, metrics: Metrics, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when the condition changed."""
        self.conditions: tuple[Condition, ...] = ()
        self._recorder, self._changed, registry = recorder, changed, metrics.registry
        self._pending = Gauge(
            "hostler_join_requests", "Pending certificate requests of nodes, by verdict.", ["act"], registry=registry
        )
        self._approved = Counter(
            "hostler_join_approved", "Certificate requests approved.", ["signer"], registry=registry
        )
        self._flood = Gauge("hostler_join_flood", "1 while more requests are pending than hosts.", registry=registry)

    def judged(self, verdicts: Sequence[Verdict], crowd: Fact[Crowd]) -> None:
        for act in Act:
            self._pending.labels(act).set(sum(verdict.act is act for verdict in verdicts))
        condition = flood_condition(crowd)
        self._flood.set(1 if condition.status is Status.TRUE else 0)
        before = self.conditions[0] if self.conditions else None
        if before is None or (before.status, before.reason) != (condition.status, condition.reason):
            self.conditions = (condition,)
            self._changed()

    def stranger(self, request: SigningRequest, verdict: Verdict) -> None:
        reason = "Contested" if verdict.is_contested else "UnknownHost"
        self._event(request, "Warning", reason, cut(verdict.why), refusing="join")

    def approved(self, request: SigningRequest, verdict: Verdict) -> None:
        self._approved.labels(request.spec.signer_name).inc()
        self._event(request, "Normal", "Approved", f"Node {verdict.node}: {verdict.why}")

    def _event(self, request: SigningRequest, type: EventType, reason: str, note: str, refusing: str = "") -> None:
        self._recorder.event(SIGNING_REQUEST, request.metadata, type, reason, "Approve", note, refusing=refusing)


def flood_condition(crowd: Fact[Crowd]) -> Condition:
    match crowd:
        case Known(known) if known.is_flood:
            message = (
                f"More than {known.allowed} certificate requests of nodes are pending: nothing is approved until "
                "they are fewer. See `hostler join csrs`; approve by hand with `hostler join approve`."
            )
            return Condition(type=FLOOD, status=Status.TRUE, reason="TooManyRequests", message=message)
        case Known():
            message = "Not more certificate requests are pending than there can be hosts."
            return Condition(type=FLOOD, status=Status.FALSE, reason="AsExpected", message=message)
        case Unknown(why):
            return Condition(type=FLOOD, status=Status.UNKNOWN, reason="NotKnown", message=cut(why))
    raise AssertionError("a fact is Known or Unknown")


class SpokeMetrics:
    """The metrics of every spoke, by its NAMESPACE/NAME; their number is bounded by the number of spokes."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self.up = Gauge(
            "hostler_join_spoke_up", "1 while the requests of that cluster are followed.", ["cluster"],
            registry=registry,
        )  # fmt: skip
        self.requests = Gauge(
            "hostler_join_spoke_requests", "Pending certificate requests of nodes in that cluster, by verdict.",
            ["cluster", "act"], registry=registry,
        )  # fmt: skip
        self.approved = Counter(
            "hostler_join_spoke_approved", "Certificate requests approved in that cluster.", ["cluster", "signer"],
            registry=registry,
        )  # fmt: skip
        self.flood = Gauge(
            "hostler_join_spoke_flood", "1 while more requests are pending in that cluster than it can have hosts.",
            ["cluster"], registry=registry,
        )  # fmt: skip

    def forget(self, cluster: str) -> None:
        """It is no spoke any more."""
        for family in (self.up, self.requests, self.approved, self.flood):
            family.remove_by_labels({"cluster": cluster})


class SpokeReport:
    """Of one spoke."""

    def __init__(self, spoke: Spoke, recorder: Recorder, metrics: SpokeMetrics) -> None:
        self._spoke, self._recorder, self._metrics = spoke, recorder, metrics

    def judged(self, verdicts: Sequence[Verdict], crowd: Fact[Crowd]) -> None:
        cluster, flood = self._spoke.key, isinstance(crowd, Known) and crowd.value.is_flood
        for act in Act:
            self._metrics.requests.labels(cluster, act).set(sum(verdict.act is act for verdict in verdicts))
        self._metrics.flood.labels(cluster).set(1 if flood else 0)
        if flood:
            message = "More certificate requests of nodes are pending in this cluster than it can have hosts."
            self.event("Warning", "JoinFlood", f"{message} Nothing is approved there until they are fewer.")

    def stranger(self, request: SigningRequest, verdict: Verdict) -> None:
        if verdict.is_contested:
            message = "Two certificate requests in this cluster are for one host, so both wait."
        else:
            message = "A certificate request in this cluster is for a node that nobody expects, so it waits."
        reason = "Contested" if verdict.is_contested else "UnknownHost"
        self.event("Warning", reason, f"{message} See `hostler join csrs --join-spokes {self._spoke.key}`.")

    def approved(self, request: SigningRequest, verdict: Verdict) -> None:
        self._metrics.approved.labels(self._spoke.key, request.spec.signer_name).inc()
        what = "serving certificate of a node" if verdict.serving else f"client certificate of node {verdict.node}"
        self.event("Normal", "Approved", f"Approved the {what} in this cluster.")

    def event(self, type: EventType, reason: str, note: str) -> None:
        """On the Cluster or ClusterDeployment."""
        spoke = self._spoke
        about = Metadata(name=spoke.name, namespace=spoke.namespace, uid=spoke.uid)
        self._recorder.event(spoke.kind, about, type, reason, "Approve", note)


def explain_request(csr: str, decision: Decision, held_back: str, spoke: Spoke | None = None) -> Explanation:
    """Every rule of one request, and what is written. A spoke's request can say as much as its API server lets it."""
    verdict = decision.verdicts[csr]
    rules = tuple(
        RuleSeen(rule.name, str(rule.outcome), f"{cut(rule.why)}.", decided=rule.outcome is Outcome.FAILS)
        for rule in verdict.rules
    )
    cluster, where = (f"{spoke.key}/", f"In {spoke}: ") if spoke is not None else ("", "")
    actions = tuple(
        Action(
            str(write.verb),
            f"{write.kind.kind.lower()}/{cluster}{write.name}",
            f"{where}{cut(write.why)}",
            held_back=held_back,
        )
        for write in decision.writes_about(csr)
    )
    return Explanation("join", f"{where}{cut(verdict.why)}", rules, actions=tuple(actions))
