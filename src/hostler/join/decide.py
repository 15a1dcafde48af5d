"""Which nodes are let in, and what is written for it: requests, facts and policy in, verdicts and writes out. Pure.

Invariants, each a property test: nothing is approved on an unknown fact; a request that differs in anything from one
that would be approved is not approved; a host is let in once per invitation; nothing is ever denied; no client
certificate is approved before our memory of it is written.
A name proves nothing (whoever has the bootstrap credential can claim one): that is why inventory, window and single
use all apply, and why two requests for one host are left to a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hostler.host.conditions import count, names
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant, parse
from hostler.join.kubelet_request import Misshapen, Shape, requester_rule, shape_of
from hostler.join.model import (
    CLIENT,
    OURS,
    SERVING,
    SIGNING_REQUEST,
    USED,
    Act,
    Batch,
    Decision,
    Facts,
    Outcome,
    Policy,
    Rule,
    RuleName,
    SigningRequest,
    Use,
    Verb,
    Verdict,
    Write,
)
from hostler.join.rules import client_rules, flood_rule, serving_rules
from hostler.kube.kinds import CONFIG_MAP

BATCH = 200  # hosts remembered in one patch
REMEMBERED_SECONDS = 30 * 86400.0  # a host let in longer ago than this, whom nobody expects, is forgotten
AGAIN_SECONDS = 60.0
UNREAD_SECONDS = 5.0  # the same while a fact is unknown: an empty kind sends no event once it has been read


def decide(
    requests: Sequence[SigningRequest],
    facts: Facts,
    policy: Policy,
    now: Instant,
    shapes: Mapping[str, Shape | Misshapen] | None = None,
    *,
    remembers: bool = True,
) -> Decision:
    """Judge every request and plan the approvals. `remembers`: our ConfigMap is there."""
    verdicts = judge_requests(requests, facts, policy, now, shapes)
    judged = {request.metadata.name: request for request in requests}
    # Without our memory nothing says that a host was not let in before; `decide` has a rule for that too.
    due = [
        verdict
        for verdict in verdicts
        if verdict.act is Act.APPROVE and (verdict.serving or isinstance(facts.used, Known))
    ]
    batches = []
    for start in range(0, len(due), BATCH):
        batch = due[start : start + BATCH]
        memory = _memory(batch, facts, now, create=not remembers)
        remembers = remembers or memory is not None
        batches.append(Batch(memory, tuple(_approval(verdict, judged[verdict.csr]) for verdict in batch)))
    waiting = any(verdict.act is Act.WAIT or (verdict.act is Act.LEAVE and verdict.serving) for verdict in verdicts)
    again = UNREAD_SECONDS if _is_unread(facts) else AGAIN_SECONDS
    return Decision({verdict.csr: verdict for verdict in verdicts}, tuple(batches), again if waiting else None)


def _is_unread(facts: Facts) -> bool:
    """Whether anything that every request is judged by is not known."""
    shared = (facts.nodes, facts.invited, facts.used, facts.crowd, facts.limits)
    return any(isinstance(fact, Unknown) for fact in shared)


def _approval(verdict: Verdict, request: SigningRequest) -> Write:
    return Write(Verb.APPROVE, SIGNING_REQUEST, verdict.csr, verdict.why, request=request, verdict=verdict)


def _memory(verdicts: Iterable[Verdict], facts: Facts, now: Instant, *, create: bool) -> Write | None:
    """The lines of hosts that are about to come in; those of hosts long in, whom nobody expects, go."""
    used = facts.used.value if isinstance(facts.used, Known) else {}
    new = {
        verdict.node: Use(verdict.csr, verdict.uid, verdict.created)
        for verdict in verdicts
        if not verdict.serving and ((before := used.get(verdict.node)) is None or before.uid != verdict.uid)
    }
    if not new:
        return None
    # An invitation may last longer than our memory does: a host that is expected is not forgotten.
    expected = facts.invited.value if isinstance(facts.invited, Known) else used
    old = {
        name: None for name, use in used.items() if now - use.at > REMEMBERED_SECONDS and name not in expected
    }  # fmt: skip
    why = f"{count(len(new), 'host')} let in: {names(new)}"
    lines: dict[str, Use | None] = {**({} if create else old), **new}
    return Write(Verb.CREATE if create else Verb.PATCH, CONFIG_MAP, USED, why, lines=lines)


def judge_requests(
    requests: Iterable[SigningRequest],
    facts: Facts,
    policy: Policy,
    now: Instant,
    shapes: Mapping[str, Shape | Misshapen] | None = None,
) -> list[Verdict]:
    """A verdict for every request of a kubelet's signer, oldest first. `shapes`: what is parsed already, by uid."""
    known = shapes or {}
    made = [
        judge_request(request, facts, policy, now, known.get(request.metadata.uid))
        for request in requests
        if request.spec.signer_name in OURS
    ]
    made.sort(key=lambda verdict: (verdict.created, verdict.csr))
    return _contested(made, facts)


