"""`make judges` keeps no finding without a reason, and the workflows give a fork nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hostler.ship.judges import Finding, compare_scores, read_scores

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())
REASON = r"# +\S+ +\S+"  # two words at least
# How a line tells each judge that its finding stays.
EXCUSES = {
    "nosec": r"# nosec B\d{3}(,B\d{3})* ",
    "shellcheck disable": r"# shellcheck disable=SC\d+(,SC\d+)* ",
    "zizmor: ignore": r"# zizmor: ignore\[[a-z-]+\] ",
}


def excusing_lines() -> Iterator[tuple[str, str, str]]:
    """Every line that tells a judge to look away: where it is, by which words, and the line."""
    for folder, pattern in (("src", "*.py"), (".ci", "*"), (".github", "*.y*ml")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            if path.is_file():
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    for words in EXCUSES:
                        if f"# {words}" in line:
                            yield f"{path.relative_to(ROOT)}:{number}", words, line


def test_every_excuse_on_a_line_has_a_reason() -> None:
    found = list(excusing_lines())
    assert {words for _, words, _ in found} >= {"nosec"}, "the search finds what is there"
    without = [where for where, words, line in found if not re.search(EXCUSES[words] + r"# \S+", line)]
    assert not without, f"add a reason after the excuse, as in `# nosec B311 # jitter`: {without}"


def commented_entries(path: Path, entry: str) -> list[tuple[str, bool]]:
    """Each entry of a list in a YAML file, and whether a comment stands beside it or right above it."""
    lines = path.read_text().splitlines()
    return [
        (line, bool(re.search(REASON, line) or re.match(rf" +{REASON}", lines[number - 1])))
        for number, line in enumerate(lines)
        if re.match(entry, line)
    ]


def test_every_excuse_in_a_list_has_a_reason() -> None:
    skipped = commented_entries(ROOT / "judges/bandit.yaml", r" +- B\d+")
    ignored = commented_entries(ROOT / "judges/zizmor.yaml", r" +- \S+\.yaml")
    assert len(skipped) == len(yaml.safe_load((ROOT / "judges/bandit.yaml").read_text())["skips"])
    rules = yaml.safe_load((ROOT / "judges/zizmor.yaml").read_text())["rules"]
    assert all(set(rule) == {"ignore"} for rule in rules.values()), "no rule is switched off as a whole"
    assert len(ignored) == sum(len(rule["ignore"]) for rule in rules.values())
    assert not [line for line, reason in skipped + ignored if not reason]
    for entry in yaml.safe_load((ROOT / "judges/kube-score.yaml").read_text()):
        assert set(entry) == {"check", "says", "sets", "reason"}
        assert len(entry["reason"].split()) > 3, entry


def test_a_new_finding_and_a_stale_excuse_both_fail() -> None:
    answer = """[{"checks": [
      {"check": {"id": "a", "name": "A"}, "grade": 10, "skipped": false, "comments": null},
      {"check": {"id": "b", "name": "B"}, "grade": 1, "skipped": true, "comments": [{"summary": "skipped"}]},
      {"check": {"id": "c", "name": "C"}, "grade": 5, "skipped": false, "comments": null},
      {"check": {"id": "d", "name": "D"}, "grade": 1, "skipped": false, "comments": [{"summary": "no limit"}]}]}]"""
    found = read_scores("default", answer)
    assert found == {Finding("default", "c", "C"), Finding("default", "d", "no limit")}
    listed = [{"check": "d", "says": "no limit", "sets": ["default"], "reason": "as it is"}]
    assert compare_scores(found, listed) == "\ndefault: c: C"
    assert compare_scores(found, [*listed, {"check": "c", "says": "C", "sets": ["default"]}]) == ""
    stale = compare_scores({Finding("default", "d", "no limit")}, [{**listed[0], "sets": ["default", "reclaim"]}])
    assert stale == "\njudges/kube-score.yaml excuses d (no limit) of set reclaim, which is not found any more"


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            yield f"{path.name}: {name}", job


def test_a_fork_starts_nothing_that_has_rights() -> None:
    """That rights are few and actions pinned is in test_ship_release.py; here, who can start what."""
    for path in WORKFLOWS:
        triggers = set(yaml.safe_load(path.read_text())[True])  # YAML reads the key `on` as true
        wanted = {"push"} if path.name == "release.yaml" else {"push", "pull_request", "workflow_call"}
        assert triggers == wanted, "these give a fork a token that reads, or nothing; pull_request_target would not"


def test_a_privileged_container_does_not_run_for_forks() -> None:
    privileged = {
        name: job for name, job in jobs() if "--privileged" in (job.get("container") or {}).get("options", "")
    }
    assert list(privileged) == ["test.yaml: test"]
    for job in privileged.values():
        assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]


def test_no_digest_is_written_that_nobody_fetched() -> None:
    for path in WORKFLOWS:
        assert "@sha256:" not in path.read_text(), path
