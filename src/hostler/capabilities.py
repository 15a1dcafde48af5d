"""The one table of capabilities, and the settings that follow from it. A capability's author edits one row. Pure.

Imported only by the operator, the CLI, `install` and `ship`. It names a capability's code and does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hostler.safety.incumbents import Incumbent, Signs, Trail, Where
from hostler.safety.switches import CapabilityInfo, choose, load_part
from hostler.settings import foundation
from hostler.settings.model import AnySetting, Rule, Settings
from hostler.settings.readers import names
from hostler.settings.resolve import resolve

_CAPM3 = Where("capm3-system", "capm3-controller-manager")
_METAL3 = (
    "metal3clusters", "metal3clustertemplates", "metal3machines", "metal3machinetemplates", "metal3datas",
    "metal3dataclaims", "metal3datatemplates", "metal3remediations", "metal3remediationtemplates",
)  # fmt: skip
_CSI = "openshift-cluster-csi-drivers"

CAPABILITIES: tuple[CapabilityInfo, ...] = (
    CapabilityInfo(
        "fleet", "Keeps the status of the Fleet object.", always=True, rights="hostler.install.rights:FLEET_RIGHTS"
    ),
    CapabilityInfo(
        "holds",
        "Keeps the cordons of nodes that somebody holds.",
        always=True,
        rights="hostler.install.rights:HOLDS_RIGHTS",
    ),
    CapabilityInfo(
        "history",
        "Records what happened to hosts.",
        always=True,
        settings="hostler.history.settings",
        rights="hostler.install.rights:HISTORY_RIGHTS",
    ),
    CapabilityInfo(
        "maintenance",
        "Empties and moves worker VMs when their ESXi host enters maintenance.",
        made_by="hostler.maintenance.capability:MaintenanceCapability",
        settings="hostler.maintenance.settings",
        rights="hostler.maintenance.rbac:RIGHTS",
        commands="hostler.cli.maintenance:app",
        asks_vcenters=True,
        by_default=True,
        needs=("VCENTER_HOST", "VCENTERS_FILE"),
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
    CapabilityInfo(
        "metal",
        "Claims and provisions bare metal hosts for Cluster API.",
        made_by="hostler.metal.capability:MetalCapability",
        settings="hostler.metal.settings",
        rights="hostler.metal.rbac:RIGHTS",
        commands="hostler.cli.metal:app",
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
    ),
    CapabilityInfo(
        "reclaim",
        "Returns installed hosts without a BMC to discovery.",
        made_by="hostler.reclaim.capability:ReclaimCapability",
        settings="hostler.reclaim.settings",
        rights="hostler.reclaim.rbac:RIGHTS",
        commands="hostler.cli.reclaim:app",
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
    ),
    CapabilityInfo(
        "platform",
        "Lets nodes without cloud integration live beside nodes with it.",
        made_by="hostler.platform.capability:PlatformCapability",
        settings="hostler.platform.settings",
        rights="hostler.platform.rbac:RIGHTS",
        commands="hostler.cli.platform:app",
        asks_vcenters=True,
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
    ),
    CapabilityInfo(
        "ingress",
        "Keeps ingress where it belongs when workers join a single control-plane node.",
        made_by="hostler.ingress.capability:IngressCapability",
        settings="hostler.ingress.settings",
        rights="hostler.ingress.rbac:RIGHTS",
        commands="hostler.cli.ingress:app",
        incumbents=(
            Incumbent(
                "the cluster ingress operator",
                deployments=(Where("openshift-ingress-operator", "ingress-operator"),),
                trails=(Trail("deployments.apps", Where("openshift-ingress", "router-default"), "ingress-operator"),),
                remedy="It owns the router Deployments.",
            ),
        ),
    ),
    CapabilityInfo(
        "join",
        "Makes join configurations and approves the certificates of new nodes.",
        made_by="hostler.join.capability:JoinCapability",
        settings="hostler.join.settings",
        rights="hostler.join.rbac:RIGHTS",
        commands="hostler.cli.join:app",
    ),
)

BY_NAME = {capability.name: capability for capability in CAPABILITIES}
OPTIONAL_NAMES = tuple(capability.name for capability in CAPABILITIES if not capability.always)

# -- settings

# Which names these two take only the table knows.
ONLY = replace(foundation.ONLY, reader=names(OPTIONAL_NAMES))
IGNORE_INCUMBENT = replace(
    foundation.IGNORE_INCUMBENT, reader=names(tuple(one.name for one in CAPABILITIES if one.incumbents))
)
_MODULES = [load_part(capability.settings) for capability in CAPABILITIES if capability.settings]
SETTINGS: tuple[AnySetting, ...] = (
    *({one.name: one for one in (*foundation.SETTINGS, ONLY, IGNORE_INCUMBENT)}.values()),
    *(setting for module in _MODULES for setting in module.SETTINGS),
)


def configured(settings: Settings) -> frozenset[str]:
    """The names of the settings that have a value, as `choose` wants them."""
    return frozenset(one.setting.name for one in settings if one.value)


def _only_what_can_run(settings: Settings) -> str | None:
    """Somebody who names a capability wants it: that it cannot run is an error, not a quiet no."""
    named = settings[ONLY]
    for chosen in choose(CAPABILITIES, named, configured(settings)):
        if chosen.capability.name in named and not chosen.on:
            return f"HOSTLER_ONLY ({settings.source(ONLY)}) names {chosen.capability.name}. {chosen.why}"
    return None


RULES: tuple[Rule, ...] = (
    *foundation.RULES,
    _only_what_can_run,
    *(rule for module in _MODULES for rule in module.RULES),
)


def read_settings(flags: Mapping[str, str], env: Mapping[str, str]) -> Settings:
    """Every setting of this run; see `resolve`."""
    return resolve(flags, env, table=SETTINGS, rules=RULES)
