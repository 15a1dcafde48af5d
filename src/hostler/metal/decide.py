"""The one decision about a Metal3Machine in any state: the operator, `explain` and `plan` ask this. Pure."""

from __future__ import annotations

from dataclasses import replace

from hostler.apis import capi, metal3
from hostler.apis.metal3 import Metal3Machine
from hostler.kube.kinds import SECRET
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.claiming.choose import Choice, Wish, WrongSelector
from hostler.metal.data.decide import ask_writes, let_go_writes
from hostler.metal.model import FAILED, HOST_LOST, SUCCESS, Decision, Facts, MakeMovable, Said, Step, Write, patch_host
from hostler.metal.moving import is_movable, is_moved_away, unpause_change
from hostler.metal.provisioning import claim_write, host_write, name_host, user_data_of, wrong_spec
from hostler.metal.release import ELSEWHERE_SECONDS, decide_release
from hostler.metal.status import (
    PAUSED,
    UNPAUSED,
    conditions_without_host,
    data_conditions,
    decide_health,
    readiness_of,
    status_fields,
)

WAITING_SECONDS = 30.0  # a host that comes free wakes it; that the reason why none is there became another does not
UNREADABLE_SECONDS = 60.0  # that a host can be read again may wake nobody


def decide_machine(facts: Facts, *, fast_track: bool = False) -> Decision:
    """What comes next for a machine. The order of these questions is part of the decision, so it is here only."""
    machine, host = facts.machine, facts.host if facts.associated else None
    if is_moved_away(machine.metadata) or (host is not None and is_moved_away(host.metadata)):
        why = "clusterctl has moved it to another management cluster; nothing is done here."
        return Decision(why, step=Step.MOVED)
    if facts.paused:
        why = "It is paused, or its Cluster is; nothing else is done."
        movable = None
        if host is not None and not is_movable(host):
            movable = MakeMovable(f"Cluster {facts.cluster_name} is paused", pause=True)
        return Decision(why, said=(PAUSED,), step=Step.PAUSED, make_movable=movable)
    if why := facts.host_unreadable:
        said = Said(names.ASSOCIATED, False, "HostUnreadable", why)
        shown = conditions_without_host(facts, said, keep_ready=True)
        return Decision(why, said=shown, step=Step.UNREADABLE, wake=UNREADABLE_SECONDS)
    return replace(_goes_on(facts, fast_track), make_movable=make_movable(facts), unpause=unpause_writes(facts))


def _goes_on(facts: Facts, fast_track: bool) -> Decision:
    if facts.machine.metadata.deletion_timestamp:
        found = decide_release(facts, fast_track=fast_track)
        return replace(found, writes=(*let_go_writes(facts), *found.writes), step=Step.RELEASE)
    if facts.associated:
        found = decide_associated(facts)
        writes = (*own_writes(facts), *found.writes, *ask_writes(facts))
        return replace(found, writes=writes, said=(*found.said, UNPAUSED), step=Step.KEEP)
    if (waits := why_no_host(facts)) is not None:
        wake = ELSEWHERE_SECONDS if facts.elsewhere else None
        return Decision(waits.message, said=conditions_without_host(facts, waits), step=Step.WAIT, wake=wake)
    try:
        return Decision("A host is chosen for it.", step=Step.CLAIM, wish=wish_of(facts))
    except WrongSelector as wrong:
        said = Said(names.ASSOCIATED, False, "InvalidHostSelector", f"{wrong}.")
        return Decision(f"It gets no host: {wrong}.", said=conditions_without_host(facts, said), step=Step.WAIT)


def wish_of(facts: Facts) -> Wish:
    """What this machine wants of a host; raises WrongSelector."""
    owner = facts.owner
    # The Go provider writes the Machine's into the Metal3Machine, over what is there.
    domain = (owner.spec.failure_domain if owner is not None else "") or facts.machine.spec.failure_domain
    return Wish.of(facts.machine, domain=domain, reuse=facts.reuse, cluster=facts.cluster_name)


