"""Metal on the real API server with the published CRDs: machines get hosts, become ready, and let go of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import groupby

import pytest

from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.auditing import READS, who
from tests.real.conftest import Eventually
from tests.real.metal_remedies import UNHEALTHY
from tests.real.metal_world import (
    IPAM,
    Json,
    World,
    available,
    consumer,
    history,
    hosts_stand_still,
    metal_operator,
    one_to_one,
    owned_by,
)
from tests.real.operating import Running, hostler

DEPLOYMENT = "cluster.x-k8s.io/deployment-name"
CLONED = "cluster.x-k8s.io/cloned-from-name"
CONTROL_PLANE = {"cluster.x-k8s.io/control-plane": "", "cluster.x-k8s.io/control-plane-name": "kcp"}
REUSE = "infrastructure.cluster.x-k8s.io/node-reuse"
PAUSED, STATUS = "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/status"
BLOCK_MOVE = "clusterctl.cluster.x-k8s.io/block-move"


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, account: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One operator and one host driver for the whole file."""
    folder = tmp_path_factory.mktemp("metal")
    with metal_operator(sandbox, folder, account, "--enable-bmh-name-based-preallocation") as started:
        yield started


@pytest.fixture
def world(sandbox: Sandbox, running: Running, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    yield made
    made.scrub()


def status_of(thing: Json, type: str) -> str:
    return next((str(one["status"]) for one in thing["status"]["conditions"] if one["type"] == type), "")


def test_a_machine_gets_a_host_becomes_ready_and_lets_go(
    world: World, eventually: Eventually, make_node: object, sandbox: Sandbox
) -> None:
    world.make_kubeconfig()
    world.make_hosts("h1", "h2")
    own = {"name": "own", "namespace": world.namespace}  # of whoever made the hosts; the machine brings none
    for name in ("h1", "h2"):
        world.api.patch(world.hosts_path(name), {"spec": {"networkData": own}})
    eventually(lambda: [world.state(name) for name in ("h1", "h2")] == ["available"] * 2, 60, "hosts are available")
    world.make_machines("m1")
    name = eventually(lambda: world.host_of("m1"), 60, "a host is claimed")
    eventually(lambda: "HostChosen" in world.events("Metal3Machine", "m1"), 60, "told as an Event")
    eventually(lambda: world.state(name) == "provisioned", 60, "it is provisioned")
    host = world.host(name)
    assert host["spec"]["image"]["url"] == "http://images.invalid/os.qcow2"
    assert "format" not in host["spec"]["image"], "an unset disk format is not sent as an empty one"
    assert host["spec"]["userData"] == {"name": "m1-bootstrap", "namespace": world.namespace}
    assert host["spec"]["online"] is True
    assert host["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "c1"
    eventually(lambda: "has come up" in world.condition("m1", "Ready").get("message", ""), 60, "no node yet")
    secret = world.api.get(world.core("secrets", f"{name}-bmc"))
    assert secret["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "c1"
    node = make_node(labels={"metal3.io/uuid": host["metadata"]["uid"]})  # type: ignore[operator]
    # It would be seen within ten seconds. Any change of the machine has it looked for at once.
    world.api.patch(world.metal("metal3machines", "m1"), {"metadata": {"annotations": {"example.org/look": "now"}}})
    eventually(lambda: world.condition("m1", "Ready").get("status") == "True", 60, "ready")
    provider = f"metal3://{world.namespace}/{name}/m1"
    assert sandbox.get("node", node)["spec"]["providerID"] == provider
    machine = world.machine("m1")
    assert machine["spec"]["providerID"] == provider
    assert machine["status"]["initialization"] == {"provisioned": True}
    assert {"type": "Hostname", "address": name} in machine["status"]["addresses"]
    # Its BMC fails: the node runs on, so the machine stays ready. What it asks of its host shows that it was looked at.
    world.api.delete(world.core("secrets", f"{name}-bmc"))
    eventually(lambda: world.host(name)["status"].get("errorType"), 60, "the BMC fails")
    for mode in ("disabled", "metadata"):
        world.api.patch(world.metal("metal3machines", "m1"), {"spec": {"automatedCleaningMode": mode}})
        eventually(lambda: world.host(name)["spec"]["automatedCleaningMode"] == mode, 60, "looked at")  # noqa: B023
    assert world.host(name)["status"].get("errorType"), "all the while"
    was = history(world.api, world.metal("metal3machines"), machine["metadata"]["resourceVersion"])
    assert {status_of(one, "Ready") for one in was} == {"True"}
    assert {status_of(one, "BareMetalHostHealthy") for one in was} == {"True"}, "not for every blink"
    bmc = {"username": "u", "password": "p"}
    create(world.box, [world._secret(f"{name}-bmc", bmc, {"environment.metal3.io": "baremetal"})])
    world.api.delete(world.metal("metal3machines", "m1"))
    eventually(lambda: not world.machine("m1"), 60, "the machine is gone")
    after = world.host(name)
    assert "consumerRef" not in after["spec"]
    assert "image" not in after["spec"]
    assert "userData" not in after["spec"]
    assert after["spec"]["networkData"] == own
    assert after["spec"]["online"] is False
    assert "cluster.x-k8s.io/cluster-name" not in after["metadata"].get("labels", {})
    assert not after["metadata"].get("ownerReferences")
    assert BLOCK_MOVE not in after["metadata"].get("annotations", {})
    labels = world.api.get(world.core("secrets", f"{name}-bmc"))["metadata"]["labels"]
    assert "cluster.x-k8s.io/cluster-name" not in labels


def test_a_waiting_machine_says_why_writes_nothing_more_and_is_woken_by_a_freed_host(
    world: World, sandbox: Sandbox, running: Running, eventually: Eventually
) -> None:
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("m1", "m2")
    (has,) = eventually(lambda: one_to_one(world), 60, "one has it")
    eventually(lambda: "provisioned;" in world.condition(has, "Ready").get("message", ""), 60, "provisioned")
    (waits,) = {"m1", "m2"} - {has}
    says = "another consumer"
    eventually(lambda: says in world.condition(waits).get("message", ""), 60, "the other says why it waits")
    assert world.condition(waits)["status"] == "False"

    def count() -> int:
        ours = (one for one in sandbox.audit(running.user) if who(one) == running.user and one["verb"] not in READS)
        return sum((one.get("objectRef") or {}).get("namespace") == world.namespace for one in ours)

    def rests() -> int:
        before = count()
        time.sleep(1.0)
        return before if count() == before else 0

    before = eventually(rests, 60, "nothing more is written")
    change = {"metadata": {"annotations": {"example.org/beat": "1"}}}
    world.api.patch(world.hosts_path("h1"), change)
    for name in ("m1", "m2"):
        world.api.patch(world.metal("metal3machines", name), change)
    time.sleep(1.5)
    assert count() == before
    world.api.delete(world.metal("metal3machines", has))
    eventually(lambda: world.host_of(waits) == "h1", 60, "the other has it now")


def test_a_rolling_replacement_uses_the_same_hosts_again(
    world: World, running: Running, eventually: Eventually, make_node: Callable[..., str]
) -> None:
    """A control plane of three is replaced, one machine after the other, with other hosts free beside it."""
    world.make_kubeconfig()
    world.make_template("before", reuse=True)
    world.make_template("after", reuse=True)
    ours, spare = ("h1", "h2", "h3"), ("s1", "s2", "s3")
    world.make_hosts(*ours)
    available(world, eventually, *ours)

    def comes_up(host: str) -> str:
        return make_node(labels={"metal3.io/uuid": world.host(host)["metadata"]["uid"]})

    def kept(host: str) -> bool:
        return REUSE in world.host(host)["metadata"].get("labels", {})

    def ready(*machines: str) -> bool:
        return all(world.condition(name, "Ready").get("status") == "True" for name in machines)

    nodes = {host: comes_up(host) for host in ours}
    world.make_machines("a1", "a2", "a3", labels=CONTROL_PLANE, annotations={CLONED: "before"})
    eventually(lambda: ready("a1", "a2", "a3"), 90, "the control plane is there")
    before = one_to_one(world)
    assert set(before.values()) == set(ours)
    world.make_hosts(*spare)
    available(world, eventually, *spare)
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    for old, host in sorted(before.items()):
        new = old.replace("a", "b")
        with hosts_stand_still(running):
            world.api.delete(world.metal("metal3machines", old))
            eventually(lambda: kept(host), 60, "promised")  # noqa: B023
            world.api.delete(f"/api/v1/nodes/{nodes[host]}")
            world.make_machines(new, labels=CONTROL_PLANE, annotations={CLONED: "after"})
            said = f"waits for a host that is reserved for cp-kcp: {host}"
            eventually(lambda: said in world.condition(new).get("message", ""), 60, "it waits, and says for what")  # noqa: B023
            # One more becomes free while it waits, and that is no reason to take it.
            for mark in ("", None):
                world.api.patch(world.hosts_path("s1"), {"metadata": {"annotations": {UNHEALTHY: mark}}})
            comes_up(host)
        eventually(lambda: ready(new), 90, f"{new} is ready")  # noqa: B023
        assert world.host_of(new) == host
        assert not kept(host)
        eventually(lambda: not world.machine(old), 60, "gone")  # noqa: B023
        world.api.delete(world.capi("machines", old))
    assert one_to_one(world) == {old.replace("a", "b"): host for old, host in before.items()}
    past = history(world.api, world.hosts_path(), since)
    assert not [one["metadata"]["name"] for one in past if consumer(one) and one["metadata"]["name"] in spare]
    for old, host in before.items():
        life = [one for one in past if one["metadata"]["name"] == host]
        owners = [name for name, _ in groupby(map(consumer, life)) if name]
        assert owners == [old, "c1", old.replace("a", "b")], "kept by the Cluster in between"
        emptied = {consumer(one) for one in life if one["status"]["provisioning"]["state"] == "deprovisioning"}
        assert emptied == {old}, "and nobody has it before it is empty"
    # The cluster goes: what it keeps is freed, and what it was to get back is not kept.
    world.api.delete(world.metal("metal3machines", "b1"))
    eventually(lambda: consumer(world.host(before["a1"])) == "c1", 60, "kept")
    with hosts_stand_still(running):
        world.api.delete(world.metal("metal3machines", "b2"))
        eventually(lambda: kept(before["a2"]), 60, "promised")
        world.api.patch(world.capi("clusters", "c1"), {"metadata": {"finalizers": ["test.hostler.dev/keep"]}})
        world.api.delete(world.capi("clusters", "c1"))
        eventually(lambda: not kept(before["a1"]), 60, "not kept any more")
    eventually(lambda: one_to_one(world) == {"b3": before["a3"]}, 60, "the two are free")
    assert not [name for name in (*ours, *spare) if kept(name)]


def test_a_host_kept_for_a_deployment_that_goes_is_freed(world: World, eventually: Eventually) -> None:
    """Its machine lacks the annotation and the label that name template and deployment: its MachineSet names both."""
    world.make_deployment("md")
    world.make_template("t", reuse=True)
    world.make_machine_set("md-1", deployment="md", template="t")
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("old")
    world.api.patch(
        world.capi("machines", "old"), {"metadata": {"ownerReferences": [world.owner("MachineSet", "md-1")]}}
    )
    eventually(lambda: world.host_of("old") == "h1", 60, "claimed")
    world.api.delete(world.metal("metal3machines", "old"))
    eventually(lambda: world.host("h1")["spec"].get("consumerRef", {}).get("kind") == "Cluster", 60, "kept")
    world.make_machines("other")
    eventually(lambda: "reserved for" in world.condition("other").get("message", ""), 60, "it says why not")
    world.api.delete(world.capi("machinedeployments", "md"))
    eventually(lambda: world.host_of("other") == "h1", 60, "free for anybody")


def test_pause_keeps_a_users_own_pause(world: World, eventually: Eventually) -> None:
    world.make_hosts("h1", "h2")
    available(world, eventually, "h1", "h2")
    world.make_machines("m1", "m2")
    eventually(lambda: len(one_to_one(world)) == 2, 60, "claimed")
    eventually(lambda: world.state("h1") == world.state("h2") == "provisioned", 60, "provisioned")
    theirs, ours = "h1", "h2"

    def marks(name: str) -> dict[str, str]:
        return dict(world.host(name)["metadata"].get("annotations", {}))

    assert BLOCK_MOVE in marks(ours), "clusterctl waits for a host that is not paused"
    world.api.patch(world.hosts_path(theirs), {"metadata": {"annotations": {PAUSED: "me"}}})
    eventually(lambda: BLOCK_MOVE not in marks(theirs), 60, "one that another party paused may be moved")
    assert json.loads(marks(theirs)[STATUS])["provisioning"]["state"] == "provisioned", "with its status"
    world.api.patch(world.capi("clusters", "c1"), {"spec": {"paused": True}})

    def pause_of(name: str) -> str | None:
        found = world.host(name)["metadata"].get("annotations", {}).get(PAUSED)
        return None if found is None else str(found)

    def cluster_says() -> dict[str, str]:
        told = world.api.get(world.metal("metal3clusters", "c1")).get("status", {}).get("conditions", [])
        return {one["type"]: one["status"] for one in told}

    eventually(lambda: pause_of(ours) == "metal3.io/capm3", 60, "paused by us")
    eventually(lambda: cluster_says().get("Paused") == "True", 60, "the Metal3Cluster says so")
    assert BLOCK_MOVE not in marks(ours), "by the same write"
    kept = json.loads(marks(ours)[STATUS])
    assert kept["provisioning"]["state"] == "provisioned"
    assert "hardware" not in kept
    machine = next(name for name, host in one_to_one(world).items() if host == ours)
    eventually(lambda: world.condition(machine, "Paused").get("status") == "True", 60, "it says so")
    world.api.patch(world.capi("clusters", "c1"), {"spec": {"paused": False}})
    eventually(lambda: pause_of(ours) is None, 60, "unpaused")
    eventually(lambda: world.condition(machine, "Paused").get("status") == "False", 60, "it says so")
    eventually(lambda: cluster_says().get("Paused") == "False", 60, "and so does the Metal3Cluster")
    assert cluster_says()["Ready"] == "True", "as before"
    assert BLOCK_MOVE in marks(ours)
    assert pause_of(theirs) == "me"
    world.api.patch(world.hosts_path(theirs), {"metadata": {"annotations": {PAUSED: None}}})
    eventually(lambda: BLOCK_MOVE in marks(theirs), 60, "clusterctl waits for it again")


def test_the_templates_cleaning_mode_reaches_machine_and_host(world: World, eventually: Eventually) -> None:
    world.make_template("t", {"automatedCleaningMode": "metadata"})
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("m1", annotations={CLONED: "t"})
    eventually(lambda: world.host_of("m1") == "h1", 60, "claimed")
    change = {"spec": {"template": {"spec": {"automatedCleaningMode": "disabled"}}}}
    world.api.patch(world.metal("metal3machinetemplates", "t"), change)
    eventually(lambda: world.host("h1")["spec"].get("automatedCleaningMode") == "disabled", 60, "on the host")
    eventually(lambda: world.machine("m1")["spec"].get("automatedCleaningMode") == "disabled", 60, "on the machine")
    world.api.patch(world.metal("metal3machines", "m1"), {"spec": {"automatedCleaningMode": "metadata"}})
    eventually(lambda: world.machine("m1")["spec"]["automatedCleaningMode"] == "disabled", 60, "as its template says")


def test_bad_input_is_said_and_recovers_when_mended(world: World, eventually: Eventually) -> None:
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("m1", spec={"image": {"url": "http://images.invalid/os.qcow2"}})
    eventually(lambda: "no checksum" in world.condition("m1").get("message", ""), 60, "it says so")
    wrong = {"matchExpressions": [{"key": "rack", "operator": "near", "values": ["1"]}]}
    change = {"spec": {"image": {"checksum": "abc"}, "hostSelector": wrong}}
    world.api.patch(world.metal("metal3machines", "m1"), change)
    eventually(lambda: world.condition("m1").get("reason") == "InvalidHostSelector", 60, "the selector is wrong")
    wrong["matchExpressions"][0] |= {"operator": "In"}
    world.api.patch(world.metal("metal3machines", "m1"), {"spec": {"hostSelector": wrong}})
    eventually(lambda: "selector" in world.condition("m1").get("message", ""), 60, "no host has that label")
    world.api.patch(world.hosts_path("h1"), {"metadata": {"labels": {"rack": "1"}}})
    eventually(lambda: world.host_of("m1") == "h1", 60, "mended")


def test_a_host_that_vanishes_is_said_and_not_replaced_once_it_was_a_node(
    world: World, eventually: Eventually, make_node: object
) -> None:
    world.make_kubeconfig()
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("m1")
    eventually(lambda: world.host_of("m1") == "h1", 60, "claimed")
    make_node(labels={"metal3.io/uuid": world.host("h1")["metadata"]["uid"]})  # type: ignore[operator]
    eventually(lambda: world.condition("m1", "Ready").get("status") == "True", 60, "ready")
    world.make_hosts("h2")
    available(world, eventually, "h2")
    world.api.delete(world.hosts_path("h1"))
    eventually(lambda: world.condition("m1").get("reason") == "HostLost", 60, "it says so")
    assert "consumerRef" not in world.host("h2")["spec"]
    world.api.delete(world.metal("metal3machines", "m1"))
    eventually(lambda: not world.machine("m1"), 60, "and it can be deleted")


@pytest.mark.parametrize("consumer", [None, {"apiVersion": "example.org/v1", "kind": "Other", "name": "somebody"}])
def test_a_host_that_its_machine_lost_stays_when_the_machine_goes(
    world: World, eventually: Eventually, make_node: Callable[..., str], consumer: dict[str, str] | None
) -> None:
    """With the owner reference of another provider Kubernetes would delete it too."""
    world.make_kubeconfig()
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("m1")
    eventually(lambda: world.host_of("m1") == "h1", 60, "claimed")
    make_node(labels={"metal3.io/uuid": world.host("h1")["metadata"]["uid"]})
    eventually(lambda: world.condition("m1", "Ready").get("status") == "True", 60, "ready")
    owner, likewise = owned_by(world, "m1")
    lost = {"metadata": {"ownerReferences": [owner]}, "spec": {"consumerRef": consumer}}
    world.api.patch(world.hosts_path("h1"), lost)
    eventually(lambda: world.condition("m1").get("reason") == "HostLost", 60, "it says so")
    world.api.delete(world.metal("metal3machines", "m1"))
    eventually(lambda: not world.machine("m1"), 60, "the machine goes")
    eventually(lambda: not world.api.get(likewise), 60, "and what it owned goes with it")
    time.sleep(1.0)
    left = world.host("h1")
    assert "ownerReferences" not in left["metadata"]
    assert "deletionTimestamp" not in left["metadata"]
    assert left["spec"]["image"], "nothing else of it is ours to change"
    assert left["spec"].get("consumerRef", {}).get("name") == (consumer or {}).get("name")


def test_a_kept_host_whose_machine_is_removed_by_force_goes_to_its_successor(
    world: World, running: Running, eventually: Eventually
) -> None:
    """Kubernetes deletes after the machine what the machine owns, which the host is not."""
    world.make_deployment("md")
    world.make_template("t", reuse=True)
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("old", labels={DEPLOYMENT: "md"}, annotations={CLONED: "t"})
    eventually(lambda: world.state("h1") == "provisioned", 60, "provisioned")
    _, likewise = owned_by(world, "old")
    with hosts_stand_still(running):
        world.api.delete(world.metal("metal3machines", "old"))
        eventually(lambda: REUSE in world.host("h1")["metadata"]["labels"], 60, "promised")
        world.api.patch(world.metal("metal3machines", "old"), {"metadata": {"finalizers": None}})
        eventually(lambda: not world.api.get(likewise), 60, "the machine is gone, and what it owned")
    world.make_machines("new", labels={DEPLOYMENT: "md"}, annotations={CLONED: "t"})
    eventually(lambda: world.host_of("new") == "h1", 60, "its successor has it")
    assert "deletionTimestamp" not in world.host("h1")["metadata"]


POOL = {
    "pools": [{"start": "10.9.0.10", "end": "10.9.0.11"}],
    "prefix": 24,
    "gateway": "10.9.0.1",
    "dnsServers": ["10.9.0.2", "10.9.0.3"],
}
SIX = {"pools": [{"start": "2001:db8::10", "end": "2001:db8::20"}], "prefix": 64, "gateway": "2001:db8::1"}
MAC = "02:00:00:00:00:00"
FIXED = {"macAddress": {"string": "02:00:00:00:00:aa"}}
POOLED = {"network": "0.0.0.0", "prefix": 0, "gateway": {"fromIPPool": "pool"}, "services": {"dnsFromIPPool": "pool"}}
DATA = {
    "metaData": {
        "strings": [{"key": "text", "value": "yes"}],
        "objectNames": [{"key": name, "object": name} for name in ("machine", "metal3machine", "baremetalhost")],
        "indexes": [{"key": "index"}, {"key": "stepped", "offset": 7, "step": 2, "prefix": "0"}],
        "namespaces": [{"key": "ns"}],
        "fromHostInterfaces": [{"key": "mac", "interface": "eth0"}, {"key": "boot", "fromBootMAC": True}],
        "fromLabels": [{"key": "rack", "object": "baremetalhost", "label": "rack"}],
        "fromAnnotations": [{"key": "note", "object": "metal3machine", "annotation": "example.org/note"}],
        "ipAddressesFromPool": [{"key": "ip", "name": "pool"}],
        "prefixesFromPool": [{"key": "prefix", "name": "pool"}],
        "gatewaysFromPool": [{"key": "gateway", "name": "pool"}],
        "dnsServersFromPool": [{"key": "dns", "name": "pool"}],
    },
    "networkData": {
        "links": {
            "ethernets": [{"id": "eth0", "type": "phy", "macAddress": {"fromHostInterface": "eth0"}}],
            "bonds": [{
                "id": "bond0", "bondMode": "802.3ad", "bondXmitHashPolicy": "layer3+4", "bondLinks": ["eth0"],
                "parameters": [{"name": "options", "value": {"miimon": 100}}], **FIXED,
            }],
            "vlans": [{"id": "vlan5", "vlanID": 5, "vlanLink": "bond0", **FIXED}],
        },
        "networks": {
            "ipv4": [
                {"id": "four", "link": "eth0", "ipAddressFromIPPool": "pool", "routes": [POOLED]},
                {"id": "by-ref", "link": "eth0", "fromPoolRef": {
                    "apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "pool"}},
                {"id": "by-note", "link": "eth0", "fromPoolAnnotation": {
                    "object": "baremetalhost", "annotation": "example.org/pool"}},
            ],
            "ipv6": [{"id": "six", "link": "vlan5", "ipAddressFromIPPool": "six"}],
            "ipv4DHCP": [{"id": "dhcp", "link": "bond0"}],
            "ipv6DHCP": [{"id": "dhcp6", "link": "bond0"}],
            "ipv6SLAAC": [{"id": "slaac", "link": "bond0"}],
        },
        "services": {"dns": ["9.9.9.9"], "dnsFromIPPool": "pool"},
    },
}  # fmt: skip
META_DATA = f"""\
baremetalhost: h1
boot: {MAC}
dns: 10.9.0.2,10.9.0.3
gateway: 10.9.0.1
index: '0'
ip: 10.9.0.11
mac: {MAC}
machine: m1
metal3machine: m1
note: from the machine
ns: NAMESPACE
prefix: '24'
providerid: NAMESPACE/h1/m1
rack: r7
stepped: '07'
text: 'yes'
"""
NETWORK_DATA = f"""\
links:
- bond_links:
  - eth0
  bond_mode: 802.3ad
  bond_options:
    miimon: 100
  bond_xmit_hash_policy: layer3+4
  ethernet_mac_address: 02:00:00:00:00:aa
  id: bond0
  mtu: 1500
  type: bond
- ethernet_mac_address: {MAC}
  id: eth0
  mtu: 1500
  type: phy
- id: vlan5
  mtu: 1500
  type: vlan
  vlan_id: 5
  vlan_link: bond0
  vlan_mac_address: 02:00:00:00:00:aa
networks:
- id: four
  ip_address: 10.9.0.11
  link: eth0
  netmask: 255.255.255.0
  routes:
  - gateway: 10.9.0.1
    netmask: 0.0.0.0
    network: 0.0.0.0
    services:
    - address: 10.9.0.2
      type: dns
    - address: 10.9.0.3
      type: dns
  type: ipv4
- id: by-ref
  ip_address: 10.9.0.11
  link: eth0
  netmask: 255.255.255.0
  routes: []
  type: ipv4
- id: by-note
  ip_address: 10.9.0.11
  link: eth0
  netmask: 255.255.255.0
  routes: []
  type: ipv4
- id: six
  ip_address: 2001:db8::10
  link: vlan5
  netmask: 'ffff:ffff:ffff:ffff::'
  routes: []
  type: ipv6
- id: dhcp
  link: bond0
  routes: []
  type: ipv4_dhcp
- id: dhcp6
  link: bond0
  routes: []
  type: ipv6_dhcp
- id: slaac
  link: bond0
  routes: []
  type: ipv6_slaac
services:
- address: 9.9.9.9
  type: dns
- address: 10.9.0.2
  type: dns
- address: 10.9.0.3
  type: dns
"""


def test_data_is_rendered_and_a_preallocated_address_stays_with_its_host(world: World, eventually: Eventually) -> None:
    world.make_data_template("dt", DATA)
    world.make_pool("six", SIX)
    world.make_hosts("h1", labels={"rack": "r7"}, annotations={"example.org/pool": "pool"})
    available(world, eventually, "h1")
    asked = {"dataTemplate": {"name": "dt"}}
    world.make_machines("m1", spec=asked, annotations={"example.org/note": "from the machine"})
    message = "IPPool pool does not exist"
    eventually(lambda: message in world.condition("m1", "Metal3DataReady").get("message", ""), 60, "an unknown pool")
    assert "image" not in world.host("h1")["spec"], "no host is provisioned without its data"
    world.make_pool("pool", {**POOL, "preAllocations": {"h1-pool": "10.9.0.11"}})
    eventually(lambda: world.state("h1") == "provisioned", 60, "provisioned with its data")
    host = world.host("h1")
    assert host["spec"]["metaData"]["name"] == "m1-metadata"
    assert host["spec"]["networkData"]["name"] == "m1-networkdata"
    assert world.secret_text("m1-metadata", "metaData") == META_DATA.replace("NAMESPACE", world.namespace)
    assert world.secret_text("m1-networkdata", "networkData") == NETWORK_DATA
    template, listed = world.metal("metal3datatemplates", "dt"), [{"index": 0, "name": "m1"}]
    eventually(lambda: world.api.get(template).get("status", {}).get("indexes") == listed, 60, "who has which index")
    world.api.delete(world.metal("metal3machines", "m1"))
    eventually(lambda: not world.machine("m1"), 60, "gone")
    eventually(lambda: not world.api.items(world.metal("metal3datas")), 60, "its data too")
    world.make_machines("m2", spec=asked)
    eventually(lambda: "ip: 10.9.0.11" in world.secret_text("m2-metadata", "metaData"), 60, "the same address again")


def test_an_exhausted_pool_is_said_what_waits_for_it_can_be_deleted_and_it_recovers(
    world: World, eventually: Eventually
) -> None:
    world.make_data_template("dt", {"metaData": {"ipAddressesFromPool": [{"key": "ip", "name": "pool"}]}})
    world.make_pool("pool", {"pools": [{"start": "10.9.0.10", "end": "10.9.0.10"}]})
    world.make_hosts("h1", "h2")
    available(world, eventually, "h1", "h2")
    asked = {"dataTemplate": {"name": "dt"}}
    world.make_machines("m1", "m2", spec=asked)

    def short(*names: str) -> str:
        said = {name: world.condition(name, "Metal3DataReady").get("message", "") for name in names}
        return next((name for name in names if "Exhausted" in said[name]), "")

    waits = eventually(lambda: short("m1", "m2"), 60, "one gets no address")
    (other,) = {"m1", "m2"} - {waits}
    # What is waited for may be deleted by hand, the claim of the address and that of the data: they are made anew.
    addresses = f"{IPAM}/namespaces/{world.namespace}/ipclaims"
    for path in (f"{addresses}/{world.host_of(waits)}-pool", world.metal("metal3dataclaims", waits)):
        before = world.api.get(path)["metadata"]["uid"]
        world.api.delete(path)
        eventually(lambda: world.api.get(path).get("metadata", {"uid": before})["uid"] != before, 60, "made anew")  # noqa: B023
    eventually(lambda: short(waits), 60, "and gets no address either")
    # So may the machine itself, and nothing of it stays.
    world.api.delete(world.metal("metal3machines", waits))
    eventually(lambda: not world.machine(waits), 60, "gone")
    for path in (world.metal("metal3dataclaims"), world.metal("metal3datas"), addresses):
        eventually(lambda: len(world.api.items(path)) == 1, 60, f"only that of {other} is left: {path}")  # noqa: B023
    # What a host is installed with goes with its machine: else another would get the address of a node that runs.
    eventually(lambda: "image" in world.host(world.host_of(other))["spec"], 60, "installed")
    (data,) = world.api.items(world.metal("metal3datas"))
    world.api.delete(world.metal("metal3datas", data["metadata"]["name"]))
    world.api.delete(world.metal("metal3dataclaims", other))
    says = "is installed with this data"
    eventually(lambda: says in world.condition(other, "Metal3DataReady").get("message", ""), 60, "it says so")
    world.make_machines("m3", spec=asked)
    eventually(lambda: short("m3"), 60, "the next gets no address")
    world.api.delete(world.metal("metal3machines", other))
    eventually(lambda: world.secret_text("m3-metadata", "metaData").startswith("ip: 10.9.0.10"), 60, "freed")


def test_a_cluster_goes_after_its_machines_and_keeps_no_host(world: World, eventually: Eventually) -> None:
    world.make_deployment("md")
    world.make_template("t", reuse=True)
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("m1", labels={DEPLOYMENT: "md"}, annotations={CLONED: "t"})
    eventually(lambda: world.host_of("m1") == "h1", 60, "claimed")
    path, ready = world.metal("metal3clusters", "c1"), {"provisioned": True}
    eventually(lambda: world.api.get(path).get("status", {}).get("initialization") == ready, 60, "ready")
    assert world.api.get(path)["spec"]["controlPlaneEndpoint"] == {"host": "10.0.0.1", "port": 6443}, "the default port"
    for domains in ([{"name": "one", "controlPlane": True}], None):
        world.api.patch(path, {"spec": {"failureDomains": domains}})
        eventually(lambda: world.api.get(path)["status"].get("failureDomains") == domains, 60, "as in its spec")  # noqa: B023
    world.api.patch(world.capi("clusters", "c1"), {"metadata": {"finalizers": ["test.hostler.dev/keep"]}})
    world.api.delete(world.capi("clusters", "c1"))
    world.api.delete(world.metal("metal3clusters", "c1"))
    eventually(
        lambda: "m1" in json.dumps(world.api.get(world.metal("metal3clusters", "c1"))["status"]), 60, "it waits for m1"
    )
    world.api.delete(world.metal("metal3machines", "m1"))
    eventually(lambda: not world.api.get(path), 60, "the Metal3Cluster is gone")
    host = world.host("h1")
    assert "consumerRef" not in host["spec"]
    assert REUSE not in host["metadata"].get("labels", {})


def test_what_people_see(world: World, sandbox: Sandbox, running: Running, eventually: Eventually) -> None:
    world.make_template("t", {"hostSelector": {"matchLabels": {"rack": "1"}}})
    world.make_hosts("h1", "h2", labels={"rack": "1"})
    world.make_hosts("h3")
    world.make_hosts("h4", labels={"rack": "2"})
    available(world, eventually, "h1", "h2", "h3", "h4")
    # What Baremetal Operator writes for a HostClaim.
    claim = {"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim", "name": "claim", "namespace": "tenant"}
    world.api.patch(world.hosts_path("h4"), {"spec": {"consumerRef": claim}})
    world.make_machines("m1", spec={"hostSelector": {"matchLabels": {"rack": "2"}}})
    eventually(lambda: "another consumer" in world.condition("m1").get("message", ""), 60, "it waits")
    assert world.host("h4")["spec"]["consumerRef"] == claim
    listed = hostler(sandbox.kubeconfig, "metal", "hosts", "-n", world.namespace)
    assert listed.returncode == 0, listed.stderr
    assert f"{world.namespace}/h1" in listed.stdout
    assert "available" in listed.stdout
    fits = hostler(sandbox.kubeconfig, "metal", "capacity", f"{world.namespace}/t", "--output", "json")
    assert json.loads(fits.stdout)["fit"] == 2, fits.stdout
    assert json.loads(fits.stdout)["limits"] == {"some do not meet the selector": 2}
    none = hostler(sandbox.kubeconfig, "metal", "capacity", f"{world.namespace}/none")
    assert none.returncode == 5
    assert "There is no Metal3MachineTemplate" in none.stderr
    said = hostler(sandbox.kubeconfig, "explain", f"metal3machine/{world.namespace}/m1", "--operator", running.url)
    assert "its labels do not meet rack=2" in said.stdout, said.stdout + said.stderr
    assert "its consumer is HostClaim tenant/claim" in said.stdout
    about = hostler(sandbox.kubeconfig, "explain", f"baremetalhost/{world.namespace}/h1", "--operator", running.url)
    assert "It is free." in about.stdout
