"""Which nodes are let in. Pure: requests, facts and policy in; a verdict with every rule for every request out.

Invariants, each a property test: nothing is approved on an unknown fact; a request that differs in anything from one
that would be approved is not approved; a host is let in once per invitation; nothing is ever denied.
A name proves nothing (whoever has the bootstrap credential can claim one): that is why inventory, window and single
use all apply, and why two requests for one host are left to a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hostler.host.conditions import names
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant, parse
from hostler.join.addresses import serving_rules
from hostler.join.model import (
    CLIENT,
    OURS,
    SERVING,
    Act,
    Crowd,
    Facts,
    Invitation,
    Outcome,
    Policy,
    Rule,
    RuleName,
    SigningRequest,
    Verdict,
)
from hostler.join.requester import requester_rule
from hostler.join.rules import fails, holds, unknown
from hostler.join.shape import Misshapen, Shape, shape_of


def decide(
    requests: Iterable[SigningRequest],
    facts: Facts,
    policy: Policy,
    now: Instant,
    shapes: Mapping[str, Shape | Misshapen] | None = None,
) -> list[Verdict]:
    """A verdict for every request of a kubelet's signer, oldest first. `shapes`: what is parsed already, by uid."""
    known = shapes or {}
    made = [
        judge(one, facts, policy, now, known.get(one.metadata.uid)) for one in requests if one.spec.signer_name in OURS
    ]
    made.sort(key=lambda one: (one.created, one.csr))
    return _contested(made, facts)


def judge(
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
        _client(request, shape, facts, policy, created, now) if client else serving_rules(request, shape, facts, policy)
    )
    return _concluded(replace(verdict, node=shape.node), (well_made, requester, _crowd(facts), *rules))


def _concluded(verdict: Verdict, rules: Sequence[Rule]) -> Verdict:
    failed = [one for one in rules if one.outcome is Outcome.FAILS]
    unknown = [one for one in rules if one.outcome is Outcome.UNKNOWN]
    done = replace(verdict, rules=tuple(rules))
    done = replace(done, unknown_name=done.outcome_of(RuleName.INVITED) is Outcome.FAILS)
    if failed:
        return replace(done, act=Act.LEAVE, why=f"Pending: {_describe_first(failed)}.")
    if unknown:
        return replace(done, act=Act.WAIT, why=f"Not decided yet: {_describe_first(unknown)}.")
    what = "serving" if verdict.serving else "client"
    return replace(done, act=Act.APPROVE, why=f"Every rule for a {what} certificate of {verdict.node} holds.")


def _contested(made: Sequence[Verdict], facts: Facts) -> list[Verdict]:
    """Two that would be approved for one host: one of them is not that host, and which cannot be told from here."""
    rivals: dict[str, list[str]] = {}
    for one in made:
        if one.act is Act.APPROVE and not one.serving:
            rivals.setdefault(one.node, []).append(one.csr)
    invited = facts.invited.value if isinstance(facts.invited, Known) else {}
    out = []
    for one in made:
        if one.act is not Act.APPROVE or one.serving:
            out.append(one)
            continue
        called = {one.node, *(name for host in invited.get(one.node, ()) for name in host.also)}
        others = [csr for name in sorted(called) for csr in rivals.get(name, ()) if csr != one.csr]
        if others:
            why = f"{names(others)} asks for node {names(sorted(called))} too; only one can be that host"
            rules = (*one.rules, Rule(RuleName.CONTESTED, Outcome.FAILS, why))
            one = replace(one, act=Act.LEAVE, why=f"Pending: {why}.", rules=rules)
        out.append(one)
    return out


# -- rules of both


def _crowd(facts: Facts) -> Rule:
    match facts.crowd:
        case Known(Crowd(pending, allowed) as crowd) if not crowd.is_flood:
            return holds(RuleName.NO_FLOOD, f"{pending} pending in the last hour, {allowed} allowed")
        case Known(Crowd(pending, allowed)):
            return fails(
                RuleName.NO_FLOOD, f"{pending} requests of the last hour are pending, more than {allowed}: a flood"
            )
        case Unknown(why):
            return unknown(RuleName.NO_FLOOD, f"how many requests are pending is not known: {why}")
    raise AssertionError("a fact is Known or Unknown")


