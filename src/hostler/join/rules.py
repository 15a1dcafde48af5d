"""Every rule that a certificate request must pass, for a client certificate and for a serving one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from hostler.host.conditions import names
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant
from hostler.join.kubelet_request import PREFIX, Shape, spelled
from hostler.join.model import (
    Crowd,
    Facts,
    Invitation,
    Live,
    Policy,
    RequestSpec,
    Rule,
    RuleName,
    ServingLimits,
    SigningRequest,
    fails,
    holds,
    unknown,
)
from hostler.kube.records import CONTROL_PLANE, Node

# -- rules of both


def flood_rule(facts: Facts) -> Rule:
    match facts.crowd:
        case Known(Crowd(pending, allowed) as crowd) if not crowd.is_flood:
            return holds(RuleName.NO_FLOOD, f"{pending} pending in the last hour, {allowed} allowed")
        case Known(Crowd(pending, allowed)):
            return fails(
                RuleName.NO_FLOOD, f"{pending} requests of the last hour are pending, more than {allowed}: a flood"
            )
        case Unknown(why):
            return unknown(RuleName.NO_FLOOD, f"cannot tell how many requests are pending: {why}")
    raise AssertionError("a fact is Known or Unknown")


# -- a client certificate: a machine becomes a node


def client_rules(
    request: SigningRequest, shape: Shape, facts: Facts, policy: Policy, created: Instant | None, now: Instant
) -> list[Rule]:
    rules = [_not_there(shape.node, facts)]
    match facts.invited:
        case Unknown(why):
            return [*rules, unknown(RuleName.INVITED, f"cannot tell who is expected: {why}")]
        case Known(invited):
            known = invited.get(shape.node, ())
    found = [invitation for invitation in known if invitation.here(facts.clusters)]
    if not found:
        return [*rules, _not_invited(request, shape.node, known, facts)]
    rules.append(holds(RuleName.INVITED, f"expected by {names(invitation.source for invitation in found)}"))
    same = _same_host(shape.node, found, invited)
    rules.append(_unambiguous(shape.node, found))
    rules.append(_no_node_yet(found, same, facts))
    timely = [invitation for invitation in found if _in_window(invitation, created, now, policy)]
    rules.append(_window(found, timely, created, now, policy, _by_hand(request, shape.node, facts)))
    rules.append(_single_use(request, shape.node, timely or found, same, facts))
    return rules


def _same_host(
    name: str, found: Sequence[Invitation], invited: Mapping[str, tuple[Invitation, ...]]
) -> list[Invitation]:
    """The invitations of the same host under its other names."""
    others = sorted({other for invitation in found for other in invitation.also})
    return [invitation for other in others for invitation in invited.get(other, ()) if name in invitation.also]


def _not_invited(request: SigningRequest, name: str, elsewhere: Sequence[Invitation], facts: Facts) -> Rule:
    by_hand = _by_hand(request, name, facts)
    if not elsewhere:
        return fails(RuleName.INVITED, f"nobody expects a node named {name}; {by_hand}")
    if all(invitation.outside for invitation in elsewhere):
        why = f"{elsewhere[0].source} is in a namespace whose objects invite nobody (HOSTLER_JOIN_INVENTORIES)"
        return fails(RuleName.INVITED, f"{why}; {by_hand}")
    elsewhere = [invitation for invitation in elsewhere if not invitation.outside]
    if isinstance(facts.nodes, Unknown):
        return unknown(RuleName.INVITED, f"cannot tell which cluster this is: {facts.nodes.why}")
    invitation = elsewhere[0]
    what = f"is for cluster {invitation.cluster}" if invitation.cluster else "does not say which cluster it is for"
    if facts.spoke:
        return fails(RuleName.INVITED, f"{invitation.source} {what}, and this one is {facts.spoke}; {by_hand}")
    ours = f"this one is {names(sorted(facts.clusters))}" if facts.clusters else "this one has no name that is known"
    return fails(RuleName.INVITED, f"{invitation.source} {what}, and {ours} (HOSTLER_JOIN_CLUSTERS)")


def _not_there(name: str, facts: Facts) -> Rule:
    match facts.nodes:
        case Unknown(why):
            return unknown(RuleName.NEW_NODE, f"cannot tell which nodes there are: {why}")
        case Known(nodes) if name in nodes:
            return fails(RuleName.NEW_NODE, f"there is a node {name} already")
    return holds(RuleName.NEW_NODE, f"there is no node {name} yet")


def _unambiguous(name: str, found: Sequence[Invitation]) -> Rule:
    kinds = [invitation.kind for invitation in found]
    twice = sorted({invitation.source for invitation in found if kinds.count(invitation.kind) > 1})
    if twice:
        return fails(RuleName.ONE_HOST, f"more than one host is to become {name}: {names(twice)}")
    return holds(RuleName.ONE_HOST, "one host has this name")


def _no_node_yet(found: Sequence[Invitation], same: Sequence[Invitation], facts: Facts) -> Rule:
    """By the word of its inventory, or because a node has another name of this very host."""
    taken = [(invitation.source, invitation.node) for invitation in (*found, *same) if invitation.node]
    nodes = facts.nodes.value if isinstance(facts.nodes, Known) else {}
    taken += [(invitation.source, invitation.name) for invitation in same if invitation.name in nodes]
    if taken:
        return fails(RuleName.HOST_IS_FREE, f"{taken[0][0]} is node {taken[0][1]} already")
    return holds(RuleName.HOST_IS_FREE, "the host has no node yet")


def _ends(invitation: Invitation, policy: Policy) -> Instant | None:
    if invitation.until is not None:
        return invitation.until
    return None if invitation.since is None else invitation.since + policy.window


def _in_window(invitation: Invitation, created: Instant | None, now: Instant, policy: Policy) -> bool:
    ends = _ends(invitation, policy)
    if invitation.since is None or ends is None or created is None:
        return False
    # `created` and `since` are the cluster's clocks. `now` is ours: it only ever closes the window, and never opens it.
    return invitation.since - policy.early <= created <= ends and now <= ends + policy.early


def _window(
    found: Sequence[Invitation],
    timely: Sequence[Invitation],
    created: Instant | None,
    now: Instant,
    policy: Policy,
    by_hand: str,
) -> Rule:
    if created is None:
        return unknown(RuleName.WINDOW, "cannot tell when the request was made")
    if timely:
        return holds(RuleName.WINDOW, f"it came while {timely[0].source} was expected")
    begun = [invitation for invitation in found if invitation.since is not None]
    if not begun:
        return fails(RuleName.WINDOW, f"{found[0].source} is not being provisioned")
    latest = max(begun, key=lambda invitation: invitation.since or 0.0)
    ends = _ends(latest, policy) or 0.0
    if created < (latest.since or 0.0) - policy.early:
        why = f"it came {(latest.since or 0.0) - created:.0f} s before {latest.source} was expected"
        return fails(RuleName.WINDOW, f"{why}; {by_hand}")
    late = max(created, now) - ends
    return fails(RuleName.WINDOW, f"{latest.source} was expected until {late:.0f} s ago; {by_hand}")


def _single_use(
    request: SigningRequest, name: str, found: Sequence[Invitation], same: Sequence[Invitation], facts: Facts
) -> Rule:
    """Under none of its names was this host let in since it was last expected: by us, or by anybody else.

    Of two rivals a person may approve one with kubectl, and the other must not follow by itself.
    """
    match facts.used:
        case Unknown(why):
            return unknown(RuleName.SINGLE_USE, f"cannot tell which hosts were let in before: {why}")
        case Known(used):
            known = [
                (at, by.get(at))
                for at in (name, *(invitation.name for invitation in same))
                for by in (used, facts.admitted)
            ]
    uses = [(at, use) for at, use in known if use is not None and use.uid != request.metadata.uid]
    if not uses:
        return holds(RuleName.SINGLE_USE, "this host was not let in yet")
    again_since = max(
        (invitation.renewed for invitation in (*found, *same) if invitation.renewed is not None), default=0.0
    )
    standing = [(at, use) for at, use in uses if use.at >= again_since]
    if not standing:
        return holds(RuleName.SINGLE_USE, f"it was let in by {uses[0][1].csr} before, and is expected again since")
    at, use = standing[0]
    why = f"{at} was let in by {use.csr} already, and nobody expects it again; if it was installed again, "
    return fails(RuleName.SINGLE_USE, f"{why}{_by_hand(request, name, facts)}")


def _by_hand(request: SigningRequest, name: str, facts: Facts) -> str:
    """What a person can do; expecting a host is for the requests it makes from then on, and for the hub's own."""
    if facts.spoke:
        return f"`hostler join approve {request.metadata.name} --cluster {facts.spoke}`"
    return f"`hostler join approve {request.metadata.name}`, or `hostler join expect {name}` before it asks once more"


