"""Which nodes are let in. Pure: requests, facts and policy in; a verdict with every rule for every request out.

Invariants, each a property test: nothing is approved on an unknown fact; a request that differs in anything from one
that would be approved is not approved; a host is let in once per invitation; nothing is ever denied.
A name proves nothing (whoever has the bootstrap credential can claim one): that is why inventory, window and single
use all apply, and why two requests for one host are left to a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address

from hostler.host.conditions import names
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant, parse
from hostler.join.model import (
    CLIENT,
    CONTROL_PLANE,
    OURS,
    SERVING,
    Act,
    Crowd,
    Facts,
    Invitation,
    Live,
    Outcome,
    Policy,
    Rule,
    SigningRequest,
    Verdict,
)
from hostler.join.shape import GROUP, PREFIX, Misshapen, Shape, shape_of, spelled
from hostler.kube.records import Node

AUTHENTICATED = "system:authenticated"
ACCOUNT, TOKEN_USER, TOKEN_GROUP = "system:serviceaccount:", "system:bootstrap:", "system:bootstrappers"
# Names that belong to the cluster itself and to no kubelet, whatever a node says of itself.
CLUSTER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "openshift", "openshift.default")
CLUSTER_ENDINGS = (".svc", ".cluster.local", ".localhost")
_TOKEN = re.compile(rf"{TOKEN_USER}[a-z0-9]{{6}}")


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
    decided = [one.type for one in request.status.conditions if one.type in ("Approved", "Denied", "Failed")]
    if decided or request.status.certificate:
        return replace(
            verdict, act=Act.DONE, why=f"It is decided already: {names(decided) or 'a certificate is there'}."
        )
    shape = shape if shape is not None else shape_of(request.spec)
    if isinstance(shape, Misshapen):
        return replace(verdict, why=f"Ignored: {shape.why}.", rules=(Rule("shape", Outcome.FAILS, shape.why),))
    well_made = Rule("shape", Outcome.HOLDS, f"it asks for node {shape.node}, as a kubelet does")
    requester = _requester(request, shape, policy)
    if requester.outcome is not Outcome.HOLDS:
        return replace(verdict, node=shape.node, why=f"Ignored: {requester.why}.", rules=(well_made, requester))
    client = request.spec.signer_name == CLIENT
    rules = _client(request, shape, facts, policy, created, now) if client else _serving(request, shape, facts, policy)
    return _concluded(replace(verdict, node=shape.node), (well_made, requester, _crowd(facts), *rules))


def _concluded(verdict: Verdict, rules: Sequence[Rule]) -> Verdict:
    failed = [one for one in rules if one.outcome is Outcome.FAILS]
    unknown = [one for one in rules if one.outcome is Outcome.UNKNOWN]
    stranger = any(one.name == "invited" and one.outcome is Outcome.FAILS for one in rules)
    done = replace(verdict, rules=tuple(rules), unknown_name=stranger)
    if failed:
        return replace(done, act=Act.LEAVE, why=f"Pending: {_both(failed)}.")
    if unknown:
        return replace(done, act=Act.WAIT, why=f"Not decided yet: {_both(unknown)}.")
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
            rules = (*one.rules, Rule("contested", Outcome.FAILS, why))
            one = replace(one, act=Act.LEAVE, why=f"Pending: {why}.", rules=rules)
        out.append(one)
    return out


# -- rules of both


def _requester(request: SigningRequest, shape: Shape, policy: Policy) -> Rule:
    user, groups = request.spec.username, sorted(request.spec.groups)
    node = f"{PREFIX}{shape.node}"
    if request.spec.signer_name == SERVING:
        if not policy.serving:
            return _fails("requester", "serving certificates are not approved here (HOSTLER_JOIN_SERVING)")
        if user != node or groups != sorted((GROUP, AUTHENTICATED)):
            return _fails("requester", f"{user} asks for a serving certificate of {node}; only that node itself may")
        return _holds("requester", f"{user} asks for itself")
    if user.startswith(PREFIX):
        return _fails("requester", f"{user} renews its client certificate, which the cluster's own approver does")
    for one in policy.bootstrappers:
        if one.startswith(ACCOUNT) and user == one:
            space = one.removeprefix(ACCOUNT).partition(":")[0]
            wanted = sorted(("system:serviceaccounts", f"system:serviceaccounts:{space}", AUTHENTICATED))
            if groups == wanted:
                return _holds("requester", f"{user} is a bootstrapper")
            return _fails("requester", f"{user} comes with other groups than a service account has: {names(groups)}")
        if one.startswith(TOKEN_GROUP) and _by_token(user, groups, one):
            return _holds("requester", f"{user} has a bootstrap token of the group {one}")
    return _fails("requester", f"{user or 'nobody'} is no bootstrapper that is configured here")


def _by_token(user: str, groups: Sequence[str], wanted: str) -> bool:
    """A bootstrap token gives `system:bootstrap:ID` and groups below system:bootstrappers, and nothing else can."""
    known = {AUTHENTICATED, TOKEN_GROUP}
    return (
        _TOKEN.fullmatch(user) is not None
        and len(set(groups)) == len(groups)
        and known <= set(groups)
        and wanted in groups
        and all(one in known or one.startswith(f"{TOKEN_GROUP}:") for one in groups)
    )


def _crowd(facts: Facts) -> Rule:
    match facts.crowd:
        case Known(Crowd(pending, allowed)) if pending <= allowed:
            return _holds("no flood", f"{pending} pending in the last hour, {allowed} allowed")
        case Known(Crowd(pending, allowed)):
            return _fails("no flood", f"{pending} requests of the last hour are pending, more than {allowed}: a flood")
        case Unknown(why):
            return _unknown("no flood", f"how many requests are pending is not known: {why}")
    raise AssertionError("a fact is Known or Unknown")


# -- a client certificate: a machine becomes a node


def _client(
    request: SigningRequest, shape: Shape, facts: Facts, policy: Policy, created: Instant | None, now: Instant
) -> list[Rule]:
    rules = [_not_there(shape.node, facts)]
    match facts.invited:
        case Unknown(why):
            return [*rules, _unknown("invited", f"who is expected is not known: {why}")]
        case Known(invited):
            known = invited.get(shape.node, ())
    found = [one for one in known if one.here(facts.clusters)]
    if not found:
        return [*rules, _not_invited(request, shape.node, known, facts)]
    rules.append(_holds("invited", f"expected by {names(one.source for one in found)}"))
    same = _same_host(shape.node, found, invited)
    rules.append(_unambiguous(shape.node, found))
    rules.append(_no_node_yet(found, same, facts))
    timely = [one for one in found if _in_window(one, created, now, policy)]
    rules.append(_window(request, found, timely, created, now, policy))
    rules.append(_single_use(request, shape.node, timely or found, same, facts))
    return rules


def _same_host(
    name: str, found: Sequence[Invitation], invited: Mapping[str, tuple[Invitation, ...]]
) -> list[Invitation]:
    """The invitations of the same host under its other names."""
    others = sorted({other for one in found for other in one.also})
    return [one for other in others for one in invited.get(other, ()) if name in one.also]


def _not_invited(request: SigningRequest, name: str, elsewhere: Sequence[Invitation], facts: Facts) -> Rule:
    if not elsewhere:
        return _fails("invited", f"nobody expects a node named {name}; {_by_hand(request, name)}")
    if isinstance(facts.nodes, Unknown):
        return _unknown("invited", f"which cluster this is is not known: {facts.nodes.why}")
    one = elsewhere[0]
    what = f"is for cluster {one.cluster}" if one.cluster else "does not say which cluster it is for"
    ours = f"this one is {names(sorted(facts.clusters))}" if facts.clusters else "nobody says which this one is"
    return _fails("invited", f"{one.source} {what}, and {ours} (HOSTLER_JOIN_CLUSTERS)")


def _not_there(name: str, facts: Facts) -> Rule:
    match facts.nodes:
        case Unknown(why):
            return _unknown("new node", f"the nodes are not known: {why}")
        case Known(nodes) if name in nodes:
            return _fails("new node", f"there is a node {name} already")
    return _holds("new node", f"there is no node {name} yet")


def _unambiguous(name: str, found: Sequence[Invitation]) -> Rule:
    kinds = [one.kind for one in found]
    twice = sorted({one.source for one in found if kinds.count(one.kind) > 1})
    if twice:
        return _fails("one host", f"more than one host is to become {name}: {names(twice)}")
    return _holds("one host", "one host has this name")


def _no_node_yet(found: Sequence[Invitation], same: Sequence[Invitation], facts: Facts) -> Rule:
    """By the word of its inventory, or because a node has another name of this very host."""
    taken = [(one.source, one.node) for one in (*found, *same) if one.node]
    nodes = facts.nodes.value if isinstance(facts.nodes, Known) else {}
    taken += [(one.source, one.name) for one in same if one.name in nodes]
    if taken:
        return _fails("host is free", f"{taken[0][0]} is node {taken[0][1]} already")
    return _holds("host is free", "the host has no node yet")


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
    request: SigningRequest,
    found: Sequence[Invitation],
    timely: Sequence[Invitation],
    created: Instant | None,
    now: Instant,
    policy: Policy,
) -> Rule:
    if created is None:
        return _unknown("window", "when the request was made is not known")
    if timely:
        return _holds("window", f"it came while {timely[0].source} was expected")
    begun = [one for one in found if one.since is not None]
    if not begun:
        return _fails("window", f"{found[0].source} is not being provisioned")
    one = max(begun, key=lambda invitation: invitation.since or 0.0)
    ends = _ends(one, policy) or 0.0
    if created < (one.since or 0.0) - policy.early:
        why = f"it came {(one.since or 0.0) - created:.0f} s before {one.source} was expected"
        return _fails("window", f"{why}; {_by_hand(request, one.name)}")
    late = max(created, now) - ends
    return _fails("window", f"{one.source} was expected until {late:.0f} s ago; {_by_hand(request, one.name)}")


def _single_use(
    request: SigningRequest, name: str, found: Sequence[Invitation], same: Sequence[Invitation], facts: Facts
) -> Rule:
    """Under none of its names was this host let in since it was last expected: by us, or by anybody else.

    Somebody else: of two rivals a person may approve one with kubectl, and the other must not follow by itself.
    """
    match facts.used:
        case Unknown(why):
            return _unknown("single use", f"whom we let in already is not known: {why}")
        case Known(used):
            known = [(at, by.get(at)) for at in (name, *(one.name for one in same)) for by in (used, facts.admitted)]
    uses = [(at, use) for at, use in known if use is not None and use.uid != request.metadata.uid]
    if not uses:
        return _holds("single use", "this host was not let in yet")
    anew = max((one.renewed for one in (*found, *same) if one.renewed is not None), default=0.0)
    standing = [(at, use) for at, use in uses if use.at >= anew]
    if not standing:
        return _holds("single use", f"it was let in by {uses[0][1].csr} before, and is expected anew since")
    at, use = standing[0]
    why = f"{at} was let in by {use.csr} already, and nobody expects it anew; if it was installed again, "
    return _fails("single use", f"{why}{_by_hand(request, name)}")


def _by_hand(request: SigningRequest, name: str) -> str:
    """What a person can do; expecting a host is for the requests it makes from then on."""
    return f"`hostler join approve {request.metadata.name}`, or `hostler join expect {name}` before it asks once more"


# -- a serving certificate: a node proves its addresses


def _serving(request: SigningRequest, shape: Shape, facts: Facts, policy: Policy) -> list[Rule]:
    match facts.nodes:
        case Unknown(why):
            return [_unknown("node", f"the nodes are not known: {why}")]
        case Known(nodes):
            node = nodes.get(shape.node)
    if node is None:
        return [_fails("node", f"there is no node {shape.node}")]
    if node.metadata.deletion_timestamp:
        return [_fails("node", f"node {shape.node} is being deleted")]
    there = _holds("node", f"node {shape.node} is there")
    its_own = _own_names(request, shape, node, facts)
    return [there, its_own, _nobody_elses(shape, facts), _no_cluster_names(shape, node, policy)]


def _own_names(request: SigningRequest, shape: Shape, node: Node, facts: Facts) -> Rule:
    wanted = shape.dns | shape.ips
    own = frozenset(canonical(one.address) for one in node.status.addresses)
    match facts.invited:
        case Known(invited):
            hosts = [one for one in invited.get(shape.node, ()) if one.here(facts.clusters)]
            own |= {canonical(one) for host in hosts for one in host.addresses}
    strange = wanted - own
    if not strange:
        return _holds("its own names", "every name and address is the node's own")
    match facts.live.get(request.metadata.uid):
        case Known(Live(name, dns, ips)) if name == f"{PREFIX}{shape.node}" and (dns, ips) == (shape.dns, shape.ips):
            return _holds("its own names", "a renewal: its kubelet serves a valid certificate with the same names")
        case Known(Live()):
            also = "; the certificate its kubelet serves has other names"
        case Unknown(why):
            also = f"; the certificate its kubelet serves cannot be told: {why}"
        case _:
            also = ""
    if not node.status.addresses:
        return _unknown("its own names", f"node {shape.node} has no addresses yet{also}")
    return _fails("its own names", f"{names(strange)} is not among the addresses of node {shape.node}{also}")


def _nobody_elses(shape: Shape, facts: Facts) -> Rule:
    """A kubelet writes its own node's addresses: one that names another node's is not believed."""
    taken = sorted(
        f"{one} of {names(others)}"
        for one in shape.dns | shape.ips
        if (others := facts.owners.get(one, frozenset()) - {shape.node})
    )
    if taken:
        return _fails("nobody else's names", f"it asks for what another node has: {names(taken)}")
    return _holds("nobody else's names", "no other node has these names or addresses")


def _no_cluster_names(shape: Shape, node: Node, policy: Policy) -> Rule:
    """Names of the cluster, and where its API server is: a worker that is believed to be there could pose as it."""
    wrong = [one for one in shape.dns if one in CLUSTER_NAMES or one.endswith(CLUSTER_ENDINGS) or _of_service(one)]
    if not any(one in node.metadata.labels for one in CONTROL_PLANE):
        wrong += [one for one in shape.dns | shape.ips if one == policy.api_server]
    for one in shape.ips:
        at = ip_address(one)
        if at.is_loopback or at.is_unspecified or at.is_multicast or at.is_link_local:
            wrong.append(one)
    if wrong:
        return _fails("names of nodes", f"{names(wrong)} can be no node's name or address")
    return _holds("names of nodes", "these can be a node's names and addresses")


def _of_service(name: str) -> bool:
    """NAME.NAMESPACE.svc.DOMAIN, whatever the cluster's domain is."""
    return name.split(".")[2:3] == ["svc"]


# -- words


def canonical(address: str) -> str:
    """An address or a name in the one spelling that can be compared."""
    try:
        read = ip_address(address.strip())
    except ValueError:
        return spelled(address.strip())
    return str(getattr(read, "ipv4_mapped", None) or read)


def _both(rules: Sequence[Rule]) -> str:
    more = f" (and {len(rules) - 1} more)" if len(rules) > 1 else ""
    return f"{rules[0].why}{more}"


def _holds(name: str, why: str) -> Rule:
    return Rule(name, Outcome.HOLDS, why)


def _fails(name: str, why: str) -> Rule:
    return Rule(name, Outcome.FAILS, why)


def _unknown(name: str, why: str) -> Rule:
    return Rule(name, Outcome.UNKNOWN, why)
