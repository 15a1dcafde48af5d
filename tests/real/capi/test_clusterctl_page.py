"""docs/metal-clusterctl.md, "Try it without a cluster": its lines, run as they stand, make a cluster that runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.errors import Complaint
from hostler.sandbox import Sandbox, build
from tests.real.shell import make_kubectl

pytestmark = pytest.mark.xdist_group("sandbox")
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/metal-clusterctl.md").read_text()
# What `make provider` needs of a clone, and where it finds the environment that is there already.
CLONE = ("Makefile", "pyproject.toml", "requirements.lock")


def walk() -> str:
    """The blocks of that section that are commands."""
    section = PAGE.partition("## Try it without a cluster\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return "".join(block for language, block in blocks if not language)


def test_the_lines_are_ones_that_a_shell_can_read() -> None:
    assert walk().count("hostler sandbox") > 6
    done = subprocess.run(["bash", "-n"], input=walk(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A folder in which the lines run; no sandbox of theirs outlives the test."""
    for name in CLONE:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    make_kubectl(str(build.ensure("controlplane", build.Silent())), tmp_path / "bin")
    yield tmp_path
    for name in ("d", "w"):
        try:
            Sandbox.open(tmp_path / name).down()
        except Complaint:
            pass  # the lines have ended it themselves


@pytest.mark.full
def test_its_lines_make_a_cluster_from_nothing_that_runs(clone: Path) -> None:
    path = f"{clone / 'bin'}:{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOSTLER_", "KUBE"))}
    process = subprocess.Popen(
        ["bash", "-e", "-o", "pipefail", "-c", walk()], cwd=clone, env={**environment, "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, wrong = process.communicate(timeout=600)
        log = clone / "operator.log"
        assert process.returncode == 0, f"{wrong[-3000:]}\n{log.read_text()[-3000:] if log.exists() else ''}"
        assert re.search(r"^c1-control-plane-\w+ +c1 +c1-control-plane-\w+ .*Running", said, re.MULTILINE), said
        assert re.search(r"^c1-workers-\S+ +c1 +c1-workers-\S+ .*Running", said, re.MULTILINE), said
        assert 'cluster.cluster.x-k8s.io "c1" deleted' in said
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing of it is left
