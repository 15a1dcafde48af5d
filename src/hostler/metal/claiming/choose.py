"""Which host a machine gets, and for every other host the reason why not. Pure.

The order: a host that is already this machine's; the host that it names, if it can have it; then hosts reserved for its
deployment or control plane, and if one of those is only on its way the machine waits for it; then any free host, of its
failure domain first. Among equals the policy decides. Nothing else in this room prefers one host to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hostler.apis import capi
from hostler.apis.metal3 import BareMetalHost, HostSelector, Metal3Machine
from hostler.kube.records import key_of
from hostler.metal.claiming.refusal import Refusal, Refused, group_refusals, summarize_groups, why_not_free, why_shut
from hostler.metal.names import FAILURE_DOMAIN, HOST_ANNOTATION, NODE_REUSE
from hostler.selectors import Requirement, is_label_key, is_label_value, is_whole_number

_OPERATORS = {
    "in": "In", "=": "In", "==": "In", "notin": "NotIn", "!=": "NotIn", "exists": "Exists",
    "!": "DoesNotExist", "doesnotexist": "DoesNotExist", "gt": "Gt", "lt": "Lt",
}  # fmt: skip


class WrongSelector(ValueError):
    """The sentence says which expression is wrong and why."""


def compile_selector(selector: HostSelector) -> tuple[Requirement, ...]:
    """The requirements a host's labels must meet, all of them; raises WrongSelector."""
    found = []
    for name, value in sorted(selector.match_labels.items()):
        _check_name(name)
        _check_value(name, value)
        found.append(Requirement(name, "In", (value,), f"{name}={value}"))
    found += [_requirement(one) for one in selector.match_expressions]
    return tuple(found)


