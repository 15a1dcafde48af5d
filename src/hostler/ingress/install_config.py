"""What an installation decides about ingress, from its install-config. Pure.

`read` gives a Config or every problem there is, never both; `decide_layout` decides, with a reason for each value;
`manifests` are the objects that carry the decisions into the new cluster.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import INFRASTRUCTURE, INGRESS, SCHEDULER
from hostler.ingress.model import ARBITER, CLUSTER, DUAL, HIGHLY, SINGLE, Step, Where
from hostler.kube.kinds import Kind

UNSET_REPLICAS = 3  # the installer's default
# install-config's word and the Infrastructure's; those with VIPs carry their own load balancer.
PLATFORMS = {
    "aws": "AWS", "azure": "Azure", "baremetal": "BareMetal", "external": "External", "gcp": "GCP",
    "ibmcloud": "IBMCloud", "none": "None", "nutanix": "Nutanix", "openstack": "OpenStack", "powervs": "PowerVS",
    "vsphere": "VSphere",
}  # fmt: skip
WITH_VIPS = ("baremetal", "nutanix", "openstack", "vsphere")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(_LABEL)


@dataclass(frozen=True, slots=True)
class Config:
    """An install-config as far as ingress goes, checked."""

    name: str
    base_domain: str
    platform: str
    control_plane: int
    workers: int
    arbiters: int = 0
    bootstrap_disk: str = ""  # not empty: bootstrap in place
    api_vips: tuple[str, ...] = ()
    ingress_vips: tuple[str, ...] = ()
    cpu_partitioning: str = "None"

    @property
    def domain(self) -> str:
        return f"{self.name}.{self.base_domain}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One file of the installation."""

    file: str
    kind: Kind
    body: Mapping[str, Any]


# -- reading


