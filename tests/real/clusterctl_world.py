"""Providers of clusterctl in a sandbox: what is installed, and what `clusterctl init` and `generate` do there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import yaml

from hostler.apis.metal3 import GROUP
from hostler.errors import Complaint
from hostler.sandbox import Sandbox
from hostler.ship import components

Json = dict[str, Any]
NAMESPACE, PROVIDER = components.NAMESPACE, components.PROVIDER
INVENTORY = "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VARIABLES = {
    "HOSTLER_METAL_WORKERS": "7",
    "CLUSTER_APIENDPOINT_HOST": "127.0.0.1",
    "IMAGE_URL": "http://images.invalid/node.qcow2",
    "IMAGE_CHECKSUM": "http://images.invalid/node.qcow2.sha256",
}


def providers(box: Sandbox) -> dict[str, str]:
    """What clusterctl has installed for infrastructure, and its version."""
    listed = box.read(INVENTORY)["items"]
    return {one["providerName"]: one["version"] for one in listed if one["type"] == "InfrastructureProvider"}


def init(box: Sandbox, name: str) -> None:
    """Nothing can be made in a namespace that goes; one of them clusterctl makes to see that cert-manager is there."""
    namespaces = "/api/v1/namespaces"
    wait_until(lambda: all(one["status"]["phase"] == "Active" for one in box.read(namespaces)["items"]))
    box.clusterctl("init", "--infrastructure", name)
    wait_until(lambda: len(definitions(box)) == 9 and all(is_served(box, one) for one in definitions(box).values()))


def is_served(box: Sandbox, definition: Json) -> bool:
    try:
        box.read(f"/apis/{GROUP}/v1beta2/{definition['spec']['names']['plural']}")
    except Complaint:
        return False
    return True


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)


def definitions(box: Sandbox) -> dict[str, Json]:
    """The kinds of the provider, by name."""
    found = box.read(DEFINITIONS)["items"]
    return {one["metadata"]["name"]: one for one in found if one["spec"]["group"] == GROUP}


def generated(box: Sandbox, name: str, namespace: str, *flavour: str) -> list[Json]:
    """What `clusterctl generate cluster` makes."""
    text = box.clusterctl(
        "generate", "cluster", name, "--infrastructure", PROVIDER, "--target-namespace", namespace, *flavour,
        "--kubernetes-version", "v1.37.1", "--control-plane-machine-count", "1", "--worker-machine-count", "1",
    )  # fmt: skip
    return list(yaml.safe_load_all(text))
