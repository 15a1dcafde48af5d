"""metaData and networkData of one machine, byte for byte. What cannot be rendered is a sentence. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from hostler.apis.metal3 import BareMetalHost
from hostler.apis.metal3_data import (
    DataTemplate,
    FromObject,
    Gateway,
    IpAddressSpec,
    Link,
    Mac,
    MetaData,
    Network,
    NetworkData,
    PoolRef,
    Route,
    Services,
    pool_ref,
)
from hostler.kube.records import Metadata

_MAC = re.compile(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")


class CannotRender(ValueError):
    """The sentence says what is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Context:
    """Whose data it is: the machine of Cluster API, the Metal3Machine, the host, and the index among its siblings."""

    machine: Metadata
    metal3_machine: Metadata
    host: BareMetalHost
    index: int
    namespace: str
    addresses: Mapping[PoolRef, IpAddressSpec] = field(default_factory=dict)

    def of(self, kind: str) -> Any:
        match kind.lower():
            case "machine":
                return self.machine
            case "metal3machine":
                return self.metal3_machine
            case "baremetalhost":
                return self.host.metadata
        raise CannotRender(f"there is no object {kind!r}; known are machine, metal3machine and baremetalhost")

    def address(self, pool: PoolRef) -> IpAddressSpec:
        if pool in self.addresses:
            return self.addresses[pool]
        # A pool named without its kind may be claimed under its full name elsewhere in the same template.
        named = [spec for ref, spec in self.addresses.items() if ref.name == pool.name]
        if len(named) == 1:
            return named[0]
        raise CannotRender(f"there is no address from {pool}")

    def mac_of(self, interface: str) -> str:
        hardware = self.host.status.hardware
        nics = hardware.nics if hardware is not None else ()
        found = next((nic.mac for nic in nics if nic.name == interface), "")
        if not found:
            known = ", ".join(sorted(nic.name for nic in nics)) or "none"
            raise CannotRender(f"host {self.host.metadata.name} has no network interface {interface!r}; it has {known}")
        return found


# -- which pools


def pools_of(template: DataTemplate, context: Context) -> list[PoolRef]:
    """Every pool the template takes an address from, each once, in a fixed order."""
    return sorted(set(_pools(template, context)))


def _pools(template: DataTemplate, context: Context) -> Iterator[PoolRef]:
    meta, network = template.spec.meta_data, template.spec.network_data
    if meta is not None:
        for pools in (
            meta.ip_addresses_from_pool, meta.prefixes_from_pool, meta.gateways_from_pool, meta.dns_servers_from_pool,
        ):  # fmt: skip
            yield from (pool_ref(one) for one in pools)
    if network is None:
        return
    every = network.networks
    for one in (*every.ipv4, *every.ipv6):
        yield _network_pool(one, context)
    for one in (*every.ipv4, *every.ipv6, *every.ipv4_dhcp, *every.ipv6_dhcp, *every.ipv6_slaac):
        for route in one.routes:
            if (found := _gateway_pool(route.gateway, context)) is not None:
                yield found
            if route.services.dns_from_ip_pool:
                yield PoolRef(route.services.dns_from_ip_pool)
    if network.services.dns_from_ip_pool:
        yield PoolRef(network.services.dns_from_ip_pool)


def _network_pool(network: Network, context: Context) -> PoolRef:
    if network.from_pool_annotation is not None:  # the API: the others are ignored then
        return PoolRef(_annotation(network.from_pool_annotation, context))
    if network.from_pool_ref is not None:
        return pool_ref(network.from_pool_ref)
    if network.ip_address_from_ip_pool:
        return PoolRef(network.ip_address_from_ip_pool)
    raise CannotRender(f"network {network.id} names no pool to take its address from")


