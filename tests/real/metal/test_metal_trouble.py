"""Metal when things go wrong or are done differently: remediation, a missing secret, nodes found by other ways."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.fleet import Fleet, MetalCluster, MetalHost, MetalMachine
from hostler.sandbox.load import create, load_fleet
from tests.real.conftest import Eventually
from tests.real.metal_remedies import OUT_OF_SERVICE, UNHEALTHY, falls_ill, held_off, over_time, taints
from tests.real.metal_world import CAPI_IPAM, INFRA, World, available, consumer, history, metal_operator
from tests.real.operating import Running, hostler

MakeNode = Callable[..., str]


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, account: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with metal_operator(sandbox, tmp_path_factory.mktemp("metal"), account) as started:
        yield started


@pytest.fixture
def world(sandbox: Sandbox, running: Running, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    made.make_kubeconfig()
    yield made
    made.scrub()


def selects(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def bound_pod(world: World, name: str, node: str, **meta: Any) -> None:
    """A pod on this node that tolerates the tests' own taint and nothing else."""
    spec = {
        "nodeName": node, "containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "hostler.dev/test", "operator": "Exists"}],
    }  # fmt: skip
    metadata = {"name": name, "namespace": world.namespace, **meta}
    create(world.box, [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}])


def a_node(world: World, eventually: Eventually, make_node: MakeNode, machine: str, host: str) -> str:
    """A machine that is ready: its host is provisioned and on, and its node is there."""
    world.make_hosts(host)
    available(world, eventually, host)
    node = make_node(labels={"metal3.io/uuid": world.host(host)["metadata"]["uid"]})
    world.make_machines(machine)
    eventually(lambda: world.condition(machine, "Ready").get("status") == "True", 60, "ready")
    eventually(lambda: world.host(host)["status"]["poweredOn"], 60, "on")
    world.is_node(machine, node)
    return node


def test_an_unhealthy_node_is_rebooted_again_and_then_given_up(
    world: World, eventually: Eventually, make_node: MakeNode, sandbox: Sandbox, running: Running
) -> None:
    node = a_node(world, eventually, make_node, "m1", "h1")
    bound_pod(world, "web", node)
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    world.make_remediation("m1")
    eventually(lambda: world.phase("m1") == "Waiting", 60, "rebooted")
    eventually(lambda: not world.remediation("m1")["metadata"].get("finalizers"), 60, "the node is in service")
    assert OUT_OF_SERVICE not in taints(world, node)
    assert not world.api.get(world.core("pods", "web")), "its pod was let go while it was off"
    power = [host["status"]["poweredOn"] for host in history(world.api, world.hosts_path(), since)]
    assert False in power
    assert world.host("h1")["status"]["poweredOn"]
    reasons = {"PoweringOff", "OutOfService", "PoweringOn", "Rebooted"}
    eventually(lambda: world.events("Metal3Remediation", "m1") >= reasons, 60, "told")
    target = f"metal3remediation/{world.namespace}/m1"
    said = hostler(sandbox.kubeconfig, "explain", target, "--operator", running.url)
    assert "waits until the health check ends the remediation" in said.stdout, said.stdout + said.stderr
    # Everything was paused for longer than that takes: a node that is Ready is not rebooted once more.
    over_time(world, "m1")
    time.sleep(1.5)
    assert (world.phase("m1"), held_off(world, "h1")) == ("Waiting", False)
    # It does not help after all, and the retry does not either.
    falls_ill(world.api, eventually, node)
    over_time(world, "m1")
    eventually(lambda: world.remediation("m1")["status"].get("retryCount") == 1, 60, "once more")
    eventually(lambda: world.phase("m1") == "Waiting" and not held_off(world, "h1"), 60, "rebooted again")
    over_time(world, "m1")
    eventually(lambda: world.phase("m1") == "Deleting machine", 60, "given up")
    assert UNHEALTHY in world.host("h1")["metadata"]["annotations"]
    told = world.api.get(world.capi("machines", "m1"))["status"]["conditions"]
    (condition,) = [one for one in told if one["type"] == "OwnerRemediated"]
    assert (condition["status"], condition["reason"]) == ("False", "WaitingForRemediation")
    # Its machine is replaced; the host waits for a person.
    world.api.delete(world.metal("metal3machines", "m1"))
    eventually(lambda: not world.machine("m1"), 60, "the machine is gone")
    world.make_machines("m2")
    eventually(lambda: "marked unhealthy" in world.condition("m2").get("message", ""), 60, "no host for the next")
    world.api.patch(world.hosts_path("h1"), {"metadata": {"annotations": {UNHEALTHY: None}}})
    eventually(lambda: world.host_of("m2") == "h1", 60, "until the mark is taken off")


