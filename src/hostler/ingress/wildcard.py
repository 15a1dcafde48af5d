"""Whether the wildcard name of a router still points at a node that runs one; `lookup.py` asks the resolver. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hostler.host.conditions import Status, names
from hostler.host.facts import Fact, Unknown
from hostler.ingress.placement import HOST_NETWORK
from hostler.kube.records import Node

# Any label answers for a wildcard; this one names the client in DNS logs.
PROBE = "hostler-wildcard-check"


@dataclass(frozen=True, slots=True)
class Pointing:
    """Whether traffic that follows the name reaches a router, as a condition says it."""

    status: Status
    reason: str
    why: str


def pointing(
    domain: str, published: str, addresses: Fact[tuple[str, ...]], nodes: Sequence[Node], running: Collection[str]
) -> Pointing | None:
    """Judge the name; None where there is nothing to judge. `running` are the nodes with a ready router pod.

    Only a router on its nodes' own ports is reached at a node's address; what points elsewhere (a load balancer)
    is not known to be right or wrong.
    """
    if not domain or published != HOST_NETWORK:
        return None
    name = f"*.{domain}"
    if isinstance(addresses, Unknown):
        return Pointing(Status.UNKNOWN, "NotResolved", f"Where {name} points is not known: {addresses.why}")
    at = {node.metadata.name: _addresses(node) for node in nodes}
    found = {_same(address) for address in addresses.value}
    hit = sorted(node for node, own in at.items() if own & found)
    elsewhere = sorted(found - {address for own in at.values() for address in own})
    if not hit:
        said = f"{name} points at {names(elsewhere)}, which is no node's address: a load balancer, or a mistake."
        return Pointing(Status.UNKNOWN, "NotANode", said)
    without = [node for node in hit if node not in running]
    if without:
        here = f"Routers run on {names(running)}." if running else "No router is ready anywhere."
        said = f"{name} points at {names(without)}, where no router is ready. {here} Traffic that goes there is lost."
        return Pointing(Status.FALSE, "NoRouterThere", said)
    return Pointing(Status.TRUE, "RouterThere", f"{name} points at {names(hit)}, where a router is ready.")


def _addresses(node: Node) -> set[str]:
    return {_same(one.address) for one in node.status.addresses if one.type in ("InternalIP", "ExternalIP")}


def _same(address: str) -> str:
    """One spelling per address; what is none stays as it is."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
