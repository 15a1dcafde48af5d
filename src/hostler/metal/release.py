"""How a machine lets go of its host, and how hosts are reserved and freed. Pure."""

from __future__ import annotations

from typing import Any

from hostler.apis import capi
from hostler.apis.capi import Cluster
from hostler.apis.metal3 import BareMetalHost, SecretRef
from hostler.kube.kinds import SECRET
from hostler.metal import names
from hostler.metal.model import Decision, Facts, Said, Write, patch_host, patch_machine
from hostler.metal.moving import block_change, owner_change, unpause_change
from hostler.metal.provisioning import data_of, user_data_of

# In these states nothing of a machine is left on the host.
EMPTY = ("", "unmanaged", "registering", "match profile", "inspecting", "ready", "available")

ELSEWHERE_SECONDS = 60.0  # a host of another namespace wakes no machine of this one


def decide_release(facts: Facts, *, fast_track: bool = False) -> Decision:
    """A machine that is being deleted: empty its host, wait for it, hand it back, and let the machine go.

    A host with another consumer is never touched, but for an owner reference to the machine: with it the host would be
    deleted after the machine. Safe to repeat after a crash at any point.
    """
    machine, host = facts.machine, facts.host
    if facts.elsewhere and not facts.associated:
        why = f"{facts.elsewhere}: empty it, then take its spec.consumerRef off; the machine waits for that."
        return Decision(why, (), _deleting(why), wake=ELSEWHERE_SECONDS)
    if host is None or not facts.associated:
        why = "it has no host" if host is None else f"host {host.metadata.name} is not this machine's"
        return Decision(f"The machine goes: {why}.", (*_disowned(facts), *_goes(facts, why)))
    emptied = _emptied(facts, host, fast_track)
    if why := why_not_empty(host):
        because = f"Metal3Machine {machine.metadata.name} is being deleted"
        return Decision(why, (patch_host(host, emptied, because),) if emptied else (), _deleting(why))
    # Nothing of the machine is on the host (yet): emptied and handed back at once. Should Baremetal Operator have begun
    # in this moment, the host has another version, and this patch does not hold.
    free = _merge(emptied, hand_back(facts, host))
    writes = [
        *_secret_label(facts, host),
        patch_host(host, free, f"it is free of Metal3Machine {machine.metadata.name}"),
    ]
    if facts.several or facts.elsewhere:
        return Decision(f"Host {host.metadata.name} is handed back; the machine has another one.", tuple(writes))
    writes += [*_disowned(facts), *_goes(facts, "its host is free")]
    return Decision(f"Host {host.metadata.name} is handed back and the machine goes.", tuple(writes))


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two merge patches as one; where both say something, the second counts."""
    found = dict(one)
    for name, value in other.items():
        had = found.get(name)
        found[name] = _merge(had, value) if isinstance(had, dict) and isinstance(value, dict) else value
    return found


def _deleting(why: str) -> tuple[Said, ...]:
    return (Said(names.READY, False, "Deleting", why),)


def _emptied(facts: Facts, host: BareMetalHost, fast_track: bool) -> dict[str, Any]:
    spec = host.spec
    change: dict[str, Any] = {}
    for field, value in (("image", spec.image), ("customDeploy", spec.custom_deploy), *_own_data(facts, host)):
        if value is not None:
            change[field] = None
    online = spec.online if spec.disable_power_off else fast_track and spec.automated_cleaning_mode != "disabled"
    if spec.online != online:
        change["online"] = online
    found: dict[str, Any] = {"spec": change} if change else {}
    # From this moment on the host is promised, so that its successor waits for it instead of taking another.
    if is_reused(facts) and host.metadata.labels.get(names.NODE_REUSE) != facts.reuse:
        found["metadata"] = {"labels": {names.NODE_REUSE: facts.reuse}}
    # And it is not the machine's to take along: were that removed by force, Kubernetes would delete the host after it.
    if owners := owner_change(host.metadata, facts.machine.metadata):
        found.setdefault("metadata", {}).update(owners)
    # Our own pause would keep Baremetal Operator from emptying it. Until it is empty it stays where it is.
    if unpaused := unpause_change(host):
        found.setdefault("metadata", {}).update(unpaused["metadata"])
    elif blocked := block_change(host):
        found.setdefault("metadata", {})["annotations"] = blocked
    return found


def _own_data(facts: Facts, host: BareMetalHost) -> list[tuple[str, SecretRef | None]]:
    """The data references that the machine brought; what the host's owner had set himself is his, and stays.

    The machine's status has them, as with the Go provider. It is lost when a cluster is moved; then their names tell.
    """
    machine, spec = facts.machine, host.spec
    status, name = machine.status, machine.metadata.name
    meta_data, network_data = data_of(facts)
    fields = (
        ("userData", spec.user_data, status.user_data, user_data_of(facts), ""),
        ("metaData", spec.meta_data, status.meta_data, meta_data, f"{name}-metadata"),
        ("networkData", spec.network_data, status.network_data, network_data, f"{name}-networkdata"),
    )
    return [
        (field, value)
        for field, value, told, wanted, rendered in fields
        if value is not None
        and (told is not None or value.name == rendered or (wanted is not None and value.name == wanted.name))
    ]


def why_not_empty(host: BareMetalHost) -> str:
    """Why the host is not free of its machine yet; empty: it is."""
    name = host.metadata.name
    if not host.state and names.STATUS_ANNOTATION in host.metadata.annotations:
        return f"Host {name} was moved here and its status is not restored yet; the machine waits until it is free."
    if host.state in EMPTY:
        return ""
    by = host.metadata.annotations.get(names.PAUSED)
    if by is not None and by != names.OUR_PAUSE:
        return f"Host {name} is paused by {by or 'another party'}, so it cannot be emptied."
    if host.state == "externally provisioned":
        return (
            f"Host {name} is being powered off." if host.status.powered_on and not host.spec.disable_power_off else ""
        )
    problem = f" and reports {host.status.error_type}: {host.status.error_message}" if host.failing else ""
    return f"Host {name} is being emptied{problem}; the machine waits until it is free."


def is_reused(facts: Facts) -> bool:
    """Whether the host is kept for the machine's own kind: its template says so and its cluster stays."""
    cluster, template = facts.cluster, facts.template
    return bool(
        facts.reuse
        and template is not None
        and template.spec.node_reuse
        and cluster is not None
        and not cluster.metadata.deletion_timestamp
    )


