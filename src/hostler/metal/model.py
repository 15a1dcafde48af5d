"""The objects of Metal3, with just the fields we use."""

from __future__ import annotations

from sys import intern

import msgspec
from msgspec.structs import force_setattr

from hostler.host.conditions import Condition
from hostler.kube.records import Metadata, Record
from hostler.metal.names import (
    DELETE_FOR_MOVE,
    DETACHED,
    INFRASTRUCTURE,
    METAL3_MACHINE,
    OUR_PAUSE,
    PAUSED,
    REMEDIATION_POWER_OFF,
    UNHEALTHY,
    group_of,
)
from hostler.metal.refusal import Refusal, Refused


def share(record: msgspec.Struct, *fields: str) -> None:
    """Keep words once that thousands of records have in common. Only such of which there are few: never a time."""
    for field in fields:
        value = getattr(record, field)
        force_setattr(record, field, tuple(map(intern, value)) if value.__class__ is tuple else intern(value))


class Reference(Record, frozen=True, omit_defaults=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""

    def __post_init__(self) -> None:
        share(self, "api_version", "kind", "namespace")

    def is_machine(self, machine: Metal3Machine) -> bool:
        """Group, kind, namespace and name count; the version does not."""
        meta = machine.metadata
        return (
            group_of(self.api_version) == INFRASTRUCTURE
            and self.kind == METAL3_MACHINE.kind
            and self.name == meta.name
            and self.namespace == meta.namespace
        )


class Owner(Record, frozen=True, omit_defaults=True):
    """An owner reference in full: lists are written whole, so nothing of the others' may get lost."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    def __post_init__(self) -> None:
        share(self, "api_version", "kind")


class OwnedMetadata(Record, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        share(self, "namespace", "finalizers")


# -- the host


class Image(Record, frozen=True, omit_defaults=True):
    url: str = ""
    checksum: str = ""
    checksum_type: str = ""
    format: str = ""

    def __post_init__(self) -> None:
        share(self, "url", "checksum", "checksum_type", "format")


class Deploy(Record, frozen=True):
    method: str = ""


class SecretRef(Record, frozen=True, omit_defaults=True):
    name: str = ""
    namespace: str = ""

    def __post_init__(self) -> None:
        share(self, "namespace")


class BmcSecret(Record, frozen=True):
    """Never its content, nor the annotation in which kubectl keeps that too."""

    class Meta(Record, frozen=True):
        name: str = ""
        namespace: str = ""
        uid: str = ""
        resource_version: str = ""
        labels: dict[str, str] = msgspec.field(default_factory=dict)

        def __post_init__(self) -> None:
            share(self, "namespace")

    metadata: Meta = Meta()


class Bmc(Record, frozen=True):
    address: str = ""
    credentials_name: str = ""


class HostSpec(Record, frozen=True):
    online: bool = False
    image: Image | None = None
    custom_deploy: Deploy | None = None
    consumer_ref: Reference | None = None
    user_data: SecretRef | None = None
    meta_data: SecretRef | None = None
    network_data: SecretRef | None = None
    automated_cleaning_mode: str = ""
    bmc: Bmc = Bmc()
    boot_mac_address: str = msgspec.field(default="", name="bootMACAddress")
    externally_provisioned: bool = False
    disable_power_off: bool = False


class Nic(Record, frozen=True):
    name: str = ""
    mac: str = ""
    ip: str = ""


class Hardware(Record, frozen=True):
    hostname: str = ""
    nics: tuple[Nic, ...] = ()


class Provisioning(Record, frozen=True):
    state: str = ""

    def __post_init__(self) -> None:
        share(self, "state")


class Span(Record, frozen=True):
    end: str | None = None


class History(Record, frozen=True):
    provision: Span = Span()
    deprovision: Span = Span()


class HostStatus(Record, frozen=True):
    operational_status: str = ""
    error_type: str = ""
    error_message: str = ""
    error_count: int = 0
    powered_on: bool = False
    provisioning: Provisioning = Provisioning()
    hardware: Hardware | None = None
    operation_history: History = History()


class Host(Record, frozen=True):
    """A BareMetalHost."""

    metadata: OwnedMetadata = OwnedMetadata()
    spec: HostSpec = HostSpec()
    status: HostStatus = HostStatus()

    @property
    def state(self) -> str:
        return self.status.provisioning.state

    @property
    def failing(self) -> bool:
        status = self.status
        return bool(status.error_type or status.error_message or status.operational_status == "error")

    @property
    def imaged(self) -> bool:
        return self.spec.image is not None or self.spec.custom_deploy is not None

    @property
    def available(self) -> bool:
        return self.state in ("available", "ready")

    @property
    def last_used(self) -> str:
        history = self.status.operation_history
        return history.deprovision.end or history.provision.end or ""

    def why_shut(self, *, our_pause: bool = True) -> Refusal | None:
        """Why no machine at all could have this host now, its consumer apart; None: it is open.

        Without `our_pause` a pause of ours is no reason: it ends by itself.
        """
        meta, status = self.metadata, self.status
        if meta.deletion_timestamp:
            return Refusal(Refused.DELETED)
        if DELETE_FOR_MOVE in meta.annotations:
            return Refusal(Refused.MOVED)
        if self.failing:
            what = status.error_type or "an error"
            return Refusal(Refused.ERROR, f"{what}: {status.error_message[:200]}" if status.error_message else what)
        by = meta.annotations.get(PAUSED)
        if by is not None and (our_pause or by != OUR_PAUSE):
            return Refusal(Refused.PAUSED, by or "somebody")
        if any(name in meta.annotations for name in UNHEALTHY):
            return Refusal(Refused.UNHEALTHY)
        if any(name.startswith(REMEDIATION_POWER_OFF) for name in meta.annotations):
            return Refusal(Refused.POWERED_OFF)
        if DETACHED in meta.annotations or status.operational_status == "detached":
            return Refusal(Refused.DETACHED)
        return Refusal(Refused.EXTERNAL) if self.spec.externally_provisioned else None

    def why_not_free(self) -> Refusal | None:
        """Why it could not be taken even by a machine that it suits; `available` alone does not mean free."""
        if (shut := self.why_shut()) is not None:
            return shut
        if not self.available:
            return Refusal(Refused.STATE, self.state) if self.state else Refusal(Refused.NO_STATE)
        if self.status.operational_status not in ("OK", ""):
            return Refusal(Refused.NOT_OK, self.status.operational_status)
        return Refusal(Refused.IMAGE) if self.imaged else None


# -- the machine


class MachineImage(Record, frozen=True):
    url: str = ""
    checksum: str = ""
    checksum_type: str = ""
    disk_format: str = ""

    def __post_init__(self) -> None:
        share(self, "url", "checksum", "checksum_type", "disk_format")


class HostSelector(Record, frozen=True):
    class Expression(Record, frozen=True):
        key: str = ""
        operator: str = ""
        values: tuple[str, ...] = ()

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()


class MachineSpec(Record, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    failure_domain: str = ""
    automated_cleaning_mode: str = ""
    host_selector: HostSelector = HostSelector()
    image: MachineImage = MachineImage()
    custom_deploy: Deploy | None = None
    data_template: SecretRef | None = None
    user_data: SecretRef | None = None
    meta_data: SecretRef | None = None
    network_data: SecretRef | None = None


class MachineAddress(Record, frozen=True):
    type: str = ""
    address: str = ""


class Initialization(Record, frozen=True):
    provisioned: bool = False


class MachineStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()
    initialization: Initialization = Initialization()
    addresses: tuple[MachineAddress, ...] = ()
    user_data: SecretRef | None = None
    meta_data: SecretRef | None = None
    network_data: SecretRef | None = None
    rendered_data: SecretRef | None = None

    def __post_init__(self) -> None:
        for one in self.conditions:
            share(one, "type", "reason")


class Metal3Machine(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    def __post_init__(self) -> None:
        share(self.metadata, "namespace", "finalizers")


class TemplateInner(Record, frozen=True):
    spec: MachineSpec = MachineSpec()


class TemplateSpec(Record, frozen=True):
    node_reuse: bool = False
    template: TemplateInner = TemplateInner()


class Metal3MachineTemplate(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: TemplateSpec = TemplateSpec()


class Endpoint(Record, frozen=True):
    host: str = ""
    port: int = 0


class ClusterDomain(Record, frozen=True, omit_defaults=True):
    name: str = ""
    control_plane: bool | None = None
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class Metal3ClusterSpec(Record, frozen=True):
    control_plane_endpoint: Endpoint = Endpoint()
    cloud_provider_enabled: bool = False
    failure_domains: tuple[ClusterDomain, ...] = ()


class Metal3ClusterStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()
    initialization: Initialization = Initialization()
    failure_domains: tuple[ClusterDomain, ...] = ()


class Metal3Cluster(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: Metal3ClusterSpec = Metal3ClusterSpec()
    status: Metal3ClusterStatus = Metal3ClusterStatus()