def test_a_remediation_that_ends_in_the_middle_leaves_nothing_behind(
    world: World, eventually: Eventually, make_node: MakeNode, sandbox: Sandbox, running: Running
) -> None:
    node = a_node(world, eventually, make_node, "m1", "h1")
    bound_pod(world, "stuck", node, finalizers=["test.hostler.dev/stuck"])
    world.make_remediation("m1", strategy={})  # a reboot, as nothing else is known
    eventually(lambda: OUT_OF_SERVICE in taints(world, node), 60, "off, and out of service")
    assert not world.host("h1")["status"]["poweredOn"]
    target = f"metal3remediation/{world.namespace}/m1"
    said = hostler(sandbox.kubeconfig, "explain", target, "--operator", running.url)
    assert "Running" in said.stdout, said.stdout + said.stderr
    time.sleep(1.5)
    assert world.phase("m1") == "Running", "a node that is not empty stays out of service"
    world.api.delete(world.metal("metal3remediations", "m1"))
    eventually(lambda: not world.remediation("m1"), 60, "gone")
    assert OUT_OF_SERVICE not in taints(world, node)
    assert not held_off(world, "h1")
    eventually(lambda: world.host("h1")["status"]["poweredOn"], 60, "on again")
    # A host that somebody switches off is none of our business, and in the middle of it neither.
    world.make_remediation("m1")
    eventually(lambda: OUT_OF_SERVICE in taints(world, node), 60, "off, and out of service")
    world.api.patch(world.hosts_path("h1"), {"spec": {"online": False}})
    eventually(lambda: world.phase("m1") == "Failed", 60, "not rebooted")
    eventually(lambda: not held_off(world, "h1"), 60, "not kept off by us")
    assert OUT_OF_SERVICE in taints(world, node), "its host is off"
    world.api.patch(world.hosts_path("h1"), {"spec": {"online": True}})
    eventually(lambda: OUT_OF_SERVICE not in taints(world, node), 60, "on, and in service")
    assert world.host("h1")["status"]["poweredOn"]
    eventually(lambda: not world.remediation("m1")["metadata"].get("finalizers"), 60, "nothing is left to take back")
    world.api.patch(world.core("pods", "stuck"), {"metadata": {"finalizers": None}})


