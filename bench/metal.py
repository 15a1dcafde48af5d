"""N bare metal hosts and N machines at once, on a real API server: how long until every machine has its host.

    python -m bench.metal [--sizes 100,300,1000,3000,1000/100] [--webhooks 3] [--dry]

The hosts are available and nobody drives them (no Baremetal Operator, no simulator), the machines are there and wait
when the operator is started; the clock runs from the start of its process, so reading everything is part of it. Then a
host is freed while one machine waits, and last every machine is deleted. CPU and memory are those of the operator's
process, from /proc; requests are what the API server counted for the kinds concerned. What has come about is followed
by one watch: listing thousands of hosts again and again would take the API server's time from what is measured.

With `--webhooks N` 1000 machines are measured N times without and N times with the operator's own webhooks, in turns:
every write of a Metal3 object that is not of its status is then reviewed by the process that made it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import copy
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp

from bench.runtime import machine, say, write_section
from hostler.metal.kinds.webhook_objects import SECRET_NAME, webhook_configurations
from hostler.sandbox import http as sandbox_http
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from hostler.sandbox.life import Sandbox
from hostler.sandbox.load import create, in_own_loop
from hostler.sandbox.model import Options
from hostler.webhooks.certificates import Kept, make_pair, write_kept

INFRA, CAPI, METAL = "infrastructure.cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta2", "metal3.io/v1alpha1"
IMAGE = {"url": "http://images.invalid/os.qcow2", "checksum": "abc", "checksumType": "sha256"}
STATUS = {
    "errorCount": 0, "errorMessage": "", "operationalStatus": "OK", "poweredOn": False, "provisioningFailCount": 0,
    "provisioning": {"ID": "x", "state": "available"},
}  # fmt: skip
COUNTED = ("baremetalhosts", "metal3machines", "metal3clusters", "machines", "clusters", "secrets", "events")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One size, measured."""

    hosts: int
    machines: int
    claimed: float
    said: float
    cpu: float
    rss_mib: float
    requests: Counter[str]
    wake_ms: float | None
    deleted: float
    delete_cpu: float
    delete_requests: Counter[str]
    reviews: int = 0  # requests that its webhooks answered


