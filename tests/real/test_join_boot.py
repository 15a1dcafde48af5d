"""What new machines boot with: every config passes the real Ignition; what is served is what the hash says."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path

import pytest

from hostler.join import ignition
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.operating import environment, hostler
from tests.real.test_ingress_install import ignited
from tests.real.tls_port import tls_port
from tests.unit.kube_pki import Authority, Pair

SECRETS = "openshift-machine-api"


def config_server(pair: Pair, folder: Path) -> AbstractContextManager[int]:
    """A machine config server, as far as its certificate goes."""
    return tls_port(pair.certificate, pair.key, folder)


def test_every_pointer_passes_the_real_validator(tmp_path: Path) -> None:
    ca = Authority("root").certificate
    both = ca + Authority("next").certificate
    servers = {
        "name": ignition.server_of("ocp.example.org"),
        "vip": ignition.server_of("ocp.example.org", "192.0.2.7"),
        "vip6": ignition.server_of("ocp.example.org", "2001:db8::7"),
    }
    labelled = UNIT.replace("--v=2", "--node-labels='ä=\"${ID}\"'")
    drop_ins = ("", ignition.make_drop_in(UNIT), ignition.make_drop_in(labelled))
    files = []
    for number, (server, bundle, drop_in) in enumerate(product(servers.values(), (ca, both), drop_ins)):
        path = tmp_path / f"{number}.ign"
        path.write_bytes(ignition.written(ignition.pointer(server, bundle, drop_in=drop_in)))
        files.append(path)
    assert [(one["valid"], one["report"]) for one in ignited(*files)] == [(True, [])] * len(files)


@pytest.fixture
def pointer(sandbox: Sandbox, tmp_path: Path) -> Iterator[Authority]:
    """The Secret a live cluster has, with a machine config server that answers."""
    root = Authority("machine config server")
    sandbox.kubectl("create", "namespace", SECRETS, check=False)
    with config_server(root.issue("mcs", "127.0.0.1"), tmp_path) as port:
        config = ignition.written(ignition.pointer(f"127.0.0.1:{port}", root.certificate))
        data = {"userData": base64.b64encode(config).decode()}
        meta = {"name": "worker-user-data-managed", "namespace": SECRETS}
        sandbox.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
        yield root
    sandbox.kubectl("delete", "secret", "worker-user-data-managed", "-n", SECRETS)


def test_the_cluster_s_own_pointer_is_checked_and_written(sandbox: Sandbox, pointer: Authority, tmp_path: Path) -> None:
    out = tmp_path / "worker.ign"
    done = hostler(sandbox.kubeconfig, "join", "ignition", "--out", str(out), "--device", "/dev/nvme0n1")
    assert done.returncode == 0, done.stderr
    assert out.stat().st_mode & 0o77 == 0
    assert ignited(out)[0]["valid"]
    assert f"coreos-installer install /dev/nvme0n1 --ignition-file={out} --platform=metal" in done.stderr
    again = hostler(sandbox.kubeconfig, "join", "ignition", "--out", str(out))
    assert again.returncode == 5
    assert "there already" in again.stderr
    printed = hostler(sandbox.kubeconfig, "join", "ignition")
    assert printed.stdout.encode().strip() == out.read_bytes().strip()


UNIT = """[Service]
ExecStart=/usr/bin/kubelet \\
  --config=/etc/kubernetes/kubelet.conf \\
  --cloud-provider=external \\
  --v=2
"""


def test_a_machine_in_no_cloud_gets_a_kubelet_without_its_provider(
    sandbox: Sandbox, pointer: Authority, tmp_path: Path
) -> None:
    """Made from the unit of the cluster's workers where that can be read; said where it cannot."""
    said = hostler(sandbox.kubeconfig, "join", "ignition").stderr
    assert "cannot be read" in said
    assert "uninitialized taint" in said
    install_crds(sandbox, ("openshift",), Silent())
    api = "machineconfiguration.openshift.io/v1"
    units = [{"name": "kubelet.service", "enabled": True, "contents": UNIT}]
    config = {"ignition": {"version": "3.2.0"}, "systemd": {"units": units}}
    rendered = f"rendered-worker-{os.urandom(4).hex()}"
    sandbox.apply(
        {"apiVersion": api, "kind": "MachineConfig", "metadata": {"name": rendered}, "spec": {"config": config}},
        {"apiVersion": api, "kind": "MachineConfigPool", "metadata": {"name": "worker"},
         "spec": {"configuration": {"name": rendered}}},
    )  # fmt: skip
    out = tmp_path / "metal.ign"
    try:
        done = hostler(sandbox.kubeconfig, "join", "ignition", "--out", str(out))
        kept = hostler(sandbox.kubeconfig, "join", "ignition", "--cloud-provider")
    finally:
        sandbox.kubectl("delete", "machineconfigpools,machineconfigs", "--all")
    assert f"without the cloud provider that MachineConfig {rendered} gives it" in done.stderr
    assert [(one["valid"], one["report"]) for one in ignited(out)] == [(True, [])]
    (unit,) = json.loads(out.read_text())["systemd"]["units"]
    (drop_in,) = unit["dropins"]
    assert drop_in["contents"].rpartition("ExecStart=")[2].split() == [
        "/usr/bin/kubelet", "--config=/etc/kubernetes/kubelet.conf", "--v=2",
    ]  # fmt: skip
    assert "systemd" not in json.loads(kept.stdout)