def _gateway_pool(gateway: Gateway, context: Context) -> PoolRef | None:
    if gateway.string:
        return None
    if gateway.from_pool_annotation is not None:
        return PoolRef(_annotation(gateway.from_pool_annotation, context))
    if gateway.from_pool_ref is not None:
        return pool_ref(gateway.from_pool_ref)
    return PoolRef(gateway.from_ip_pool) if gateway.from_ip_pool else None


def _annotation(source: FromObject, context: Context) -> str:
    found = str(context.of(source.object).annotations.get(source.annotation, ""))
    if not found:
        raise CannotRender(f"the {source.object} has no annotation {source.annotation}")
    return found


# -- metaData


def render_meta_data(template: MetaData, context: Context) -> bytes:
    """Plain `key: value` lines, sorted; the provider id is always among them."""
    found: dict[str, str] = {}
    for one in template.from_host_interfaces:
        boot = context.host.spec.boot_mac_address
        if one.from_boot_mac and not boot:
            raise CannotRender(f"host {context.host.metadata.name} has no boot MAC address")
        found[one.key] = boot if one.from_boot_mac else context.mac_of(one.interface)
    for pool in template.ip_addresses_from_pool:
        found[pool.key] = context.address(pool_ref(pool)).address
    for pool in template.prefixes_from_pool:
        found[pool.key] = str(context.address(pool_ref(pool)).prefix)
    for pool in template.gateways_from_pool:
        found[pool.key] = context.address(pool_ref(pool)).gateway
    for pool in template.dns_servers_from_pool:
        found[pool.key] = ",".join(context.address(pool_ref(pool)).dns_servers)
    for index in template.indexes:
        found[index.key] = f"{index.prefix}{index.offset + context.index * (index.step or 1)}{index.suffix}"
    for text in template.namespaces:
        found[text.key] = context.namespace
    for source in template.object_names:
        found[source.key] = str(context.of(source.object).name)
    for source in template.from_labels:
        found[source.key] = str(context.of(source.object).labels.get(source.label, ""))
    for source in template.from_annotations:
        found[source.key] = str(context.of(source.object).annotations.get(source.annotation, ""))
    for text in template.strings:
        found[text.key] = text.value
    machine = context.metal3_machine
    found["providerid"] = f"{machine.namespace}/{context.host.metadata.name}/{machine.name}"
    return _yaml(found)


# -- networkData, in the form of OpenStack's network_data.json


def render_network_data(template: NetworkData, context: Context) -> bytes:
    links = template.links
    networks = template.networks
    rendered = {
        "links": [
            *(_bond(one, context) for one in links.bonds),
            *(_ethernet(one, context) for one in links.ethernets),
            *(_vlan(one, context) for one in links.vlans),
        ],
        "networks": [
            *(_addressed("ipv4", one, context) for one in networks.ipv4),
            *(_addressed("ipv6", one, context) for one in networks.ipv6),
            *(_network("ipv4_dhcp", one, context) for one in networks.ipv4_dhcp),
            *(_network("ipv6_dhcp", one, context) for one in networks.ipv6_dhcp),
            *(_network("ipv6_slaac", one, context) for one in networks.ipv6_slaac),
        ],
        "services": _services(template.services, context),
    }
    return _yaml(rendered)


def check_links(template: NetworkData) -> None:
    """Whatever names a link must name one of the template's: else the host would come up without its network."""
    links, every = template.links, template.networks
    known = {one.id for one in (*links.bonds, *links.ethernets, *links.vlans)}
    named = [(f"links.bonds {one.id}: bondLinks", link) for one in links.bonds for link in one.bond_links]
    named += [(f"links.vlans {one.id}: vlanLink", one.vlan_link) for one in links.vlans]
    for kind, networks in (
        ("ipv4", every.ipv4), ("ipv6", every.ipv6), ("ipv4DHCP", every.ipv4_dhcp), ("ipv6DHCP", every.ipv6_dhcp),
        ("ipv6SLAAC", every.ipv6_slaac),
    ):  # fmt: skip
        named += [(f"networks.{kind} {one.id}: link", one.link) for one in networks]
    for place, link in named:
        if link not in known:
            there = ", ".join(sorted(known)) or "none"
            raise CannotRender(f"networkData.{place} names {link!r}, which is not among the links ({there})")


