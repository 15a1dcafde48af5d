"""The walk of docs/contribute.md: a capability made from its code blocks runs in the operator's own wiring."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n# (?P<path>\S+\.py)(?P<where>[^\n]*)\n(?P<code>.*?)```", re.DOTALL)
TABLE_ENDS = "\n)\n\nBY_NAME"
# In the new tree, without an API server: what the operator makes of its settings, and what it would explain.
WIRED = """
import asyncio, json, sys
from hostler import capabilities
from hostler.explain.registry import Registry
from hostler.operator import Operator

async def wire():
    assert capabilities.__file__.startswith(sys.argv[1]), "another tree"
    operator = Operator(capabilities.read_settings({"only": "crowding", "kubeconfig": sys.argv[2]}, {}))
    operator._wire()
    made, registry = operator._capabilities["crowding"], Registry()
    made.register(registry, lambda: None)
    said = registry.explain("node", "a").explanations[0].outcome
    await operator._client.close()
    print(json.dumps({"on": list(operator._capabilities), "controllers": list(operator._controllers), "said": said}))

asyncio.run(wire())
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with the capability of the page in them."""
    root = tmp_path_factory.mktemp("walk")
    leave = shutil.ignore_patterns("__pycache__", "sandbox")
    shutil.copytree(REPOSITORY / "src/hostler", root / "src/hostler", ignore=leave)
    blocks = list(BLOCK.finditer((REPOSITORY / "docs/contribute.md").read_text()))
    assert len(blocks) == 5
    for block in blocks:
        path = root / block["path"]
        if block["where"]:
            before, end, after = path.read_text().partition(TABLE_ENDS)
            assert end, "where the table ends is not found"
            path.write_text(f"{before}\n{block['code'].rstrip()}{end}{after}")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(block["code"])
    (root / "src/hostler/crowding/__init__.py").write_text('"""Nodes that run many pods."""\n')
    return root


def run(tree: Path, *words: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(tree), "PYTHONPATH": str(tree / "src")}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, env=env, cwd=tree)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_operator_runs_the_capability_of_the_page(tree: Path) -> None:
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "a", "user": {"token": "x"}}],
    }
    (tree / "kubeconfig").write_text(json.dumps(config))
    wired = json.loads(run(tree, "-c", WIRED, str(tree), str(tree / "kubeconfig")))
    assert wired == {
        "on": ["crowding"],
        "controllers": ["fleet", "holds", "crowding"],
        "said": "0 pods run there, at most 100 may.",
    }


def test_its_settings_and_rights_are_there_without_another_line(tree: Path) -> None:
    shown = json.loads(run(tree, "-m", "hostler", "config", "--output", "json"))
    assert "CROWDING_PODS" in {one["name"] for one in shown["settings"]}
    rights = run(tree, "-m", "hostler", "rights", "--only", "crowding")
    assert "Crowded nodes are annotated." in rights
    assert "Crowded nodes are annotated." not in run(tree, "-m", "hostler", "rights", "--only", "join")


@pytest.mark.full
def test_its_types_are_right(tree: Path) -> None:
    words = ("-m", "mypy", "--strict", "--cache-dir", str(tree / "mypy"), "--follow-imports", "silent")
    run(tree, *words, *map(str, sorted((tree / "src/hostler/crowding").glob("*.py"))))