class _Reading:
    """Collects problems while it reads, so that all of them are listed at once."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def wrong(self, where: str, what: str) -> None:
        self.problems.append(f"{where} {what}")

    def mapping(self, holder: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
        found = holder.get(key)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            self.wrong(where, f"must be a mapping, not {_shown(found)}.")
            return {}
        return found

    def number(self, holder: Mapping[str, Any], key: str, where: str, unset: int, least: int = 0) -> int:
        found = holder.get(key)
        if found is None:
            return unset
        if not isinstance(found, int) or isinstance(found, bool) or found < least:
            self.wrong(where, f"must be a whole number of at least {least}, not {_shown(found)}.")
            return unset
        return found

    def text(self, holder: Mapping[str, Any], key: str, where: str, shape: re.Pattern[str], what: str) -> str:
        found = holder.get(key)
        if found is None or found == "":
            self.wrong(where, f"is missing; it must be {what}.")
            return ""
        if not isinstance(found, str) or not shape.fullmatch(found) or len(found) > 253:
            self.wrong(where, f"must be {what}, not {_shown(found)}.")
            return ""
        return found

    def addresses(self, holder: Mapping[str, Any], names: tuple[str, str], where: str) -> tuple[str, ...]:
        """A list of addresses, or the older spelling with just one."""
        many, single = names
        found = holder.get(many)
        if found is None:
            found = [holder[single]] if holder.get(single) else []
        if not isinstance(found, list):
            self.wrong(f"{where}.{many}", f"must be a list of IP addresses, not {_shown(found)}.")
            return ()
        good = []
        for number, address in enumerate(found):
            try:
                good.append(str(ipaddress.ip_address(address if isinstance(address, str) else "")))
            except ValueError:
                self.wrong(f"{where}.{many}[{number}]", f"must be an IP address, not {_shown(address)}.")
        return tuple(good)


def read(given: Any) -> Config | tuple[str, ...]:
    """The config, or every problem in it as a sentence."""
    if not isinstance(given, Mapping):
        return (f"The install-config must be a mapping, not {_shown(given)}.",)
    reading = _Reading()
    if given.get("apiVersion") != "v1":
        reading.wrong("apiVersion", f"must be v1, not {_shown(given.get('apiVersion'))}.")
    if given.get("kind") not in (None, "InstallConfig"):
        reading.wrong("kind", f"must be InstallConfig, not {_shown(given['kind'])}.")
    metadata = reading.mapping(given, "metadata", "metadata")
    name = reading.text(metadata, "name", "metadata.name", _NAME, "a DNS label: lower-case letters, digits, dashes")
    base = reading.text(given, "baseDomain", "baseDomain", _DOMAIN, "a domain name in lower case")
    platform, details = _platform(reading, given)
    control_plane = _control_plane(reading, given)
    workers = _workers(reading, given)
    arbiters = _arbiters(reading, given, control_plane)
    disk = _bootstrap(reading, given, control_plane, platform)
    vips = platform in WITH_VIPS
    where = f"platform.{platform}"
    api = reading.addresses(details, ("apiVIPs", "apiVIP"), where) if vips else ()
    ingress = reading.addresses(details, ("ingressVIPs", "ingressVIP"), where) if vips else ()
    partitioning = given.get("cpuPartitioningMode", "None")
    if partitioning not in ("None", "AllNodes"):
        reading.wrong("cpuPartitioningMode", f"must be None or AllNodes, not {_shown(partitioning)}.")
    if reading.problems:
        return tuple(reading.problems)
    return Config(name, base, platform, control_plane, workers, arbiters, disk, api, ingress, partitioning)


def _platform(reading: _Reading, given: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    given_platform = given.get("platform")
    known = ", ".join(PLATFORMS)
    if not isinstance(given_platform, Mapping) or len(given_platform) != 1:
        found = (
            "nothing"
            if not given_platform
            else f"{', '.join(map(str, given_platform))}"
            if isinstance(given_platform, Mapping)
            else _shown(given_platform)
        )
        reading.wrong("platform", f"must name exactly one platform ({known}), not {found}.")
        return "", {}
    (name,) = given_platform
    if name not in PLATFORMS:
        reading.wrong("platform", f"names {name}, which is not one of {known}.")
        return "", {}
    return str(name), reading.mapping(given_platform, name, f"platform.{name}")


def _control_plane(reading: _Reading, given: Mapping[str, Any]) -> int:
    pool = reading.mapping(given, "controlPlane", "controlPlane")
    if pool.get("name") not in (None, "master"):
        reading.wrong("controlPlane.name", f"must be master, not {_shown(pool['name'])}.")
    return reading.number(pool, "replicas", "controlPlane.replicas", UNSET_REPLICAS, least=1)


def _workers(reading: _Reading, given: Mapping[str, Any]) -> int:
    pools = given.get("compute")
    if pools is None:
        pools = []
    if not isinstance(pools, list):
        reading.wrong("compute", f"must be a list of machine pools, not {_shown(pools)}.")
        return 0
    total, seen = 0, set[str]()
    for number, pool in enumerate(pools):
        where = f"compute[{number}]"
        if not isinstance(pool, Mapping):
            reading.wrong(where, f"must be a mapping, not {_shown(pool)}.")
            continue
        name = pool.get("name", "worker")
        if name not in ("worker", "edge"):
            reading.wrong(f"{where}.name", f"must be worker or edge, not {_shown(name)}.")
        elif name in seen:
            reading.wrong(f"{where}.name", f"is {name} a second time.")
        seen.add(str(name))
        total += reading.number(pool, "replicas", f"{where}.replicas", 0 if name == "edge" else UNSET_REPLICAS)
    # The installer appends a pool named worker where there is none: an empty list or edge alone is not "no workers".
    return total if "worker" in seen else total + UNSET_REPLICAS


def _arbiters(reading: _Reading, given: Mapping[str, Any], control_plane: int) -> int:
    if given.get("arbiter") is None:
        return 0
    pool = reading.mapping(given, "arbiter", "arbiter")
    count = reading.number(pool, "replicas", "arbiter.replicas", 0)
    if count and control_plane < 2:
        reading.wrong("arbiter", f"needs at least 2 control-plane nodes, and controlPlane.replicas is {control_plane}.")
    return count


def _bootstrap(reading: _Reading, given: Mapping[str, Any], control_plane: int, platform: str) -> str:
    if given.get("bootstrapInPlace") is None:
        return ""
    wanted = reading.mapping(given, "bootstrapInPlace", "bootstrapInPlace")
    if control_plane != 1:
        reading.wrong("bootstrapInPlace", f"needs controlPlane.replicas 1, not {control_plane}.")
    if platform == "baremetal":
        reading.wrong("bootstrapInPlace", "is not possible on platform baremetal; use platform none.")
    disk = wanted.get("installationDisk")
    if not isinstance(disk, str) or not disk:
        reading.wrong("bootstrapInPlace.installationDisk", "is missing; it must be the disk to install to.")
        return ""
    return disk


def _shown(found: Any) -> str:
    """A value in an error message, short."""
    text = "nothing" if found is None else repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- deciding


@dataclass(frozen=True, slots=True)
class Layout:
    """What is decided for a new cluster; `steps` say each value, what decided it, and why."""

    control_plane: str  # topology
    infrastructure: str  # topology
    placement: Where
    masters_schedulable: bool
    steps: tuple[Step, ...]


def decide_layout(config: Config) -> Layout:
    """Every decision of an installation, once: the plan prints its steps, the manifests carry its values."""
    control_plane, control_plane_why = _control_plane_topology(config)
    infrastructure, infrastructure_why = _infrastructure_topology(config, control_plane)
    placement, placement_why = _default_placement(config)
    schedulable = config.workers == 0
    schedulable_why = "no workers" if schedulable else f"{config.workers} of the nodes are workers"
    steps = (
        Step("controlPlaneTopology", control_plane, "controlPlane.replicas", control_plane_why),
        Step("infrastructureTopology", infrastructure, "compute[].replicas", infrastructure_why),
        Step("defaultPlacement", placement, "platform, controlPlane.replicas", placement_why),
        Step("mastersSchedulable", str(schedulable).lower(), "compute[].replicas", schedulable_why),
        Step("bootstrapInPlace", config.bootstrap_disk or "no", "bootstrapInPlace", _bootstrap_why(config)),
        Step("worker.ign", "written", "--root-ca", "workers can be added on the first day or any other"),
    )
    return Layout(control_plane, infrastructure, placement, schedulable, steps)


def _control_plane_topology(config: Config) -> tuple[str, str]:
    nodes = f"{config.control_plane} control-plane nodes" if config.control_plane != 1 else "one control-plane node"
    if config.arbiters and config.control_plane >= 2:
        return ARBITER, f"{nodes} and {config.arbiters} arbiter"
    if config.control_plane == 2:
        return DUAL, f"{nodes} and no arbiter: etcd stands still once either fails, unless the other fences it"
    return SINGLE if config.control_plane == 1 else HIGHLY, nodes


def _infrastructure_topology(config: Config, control_plane: str) -> tuple[str, str]:
    if config.workers == 0:
        return SINGLE if control_plane == SINGLE else HIGHLY, "no workers, so it is as the control plane"
    return (SINGLE, "one worker") if config.workers == 1 else (HIGHLY, f"{config.workers} workers")


def _default_placement(config: Config) -> tuple[Where, str]:
    if config.platform != "none":
        return Where.WORKERS, f"platform {config.platform} brings its own way to reach ingress"
    if config.control_plane != 1:
        return Where.WORKERS, "more than one control-plane node"
    why = "one control-plane node without a load balancer: the wildcard name points at it, so ingress stays there"
    return Where.CONTROL_PLANE, why


def _bootstrap_why(config: Config) -> str:
    return "the node installs itself to this disk" if config.bootstrap_disk else "a bootstrap machine is used"


def manifests(config: Config) -> tuple[Manifest, ...]:
    """The objects of the new cluster that carry the decisions."""
    layout = decide_layout(config)
    return (
        Manifest("manifests/cluster-ingress-02-config.yml", INGRESS, _ingress(config, layout)),
        Manifest("manifests/cluster-infrastructure-02-config.yml", INFRASTRUCTURE, _infrastructure(config, layout)),
        Manifest("manifests/cluster-scheduler-02-config.yml", SCHEDULER, _scheduler(layout)),
    )


def _head(kind: Kind) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": CLUSTER}}


def _ingress(config: Config, layout: Layout) -> dict[str, Any]:
    status = {"defaultPlacement": str(layout.placement)}
    return {**_head(INGRESS), "spec": {"domain": f"apps.{config.domain}"}, "status": status}


def _infrastructure(config: Config, layout: Layout) -> dict[str, Any]:
    type = PLATFORMS[config.platform]
    platform: dict[str, Any] = {"type": type}
    if config.api_vips or config.ingress_vips:
        platform[config.platform] = {
            "apiServerInternalIPs": list(config.api_vips),
            "ingressIPs": list(config.ingress_vips),
        }
    # The same install-config gives the same name: a second run must not rename the cluster.
    suffix = hashlib.sha256(config.domain.encode()).hexdigest()[:5]
    status = {
        "infrastructureName": f"{config.name[:21]}-{suffix}",
        "apiServerURL": f"https://api.{config.domain}:6443",
        "apiServerInternalURI": f"https://api-int.{config.domain}:6443",
        "etcdDiscoveryDomain": "",
        "platform": type,
        "platformStatus": platform,
        "controlPlaneTopology": layout.control_plane,
        "infrastructureTopology": layout.infrastructure,
        "cpuPartitioning": config.cpu_partitioning,
    }
    return {**_head(INFRASTRUCTURE), "spec": {"platformSpec": {"type": type}}, "status": status}


def _scheduler(layout: Layout) -> dict[str, Any]:
    spec = {"mastersSchedulable": layout.masters_schedulable, "policy": {"name": ""}}
    return {**_head(SCHEDULER), "spec": spec, "status": {}}
