"""What Hostler can do, what each needs, and whose place it takes. One table; a room's author edits its own line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hostler.safety.incumbents import Incumbent, Signs, Trail, Where


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing Hostler can do. `built` turns true when its room is made in rooms.py."""

    name: str
    help: str
    always: bool = False  # part of the house; cannot be switched off by --only
    by_default: bool = False  # on without being named, if `needs` is met
    needs: tuple[str, ...] = ()  # environment names of settings: it cannot work without at least one of them
    incumbents: tuple[Incumbent, ...] = ()
    built: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether a capability is switched on in this run, with a sentence saying why."""

    capability: Capability
    on: bool
    why: str


_CAPM3 = Where("capm3-system", "capm3-controller-manager")
_METAL3 = (
    "metal3clusters", "metal3clustertemplates", "metal3machines", "metal3machinetemplates", "metal3datas",
    "metal3dataclaims", "metal3datatemplates", "metal3remediations", "metal3remediationtemplates",
)  # fmt: skip
_CSI = "openshift-cluster-csi-drivers"

CAPABILITIES: tuple[Capability, ...] = (
    Capability("fleet", "Keeps the status of the Fleet object.", always=True, built=True),
    Capability("holds", "Keeps the cordons of nodes that somebody holds.", always=True, built=True),
    Capability("history", "Records what happened to hosts.", always=True, built=True),
    Capability(
        "maintenance",
        "Empties and moves worker VMs when their ESXi host enters maintenance.",
        by_default=True,
        needs=("VCENTER_HOST", "VCENTERS_FILE"),
        built=True,
        incumbents=(
            Incumbent(
                "the GPU node vSphere maintenance controller",
                signs=Signs(
                    names=(
                        "gpu-node-vsphere-maintenance",
                        "gpu-node-vsphere-maintenance-controller",
                        # As its chart calls it when it is installed as its README says, cut by Helm.
                        "gpu-node-vsphere-maintenance-gpu-node-vsphere-maintenance-contr",
                        "vsphere-passthrough-node-controller",
                    ),
                    images=("gpu-node-vsphere-maintenance-controller", "vsphere-passthrough-node-controller"),
                    variables=("GPU_NODE_LABEL", "VCENTER_HOST"),
                ),
                remedy="Scale it to 0; Hostler continues from its annotations.",
            ),
        ),
    ),
    Capability(
        "metal",
        "Claims and provisions bare metal hosts for Cluster API.",
        incumbents=(
            Incumbent(
                "the Metal3 provider (capm3)",
                deployments=(_CAPM3,),
                leases=(Where("capm3-system", "controller-leader-election-capm3"),),
                webhook_services=(Where("capm3-system", "capm3-webhook-service"),),
                definitions=tuple(f"{plural}.infrastructure.cluster.x-k8s.io" for plural in _METAL3),
                remedy="Scale it to 0 and remove its webhook configurations.",
            ),
        ),
        built=True,
    ),
    Capability(
        "reclaim",
        "Returns installed hosts without a BMC to discovery.",
        incumbents=(
            Incumbent(
                "assisted-service",
                deployments=(
                    Where("multicluster-engine", "assisted-service"),
                    Where("assisted-installer", "assisted-service"),
                ),
                leases=(
                    Where("multicluster-engine", "77190dcb.agent-install.openshift.io"),
                    Where("assisted-installer", "77190dcb.agent-install.openshift.io"),
                ),
                remedy="Only one of the two may own the Agents: docs/reclaim-assisted-service.md.",
            ),
        ),
        built=True,
    ),
    Capability(
        "platform",
        "Lets nodes without cloud integration live beside nodes with it.",
        incumbents=(
            Incumbent(
                "the vSphere CSI driver operator",
                deployments=(Where(_CSI, "vmware-vsphere-csi-driver-operator"),),
                leases=(Where(_CSI, "vmware-vsphere-csi-driver-operator-lock"),),
                trails=(
                    Trail(
                        "daemonsets.apps",
                        Where(_CSI, "vmware-vsphere-csi-driver-node"),
                        "vmware-vsphere-csi-driver-operator",
                    ),
                ),
                remedy="It undoes changes to its DaemonSet.",
            ),
        ),
        built=True,
    ),
    Capability(
        "ingress",
        "Keeps ingress where it belongs when workers join a single control-plane node.",
        incumbents=(
            Incumbent(
                "the cluster ingress operator",
                deployments=(Where("openshift-ingress-operator", "ingress-operator"),),
                trails=(Trail("deployments.apps", Where("openshift-ingress", "router-default"), "ingress-operator"),),
                remedy="It owns the router Deployments.",
            ),
        ),
        built=True,
    ),
    Capability("join", "Makes join configurations and approves the certificates of new nodes.", built=True),
)

BY_NAME = {capability.name: capability for capability in CAPABILITIES}
OPTIONAL_NAMES = tuple(capability.name for capability in CAPABILITIES if not capability.always)
REPLACING_NAMES = tuple(capability.name for capability in CAPABILITIES if capability.incumbents)


def choose(only: Collection[str], configured: Collection[str]) -> list[Choice]:
    """What runs, given `--only` and the names of settings that have a value. Nothing dangerous is on by default."""
    return [_choose(capability, only, configured) for capability in CAPABILITIES]


def _choose(capability: Capability, only: Collection[str], configured: Collection[str]) -> Choice:
    name = capability.name
    if capability.always:
        return Choice(capability, True, "It is always on.")
    named = name in only
    if not capability.built:
        return Choice(capability, False, "It is not part of this version.")
    if capability.needs and not any(one in configured for one in capability.needs):
        return Choice(capability, False, f"It needs {' or '.join(capability.needs)}, which is not set.")
    if named:
        return Choice(capability, True, "It is named by --only.")
    if only:
        return Choice(capability, False, "It is not named by --only.")
    if capability.by_default:
        given = next((one for one in capability.needs if one in configured), "what it needs")
        return Choice(capability, True, f"It is on by default because {given} is set.")
    return Choice(capability, False, f"It is off until named: --only {name}.")