def test_nodes_are_found_in_other_ways_too_and_get_the_labels_of_their_hosts(
    world: World, eventually: Eventually, make_node: MakeNode
) -> None:
    tag, prefix = os.urandom(3).hex(), "rack.example.org"
    by_name, by_id, taken = f"a{tag}", f"b{tag}", f"c{tag}"
    annotation = {"metadata": {"annotations": {"metal3.io/metal3-label-sync-prefixes": prefix}}}
    world.api.patch(world.metal("metal3clusters", "c1"), annotation)
    world.make_hosts(by_name, by_id, taken, labels={f"{prefix}/row": "7"})
    available(world, eventually, by_name, by_id, taken)
    uids = {name: world.host(name)["metadata"]["uid"] for name in (by_id, taken)}
    make_node(by_name, labels={f"{prefix}/old": "1", "other": "x"})
    old = make_node(labels={"metal3.io/uuid": uids[by_id]}, provider_id=f"metal3://{uids[by_id]}")
    make_node(labels={"metal3.io/uuid": uids[taken]}, provider_id="aws:///somebody")
    world.make_machines("m1", "m2", "m3")
    eventually(lambda: all(world.host_of(one) for one in ("m1", "m2", "m3")), 60, "claimed")
    machine = {world.host_of(name): name for name in ("m1", "m2", "m3")}

    def ready(host: str) -> bool:
        return bool(world.condition(machine[host], "Ready").get("status") == "True")

    eventually(lambda: ready(by_name) and ready(by_id), 60, "two are ready")
    node = world.api.get(f"/api/v1/nodes/{by_name}")
    assert node["spec"]["providerID"] == f"metal3://{world.namespace}/{by_name}/{machine[by_name]}"
    assert world.machine(machine[by_id])["spec"]["providerID"] == f"metal3://{uids[by_id]}", "as it was written before"
    assert world.api.get(f"/api/v1/nodes/{old}")["spec"]["providerID"] == f"metal3://{uids[by_id]}"
    says = "which is not this machine's"
    eventually(lambda: says in world.condition(machine[taken], "Ready").get("message", ""), 60, "not taken over")
    # Labels of the named prefix follow their host, only differences are written, and nothing else is touched.
    world.is_node(machine[by_name], by_name)

    def labels() -> dict[str, str]:
        return dict(world.api.get(f"/api/v1/nodes/{by_name}")["metadata"]["labels"])

    eventually(lambda: labels().get(f"{prefix}/row") == "7", 60, "the host's label is on its node")
    assert f"{prefix}/old" not in labels()
    assert labels()["other"] == "x"
    world.api.patch(world.hosts_path(by_name), {"metadata": {"labels": {f"{prefix}/row": None}}})
    eventually(lambda: f"{prefix}/row" not in labels(), 60, "and goes with it")


def test_what_the_go_provider_left_is_taken_over_as_it_is(
    world: World, eventually: Eventually, make_node: MakeNode
) -> None:
    world.make_hosts("h1")
    available(world, eventually, "h1")
    uid = world.host("h1")["metadata"]["uid"]
    api = "infrastructure.cluster.x-k8s.io/v1beta1"
    left = {
        "consumerRef": {"apiVersion": api, "kind": "Metal3Machine", "name": "m1", "namespace": world.namespace},
        "image": {"url": "http://images.invalid/before.qcow2", "checksum": "abc", "checksumType": "md5"},
        "userData": {"name": "before", "namespace": world.namespace}, "online": True,
    }  # fmt: skip
    world.api.patch(world.hosts_path("h1"), {"spec": left})
    eventually(lambda: world.state("h1") == "provisioned", 60, "provisioned")
    make_node(labels={"metal3.io/uuid": uid}, provider_id=f"metal3://{uid}")
    world.make_machines("m1")
    eventually(lambda: world.condition("m1", "Ready").get("status") == "True", 60, "ready")
    spec = world.host("h1")["spec"]
    assert {name: spec[name] for name in left} == left
    assert world.host_of("m1") == "h1"
    assert world.machine("m1")["spec"]["providerID"] == f"metal3://{uid}"


def test_where_a_cloud_provider_names_the_nodes_we_do_not(
    world: World, eventually: Eventually, make_node: MakeNode
) -> None:
    world.api.patch(world.metal("metal3clusters", "c1"), {"spec": {"cloudProviderEnabled": True}})
    name = f"d{os.urandom(3).hex()}"
    world.make_hosts(name)
    available(world, eventually, name)
    make_node(provider_id=f"metal3://{world.namespace}/{name}/m1")
    world.make_machines("m1")
    eventually(lambda: world.condition("m1", "Ready").get("status") == "True", 60, "found by its provider id")
    assert world.machine("m1")["spec"]["providerID"] == f"metal3://{world.namespace}/{name}/m1"


def test_a_host_whose_bmc_secret_goes_is_not_chosen_until_it_is_back(world: World, eventually: Eventually) -> None:
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.api.delete(world.core("secrets", "h1-bmc"))
    eventually(lambda: world.host("h1")["status"].get("errorType"), 60, "the host says so")
    world.make_machines("m1")
    eventually(lambda: "some report an error" in world.condition("m1").get("message", ""), 60, "the machine says so")
    assert "consumerRef" not in world.host("h1")["spec"]
    create(world.box, [world._secret("h1-bmc", {"username": "u", "password": "p"})])
    eventually(lambda: world.host_of("m1") == "h1", 90, "mended")