# Names that belong to the cluster itself and to no kubelet, whatever a node says of itself.
CLUSTER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "openshift", "openshift.default")
CLUSTER_ENDINGS = (".svc", ".cluster.local", ".localhost")


def serving_rules(request: SigningRequest, shape: Shape, facts: Facts, policy: Policy) -> list[Rule]:
    """Every rule about the names and addresses a certificate for serving asks for."""
    match facts.nodes:
        case Unknown(why):
            return [unknown(RuleName.NODE, f"cannot tell which nodes there are: {why}")]
        case Known(nodes):
            node = nodes.get(shape.node)
    if node is None:
        return [fails(RuleName.NODE, f"there is no node {shape.node}")]
    if node.metadata.deletion_timestamp:
        return [fails(RuleName.NODE, f"node {shape.node} is being deleted")]
    there = holds(RuleName.NODE, f"node {shape.node} is there")
    its_own = _own_names(request, shape, node, facts)
    allowed = allowed_rule(request.spec, shape, facts)
    return [there, its_own, _nobody_elses(shape, facts), _no_cluster_names(shape, node, policy), allowed]


def _own_names(request: SigningRequest, shape: Shape, node: Node, facts: Facts) -> Rule:
    wanted = shape.dns | shape.ips
    # A node's own name is its own whether or not its addresses list it, as `owners_of` has it too.
    own = frozenset(canonical(address) for address in (shape.node, *(at.address for at in node.status.addresses)))
    match facts.invited:
        case Known(invited):
            hosts = [invitation for invitation in invited.get(shape.node, ()) if invitation.here(facts.clusters)]
            own |= {canonical(address) for host in hosts for address in host.addresses}
    strange = wanted - own
    if not strange:
        return holds(RuleName.OWN_NAMES, "every name and address is the node's own")
    match facts.live.get(request.metadata.uid):
        case Known(Live(name, dns, ips)) if name == f"{PREFIX}{shape.node}" and (dns, ips) == (shape.dns, shape.ips):
            return holds(RuleName.OWN_NAMES, "a renewal: its kubelet serves a valid certificate with the same names")
        case Known(Live()):
            also = "; the certificate its kubelet serves has other names"
        case Unknown(why):
            also = f"; cannot tell which certificate its kubelet serves: {why}"
        case _:
            also = ""
    if not node.status.addresses:
        return unknown(RuleName.OWN_NAMES, f"node {shape.node} has no addresses yet{also}")
    return fails(RuleName.OWN_NAMES, f"{names(strange)} is not among the addresses of node {shape.node}{also}")


