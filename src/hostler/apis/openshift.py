"""OpenShift's objects, with just the fields we use, and their kinds. Pure.

The published CRDs of `github.com/openshift/api` are what they are read from.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hostler.kube.kinds import Kind
from hostler.kube.records import Condition, Metadata, NodeAddress, Record, Selector

INGRESS = Kind("config.openshift.io", "v1", "ingresses", "Ingress", False)
INFRASTRUCTURE = Kind("config.openshift.io", "v1", "infrastructures", "Infrastructure", False)
SCHEDULER = Kind("config.openshift.io", "v1", "schedulers", "Scheduler", False)
CLUSTER_VERSION = Kind("config.openshift.io", "v1", "clusterversions", "ClusterVersion", False)
CLUSTER_OPERATOR = Kind("config.openshift.io", "v1", "clusteroperators", "ClusterOperator", False)
INGRESS_CONTROLLER = Kind("operator.openshift.io", "v1", "ingresscontrollers", "IngressController", True)
CLUSTER_CSI_DRIVER = Kind("operator.openshift.io", "v1", "clustercsidrivers", "ClusterCSIDriver", False)
MACHINE_CONFIG_POOL = Kind("machineconfiguration.openshift.io", "v1", "machineconfigpools", "MachineConfigPool", False)
MACHINE_CONFIG = Kind("machineconfiguration.openshift.io", "v1", "machineconfigs", "MachineConfig", False)
MACHINE = Kind("machine.openshift.io", "v1beta1", "machines", "Machine", True)


# -- machines


class NodeReference(Record, frozen=True):
    name: str = ""


class MachineSpec(Record, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class MachineStatus(Record, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    node_ref: NodeReference = NodeReference()


class Machine(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        return self.status.node_ref.name


# -- what the cluster's installation decided


class IngressSpec(Record, frozen=True):
    domain: str = ""


class IngressStatus(Record, frozen=True):
    default_placement: str = ""


class IngressConfig(Record, frozen=True):
    """`ingresses.config.openshift.io/cluster`: what the installation decided."""

    metadata: Metadata = Metadata()
    spec: IngressSpec = IngressSpec()
    status: IngressStatus = IngressStatus()


class PlatformStatus(Record, frozen=True):
    type: str = ""


class InfrastructureStatus(Record, frozen=True):
    control_plane_topology: str = ""
    infrastructure_topology: str = ""
    platform: str = ""
    platform_status: PlatformStatus | None = None


class Infrastructure(Record, frozen=True):
    """`infrastructures.config.openshift.io/cluster`: how the cluster is laid out."""

    metadata: Metadata = Metadata()
    status: InfrastructureStatus = InfrastructureStatus()

    @property
    def platform(self) -> str:
        status = self.status.platform_status
        return (status.type if status is not None else "") or self.status.platform


class NodePlacement(Record, frozen=True):
    node_selector: Selector | None = None
    tolerations: tuple[dict[str, Any], ...] | None = None  # None: by default; empty: none at all


class PublishingStrategy(Record, frozen=True):
    type: str = ""


class ControllerSpec(Record, frozen=True):
    domain: str = ""
    replicas: int | None = None
    node_placement: NodePlacement | None = None
    endpoint_publishing_strategy: PublishingStrategy | None = None


class ControllerStatus(Record, frozen=True):
    available_replicas: int = 0
    selector: str = ""
    domain: str = ""
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    endpoint_publishing_strategy: PublishingStrategy | None = None


class IngressController(Record, frozen=True):
    """One router and what its owner asks of it. Empty fields are what the defaulting is about."""

    metadata: Metadata = Metadata()
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()


# -- operators


class OperatorCondition(Record, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ClusterOperatorStatus(Record, frozen=True):
    conditions: tuple[OperatorCondition, ...] | None = None


class ClusterOperator(Record, frozen=True):
    metadata: Metadata = Metadata()
    status: ClusterOperatorStatus = ClusterOperatorStatus()


class ClusterCSIDriverSpec(Record, frozen=True):
    management_state: str = ""


class ClusterCSIDriver(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: ClusterCSIDriverSpec = ClusterCSIDriverSpec()


# -- versions and machine configs


class DesiredUpdate(Record, frozen=True):
    version: str = ""


class ClusterVersionStatus(Record, frozen=True):
    desired: DesiredUpdate = DesiredUpdate()


class ClusterVersion(Record, frozen=True):
    status: ClusterVersionStatus = ClusterVersionStatus()


class ConfigName(Record, frozen=True):
    name: str = ""


class PoolConfiguration(Record, frozen=True):
    configuration: ConfigName = ConfigName()


class MachineConfigPool(Record, frozen=True):
    spec: PoolConfiguration = PoolConfiguration()
    status: PoolConfiguration = PoolConfiguration()


class DropIn(Record, frozen=True):
    contents: str | None = None


class Unit(Record, frozen=True):
    name: str = ""
    contents: str | None = None
    dropins: tuple[DropIn, ...] | None = None


class Systemd(Record, frozen=True):
    units: tuple[Unit, ...] | None = None


class Ignition(Record, frozen=True):
    systemd: Systemd | None = None


class MachineConfigSpec(Record, frozen=True):
    config: Ignition | None = None


class MachineConfig(Record, frozen=True):
    spec: MachineConfigSpec = MachineConfigSpec()