def test_live_iso_and_oci_images_go_without_a_checksum(
    world: World, eventually: Eventually, make_node: MakeNode
) -> None:
    images = {
        "iso": {"url": "http://images.invalid/live.iso", "diskFormat": "live-iso"},
        "oci": {"url": "oci://images.invalid/os:1"},
    }
    world.make_hosts("h1", "h2")
    available(world, eventually, "h1", "h2")
    for name in ("h1", "h2"):
        make_node(labels={"metal3.io/uuid": world.host(name)["metadata"]["uid"]})
    for name, image in images.items():
        world.make_machines(name, spec={"image": image})
    for name in images:
        eventually(lambda: world.condition(name, "Ready").get("status") == "True", 60, f"{name} is ready")  # noqa: B023
    installed = {name: world.host(world.host_of(name))["spec"]["image"] for name in images}
    assert installed["iso"] == {"url": "http://images.invalid/live.iso", "format": "live-iso"}
    assert installed["oci"] == {"url": "oci://images.invalid/os:1"}, "and nothing is made up that it does not say"


def test_the_machines_of_a_fleet_file_get_its_hosts(world: World, eventually: Eventually) -> None:
    hosts = [MetalHost(name="rack-{i}", count=3, labels={"row": "a"}), MetalHost(name="spare")]
    machines = [MetalMachine(name="worker-{i}", count=2, host_selector={"row": "a"})]
    fleet = Fleet(metal=[MetalCluster(name="c2", namespace=world.namespace, hosts=hosts, machines=machines)])
    load_fleet(world.box, fleet, Silent())
    eventually(lambda: all(world.host_of(name) for name in ("worker-0", "worker-1")), 60, "claimed")
    assert {world.host_of(name)[:5] for name in ("worker-0", "worker-1")} == {"rack-"}


ELSEWHERE = {"name": "x", "namespace": "kube-system"}
ETHERNET = {"id": "eth0", "type": "phy", "macAddress": {"fromHostInterface": "eth0"}}
BOND = {
    "id": "b",
    "bondMode": "802.3ad",
    "macAddress": {"string": "02:00:00:00:00:01"},
    "parameters": [{"name": "miimon"}],
}
TEMPLATES: dict[str, Any] = {
    "lost": {"metaData": {"ipAddressesFromPool": [{"key": "ip", "name": "nowhere"}]}},
    "bond": {"networkData": {"links": {"ethernets": [ETHERNET], "bonds": [{**BOND, "bondLinks": ["eth0", "eth7"]}]}}},
    "nic": {"networkData": {"links": {"ethernets": [
        {**ETHERNET, "macAddress": {"fromAnnotation": {"object": "metal3machine", "annotation": "mac"}}}
    ]}}},
    "good": {"metaData": {"strings": [{"key": "it-is", "value": "good"}]}},
}  # fmt: skip
# machine -> what its spec says, and what is said of it; the second half get a host, which stays empty
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "user": ({"userData": ELSEWHERE}, "spec.userData names a secret in namespace kube-system"),
    "meta": ({"metaData": ELSEWHERE}, "spec.metaData names a secret in namespace kube-system"),
    "network": ({"networkData": ELSEWHERE}, "spec.networkData names a secret in namespace kube-system"),
    "template": ({"dataTemplate": ELSEWHERE}, "spec.dataTemplate is in namespace kube-system"),
    "near": ({"hostSelector": selects("rack", "near", "1")}, "rack has the operator 'near'"),
    "number": ({"hostSelector": selects("rack", "Gt", "many")}, "rack gt needs a whole number, not 'many'"),
    "empty": ({"hostSelector": selects("rack", "In")}, "rack In needs at least one value"),
    "label": ({"hostSelector": selects("no label", "Exists")}, "'no label' is no label name"),
}
WRONG_DATA: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"dataTemplate": {"name": "nope"}}, "Metal3DataTemplate nope does not exist."),
    "pool": ({"dataTemplate": {"name": "lost"}}, "IPPool nowhere does not exist."),
    "bond": ({"dataTemplate": {"name": "bond"}}, "networkData.links.bonds b: bondLinks names 'eth7'"),
    "nic": ({"dataTemplate": {"name": "nic"}}, "the metal3machine has no annotation mac"),
}


