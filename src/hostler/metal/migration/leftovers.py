"""What metal leaves on hosts when it is switched off, for `hostler metal withdraw` and `hostler doctor`.

Needs no operator. Each write holds only for the version of the host that was read just before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from hostler.apis import capi, metal3
from hostler.apis.capi import Cluster
from hostler.apis.metal3 import BareMetalHost, Metal3Machine, OwnedMetadata, Owner
from hostler.errors import Complaint, Exit
from hostler.explain.doctor import Finding, Level
from hostler.host.conditions import count
from hostler.host.conditions import names as listed
from hostler.host.facts import Fact, Unknown
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Conflict, NotFound, Unreachable
from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION
from hostler.kube.records import Object, key_of
from hostler.metal import names
from hostler.metal.model import consumer_key
from hostler.metal.moving import is_machine
from hostler.metal.scope import EVERYTHING, Scope

WITHDRAW = "hostler metal withdraw"
TRIES = 5  # for a host that another party changes between our read and our write
# Without block-move clusterctl copies a host at once, and only a provider saves its status before.
NO_MOVE = (
    "From now until a provider runs again, do not run `clusterctl move`: it would copy the hosts without their status, "
    "and they would be installed again. Where no provider follows, take the label "
    f"{names.MOVE_HIERARCHY} off the hosts, so that a move leaves them behind: "
    f"`kubectl label bmh --all --all-namespaces {names.MOVE_HIERARCHY}-`."
)
MOVED_KINDS = "clusterctl.cluster.x-k8s.io"  # label: clusterctl looks at objects of this CRD at all
MOVED_ALWAYS = "clusterctl.cluster.x-k8s.io/move"  # label: and moves each of them
# The CRDs of Baremetal Operator and the labels without which clusterctl leaves their objects behind.
NEEDED_LABELS = {
    "baremetalhosts.metal3.io": (MOVED_KINDS,),
    "hardwaredata.metal3.io": (MOVED_KINDS, MOVED_ALWAYS),
}


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Hosts that carry something of ours, and those among them that may be in the middle of a move."""

    blocked: tuple[BareMetalHost, ...] = ()  # with the annotation block-move
    owned: tuple[BareMetalHost, ...] = ()  # with an owner reference to a Metal3Machine
    moving: tuple[str, ...] = ()  # blocked, and their Cluster is paused: "host (Cluster)"

    @property
    def hosts(self) -> list[BareMetalHost]:
        found = {key_of(host.metadata): host for host in (*self.blocked, *self.owned)}
        return [found[key] for key in sorted(found)]

    def steps(self) -> list[str]:
        """What would be done about each host, for people."""
        lines = []
        for host in self.hosts:
            what = [f"annotation {names.BLOCK_MOVE}"] if names.BLOCK_MOVE in host.metadata.annotations else []
            what += [f"owner reference to {one.kind} {one.name}" for one in _machine_owners(host)]
            lines.append(f"baremetalhost/{key_of(host.metadata)} loses {listed(what)}")
        return lines


def _machine_owners(host: BareMetalHost) -> list[Owner]:
    return [one for one in host.metadata.owner_references if is_machine(one)]


async def find_leftovers(client: Client, scope: Scope = EVERYTHING) -> Leftovers:
    """Every host that carries something of ours, read once. Where the kind is not installed there are none."""
    try:
        hosts = [host for place in scope.namespaces or (None,) for host in await _hosts(client, place)]
        if scope.watch_filter:
            hosts = await _in_filter(client, scope, hosts)
    except NotFound:
        return Leftovers()
    blocked = tuple(host for host in hosts if names.BLOCK_MOVE in host.metadata.annotations)
    try:
        places = scope.namespaces or (None,)
        clusters = [
            one for place in places for one in (await client.list(capi.CLUSTER, place, type=Cluster) if blocked else ())
        ]
    except NotFound:
        clusters = []
    paused = {key_of(one.metadata) for one in clusters if one.spec.paused}
    moving = [
        f"{key_of(host.metadata)} (Cluster {cluster})"
        for host in blocked
        if (cluster := names.key(host.metadata.namespace, host.metadata.labels.get(capi.CLUSTER_NAME, ""))) in paused
    ]
    return Leftovers(blocked, tuple(host for host in hosts if _machine_owners(host)), tuple(moving))


async def _hosts(client: Client, namespace: str | None) -> list[BareMetalHost]:
    return await client.list(metal3.BARE_METAL_HOST, namespace, type=BareMetalHost)


async def _in_filter(client: Client, scope: Scope, hosts: list[BareMetalHost]) -> list[BareMetalHost]:
    """Hosts of machines with the label. Another operator may look after the others; without a machine none does."""
    found = [
        machine
        for place in scope.namespaces or (None,)
        for machine in await client.list(metal3.METAL3_MACHINE, place, type=Metal3Machine)
    ]
    others = {key_of(one.metadata) for one in found if scope.why_filtered(one.metadata)}
    return [host for host in hosts if consumer_key(host) not in others]


def refuse_mid_move(left: Leftovers) -> None:
    """A host whose Cluster is paused may be what `clusterctl move` waits for: freed, it would go without its status."""
    if left.moving:
        raise Complaint(
            f"`clusterctl move` may be waiting for {listed(left.moving)}: it would move without its status and be "
            "installed once more.",
            hint="Unpause the Cluster first, or start an operator with metal on, which saves the status of each host.",
            code=Exit.REFUSED,
        )


