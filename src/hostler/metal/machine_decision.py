"""The one decision about a Metal3Machine in any state: the operator, `explain` and `plan` ask this. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hostler.apis import capi, metal3
from hostler.kube.kinds import SECRET
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.decide import Facts, decide, why_none
from hostler.metal.decision import Decision, Said, Step, Write
from hostler.metal.moving import is_movable, is_moved_away, unpause_change
from hostler.metal.release import ELSEWHERE_SECONDS, PAUSED, decide_release, pauses


def decide_machine(facts: Facts, *, fast_track: bool = False) -> Decision:
    """What comes next for a machine. The order of these questions is part of the decision, so it is here only."""
    machine, host = facts.machine, facts.host if facts.associated else None
    if is_moved_away(machine.metadata) or (host is not None and is_moved_away(host.metadata)):
        why = "clusterctl has moved it to another management cluster; nothing is done here."
        return Decision(why, step=Step.MOVED)
    if pauses(facts):
        why = "It is paused, or its Cluster is; nothing else is done."
        because = "" if host is None or is_movable(host) else f"Cluster {facts.cluster_name} is paused"
        return Decision(why, said=(PAUSED,), step=Step.PAUSED, make_movable=because)
    if why := facts.host_unreadable:
        said = Said(names.ASSOCIATED, False, "HostUnreadable", why)
        return Decision(why, said=(said,), step=Step.UNREADABLE)
    return replace(_goes_on(facts, fast_track), make_movable=why_make_movable(facts), unpause=unpause_writes(facts))


def _goes_on(facts: Facts, fast_track: bool) -> Decision:
    if facts.machine.metadata.deletion_timestamp:
        return replace(decide_release(facts, fast_track=fast_track), step=Step.RELEASE)
    if facts.associated:
        found = decide(facts)
        return replace(found, writes=(*own_writes(facts), *found.writes), step=Step.KEEP)
    if (waits := why_none(facts)) is not None:
        wake = ELSEWHERE_SECONDS if facts.elsewhere else None
        return Decision(waits.message, said=(waits,), step=Step.WAIT, wake=wake)
    return Decision("A host is chosen for it.", step=Step.CLAIM)


def why_make_movable(facts: Facts) -> str:
    """Why a host that another party has paused is given its status, so that it can be moved; empty: it need not be."""
    host = facts.host if facts.associated else None
    if host is None or names.PAUSED not in host.metadata.annotations or unpause_writes(facts) or is_movable(host):
        return ""
    return "another party has paused it"


def unpause_writes(facts: Facts) -> tuple[Write, ...]:
    """Take our pause back, block-move first; the Cluster is read again before the last of them."""
    host, cluster = facts.host, facts.cluster
    if host is None or cluster is None or not facts.associated:
        return ()
    change, meta = unpause_change(host), host.metadata
    if not change:
        return ()
    why = f"Cluster {facts.cluster_name} is not paused any more"
    last = Write(metal3.BARE_METAL_HOST, meta.name, meta.namespace, change, why, version=meta.resource_version)
    if names.BLOCK_MOVE in meta.annotations:
        return (last,)
    blocked = {"metadata": {"annotations": {names.BLOCK_MOVE: ""}}}
    why = "it is about to lose its pause and must not be moved then"
    return Write(metal3.BARE_METAL_HOST, meta.name, meta.namespace, blocked, why, version=meta.resource_version), last


def own_writes(facts: Facts) -> tuple[Write, ...]:
    """What a machine that has its host still lacks: its name on the machine, the cluster's label on the BMC secret."""
    return tuple(one for one in (_name_host(facts), _label_secret(facts)) if one is not None)


def _name_host(facts: Facts) -> Write | None:
    """A machine that has its host but does not name it was found by the host's consumerRef."""
    meta, host = facts.machine.metadata, facts.host
    change: dict[str, Any] = {}
    if host is None:
        return None
    if facts.named_host != key_of(host.metadata):
        change["annotations"] = {names.HOST_ANNOTATION: key_of(host.metadata)}
    if names.MACHINE_FINALIZER not in meta.finalizers:
        change["finalizers"] = [*meta.finalizers, names.MACHINE_FINALIZER]
    if not change:
        return None
    why, version = f"host {host.metadata.name} is its own", meta.resource_version
    return Write(metal3.METAL3_MACHINE, meta.name, meta.namespace, {"metadata": change}, why, version=version)


def _label_secret(facts: Facts) -> Write | None:
    """Right after the claim. The condition tells that it was done: no secret is written again for a settled machine."""
    host = facts.host
    said = next((one for one in facts.machine.status.conditions if one.type == names.ASSOCIATED), None)
    secret = host.spec.bmc.credentials_name if host is not None and facts.cluster_name else ""
    if host is None or not secret or (said is not None and said.status == "True"):
        return None
    if facts.secret_cluster == facts.cluster_name:
        return None
    body = {"metadata": {"labels": {capi.CLUSTER_NAME: facts.cluster_name}}}
    return Write(
        SECRET, secret, host.metadata.namespace, body, f"the BMC of host {host.metadata.name} belongs to this cluster"
    )