def _nobody_elses(shape: Shape, facts: Facts) -> Rule:
    """A kubelet writes its own node's addresses: one that names another node's is not believed."""
    taken = sorted(
        f"{name} of {names(others)}"
        for name in shape.dns | shape.ips
        if (others := facts.owners.get(name, frozenset()) - {shape.node})
    )
    if taken:
        return fails(RuleName.NOT_ANOTHERS, f"it asks for what another node has: {names(taken)}")
    return holds(RuleName.NOT_ANOTHERS, "no other node has these names or addresses")


def _no_cluster_names(shape: Shape, node: Node, policy: Policy) -> Rule:
    """Names of the cluster, and where its API server is: a worker that is believed to be there could pose as it."""
    wrong = [name for name in shape.dns if name in CLUSTER_NAMES or name.endswith(CLUSTER_ENDINGS) or _of_service(name)]
    if not any(label in node.metadata.labels for label in CONTROL_PLANE):
        wrong += [name for name in shape.dns | shape.ips if name == policy.api_server]
    for address in shape.ips:
        at = ip_address(address)
        if at.is_loopback or at.is_unspecified or at.is_multicast or at.is_link_local:
            wrong.append(address)
    if wrong:
        return fails(RuleName.NODE_NAMES, f"{names(wrong)} can be no node's name or address")
    return holds(RuleName.NODE_NAMES, "these can be a node's names and addresses")


