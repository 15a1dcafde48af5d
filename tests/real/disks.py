"""Volumes for pods of the tests, on the sandbox's CSI driver."""

from __future__ import annotations

from typing import Any

from hostler.sandbox import Sandbox

DRIVER = "csi.sandbox.hostler.dev"


def make_disks(sandbox: Sandbox, namespace: str, *names: str) -> None:
    """A PersistentVolume `NAMESPACE-NAME` each and the claim `NAME` bound to it, when this returns.

    The attach-detach controller looks once when it sees a pod: if the claim is not bound then, again in three minutes.
    """
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    made = []
    for name in names:
        volume = f"{namespace}-{name}"
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        csi = {"driver": DRIVER, "volumeHandle": volume}
        made += [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": {**spec, "capacity": {"storage": "1Gi"}, "claimRef": claim, "csi": csi},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {**spec, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
            },
        ]
    sandbox.apply(*made)
    claims = [f"pvc/{name}" for name in names]
    sandbox.kubectl("wait", "-n", namespace, *claims, "--for=jsonpath={.status.phase}=Bound", "--timeout=60s")


def uses(name: str) -> list[dict[str, Any]]:
    """The volumes of a pod that writes to this one."""
    return [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]
