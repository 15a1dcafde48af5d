"""What taking over from another Metal3 provider would change, before anything does.

It reads the objects once as the other provider left them, asks the operator's own decisions about them, and writes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.apis.metal3_data import Data, DataClaim
from hostler.host.conditions import count
from hostler.host.conditions import names as listed
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters
from hostler.kube.errors import ApiError, NotFound
from hostler.kube.events import Recorder
from hostler.kube.kinds import SECRET
from hostler.kube.metrics import Metrics
from hostler.kube.records import key_of
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.caches import Caches, DataCaches
from hostler.metal.claiming.reservations import ReservedHostReconciler
from hostler.metal.data.controller import DataReconciler
from hostler.metal.decide import decide_machine
from hostler.metal.kinds.webhook_objects import STORED
from hostler.metal.migration.leftovers import find_unlabelled
from hostler.metal.migration.stored_versions import Definition, read_definitions, rewrite_commands
from hostler.metal.model import Decision, Facts, Step, Write
from hostler.metal.remediation.model import Remediation
from hostler.metal.scope import Scope
from hostler.metal.status import is_settled
from hostler.metal.toolbox import Toolbox


class Effect(StrEnum):
    """What a line is about."""

    FIRST = "first"  # has to be done before Hostler takes over
    WRITE = "write"  # Hostler would write this
    JUDGED = "judged"  # Hostler would call it otherwise than it is called now
    OUTSIDE = "outside"  # out of scope
    NOTE = "note"


class Line(msgspec.Struct, frozen=True):
    effect: Effect
    what: str  # kind/namespace/name
    why: str
    fix: str = ""


# -- definitions


def definition_lines(definitions: Iterable[Definition]) -> Iterator[Line]:
    """Objects in an older version can be read only while a conversion webhook answers."""
    for definition in definitions:
        name, storage = definition.metadata.name, definition.storage
        what = f"customresourcedefinition/{name}"
        if storage != STORED:
            why = f"It stores {storage or 'no version'}, and Hostler reads and writes {STORED} only."
            yield Line(Effect.FIRST, what, why, f"Bring the provider to a release that stores {STORED}.")
        elif definition.older:
            them = listed(definition.older)
            why = f"Objects may still be stored as {them}, which can be read only while a webhook converts them."
            yield Line(Effect.FIRST, what, why, rewrite_commands([name]))


# -- machines and hosts


def machine_lines(facts: Facts, decision: Decision) -> Iterator[Line]:
    """What is decided for a machine: the writes that come first, and whether it is ready."""
    machine = facts.machine
    for write in (*decision.unpause, *decision.writes):
        # Whether a BMC secret has the label is not known here: that would take the right to read secrets.
        if write.kind != SECRET:
            yield write_line(write)
    if decision.make_movable and facts.host is not None:
        what = f"baremetalhost/{key_of(facts.host.metadata)}"
        yield Line(Effect.WRITE, what, f"It is paused, with its status for a move: {decision.make_movable.why}.")
    if decision.step is Step.CLAIM:
        yield Line(Effect.WRITE, f"metal3machine/{key_of(machine.metadata)}", decision.why)
    if line := judged_line(facts, decision):
        yield line


def judged_line(facts: Facts, decision: Decision) -> Line | None:
    """That a machine would be ready no more, or again; None: it stays as it is, or that takes a look for its node."""
    machine, host = facts.machine, facts.host if facts.associated else None
    if host is not None and host.state == "provisioned" and not is_settled(machine):
        return None
    now = next((one.status for one in machine.status.conditions if one.type == names.READY), None)
    said = next((one for one in decision.said if one.type == names.READY), None)
    if said is None or now is None or (now == "True") is said.true:
        return None
    becomes = f"True to False ({said.reason})" if not said.true else f"{now} to True"
    return Line(
        Effect.JUDGED, f"metal3machine/{key_of(machine.metadata)}", f"Ready goes from {becomes}: {decision.why}"
    )


def write_line(write: Write) -> Line:
    what = f"{write.kind.kind.lower()}/{names.key(write.namespace, write.name)}"
    return Line(Effect.WRITE, what, f"{', '.join(changed_fields(write.body)) or write.verb}, because {write.why}.")


def changed_fields(body: dict[str, Any]) -> list[str]:
    """What a merge patch changes, with a sign: `+label x`, `-annotation y`, `ownerReferences`, `spec.image`."""
    meta = body.get("metadata", {})
    found = [
        f"{'-' if value is None else '+'}{part.removesuffix('s')} {name}"
        for part in ("labels", "annotations")
        for name, value in (meta.get(part) or {}).items()
    ]
    found += [part for part in ("ownerReferences", "finalizers") if part in meta]
    return found + [f"{part}.{name}" for part in ("spec", "status") for name in body.get(part) or ()]


def freed_line(host: BareMetalHost, why: str) -> Line:
    return Line(Effect.WRITE, f"baremetalhost/{key_of(host.metadata)}", f"It is freed for any machine, because {why}.")


def outside_lines(scope: Scope, machines: Iterable[Metal3Machine]) -> Iterator[Line]:
    for machine in machines:
        if why := scope.why_outside(machine.metadata):
            yield Line(Effect.OUTSIDE, f"metal3machine/{key_of(machine.metadata)}", why)


# -- what goes with the machines


def data_lines(claims: Iterable[DataClaim], datas: Iterable[Data]) -> Iterator[Line]:
    doubled = [one for one in claims if names.MACHINE_FINALIZER in one.metadata.finalizers]
    known = tuple(datas)
    doubled_data = [one for one in known if names.DATA_CLAIM_FINALIZER in one.metadata.finalizers]
    if doubled or doubled_data:
        what = f"{count(len(doubled), 'Metal3DataClaim')} and {count(len(doubled_data), 'Metal3Data')}"
        why = f"{what} have the Go provider's second finalizer, which is taken off when their machine goes."
        yield Line(Effect.NOTE, "metal3data", why)
    if unmarked := [one for one in known if names.RENDERED_FOR not in one.metadata.annotations]:
        why = f"{count(len(unmarked), 'Metal3Data')} get annotation {names.RENDERED_FOR}; nothing is rendered again."
        yield Line(Effect.WRITE, "metal3data", why)


def remediation_lines(remediations: Iterable[Remediation]) -> Iterator[Line]:
    for remediation in remediations:
        phase = remediation.status.phase or "new"
        why = f"It is {phase} and gone on with. A taint of the Go provider's on its node stays: take it off by hand."
        yield Line(Effect.NOTE, f"metal3remediation/{key_of(remediation.metadata)}", why)


def label_lines(commands: Iterable[str]) -> Iterator[Line]:
    for command in commands:
        why = "Without a label `clusterctl move` leaves its objects behind."
        yield Line(Effect.NOTE, f"customresourcedefinition/{command.split()[3]}", why, command)


async def takeover_lines(client: Client, scope: Scope, *, fast_track: bool = False) -> list[Line]:
    """Every line but that about the provider itself; raises what the API server says."""
    metrics = Metrics()
    caches, data = Caches.make(client, metrics), DataCaches.make(client, metrics)
    definitions = await read_definitions(client)
    found = [*definition_lines(definitions)]
    try:
        for watch in (*caches.all(), data.claims, data.datas):
            if watch is not caches.secrets:  # nobody needs the right to read them for this
                await _list_into(client, watch)
    except ApiError as error:
        if not any(one.older for one in definitions):
            raise
        why = f"What is stored in an older version cannot be read: {error}"
        return [*found, Line(Effect.FIRST, "conversion", why, "Let a webhook convert it, and check again.")]
    found += outside_lines(scope, caches.machines.store)
    found += _decided(client, scope, caches, data, metrics, fast_track=fast_track)
    in_scope = [one for one in caches.remediations.store if not scope.why_outside(one.metadata)]
    found += remediation_lines(in_scope)
    inside = [one for one in data.datas.store if not scope.why_not_read(one.metadata.namespace)]
    claims = [one for one in data.claims.store if not scope.why_not_read(one.metadata.namespace)]
    found += data_lines(claims, inside)
    found += label_lines(await find_unlabelled(client))
    return found


def _decided(
    client: Client, scope: Scope, caches: Caches, data: DataCaches, metrics: Metrics, *, fast_track: bool
) -> Iterator[Line]:
    """What the operator would decide for each machine, and for each host that is kept for a machine to come."""
    writer = Writer(client, "metal", gate=lambda: "a check writes nothing", budget=WriteBudget(1.0), dry_run=True)
    tools = Toolbox(
        caches, data, client, writer, Recorder(writer, "takeover", metrics), metrics, Clusters(client), lambda _: writer
    )
    data_controller = DataReconciler(tools)
    for machine in sorted(caches.machines.store, key=lambda one: (one.metadata.namespace, one.metadata.name)):
        if scope.why_outside(machine.metadata):
            continue
        facts = data_controller.add_facts(caches.facts(machine))
        yield from machine_lines(facts, decide_machine(facts, fast_track=fast_track))
    keeper = ReservedHostReconciler(tools)
    for key in sorted(keeper.reserved()):
        host = caches.hosts.store.get(key)
        if host is None or scope.why_not_read(host.metadata.namespace):
            continue
        freed = keeper.decide(host)
        if freed is not None and freed.reason:
            yield freed_line(host, freed.write.why)


async def _list_into(client: Client, watch: Watch[Any]) -> None:
    store = watch.store
    try:
        found = await client.list(watch.kind, type=watch.type)
    except NotFound:
        found = []  # the kind is not installed
    store.begin_sync()
    for one in found:
        store.put(one)
    store.end_sync(max((int(one.metadata.resource_version) for one in found), default=0))