def _link(kind: str, link: Link, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": link.id, "mtu": link.mtu, **({"name": link.name} if link.name else {}), **more}


def _ethernet(link: Link, context: Context) -> dict[str, Any]:
    return _link(link.type, link, ethernet_mac_address=_mac(link.mac_address, link.id, context))


def _bond(link: Link, context: Context) -> dict[str, Any]:
    entry = _link(
        "bond", link, ethernet_mac_address=_mac(link.mac_address, link.id, context), bond_mode=link.bond_mode,
        bond_xmit_hash_policy=link.bond_xmit_hash_policy, bond_links=list(link.bond_links),
    )  # fmt: skip
    for parameter in link.parameters:
        name = f"bond_{parameter.name}"
        if name in entry:
            raise CannotRender(f"bond {link.id} has the parameter {parameter.name}, which has a field of its own")
        entry[name] = parameter.value
    return entry


def _vlan(link: Link, context: Context) -> dict[str, Any]:
    mac = _mac(link.mac_address, link.id, context)
    return _link("vlan", link, vlan_mac_address=mac, vlan_id=link.vlan_id, vlan_link=link.vlan_link)


def _mac(mac: Mac, link: str, context: Context) -> str:
    if mac.string:
        found = mac.string
    elif mac.from_host_interface:
        found = context.mac_of(mac.from_host_interface)
    elif mac.from_annotation is not None:
        found = _annotation(mac.from_annotation, context)
    else:
        raise CannotRender(f"link {link} has no MAC address")
    if not _MAC.fullmatch(found):
        raise CannotRender(f"link {link}: {found!r} is no MAC address")
    return found


def _network(kind: str, network: Network, context: Context) -> dict[str, Any]:
    six = kind.startswith("ipv6")
    routes = [_route(one, six, context) for one in network.routes]
    return {"type": kind, "id": network.id, "link": network.link, "routes": routes}


def _addressed(kind: str, network: Network, context: Context) -> dict[str, Any]:
    address = context.address(_network_pool(network, context))
    mask = netmask(address.prefix, kind == "ipv6")
    return {**_network(kind, network, context), "ip_address": address.address, "netmask": mask}


def _route(route: Route, six: bool, context: Context) -> dict[str, Any]:
    pool = _gateway_pool(route.gateway, context)
    gateway = context.address(pool).gateway if pool is not None else route.gateway.string
    services = _services(route.services, context)
    return {"network": route.network, "netmask": netmask(route.prefix, six), "gateway": gateway, "services": services}


def _services(services: Services, context: Context) -> list[dict[str, str]]:
    servers: Sequence[str] = services.dns
    if services.dns_from_ip_pool:
        servers = (*servers, *context.address(PoolRef(services.dns_from_ip_pool)).dns_servers)
    return [{"type": "dns", "address": one} for one in servers]


def netmask(prefix: int, six: bool) -> str:
    if prefix > (128 if six else 32):
        raise CannotRender(f"{prefix} is no prefix of an IPv{6 if six else 4} network")
    if six:
        return str(ipaddress.IPv6Network(f"::/{prefix}").netmask)
    return str(ipaddress.IPv4Network(f"0.0.0.0/{prefix}").netmask)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that a reader takes for something else: Go's, Baremetal Operator's, so reads 08, 1e3 and y."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?$|0[oO][0-7_]+$"),
    list("-+.0123456789"),
)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"[yYnN]$"), list("yYnN"))


def _yaml(content: Any) -> bytes:
    return yaml.dump(content, Dumper=_Dumper, default_flow_style=False, sort_keys=True, width=10_000).encode()
