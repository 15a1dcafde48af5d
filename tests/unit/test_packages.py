"""How the packages hang together: what is pure by rule, and one table of capabilities behind every list of them."""

from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest
import yaml

from hostler.capabilities import CAPABILITIES, SETTINGS, read_settings
from hostler.capability import Capability
from hostler.cli.main import app
from hostler.install.grants import rights_of
from hostler.kube.client import Client
from hostler.safety.switches import CapabilityInfo, load_part
from hostler.ship.packages import ROOT, import_graph, summary_of
from tests.sharing import share
from tests.unit.nowhere import Nowhere

REPOSITORY = Path(__file__).parents[2]
PURE_NAMES = ("model", "decide", "simulate")
# A client, waiting, and the clock, each of which would make an answer depend on more than the arguments.
FORBIDDEN = {"aiohttp", "asyncio", "time", "socket", "threading", "hostler.kube.client", "hostler.kube.watch"}
OPTIONAL = [one for one in CAPABILITIES if one.made_by]


@cache
def pure_modules() -> list[str]:
    """By name, and by a docstring whose first paragraph ends in "Pure."; the sandbox decides nothing."""
    return [
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for path in sorted(ROOT.rglob("*.py"))
        if "sandbox" not in path.parts
        and (path.stem in PURE_NAMES or (path.name != "__init__.py" and summary_of(path).endswith("Pure.")))
    ]


def impure(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    found = {module: graph.find_upstream_modules(module) & FORBIDDEN for module in pure_modules()}
    return {module: reached for module, reached in found.items() if reached}


def test_what_is_pure_reaches_no_client_no_asyncio_and_no_clock() -> None:
    assert impure(import_graph()) == {}


def test_an_import_far_down_is_found() -> None:
    graph = copy.deepcopy(import_graph())
    graph.add_import(importer="hostler.uuids", imported="time")
    assert impure(graph)["hostler.maintenance.decide"] == {"time"}


def test_decisions_are_among_what_is_pure() -> None:
    found = pure_modules()
    assert {f"hostler.{one}.decide" for one in ("drain", "fleet", *(one.name for one in OPTIONAL))} <= {*found}
    assert {"hostler.host.holds", "hostler.metal.claiming.choose", "hostler.safety.incumbents"} <= {*found}


# -- the table of capabilities


def test_every_controller_is_named_after_its_capability() -> None:
    async def names() -> dict[str, list[str]]:
        async with Client(Nowhere()) as client:
            shared = share(client, [one.name for one in OPTIONAL], read_settings({}, {}))
            return {one.name: [*load_part(one.made_by)(shared).controllers] for one in OPTIONAL}

    for capability, controllers in asyncio.run(names()).items():
        assert controllers
        assert all(name.split()[0] == capability for name in controllers), controllers


@pytest.mark.parametrize("row", OPTIONAL, ids=lambda row: row.name)
def test_every_row_names_code_that_exists(row: CapabilityInfo) -> None:
    assert issubclass(load_part(row.made_by), Capability)
    assert {*load_part(row.settings).SETTINGS} <= {*SETTINGS}
    assert rights_of(row)
    assert load_part(row.commands) in [group.typer_instance for group in app.registered_groups if group.name]


def test_no_list_of_capabilities_differs_from_the_table() -> None:
    optional = {one.name for one in OPTIONAL}
    assert {path.parent.name for path in ROOT.glob("*/capability.py")} == optional
    assert {path.parent.name for path in ROOT.glob("*/rbac.py")} == optional
    assert {one.name for one in CAPABILITIES if not one.always} == optional
    assert optional <= {path.stem for path in (REPOSITORY / "docs").glob("*.md")}
    values = yaml.safe_load((REPOSITORY / "chart/values.yaml").read_text())
    assert {*values["capabilities"]} == optional
    text = (REPOSITORY / "chart/templates/_helpers.tpl").read_text()
    asks = next(line for line in text.splitlines() if 'include "hostler.vcenter" .' in line and "has " in line)
    assert {name for name in optional if f'(has "{name}" $on)' in asks} == {
        one.name for one in CAPABILITIES if one.asks_vcenters
    }


def test_what_is_off_is_not_imported() -> None:
    code = "import sys, hostler.operator; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "hostler.metal.settings" in loaded
    assert not {row.made_by.partition(":")[0] for row in OPTIONAL} & {*loaded}