def _of_service(name: str) -> bool:
    """NAME.NAMESPACE.svc.DOMAIN, whatever the cluster's domain is."""
    return name.split(".")[2:3] == ["svc"]


def canonical(address: str) -> str:
    """An address or a name in the one spelling that can be compared."""
    try:
        read = ip_address(address.strip())
    except ValueError:
        return spelled(address.strip())
    return str(getattr(read, "ipv4_mapped", None) or read)


FIELD = "Fleet spec.join.serving"
DAY = 86400
# A name has up to 253 characters, and Python's matcher backtracks: with more repetitions than these one name could keep
# the operator busy for minutes.
MOST_REPEATS, MOST_OPTIONAL = 3, 6


def allowed_rule(spec: RequestSpec, shape: Shape, facts: Facts) -> Rule:
    """Whether the Fleet allows every name, every address and the lifetime that a request asks for."""
    if isinstance(facts.limits, Unknown):
        return unknown(RuleName.ALLOWED, f"cannot tell what {FIELD} allows: {facts.limits.why}")
    limits = facts.limits.value
    wrong = unusable(limits)
    if wrong:
        return fails(RuleName.ALLOWED, f"{wrong}; correct it")
    strange = [name for name in sorted(shape.dns) if limits.names and not _matches(name, limits.names)]
    if strange:
        return fails(RuleName.ALLOWED, f"{names(strange)} matches no expression of {FIELD}.names")
    outside = [address for address in sorted(shape.ips) if limits.prefixes and not _within(address, limits.prefixes)]
    if outside:
        return fails(RuleName.ALLOWED, f"{names(outside)} is in no network of {FIELD}.prefixes")
    asked = spec.expiration_seconds
    if limits.max_days and asked is not None and asked > limits.max_days * DAY:
        return fails(RuleName.ALLOWED, f"it asks for {asked / DAY:.1f} days, and {FIELD}.maxDays is {limits.max_days}")
    return holds(RuleName.ALLOWED, f"{FIELD} allows these names and addresses")


def unusable(limits: ServingLimits) -> str:
    """The first entry that cannot be used, and why; nothing is approved while there is one."""
    for number, text in enumerate(limits.names):
        if why := _unusable_expression(text):
            return f"{FIELD}.names[{number}] {why}"
    for number, text in enumerate(limits.prefixes):
        try:
            _network(text)
        except ValueError:
            return f"{FIELD}.prefixes[{number}] is not a network such as 10.0.0.0/8"
    return ""


@lru_cache(maxsize=256)
def _unusable_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        return f"is not a regular expression: {error}"
    if re.search(r"\)[*+{]", text) or sum(text.count(sign) for sign in "*+{") > MOST_REPEATS:
        return f"repeats a group or has more than {MOST_REPEATS} repetitions, which could take minutes to match"
    if text.count("?") > MOST_OPTIONAL:
        return f"has more than {MOST_OPTIONAL} optional parts, which could take minutes to match"
    return ""


def _matches(name: str, expressions: tuple[str, ...]) -> bool:
    return any(re.fullmatch(expression, name) for expression in expressions)


def _within(address: str, prefixes: tuple[str, ...]) -> bool:
    read = ip_address(address)
    return any(read in network for prefix in prefixes if (network := _network(prefix)).version == read.version)


@lru_cache(maxsize=256)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text.strip(), strict=False)
