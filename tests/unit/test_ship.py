"""What is made from tables is in the repository as it would be made now; the chart's hand-written parts fit it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler import __version__
from hostler.capabilities import CAPABILITIES, SETTINGS
from hostler.install.config_map import SET_BY_INSTALLATION
from hostler.ship import alerts, chart
from hostler.ship.dashboard import PANELS, Panel, dashboard

ROOT = Path(__file__).resolve().parents[2]
ALERTS = alerts.read(ROOT / "chart/alerts")
GENERATED = dict(chart.files(ROOT))


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_files_are_as_they_would_be_made_now(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run `make chart` and look at the difference"


def test_the_chart_has_our_version() -> None:
    read = yaml.safe_load((ROOT / "chart/Chart.yaml").read_text())
    assert (read["version"], read["appVersion"]) == (__version__, __version__)


def test_every_value_is_in_the_schema_and_every_capability_is_a_value() -> None:
    values = yaml.safe_load((ROOT / "chart/values.yaml").read_text())
    made = chart.schema()

    def known(value: Any, part: dict[str, Any], where: str) -> None:
        if isinstance(value, dict) and part.get("additionalProperties") is False:
            for key, inner in value.items():
                assert key in part["properties"], f"{where}.{key} has no schema"
                known(inner, part["properties"][key], f"{where}.{key}")

    known(values, made, "")
    assert set(made["properties"]) - {"global"} == set(values)
    assert set(values["capabilities"]) == {one.name for one in CAPABILITIES if not one.always}
    assert [name for name, on in values["capabilities"].items() if on] == ["maintenance"], "off until named"


def test_every_setting_is_given_by_the_chart_or_can_be() -> None:
    offered = set(chart.schema()["properties"]["settings"]["properties"])
    by_chart = set(SET_BY_INSTALLATION)
    assert not offered & by_chart
    assert offered | by_chart == {one.name for one in SETTINGS}
    assert not [one.name for one in SETTINGS if one.secret and one.name in offered], "secrets are no ConfigMap"
    json.dumps(chart.schema())


# -- alerts

SOURCE = "".join(path.read_text() for path in (ROOT / "src/hostler").rglob("*.py") if path.parent.name != "ship")

MADE = {name: maker for maker, name in re.findall(r'\b(\w+)\(\s*"(hostler_\w+)"', SOURCE)}


def exist(expr: str) -> None:
    """Every metric in it is made somewhere; those named _total are counters, _bucket and _count are of histograms."""
    for metric in set(re.findall(r"\bhostler_\w+", expr)):
        maker = MADE.get(metric.removesuffix("_total"))
        if maker is None and (part := re.fullmatch(r"(\w+)_(bucket|count|sum)", metric)):
            maker = MADE.get(part[1])
            assert maker is None or "histogram" in maker.lower(), metric
        assert maker, f"{metric} is counted nowhere"
        assert metric.endswith("_total") is ("counter" in maker.lower()), metric


ROOMS = {one.name for one in CAPABILITIES}
EVERY = [(room, one) for room, found in ALERTS.items() for one in found]


@pytest.mark.parametrize(("room", "alert"), EVERY, ids=[one.alert for _, one in EVERY])
def test_an_alert_is_about_metrics_that_exist_and_says_what_to_do(room: str, alert: alerts.Alert) -> None:
    assert room in ROOMS
    assert alert.alert.startswith("Hostler")
    assert alert.labels["severity"] in ("info", "warning", "critical")
    assert set(alert.annotations) == {"summary", "description", "runbook"}
    exist(alert.expr)
    for word in re.findall(r'="([^"]+)"', alert.expr):
        assert word.isdigit() or f'"{word}"' in SOURCE, f"nothing ever says {word}"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panel_shows_metrics_that_exist(panel: Panel) -> None:
    exist(panel.expr)
    assert "$" not in panel.expr


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_a_page_names_metrics_that_exist(page: Path) -> None:
    exist(page.read_text(encoding="utf-8"))


def test_a_panel_s_legend_is_made_of_labels_its_expression_keeps() -> None:
    for panel in PANELS:
        kept = {name.strip() for group in re.findall(r"by \(([^)]*)\)", panel.expr) for name in group.split(",")}
        assert set(re.findall(r"{{(\w+)}}", panel.legend)) <= kept, panel.title


def test_panels_do_not_cover_each_other_and_ask_the_chosen_prometheus() -> None:
    made = dashboard()
    cells = [
        (x, y)
        for at in (one["gridPos"] for one in made["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({one["id"] for one in made["panels"]}) == len(PANELS)
    (picker,) = made["templating"]["list"]
    for one in made["panels"]:
        for source in (one["datasource"], *(target["datasource"] for target in one["targets"])):
            assert source == {"type": picker["query"], "uid": f"${{{picker['name']}}}"}
