"""A bundle for the Operator Lifecycle Manager: the objects of `hostler manifests` with nothing switched on.

OLM knows no namespaces but its own, so a capability with rights in others cannot be part of a bundle. Who switches one
on gives it its rights with `hostler rights`, as docs/install.md says. It does not install admission policies either.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from hostler import __version__
from hostler.install.crd import definitions
from hostler.install.manifests import Wanted, list_manifests
from hostler.install.roles import Account
from hostler.ship.artifact_hub import EXAMPLES, describe

Json = dict[str, Any]
PACKAGE, CHANNEL, MIN_KUBERNETES = "hostler", "alpha", "1.26.0"
_OPERATORS = "operators.operatorframework.io.bundle"
ANNOTATIONS = {
    f"{_OPERATORS}.mediatype.v1": "registry+v1",
    f"{_OPERATORS}.manifests.v1": "manifests/",
    f"{_OPERATORS}.metadata.v1": "metadata/",
    f"{_OPERATORS}.package.v1": PACKAGE,
    f"{_OPERATORS}.channels.v1": CHANNEL,
    f"{_OPERATORS}.channel.default.v1": CHANNEL,
}
DESCRIPTION = """\
Hostler looks after the hosts under Kubernetes clusters for their whole life: maintenance of ESXi hosts under worker
VMs, bare metal hosts for Cluster API, hosts without a BMC, ingress on small clusters, and nodes that join.

After the installation nothing is switched on: Hostler keeps holds and the status of the Fleet. To switch a capability
on, name it in `spec.config.env` of the Subscription (`HOSTLER_ONLY`), and grant its rights with `hostler rights`.
"""


def write_bundle(folder: Path, image: str, source: str) -> Path:
    """The bundle as a directory. `image`: without its tag; `source`: the address of the repository."""
    wanted = Wanted(Account(PACKAGE), f"{image}:{__version__}")
    made = list(list_manifests(wanted))
    for name, text in (
        *((f"manifests/{_file_of(manifest)}", _dump(manifest)) for manifest in made if _is_file(manifest, wanted)),
        (f"manifests/{PACKAGE}.clusterserviceversion.yaml", _dump(service_version(made, wanted, source))),
        ("metadata/annotations.yaml", _dump({"annotations": ANNOTATIONS})),
    ):
        path = folder / "olm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "olm"


def _is_file(made: Json, wanted: Wanted) -> bool:
    """Whether OLM applies it as it is; the account, its roles and the Deployment are part of the service version."""
    account = made["kind"] in ("ServiceAccount", "ClusterRole") and made["metadata"]["name"] == wanted.account.name
    kinds = ("ConfigMap", "CustomResourceDefinition", "PodDisruptionBudget", "Service", "ServiceAccount", "ClusterRole")
    return made["kind"] in kinds and not account


def _file_of(made: Json) -> str:
    return f"{made['metadata']['name'].replace('.', '-')}.{made['kind'].lower()}.yaml"


def _dump(made: Json) -> str:
    if made.get("metadata"):
        made = {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "namespace"}}
    return yaml.safe_dump(made, sort_keys=False, width=1000)


def service_version(made: list[Json], wanted: Wanted, source: str) -> Json:
    account = wanted.account.name
    (deployment,) = [manifest for manifest in made if manifest["kind"] == "Deployment"]
    rules = {manifest["kind"]: manifest["rules"] for manifest in made
             if manifest["kind"] in ("Role", "ClusterRole") and manifest["metadata"]["name"] == account}  # fmt: skip
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{__version__}",
            "annotations": {
                "alm-examples": json.dumps(EXAMPLES, indent=2),
                "capabilities": "Basic Install",
                "categories": "Cloud Provider",
                "containerImage": wanted.image,
                "description": "Looks after the hosts under Kubernetes clusters for their whole life.",
                "operatorframework.io/suggested-namespace": wanted.account.namespace,
                "repository": source,
                "support": "The maintainers of Hostler",
            },
        },
        "spec": {
            "displayName": "Hostler",
            "description": DESCRIPTION,
            "version": __version__,
            "minKubeVersion": MIN_KUBERNETES,
            "maturity": CHANNEL,
            "provider": {"name": "Hostler", "url": source},
            "maintainers": [{"name": "The maintainers of Hostler", "email": "maintainers@hostler.dev"}],
            "links": [{"name": "Source", "url": source}],
            "keywords": ["nodes", "maintenance", "vsphere", "bare-metal", "gpu"],
            # It looks at every node of the cluster.
            "installModes": [
                {"type": mode, "supported": mode == "AllNamespaces"}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": [_owned(definition) for definition in definitions().values()]},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [{"name": account, "label": wanted.labels, "spec": deployment["spec"]}],
                    "permissions": [{"serviceAccountName": account, "rules": rules["Role"]}],
                    "clusterPermissions": [{"serviceAccountName": account, "rules": rules["ClusterRole"]}],
                },
            },
        },
    }


def _owned(definition: Json) -> Json:
    names = definition["spec"]["names"]
    return {
        "name": definition["metadata"]["name"],
        "kind": names["kind"],
        "version": definition["spec"]["versions"][0]["name"],
        "displayName": names["kind"],
        "description": describe(definition),
    }