class Api:
    def __init__(self, box: Sandbox, patience: float | None = 120) -> None:
        tls = sandbox_http.trust(box.layout, "admin")
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", box.state.ports["kube-apiserver"], timeout=patience, context=tls
        )

    def call(self, method: str, path: str, body: object = None) -> bytes:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": kind})
        return self._connection.getresponse().read()

    def get(self, path: str) -> http.client.HTTPResponse:
        """To be read bit by bit; until its end the connection serves nothing else."""
        self._connection.request("GET", path)
        return self._connection.getresponse()

    def items(self, path: str) -> list[Json]:
        return list(json.loads(self.call("GET", path)).get("items", []))

    def requests(self) -> Counter[str]:
        """What the API server has served so far for the kinds concerned, by verb."""
        found: Counter[str] = Counter()
        for line in self.call("GET", "/metrics").decode().splitlines():
            if line.startswith("apiserver_request_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                if labels.get("resource") in COUNTED and labels.get("verb") != "LIST":
                    found[labels["verb"]] += int(float(line.rsplit(" ", 1)[1]))
        return found


def one(version: str, kind: str, name: str, namespace: str, spec: Json, owner: Json | None = None) -> Json:
    meta: Json = {"name": name, "namespace": namespace, "labels": {"cluster.x-k8s.io/cluster-name": "c"}}
    if owner:
        meta["ownerReferences"] = [owner]
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def fill(box: Sandbox, api: Api, namespace: str, hosts: int, machines: int) -> None:
    """A cluster that is ready, hosts that are available, machines with bootstrap data."""
    create(box, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    create(box, [one(CAPI, "Cluster", "c", namespace, {"infrastructureRef": {
        "apiGroup": INFRA.split("/")[0], "kind": "Metal3Cluster", "name": "c"}})])  # fmt: skip
    ready = {"status": {"initialization": {"infrastructureProvisioned": True}}}
    api.call("PATCH", f"/apis/{CAPI}/namespaces/{namespace}/clusters/c/status", ready)
    secrets = [
        {"apiVersion": "v1", "kind": "Secret", "stringData": {"username": "u", "password": "p"},
         "metadata": {"name": f"h{n}-bmc", "namespace": namespace, "labels": {"environment.metal3.io": "baremetal"}}}
        for n in range(hosts)
    ]  # fmt: skip
    create(box, secrets)
    create(box, [
        one(METAL, "BareMetalHost", f"h{n}", namespace, {
            "online": False, "bmc": {"address": f"redfish://10.0.0.1/{n}", "credentialsName": f"h{n}-bmc"}})
        for n in range(hosts)
    ])  # fmt: skip
    for n in range(hosts):
        api.call("PATCH", f"/apis/{METAL}/namespaces/{namespace}/baremetalhosts/h{n}/status", {"status": STATUS})
    reference = {"apiGroup": INFRA.split("/")[0], "kind": "Metal3Machine"}
    create(box, [
        one(CAPI, "Machine", f"m{n}", namespace, {"clusterName": "c", "bootstrap": {"dataSecretName": "boot"},
                                                   "infrastructureRef": {**reference, "name": f"m{n}"}})
        for n in range(machines)
    ])  # fmt: skip
    found = api.items(f"/apis/{CAPI}/namespaces/{namespace}/machines")
    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in found}
    create(box, [
        one(INFRA, "Metal3Machine", name, namespace, {"image": IMAGE},
            {"apiVersion": CAPI, "kind": "Machine", "name": name, "uid": uid})
        for name, uid in uids.items()
    ])  # fmt: skip


class Followed:
    """The names of the objects at a path of which something holds, by a watch read on a thread of its own."""

    def __init__(self, box: Sandbox, path: str, holds: Callable[[Json], bool] = lambda _: True) -> None:
        self.names: set[str] = set()
        self._holds = holds
        self._answer = Api(box, patience=None).get(f"{path}?watch=1&resourceVersion=0")
        threading.Thread(target=self._read, name=path, daemon=True).start()

    def _read(self) -> None:
        with suppress(http.client.HTTPException, OSError):  # the sandbox is gone, and with it what is measured
            for line in self._answer:
                event = json.loads(line)
                there = event["type"] != "DELETED" and self._holds(event["object"])
                change = self.names.add if there else self.names.discard
                change(event["object"]["metadata"]["name"])


def add_machine(box: Sandbox, api: Api, namespace: str, name: str) -> None:
    """A Machine and the Metal3Machine it owns."""
    reference = {"apiGroup": INFRA.split("/")[0], "kind": "Metal3Machine", "name": name}
    spec = {"clusterName": "c", "bootstrap": {"dataSecretName": "boot"}, "infrastructureRef": reference}
    create(box, [one(CAPI, "Machine", name, namespace, spec)])
    uid = json.loads(api.call("GET", f"/apis/{CAPI}/namespaces/{namespace}/machines/{name}"))["metadata"]["uid"]
    owner = {"apiVersion": CAPI, "kind": "Machine", "name": name, "uid": uid}
    create(box, [one(INFRA, "Metal3Machine", name, namespace, {"image": IMAGE}, owner)])


def collect(box: Sandbox, api: Api) -> None:
    """Until the garbage collector knows the new kinds; before that it asks for the owner of every machine it sees."""
    add_machine(box, api, "default", "probe")
    api.call("DELETE", f"/apis/{CAPI}/namespaces/default/machines/probe")
    wait("the garbage collection", lambda: not api.items(f"/apis/{INFRA}/namespaces/default/metal3machines"), 120)


def claimed(host: Json) -> bool:
    return "consumerRef" in host["spec"]


def says_so(machine: Json) -> bool:
    """The last of the four writes of a claim: the machine's own status says that it has a host."""
    conditions = machine.get("status", {}).get("conditions", [])
    return any(one["type"] == "AssociateBareMetalHost" and one["status"] == "True" for one in conditions)


def cpu_and_rss(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return cpu, int(peak.group(1)) / 1024 if peak else 0.0


def wait(what: str, look: Any, patience: float) -> float:
    begin = time.monotonic()
    while not look():
        if time.monotonic() - begin > patience:
            raise SystemExit(f"bench: {what} did not happen in {patience:.0f} s")
        time.sleep(0.02)
    return time.monotonic()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def webhooks(box: Sandbox, api: Api, namespace: str) -> Iterator[tuple[dict[str, str], Callable[[], None]]]:
    """Webhooks of an operator to come: the environment that turns them on, and what sends it the requests."""
    port = free_port()
    pair = make_pair(("localhost",), time.time())
    data = {name: base64.b64encode(value).decode() for name, value in write_kept(Kept(pair)).items() if value}
    metadata = {"name": SECRET_NAME, "namespace": namespace}
    create(box, [{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata,
                  "data": data}])  # fmt: skip
    made = copy.deepcopy(webhook_configurations(namespace))
    bundle = base64.b64encode(pair.authority).decode()
    for webhook in (each for configuration in made for each in configuration["webhooks"]):
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def register() -> None:
        wait("the webhooks' port", listens, 60)
        create(box, list(made))

    try:
        yield {"HOSTLER_METAL_WEBHOOKS": "true", "HOSTLER_METAL_WEBHOOKS_ADDRESS": f"127.0.0.1:{port}"}, register
    finally:
        for configuration in made:
            place = f"{configuration['kind'].lower()}s/{configuration['metadata']['name']}"
            api.call("DELETE", f"/apis/admissionregistration.k8s.io/v1/{place}")


def count_reviews(url: str) -> int:
    """What the webhooks of the operator have answered."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith("hostler_webhook_requests_tot"))


def measure(box: Sandbox, api: Api, hosts: int, machines: int, folder: Path, *, reviewed: bool = False) -> Row:
    namespace = f"b{hosts}-{machines}-{time.time_ns()}"
    say(f"{hosts} hosts and {machines} machines{', with webhooks' * reviewed}: filling")
    fill(box, api, namespace, hosts, machines)
    if not reviewed:
        return claim_and_delete(box, api, namespace, hosts, machines, folder)
    with webhooks(box, api, namespace) as (environment, register):
        return claim_and_delete(box, api, namespace, hosts, machines, folder, environment, register)


def claim_and_delete(
    box: Sandbox, api: Api, namespace: str, hosts: int, machines: int, folder: Path,
    environment: Mapping[str, str] = MappingProxyType({}), started: Callable[[], None] = lambda: None,
) -> Row:  # fmt: skip
    """From the start of the operator until every machine that it gave a host is gone again."""
    fit, address = min(hosts, machines), f"127.0.0.1:{free_port()}"
    words = ("run", "--only", "metal", "--no-leader-election", "--log-format", "json", "--log-level", "warning",
             "--http-address", address, "--operator-namespace", namespace)  # fmt: skip
    env = {**os.environ, "KUBECONFIG": str(box.kubeconfig), "HOSTLER_METRICS_AUTHENTICATION": "false", **environment}
    path = f"/apis/{INFRA}/namespaces/{namespace}/metal3machines"
    taken = Followed(box, f"/apis/{METAL}/namespaces/{namespace}/baremetalhosts", claimed).names
    there, told = Followed(box, path).names, Followed(box, path, says_so).names
    wait("every machine is seen", lambda: len(there) == machines, 60)
    before, begin = api.requests(), time.monotonic()
    with (folder / f"{namespace}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "hostler", *words], env=env, stdout=log, stderr=log)
    try:
        started()
        end = wait("every claim", lambda: len(taken) >= fit, 900)
        said = wait("every status", lambda: len(told) >= fit, 900)
        time.sleep(3)  # the first events
        (cpu, rss), after = cpu_and_rss(process.pid), api.requests()
        say(f"claimed after {end - begin:.1f} s, and all said after {said - begin:.1f} s")
        wake = woken(box, api, namespace) if machines >= hosts else None  # else nobody waits for a host
        (used, _), at = cpu_and_rss(process.pid), api.requests()
        start = time.monotonic()
        in_own_loop(delete_each(box, path, [item["metadata"]["name"] for item in api.items(path)]))
        gone = wait("every deletion", lambda: not there, 900)
        time.sleep(1)
        finally_cpu, _ = cpu_and_rss(process.pid)
        served = api.requests() - at
        say(f"deleted after {gone - start:.1f} s")
        return Row(
            hosts, machines, end - begin, said - begin, cpu, rss, after - before, wake, gone - start,
            finally_cpu - used, served, count_reviews(f"http://{address}"),
        )  # fmt: skip
    finally:
        process.terminate()
        process.wait(timeout=60)
        clear(box, api, namespace)


def clear(box: Sandbox, api: Api, namespace: str) -> None:
    """Nothing stays for the next size to read: its memory is to be that of its own hosts and machines."""
    for path in (f"/apis/{METAL}/@/baremetalhosts", f"/apis/{CAPI}/@/machines", "/api/v1/@/secrets"):
        within = path.replace("@", f"namespaces/{namespace}")
        in_own_loop(delete_each(box, within, [item["metadata"]["name"] for item in api.items(within)]))


async def delete_each(box: Sandbox, path: str, names: list[str]) -> None:
    """Side by side: the API server's own deletion of a collection goes one by one and gives up after a minute."""
    connector = aiohttp.TCPConnector(limit=24, ssl=sandbox_http.trust(box.layout, "admin"))
    async with aiohttp.ClientSession(box.server, connector=connector) as session:

        async def delete(name: str) -> None:
            async with session.delete(f"{path}/{name}") as answer:
                await answer.read()

        await asyncio.gather(*(delete(name) for name in names))


def woken(box: Sandbox, api: Api, namespace: str) -> float:
    """Milliseconds from a host becoming available to its claim, with one machine more than hosts waiting for it."""
    add_machine(box, api, namespace, "late")
    path = f"/apis/{INFRA}/namespaces/{namespace}/metal3machines/late"

    def status() -> Json:
        return dict(json.loads(api.call("GET", path)).get("status") or {})

    wait("the late machine is seen", status, 60)
    create(box, [one(METAL, "BareMetalHost", "spare", namespace, {"online": False})])
    host = f"/apis/{METAL}/namespaces/{namespace}/baremetalhosts/spare"
    begin = time.monotonic()
    api.call("PATCH", f"{host}/status", {"status": STATUS})
    end = begin
    while "consumerRef" not in json.loads(api.call("GET", host))["spec"]:
        end = time.monotonic()
        if end - begin > 60:
            raise SystemExit("bench: the waiting machine was not woken in 60 s")
    return (time.monotonic() - begin) * 1000


WANTED = (
    "Wanted: N=1000 claimed in at most 25 s with at most 12 CPU s and 5 requests per machine, growing linearly to 3000;"
    "\nat most 120 MB (114 MiB) at 3000 hosts; deleting likewise."
)
REFERENCE = (
    "Reference, the provider in Go with its defaults on a machine like this one (measured by the founders, not in this "
    "run):\nN=100 17 s, 6 CPU s, 935 requests; N=300 124 s, 31 CPU s, 2,955 requests; N=1000 698 claimed after 520 s "
    "with 240 CPU s\nand 12,534 requests (146 MB); 100 machines over 1,000 hosts 83 s, 32 CPU s. "
    "Deleting 100 machines:\n65 s, 1,915 requests."
)
HEADINGS = (
    "hosts", "machines", "s to claim all", "s until every status says so", "CPU s", "MiB (peak)", "requests",
    "per machine", "a freed host is claimed in", "s to delete all", "CPU s", "requests",
)  # fmt: skip


def table(rows: list[Row]) -> str:
    lines = [f"| {' | '.join(HEADINGS)} |", "|" + "---|" * len(HEADINGS)]
    for row in rows:
        asked, freed = sum(row.requests.values()), sum(row.delete_requests.values())
        verbs = ", ".join(f"{verb.lower()} {number}" for verb, number in sorted(row.requests.items()) if number)
        woke = "-" if row.wake_ms is None else f"{row.wake_ms:.0f} ms"
        cells = (
            row.hosts, row.machines, f"{row.claimed:.1f}", f"{row.said:.1f}", f"{row.cpu:.1f}",
            f"{row.rss_mib:.0f}", f"{asked} ({verbs})",
            f"{asked / row.machines:.1f}", woke, f"{row.deleted:.1f}", f"{row.delete_cpu:.1f}",
            freed,
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def compared(rows: list[tuple[bool, Row]]) -> str:
    """The same with and without webhooks: medians, and how much more."""
    lines = ["| webhooks | s to claim all | CPU s | requests per machine | reviews | s to delete all | CPU s |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    cpu = {False: 0.0, True: 0.0}
    for reviewed in cpu:
        found = [row for with_webhooks, row in rows if with_webhooks is reviewed]

        def middle(look: Callable[[Row], float], found: list[Row] = found) -> float:
            return statistics.median(map(look, found))

        cpu[reviewed] = middle(lambda row: row.cpu)
        cells = (
            "on" if reviewed else "off", f"{middle(lambda row: row.claimed):.1f}",
            f"{cpu[reviewed]:.2f} ({', '.join(f'{row.cpu:.2f}' for row in found)})",
            f"{middle(lambda row: sum(row.requests.values()) / row.machines):.2f}",
            f"{middle(lambda row: row.reviews):.0f}", f"{middle(lambda row: row.deleted):.1f}",
            f"{middle(lambda row: row.delete_cpu):.2f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    more = (cpu[True] / cpu[False] - 1) * 100
    size, turns = rows[0][1].machines, len(rows) // 2
    told = f"{size} hosts and {size} machines, {turns} times each in turns; medians, and the CPU of each run:"
    wanted = f"CPU with webhooks: {more:+.0f} %. Wanted: at most 10 % more, and at most 5 requests per machine."
    return "\n\n".join([told, "\n".join(lines), wanted])


def main() -> None:
    arguments = argparse.ArgumentParser(prog="bench.metal", description=__doc__)
    arguments.add_argument("--sizes", default="100,300,1000,3000,1000/100", help="hosts, or hosts/machines where fewer")
    arguments.add_argument("--webhooks", type=int, default=3, help="how often it is measured with webhooks; 0: never")
    arguments.add_argument("--webhooks-size", type=int, default=1000, help="hosts and machines of these runs")
    arguments.add_argument("--dry", action="store_true", help="print only, write no results")
    given = arguments.parse_args()
    head, rows = machine(), []
    turns: list[tuple[bool, Row]] = []
    with tempfile.TemporaryDirectory(prefix="bench-metal-") as folder:
        box = Sandbox.up(Path(folder) / "box", Options(vcenter=False, kwok=False))
        try:
            install_crds(box, ("capi", "metal3"), Silent())
            time.sleep(2)
            collect(box, Api(box))
            for size in filter(None, given.sizes.split(",")):
                hosts, _, machines = size.partition("/")
                rows.append(measure(box, Api(box), int(hosts), int(machines or hosts), Path(folder)))
            for reviewed in (False, True) * given.webhooks:
                size = given.webhooks_size
                turns.append((reviewed, measure(box, Api(box), size, size, Path(folder), reviewed=reviewed)))
        finally:
            box.down()
    parts = [table(rows), WANTED, REFERENCE] if rows else []
    text = "\n\n".join(["## metal", f"{head}.", *parts, *([compared(turns)] if turns else [])])
    print(text)
    if not given.dry:
        write_section("metal", text)


if __name__ == "__main__":
    main()
