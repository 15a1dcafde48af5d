"""The fleet file: what stands in the sandbox when it comes up. docs/sandbox.md describes every field.

Reading checks everything that can be checked without a cluster, and names the place: `nodes[3].taints[0].effect`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from hostler.documents import NotReadable, read_yaml
from hostler.errors import Complaint, Exit


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A field nobody knows is a typing mistake, not a wish for the future."""


class Taint(_Strict, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Node(_Strict, frozen=True, kw_only=True):
    name: str
    count: int = 1
    roles: list[str] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    system_uuid: str | None = msgspec.field(default=None, name="systemUUID")
    boot_id: str | None = msgspec.field(default=None, name="bootID")
    internal_ip: str | None = msgspec.field(default=None, name="internalIP")
    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}
    vm: str | None = None
    power: Literal["on", "off"] = "on"


class Claim(_Strict, frozen=True, kw_only=True):
    """A volume each pod of a workload gets for itself."""

    name: str = "data"
    size: str = "10Gi"


class Workload(_Strict, frozen=True, kw_only=True):
    kind: Literal["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "Pod"]
    name: str
    namespace: str = "default"
    replicas: int = 1
    node: str | None = None
    spread: bool = False
    node_selector: dict[str, str] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    tolerate: list[str] | Literal["all"] = []
    priority_class: str | None = None
    requests: dict[str, str | int] = {}
    empty_dir: bool = False
    host_path: str | None = None
    host_network: bool = False
    volumes: list[Claim] = []
    claims: list[str] = []
    termination_grace_seconds: int | None = None
    stops_slowly: bool = False
    ready_after: str | None = None
    mirror: bool = False


class Pdb(_Strict, frozen=True, kw_only=True):
    name: str
    namespace: str = "default"
    selector: dict[str, str]
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: Literal["IfHealthyBudget", "AlwaysAllow"] | None = None


class Volume(_Strict, frozen=True, kw_only=True):
    """A PersistentVolume, and the claim and the attachment that go with it."""

    name: str
    size: str = "10Gi"
    driver: str = "csi.sandbox.hostler.dev"
    claim: str | None = None
    local_to: str | None = None
    attached_to: str | None = None


class Host(_Strict, frozen=True, kw_only=True):
    name: str
    count: int = 1
    version: str | None = None
    build: str | None = None
    cpu: dict[str, int] | None = None
    memory_mb: int | None = msgspec.field(default=None, name="memoryMB")
    maintenance: bool | None = None
    connection: Literal["connected", "disconnected", "notResponding"] | None = None
    devices: list[dict[str, Any]] | None = None


class Cluster(_Strict, frozen=True, kw_only=True):
    name: str
    drs: Literal["off", "manual", "partiallyAutomated", "fullyAutomated"] | None = None
    hosts: list[Host]


class Vm(_Strict, frozen=True, kw_only=True):
    name: str
    count: int = 1
    uuid: str | None = None
    instance_uuid: str | None = None
    host: str | list[str]
    power: Literal["on", "off"] | None = None
    hardware_version: str | None = None
    cpus: int | None = None
    memory_mb: int | None = msgspec.field(default=None, name="memoryMB")
    datastore: str | None = None
    network: str | None = None
    devices: list[dict[str, Any]] | None = None
    movable: bool | None = None
    tools: Literal["running", "notRunning", "notInstalled"] | None = None
    guest_host_name: str | None = None
    ip_address: str | None = None
    guest_shutdown_seconds: float | None = None
    annotation: str | None = None
    drs: Literal["off", "manual", "partiallyAutomated", "fullyAutomated"] | None = None
    reservation: dict[str, int] | None = None


class Datacenter(_Strict, frozen=True, kw_only=True):
    name: str
    clusters: list[Cluster]
    datastores: list[dict[str, Any]] | None = None
    networks: list[dict[str, Any]] | None = None
    vms: list[Vm] = []


class VCenter(_Strict, frozen=True, kw_only=True):
    datacenters: list[Datacenter]
    allow_duplicate_uuids: bool | None = msgspec.field(default=None, name="allowDuplicateUUIDs")


class MetalHost(_Strict, frozen=True, kw_only=True):
    """A BareMetalHost with its BMC secret."""

    name: str
    count: int = 1
    labels: dict[str, str] = {}


class MetalMachine(_Strict, frozen=True, kw_only=True):
    """A Machine of Cluster API and its Metal3Machine."""

    name: str
    count: int = 1
    host_selector: dict[str, str] = {}


class MetalCluster(_Strict, frozen=True, kw_only=True):
    name: str
    namespace: str = "metal"
    hosts: list[MetalHost] = []
    machines: list[MetalMachine] = []


class Fleet(_Strict, frozen=True, kw_only=True):
    namespaces: list[str] = []
    priority_classes: dict[str, int] = {}
    nodes: list[Node] = []
    workloads: list[Workload] = []
    pdbs: list[Pdb] = []
    volumes: list[Volume] = []
    objects: list[dict[str, Any]] = []
    metal: list[MetalCluster] = []
    vcenters: list[VCenter] = []

    def each_node(self) -> Iterator[Node]:
        """Every node by itself, `count` unfolded."""
        for node in self.nodes:
            for name, number in names(node.name, node.count):
                vm = numbered(node.vm, number) if node.vm else None
                yield msgspec.structs.replace(node, name=name, count=1, vm=vm)

    def each_vm(self) -> Iterator[tuple[Datacenter, Vm]]:
        """Every VM by itself, `count` unfolded, with its UUID and one host."""
        for datacenter in (dc for vcenter in self.vcenters for dc in vcenter.datacenters):
            for vm in datacenter.vms:
                for position, (name, _) in enumerate(names(vm.name, vm.count)):
                    host = vm.host if isinstance(vm.host, str) else vm.host[position % len(vm.host)]
                    known = vm.uuid if vm.uuid and vm.count == 1 else stable_uuid(datacenter.name, name)
                    yield datacenter, msgspec.structs.replace(vm, name=name, count=1, uuid=known, host=host)

    def inventory(self) -> dict[str, Any] | None:
        """What the vCenter simulator reads, or None if there is no vCenter."""
        if not self.vcenters:
            return None
        vms: dict[str, list[dict[str, Any]]] = {}
        for datacenter, vm in self.each_vm():
            vms.setdefault(datacenter.name, []).append(_plain(vm))
        made = _plain(self.vcenters[0])
        for datacenter in made["datacenters"]:
            datacenter["vms"] = vms.get(datacenter["name"], [])
            for cluster in datacenter["clusters"]:
                cluster["hosts"] = [
                    {**host, "name": name}
                    for host in cluster["hosts"]
                    for name, _ in names(host["name"], host.pop("count", 1))
                ]
        return dict(made)


def names(pattern: str, count: int) -> Iterator[tuple[str, int]]:
    """`gpu-{i}` three times is gpu-0, gpu-1, gpu-2; `{i:03}` pads; a name without a place for it gets `-0`, `-1`."""
    if count == 1 and "{i" not in pattern:
        yield pattern, 0
        return
    for number in range(count):
        yield numbered(pattern if "{i" in pattern else pattern + "-{i}", number), number


def numbered(pattern: str, number: int) -> str:
    return re.sub(r"\{i(?::0?(\d+))?\}", lambda m: str(number).zfill(int(m[1] or 0)), pattern)


def stable_uuid(*words: str) -> str:
    """The same words give the same UUID on every machine."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, ".".join((*words, "sandbox.hostler.dev"))))


def built_in() -> list[str]:
    """The fleets that come with Hostler."""
    folder = resources.files("hostler.sandbox") / "fleets"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def read_fleet(named: str | None) -> Fleet:
    """A fleet by the name of a built-in one or by its file; None is the empty fleet."""
    from hostler.sandbox.check import check_fleet  # it needs the types above

    if named is None:
        return Fleet()
    if named in built_in():
        text = (resources.files("hostler.sandbox") / "fleets" / f"{named}.yaml").read_text()
    else:
        try:
            text = Path(named).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise Complaint(
                f"The fleet file {named} cannot be read: {why}.",
                hint=f"Name a YAML file, or one of the built-in fleets: {', '.join(built_in())}.",
                code=Exit.SETTING,
            ) from error
    return check_fleet(_decode(named, text), named)


def _decode(named: str, text: str) -> Fleet:
    try:
        content = read_yaml(text)
    except NotReadable as error:
        raise Complaint(
            f"The fleet file {named} {error}.",
            hint="Mend that place; a text that looks like something else needs quotes.",
            code=Exit.SETTING,
        ) from error
    try:
        return msgspec.convert(content or {}, Fleet)
    except msgspec.ValidationError as error:
        raise Complaint(
            f"The fleet file {named} is wrong at {_place(str(error))}.",
            hint="docs/sandbox.md lists every field.",
            code=Exit.SETTING,
        ) from error


def _place(message: str) -> str:
    """msgspec says "Expected `int`, got `str` - at `$.nodes[3].count`"; people want the place first."""
    what, _, where = message.partition(" - at ")
    where = where.strip("`").removeprefix("$").removeprefix(".") or "the top"
    what = what[0].lower() + what[1:]
    if what.startswith("invalid enum value"):
        field = re.sub(r"\[\d+\]", "", where).rpartition(".")[2]
        what += f"; it can be {' or '.join(_choices(field))}"
    return f"{where}: {what}"


def _choices(field: str) -> list[str]:
    """What a field with fixed words accepts, read from the types themselves."""
    for record in (Taint, Node, Workload, Pdb, Host, Cluster, Vm):
        for one in msgspec.inspect.type_info(record).fields:  # type: ignore[attr-defined]
            kinds = getattr(one.type, "types", (one.type,))
            for kind in kinds:
                if one.encode_name == field and isinstance(kind, msgspec.inspect.LiteralType):
                    return [str(value) for value in kind.values]
    return ["something else"]


def _plain(record: msgspec.Struct) -> Any:
    """As the simulator reads it: nothing where nothing was said, so that its own defaults hold."""

    def without_nothing(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: without_nothing(one) for key, one in value.items() if one is not None}
            return kept if kept.get("count") != 1 else {key: one for key, one in kept.items() if key != "count"}
        return [without_nothing(one) for one in value] if isinstance(value, list) else value

    return without_nothing(msgspec.to_builtins(record))
