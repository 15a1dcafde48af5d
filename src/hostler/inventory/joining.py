"""Joins layers to hosts. What cannot be joined without doubt stays apart, with a note that says so. Pure.

Invariants: every layer is in exactly one host, whatever is missing or contradictory; a host has at most one layer of a
kind; the result does not depend on the order of the layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from hostler.host.conditions import names
from hostler.inventory.model import HOST_KIND, LAYER_ORDER, Host, Layer, LayerKind, Line, Suspect, merge_where
from hostler.inventory.states import STATE_ORDER, HostState

Links = Mapping[str, frozenset[str]]


def join_layers(layers: Iterable[Layer]) -> list[Host]:
    """The hosts that these layers are, by id."""
    known = {layer.key: layer for layer in layers}
    links = _mutual(known)
    known |= {key: _with_doubts(layer, known) for key, layer in known.items() if layer.suspects}
    hosts: list[Host] = []
    for group in connected_groups(known, links):
        hosts.extend(_hosts_of(group, known, links))
    return sorted(hosts, key=lambda host: host.id)


def connected_groups(keys: Iterable[str], links: Links) -> list[tuple[str, ...]]:
    """The keys, grouped by what a link leads to; each group sorted."""
    found, seen = [], set[str]()
    for start in sorted(keys):
        if start in seen:
            continue
        group, ahead = {start}, [start]
        while ahead:
            for key in links.get(ahead.pop(), ()):
                if key not in group:
                    group.add(key)
                    ahead.append(key)
        seen |= group
        found.append(tuple(sorted(group)))
    return found


def _mutual(known: Mapping[str, Layer]) -> Links:
    """Links in both directions, between layers that exist and are of different kinds."""
    links = defaultdict[str, set[str]](set)
    for layer in known.values():
        for key in (*layer.same_as, *(suspect.key for suspect in layer.suspects if _is_proven(suspect, known))):
            if key in known and key != layer.key:
                links[layer.key].add(key)
                links[key].add(layer.key)
    return {key: frozenset(others) for key, others in links.items()}


def _is_proven(suspect: Suspect, known: Mapping[str, Layer]) -> bool:
    """Both sides say so: the one names the other, and the other has a mark that the one knows."""
    other = known.get(suspect.key)
    return other is not None and not set(suspect.marks).isdisjoint(other.marks)


def _with_doubts(layer: Layer, known: Mapping[str, Layer]) -> Layer:
    """A layer that it may be, and that exists without a mark of it, is a doubt."""
    doubts = tuple(
        suspect.doubt for suspect in layer.suspects if suspect.key in known and not _is_proven(suspect, known)
    )
    return replace(layer, doubts=(*layer.doubts, *doubts)) if doubts else layer


def _hosts_of(group: Sequence[str], known: Mapping[str, Layer], links: Links) -> list[Host]:
    """The hosts of one connected group: one, or more where the links contradict each other."""
    if not _contradicts(group, known):
        return [host_of([known[key] for key in group])]
    kept = {key: frozenset(other for other in links[key] if _only_choice(key, other, known, links)) for key in group}
    hosts: list[Host] = []
    for part in connected_groups(group, kept):
        if _contradicts(part, known):  # a chain: each link alone is beyond doubt, together they cannot be true
            hosts.extend(host_of([known[key]], _doubts([key], part, known)) for key in part)
        else:
            hosts.append(host_of([known[key] for key in part], _doubts(part, group, known)))
    return hosts


def _contradicts(group: Sequence[str], known: Mapping[str, Layer]) -> bool:
    kinds = [known[key].kind for key in group]
    return len(set(kinds)) < len(kinds)


def _only_choice(key: str, other: str, known: Mapping[str, Layer], links: Links) -> bool:
    """Each of the two has just the other of its kind."""
    return (
        known[key].kind is not known[other].kind
        and sum(known[near].kind is known[other].kind for near in links[key]) == 1
        and sum(known[near].kind is known[key].kind for near in links[other]) == 1
    )


def _doubts(mine: Sequence[str], group: Sequence[str], known: Mapping[str, Layer]) -> tuple[str, ...]:
    others = [f"{known[key].kind} {known[key].name}" for key in group if key not in mine]
    if not others:
        return ()
    return (f"It may be the same machine as {names(others)}: their identities contradict each other.",)


def host_of(layers: Iterable[Layer], notes: tuple[str, ...] = ()) -> Host:
    """One host out of its layers."""
    ordered = sorted(layers, key=lambda layer: (LAYER_ORDER[layer.kind], layer.key))
    lowest, node = ordered[0], next((layer for layer in ordered if layer.kind is LayerKind.NODE), None)
    top = ordered[-1]
    lines = [line for layer in ordered for line in layer.lines]
    told = min(lines, key=_precedence) if lines else Line("", HostState.UNKNOWN, "Nothing reports its state.")
    labelled = [layer.labels for layer in ordered if layer.labels]
    return Host(
        id=lowest.key,
        name=top.name,
        kind=HOST_KIND[lowest.kind],
        state=told.state,
        since=told.since,
        capability=told.capability,
        why=told.why,
        next=told.next,
        waiting=told.waiting,
        where=merge_where(ordered),
        cluster=_first((node, *ordered), "cluster"),
        node=node.name if node is not None else _first(ordered, "node"),
        holders=tuple(dict.fromkeys(holder for layer in ordered for holder in layer.holders)),
        problems=tuple(dict.fromkeys(problem for layer in ordered for problem in layer.problems)),
        mid_steps=tuple(dict.fromkeys(f"{line.capability}: {line.why}" for line in lines if line.mid_step)),
        notes=(*notes, *(doubt for layer in ordered for doubt in layer.doubts)),
        layers=tuple(layer.key for layer in ordered),
        under=next((layer.under for layer in ordered if layer.under), ""),
        labels=labelled[0] if len(labelled) == 1 else {key: text for found in labelled for key, text in found.items()},
        operation=told.operation,
    )


def _precedence(line: Line) -> tuple[int, float, str, str]:
    """The state that counts most; of two equal ones the older."""
    return STATE_ORDER[line.state], float("inf") if line.since is None else line.since, line.capability, line.why


def _first(layers: Iterable[Layer | None], field: str) -> str:
    return next((str(value) for layer in layers if layer is not None and (value := getattr(layer, field))), "")
