"""What comes next for a Metal3Machine that lives: what it waits for, what its host is to be, when it is ready. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hostler.host.conditions import Condition, set_conditions
from hostler.instant import Instant
from hostler.metal import names
from hostler.metal.capi import Cluster, Machine, cluster_of
from hostler.metal.decision import Decision, Said, Write
from hostler.metal.health import NO_TROUBLE, Trouble, decide_health, error_of
from hostler.metal.model import Host, Image, MachineImage, Metal3Machine, Metal3MachineTemplate, SecretRef
from hostler.metal.moving import block_change, owner_change

# Nothing has to be installed on a host in these states.
PROVISIONED = ("provisioned", "externally provisioned")
SUCCESS = "AssociateBareMetalHostSuccess"
FAILED = "AssociateBareMetalHostFailed"
HOST_LOST = "HostLost"


@dataclass(frozen=True, slots=True)
class Rendered:
    """What became of the machine's data template: references once it is ready, else a sentence why not."""

    ready: bool
    why: str = ""
    name: str = ""
    meta_data: SecretRef | None = None
    network_data: SecretRef | None = None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The node of this machine in its own cluster: found, or a sentence why not (yet)."""

    name: str = ""
    provider_id: str = ""
    why: str = ""


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+$")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one machine. `host` is the one whose consumer it is, else the one it names."""

    machine: Metal3Machine
    owner: Machine | None = None
    cluster: Cluster | None = None
    template: Metal3MachineTemplate | None = None
    host: Host | None = None
    reuse: str = ""
    rendered: Rendered | None = None
    node: NodeSeen | None = None
    secret_problem: str = ""
    secret_cluster: str | None = None  # the cluster that the BMC secret is labelled with; None: it is not known
    host_unreadable: str = ""  # that the host it names cannot be read
    several: bool = False  # further hosts name it as their consumer, which is nobody's doing here
    elsewhere: str = ""  # that the host it names is in another namespace and still has it as its consumer
    trouble: Trouble = NO_TROUBLE  # for how long its host has shown errors, or none
    owned: tuple[Host, ...] = ()  # hosts with an owner reference to it: they would be deleted after it

    @property
    def named_host(self) -> str:
        return self.machine.metadata.annotations.get(names.HOST_ANNOTATION, "")

    @property
    def associated(self) -> bool:
        consumer = self.host.spec.consumer_ref if self.host is not None else None
        return consumer is not None and consumer.is_machine(self.machine)

    @property
    def cluster_name(self) -> str:
        return cluster_of(self.machine, self.owner)


# -- what it waits for


def not_yet(facts: Facts) -> Said | None:
    """Why this machine may not have a host yet; None: it may."""
    machine = facts.machine
    if facts.owner is None:
        return _waits("WaitingForMetal3MachineOwnerRef", "It waits for a Machine to own it.")
    if facts.cluster is None:
        return _waits("WaitingForCluster", f"It waits for its Cluster {facts.cluster_name or '(not named yet)'}.")
    if not facts.cluster.status.initialization.infrastructure_provisioned:
        return _waits(
            "WaitingForClusterInfrastructureReady",
            f"It waits until the infrastructure of Cluster {facts.cluster.metadata.name} is ready.",
        )
    if user_data_of(facts) is None:
        return _waits("WaitingForBootstrapReady", "It waits for its bootstrap data.")
    if why := wrong_spec(machine):
        return Said(names.ASSOCIATED, False, "InvalidSpec", why)
    return None


def why_none(facts: Facts) -> Said | None:
    """Why no host is chosen for a machine that has none: it may not have one yet, or lost its own; None: it may."""
    return not_yet(facts) or _lost(facts)


def _lost(facts: Facts) -> Said | None:
    """A machine that was a node is not given another host: its node, its data and its address were the first one's."""
    machine, named = facts.machine, facts.named_host
    if facts.elsewhere:
        message = f"{facts.elsewhere}; delete the Machine to have it replaced."
        return Said(names.ASSOCIATED, False, HOST_LOST, message)
    # By its spec alone: a status does not come along when a cluster is moved or restored.
    if not machine.spec.provider_id:
        return None
    if facts.host is None and named and named.partition("/")[0] != machine.metadata.namespace:
        message = f"Host {named} is in another namespace, so it is not touched; delete the Machine to replace it."
    elif facts.host is None and not named:
        message = f"{_host_by_id(machine)} does not have it as its consumer; delete the Machine to have it replaced."
    elif facts.host is None:
        message = f"Host {named} does not exist any more; delete the Machine to have it replaced."
    else:
        now = "has another consumer now" if facts.host.spec.consumer_ref is not None else "has no consumer any more"
        message = f"Host {named} {now}; delete the Machine to have it replaced."
    return Said(names.ASSOCIATED, False, HOST_LOST, message)