def test_a_ca_that_is_not_the_server_s_is_refused(sandbox: Sandbox, pointer: Authority, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("another").certificate)
    stored = json.loads(
        base64.b64decode(sandbox.get("secret", "worker-user-data-managed", "-n", SECRETS)["data"]["userData"])
    )
    server, _ = ignition.read_pointer(stored)
    words = ("join", "ignition", "--root-ca", str(other), "--server", server)
    refused = hostler(sandbox.kubeconfig, *words)
    assert refused.returncode == 5
    assert "does not serve a certificate of the CA" in refused.stderr
    assert hostler(sandbox.kubeconfig, *words, "--no-check").returncode == 0


def test_without_a_pointer_nothing_is_made_up(sandbox: Sandbox) -> None:
    done = hostler(sandbox.kubeconfig, "join", "ignition")
    assert done.returncode == 5
    assert "worker-user-data-managed" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("https", [False, True])
def test_what_is_served_is_what_the_hash_says(sandbox: Sandbox, tmp_path: Path, https: bool) -> None:
    root = Authority("root")
    (tmp_path / "ca.pem").write_bytes(root.certificate)
    words = ["join", "serve", "--root-ca", str(tmp_path / "ca.pem"), "--server", "mcs.example.org:22623", "--no-check"]
    words += ["--listen", "127.0.0.1:0", "--times", "1", "--for", "300s"]
    if https:
        pair = root.issue("localhost", "127.0.0.1")
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        words += ["--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")]
    else:
        words += ["--plain-http"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hostler", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(sandbox.kubeconfig), cwd=tmp_path,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "--insecure-ignition" not in line
        found = re.search(r"--ignition-url=(\S+) --ignition-hash=sha512-(\S+) --platform=metal", line)
        assert found is not None, line
        trust = ssl.create_default_context(cafile=tmp_path / "ca.pem") if https else None
        nowhere = found[1].rpartition("/")[0][:-4] + "aaaa/worker.ign"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(nowhere, timeout=60, context=trust).close()
        with urllib.request.urlopen(found[1], timeout=60, context=trust) as answer:
            content = answer.read()
        assert hashlib.sha512(content).hexdigest() == found[2]
        path = tmp_path / "fetched.ign"
        path.write_bytes(content)
        assert ignited(path)[0]["valid"]
        assert process.wait(120) == 0, "once was all it may be fetched"
        assert process.stderr is not None
        assert "fetched 1 times" in process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def test_the_guide_knows_the_cluster(sandbox: Sandbox) -> None:
    """Seven steps for plain Kubernetes, and for OpenShift with the image of its version."""
    plain = hostler(sandbox.kubeconfig, "join", "guide", "w-1")
    assert plain.returncode == 0, plain.stderr
    assert "join cloud-init w-1" in plain.stdout
    install_crds(sandbox, ("openshift",), Silent())
    version = {"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"}}
    sandbox.apply({**version, "spec": {"clusterID": "42100fe1-0a04-4eb7-9b73-9a3d4578b557"}})
    desired = {"desired": {"version": "4.20.3", "image": "x"}, "observedGeneration": 1, "versionHash": "x"}
    status = {"status": {**desired, "availableUpdates": []}}
    try:
        words = ("patch", "clusterversion", "version", "--subresource=status", "--type=merge", "-p")
        sandbox.kubectl(*words, json.dumps(status))
        said = hostler(sandbox.kubeconfig, "join", "guide", "w-1").stdout
    finally:
        sandbox.kubectl("delete", "clusterversion", "version")
    assert [line[:2] for line in said.splitlines() if line[:1].isdigit()] == [f"{number}." for number in range(1, 8)]
    for word in ("RHCOS live image of 4.20", "hostler join serve", "coreos-installer", "join expect w-1", "join csrs"):
        assert word in said
