"""Two management clusters with the real Cluster API and one workload cluster, for all files of this folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.sandbox import Options, Sandbox

MANAGEMENT = Options(extras=("capi",), crds=("metal3",), audit=True)


def started(folders: pytest.TempPathFactory, name: str, options: Options) -> Iterator[Sandbox]:
    """A sandbox of this folder's own, or the one that is kept; see the conftest above."""
    kept = os.environ.get("HOSTLER_TEST_SANDBOX")
    folder = Path(f"{kept}-{name}") if kept else folders.mktemp(name)
    with (folders.getbasetemp().parent / "ports").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # nobody else chooses ports meanwhile
        box = Sandbox.up(folder, options)
    yield box
    if kept:
        return
    box = Sandbox.open(box.layout.root)  # parts may have been brought back since
    processes = [box.state.parts[part] for part in box.part_names]
    box.down()
    assert not any(process.alive for process in processes), "down ends every part, the managers too"


@pytest.fixture(scope="package")
def management(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    yield from started(tmp_path_factory, "management", MANAGEMENT)


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A second management cluster, to which clusters move."""
    yield from started(tmp_path_factory, "target", MANAGEMENT)


@pytest.fixture(scope="package")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    yield from started(tmp_path_factory, "workload", Options())
