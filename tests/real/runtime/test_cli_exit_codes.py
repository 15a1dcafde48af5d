"""Every row of the table of exit codes in docs/cli.md, run against the real control plane."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.draining import bare, budget, pods_on
from tests.real.operating import hostler

MakeNode = Callable[..., str]
# The row; what is done before; what is asked; the code. NODE is a node of the test's own, NOWHERE has no operator.
ROWS: tuple[tuple[str, tuple[str, ...], str, Exit], ...] = (
    ("`hold` of a node that you hold already", ("hold NODE --why x --beyond-ceiling",), "hold NODE --why x", Exit.OK),
    ("`release` of a node that nobody holds", (), "release NODE", Exit.OK),
    ("`release --all` of a node that nobody holds", (), "release NODE --all", Exit.OK),
    ("`pause` twice, with `--wait 0`", ("pause --why x --wait 0",), "pause --why x --wait 0", Exit.OK),
    ("`resume` twice", ("pause --why x --wait 0", "resume --wait 0"), "resume", Exit.OK),
    ("`bundle --partial` without an operator", (),
     "bundle --partial --file FILE --operator-namespace NOWHERE", Exit.OK),
    ("`release --holder NAME` where NAME holds nothing", (), "release NODE --holder ada", Exit.FAILED),
    ("`bundle` without an operator", (), "bundle --file FILE --operator-namespace NOWHERE", Exit.FAILED),
    ("`drain` whose time is over", (), "drain BLOCKED --timeout 3s --beyond-ceiling", Exit.FAILED),
    ("`hold` with an empty reason", (), "hold NODE --why=", Exit.USAGE),
    ("`hold` with a kubeconfig that does not exist", (), "hold NODE --why x --kubeconfig FILE", Exit.SETTING),
    ("`pause` that no operator confirmed", (), "pause --why x --wait 0.5", Exit.UNREACHABLE),
    ("`plan` without an operator", (), "plan node/NODE --operator-namespace NOWHERE", Exit.UNREACHABLE),
    ("`hold` of a node that does not exist", (), "hold nope --why x", Exit.REFUSED),
    ("`release` of a node that only others hold", ("hold NODE --why x --holder ada --beyond-ceiling",),
     "release NODE", Exit.REFUSED),
    ("`hold` beyond the ceiling", (), "hold NODE --why x --max-unavailable 0", Exit.REFUSED),
)  # fmt: skip


@pytest.fixture
def kinds(sandbox: Sandbox) -> Iterator[None]:
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize(("row", "before", "asked", "code"), ROWS, ids=[row for row, *_ in ROWS])
def test_each_row_ends_with_its_code(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, tmp_path: Path, eventually: Eventually,
    row: str, before: tuple[str, ...], asked: str, code: Exit,
) -> None:  # fmt: skip
    node = make_node()
    known = {"NODE": node, "BLOCKED": node, "FILE": str(tmp_path / "file"), "NOWHERE": f"nowhere-{os.urandom(3).hex()}"}
    if "BLOCKED" in asked:
        sandbox.apply(
            bare(namespace, "stays", node, nodeSelector={}), budget(namespace, "keep", "stays", minAvailable=1)
        )
        eventually(partial(pods_on, sandbox, node, namespace), 60, "the pod is there")
        eventually(
            lambda: sandbox.get("pdb", "keep", "-n", namespace).get("status", {}).get("expectedPods"), 60, "budget"
        )
    for words in before:
        assert hostler(sandbox.kubeconfig, *(known.get(word, word) for word in words.split())).returncode == 0
    done = hostler(
        sandbox.kubeconfig, *(known.get(word, word).replace("node/NODE", f"node/{node}") for word in asked.split())
    )
    assert done.returncode == code, f"{row}: {done.stderr}"


def test_the_table_is_the_one_of_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text().splitlines()
    head = page.index("| what happened | code |")
    assert page[head + 2 : head + 3 + len(ROWS)] == [*(f"| {row} | {int(code)} |" for row, _, _, code in ROWS), ""]
