"""The pictures of the page for the docs: `PAGE_PICTURES=docs` writes them there. The fleet in them is made up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from hostler.inventory.model import Holder, Layer, LayerKind, Line, Where, bare_metal_key, esxi_key, node_key, vm_key
from hostler.inventory.states import HostState
from tests.real.web.browsing import PHONE, chromium, page_at
from tests.real.web.serving import replica
from tests.unit.streaming import PictureOnly

MOST = 300_000  # bytes of all pictures together
READY = "The node is Ready and takes pods."
REASONS = {"ann": "fan 3 is being replaced", "maintenance": "ESXi host esx3 enters maintenance"}
# What is out of service: name, state, since how many seconds, why, next, holder.
OUT = {
    "gpu-8": (HostState.STOPPED, 17_000, "ESXi host esx3 is in maintenance; the VM is off.",
              "Start the VM when esx3 leaves maintenance.", "maintenance"),
    "gpu-7": (HostState.DRAINING, 1_190, "2 of 14 pods are left; PodDisruptionBudget ml/trainer allows no eviction.",
              "Evict ml/trainer-0 as soon as its budget allows it.", "maintenance"),
    "gpu-21": (HostState.RETURNING, 140, "The VM runs again; its kubelet is not Ready yet.",
               "Uncordon gpu-21 once it is Ready from a new boot.", "maintenance"),
    "metal-4": (HostState.HELD, 260_000, "It is cordoned and held by ann.", "", "ann"),
    "metal-17": (HostState.FAILED, 410, "The kubelet is not Ready: the container runtime is down.", "", ""),
    "metal-33": (HostState.JOINING, 75, "The kubelet has not been Ready yet.", "Its certificate is approved.", ""),
}  # fmt: skip


def line(name: str, now: float) -> tuple[Line, tuple[Holder, ...]]:
    state, since, why, after, holder = OUT.get(name, (HostState.IN_SERVICE, 800_000, READY, "", ""))
    holders = (Holder(holder, REASONS[holder], now - since),) if holder else ()
    return Line("maintenance" if "gpu" in name else "holds", state, why, now - since, after), holders


def layers(now: float) -> Iterator[Layer]:
    for number in range(1, 9):
        name, enters = f"esx{number}", number == 3
        why = "It enters maintenance mode." if enters else "It is connected."
        state = HostState.DRAINING if enters else HostState.IN_SERVICE
        after = "It waits until gpu-7 is off." if enters else ""
        stands = Line("maintenance", state, why, now - (1_260 if enters else 2_000_000), after)
        yield Layer(esxi_key("vc", name), LayerKind.ESXI, name, (stands,), Where("vc", "compute", name))
    for number in range(32):
        name, where = f"gpu-{number}", Where("vc", "compute", f"esx{number % 8 + 1}")
        said, holders = line(name, now)
        yield Layer(vm_key("vc", name), LayerKind.VM, name, (said,), where, "prod-1", name, holders)
    for number in range(60):
        name, cluster = f"metal-{number}", "prod-1" if number < 30 else "edge-2"
        said, holders = line(name, now)
        where = Where(rack=f"r{number % 6 + 1}")
        yield Layer(node_key(cluster, name), LayerKind.NODE, name, (said,), where, cluster, name, holders)
    for number in range(6):
        free = Line("metal", HostState.AVAILABLE, "It is free for a machine.", now - 90_000)
        key = bare_metal_key("metal", f"spare-{number}")
        yield Layer(key, LayerKind.BARE_METAL, f"spare-{number}", (free,), Where(namespace="metal", rack="r7"))


@pytest.mark.full
def test_the_pictures_of_the_docs_are_small(tmp_path: Path) -> None:
    folder, hosts = Path(os.environ.get("PAGE_PICTURES", tmp_path)), PictureOnly()
    hosts.picture.update({layer.key: layer for layer in layers(time.time())})
    with replica(hosts) as operator, chromium() as browser:
        for name, size, dark in (("page-fleet", (1280, 640), False), ("page-phone", PHONE, True)):
            with page_at(browser, f"{operator.url}/", size=size, dark=dark) as page:
                expect(page.locator(".rows .row")).to_have_count(len(OUT) + 1)
                page.screenshot(path=folder / f"{name}.png")
    pictures = list(folder.glob("page-*.png"))
    assert len(pictures) == 2
    assert sum(one.stat().st_size for one in pictures) < MOST