# -- a client certificate: a machine becomes a node


def _client(
    request: SigningRequest, shape: Shape, facts: Facts, policy: Policy, created: Instant | None, now: Instant
) -> list[Rule]:
    rules = [_not_there(shape.node, facts)]
    match facts.invited:
        case Unknown(why):
            return [*rules, unknown(RuleName.INVITED, f"who is expected is not known: {why}")]
        case Known(invited):
            known = invited.get(shape.node, ())
    found = [one for one in known if one.here(facts.clusters)]
    if not found:
        return [*rules, _not_invited(request, shape.node, known, facts)]
    rules.append(holds(RuleName.INVITED, f"expected by {names(one.source for one in found)}"))
    same = _same_host(shape.node, found, invited)
    rules.append(_unambiguous(shape.node, found))
    rules.append(_no_node_yet(found, same, facts))
    timely = [one for one in found if _in_window(one, created, now, policy)]
    rules.append(_window(found, timely, created, now, policy, _by_hand(request, shape.node, facts)))
    rules.append(_single_use(request, shape.node, timely or found, same, facts))
    return rules


def _same_host(
    name: str, found: Sequence[Invitation], invited: Mapping[str, tuple[Invitation, ...]]
) -> list[Invitation]:
    """The invitations of the same host under its other names."""
    others = sorted({other for one in found for other in one.also})
    return [one for other in others for one in invited.get(other, ()) if name in one.also]


def _not_invited(request: SigningRequest, name: str, elsewhere: Sequence[Invitation], facts: Facts) -> Rule:
    by_hand = _by_hand(request, name, facts)
    if not elsewhere:
        return fails(RuleName.INVITED, f"nobody expects a node named {name}; {by_hand}")
    if all(one.outside for one in elsewhere):
        why = f"{elsewhere[0].source} is in a namespace whose objects invite nobody (HOSTLER_JOIN_INVENTORIES)"
        return fails(RuleName.INVITED, f"{why}; {by_hand}")
    elsewhere = [one for one in elsewhere if not one.outside]
    if isinstance(facts.nodes, Unknown):
        return unknown(RuleName.INVITED, f"which cluster this is is not known: {facts.nodes.why}")
    one = elsewhere[0]
    what = f"is for cluster {one.cluster}" if one.cluster else "does not say which cluster it is for"
    if facts.spoke:
        return fails(RuleName.INVITED, f"{one.source} {what}, and this one is {facts.spoke}; {by_hand}")
    ours = f"this one is {names(sorted(facts.clusters))}" if facts.clusters else "nobody says which this one is"
    return fails(RuleName.INVITED, f"{one.source} {what}, and {ours} (HOSTLER_JOIN_CLUSTERS)")


def _not_there(name: str, facts: Facts) -> Rule:
    match facts.nodes:
        case Unknown(why):
            return unknown(RuleName.NEW_NODE, f"the nodes are not known: {why}")
        case Known(nodes) if name in nodes:
            return fails(RuleName.NEW_NODE, f"there is a node {name} already")
    return holds(RuleName.NEW_NODE, f"there is no node {name} yet")


def _unambiguous(name: str, found: Sequence[Invitation]) -> Rule:
    kinds = [one.kind for one in found]
    twice = sorted({one.source for one in found if kinds.count(one.kind) > 1})
    if twice:
        return fails(RuleName.ONE_HOST, f"more than one host is to become {name}: {names(twice)}")
    return holds(RuleName.ONE_HOST, "one host has this name")


