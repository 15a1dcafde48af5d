"""Who is expected: hosts of every source as invitations. Pure.

A name comes from what an owner wrote (an object's name, an Agent's hostname once it is approved), never from what a
machine under inspection says of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from hostler.apis import capi, openshift
from hostler.apis.assisted import AGENT, INFRA_ENV_LABEL, Agent
from hostler.apis.capi import CLUSTER_NAME
from hostler.apis.fleet import ExpectedHost
from hostler.apis.metal3 import BARE_METAL_HOST, METAL3_MACHINE, BareMetalHost, HostSpec, Metal3Machine, Reference
from hostler.instant import Instant, parse
from hostler.join.kubelet_request import spelled
from hostler.join.model import Invitation
from hostler.kube.kinds import Kind
from hostler.kube.records import key_of

# Other versions to read where a kind's own is not served.
OLDER: Mapping[Kind, tuple[str, ...]] = {METAL3_MACHINE: capi.OLDER, capi.MACHINE: capi.OLDER}
# What a BareMetalHost is while its image is being written or runs.
PROVISIONED = ("provisioning", "provisioned")
# What an Agent is while it is being installed. A reclaim goes through the same stages, and nobody is to join then.
INSTALLING = ("installing", "installing-in-progress", "installing-pending-user-action")
# What says that a machine without a BareMetalHost is being provisioned: OpenShift's instance exists, Cluster API's
# bootstrap data is there (v1beta2 and v1beta1 name that differently).
BEGUN: Mapping[Kind, tuple[str, ...]] = {
    openshift.MACHINE: ("InstanceExists",),
    capi.MACHINE: ("BootstrapConfigReady", "BootstrapReady"),
}


AnyMachine: TypeAlias = capi.DetailedMachine | openshift.Machine | Metal3Machine
AnySource: TypeAlias = BareMetalHost | AnyMachine | Agent
SOURCES: Mapping[Kind, type[Any]] = {
    BARE_METAL_HOST: BareMetalHost,
    METAL3_MACHINE: Metal3Machine,
    AGENT: Agent,
    openshift.MACHINE: openshift.Machine,
    capi.MACHINE: capi.DetailedMachine,
}


def invitations(
    found: Iterable[tuple[Kind, AnySource]],
    expected: Iterable[ExpectedHost],
    inventories: Mapping[str, frozenset[str]] | None = None,
) -> dict[str, tuple[Invitation, ...]]:
    """Every invitation by the node's name; in small letters, as a kubelet writes its host's name.

    `inventories`: per kind, the namespaces that count. A tenant may create a Machine in a namespace of their own.
    """
    made: dict[str, list[Invitation]] = {}
    allowed = inventories or {}
    there: list[tuple[Kind, AnySource]] = []
    for kind, host in found:
        if host.metadata.namespace in allowed.get(kind.resource, (host.metadata.namespace,)):
            there.append((kind, host))
            continue
        for invitation in _of(kind, host, None):
            made.setdefault(invitation.name, []).append(replace(invitation, outside=True))
    metal = {key_of(host.metadata): _cluster(host, {}) for kind, host in there if kind == METAL3_MACHINE}
    hosts: dict[str, list[Invitation]] = {}
    owners = _owners(there)
    for kind, host in there:
        hosts.setdefault(_host(kind, host, owners), []).extend(_of(kind, host, _cluster(host, metal)))
    shared = _shared(invitation for those in hosts.values() for invitation in those)
    for members in hosts.values():
        those = _with_one_window(members)
        called = {invitation.name for invitation in those} - shared
        for invitation in those:
            also = frozenset(called - {invitation.name})
            made.setdefault(invitation.name, []).append(replace(invitation, also=also))
    for entry in expected:
        made.setdefault(entry.name, []).append(_expected(entry))
    return {name: tuple(those) for name, those in made.items()}


def _with_one_window(members: list[Invitation]) -> list[Invitation]:
    """A machine on bare metal is provisioned when its BareMetalHost is, however long it waited for one."""
    host = next((invitation for invitation in members if invitation.kind == BARE_METAL_HOST.resource), None)
    if host is not None:
        return [replace(invitation, since=host.since, again_since=host.again_since) for invitation in members]
    if any(invitation.kind == METAL3_MACHINE.resource for invitation in members):
        return [replace(invitation, since=None, again_since=None) for invitation in members]  # it has no host yet
    return members


def _owners(there: Iterable[tuple[Kind, AnySource]]) -> dict[str, str]:
    """Which Machine of Cluster API a Metal3Machine belongs to."""
    return {
        key_of(host.metadata): f"{capi.MACHINE.resource} {host.metadata.namespace}/{owner.name}"
        for kind, host in there
        if kind == METAL3_MACHINE
        for owner in host.metadata.owner_references
        if owner.kind == capi.MACHINE.kind
    }


def _host(kind: Kind, host: AnySource, owners: Mapping[str, str]) -> str:
    """What stands for the host of this object: a BareMetalHost, its Metal3Machine and its Machine are one host."""
    at = key_of(host.metadata)
    match host:
        case BareMetalHost(spec=HostSpec(consumer_ref=Reference() as consumer)):
            by = f"{consumer.namespace or host.metadata.namespace}/{consumer.name}"
            if consumer.kind == METAL3_MACHINE.kind:
                return owners.get(by, f"{METAL3_MACHINE.resource} {by}")
            if consumer.api_version.partition("/")[0] == openshift.MACHINE.group:
                return f"{openshift.MACHINE.resource} {by}"
        case Metal3Machine():
            return owners.get(at, f"{kind.resource} {at}")
    return f"{kind.resource} {at}"


def _shared(made: Iterable[Invitation]) -> set[str]:
    """Names that hosts of one kind have in common, such as localhost: they tell no host from another."""
    sources: dict[tuple[str, str], set[str]] = {}
    for invitation in made:
        sources.setdefault((invitation.name, invitation.kind), set()).add(invitation.source)
    return {name for (name, _), those in sources.items() if len(those) > 1}


def _expected(entry: ExpectedHost) -> Invitation:
    since, until = parse(entry.since), parse(entry.until)
    # An entry that does not say until when is one nobody can have meant: it invites nobody.
    return Invitation(
        entry.name, f"expected host {entry.name}", "expected host", since if until is not None else None, until,
        frozenset(entry.addresses),
    )  # fmt: skip


def _cluster(host: AnySource, metal: Mapping[str, str | None]) -> str | None:
    """Which cluster a host is for, as `Invitation.cluster` has it. `metal`: those of Metal3Machines."""
    about = host.metadata
    match host:
        case BareMetalHost():
            return _consumed(host, metal)
        case Agent():
            bound = host.spec.cluster_deployment_name
            return f"{bound.namespace or about.namespace}/{bound.name}" if bound is not None and bound.name else None
        case openshift.Machine():
            return ""  # OpenShift's are of the cluster they are in
        case capi.DetailedMachine() if host.spec.cluster_name:
            return host.cluster
        case _:
            name = about.labels.get(CLUSTER_NAME, "")
            return f"{about.namespace}/{name}" if name else None


def _consumed(host: BareMetalHost, metal: Mapping[str, str | None]) -> str | None:
    """A BareMetalHost is for whoever consumes it; one that nobody consumes names no cluster."""
    consumer = host.spec.consumer_ref
    if consumer is None:
        return None if INFRA_ENV_LABEL in host.metadata.labels else ""  # its Agent knows
    if consumer.api_version.partition("/")[0] == openshift.MACHINE.group:
        return ""
    if consumer.kind == METAL3_MACHINE.kind:
        return metal.get(f"{consumer.namespace or host.metadata.namespace}/{consumer.name}")
    return None


def _of(kind: Kind, host: AnySource, cluster: str | None) -> Iterator[Invitation]:
    if host.metadata.deletion_timestamp:
        return
    source = f"{kind.kind} {key_of(host.metadata)}"
    word = kind.resource
    match host:
        case BareMetalHost():
            begun = (
                host.status.operation_history.provision.start if host.status.provisioning.state in PROVISIONED else ""
            )
            nics = host.status.hardware.nics if host.status.hardware else ()
            addresses = frozenset(nic.ip for nic in nics if nic.ip)
            yield Invitation(host.metadata.name, source, word, parse(begun), addresses=addresses, cluster=cluster)
        case Agent():
            name = (host.spec.hostname or host.status.inventory.hostname).lower()
            if name and host.spec.approved:
                yield _agent(host, name, source, word, cluster)
        case _:
            yield from _machine(kind, host, source, cluster)


def _agent(agent: Agent, name: str, source: str, word: str, cluster: str | None) -> Invitation:
    """Expected while it is being installed; each stage of that begins a window, but none lets it in once more.

    For that it must have been installed and be so no longer, or be another object. Whether it is installed being
    Unknown does not open a window.
    """
    said = next((it for it in agent.status.conditions if it.type == "Installed"), None)
    done = said is not None and said.status != "False"
    installing = not done and agent.status.debug_info.state in INSTALLING
    stage = parse(agent.status.progress.stage_start_time) if installing else None
    began = said.last_transition_time if said is not None else None
    again_since = parse(began or agent.metadata.creation_timestamp)
    return Invitation(name, source, word, stage, again_since=again_since, cluster=cluster)


def _machine(kind: Kind, machine: AnyMachine, source: str, cluster: str | None) -> Iterator[Invitation]:
    """A machine goes by its own name and by the host names it has; all of them are one host.

    Its window opens when its provisioning begins. A condition that flips opens the window again but lets nobody in a
    second time: for that the machine must have been created again.
    """
    created = parse(machine.metadata.creation_timestamp)
    node = "" if isinstance(machine, Metal3Machine) else machine.node
    addresses = frozenset(at.address for at in machine.status.addresses if at.address)
    called = {spelled(at.address) for at in machine.status.addresses if at.type in ("Hostname", "InternalDNS")} - {""}
    since = _began(kind, machine, created)
    for name in sorted({machine.metadata.name, *called}):
        yield Invitation(
            name, source, kind.resource, since, addresses=addresses, node=node, again_since=created, cluster=cluster
        )


def _began(kind: Kind, machine: AnyMachine, created: Instant | None) -> Instant | None:
    """When its provisioning began, as far as the machine itself tells; a machine that does not tell: when created."""
    told = next((it for it in machine.status.conditions if it.type in BEGUN.get(kind, ())), None)
    if told is None or created is None:
        return created
    if told.status != "True":
        return None
    return max(parse(told.last_transition_time) or created, created)


def machines_of(invited: Mapping[str, tuple[Invitation, ...]], clusters: frozenset[str]) -> int:
    """How many hosts of this cluster are known, each once: what the flood guard counts with."""
    return len({invitation.source for those in invited.values() for invitation in those if invitation.here(clusters)})