def _host_by_id(machine: Metal3Machine) -> str:
    """The host of a machine that does not name it any more, as its provider id has it: by name, or by uid before."""
    scheme, _, path = machine.spec.provider_id.partition("://")
    parts = path.split("/")
    if scheme == "metal3" and len(parts) == 3:
        return f"Host {names.key(parts[0], parts[1])}"
    return f"The host of provider id {machine.spec.provider_id}"


def _waits(reason: str, message: str) -> Said:
    return Said(names.ASSOCIATED, False, reason, message)


def wrong_spec(machine: Metal3Machine) -> str:
    """What is wrong with the machine's own spec, as a sentence; empty: nothing."""
    spec, namespace = machine.spec, machine.metadata.namespace
    # What a custom deploy procedure makes of the image is its own business, as with the Go provider.
    if (spec.custom_deploy is None or not spec.custom_deploy.method) and (why := _wrong_image(spec.image)):
        return why
    for field, secret in (
        ("userData", spec.user_data),
        ("metaData", spec.meta_data),
        ("networkData", spec.network_data),
    ):
        if secret is not None and secret.namespace not in ("", namespace):
            return f"spec.{field} names a secret in namespace {secret.namespace}; it must be in {namespace}."
    if spec.data_template is not None and spec.data_template.namespace not in ("", namespace):
        return f"spec.dataTemplate is in namespace {spec.data_template.namespace}; it must be in {namespace}."
    return ""


def _wrong_image(image: MachineImage) -> str:
    if not image.url:
        return "spec has neither image.url nor customDeploy, so there is nothing to provision."
    if not _URL.match(image.url):
        return f"spec.image.url is no URL: {image.url[:80]!r}; it begins with a scheme, such as https://."
    if not image.checksum and image.disk_format != "live-iso" and not image.url.startswith("oci://"):
        return "spec.image has no checksum; only live-iso and oci:// images go without one."
    return ""


def user_data_of(facts: Facts) -> SecretRef | None:
    """The bootstrap secret, or the one the machine names where its Machine brings none."""
    if facts.owner is None:
        return None
    namespace, bootstrap = facts.machine.metadata.namespace, facts.owner.spec.bootstrap
    if bootstrap.data_secret_name:
        return SecretRef(name=bootstrap.data_secret_name, namespace=namespace)
    own = facts.machine.spec.user_data
    if own is not None and own.name and not bootstrap.config_ref.name:
        return SecretRef(name=own.name, namespace=own.namespace or namespace)
    return None


# -- the host


def host_change(facts: Facts, host: Host) -> dict[str, Any]:
    """What is to change on the host for it to be this machine's; empty: it is as it ought to be."""
    meta = host.metadata
    change: dict[str, Any] = {}
    labels: dict[str, str | None] = {}
    if facts.cluster_name and meta.labels.get(names.CLUSTER_NAME) != facts.cluster_name:
        labels[names.CLUSTER_NAME] = facts.cluster_name
    if names.NODE_REUSE in meta.labels:
        labels[names.NODE_REUSE] = None
    if names.MOVE_HIERARCHY not in meta.labels:
        labels[names.MOVE_HIERARCHY] = ""
    metadata = owner_change(meta, facts.machine.metadata)
    if labels:
        metadata["labels"] = labels
    if annotations := block_change(host):
        metadata["annotations"] = annotations
    if metadata:
        change["metadata"] = metadata
    spec = {} if _consumes(host, facts.machine) else {"consumerRef": consumer_of(facts.machine)}
    rendered = facts.rendered
    if rendered is None or rendered.ready:
        spec |= _provisioning(facts, host)
    if spec:
        change["spec"] = spec
    return change


