"""A stand-in for Metal3's own provider as clusterctl installs it: its published kinds and a Deployment of its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hostler.apis.metal3 import GROUP
from hostler.metal.kinds.definitions import CONTRACTS, UNUSUAL_NAME, infrastructure_definitions

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "crds" / "metal3"
NAMESPACE, NAME = "capm3-system", "capm3-controller-manager"
LABELS = {"cluster.x-k8s.io/provider": "infrastructure-metal3"}
Json = dict[str, Any]


def published_definitions() -> list[Json]:
    """As published; ours, where this machine does not have those."""
    files = sorted(PUBLISHED.glob(f"{GROUP}_*.yaml"))
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files] or infrastructure_definitions()


def components() -> Iterator[Json]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": LABELS}}
    service = {"namespace": NAMESPACE, "name": "capm3-webhook-service", "path": "/convert"}
    for definition in published_definitions():
        metadata = definition["metadata"]
        metadata["labels"] = {**metadata.get("labels", {}), **CONTRACTS, **LABELS}
        metadata["annotations"] = {UNUSUAL_NAME: ""}
        definition["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]},
        }
        yield definition
    labels = {"control-plane": "controller-manager"}
    pod = {"containers": [{"name": "manager", "image": "capm3.invalid/manager", "args": ["--leader-elect"]}]}
    yield {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }  # fmt: skip


def write_repository(folder: Path) -> Path:
    """A local repository of clusterctl with it in; its components."""
    release = folder / "infrastructure-metal3" / "v1.14.0"
    release.mkdir(parents=True)
    series = [{"major": 1, "minor": 14, "contract": "v1beta2"}]
    metadata = {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata", "releaseSeries": series}
    (release / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    file = release / "infrastructure-components.yaml"
    file.write_text(yaml.safe_dump_all(components()))
    return file
