"""What `hostler install manifests` writes is taken by the API server (published CRDs) and by the real Ignition."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.apis.openshift import INFRASTRUCTURE, INGRESS, SCHEDULER
from hostler.cli.main import execute
from hostler.errors import Complaint
from hostler.join import ignition
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.records import Object
from hostler.sandbox import Sandbox, build
from tests.real.routing import install_openshift, set_status, undecide
from tests.unit.kube_pki import Authority
from tests.unit.test_ingress_install import given, workers

KINDS = {kind.kind: kind for kind in (INGRESS, INFRASTRUCTURE, SCHEDULER)}
LAYOUTS: dict[str, dict[str, Any]] = {
    "one node": given(),
    "one node, one worker": given(compute=workers(1)),
    "one node, three workers": given(compute=workers(3)),
    "highly available": given(controlPlane={"replicas": 3}, compute=workers(2)),
    "arbiter": given(controlPlane={"replicas": 2}, arbiter={"replicas": 1}, platform={"baremetal": {}}),
    "bootstrap in place": given(bootstrapInPlace={"installationDisk": "/dev/sda"}),
    "addresses": given(
        controlPlane={"replicas": 3}, platform={"baremetal": {"apiVIPs": ["fd00::1"], "ingressVIPs": ["fd00::2"]}}
    ),
}


@pytest.fixture
def openshift(sandbox: Sandbox) -> Iterator[None]:
    install_openshift(sandbox)
    undecide(sandbox)
    yield
    undecide(sandbox)


def ignited(*files: Path) -> list[dict[str, Any]]:
    """What the real validator says of each."""
    program = build.ensure("ignition", build.Silent())
    done = subprocess.run([str(program), *map(str, files)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


async def statuses_are_taken(sandbox: Sandbox, made: list[dict[str, Any]]) -> None:
    async with Client(load(str(sandbox.kubeconfig), None)) as client:
        for one in made:
            status, kind = {"status": one["status"]}, KINDS[one["kind"]]
            await client.patch(kind, "cluster", status, type=Object, subresource="status", dry_run=True)


def test_every_layout_is_taken(sandbox: Sandbox, openshift: None, tmp_path: Path) -> None:
    ca = tmp_path / "root-ca.pem"
    ca.write_bytes(Authority("machine config server").certificate)
    outs = []
    for number, (name, config) in enumerate(LAYOUTS.items()):
        path, out = tmp_path / f"{number}.yaml", tmp_path / str(number)
        path.write_text(yaml.safe_dump(config))
        assert execute(["install", "manifests", str(path), "--dir", str(out), "--root-ca", str(ca)]) == 0, name
        outs.append(out)
    manifests = {out: sorted((out / "manifests").iterdir()) for out in outs}
    for files in manifests.values():
        assert len(files) == 3
        flags = [word for file in files for word in ("-f", str(file))]
        sandbox.kubectl("create", "--dry-run=server", "--validate=strict", *flags)
    sandbox.kubectl("create", *flags)  # a status can only be tried on an object that is there
    made = [yaml.safe_load(file.read_text()) for files in manifests.values() for file in files]
    asyncio.run(statuses_are_taken(sandbox, made))
    said = ignited(*(out / "worker.ign" for out in outs))
    assert [one["valid"] for one in said] == [True] * len(LAYOUTS), said


def test_the_api_server_would_have_said_no(sandbox: Sandbox, openshift: None) -> None:
    """So that the test above can fail."""
    about = {"apiVersion": "config.openshift.io/v1", "kind": "Ingress", "metadata": {"name": "cluster"}, "spec": {}}
    sandbox.kubectl("create", "-f", "-", input=json.dumps(about))
    with pytest.raises(Complaint, match="defaultPlacement"):
        set_status(sandbox, INGRESS.resource, "cluster", {"defaultPlacement": "Elsewhere"}, "--dry-run=server")


def test_the_validator_says_no_to_what_is_broken(tmp_path: Path) -> None:
    good = ignition.pointer("api-int.c.example.org:22623", Authority("root").certificate)
    broken: dict[str, Any] = {
        "no version": {"ignition": {key: value for key, value in good["ignition"].items() if key != "version"}},
        "a source that is no URL": {"ignition": {**good["ignition"], "config": {"merge": [{"source": "nowhere"}]}}},
        "a field nobody knows": {**good, "passwords": {}},
        "a CA that is no data": {
            "ignition": {**good["ignition"], "security": {"tls": {"certificateAuthorities": [{"source": "data:x"}]}}}
        },
    }
    files = []
    for name, config in {"good": good, **broken}.items():
        path = tmp_path / f"{name}.ign"
        path.write_bytes(ignition.written(config))
        files.append(path)
    said = ignited(*files)
    assert [one["valid"] for one in said] == [True, False, False, False, False], said
    assert all(one["report"] for one in said[1:])