def find_unmet(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> Requirement | None:
    """The first requirement these labels do not meet; None: they meet all."""
    return next((one for one in requirements if not one.holds(labels)), None)


def _requirement(expression: HostSelector.Expression) -> Requirement:
    name, values = expression.key, expression.values
    word = expression.operator.lower()
    text = f"{name} {expression.operator} {', '.join(values)}".strip()
    _check_name(name)
    operator = _OPERATORS.get(word)
    if operator is None:
        raise WrongSelector(
            f"hostSelector: {name} has the operator {expression.operator!r}; known are In, NotIn, Exists, "
            "DoesNotExist, !, =, ==, !=, Gt and Lt"
        )
    if word in ("in", "notin"):
        if not values:
            raise WrongSelector(f"hostSelector: {name} {expression.operator} needs at least one value")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            raise WrongSelector(f"hostSelector: {name} {expression.operator} takes no values")
    elif len(values) != 1:
        raise WrongSelector(f"hostSelector: {name} {expression.operator} takes exactly one value")
    if operator in ("Gt", "Lt") and not is_whole_number(values[0]):
        raise WrongSelector(f"hostSelector: {name} {word} needs a whole number, not {values[0]!r}")
    for value in () if operator in ("Gt", "Lt") else values:
        _check_value(name, value)
    return Requirement(name, operator, values, text)


def _check_name(name: str) -> None:
    if not is_label_key(name):
        raise WrongSelector(f"hostSelector: {name!r} is no label name")


def _check_value(name: str, value: str) -> None:
    if not is_label_value(value):
        raise WrongSelector(f"hostSelector: {name} cannot have the value {value!r}, which is no label value")


class Selection(StrEnum):
    """What decides among hosts that suit equally well."""

    RANDOM = "random"
    ORDERED = "ordered"
    SPREAD = "spread"
    LEAST_RECENTLY_USED = "least-recently-used"


@dataclass(frozen=True, slots=True)
class Policy:
    selection: Selection = Selection.RANDOM
    strict_domains: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What a machine wants of a host; raises WrongSelector when made from a machine whose selector is wrong."""

    machine: Metal3Machine
    requirements: tuple[Requirement, ...] = ()
    domain: str = ""
    reuse: str = ""  # `md-NAME` or `cp-NAME`: whose hosts it may have again
    cluster: str = ""

    @classmethod
    def of(cls, machine: Metal3Machine, *, domain: str = "", reuse: str = "", cluster: str = "") -> Wish:
        return cls(machine, compile_selector(machine.spec.host_selector), domain, reuse, cluster)

    def same_kind(self) -> tuple[object, ...]:
        """Two wishes with the same answer here suit the same hosts."""
        selector = self.machine.spec.host_selector
        return (
            self.machine.metadata.namespace, tuple(sorted(selector.match_labels.items())), selector.match_expressions,
            self.domain, self.reuse, self.cluster,
        )  # fmt: skip


class Outcome(StrEnum):
    """How a choice came out. Each value is the text, with {} where the details stand."""

    OWN = "host {} is this machine's already"
    NAMED = "host {} was chosen before"
    RESERVED = "host {} was chosen (reserved for {}, {})"
    PICKED = "host {} was chosen ({})"
    ON_ITS_WAY = "it waits for a host that is reserved for {}: {}"
    NONE = "no host"  # the details are the groups of refusals


@dataclass(frozen=True, slots=True)
class Choice:
    """The host, or none; the outcome with its details; and why not, by host."""

    host: BareMetalHost | None
    outcome: Outcome
    details: tuple[str, ...] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    again: float | None = None  # the outcome may be out of date by now: find it again after so many seconds

    @property
    def why(self) -> str:
        if self.outcome is Outcome.NONE:
            return summarize_groups(self.details)
        return self.outcome.value.format(*self.details)


@dataclass(frozen=True, slots=True)
class Around:
    """Facts that are not on the hosts: which are being taken right now, and which only just stopped failing."""

    taken: Callable[[str], str] = lambda _: ""  # by which machine; empty: by none
    shaky: Callable[[str], bool] = lambda _: False
    leaving: Callable[[BareMetalHost], bool] = lambda _: False  # its consumer is a machine that is being deleted
    used_domains: Mapping[str, int] = field(default_factory=dict)


NOWHERE = Around()


def refuse_host(wish: Wish, host: BareMetalHost, policy: Policy, around: Around = NOWHERE) -> Refusal | None:
    """Why this machine cannot take this host now; None: it can. The one predicate behind every choice."""
    if (why := why_unsuitable(wish, host, policy)) is not None:
        return why
    label = host.metadata.labels.get(NODE_REUSE)
    consumer = host.spec.consumer_ref
    if consumer is not None and not (label == wish.reuse and label and _is_cluster(host, wish)):
        return Refusal(Refused.CONSUMER, f"{consumer.kind} {consumer.namespace}/{consumer.name}")
    if (why := why_not_free(host)) is not None:
        return why
    key = key_of(host.metadata)
    if around.shaky(key):
        return Refusal(Refused.UNSETTLED)
    by = around.taken(key)
    return Refusal(Refused.TAKING, by) if by else None


def why_unsuitable(wish: Wish, host: BareMetalHost, policy: Policy) -> Refusal | None:
    """Why this host would not do even if it were free."""
    if (missing := find_unmet(wish.requirements, host.metadata.labels)) is not None:
        return Refusal(Refused.SELECTOR, missing.text)
    label = host.metadata.labels.get(NODE_REUSE)
    if label is not None and (label != wish.reuse or not wish.reuse):
        return Refusal(Refused.RESERVED, label or "nobody that is known")
    if policy.strict_domains and wish.domain and domain_of(host) != wish.domain:
        return Refusal(Refused.DOMAIN, f"{domain_of(host) or '(none)'}, not {wish.domain}")
    return None


def domain_of(host: BareMetalHost) -> str:
    return host.metadata.labels.get(FAILURE_DOMAIN, "")


def choose(
    wish: Wish,
    hosts: Iterable[BareMetalHost],
    policy: Policy,
    around: Around = NOWHERE,
    pick: Callable[[int], int] = lambda _: 0,
) -> Choice:
    """Choose among hosts of the machine's namespace. `pick(n)` draws one of n for the random policy.

    What it says is the whole truth where these are all hosts; of a sample see `is_final`.
    """
    everything = list(hosts)
    own = next((one for one in everything if _own(wish, one)), None)
    if own is not None:
        others = {key_of(one.metadata): _NOT_NEEDED for one in everything if one is not own}
        return Choice(own, Outcome.OWN, (own.metadata.name,), others)
    judged = {key_of(one.metadata): refuse_host(wish, one, policy, around) for one in everything}
    refused = {key: why for key, why in judged.items() if why is not None}
    free = [one for one in everything if judged[key_of(one.metadata)] is None]
    named = next((one for one in free if _named(wish, one)), None)
    if named is not None:
        others = {key: why or _NOT_NEEDED for key, why in judged.items() if key != key_of(named.metadata)}
        return Choice(named, Outcome.NAMED, (named.metadata.name,), others)
    reserved = [one for one in free if one.metadata.labels.get(NODE_REUSE)]
    if not reserved:
        coming = [one for one in everything if _on_its_way(wish, one, policy, around)]
        if coming:
            names = ", ".join(sorted(one.metadata.name for one in coming)[:3])
            return Choice(None, Outcome.ON_ITS_WAY, (wish.reuse, names), refused)
    best = reserved or free
    if not best:
        return Choice(None, Outcome.NONE, group_refusals(refused.values()), refused)
    preferred = [one for one in best if wish.domain and domain_of(one) == wish.domain] or best
    host = _pick(preferred, policy, around, pick)
    refused |= {key_of(one.metadata): _NOT_CHOSEN for one in free if one is not host}
    if reserved:
        return Choice(host, Outcome.RESERVED, (host.metadata.name, wish.reuse, policy.selection), refused)
    return Choice(host, Outcome.PICKED, (host.metadata.name, policy.selection), refused)


_NOT_NEEDED, _NOT_CHOSEN = Refusal(Refused.NOT_NEEDED), Refusal(Refused.NOT_CHOSEN)


def is_final(wish: Wish, choice: Choice, *, whole_domain: bool) -> bool:
    """Whether a choice by the random policy among a sample could also have been made among all hosts.

    The sample has the host that is this machine's, the one it names and every host reserved for its kind; others may be
    missing. `whole_domain`: none is missing that is free and in the machine's failure domain.
    """
    host = choice.host
    if host is None:
        return choice.outcome is Outcome.ON_ITS_WAY
    return whole_domain or domain_of(host) == wish.domain or _own(wish, host) or _named(wish, host)


def _own(wish: Wish, host: BareMetalHost) -> bool:
    consumer = host.spec.consumer_ref
    return consumer is not None and consumer.is_machine(wish.machine)


def _named(wish: Wish, host: BareMetalHost) -> bool:
    """An intent, of an earlier look or of whoever made the machine."""
    return wish.machine.metadata.annotations.get(HOST_ANNOTATION) == key_of(host.metadata)


def _is_cluster(host: BareMetalHost, wish: Wish) -> bool:
    """Reserved: while nobody has it, the host's consumer is the cluster itself."""
    consumer = host.spec.consumer_ref
    return (
        consumer is not None
        and capi.group_of(consumer.api_version) == capi.GROUP
        and consumer.kind == capi.CLUSTER.kind
        and consumer.name == wish.cluster
        and consumer.namespace == wish.machine.metadata.namespace
    )


def _on_its_way(wish: Wish, host: BareMetalHost, policy: Policy, around: Around) -> bool:
    """Reserved for this machine's kind, and only not ready yet."""
    if (
        not wish.reuse
        or host.metadata.labels.get(NODE_REUSE) != wish.reuse
        or why_unsuitable(wish, host, policy) is not None
    ):
        return False
    if host.spec.consumer_ref is not None and not _is_cluster(host, wish) and not around.leaving(host):
        return False
    if around.taken(key_of(host.metadata)):
        return False
    # A host that fails, is paused or goes away is not on its way to anybody. Our own pause of one that is being left
    # was the Cluster's, and that is over, or nobody would choose: it is taken back in a moment.
    return why_shut(host, our_pause=not around.leaving(host)) is None


def _pick(hosts: list[BareMetalHost], policy: Policy, around: Around, pick: Callable[[int], int]) -> BareMetalHost:
    ordered = sorted(hosts, key=lambda one: one.metadata.name)
    match policy.selection:
        case Selection.RANDOM:
            return ordered[pick(len(ordered))]
        case Selection.SPREAD:
            return min(ordered, key=lambda one: (around.used_domains.get(domain_of(one), 0), one.metadata.name))
        case Selection.LEAST_RECENTLY_USED:
            return min(ordered, key=lambda one: (one.last_used, one.metadata.name))
        case _:
            return ordered[0]
