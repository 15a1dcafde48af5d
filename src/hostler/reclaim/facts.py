"""What a reclaim reads in the hub's objects (Agent, InfraEnv), and what it writes on them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from hostler.apis.assisted import BMH_LABEL, Agent, BootArtifacts, Deprovision, InfraEnv
from hostler.host.facts import Unknown
from hostler.instant import Instant, parse
from hostler.kube.records import key_of
from hostler.reclaim.artifacts import HASHED, NAMES, SHA256, Artifacts, KernelArgument
from hostler.reclaim.identity import known_addresses
from hostler.reclaim.model import (
    IN_A_CLUSTER,
    UNDER_WAY,
    Cluster,
    Host,
    Leaving,
    Pin,
    Reason,
    Report,
    State,
    StepFailure,
    find_cause,
    is_pinned,
)
from hostler.reclaim.quoting import clean_text, is_name

OURS = "reclaim.hostler.dev"
# Facts, written by whichever replica received them; the leader decides on them.
REPORT = f"{OURS}/report"
PROGRESS = f"{OURS}/progress"
REGISTRATION = f"{OURS}/registration"
# Requests of people.
CONFIRM = f"{OURS}/confirm"  # NAMESPACE/NAME of the cluster that may lose its control plane
MANAGED_BY = f"{OURS}/managed-by"  # the Machine or providerID that does not keep the node from being returned
CANCEL = f"{OURS}/cancel"
PINNED = f"{OURS}/node"  # which node a stage is about
RETRY, RETRIED = f"{OURS}/retry", f"{OURS}/retried"
# On an InfraEnv: what the artifacts at its own addresses hash to, as its owner says.
HASHES = {name: f"{OURS}/{name}-sha256" for name in HASHED}
# On a ClusterDeployment: namespaces, besides its own, whose Agents may be hosts of this cluster.
AGENTS_FROM = f"{OURS}/agents-from"
RECLAIMED = "Reclaimed"
FINALIZER = f"{OURS}/old-cluster"


class ReportNote(msgspec.Struct, frozen=True):
    """The annotation the hub writes when a step has ended."""

    step: str
    exit_code: int
    reason: str = ""
    message: str = ""
    lasts: str = ""


def artifacts_of(infra_env: InfraEnv, served: Mapping[str, str] | None = None) -> Artifacts | None:
    """What its hosts boot: artifacts that are `served` by this hub itself, the others where the InfraEnv says."""
    there, here, spec = infra_env.status.boot_artifacts or BootArtifacts(), served or {}, infra_env.spec
    hashes = hashes_of(infra_env, served)
    found = Artifacts(
        here.get("kernel", there.kernel), here.get("initrd", there.initrd), here.get("rootfs", there.rootfs),
        served=frozenset(name for name in NAMES if name in here),
        hashed=frozenset(name for name in HASHED if SHA256.fullmatch(hashes.get(f"{name}_sha256", ""))),
        http_proxy=spec.proxy.http_proxy if spec.proxy is not None else "",
        no_proxy=spec.proxy.no_proxy if spec.proxy is not None else "",
        arguments=tuple(KernelArgument(argument.operation, argument.value) for argument in spec.kernel_arguments or ()),
    )  # fmt: skip
    return found if found.kernel and found.initrd and found.rootfs else None


def hashes_of(infra_env: InfraEnv, served: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the artifacts must hash to, where that is known: of those `served` by this hub, and as the InfraEnv says."""
    here, notes = served or {}, infra_env.metadata.annotations
    found = {
        f"{name}_sha256": here.get(f"{name}_sha256", "") if name in here else notes.get(HASHES[name], "")
        for name in HASHED
    }
    return {name: value.strip() for name, value in found.items() if value.strip()}