def host_write(facts: Facts, host: Host) -> Write | None:
    """The write that makes the host what it ought to be for this machine; None: it is."""
    change, meta = host_change(facts, host), host.metadata
    why = f"for Metal3Machine {facts.machine.metadata.name}"
    if not change:
        return None
    return Write(names.HOST, meta.name, meta.namespace, change, why, version=meta.resource_version)


def _provisioning(facts: Facts, host: Host) -> dict[str, Any]:
    """Image and data, only where the host has none: another image would be a new installation."""
    wanted, spec = facts.machine.spec, host.spec
    change: dict[str, Any] = {}
    user_data = user_data_of(facts)
    # The spec may have become wrong after the claim: say a secret of another namespace, which is not ours to hand out.
    if not host.imaged and user_data is not None and not wrong_spec(facts.machine):
        if wanted.image.url:
            change["image"] = msgspec.to_builtins(
                Image(
                    url=wanted.image.url, checksum=wanted.image.checksum, checksum_type=wanted.image.checksum_type,
                    format=wanted.image.disk_format,
                )
            )  # fmt: skip
        if wanted.custom_deploy is not None:
            change["customDeploy"] = {"method": wanted.custom_deploy.method}
        meta_data, network_data = data_of(facts)
        for name, secret in (("userData", user_data), ("metaData", meta_data), ("networkData", network_data)):
            if secret is not None:
                change[name] = {"name": secret.name, "namespace": secret.namespace or host.metadata.namespace}
        if not spec.online:
            change["online"] = True  # only now: who switches a provisioned host off later has a reason
    if wanted.automated_cleaning_mode and wanted.automated_cleaning_mode != spec.automated_cleaning_mode:
        change["automatedCleaningMode"] = wanted.automated_cleaning_mode
    return change


def data_of(facts: Facts) -> tuple[SecretRef | None, SecretRef | None]:
    """metaData and networkData: what the machine names itself, else what its template rendered."""
    spec, rendered = facts.machine.spec, facts.rendered
    meta = spec.meta_data or (rendered.meta_data if rendered is not None else None)
    network = spec.network_data or (rendered.network_data if rendered is not None else None)
    return meta, network


def consumer_of(machine: Metal3Machine) -> dict[str, str]:
    kind, meta = names.METAL3_MACHINE, machine.metadata
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "namespace": meta.namespace}


def _consumes(host: Host, machine: Metal3Machine) -> bool:
    return host.spec.consumer_ref is not None and host.spec.consumer_ref.is_machine(machine)


# -- its own life


def decide(facts: Facts) -> Decision:
    """An associated machine: bring its host to what it is to be, and say how far it is."""
    machine, host = facts.machine, facts.host
    if host is None or not facts.associated:
        raise ValueError(f"{machine.metadata.name} has no host yet; choose one first")
    writes = [write] if (write := host_write(facts, host)) is not None else []
    said = [Said(names.ASSOCIATED, True, SUCCESS)]
    if facts.secret_problem:
        said = [Said(names.ASSOCIATED, False, "BMCSecretMissing", facts.secret_problem)]
    said += _data_said(facts)
    told = next((one for one in machine.status.conditions if one.type == names.HEALTHY), None)
    health, look = decide_health(host, told, facts.trouble)
    said += [health] if health is not None else []
    status = _status_of(facts, host)
    ready, why, wake = _readiness(facts, host)
    said.append(Said(names.READY, ready, "Provisioned" if ready else "NotProvisioned", "" if ready else why))
    if host.state == "provisioned" and facts.node is not None and facts.node.provider_id:
        status["initialization"] = {"provisioned": True}
        if machine.spec.provider_id != facts.node.provider_id:
            writes.append(
                Write(names.METAL3_MACHINE, machine.metadata.name, machine.metadata.namespace,
                      {"spec": {"providerID": facts.node.provider_id}}, f"its node is {facts.node.name}")
            )  # fmt: skip
    return Decision(why, tuple(writes), tuple(said), status, min((one for one in (wake, look) if one), default=None))


def settled(machine: Metal3Machine) -> bool:
    """Its node was found once; that is not asked again."""
    return bool(machine.spec.provider_id) and machine.status.initialization.provisioned


