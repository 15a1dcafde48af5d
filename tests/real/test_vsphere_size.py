"""500 hosts and 5,000 VMs: a handful of calls, whatever the size. The seed's way needs 12,006 for one look."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from hostler.host.facts import Known
from tests.real.vsphere_world import Proxy, Simulator, certificate, eventually, following


def fleet(hosts: int, vms: int) -> dict[str, Any]:
    """Clusters of 25 hosts; one host in ten has a GPU, and one VM on it holds it."""
    clusters: list[dict[str, Any]] = []
    machines: list[dict[str, Any]] = []
    for number in range(hosts):
        name, gpu = f"esx{number}", number % 10 == 0
        if number % 25 == 0:
            clusters.append({"name": f"c{number // 25}", "hosts": []})
        devices = [{"id": "0000:3b:00.0", "vendor": "10de", "device": "20b5"}] if gpu else []
        clusters[-1]["hosts"].append({"name": name, "devices": devices})
        for index in range(vms // hosts):
            held = [{"kind": "fixed", "id": "0000:3b:00.0"}] if gpu and index == 0 else []
            machines.append({"name": f"vm{number}-{index}", "host": name, "devices": held})
    return {"datacenters": [{"name": "dc1", "clusters": clusters, "vms": machines}]}


def counted(tmp_path: Path, hosts: int, vms: int) -> dict[str, int]:
    """The calls of a first reading, one Enter task and one bulk read, counted on the wire."""
    cert, key = certificate(tmp_path)
    simulator = Simulator(tmp_path / "vcenter", fleet(hosts, vms))
    simulator.start()

    async def story() -> dict[str, int]:
        async with Proxy(simulator.port, cert, key).serve() as proxy:
            began = time.monotonic()
            async with following(simulator.endpoint(port=proxy.port, ca_bundle=str(cert))) as vcenter:
                print(f"{hosts} hosts and {vms} VMs read in {time.monotonic() - began:.1f} s")
                seen = vcenter.inventory
                assert (len(list(seen.hosts())), len(list(seen.vms()))) == (hosts, vms)
                (host,) = seen.hosts_named("esx0")
                began = time.monotonic()
                await asyncio.to_thread(simulator.ask, "POST", "/hosts/esx0/enter")
                await eventually(lambda: seen.entering(host.moref), "the Enter task")
                print(f"Enter task seen after {(time.monotonic() - began) * 1000:.0f} ms")
                checked = await vcenter.check_nodes([one.uuid for one in seen.vms()])
                assert isinstance(checked, Known)
                assert len(checked.value) == vms
            print(dict(proxy.calls))
            return dict(proxy.calls)

    try:
        return asyncio.run(story())
    finally:
        simulator.kill()


def test_a_look_costs_a_handful_of_calls(tmp_path: Path) -> None:
    calls = counted(tmp_path, 20, 200)
    assert calls["RetrievePropertiesEx"] == 1, "the node checks"
    # 100 objects per answer, as in vCenter; then the devices, then the wait.
    assert calls["WaitForUpdatesEx"] <= 12
    assert sum(calls.values()) <= 30, calls


@pytest.mark.full
def test_the_size_of_the_issue(tmp_path: Path) -> None:
    calls = counted(tmp_path, 500, 5000)
    assert sum(calls.values()) <= 100, calls
