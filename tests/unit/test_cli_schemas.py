"""The JSON Schema of every command: there is one, it is the one in docs/schemas, and it fits what is printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostler.cli.main import execute
from hostler.cli.schemas import schema_of, shapes
from hostler.errors import Exit
from hostler.ship.command_schemas import FOLDER, files
from tests.answer_schemas import check_answer
from tests.unit.command_table import COMMANDS

ROOT = Path(__file__).parents[2]
INSTALL_CONFIG = """
apiVersion: v1
baseDomain: example.org
metadata: {name: c}
compute: [{name: worker, replicas: 0}]
controlPlane: {name: master, replicas: 1}
platform: {none: {}}
pullSecret: '{}'
"""


def test_every_command_that_prints_records_has_a_schema() -> None:
    printing = {
        name for name, command in COMMANDS.items() for parameter in command.params if "--output" in parameter.opts
    }
    assert set(shapes()) == printing - {"fleet"}, "`fleet` is another name of `hosts`"


def test_the_schemas_of_the_docs_are_those_of_the_records() -> None:
    made = dict(files())
    there = {path.relative_to(ROOT) for path in (ROOT / FOLDER).iterdir()}
    assert there == set(made), "make chart"
    for path, text in made.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: make chart"


def test_a_schema_says_which_command_it_is_of() -> None:
    assert schema_of("version", shapes()["version"])["title"] == "hostler version -o json"


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("version", ""), ("config", ""), ("rights", ""), ("rights", "--people"), ("crds", ""),
        ("install plan", "install-config.yaml"),
    ],
)  # fmt: skip
def test_what_is_printed_without_a_cluster_fits_its_schema(
    command: str, rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HOSTLER_")]:
        monkeypatch.delenv(name)  # of the tests themselves: `config` refuses what it does not know
    (tmp_path / "install-config.yaml").write_text(INSTALL_CONFIG)
    assert execute([*command.split(), *rest.split(), "-o", "json"]) == Exit.OK
    check_answer(command, capsys.readouterr().out)
