"""Makes one sandbox the workload cluster of a Cluster in another, as a control plane provider would leave it."""

from __future__ import annotations

import json
from typing import Any

from hostler.errors import Complaint, Exit
from hostler.sandbox.hosts.boot import CLUSTER_NAME, WORKLOAD
from hostler.sandbox.life import Sandbox


def connect_workload(management: Sandbox, workload: Sandbox, namespace: str, cluster: str) -> list[str]:
    """Write the secrets that Cluster API reads of a cluster's control plane; returns their names. Safe to repeat."""
    if management.layout.root == workload.layout.root:
        raise Complaint(
            "A sandbox cannot be the workload cluster of itself.", hint="Name another with --from.", code=Exit.USAGE
        )
    for box in (management, workload):
        if not box.alive("kube-apiserver"):
            raise Complaint(
                f"The API server of the sandbox in {box.layout.root} does not run.",
                hint=f"`hostler sandbox up --dir {box.layout.root}` brings it back.",
                code=Exit.UNREACHABLE,
            )
    if not {"metal3", "bmo"} & {*management.state.options.crds}:
        raise Complaint(
            f"The sandbox in {management.layout.root} has no bare metal hosts, so no node would ever join.",
            hint="Start it with --crds metal3 or --crds bmo.",
            code=Exit.SETTING,
        )
    pki = workload.layout.pki

    def pair(name: str) -> dict[str, str]:
        return {"tls.crt": (pki / f"{name}.crt").read_text(), "tls.key": (pki / f"{name}.key").read_text()}

    # The last two are for a KubeadmControlPlane, whose etcd can only be an external one.
    contents = {
        "kubeconfig": {"value": workload.kubeconfig.read_text()},
        "ca": pair("ca"),
        "etcd": pair("ca"),
        "apiserver-etcd-client": pair("etcd"),
    }
    secrets = [_secret(namespace, cluster, purpose, content) for purpose, content in contents.items()]
    secrets[0]["metadata"]["annotations"] = {WORKLOAD: str(workload.layout.root)}
    documents = "\n---\n".join(json.dumps(secret) for secret in secrets)
    management.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=documents)
    return [secret["metadata"]["name"] for secret in secrets]


def _secret(namespace: str, cluster: str, purpose: str, content: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": f"{cluster}-{purpose}", "namespace": namespace, "labels": {CLUSTER_NAME: cluster}},
        "stringData": content,
    }
