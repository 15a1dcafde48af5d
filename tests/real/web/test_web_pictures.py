"""The pictures of the page for the docs: `PAGE_PICTURES=docs` writes them there.

The fleet of the first two is made up; the others are of the real operator on the sandbox, in a real maintenance.
"""

from __future__ import annotations

import itertools
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from hostler.inventory.model import Holder, Layer, LayerKind, Line, Where, bare_metal_key, esxi_key, node_key, vm_key
from hostler.inventory.nodes import RACK
from hostler.inventory.states import HostState
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.mixing import mixed
from tests.real.operating import Running, operator
from tests.real.web.browsing import DESK, PHONE, WALL, chromium, page_at
from tests.real.web.serving import replica
from tests.real.web.steps import ESXI, GPU, POLICY, hold, release, tile
from tests.unit.streaming import PictureOnly

MakeNode = Callable[..., str]
MOST = 700_000  # bytes of all pictures together
SIZES = (DESK, WALL, PHONE)
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
    check_sizes(folder, 2)


def check_sizes(folder: Path, most: int) -> None:
    pictures = list(folder.glob("page-*.png"))
    assert len(pictures) >= most
    assert sum(one.stat().st_size for one in pictures) < MOST


@pytest.mark.full
def test_pictures_of_a_host_in_a_maintenance_of_operations_and_of_the_night(
    sandbox: Sandbox, home: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    """`PAGE_LOOKS=FOLDER` keeps every view in every size, light and dark, to be looked at."""
    looks = Path(os.environ.get("PAGE_LOOKS", tmp_path / "looks"))
    looks.mkdir(parents=True, exist_ok=True)
    folder, vcenter = Path(os.environ.get("PAGE_PICTURES", tmp_path)), sandbox.vcenter
    told = {
        "VCENTER_HOST": f"{vcenter['host']}:{vcenter['port']}", "VCENTER_USER": vcenter["user"],
        "VCENTER_PASSWORD": vcenter["password"], "GPU_NODE_LABEL": f"kubernetes.io/hostname={GPU}",
    }  # fmt: skip
    sandbox.kubectl("annotate", "node", GPU, f"{POLICY}=wait", "--overwrite")
    sandbox.control("POST", "/settings", {"vm": GPU, "guestShutdownSeconds": 3})
    held = [make_node(f"web-{place:02}", labels={RACK: f"r{place % 4 + 1}"}) for place in range(24)][:2]
    flags = ("--only", "maintenance,metal")
    with mixed(sandbox), operator(sandbox, tmp_path, home, *flags, told=told) as running, chromium() as browser:
        running.said("leading")
        eventually(lambda: "free" in read_text(running, "/v1/hosts"), 60, "bare metal is shown")
        hold(sandbox, held[0], "fan 3 is being replaced")
        sandbox.kubectl("cordon", held[1])
        try:
            sandbox.maintenance(ESXI, "enter")
            with page_at(browser, f"{running.url}/") as page:
                tile(page, GPU, "stopped")
                node = page.get_by_label(f"{GPU}: stopped", exact=True).get_attribute("href")
            eventually(lambda: '"stopped"' in read_text(running, f"/v1/history?host={GPU}"), 60, "it is recorded")
            views = {
                "host": str(node),
                "operations": "#/operations",
                "history": "#/history?since=1h",
                "fleet": "#/fleet",
            }
            for size, dark in itertools.product(SIZES, (False, True)):
                for name, view in views.items():
                    with page_at(browser, f"{running.url}/{view}", size=size, dark=dark) as page:
                        page.get_by_role("heading", level=1).wait_for(state="attached")
                        page.wait_for_timeout(700)  # what a view loads of its own
                        page.screenshot(path=looks / f"{name}-{size[0]}-{'dark' if dark else 'light'}.png")
                        if size == DESK and not dark and name != "fleet":
                            page.screenshot(path=folder / f"page-{name}.png")
        finally:
            sandbox.maintenance(ESXI, "cancel")
            release(sandbox, held[0])
            eventually(lambda: '"state":"stopped"' not in read_text(running, "/v1/hosts"), 120, "all is back")
            sandbox.kubectl("annotate", "node", GPU, f"{POLICY}-")
            sandbox.control("POST", "/settings", {"vm": GPU})
    check_sizes(folder, 3)


def read_text(running: Running, path: str) -> str:
    with urllib.request.urlopen(f"{running.url}{path}", timeout=60) as answer:
        return str(answer.read().decode())
