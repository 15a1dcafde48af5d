"""Every row of the table of exit codes in docs/cli.md, run against the real control plane."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from hostler.cli.main import execute
from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.draining import bare, budget, pods_on
from tests.real.operating import environment, hostler

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


# Bad inputs that only an API server can refuse; the others are in tests/unit/test_cli_bad_inputs.py. What is typed, the
# exit code, and what the sentence names.
REFUSED: tuple[tuple[str, Exit, str], ...] = (
    ("explain node/nope --operator-namespace NOWHERE", Exit.REFUSED, "no node nope"),
    ("explain vm/nope --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("plan bmh/nope --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("operations --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("operations -l a=b --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("history --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("history export --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("host nope --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("config --running --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("maintenance plan esx1 --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("drain --esxi esx1 --operator-namespace NOWHERE", Exit.UNREACHABLE, "NOWHERE"),
    ("version --server --context nope", Exit.SETTING, "nope"),
    ("hold nope --why x", Exit.REFUSED, "no node nope"),
    ("hold -l none=such --why x", Exit.REFUSED, "No node matches"),
    ("hold --rack none --why x", Exit.REFUSED, "No node matches"),
    ("release nope neither", Exit.REFUSED, "no nodes neither and nope"),
    ("drain nope", Exit.REFUSED, "no node nope"),
    ("metal capacity nope", Exit.REFUSED, "default/nope"),
    ("metal capacity nope -n NOWHERE", Exit.REFUSED, "NOWHERE/nope"),
    ("reclaim status nope", Exit.REFUSED, "no Agent"),
    ("reclaim start NOWHERE/nope --yes", Exit.REFUSED, "NOWHERE/nope"),
    ("reclaim cancel nope -n NOWHERE", Exit.REFUSED, "no Agent"),
    ("reclaim retry nope", Exit.REFUSED, "no Agent"),
    ("reclaim token nope", Exit.REFUSED, "nope"),
    ("join approve nope", Exit.REFUSED, "nope"),
    ("platform remove-driver nope --yes", Exit.REFUSED, "nope"),
    ("hosts --kubeconfig WRONG", Exit.REFUSED, "credentials"),
    ("metal hosts -A --kubeconfig WRONG", Exit.REFUSED, "credentials"),
    ("pause --why x --kubeconfig WRONG", Exit.REFUSED, "credentials"),
)


def test_what_the_api_server_refuses_is_one_sentence(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, for they are many: each of them as its own process would be half a minute."""
    for name in [*os.environ]:
        if name not in environment(sandbox.kubeconfig):
            monkeypatch.delenv(name)
    for name, value in environment(sandbox.kubeconfig).items():
        monkeypatch.setenv(name, value)
    wrong = yaml.safe_load(sandbox.kubeconfig.read_text())
    wrong["users"] = [{"name": one["name"], "user": {"token": "nobody"}} for one in wrong["users"]]
    (tmp_path / "wrong").write_text(yaml.safe_dump(wrong))
    known = {"NOWHERE": f"nowhere-{os.urandom(3).hex()}", "WRONG": str(tmp_path / "wrong")}
    failed = []
    for typed, code, names in REFUSED:
        for word, value in known.items():
            typed, names = typed.replace(word, value), names.replace(word, value)
        ended = execute(typed.split())
        said = capsys.readouterr()
        lines = said.err.splitlines()
        if (
            not (ended == code and names in said.err and lines[0].startswith("hostler: ") and len(lines) <= 4)
            or said.out
        ):
            failed.append((typed, ended, said.out, said.err))
    assert failed == []
