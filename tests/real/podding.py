"""A pod of the chart's Deployment, played without a container runtime: the image's own root file system, the pod's
environment and volumes as the API server has them, the ServiceAccount's own token.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostler.sandbox import Sandbox
from tests.real.operating import Running

MOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
USER = 65532
Object = dict[str, Any]


def within(root: Path, *words: str) -> list[str]:
    """A command that runs with `root` as its file system, as the image's user."""
    places = f"{os.environ['PATH']}:/usr/sbin:/sbin"  # the image's own PATH has none of these
    chroot, unshare = (str(shutil.which(name, path=places)) for name in ("chroot", "unshare"))
    if os.geteuid() == 0:
        return [chroot, f"--userspec={USER}:{USER}", "--groups=", str(root), *words]
    return [unshare, "--user", "--map-root-user", chroot, str(root), *words]  # as root of nothing but itself


@dataclass(frozen=True)
class Image:
    """An unpacked image and its configuration."""

    root: Path
    config: Object

    @property
    def environment(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.config["config"]["Env"])

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = within(self.root, *self.config["config"]["Entrypoint"], *words)
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)


def variables(sandbox: Sandbox, pod: Object) -> dict[str, str]:
    """The environment of the pod's one container, resolved as a kubelet does."""
    namespace = pod["metadata"]["namespace"]
    (container,) = pod["spec"]["containers"]
    told: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        told |= sandbox.get("configmap", source["configMapRef"]["name"], "-n", namespace)["data"]
    fields = {
        "metadata.name": pod["metadata"]["name"], "metadata.namespace": namespace,
        "spec.nodeName": pod["spec"].get("nodeName", ""),
    }  # fmt: skip
    for one in container["env"]:
        origin = one.get("valueFrom", {})
        if "fieldRef" in origin:
            told[one["name"]] = fields[origin["fieldRef"]["fieldPath"]]
        elif "secretKeyRef" in origin:
            found = sandbox.get("secret", origin["secretKeyRef"]["name"], "-n", namespace)["data"]
            told[one["name"]] = base64.b64decode(found[origin["secretKeyRef"]["key"]]).decode()
        else:
            told[one["name"]] = one["value"]
    return told


def mount(sandbox: Sandbox, pod: Object, root: Path) -> None:
    """The pod's volumes and its ServiceAccount's token, as files."""
    namespace = pod["metadata"]["namespace"]
    (container,) = pod["spec"]["containers"]
    volumes = {one["name"]: one for one in pod["spec"].get("volumes", ())}
    for where in container.get("volumeMounts", ()):
        volume = volumes[where["name"]]
        if "secret" in volume:
            data = sandbox.get("secret", volume["secret"]["secretName"], "-n", namespace)["data"]
            _write(root / where["mountPath"].lstrip("/"), {k: base64.b64decode(v) for k, v in data.items()})
        elif "configMap" in volume:
            data = sandbox.get("configmap", volume["configMap"]["name"], "-n", namespace)["data"]
            _write(root / where["mountPath"].lstrip("/"), {k: v.encode() for k, v in data.items()})
    token = sandbox.kubectl("create", "token", pod["spec"]["serviceAccountName"], "-n", namespace, "--duration=1h")
    authority = sandbox.get("configmap", "kube-root-ca.crt", "-n", namespace)["data"]["ca.crt"]
    parts = {"token": token.strip().encode(), "ca.crt": authority.encode(), "namespace": namespace.encode()}
    _write(root / MOUNT, parts)


def _write(folder: Path, parts: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in parts.items():
        (folder / name).write_bytes(content)


@contextmanager
def running(sandbox: Sandbox, image: Image, pod: Object, folder: Path) -> Iterator[Running]:
    """The pod's process. Only its port is another: pods have addresses of their own, processes do not."""
    mount(sandbox, pod, image.root)
    env = image.environment | variables(sandbox, pod)
    env |= {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(sandbox.state.ports["kube-apiserver"]),
        "HOSTLER_HTTP_ADDRESS": "127.0.0.1:0",
    }
    (container,) = pod["spec"]["containers"]
    command = within(image.root, *image.config["config"]["Entrypoint"], *container["args"])
    log = folder / f"{pod['metadata']['name']}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env)
    account = f"system:serviceaccount:{pod['metadata']['namespace']}:{pod['spec']['serviceAccountName']}"
    found = Running(process, log, account)
    try:
        yield found
        found.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