async def take_back(client: Client, left: Leftovers) -> None:
    """Take our annotation and every owner reference to a Metal3Machine off; nothing else of a host is changed.

    A host for which that cannot be done does not keep the others from it; all such hosts are reported at the end.
    """
    failed = {}
    for host in left.hosts:
        if why := await _take_back_from(client, host.metadata):
            failed[key_of(host.metadata)] = why
    if failed:
        done = len(left.hosts) - len(failed)
        reasons = "; ".join(f"{key}: {why}" for key, why in failed.items())
        raise Complaint(
            f"{count(done, 'host')} done; {count(len(failed), 'host')} left as before: {reasons}.",
            hint=f"Mend that, then `{WITHDRAW}` again.",
            code=Exit.REFUSED,
        )


async def _take_back_from(client: Client, known: OwnedMetadata) -> str:
    """What hinders it, as part of a sentence; empty: done, or there is nothing (any more) to do."""
    for _ in range(TRIES):
        try:
            host = await client.get(metal3.BARE_METAL_HOST, known.name, known.namespace, type=BareMetalHost)
            meta = host.metadata
            change: dict[str, Any] = {}
            if names.BLOCK_MOVE in meta.annotations:
                change["annotations"] = {names.BLOCK_MOVE: None}
            if _machine_owners(host):
                kept = [msgspec.to_builtins(one) for one in meta.owner_references if not is_machine(one)]
                change["ownerReferences"] = kept or None
            if not change:
                return ""
            # After the host: what pauses its Cluster later finds the host as it is from now on.
            if await _is_paused(client, meta.namespace, meta.labels.get(capi.CLUSTER_NAME, "")):
                return f"its Cluster {meta.labels[capi.CLUSTER_NAME]} is paused, so `clusterctl move` may wait for it"
            change["resourceVersion"] = meta.resource_version
            await client.patch(metal3.BARE_METAL_HOST, meta.name, {"metadata": change}, meta.namespace, type=Object)
        except NotFound:
            return ""  # gone meanwhile
        except Conflict:
            continue
        except (ApiError, Unreachable) as error:
            return str(error).rstrip(".")
        return ""
    return f"it was changed by another party {TRIES} times in a row"


async def _is_paused(client: Client, namespace: str, cluster: str) -> bool:
    if not cluster:
        return False
    try:
        return (await client.get(capi.CLUSTER, cluster, namespace, type=Cluster)).spec.paused
    except NotFound:
        return False


async def find_unlabelled(client: Client) -> tuple[str, ...]:
    """The commands that label the CRDs of Baremetal Operator for `clusterctl move`, as far as they are needed."""
    commands = []
    for name, labels in NEEDED_LABELS.items():
        try:
            found = await client.get(CUSTOM_RESOURCE_DEFINITION, name, type=Object)
        except NotFound:
            continue
        lacks = [label for label in labels if label not in found.metadata.labels]
        if lacks:
            commands.append(f"kubectl label crd {name} {' '.join(f'{label}=' for label in lacks)}")
    return tuple(commands)


def leftover_findings(left: Fact[Leftovers], unlabelled: Fact[tuple[str, ...]], *, on: Fact[bool]) -> Iterator[Finding]:
    """What `hostler doctor` reports; `on`: whether the operator has metal switched on."""
    if isinstance(left, Unknown):
        why = f"What metal may have left on hosts could not be read: {left.why}"
        yield Finding(Level.WARNING, "metal", why, "You need `list` on baremetalhosts.metal3.io and clusters.")
    elif isinstance(on, Unknown):
        if left.value.blocked:
            them = listed(key_of(host.metadata) for host in left.value.blocked)
            why = f"Cannot tell whether an operator still looks after {them}, which carry {names.BLOCK_MOVE}: {on.why}"
            yield Finding(Level.WARNING, "metal", why, "hostler doctor --operator URL")
    elif not on.value:
        yield from _switched_off(left.value)
    if isinstance(on, Unknown) or not on.value:
        return
    if isinstance(unlabelled, Unknown):
        why = f"Cannot tell whether `clusterctl move` takes hosts along: {unlabelled.why}"
        yield Finding(Level.WARNING, "clusterctl move", why, "You need `get` on customresourcedefinitions.")
    elif unlabelled.value:
        why = "`clusterctl move` would leave hosts behind without a word: CRDs of Baremetal Operator lack its labels."
        yield Finding(Level.WARNING, "clusterctl move", why, "; ".join(unlabelled.value))


def _switched_off(left: Leftovers) -> Iterator[Finding]:
    if left.owned:
        them = listed(key_of(host.metadata) for host in left.owned)
        why = (
            f"No operator with metal on was found, and {count(len(left.owned), 'host')} still have a Metal3Machine as "
            f"an owner, so Kubernetes deletes the BareMetalHost after its machine: {them}."
        )
        yield Finding(
            Level.WARNING, "metal", why, f"`{WITHDRAW}`, unless the Go provider 1.13 or older runs: it sets it itself."
        )
    if left.blocked:
        them = listed(key_of(host.metadata) for host in left.blocked)
        why = (
            f"No operator with metal on was found, and {count(len(left.blocked), 'host')} still carry "
            f"{names.BLOCK_MOVE}, so `clusterctl move` waits for ever: {them}."
        )
        yield Finding(
            Level.WARNING, "metal", why, f"`{WITHDRAW}`, unless the Go provider 1.14 or newer runs: it sets it too."
        )
