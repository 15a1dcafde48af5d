"""Management clusters with the real Cluster API and one workload cluster, for all files of this folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hostler.sandbox import Options, Sandbox
from hostler.ship import components
from tests.real import clusterctl_go_provider as go_provider
from tests.real.clusterctl_world import PROVIDER, VARIABLES, init, providers

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


@pytest.fixture(scope="package")
def without_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A management cluster without a provider for metal."""
    yield from started(tmp_path_factory, "bare", Options(extras=("capi",), crds=("bmo",), audit=True))


@pytest.fixture(scope="package")
def bare(without_provider: Sandbox, tmp_path_factory: pytest.TempPathFactory, workload: Sandbox) -> Sandbox:
    """The same, and its clusterctl knows ours and the stand-in for the Go one."""
    folder = tmp_path_factory.mktemp("repository")
    ours = components.write_repository(folder) / "infrastructure-components.yaml"
    settings = without_provider.layout.clusterctl / "cluster-api" / "clusterctl.yaml"
    told = yaml.safe_load(settings.read_text())
    named = {PROVIDER: ours, "metal3": go_provider.write_repository(folder)}
    told["providers"] = [one for one in told["providers"] if one["name"] not in named]
    for name, file in named.items():
        told["providers"].append({"name": name, "type": "InfrastructureProvider", "url": file.as_uri()})
    etcd = f"https://127.0.0.1:{workload.state.ports['etcd']}"
    settings.write_text(yaml.safe_dump({**told, **VARIABLES, "ETCD_ENDPOINTS": etcd}))
    return without_provider


@pytest.fixture
def installed(bare: Sandbox) -> Sandbox:
    if PROVIDER not in providers(bare):
        init(bare, PROVIDER)
    return bare


@pytest.fixture
def place(bare: Sandbox) -> Iterator[str]:
    """A namespace for a cluster."""
    name = f"metal-{os.urandom(3).hex()}"
    bare.kubectl("create", "namespace", name)
    yield name
    bare.kubectl("delete", "namespace", name, "--timeout=120s")  # while the operator lets go of what is in it
