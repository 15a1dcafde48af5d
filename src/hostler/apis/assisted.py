"""Objects of the assisted installer and of Hive, with just the fields we use, and their kinds. Pure."""

from __future__ import annotations

import msgspec

from hostler.kube.kinds import Kind
from hostler.kube.records import Condition, Metadata, Record

GROUP = "agent-install.openshift.io"
AGENT = Kind(GROUP, "v1beta1", "agents", "Agent", True)
INFRA_ENV = Kind(GROUP, "v1beta1", "infraenvs", "InfraEnv", True)
CLUSTER_DEPLOYMENT = Kind("hive.openshift.io", "v1", "clusterdeployments", "ClusterDeployment", True)
INFRA_ENV_LABEL = f"infraenvs.{GROUP}"  # on an Agent, and on a BareMetalHost that boots for one
BMH_LABEL = f"{GROUP}/bmh"


class Named(Record, frozen=True):
    name: str = ""
    namespace: str = ""


class AgentSpec(Record, frozen=True):
    approved: bool = False
    hostname: str = ""
    cluster_deployment_name: Named | None = None


class DebugInfo(Record, frozen=True):
    state: str = ""
    state_info: str = ""


class Deprovision(Record, frozen=True, rename=None):
    cluster_name: str = ""
    cluster_namespace: str = ""
    node_name: str = ""


class SystemVendor(Record, frozen=True):
    serial_number: str = ""


class Interface(Record, frozen=True):
    mac_address: str = ""
    ip_v4_addresses: tuple[str, ...] = ()
    ip_v6_addresses: tuple[str, ...] = ()


class Inventory(Record, frozen=True):
    hostname: str = ""
    system_vendor: SystemVendor = SystemVendor()
    interfaces: tuple[Interface, ...] = ()


class Stage(Record, frozen=True):
    stage_start_time: str = ""
    current_stage: str = ""
    progress_info: str = ""


class AgentStatus(Record, frozen=True):
    debug_info: DebugInfo = DebugInfo()
    deprovision_info: Deprovision | None = msgspec.field(default=None, name="deprovision_info")
    inventory: Inventory = Inventory()
    progress: Stage = Stage()
    conditions: tuple[Condition, ...] = ()


class Agent(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: AgentSpec = AgentSpec()
    status: AgentStatus = AgentStatus()


class Proxy(Record, frozen=True):
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""


class Argument(Record, frozen=True):
    operation: str = ""
    value: str = ""


class InfraEnvSpec(Record, frozen=True):
    pull_secret_ref: Named | None = None
    proxy: Proxy | None = None
    kernel_arguments: tuple[Argument, ...] | None = None


class BootArtifacts(Record, frozen=True):
    kernel: str = ""
    initrd: str = ""
    rootfs: str = ""


class InfraEnvStatus(Record, frozen=True):
    boot_artifacts: BootArtifacts | None = None


class InfraEnv(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: InfraEnvSpec = InfraEnvSpec()
    status: InfraEnvStatus = InfraEnvStatus()


class ClusterMetadata(Record, frozen=True):
    admin_kubeconfig_secret_ref: Named | None = None


class ClusterDeploymentSpec(Record, frozen=True):
    cluster_metadata: ClusterMetadata | None = None


class ClusterDeployment(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: ClusterDeploymentSpec = ClusterDeploymentSpec()
