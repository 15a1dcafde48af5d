"""Metal3's objects, with just the fields we use, and their kinds. Pure."""

from __future__ import annotations

import msgspec

from hostler.apis.capi import group_of
from hostler.host.conditions import Condition
from hostler.kube.kinds import Kind
from hostler.kube.records import Metadata, Record, share

GROUP = "infrastructure.cluster.x-k8s.io"
METAL3_IPAM = "ipam.metal3.io"

BARE_METAL_HOST = Kind("metal3.io", "v1alpha1", "baremetalhosts", "BareMetalHost", True)
METAL3_MACHINE = Kind(GROUP, "v1beta2", "metal3machines", "Metal3Machine", True)
METAL3_CLUSTER = Kind(GROUP, "v1beta2", "metal3clusters", "Metal3Cluster", True)
METAL3_MACHINE_TEMPLATE = Kind(GROUP, "v1beta2", "metal3machinetemplates", "Metal3MachineTemplate", True)
METAL3_DATA_TEMPLATE = Kind(GROUP, "v1beta2", "metal3datatemplates", "Metal3DataTemplate", True)
METAL3_DATA_CLAIM = Kind(GROUP, "v1beta2", "metal3dataclaims", "Metal3DataClaim", True)
METAL3_DATA = Kind(GROUP, "v1beta2", "metal3datas", "Metal3Data", True)
METAL3_REMEDIATION = Kind(GROUP, "v1beta2", "metal3remediations", "Metal3Remediation", True)
METAL3_IP_CLAIM = Kind(METAL3_IPAM, "v1alpha1", "ipclaims", "IPClaim", True)
METAL3_IP_ADDRESS = Kind(METAL3_IPAM, "v1alpha1", "ipaddresses", "IPAddress", True)
METAL3_IP_POOL = Kind(METAL3_IPAM, "v1alpha1", "ippools", "IPPool", True)


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
            group_of(self.api_version) == GROUP
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
    start: str | None = None
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


class BareMetalHost(Record, frozen=True):
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


class Metal3MachineSpec(Record, frozen=True):
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


class Metal3Condition(Condition, frozen=True):
    reason: str = ""  # v1beta1 gives a condition that is True none


class Metal3MachineStatus(Record, frozen=True):
    conditions: tuple[Metal3Condition, ...] = ()
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
    spec: Metal3MachineSpec = Metal3MachineSpec()
    status: Metal3MachineStatus = Metal3MachineStatus()

    def __post_init__(self) -> None:
        share(self.metadata, "namespace", "finalizers")


class TemplateInner(Record, frozen=True):
    spec: Metal3MachineSpec = Metal3MachineSpec()


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
    conditions: tuple[Metal3Condition, ...] = ()
    initialization: Initialization = Initialization()
    failure_domains: tuple[ClusterDomain, ...] = ()


class Metal3Cluster(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: Metal3ClusterSpec = Metal3ClusterSpec()
    status: Metal3ClusterStatus = Metal3ClusterStatus()