def judge_request(
    request: SigningRequest, facts: Facts, policy: Policy, now: Instant, shape: Shape | Misshapen | None = None
) -> Verdict:
    """One request by itself, every rule of it."""
    meta = request.metadata
    created = parse(meta.creation_timestamp)
    verdict = Verdict(
        meta.name, meta.uid, Act.IGNORE, "", created=created or 0.0, serving=request.spec.signer_name == SERVING
    )
    if request.decided_by:
        return replace(verdict, act=Act.DONE, why=f"It is decided already: {names(request.decided_by)}.")
    shape = shape if shape is not None else shape_of(request.spec)
    if isinstance(shape, Misshapen):
        return replace(verdict, why=f"Ignored: {shape.why}.", rules=(Rule(RuleName.SHAPE, Outcome.FAILS, shape.why),))
    well_made = Rule(RuleName.SHAPE, Outcome.HOLDS, f"it asks for node {shape.node}, as a kubelet does")
    requester = requester_rule(request.spec, shape.node, policy)
    if requester.outcome is not Outcome.HOLDS:
        return replace(verdict, node=shape.node, why=f"Ignored: {requester.why}.", rules=(well_made, requester))
    client = request.spec.signer_name == CLIENT
    rules = (
        client_rules(request, shape, facts, policy, created, now)
        if client
        else serving_rules(request, shape, facts, policy)
    )
    return _concluded(replace(verdict, node=shape.node), (well_made, requester, flood_rule(facts), *rules))


def _concluded(verdict: Verdict, rules: Sequence[Rule]) -> Verdict:
    failed = [rule for rule in rules if rule.outcome is Outcome.FAILS]
    unknown = [rule for rule in rules if rule.outcome is Outcome.UNKNOWN]
    done = replace(verdict, rules=tuple(rules))
    done = replace(done, unknown_name=done.outcome_of(RuleName.INVITED) is Outcome.FAILS)
    if failed:
        return replace(done, act=Act.LEAVE, why=f"Pending: {_describe_first(failed)}.")
    if unknown:
        return replace(done, act=Act.WAIT, why=f"Not decided yet: {_describe_first(unknown)}.")
    what = "serving" if verdict.serving else "client"
    return replace(done, act=Act.APPROVE, why=f"Every rule for a {what} certificate of {verdict.node} holds.")


# -- sentences


def _describe_first(rules: Sequence[Rule]) -> str:
    more = f" (and {len(rules) - 1} more)" if len(rules) > 1 else ""
    return f"{rules[0].why}{more}"


def _contested(made: Sequence[Verdict], facts: Facts) -> list[Verdict]:
    """Two that would be approved for one host: one of them is not that host, and which cannot be told from here."""
    rivals: dict[str, list[str]] = {}
    for verdict in made:
        if verdict.act is Act.APPROVE and not verdict.serving:
            rivals.setdefault(verdict.node, []).append(verdict.csr)
    invited = facts.invited.value if isinstance(facts.invited, Known) else {}
    out = []
    for verdict in made:
        if verdict.act is not Act.APPROVE or verdict.serving:
            out.append(verdict)
            continue
        called = {verdict.node, *(name for host in invited.get(verdict.node, ()) for name in host.also)}
        others = [csr for name in sorted(called) for csr in rivals.get(name, ()) if csr != verdict.csr]
        if others:
            why = f"{names(others)} asks for node {names(sorted(called))} too; only one can be that host"
            rules = (*verdict.rules, Rule(RuleName.CONTESTED, Outcome.FAILS, why))
            verdict = replace(verdict, act=Act.LEAVE, why=f"Pending: {why}.", rules=rules)
        out.append(verdict)
    return out
