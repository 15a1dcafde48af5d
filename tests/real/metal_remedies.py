"""What tests of remediation look at and do: a host kept off, a node out of service or ill, an attempt that is over."""

from __future__ import annotations

import time
from typing import Protocol

from hostler.instant import iso
from hostler.sandbox.parts import OFF_LABEL
from hostler.sandbox.power import POWER
from tests.real.conftest import Eventually
from tests.real.metal_world import Api, World

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNHEALTHY = "capm3.metal3.io/unhealthy"
POWER_OFF = "reboot.metal3.io/metal3-remediation-"


def taints(world: World, node: str) -> set[str]:
    found = world.api.get(f"/api/v1/nodes/{node}").get("spec", {}).get("taints") or []
    return {one["key"] for one in found}


def held_off(world: World, name: str) -> bool:
    annotations = world.host(name)["metadata"].get("annotations", {})
    return any(one.startswith(POWER_OFF) for one in annotations)


class Remediated(Protocol):
    """A world whose machines are remediated."""

    api: Api

    def metal(self, plural: str, name: str = "") -> str: ...


def over_time(world: Remediated, machine: str, **more: int) -> None:
    """The time of this attempt is over: as if it had begun long ago."""
    status = {"status": {"lastRemediated": iso(time.time() - 1000), **more}}
    world.api.patch(f"{world.metal('metal3remediations', machine)}/status", status)


def falls_ill(api: Api, eventually: Eventually, node: str) -> None:
    """Its kubelet is gone, and Kubernetes has noticed."""
    path = f"/api/v1/nodes/{node}"
    api.patch(path, {"metadata": {"annotations": {POWER: "off"}}})
    eventually(lambda: api.get(path)["metadata"]["labels"].get(OFF_LABEL) == "off", 60, "nobody keeps it Ready")
    api.patch(f"{path}/status", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
