"""Every contract as text, kept beside this file, and what differs from it now."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml

from tests.contracts import tables, words
from tests.contracts.source import Source

FOLDER = Path(__file__).parent / "snapshots"
SOURCE = Path(__file__).parents[2] / "src"
TITLES = {
    "keys": "Annotations, labels, taints, finalizers and API versions that occur in the code.",
    "conditions": "Types of conditions with their reasons. `...` is made at run time: see words.yaml.",
    "events": "Reasons of Events with their types. `...` is made at run time: see words.yaml.",
    "words": "Every word in CamelCase by package: reasons, types and kinds, whichever way they reach an object.",
    "metrics": "Metrics with type and labels. A counter is scraped as NAME_total.",
    "routes": "Paths that our servers answer.",
    "answers": "Answers of the read API as JSON Schema.",
    "settings": "Settings by environment variable.",
    "commands": "Commands with arguments and options.",
    "values": "Values of the chart with their defaults.",
    "definitions": "CRDs.",
    "objects": "Objects of an installation with everything on, and what each role allows.",
}


def collect(source: Source) -> dict[str, Any]:
    """Every contract of the code as it is."""
    return {
        "keys": words.collect_keys(source),
        "conditions": words.collect_conditions(source),
        "events": words.collect_events(source),
        "words": words.collect_words(source),
        "metrics": words.collect_metrics(source),
        "routes": words.collect_routes(source),
        "answers": tables.collect_answers(source),
        "settings": tables.collect_settings(),
        "commands": tables.collect_commands(),
        "values": tables.collect_values(),
        "definitions": tables.collect_definitions(),
        "objects": tables.collect_objects(),
    }


def write_text(name: str, data: Any) -> str:
    """One contract as it is kept."""
    return f"# {TITLES[name]} Made by `make contracts`.\n" + yaml.safe_dump(data, sort_keys=False, width=110)


def differences(name: str, kept: str, now: str) -> str:
    """What a reader must know: each line that differs, and how to accept it."""
    lines = list(difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="", n=1))
    if not lines:
        return ""
    told = "\n".join(lines[2:])
    return (
        f"tests/contracts/snapshots/{name}.yaml differs from the code (-: what others rely on, +: the code now):\n"
        f"{told}\nIf that is on purpose, run `make contracts`, commit the difference, and name it in CHANGELOG.md."
    )


def read_kept(name: str) -> str:
    path = FOLDER / f"{name}.yaml"
    return path.read_text(encoding="utf-8") if path.exists() else ""
