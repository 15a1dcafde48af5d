"""What the Fleet allows in serving certificates: names, networks, lifetime. Part of `decide`. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from hostler.host.conditions import names
from hostler.host.facts import Unknown
from hostler.join.model import Facts, RequestSpec, Rule, RuleName, ServingLimits
from hostler.join.rules import fails, holds, unknown
from hostler.join.shape import Shape

FIELD = "Fleet spec.join.serving"
DAY = 86400
# A name has up to 253 characters, and Python's matcher backtracks: with more repetitions than these one name could keep
# the operator busy for minutes.
MOST_REPEATS, MOST_OPTIONAL = 3, 6


def allowed_rule(spec: RequestSpec, shape: Shape, facts: Facts) -> Rule:
    """Whether the Fleet allows every name, every address and the lifetime that a request asks for."""
    if isinstance(facts.limits, Unknown):
        return unknown(RuleName.ALLOWED, f"what {FIELD} allows is not known: {facts.limits.why}")
    limits = facts.limits.value
    wrong = unusable(limits)
    if wrong:
        return fails(RuleName.ALLOWED, f"{wrong}; correct it")
    strange = [one for one in sorted(shape.dns) if limits.names and not _matches(one, limits.names)]
    if strange:
        return fails(RuleName.ALLOWED, f"{names(strange)} matches no expression of {FIELD}.names")
    outside = [one for one in sorted(shape.ips) if limits.prefixes and not _within(one, limits.prefixes)]
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
    if re.search(r"\)[*+{]", text) or sum(text.count(one) for one in "*+{") > MOST_REPEATS:
        return f"repeats a group or has more than {MOST_REPEATS} repetitions, which could take minutes to match"
    if text.count("?") > MOST_OPTIONAL:
        return f"has more than {MOST_OPTIONAL} optional parts, which could take minutes to match"
    return ""


def _matches(name: str, expressions: tuple[str, ...]) -> bool:
    return any(re.fullmatch(one, name) for one in expressions)


def _within(address: str, prefixes: tuple[str, ...]) -> bool:
    read = ip_address(address)
    return any(read in network for one in prefixes if (network := _network(one)).version == read.version)


@lru_cache(maxsize=256)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text.strip(), strict=False)