def hand_back(facts: Facts, host: BareMetalHost) -> dict[str, Any]:
    """The host without its machine: free, or kept for the machine's deployment with the Cluster as its consumer."""
    meta = host.metadata
    keep = is_reused(facts)
    labels: dict[str, str | None] = {}
    if meta.labels.get(capi.CLUSTER_NAME) == facts.cluster_name:
        labels[capi.CLUSTER_NAME] = None
    if keep:
        labels[names.NODE_REUSE] = facts.reuse
    elif names.NODE_REUSE in meta.labels:
        labels[names.NODE_REUSE] = None
    annotations: dict[str, str | None] = {names.BLOCK_MOVE: None}
    if meta.annotations.get(names.PAUSED) == names.OUR_PAUSE:
        annotations[names.PAUSED] = None
    change: dict[str, Any] = {"annotations": annotations, **({"labels": labels} if labels else {})}
    consumer = cluster_consumer(facts.cluster) if keep and facts.cluster is not None else None
    return {"metadata": change, "spec": {"consumerRef": consumer}}


def _disowned(facts: Facts) -> list[Write]:
    """Every other host that Kubernetes would delete after the machine stays; nothing else of it is ours to change."""
    own = facts.host.metadata.name if facts.host is not None and facts.associated else ""
    others = [one for one in facts.owned if one.metadata.name != own]
    why = f"it stays when Metal3Machine {facts.machine.metadata.name} goes"
    machine = facts.machine.metadata
    return [
        patch_host(one, {"metadata": change}, why) for one in others if (change := owner_change(one.metadata, machine))
    ]


def cluster_consumer(cluster: Cluster) -> dict[str, Any]:
    kind, meta = capi.CLUSTER, cluster.metadata
    # A merge patch: what the machine's reference had and this one has not must be taken out by name.
    return {
        "apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "namespace": meta.namespace, "uid": None,
    }  # fmt: skip


def _secret_label(facts: Facts, host: BareMetalHost) -> list[Write]:
    name = host.spec.bmc.credentials_name
    # Known to carry no label: after a crash it is not written again, or that could repeat for ever.
    clear = facts.secret_cluster is not None and not facts.secret_cluster
    if not name or clear or host.metadata.labels.get(capi.CLUSTER_NAME) != facts.cluster_name:
        return []
    body = {"metadata": {"labels": {capi.CLUSTER_NAME: None}}}
    why = f"host {host.metadata.name} leaves its cluster"
    return [Write(SECRET, name, host.metadata.namespace, body, why)]


def _goes(facts: Facts, why: str) -> list[Write]:
    """Our finalizer goes, and so does the machine, unless another party has one too."""
    meta = facts.machine.metadata
    if names.MACHINE_FINALIZER not in meta.finalizers:
        return []
    kept = [one for one in meta.finalizers if one != names.MACHINE_FINALIZER]
    return [patch_machine(facts.machine, {"finalizers": kept}, why)]
