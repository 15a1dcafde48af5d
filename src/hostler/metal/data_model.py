"""Data templates, their claims and what is rendered from them, with just the fields we use. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from hostler.kube.records import Metadata, Record
from hostler.metal.model import Host, Metal3Machine, OwnedMetadata, SecretRef
from hostler.metal.names import METAL3_IPAM, RENDERED_FOR


class FromObject(Record, frozen=True):
    object: str = ""
    annotation: str = ""
    label: str = ""
    key: str = ""


class Pool(Record, frozen=True):
    """A reference to a pool; without group and kind it is Metal3's own."""

    name: str = ""
    kind: str = "IPPool"
    api_group: str = METAL3_IPAM
    key: str = ""


class Text(Record, frozen=True):
    key: str = ""
    value: str = ""


class IndexValue(Record, frozen=True):
    key: str = ""
    offset: int = 0
    step: int = 1
    prefix: str = ""
    suffix: str = ""


class FromInterface(Record, frozen=True):
    key: str = ""
    interface: str = ""
    from_boot_mac: bool = msgspec.field(default=False, name="fromBootMAC")


class MetaData(Record, frozen=True):
    strings: tuple[Text, ...] = ()
    object_names: tuple[FromObject, ...] = ()
    indexes: tuple[IndexValue, ...] = ()
    namespaces: tuple[Text, ...] = ()
    from_host_interfaces: tuple[FromInterface, ...] = ()
    from_labels: tuple[FromObject, ...] = ()
    from_annotations: tuple[FromObject, ...] = ()
    ip_addresses_from_pool: tuple[Pool, ...] = ()
    prefixes_from_pool: tuple[Pool, ...] = ()
    gateways_from_pool: tuple[Pool, ...] = ()
    dns_servers_from_pool: tuple[Pool, ...] = ()


class Mac(Record, frozen=True):
    string: str = ""
    from_host_interface: str = ""
    from_annotation: FromObject | None = None


class Parameter(Record, frozen=True):
    name: str = ""
    value: Any = None


class Link(Record, frozen=True):
    """An ethernet, a bond or a vlan: which, says where it is listed."""

    id: str = ""
    type: str = ""
    name: str = ""
    mtu: int = 1500
    mac_address: Mac = Mac()
    bond_mode: str = ""
    bond_xmit_hash_policy: str = ""
    bond_links: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    vlan_id: int = msgspec.field(default=0, name="vlanID")
    vlan_link: str = ""


class Links(Record, frozen=True):
    bonds: tuple[Link, ...] = ()
    ethernets: tuple[Link, ...] = ()
    vlans: tuple[Link, ...] = ()


class Services(Record, frozen=True):
    dns: tuple[str, ...] = ()
    dns_from_ip_pool: str = msgspec.field(default="", name="dnsFromIPPool")


class Gateway(Record, frozen=True):
    string: str = ""
    from_ip_pool: str = msgspec.field(default="", name="fromIPPool")
    from_pool_ref: Pool | None = None
    from_pool_annotation: FromObject | None = None


class Route(Record, frozen=True):
    network: str = ""
    prefix: int = 0
    gateway: Gateway = Gateway()
    services: Services = Services()


class Network(Record, frozen=True):
    id: str = ""
    link: str = ""
    ip_address_from_ip_pool: str = msgspec.field(default="", name="ipAddressFromIPPool")
    from_pool_ref: Pool | None = None
    from_pool_annotation: FromObject | None = None
    routes: tuple[Route, ...] = ()


class Networks(Record, frozen=True):
    ipv4: tuple[Network, ...] = ()
    ipv6: tuple[Network, ...] = ()
    ipv4_dhcp: tuple[Network, ...] = msgspec.field(default=(), name="ipv4DHCP")
    ipv6_dhcp: tuple[Network, ...] = msgspec.field(default=(), name="ipv6DHCP")
    ipv6_slaac: tuple[Network, ...] = msgspec.field(default=(), name="ipv6SLAAC")


class NetworkData(Record, frozen=True):
    links: Links = Links()
    networks: Networks = Networks()
    services: Services = Services()


class DataTemplateSpec(Record, frozen=True):
    cluster_name: str = ""
    meta_data: MetaData | None = None
    network_data: NetworkData | None = None


class IndexOf(Record, frozen=True):
    name: str = ""
    index: int = 0


class DataTemplateStatus(Record, frozen=True):
    indexes: tuple[IndexOf, ...] = ()