def looks(running: Running) -> float:
    """How often anything was looked at so far."""
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("hostler_reconciles_total{"))


def test_wrong_input_is_named_leaves_nothing_half_done_and_goes_on_when_mended(
    world: World, eventually: Eventually, running: Running
) -> None:
    for name, spec in TEMPLATES.items():
        world.make_data_template(name, spec)
    hosts = [f"h{number}" for number in range(len(WRONG_DATA))]
    world.make_hosts(*hosts)
    available(world, eventually, *hosts)
    for name, (spec, _) in (WRONG | WRONG_DATA).items():
        world.make_machines(name, spec=spec)
    for cases, condition in ((WRONG, "AssociateBareMetalHost"), (WRONG_DATA, "Metal3DataReady")):
        for name, (_, says) in cases.items():
            eventually(lambda: says in world.condition(name, condition).get("message", ""), 60, f"{name}: {says}")  # noqa: B023
    assert not any(
        "metal3.io/BareMetalHost" in world.machine(name)["metadata"].get("annotations", {}) for name in WRONG
    )
    assert {consumer(one) for one in world.hosts()} == set(WRONG_DATA)
    assert not [one for one in world.hosts() if one["spec"].keys() & {"image", "userData", "metaData", "networkData"}]
    assert not [one for one in world.api.items(world.core("secrets")) if one["type"].endswith("x-k8s.io/secret")]
    log = [one for one in running.lines() if world.namespace in str(one)]
    assert not [one for one in log if one["event"] in ("bug in reconcile", "will try again")]
    before = looks(running)
    time.sleep(1)
    assert looks(running) - before < 50, "no hot loop: what is wrong is not looked at all the time"
    # Each is mended where it is wrong: a template or a pool comes, a template or an annotation is changed; the machine
    # named `unknown` gets another template under its claim.
    for name in ("user", "meta", "network", "template", "near"):
        (wrong,) = WRONG[name][0]
        world.api.patch(world.metal("metal3machines", name), {"spec": {wrong: None}})
    world.api.patch(world.metal("metal3machines", "unknown"), {"spec": {"dataTemplate": {"name": "good"}}})
    world.make_pool("nowhere", {"pools": [{"start": "10.9.0.10", "end": "10.9.0.20"}]})
    whole = {"spec": {"networkData": {"links": {"bonds": [{**BOND, "bondLinks": ["eth0"]}]}}}}
    world.api.patch(world.metal("metal3datatemplates", "bond"), whole)
    change = {"metadata": {"annotations": {"mac": "02:00:00:00:00:09"}}}
    world.api.patch(world.metal("metal3machines", "nic"), change)
    for name, (field, text) in {
        "unknown": ("metaData", "it-is: good"), "pool": ("metaData", "ip: 10.9.0.1"),
        "bond": ("networkData", "- eth0\n"), "nic": ("networkData", "02:00:00:00:00:09"),
    }.items():  # fmt: skip
        eventually(lambda: text in world.secret_text(f"{name}-{field.lower()}", field), 60, f"{name} is rendered")  # noqa: B023
        host = eventually(lambda: world.host_of(name), 60, f"{name} has its host")  # noqa: B023
        eventually(lambda: "image" in world.host(host)["spec"], 60, f"{name} is provisioned")  # noqa: B023
    for name in ("user", "meta", "network", "template", "near"):
        said = "AssociateBareMetalHostFailed"
        eventually(lambda: world.condition(name).get("reason") == said, 60, f"{name} only waits for a host")  # noqa: B023


