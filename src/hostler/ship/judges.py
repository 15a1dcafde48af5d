"""`make judges`: other projects' linters judge the Python, the workflows, the scripts and the chart.

What they find and we keep is listed beside the finding or in `judges/`, with a reason (tests/unit/test_judges.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hostler.errors import Complaint
from hostler.sandbox.gotool import cache_dir, environment, find_go
from hostler.sandbox.helmtool import find_helm

ROOT = Path(__file__).resolve().parents[3]
LISTS = ROOT / "judges"
PROGRAMS = ROOT / ".venv-judges" / "bin"
GO_PROGRAMS = {
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint",
    "kube-score": "github.com/zegl/kube-score/cmd/kube-score",
}


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that kube-score found in the chart, rendered with one set of values."""

    values: str
    check: str
    says: str


def main() -> None:
    """Run every judge; exit 1 if one of them found something."""
    try:
        built = build_go_programs()
        helm = find_helm()
    except Complaint as complaint:
        sys.exit(f"judges: {complaint}")
    judges: dict[str, Callable[[], str]] = {
        "bandit": lambda: _run([PROGRAMS / "bandit", "--quiet", "--recursive", "src", "-c", LISTS / "bandit.yaml"]),
        "zizmor": judge_workflows,
        "actionlint": lambda: _run([built / "actionlint", "-shellcheck", PROGRAMS / "shellcheck", *_workflows()]),
        "shellcheck": lambda: _run([PROGRAMS / "shellcheck", *sorted((ROOT / ".ci").iterdir())]),
        "check-jsonschema": judge_forms,
        "helm lint": lambda: lint_chart(helm),
        "kube-score": lambda: score_chart(helm, built / "kube-score"),
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = dict(zip(judges, pool.map(lambda judge: judge(), judges.values()), strict=True))
    for name, found in verdicts.items():
        print(f"judges: {name}: {found or 'nothing found'}")
    if any(verdicts.values()):
        sys.exit("judges: fix what was found, or list it with its reason as judges/README.md says")


def judge_workflows() -> str:
    """What zizmor finds in its strictest reading. Offline: the same answer here, in CI and without a token."""
    strict = ["--offline", "--quiet", "--persona", "auditor"]
    return _run([PROGRAMS / "zizmor", *strict, "--config", LISTS / "zizmor.yaml", ROOT / ".github"])


def judge_forms() -> str:
    """renovate.json and the forms for issues, by their published schemas."""
    forms = ROOT / ".github/ISSUE_TEMPLATE"
    judged = {
        "vendor.renovate": [ROOT / "renovate.json"],
        "vendor.github-issue-config": [forms / "config.yml"],
        "vendor.github-issue-forms": sorted(set(forms.glob("*.yml")) - {forms / "config.yml"}),
    }
    program = PROGRAMS / "check-jsonschema"
    return "".join(_run([program, "--builtin-schema", schema, *paths]) for schema, paths in judged.items())


def lint_chart(helm: Path) -> str:
    """What Helm's own strict lint says of the chart, for each set of values."""
    return "".join(_run([helm, "lint", "--strict", "chart", "-f", path]) for path in _sets().values())


def score_chart(helm: Path, kube_score: Path) -> str:
    """What kube-score finds in the rendered chart that `judges/kube-score.yaml` does not list, or lists in vain."""
    found: set[Finding] = set()
    for name, path in _sets().items():
        rendered = _output([helm, "template", "hostler", "chart", "--namespace", "hostler", "-f", path])
        found |= read_scores(name, _output([kube_score, "score", "--output-format", "json", "-"], rendered))
    return compare_scores(found, yaml.safe_load((LISTS / "kube-score.yaml").read_text()))


def read_scores(values: str, answer: str) -> set[Finding]:
    """The findings in kube-score's JSON."""
    return {
        Finding(values, check["check"]["id"], comment["summary"])
        for scored in json.loads(answer)
        for check in scored["checks"]
        if not check["skipped"] and check["grade"] < 10  # 10: everything is as it should be
        for comment in check["comments"] or [{"summary": check["check"]["name"]}]
    }


def compare_scores(found: set[Finding], listed: Sequence[Mapping[str, Any]]) -> str:
    """One line for each finding that is not listed, and for each listed one that was not found."""
    excused = {Finding(name, entry["check"], entry["says"]) for entry in listed for name in entry["sets"]}
    lines = [f"{finding.values}: {finding.check}: {finding.says}" for finding in sorted(found - excused)]
    lines += [
        f"judges/kube-score.yaml excuses {finding.check} ({finding.says}) of set {finding.values}, "
        "which is not found any more"
        for finding in sorted(excused - found)
    ]
    return "".join(f"\n{line}" for line in lines)


def build_go_programs() -> Path:
    """The directory with the judges that are Go programs, built once for each judges/go.sum and Go version."""
    key = hashlib.sha256(platform.machine().encode())
    for name in ("go.mod", "go.sum"):
        key.update((LISTS / name).read_bytes())
    final = cache_dir() / f"judges-{key.hexdigest()[:16]}"
    if all((final / name).exists() for name in GO_PROGRAMS):
        return final
    go, version = find_go(print)
    print(f"judges: building {' and '.join(GO_PROGRAMS)} with {version}. This happens once.")
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as partial:
        command = [go, "build", "-trimpath", "-buildvcs=false", "-o", partial + "/", *GO_PROGRAMS.values()]
        done = subprocess.run(command, cwd=LISTS, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Complaint(
                f"The judges in judges/go.mod did not build: {done.stderr.strip()}",
                hint="Make the Go module proxy reachable.",
            )
        final.mkdir(exist_ok=True)
        for name in GO_PROGRAMS:
            (Path(partial) / name).replace(final / name)  # a second build at the same time replaces like by like
    return final


def _sets() -> dict[str, Path]:
    return {path.name.removesuffix("-values.yaml"): path for path in sorted((ROOT / "chart/ci").iterdir())}


def _workflows() -> list[Path]:
    return sorted((ROOT / ".github/workflows").glob("*.y*ml"))


def _run(command: Sequence[str | Path]) -> str:
    """What the program said if it found something, else nothing."""
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    return "" if done.returncode == 0 else f"\n{said or f'ended with code {done.returncode}'}"


def _output(command: Sequence[str | Path], given: str | None = None) -> str:
    """Standard output of a program that may find something, but must answer."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, input=given)
    if not done.stdout:
        raise SystemExit(f"judges: {words[0]} did not answer: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
