"""`hostler sandbox up --with capi`: the real Cluster API in a sandbox, its webhooks, clusterctl, and its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hostler.errors import Complaint, Exit
from hostler.sandbox import Sandbox, build
from hostler.sandbox.capi import components
from hostler.sandbox.parts import MANAGERS
from tests.real.capi_world import CAPI, GROUP, cluster

pytestmark = pytest.mark.xdist_group("sandbox")  # one more at a time beside the shared one


def hostler(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hostler", "sandbox", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def listening(pid: int) -> set[str]:
    """The addresses a process listens on, as the kernel writes them."""
    sockets = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}
    lines = [
        line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    ]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


def test_a_second_use_needs_no_go_and_no_network(management: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("GOPROXY", "off")
    assert str(build.ensure("capi", build.Silent())) == management.state.programs["capi"]
    assert {*components(build.Silent())} == {*MANAGERS, "clusterctl", "metadata"}


def test_the_managers_run_and_listen_on_loopback_only(management: Sandbox) -> None:
    parts = {part.name: part for part in management.status()}
    assert {*MANAGERS} < {*parts}
    for name in MANAGERS:
        assert parts[name].alive
        assert listening(parts[name].pid) == {"0100007F"}, name


def test_webhooks_refuse_and_convert(management: Sandbox) -> None:
    reference = {"apiGroup": GROUP, "kind": "Metal3Machine", "name": "m"}
    machine = {
        "apiVersion": CAPI, "kind": "Machine", "metadata": {"name": "m"},
        "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference},
    }  # fmt: skip
    with pytest.raises(Complaint, match=r"expected either spec\.bootstrap\.dataSecretName"):
        management.apply(machine)
    management.apply(cluster("converted"))
    old = json.loads(management.kubectl("get", "clusters.v1beta1.cluster.x-k8s.io", "converted", "-o", "json"))
    assert old["spec"]["infrastructureRef"]["namespace"] == "default", "v1beta2 has no namespace there"
    management.kubectl("delete", "cluster", "converted")


def test_a_killed_manager_is_named_and_brought_back(management: Sandbox) -> None:
    management.kill("capi-core")
    status = hostler("status", "--dir", str(management.layout.root))
    assert status.returncode == Exit.FAILED
    assert "capi-core is dead" in status.stderr
    with pytest.raises(Complaint, match="failed calling webhook"):
        management.apply(cluster("refused"))
    assert "capi-core" in Sandbox.up(management.layout.root, management.state.options).news
    management = Sandbox.open(management.layout.root)
    management.apply(cluster("taken"))
    management.kubectl("delete", "cluster", "taken")


def test_clusterctl_knows_what_is_installed(management: Sandbox) -> None:
    version = json.loads(management.clusterctl("version", "-o", "json"))["clusterctl"]
    listed = management.get("providers.clusterctl.cluster.x-k8s.io", "-A")["items"]
    assert {one["version"] for one in listed} == {version["gitVersion"]}
    assert {one["type"] for one in listed} == {"CoreProvider", "BootstrapProvider", "ControlPlaneProvider"}
    planned = management.clusterctl("upgrade", "plan")
    assert planned.count("Already up to date") == 3, planned


def test_clusterctl_init_installs_a_provider_without_a_network(management: Sandbox, tmp_path: Path) -> None:
    settings = management.layout.clusterctl / "cluster-api" / "clusterctl.yaml"
    release = tmp_path / "infrastructure-example" / "v0.1.0"
    release.mkdir(parents=True)
    series = {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata"}
    contract = {"major": 0, "minor": 1, "contract": "v1beta2"}
    (release / "metadata.yaml").write_text(json.dumps({**series, "releaseSeries": [contract]}))
    label = {"cluster.x-k8s.io/provider": "infrastructure-example"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "example-system", "labels": label}}
    components = release / "infrastructure-components.yaml"
    components.write_text(json.dumps(namespace))
    before = settings.read_text()
    named = yaml.safe_load(before)
    named["providers"].append({"name": "example", "type": "InfrastructureProvider", "url": components.as_uri()})
    settings.write_text(yaml.safe_dump(named))
    try:
        management.clusterctl("init", "--infrastructure", "example")
        listed = management.get("providers.clusterctl.cluster.x-k8s.io", "-n", "example-system")["items"]
        assert [(one["providerName"], one["version"]) for one in listed] == [("example", "v0.1.0")]
        management.clusterctl("delete", "--infrastructure", "example", "--include-namespace")
    finally:
        settings.write_text(before)


def test_a_sandbox_without_cluster_api_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    done = hostler("clusterctl", "--dir", str(sandbox.layout.root), "version")
    assert done.returncode == Exit.SETTING
    assert "--with capi" in done.stderr
    done = hostler("up", "--dir", str(tmp_path / "d"), "--with", "openstack")
    assert done.returncode == Exit.USAGE
    assert "--with knows capi" in done.stderr