def _readiness(facts: Facts, host: Host) -> tuple[bool, str, float | None]:
    """Whether the machine is ready, why, and when to look again.

    Cluster API mirrors it into the Machine. So once the node was found, an error of the BMC changes nothing here: the
    node runs on without it (`BareMetalHostHealthy` tells of it).
    """
    machine, name = facts.machine, host.metadata.name
    if settled(machine) and host.state in PROVISIONED:
        trouble = f" {error_of(host)}" if host.failing else ""
        return True, f"Host {name} is {host.state} and the machine is ready.{trouble}", None
    if host.failing and host.state not in PROVISIONED:
        return False, error_of(host), None
    if facts.rendered is not None and not facts.rendered.ready and not host.imaged:
        return False, f"Host {name} is this machine's; {facts.rendered.why}", None
    if not host.imaged and (wrong := wrong_spec(machine)):
        return False, f"Host {name} is this machine's, but nothing is installed on it: {wrong}", None
    if host.state != "provisioned":
        paused = host.metadata.annotations.get(names.PAUSED)
        held = f" and paused by {paused or 'somebody'}" if paused is not None else ""
        return False, f"Host {name} is {host.state or 'new'}{held}.", None
    node = facts.node
    if node is None:
        return False, f"Host {name} is provisioned; its node is being looked for.", None
    if not node.provider_id:
        return False, f"Host {name} is provisioned; {node.why}", NODE_LOOK_SECONDS
    return True, f"Host {name} is provisioned and is node {node.name}.", None


# How often a workload cluster is asked for a node that has not come up; we do not watch other clusters.
NODE_LOOK_SECONDS = 10.0


def _data_said(facts: Facts) -> list[Said]:
    rendered = facts.rendered
    if rendered is None:
        return [Said(names.METADATA, True, "NoDataTemplate"), Said(names.DATA_READY, True, "NoDataTemplate")]
    if rendered.ready:
        return [
            Said(names.METADATA, True, "AssociateMetal3MachineMetaDataSuccess"),
            Said(names.DATA_READY, True, "SecretsSet"),
        ]
    return [
        Said(
            names.METADATA, bool(rendered.name), "Associated" if rendered.name else "WaitingForMetal3Data", rendered.why
        ),
        Said(names.DATA_READY, False, "WaitingForMetal3Data", rendered.why),
    ]


def _status_of(facts: Facts, host: Host) -> dict[str, Any]:
    """The fields of the machine's status beside its conditions."""
    found: dict[str, Any] = {}
    user_data = user_data_of(facts)
    meta_data, network_data = data_of(facts)
    refs = (("userData", user_data), ("metaData", meta_data), ("networkData", network_data))
    namespace = facts.machine.metadata.namespace
    for field, secret in refs:
        if secret is not None:
            found[field] = {"name": secret.name, "namespace": secret.namespace or namespace}
    if facts.rendered is not None and facts.rendered.name:
        found["renderedData"] = {"name": facts.rendered.name, "namespace": namespace}
    if addresses := addresses_of(host):
        found["addresses"] = addresses
    return found


def addresses_of(host: Host) -> list[dict[str, str]]:
    hardware = host.status.hardware
    if hardware is None:
        return []
    found = [{"type": "InternalIP", "address": nic.ip} for nic in hardware.nics if nic.ip]
    if hardware.hostname:
        found += [{"type": kind, "address": hardware.hostname} for kind in ("Hostname", "InternalDNS")]
    return found[:32]


# -- status


def status_change(
    machine: Metal3Machine, said: Sequence[Said], fields: dict[str, Any], now: Instant, *, generation: int | None = None
) -> dict[str, Any]:
    """The patch of the machine's status; empty: it already says all that."""
    seen = generation if generation is not None else machine.metadata.generation
    before: Sequence[Condition] = machine.status.conditions
    after = set_conditions(before, (one.condition(seen) for one in said), now)
    change: dict[str, Any] = {}
    if after is not before:
        change["conditions"] = msgspec.to_builtins(list(after))
    # Through JSON, so that what is compared has lists where the API server has lists.
    current = msgspec.json.decode(msgspec.json.encode(machine.status)) if fields else {}
    change |= {field: value for field, value in fields.items() if current.get(field) != value}
    return {"status": change} if change else {}
