"""Reads what `hostler metal takeover --check` judges, once, and asks the operator's own decisions. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hostler.apis import metal3
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.events import Recorder
from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION, Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.metal.caches import Caches
from hostler.metal.data import DataDesk
from hostler.metal.data_caches import DataCaches
from hostler.metal.decide import decide_machine
from hostler.metal.leftovers import find_unlabelled
from hostler.metal.scope import Scope
from hostler.metal.takeover import (
    VERSION,
    Definition,
    Line,
    data_lines,
    definition_lines,
    freed_line,
    label_lines,
    machine_lines,
    outside_lines,
    remediation_lines,
)
from hostler.metal.upkeep import ReservedHostKeeper

KINDS = (
    "metal3clusters", "metal3clustertemplates", "metal3machines", "metal3machinetemplates", "metal3datas",
    "metal3dataclaims", "metal3datatemplates", "metal3remediations", "metal3remediationtemplates",
)  # fmt: skip


async def takeover_lines(client: Client, scope: Scope, *, fast_track: bool = False) -> list[Line]:
    """Every line but that about the provider itself; raises what the API server says."""
    metrics = Metrics()
    caches, data = Caches.make(client, metrics), DataCaches.make(client, metrics)
    for watch in (*caches.all(), data.claims, data.datas):
        if watch is not caches.secrets:  # nobody needs the right to read them for this
            await _list_into(client, watch)
    definitions = await _definitions(client)
    found = [*definition_lines(definitions, await _empty(client, definitions))]
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
    desk = DataDesk(caches, data, client, writer)
    for machine in sorted(caches.machines.store, key=lambda one: (one.metadata.namespace, one.metadata.name)):
        if scope.why_outside(machine.metadata):
            continue
        facts = caches.facts(machine)
        if machine.spec.data_template is not None:
            facts = replace(facts, rendered=desk.rendered(machine))
        yield from machine_lines(facts, decide_machine(facts, fast_track=fast_track))
    keeper = ReservedHostKeeper(caches, writer, Recorder(writer, "takeover", metrics))
    for key in sorted(keeper.reserved()):
        host = caches.hosts.store.get(key)
        if host is None or scope.why_not_read(host.metadata.namespace):
            continue
        if why := keeper.why(host) or keeper.why_left(host):
            yield freed_line(host, why)


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


async def _definitions(client: Client) -> list[Definition]:
    found = []
    for plural in KINDS:
        name = f"{plural}.{metal3.GROUP}"
        try:
            found.append(await client.get(CUSTOM_RESOURCE_DEFINITION, name, type=Definition))
        except NotFound:
            continue
    return found


async def _empty(client: Client, definitions: list[Definition]) -> list[str]:
    """Those that may hold older objects and hold none at all: kubectl calls it an error to replace nothing."""
    empty = []
    for definition in definitions:
        name = definition.metadata.name
        kind = Kind(metal3.GROUP, VERSION, name.partition(".")[0], "", True)
        if definition.older and not await client.list(kind, type=Object):
            empty.append(name)
    return empty
