"""`hostler hold`, `release` and `drain` of several nodes: who is meant, and how each ends."""

from __future__ import annotations

import asyncio

import pytest
import typer

from hostler.cli.node_results import Ended, one_by_one, report, summarise
from hostler.cli.node_selection import choice_of, rows_on
from hostler.cli.printing import Output
from hostler.errors import Complaint, Exit
from hostler.inventory.model import Host, Where
from hostler.inventory.states import HostKind, HostState
from hostler.inventory.wire import HostRow
from hostler.kube.errors import Forbidden, Unreachable
from hostler.kube.records import Metadata, Node


def node(**labels: str) -> Node:
    return Node(metadata=Metadata(name="w1", labels={key.replace("_", "/"): value for key, value in labels.items()}))


def row(name: str, vcenter: str, esxi: str, kind: HostKind = HostKind.VM) -> HostRow:
    where = Where(vcenter=vcenter, compute_cluster="c", esxi=esxi)
    return HostRow(Host(name, name, kind, HostState.IN_SERVICE, where=where, node=name))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (((), "", "", ""), "name at least one node"),
        ((("w1",), "a=b", "", ""), "by name or by -l"),
        ((("w1",), "", "", "r7"), "by name or by --rack"),
        (((), "a=b=c", "", ""), "cannot be read"),
        (((), "", " ", ""), "name at least one node"),
    ],
)
def test_what_chooses_no_node_is_refused(typed: tuple[tuple[str, ...], str, str, str], said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        choice_of(*typed)


def test_a_name_given_twice_counts_once() -> None:
    assert choice_of(["w2", "w1", "w2"], "", "", "").named == ("w2", "w1")


@pytest.mark.parametrize(
    ("selector", "rack", "fits"),
    [
        ("pool=gpu", "", True), ("pool=gpu", "r7", True), ("pool!=gpu", "r7", False),
        ("", "r8", False), ("absent", "", False), ("!absent,pool in (gpu,db)", "", True),
    ],
)  # fmt: skip
def test_a_node_fits_every_flag_that_is_given(selector: str, rack: str, fits: bool) -> None:
    chosen = choice_of((), selector, "", rack)
    assert chosen.admits(node(pool="gpu", **{"topology.kubernetes.io_rack": "r7"})) is fits


def test_an_esxi_host_is_named_alone_or_by_its_place() -> None:
    rows = [row("w1", "vc", "esx1"), row("w2", "vc", "esx10"), row("esx1", "vc", "esx1", HostKind.ESXI)]
    for said in ("esx1", "vc/c/esx1", "c/esx1"):
        assert [one.host.name for one in rows_on(rows, said)] == ["w1"]


def test_an_esxi_host_that_two_vcenters_have_is_refused() -> None:
    rows = [row("w1", "vc-a", "esx1"), row("w2", "vc-b", "esx1")]
    with pytest.raises(Complaint, match="vc-a/c/esx1 and vc-b/c/esx1") as refused:
        rows_on(rows, "esx1")
    assert refused.value.code is Exit.REFUSED
    assert [one.host.name for one in rows_on(rows, "vc-b/c/esx1")] == ["w2"]


def test_an_esxi_host_nobody_knows_is_refused() -> None:
    with pytest.raises(Complaint, match="No ESXi host esx2 is known"):
        rows_on([row("w1", "vc", "esx1")], "esx2")


async def held(name: str) -> Ended:
    return Ended(name, "held", f"{name} is held.")


def test_one_refused_node_leaves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    async def act(name: str) -> Ended:
        if name == "w2":
            raise Forbidden(403, "Forbidden", "you may not")
        return await held(name)

    found = asyncio.run(one_by_one(["w1", "w2", "w3"], act))
    assert [(one.node, one.word, one.code) for one in found] == [
        ("w1", "held", Exit.OK), ("w2", "refused", Exit.REFUSED), ("w3", "held", Exit.OK),
    ]  # fmt: skip
    assert "hostler: The API server refused: you may not." in capsys.readouterr().err


def test_without_an_api_server_the_rest_is_not_tried() -> None:
    tried = []

    async def act(name: str) -> Ended:
        tried.append(name)
        if name == "w2":
            raise Unreachable("cut")
        return await held(name)

    found = asyncio.run(one_by_one(["w1", "w2", "w3", "w4"], act))
    assert tried == ["w1", "w2"]
    assert [(one.word, one.code) for one in found] == [
        ("held", Exit.OK), ("failed", Exit.UNREACHABLE),
        ("not tried", Exit.UNREACHABLE), ("not tried", Exit.UNREACHABLE),
    ]  # fmt: skip


def test_the_summary_names_every_node_that_failed() -> None:
    found = [
        Ended("w1", "drained", ""), Ended("w2", "refused", "", Exit.REFUSED), Ended("w3", "drained", ""),
        Ended("w4", "not drained", "", Exit.FAILED),
    ]  # fmt: skip
    assert summarise(found, dry_run=False) == "4 nodes: 2 drained, 1 refused (w2), 1 not drained (w4)."


def test_the_worst_end_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        Ended("w1", "not drained", "", Exit.FAILED),
        Ended("w2", "refused", "", Exit.REFUSED),
        Ended("w3", "x", ""),
    ]
    with pytest.raises(typer.Exit) as left:
        report(found, Output.JSON, dry_run=False)
    assert left.value.exit_code == Exit.REFUSED
    assert '"code": 5' in capsys.readouterr().out
    report(found[2:], Output.TABLE, dry_run=False)
    assert capsys.readouterr() == ("", "")
