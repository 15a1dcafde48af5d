"""The alerts of the chart: one file per capability in `chart/alerts`, as Prometheus itself reads rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml


class Alert(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One alert. `summary` is what is the case, `description` what it means, `runbook` what to do."""

    alert: str
    expr: str
    for_: str = msgspec.field(name="for", default="0s")
    keep_firing_for: str = "0s"
    labels: dict[str, str]
    annotations: dict[str, str]


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rules: tuple[Alert, ...]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[Group, ...]


def at_once(alert: Alert) -> bool:
    """Whether it fires on the first of something, which Prometheus sees only if the counter was there as 0."""
    return "increase(" in alert.expr and re.search(r"\) > 0(?![.])", alert.expr) is not None


def read(folder: Path) -> dict[str, tuple[Alert, ...]]:
    """Every alert by capability. A file that says anything else than alerts is an error."""
    found: dict[str, tuple[Alert, ...]] = {}
    for path in sorted(folder.glob("*.yaml")):
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        read = msgspec.convert(document, type=File)
        found[path.stem] = tuple(rule for group in read.groups for rule in group.rules)
    return found