def host_of(agent: Agent, *, started: Instant | None = None) -> Host:
    """What the Agent itself says; the old cluster and the artifacts are not known yet."""
    notes = agent.metadata.annotations
    status, bound = agent.status, agent.spec.cluster_deployment_name
    stage = status.progress.stage_start_time
    condition = next((condition for condition in status.conditions if condition.type == RECLAIMED), None)
    previous = _note_of(status.deprovision_info)
    waiting = condition is not None and condition.status == "Unknown"
    return Host(
        name=agent.metadata.name,
        uid=agent.metadata.uid,
        state=status.debug_info.state,
        stage=stage,
        since=started if started is not None else parse(stage),
        bound=(bound.namespace or agent.metadata.namespace, bound.name) if bound is not None and bound.name else None,
        previous=previous,
        hostname=agent.spec.hostname or status.inventory.hostname,
        namespace=agent.metadata.namespace,
        created=agent.metadata.creation_timestamp,
        system_uuid=_system_uuid(status.inventory.system_vendor.serial_number),
        addresses=known_addresses(
            address
            for interface in status.inventory.interfaces
            for address in (*interface.ip_v4_addresses, *interface.ip_v6_addresses)
        ),
        bare_metal_host=agent.metadata.labels.get(BMH_LABEL, ""),
        confirmed=previous is not None and notes.get(CONFIRM) == f"{previous.namespace}/{previous.name}",
        managed_by=notes.get(MANAGED_BY, ""),
        cancelled=bool(notes.get(CANCEL)),
        deleted=bool(agent.metadata.deletion_timestamp),
        kept=FINALIZER in agent.metadata.finalizers,
        pinned=Pin.parse(notes.get(PINNED, "")),
        retry=notes.get(RETRY, ""),
        retried=notes.get(RETRIED, ""),
        registration=notes.get(REGISTRATION, ""),
        report=_read_report(notes.get(REPORT, "")),
        waiting_since=parse(condition.last_transition_time) if waiting and condition is not None else None,
        reason=find_cause(condition.reason) if condition is not None else None,
        artifacts=Unknown("the InfraEnv was not read"),
    )


def find_leaving(agents: Iterable[Agent], host: Host, allowed: Collection[str]) -> Leaving:
    """Which hosts leave the old cluster of this one before it, or left it; and which still need its API.

    Only Agents of `allowed` namespaces count: others cannot act there, so their notes say nothing of that cluster.
    """
    assert host.previous is not None
    first, busy = dict[str, str](), set[str]()
    for agent in agents:
        if agent.metadata.namespace not in allowed:
            continue
        other = host_of(agent)
        if other.uid == host.uid or other.previous is None or (other.bound is not None and other.state in IN_A_CLUSTER):
            continue
        if (other.previous.namespace, other.previous.name) != (host.previous.namespace, host.previous.name):
            continue
        if _turn_of(other) <= _turn_of(host):
            first[other.previous.node] = key_of(agent.metadata)
        if other.kept or (not other.deleted and other.state in (*IN_A_CLUSTER, *UNDER_WAY)):
            busy.add(other.previous.node)
    return Leaving(first, frozenset(busy))


def _turn_of(host: Host) -> tuple[int, Instant, str, str]:
    """Who leaves a cluster first: the lesser. What is decided is not decided again because of who asks later.

    Only two that began in the same second have the same turn: each then counts the other as before it.
    """
    began = host.since if host.since is not None else 0.0
    asks_again = host.retry != host.retried or host.reason in (Reason.QUORUM_LOST, Reason.LAST_CONTROL_PLANE)
    if host.state in IN_A_CLUSTER or (host.state == State.PENDING and asks_again):
        return 3, 0.0, host.created, host.uid
    if host.state == State.RECLAIMING and not is_pinned(host):
        return 2, began, "", ""
    if host.state in (State.RECLAIMING, State.PENDING):  # who is left to people may be booted by them at any time
        return 1, began, "", ""
    return 0, 0.0, "", ""


def default_kubeconfig(cluster: str) -> str:
    """How assisted-service names the Secret with a cluster's admin kubeconfig."""
    return f"{cluster}-admin-kubeconfig"


def _system_uuid(serial: str) -> str:
    """A VM of vSphere has its system UUID in its serial number; of other machines the Agent does not say it."""
    return serial.removeprefix("VMware-") if serial.startswith("VMware-") else ""


def _note_of(found: Deprovision | None) -> Cluster | None:
    """A note with anything but names in it is none: they go into paths and sentences."""
    if found is None or not all(map(is_name, (found.cluster_name, found.cluster_namespace, found.node_name))):
        return None
    return Cluster(found.cluster_namespace, found.cluster_name, found.node_name)


def _read_report(text: str) -> Report | None:
    """A note that cannot be read is none: the step is asked for again, or its time ends.

    A user who may annotate the Agent can write it, as the agent on the node can: its text is cleaned here, once.
    """
    try:
        note = msgspec.json.decode(text, type=ReportNote)
    except msgspec.DecodeError:
        return None
    reason = find_cause(note.reason) if note.reason in (*StepFailure, Reason.CANCELLED) else None
    return Report(note.step, note.exit_code, reason, clean_text(note.message), clean_text(note.lasts))


def dump_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