def _no_node_yet(found: Sequence[Invitation], same: Sequence[Invitation], facts: Facts) -> Rule:
    """By the word of its inventory, or because a node has another name of this very host."""
    taken = [(one.source, one.node) for one in (*found, *same) if one.node]
    nodes = facts.nodes.value if isinstance(facts.nodes, Known) else {}
    taken += [(one.source, one.name) for one in same if one.name in nodes]
    if taken:
        return fails(RuleName.HOST_IS_FREE, f"{taken[0][0]} is node {taken[0][1]} already")
    return holds(RuleName.HOST_IS_FREE, "the host has no node yet")


def _ends(one: Invitation, policy: Policy) -> Instant | None:
    if one.until is not None:
        return one.until
    return None if one.since is None else one.since + policy.window


def _in_window(one: Invitation, created: Instant | None, now: Instant, policy: Policy) -> bool:
    ends = _ends(one, policy)
    if one.since is None or ends is None or created is None:
        return False
    # `created` and `since` are the cluster's clocks. `now` is ours: it only ever closes the window, and never opens it.
    return one.since - policy.early <= created <= ends and now <= ends + policy.early


def _window(
    found: Sequence[Invitation],
    timely: Sequence[Invitation],
    created: Instant | None,
    now: Instant,
    policy: Policy,
    by_hand: str,
) -> Rule:
    if created is None:
        return unknown(RuleName.WINDOW, "when the request was made is not known")
    if timely:
        return holds(RuleName.WINDOW, f"it came while {timely[0].source} was expected")
    begun = [one for one in found if one.since is not None]
    if not begun:
        return fails(RuleName.WINDOW, f"{found[0].source} is not being provisioned")
    one = max(begun, key=lambda invitation: invitation.since or 0.0)
    ends = _ends(one, policy) or 0.0
    if created < (one.since or 0.0) - policy.early:
        why = f"it came {(one.since or 0.0) - created:.0f} s before {one.source} was expected"
        return fails(RuleName.WINDOW, f"{why}; {by_hand}")
    late = max(created, now) - ends
    return fails(RuleName.WINDOW, f"{one.source} was expected until {late:.0f} s ago; {by_hand}")


def _single_use(
    request: SigningRequest, name: str, found: Sequence[Invitation], same: Sequence[Invitation], facts: Facts
) -> Rule:
    """Under none of its names was this host let in since it was last expected: by us, or by anybody else.

    Somebody else: of two rivals a person may approve one with kubectl, and the other must not follow by itself.
    """
    match facts.used:
        case Unknown(why):
            return unknown(RuleName.SINGLE_USE, f"whom we let in already is not known: {why}")
        case Known(used):
            known = [(at, by.get(at)) for at in (name, *(one.name for one in same)) for by in (used, facts.admitted)]
    uses = [(at, use) for at, use in known if use is not None and use.uid != request.metadata.uid]
    if not uses:
        return holds(RuleName.SINGLE_USE, "this host was not let in yet")
    anew = max((one.renewed for one in (*found, *same) if one.renewed is not None), default=0.0)
    standing = [(at, use) for at, use in uses if use.at >= anew]
    if not standing:
        return holds(RuleName.SINGLE_USE, f"it was let in by {uses[0][1].csr} before, and is expected anew since")
    at, use = standing[0]
    why = f"{at} was let in by {use.csr} already, and nobody expects it anew; if it was installed again, "
    return fails(RuleName.SINGLE_USE, f"{why}{_by_hand(request, name, facts)}")


def _by_hand(request: SigningRequest, name: str, facts: Facts) -> str:
    """What a person can do; expecting a host is for the requests it makes from then on, and for the hub's own."""
    if facts.spoke:
        return f"`hostler join approve {request.metadata.name} --cluster {facts.spoke}`"
    return f"`hostler join approve {request.metadata.name}`, or `hostler join expect {name}` before it asks once more"


# -- sentences


def _describe_first(rules: Sequence[Rule]) -> str:
    more = f" (and {len(rules) - 1} more)" if len(rules) > 1 else ""
    return f"{rules[0].why}{more}"