class DataTemplate(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: DataTemplateSpec = DataTemplateSpec()
    status: DataTemplateStatus = DataTemplateStatus()


class DataClaimSpec(Record, frozen=True):
    template: SecretRef = SecretRef()


class DataClaimStatus(Record, frozen=True):
    rendered_data: SecretRef = SecretRef()
    error_message: str = ""


class DataClaim(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: DataClaimSpec = DataClaimSpec()
    status: DataClaimStatus = DataClaimStatus()


class DataSpec(Record, frozen=True):
    index: int = 0
    claim: SecretRef = SecretRef()
    template: SecretRef = SecretRef()
    meta_data: SecretRef | None = None
    network_data: SecretRef | None = None


class DataStatus(Record, frozen=True):
    ready: bool = False
    error_message: str = ""


class Data(Record, frozen=True):
    """A Metal3Data: one index of a template, for one machine."""

    metadata: Metadata = Metadata()
    spec: DataSpec = DataSpec()
    status: DataStatus = DataStatus()


# -- addresses


class Named(Record, frozen=True):
    name: str = ""


class IpClaimStatus(Record, frozen=True):
    address: Named | None = None  # Metal3's
    address_ref: Named | None = None  # Cluster API's
    error_message: str = ""


class IpClaimSpec(Record, frozen=True):
    pool: Named = Named()  # Metal3's
    pool_ref: Pool | None = None  # Cluster API's


class IpClaim(Record, frozen=True):
    """An IPClaim of Metal3 or an IPAddressClaim of Cluster API."""

    metadata: OwnedMetadata = OwnedMetadata()
    spec: IpClaimSpec = IpClaimSpec()
    status: IpClaimStatus = IpClaimStatus()

    @property
    def address(self) -> str:
        found = self.status.address or self.status.address_ref
        return found.name if found is not None else ""

    @property
    def pool(self) -> PoolRef:
        return pool_ref(self.spec.pool_ref) if self.spec.pool_ref is not None else PoolRef(self.spec.pool.name)


class IpAddressSpec(Record, frozen=True):
    address: str = ""
    prefix: int = 0
    gateway: str = ""
    dns_servers: tuple[str, ...] = ()
    claim: Named = Named()  # Metal3's
    claim_ref: Named = Named()  # Cluster API's


class IpAddress(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: IpAddressSpec = IpAddressSpec()


@dataclass(frozen=True, slots=True, order=True)
class PoolRef:
    """Which pool: Metal3's own are claimed by IPClaim, all others by Cluster API's IPAddressClaim."""

    name: str
    kind: str = "IPPool"
    group: str = METAL3_IPAM

    @property
    def metal3(self) -> bool:
        return self.group == METAL3_IPAM and self.kind == "IPPool"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def pool_ref(pool: Pool) -> PoolRef:
    return PoolRef(pool.name, pool.kind or "IPPool", pool.api_group or METAL3_IPAM)


class RenderedSecret(Record, frozen=True):
    """A Secret with the name of one of ours."""

    metadata: Metadata = Metadata()
    type: str = ""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)


# -- whose data it is


def rendered_for(data: Data, host: Host) -> bool:
    """Whether this was rendered for this host. Where nobody wrote for which, as the Go provider does not, it was."""
    return data.metadata.annotations.get(RENDERED_FOR, host.metadata.uid) == host.metadata.uid


def is_installed_with(data: Data, host: Host) -> bool:
    """Whether this host is installed with the secrets this data names; its status may be lost, as after a move."""
    pairs = ((data.spec.meta_data, host.spec.meta_data), (data.spec.network_data, host.spec.network_data))
    used = [(ours.name, theirs.name if theirs is not None else "") for ours, theirs in pairs if ours is not None]
    return host.imaged and bool(used) and all(ours == theirs for ours, theirs in used)


def names_secrets(data: Data, host: Host, secrets: dict[str, dict[str, str] | None]) -> bool:
    """Whether it names these secrets already, as rendered for this host."""
    known = {"metaData": data.spec.meta_data, "networkData": data.spec.network_data}
    same = {field: msgspec.to_builtins(one) if one is not None else None for field, one in known.items()} == secrets
    return same and data.metadata.annotations.get(RENDERED_FOR) == host.metadata.uid


def of_other_template(claim: DataClaim, machine: Metal3Machine) -> bool:
    wanted = machine.spec.data_template
    return wanted is not None and claim.spec.template.name != wanted.name


def owned(claim: DataClaim, machine: Metal3Machine) -> bool:
    return any(one.uid == machine.metadata.uid for one in claim.metadata.owner_references)


def in_use(claim: DataClaim, machine: Metal3Machine, host: Host | None, unreadable: str) -> str:
    """That a host is, or may be, installed with what somebody deletes by hand: its addresses must stay its own."""
    if machine.metadata.deletion_timestamp or not owned(claim, machine):
        return ""
    if host is None or not host.imaged:
        return unreadable
    return f"Host {host.metadata.name} is installed with this data, which goes with its machine and not before."


def unfit(claim: DataClaim, machine: Metal3Machine) -> str:
    """Why a claim of the machine's name is not the one it is to be provisioned with; empty: it is."""
    name = claim.metadata.name
    if claim.metadata.deletion_timestamp:
        return f"it waits until the Metal3DataClaim {name} of before is gone."
    if not owned(claim, machine):
        return f"Metal3DataClaim {name} belongs to another machine of its name, or to nobody: delete it."
    if of_other_template(claim, machine):
        return f"its data is asked for anew: it was claimed from Metal3DataTemplate {claim.spec.template.name}."
    return ""
