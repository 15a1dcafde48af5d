"""What Artifact Hub shows of the chart: the annotations at the end of Chart.yaml, and chart/README.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hostler.capabilities import CAPABILITIES
from hostler.install.crd import definitions

MARK = "# Made by `make chart`, down to the end.\n"
# A valid object of each kind of ours; OLM shows them too.
EXAMPLES: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"},
        "spec": {"maxUnavailable": 1},
    },
    {
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Pause", "metadata": {"name": "ada"},
        "spec": {"why": "The storage is being replaced.", "by": "ada"},
    },
)  # fmt: skip
HEAD = """\
# Hostler

{description}

```
helm install hostler oci://REGISTRY/charts/hostler --namespace hostler --create-namespace \\
  --set image.repository=REGISTRY/hostler --set dryRun=true
```

This installs a dry run: Hostler logs what it would do and writes nothing. The next steps are in docs/install.md of the
source.

## Capabilities

| value | default | what it does |
|---|---|---|
"""
VALUES = """
## Values

`values.schema.json` rejects wrong names, types and numbers. docs/settings.md of the source describes every setting.

| value | default | what it is |
|---|---|---|
"""


def annotated_chart(text: str) -> str:
    """Chart.yaml with the annotations as they are now; what stands above the mark stays."""
    return f"{text.partition(MARK)[0]}{MARK}" + yaml.safe_dump(
        {"annotations": list_annotations()}, sort_keys=False, width=1000
    )


def list_annotations() -> dict[str, str]:
    crds = [
        {
            "kind": kind.kind, "version": kind.version, "name": made["metadata"]["name"], "displayName": kind.kind,
            "description": describe(made),
        }
        for kind, made in definitions().items()
    ]  # fmt: skip
    return {
        "artifacthub.io/license": "Apache-2.0",
        "artifacthub.io/operator": "true",
        "artifacthub.io/operatorCapabilities": "Basic Install",
        "artifacthub.io/crds": _dump(crds),
        "artifacthub.io/crdsExamples": _dump(list(EXAMPLES)),
    }


def describe(definition: dict[str, Any]) -> str:
    """What a CRD says of its kind."""
    return str(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"])


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000)


def readme(chart: Path) -> str:
    """The page of the chart, from values.yaml and its comments."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    text = (chart / "values.yaml").read_text(encoding="utf-8")
    on = yaml.safe_load(text)["capabilities"]
    rows = [
        f"| `capabilities.{capability.name}` | `{str(on[capability.name]).lower()}` | {capability.help} |"
        for capability in CAPABILITIES
        if not capability.always
    ]
    values = (row for row in _values(text) if not row[0].startswith("capabilities."))
    lines = [f"| `{name}` | {default} | {why} |" for name, default, why in values]
    return HEAD.format(description=about["description"]) + "\n".join(rows) + "\n" + VALUES + "\n".join(lines) + "\n"


def _values(text: str) -> list[tuple[str, str, str]]:
    """Each value with its default, and the comment right above it and beside it."""
    rows: list[tuple[str, str, str]] = []
    path: list[tuple[int, str]] = []  # how far a name is indented, and the name
    comment: list[str] = []
    for line in text.splitlines():
        found = re.fullmatch(r"( *)([\w-]+):(?: +((?:\"[^\"]*\"|[^#])*?))?(?: *# (.*))?", line)
        if note := re.fullmatch(r" *# ?(.*)", line):
            comment.append(note[1])
        elif found:
            depth = len(found[1])
            while path and path[-1][0] >= depth:
                path.pop()
            path.append((depth, found[2]))
            if found[3]:
                name = ".".join(part for _, part in path)
                rows.append((name, f"`{found[3]}`", " ".join(filter(None, (*comment, found[4])))))
            comment = []
        else:
            comment = []
    return rows
