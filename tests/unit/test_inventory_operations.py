"""Maintenances under way: one per ESXi host, who is out of its way, and what blocks the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pytest

from hostler.explain.registry import Explanation, RuleSeen
from hostler.inventory.joining import join_layers
from hostler.inventory.model import Holder, Host, Layer, LayerKind, Line, Where
from hostler.inventory.operations import EsxiName, Operation, find_maintenances, maintenance_line
from hostler.inventory.states import HostState

IN_SERVICE, DRAINING, STOPPED = HostState.IN_SERVICE, HostState.DRAINING, HostState.STOPPED
SAID = Explanation("maintenance", "esx-1 enters.", (RuleSeen("a", "draining", "A budget lets no pod of web go."),))


def esxi(name: str, state: HostState, vcenter: str = "vc") -> Layer:
    line = Line("vsphere", state, f"It is {state}.")
    return Layer(f"esxi:{vcenter}/{name}", LayerKind.ESXI, name, (line,), where=Where(vcenter=vcenter, esxi=name))


def member(name: str, state: HostState | None, on: str = "esx-1", of: str = "esx-1", vcenter: str = "vc") -> Layer:
    """A VM and its node in one: in a maintenance of one ESXi host, and on another one or the same."""
    lines = [Line("node", IN_SERVICE, "It is Ready and takes pods.")]
    holders: tuple[Holder, ...] = ()
    if state is not None:
        lines.append(Line("maintenance", state, f"{of} is in maintenance.", 5.0, operation="maintenance/3", about=of))
        holders = (Holder("maintenance", "x", 3.0),)
    where = Where(vcenter=vcenter, esxi=on)
    under = f"esxi:{vcenter}/{on}"
    return Layer(
        f"vm:{vcenter}/{name}", LayerKind.VM, name, tuple(lines), where=where, node=name, under=under, holders=holders
    )


def operations(*layers: Layer, late: Iterable[str] = (), said: Explanation | None = SAID) -> list[Operation]:
    hosts = join_layers(layers)
    lines = {host.id: line for host in hosts for layer in layers if layer.key == host.id and (line := found(layer))}

    def is_late(host: Host) -> bool:
        return host.name in late

    def explain(names: Collection[EsxiName]) -> Mapping[EsxiName, Explanation]:
        return dict.fromkeys(names, said) if said is not None else {}

    return list(find_maintenances(hosts, lines, explain, is_late))


def found(layer: Layer) -> Line | None:
    return maintenance_line([layer])


def test_an_esxi_host_that_enters_is_one_operation_with_all_its_nodes() -> None:
    (one,) = operations(esxi("esx-1", DRAINING), member("a", DRAINING), member("b", STOPPED), member("c", None))
    assert (one.name, one.key, one.state, one.done, one.total) == ("esx-1", "esxi:vc/esx-1", "draining", 1, 3)
    assert (one.since, one.why, one.overdue) == (3.0, "esx-1 enters.", False)
    assert one.blocked_by == (
        "a: A budget lets no pod of web go.",
        "c: its VM runs there, and Hostler does not manage it.",
    )
    assert one.hosts == ("vm:vc/a", "vm:vc/b", "vm:vc/c")


def test_a_vm_that_runs_elsewhere_already_is_out_of_the_way() -> None:
    moved = member("a", HostState.RETURNING, on="esx-2")
    (one,) = operations(esxi("esx-1", HostState.HELD), esxi("esx-2", IN_SERVICE), moved)
    assert (one.name, one.state, one.done, one.total) == ("esx-1", "returning", 1, 1)


def test_when_the_esxi_host_is_back_its_nodes_have_to_come_back() -> None:
    (one,) = operations(esxi("esx-1", IN_SERVICE), member("a", STOPPED), member("b", None))
    assert (one.state, one.done, one.total) == ("stopped", 1, 2)


def test_without_a_node_in_maintenance_only_an_esxi_host_that_enters_is_shown() -> None:
    assert operations(esxi("esx-1", HostState.HELD), esxi("esx-2", IN_SERVICE), member("a", None)) == []
    assert [one.name for one in operations(esxi("esx-1", DRAINING))] == ["esx-1"]


def test_esxi_hosts_of_one_name_in_two_vcenters_are_two_operations() -> None:
    layers = [esxi("esx-1", DRAINING, vcenter) for vcenter in ("vc", "other")]
    members = [member(vcenter, DRAINING, vcenter=vcenter) for vcenter in ("vc", "other")]
    assert [one.hosts for one in operations(*layers, *members)] == [("vm:other/other",), ("vm:vc/vc",)]


def test_all_esxi_hosts_are_explained_at_once_and_only_those_under_way() -> None:
    asked: list[Collection[EsxiName]] = []

    def explain(names: Collection[EsxiName]) -> Mapping[EsxiName, Explanation]:
        asked.append(names)
        return {("vc", "esx-2"): SAID}

    states = {"esx-1": DRAINING, "esx-2": DRAINING, "esx-3": IN_SERVICE}
    hosts = join_layers([esxi(name, state) for name, state in states.items()])
    found = list(find_maintenances(hosts, {}, explain, lambda _: False))
    assert asked == [[("vc", "esx-1"), ("vc", "esx-2")]]
    assert [one.why for one in found] == ["It is draining.", "esx-1 enters."]


@pytest.mark.parametrize("late", ["a", "esx-1"])
def test_a_late_host_makes_its_operation_late(late: str) -> None:
    (one,) = operations(esxi("esx-1", DRAINING), member("a", DRAINING), late=(late,))
    assert one.overdue


def test_without_an_explanation_the_hosts_say_what_blocks() -> None:
    (one,) = operations(esxi("esx-1", DRAINING), member("a", DRAINING), said=None)
    assert (one.why, one.blocked_by) == ("It is draining.", ("a: esx-1 is in maintenance.",))


def test_a_node_whose_vm_is_not_shown_belongs_to_the_only_esxi_host_of_that_name() -> None:
    alone = Layer(
        "node:p/a", LayerKind.NODE, "a", (Line("maintenance", DRAINING, "It enters.", about="esx-1"),), node="a"
    )
    (one,) = operations(esxi("esx-1", HostState.HELD), alone)
    assert (one.key, one.hosts) == ("esxi:vc/esx-1", ("node:p/a",))
