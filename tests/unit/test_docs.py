"""The documentation: every link leads somewhere, and every page is reached from the README."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from hostler.host.holds import HOLDS
from hostler.host.maintenance import HOST, MIGRATED_TO, OUT_OF_SERVICE, SINCE, STATE
from hostler.maintenance import model
from tests.leftovers import LEFT_BEHIND
from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("*.md", "docs/**/*.md", "src/**/*.md", "sandbox/**/*.md", "judges/*.md")
PAGES = sorted(path for where in PLACES for path in ROOT.glob(where))
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|^\[[^\]]+\]: +(\S+)", re.MULTILINE)


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def links(page: Path) -> list[str]:
    return [one or other for one, other in LINK.findall(without_code(page.read_text(encoding="utf-8")))]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith(("https://", "mailto:")), link
            continue
        where, _, anchor = unquote(link).partition("#")
        target = (page.parent / where).resolve() if where else page
        assert target.exists(), f"{link}: there is no {where}"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_folder_of_somebody_s_machine(page: Path) -> None:
    assert re.findall(r"(?<![\w.*/])/(?:root|home|work|Users)/\S*", page.read_text(encoding="utf-8")) == []


def test_every_page_of_docs_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for link in links(page):
            if not re.match(r"[a-z]+:", link) and (where := link.partition("#")[0]):
                ahead.append((page.parent / where).resolve())
    assert sorted(path.name for path in ROOT.glob("docs/*.md") if path not in seen) == []


def test_the_service_levels_are_rules_that_prometheus_takes(tmp_path: Path) -> None:
    page = (ROOT / "docs/slo.md").read_text(encoding="utf-8")
    rules = tmp_path / "slo.yaml"
    rules.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    words = (tool("promtool", "prometheus"), "check", "rules", str(rules))
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "7 rules found" in checked.stdout


def test_a_node_finished_by_hand_keeps_nothing_of_ours() -> None:
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8").partition("### Finish a node by hand")[2]
    removed = set(re.findall(r"(\S+)- ?", text.partition("```")[2].partition("```")[0]))
    notes = {value for value in vars(model).values() if isinstance(value, str) and value.startswith("hostler.dev/")}
    assert len(notes) > 5
    assert removed >= (notes - {model.POLICY}) | {HOLDS, OUT_OF_SERVICE, STATE, HOST, MIGRATED_TO, SINCE}


@pytest.mark.parametrize("capability", LEFT_BEHIND)
def test_uninstalling_says_what_is_left_and_how_it_is_finished(capability: str) -> None:
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8").partition("## Uninstall")[2]
    rows = [line for line in text.splitlines() if line.startswith((f"| {capability} |", "| every install |"))]
    for word in LEFT_BEHIND[capability]:
        assert any(word in row for row in rows), f"{capability} leaves {word}"


@pytest.mark.parametrize("page", ["docs/track-record.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)(?:\[[^\]]*\])?`", (ROOT / page).read_text(encoding="utf-8"))
    assert named
    gone = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert not gone