def test_data_is_rendered_anew_when_a_machine_gets_another_host(world: World, eventually: Eventually) -> None:
    """Its first host goes before it is a node: the second must not be installed with the addresses of the first."""
    world.make_data_template("dt", {"metaData": {"fromHostInterfaces": [{"key": "mac", "interface": "eth0"}]}})
    world.make_hosts("h1", "h2")
    available(world, eventually, "h1", "h2")
    world.make_machines("m1", spec={"dataTemplate": {"name": "dt"}})
    first = eventually(lambda: world.host_of("m1"), 60, "claimed")
    (second,) = {"h1", "h2"} - {first}
    mac = {name: world.host(name)["spec"]["bootMACAddress"] for name in ("h1", "h2")}
    eventually(lambda: mac[first] in world.secret_text("m1-metadata", "metaData"), 60, "rendered for the first")
    eventually(lambda: "image" in world.host(first)["spec"], 60, "provisioned")
    world.api.delete(world.hosts_path(first))
    eventually(lambda: world.host_of("m1") == second, 60, "the second is its own")
    eventually(lambda: "image" in world.host(second)["spec"], 60, "provisioned")
    assert mac[second] in world.secret_text("m1-metadata", "metaData"), "its data came before its image"


POOL = {"apiGroup": "ipam.example.org", "kind": "OtherPool", "name": "other"}


def test_addresses_of_other_pools_come_by_cluster_apis_own_claims(world: World, eventually: Eventually) -> None:
    """Nobody here serves such pools, so the test does: it makes the address and names it in the claim."""
    source = {"key": "ip", "name": POOL["name"], "kind": POOL["kind"], "apiGroup": POOL["apiGroup"]}
    world.make_data_template("dt", {"metaData": {"ipAddressesFromPool": [source]}})
    create(world.box, [world._secret("m1-metadata", {"metaData": "somebody's own"})])
    world.make_hosts("h1")
    available(world, eventually, "h1")
    world.make_machines("m1", spec={"dataTemplate": {"name": "dt"}})
    claims = f"{CAPI_IPAM}/namespaces/{world.namespace}/ipaddressclaims"
    eventually(lambda: world.api.items(claims), 60, "claimed")
    (claim,) = world.api.items(claims)
    assert claim["spec"]["poolRef"] == POOL
    name = claim["metadata"]["name"]
    assert name == "dt-0-other"
    spec = {"address": "10.7.0.5", "prefix": 24, "gateway": "10.7.0.1", "poolRef": POOL, "claimRef": {"name": name}}
    create(world.box, [world._object("ipam.cluster.x-k8s.io/v1beta2", "IPAddress", name, spec)])
    world.api.patch(f"{claims}/{name}/status", {"status": {"addressRef": {"name": name}}})
    said = "is in the way and not ours (its type is Opaque)"
    eventually(lambda: said in world.condition("m1", "Metal3DataReady").get("message", ""), 60, "a Secret of its name")
    assert world.secret_text("m1-metadata", "metaData") == "somebody's own"
    world.api.delete(world.core("secrets", "m1-metadata"))
    eventually(lambda: "ip: 10.7.0.5" in world.secret_text("m1-metadata", "metaData"), 60, "rendered")
    world.api.delete(world.metal("metal3machines", "m1"))
    eventually(lambda: not world.machine("m1"), 60, "gone")
    eventually(lambda: not world.api.items(claims), 60, "and the claim with it")
    # One that is left over from a Metal3Data that somebody removed by force does not stay for ever.
    owner = {"apiVersion": INFRA, "kind": "Metal3Data", "name": "dt-7", "uid": os.urandom(16).hex()}
    ours = ["metal3data.infrastructure.cluster.x-k8s.io"]
    left = world._object(
        "ipam.cluster.x-k8s.io/v1beta2", "IPAddressClaim", "left", {"poolRef": POOL}, owner, finalizers=ours
    )
    create(world.box, [left])
    world.api.delete(f"{claims}/left")
    eventually(lambda: not world.api.items(claims), 60, "let go")