def decide_claim(facts: Facts, choice: Choice) -> Decision:
    """What follows from a choice: first the intent on the machine, then the claim of the host; or why it waits."""
    why = f"{choice.why[:1].upper()}{choice.why[1:]}."
    if choice.host is None:
        said = Said(names.ASSOCIATED, False, FAILED, why)
        wake = WAITING_SECONDS if choice.again is None else choice.again
        return Decision(why, said=conditions_without_host(facts, said), step=Step.CLAIM, wake=wake)
    key = key_of(choice.host.metadata)
    intent = name_host(facts.machine, key, f"it is to get host {key}")
    claim = claim_write(facts, choice.host)
    return Decision(why, (intent, claim) if intent is not None else (claim,), step=Step.CLAIM)


# -- a machine without a host


def why_not_yet(facts: Facts) -> Said | None:
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


def why_no_host(facts: Facts) -> Said | None:
    """Why no host is chosen for a machine that has none: it may not have one yet, or lost its own; None: it may."""
    return why_not_yet(facts) or _lost(facts)


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


# -- a machine with its host


def decide_associated(facts: Facts) -> Decision:
    """An associated machine: bring its host to what it is to be, and say how far it is."""
    machine, host = facts.machine, facts.host
    if host is None or not facts.associated:
        raise ValueError(f"{machine.metadata.name} has no host yet; choose one first")
    writes = [write] if (write := host_write(facts, host)) is not None else []
    said = [Said(names.ASSOCIATED, True, SUCCESS)]
    if facts.secret_problem:
        said = [Said(names.ASSOCIATED, False, "BMCSecretMissing", facts.secret_problem)]
    said += data_conditions(facts)
    told = next((one for one in machine.status.conditions if one.type == names.HEALTHY), None)
    health, look = decide_health(host, told, facts.trouble)
    said += [health] if health is not None else []
    status = status_fields(facts, host)
    ready, why, wake = readiness_of(facts, host)
    said.append(Said(names.READY, ready, "Provisioned" if ready else "NotProvisioned", "" if ready else why))
    if host.state == "provisioned" and facts.node is not None and facts.node.provider_id:
        status["initialization"] = {"provisioned": True}
        if machine.spec.provider_id != facts.node.provider_id:
            writes.append(
                Write(metal3.METAL3_MACHINE, machine.metadata.name, machine.metadata.namespace,
                      {"spec": {"providerID": facts.node.provider_id}}, f"its node is {facts.node.name}")
            )  # fmt: skip
    return Decision(why, tuple(writes), tuple(said), status, min((one for one in (wake, look) if one), default=None))


def make_movable(facts: Facts) -> MakeMovable | None:
    """A host that another party has paused is given its status, so that it can be moved; None: it need not be."""
    host = facts.host if facts.associated else None
    if host is None or names.PAUSED not in host.metadata.annotations or unpause_writes(facts) or is_movable(host):
        return None
    return MakeMovable("another party has paused it", pause=False)


def unpause_writes(facts: Facts) -> tuple[Write, ...]:
    """Take our pause back, block-move first; the Cluster is read again before the last of them."""
    host, cluster = facts.host, facts.cluster
    if host is None or cluster is None or not facts.associated:
        return ()
    change = unpause_change(host)
    if not change:
        return ()
    last = patch_host(host, change, f"Cluster {facts.cluster_name} is not paused any more")
    if names.BLOCK_MOVE in host.metadata.annotations:
        return (last,)
    blocked = {"metadata": {"annotations": {names.BLOCK_MOVE: ""}}}
    return patch_host(host, blocked, "it is about to lose its pause and must not be moved then"), last


def own_writes(facts: Facts) -> tuple[Write, ...]:
    """What a machine that has its host still lacks: the host's name, and the cluster's label on the BMC secret.

    One that does not name its host was found by the host's consumerRef.
    """
    host = facts.host
    if host is None:
        return ()
    named = name_host(facts.machine, key_of(host.metadata), f"host {host.metadata.name} is its own")
    return tuple(one for one in (named, _label_secret(facts)) if one is not None)


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
