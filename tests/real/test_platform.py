"""Bare metal beside vSphere on the real API server, scheduler, DaemonSet controller and a real vCenter simulator."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from hostler.errors import Complaint
from hostler.host.platform import UNINITIALIZED
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from hostler.sandbox.fleet import Taint
from tests.real.conftest import Eventually
from tests.real.filming import versions
from tests.real.operating import Running, hostler, operator, refused
from tests.real.platforming import (
    DRIVER,
    INSTANCE_TYPE,
    METAL_ANNOTATIONS,
    METAL_LABELS,
    SPACE,
    STORY,
    VSPHERE_LABELS,
    clean,
    daemon_set,
    explained,
    fleet_conditions,
    overwritten,
    path_of,
    pods_on,
    prepare,
    required,
    rules_in_force,
    set_targets,
    statuses,
    terms,
)
from tests.real.vsphere_world import PASSWORD, USER, Simulator

MakeNode = Callable[..., str]
RULE = {"key": INSTANCE_TYPE, "operator": "Exists"}
SEED_UUID = "42100fe1-0a04-9eb7-1b73-9a3d4578b557"
ZONE = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
GRACE = 4


def uuid(number: int) -> str:
    return f"4206e4b5-0d3a-1d0f-86a1-2c1b6d9b{number:04d}"


VMS = {
    "master-0": {"host": "esx1", "uuid": uuid(0)},
    "master-1": {"host": "esx1", "uuid": uuid(1)},
    "master-2": {"host": "esx1", "uuid": SEED_UUID},
    "old-hardware": {"host": "esx1", "uuid": uuid(3), "hardwareVersion": "vmx-14"},
    "old-esxi": {"host": "esx2", "uuid": uuid(4)},
    "older-esxi": {"host": "esx3", "uuid": uuid(5)},
    "waiting": {"host": "esx1", "uuid": uuid(6)},
}
INVENTORY = {
    "datacenters": [
        {
            "name": "dc1",
            "clusters": [
                {
                    "name": "c",
                    "hosts": [
                        {"name": "esx1"},
                        {"name": "esx2", "version": "7.0.1"},
                        {"name": "esx3", "version": "6.7.0"},
                    ],
                }
            ],
            "vms": [{"name": name, **fields} for name, fields in VMS.items()],
        }
    ]
}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    world = Simulator(tmp_path_factory.mktemp("vcenter"), INVENTORY)
    world.start()
    yield world
    world.kill()


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One operator for the whole file, with two vCenters: the sandbox's own, and one with the seed's VMs."""
    folder = tmp_path_factory.mktemp("platform")
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    install_crds(sandbox, ("openshift",), Silent())
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}, "spec": {}})
    prepare(sandbox)
    own = sandbox.vcenter
    seeds = {"host": f"127.0.0.1:{simulator.port}", "user": USER, "password": PASSWORD}
    listed = [
        {"host": f"{own['host']}:{own['port']}", "user": own["user"], "password": own["password"],
         "caBundle": own["ca_bundle"]},
        {**seeds, "caBundle": simulator.state["ca_bundle"]},
    ]  # fmt: skip
    (folder / "vcenters.yaml").write_text(yaml.safe_dump({"vcenters": listed}))
    name = f"platform-{os.urandom(4).hex()}"
    sandbox.kubectl("create", "namespace", name)
    flags = ("--only", "platform", "--vcenters-file", str(folder / "vcenters.yaml"))
    with operator(sandbox, folder, name, *flags, "--uninitialised-grace-seconds", str(GRACE)) as started:
        started.said("leading")
        yield started
        assert refused(started) == []
    clean(sandbox)
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    sandbox.kubectl("delete", "namespace", name, SPACE, "--wait=false")


@pytest.fixture(autouse=True)
def tidy(sandbox: Sandbox, running: Running) -> Iterator[None]:
    yield
    sandbox.kubectl("delete", "daemonsets,pods,pvc", "--all", "-n", SPACE, "--force", "--grace-period=0")
    set_targets(sandbox, None)


@pytest.fixture
def story() -> str:
    return f"s-{os.urandom(3).hex()}"


@pytest.fixture
def masters(make_node: MakeNode, story: str) -> list[str]:
    """The seed's three masters: VMs of the second vCenter, with the labels its cloud provider sets."""
    return [
        make_node(
            f"{story}-master-{number}", roles=["control-plane", "master", "worker"],
            labels={**VSPHERE_LABELS, STORY: story}, provider_id=f"vsphere://{VMS[f'master-{number}']['uuid']}",
        )
        for number in range(3)
    ]  # fmt: skip


@pytest.fixture
def metal(make_node: MakeNode, story: str) -> str:
    """The seed's bare metal node: no providerID, no instance type."""
    return make_node(
        f"{story}-bm", roles=["worker"], labels={**METAL_LABELS, STORY: story}, annotations=METAL_ANNOTATIONS,
        provider_id="",
    )  # fmt: skip


def replace_driver(box: Sandbox, body: dict[str, Any]) -> dict[str, Any]:
    """Overwrite it whole, as `helm upgrade --force` does; the answer is what the API server keeps."""
    for _ in range(20):  # kubectl reads the version first; its controller may write in between
        if answer := box.kubectl("replace", "-f", "-", "-o", "json", input=json.dumps(body), check=False):
            return dict(json.loads(answer))
    raise AssertionError("kubectl replace met a conflict each time")


def test_the_seeds_cluster(
    sandbox: Sandbox, running: Running, masters: list[str], metal: str, story: str, eventually: Eventually
) -> None:
    """Without the guard the driver crashes on the bare metal node for ever; with it, it never runs there.

    A pod there that has a vSphere volume is named all the while.
    """
    everywhere = {"namespace": SPACE, "name": DRIVER, "key": "kubernetes.io/os"}
    set_targets(sandbox, [everywhere])
    eventually(lambda: rules_in_force(sandbox) == ["kubernetes.io/os"], 60, "the guard is off")
    sandbox.apply(daemon_set(story, crash_on=metal), *with_volume(story, metal))
    eventually(lambda: pods_on(sandbox) == sorted([*masters, metal]), 60, "the driver is on every node")
    lagging = "3 of 4 pods available"
    eventually(lambda: lagging in fleet_conditions(sandbox).get("Progressing", {}).get("message", ""), 60, lagging)
    assert statuses(sandbox)["Progressing"] == "True"
    eventually(lambda: "Passed" in explained(running, masters[2]), 60, "its check")
    assert "may run here" in explained(running, masters[2])
    shown = hostler(sandbox.kubeconfig, "platform", "status")  # which asks no operator
    assert shown.returncode == 0, shown.stderr
    for word in (metal, "foreign", f"{SPACE}/{DRIVER}", "in place", "admission policy", "Upgradeable"):
        assert word in shown.stdout, word
    stranded = f"These pods need a driver that is not on their node: default/{story} on {metal}"
    both = f"{stranded} and {SPACE}/"
    eventually(lambda: both in fleet_conditions(sandbox)["PodsStranded"]["message"], 60, "and the crashing pod")

    set_targets(sandbox, None)  # the default rule: the guard is on
    eventually(lambda: pods_on(sandbox) == sorted(masters), 60, "the driver left the bare metal node")
    eventually(lambda: f"{stranded}." in fleet_conditions(sandbox)["PodsStranded"]["message"], 60, "it still waits")
    sandbox.kubectl("delete", "pod", story, "-n", "default", "--force", "--grace-period=0")
    sandbox.kubectl("delete", f"pvc/{story}", f"pv/{story}", "-n", "default", "--wait=false")
    well = {"Available": "True", "Progressing": "False", "Degraded": "False", "Upgradeable": "True",
            "PodsStranded": "False"}  # fmt: skip
    eventually(lambda: statuses(sandbox) == well, 60, f"all is well: {fleet_conditions(sandbox)}")
    assert "admission policy" in fleet_conditions(sandbox)["Available"]["message"]
    del well["PodsStranded"]
    eventually(lambda: operator_statuses(sandbox) == well, 60, f"so says the ClusterOperator: {well}")

    sandbox.kubectl("delete", "pods", "--all", "-n", SPACE, "--force", "--grace-period=0")
    eventually(lambda: pods_on(sandbox) == sorted(masters), 60, "and never comes back there")
    said = hostler(sandbox.kubeconfig, "explain", f"node/{metal}", "--operator", running.url).stdout
    assert "kept off" in said
    assert f"{metal} is foreign" in said
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        measured = answer.read().decode()
    for line in ('condition{type="Degraded"} 0.0', 'condition{type="Upgradeable"} 1.0', "stranded_pods 0.0",
                 'checks{result="VMNotFound"} 0.0', 'nodes{class="foreign"} '):  # fmt: skip
        assert f"hostler_platform_{line}" in measured
    told = json.loads(hostler(sandbox.kubeconfig, "platform", "status", "-o", "json").stdout)
    (driver,) = [one for one in told["daemonSets"] if one["name"] == f"{SPACE}/{DRIVER}"]
    assert (driver["mayRunOn"], driver["keptOff"]) == (sorted(masters), [metal])


def with_volume(name: str, node: str) -> list[dict[str, Any]]:
    """A pod that never starts on this node, with a volume of the vSphere CSI driver."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    volume = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
              "csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": "v"},
              "claimRef": {"namespace": "default", "name": name}}  # fmt: skip
    pod = {"nodeName": node, "containers": [{"name": "c", "image": "i"}],
           "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}  # fmt: skip
    about = {"name": name, "namespace": "default"}
    left = {**about, "annotations": {"sandbox.hostler.dev/kubelet": "ignore"}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": about,
            "spec": {**claim, "storageClassName": ""},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": left, "spec": pod},
    ]


def operator_statuses(box: Sandbox) -> dict[str, str]:
    kept = box.get("clusteroperators.config.openshift.io", "hostler-platform").get("status", {}).get("conditions", [])
    return {one["type"]: one["status"] for one in kept}


def applied(running: Running) -> list[str]:
    """The DaemonSets the operator wrote to, by its own word."""
    wrote = [one for one in running.lines() if one.get("event") == "wrote" and one.get("verb") == "apply"]
    return [one["name"] for one in wrote if one["kind"] == "DaemonSet"]


def test_overwriting_it_again_and_again_never_loses_the_rule(
    sandbox: Sandbox, running: Running, masters: list[str], metal: str, story: str, eventually: Eventually
) -> None:
    """In no version of the DaemonSet the API server ever had is the rule missing; nobody fights over it."""
    eventually(lambda: rules_in_force(sandbox) == [INSTANCE_TYPE], 60, "the policy")
    before = len(applied(running))
    with versions(sandbox, path_of().rpartition("/")[0], DRIVER) as seen:
        sandbox.apply(daemon_set(story))
        with overwritten(sandbox, story, "helm", every=0.4) as answers:
            eventually(lambda: len(answers) >= 5, 90, "five times")
        last = max(one["metadata"]["generation"] for one in answers)
        eventually(lambda: any(one["metadata"]["generation"] == last for one in seen), 60, "the film shows all of it")
    assert len({one["metadata"]["generation"] for one in seen}) > len(answers), "each overwrite is in it"
    assert all(required(one) == [{"matchExpressions": [RULE]}] for one in seen)
    eventually(lambda: pods_on(sandbox) == sorted(masters), 60, f"never on {metal}")
    eventually(lambda: statuses(sandbox).get("Degraded") == "False", 60, f"all is well: {fleet_conditions(sandbox)}")
    assert len(applied(running)) == before, "nothing was to be mended"


def test_daemon_sets_are_chosen_by_label(
    sandbox: Sandbox, running: Running, masters: list[str], metal: str, story: str, eventually: Eventually
) -> None:
    """By the labels of the DaemonSet, from its first version on; one of the same namespace without them is let be."""
    refused = {"labels": {"driver": story}, "name": "both"}
    with pytest.raises(Complaint, match="either namespace and name, or labels"):
        set_targets(sandbox, [refused])
    set_targets(sandbox, [{"labels": {"driver": story}}])
    chosen = ("--dry-run=server", "-o", "json", "-f", "-")
    mine, other = (SPACE, f"{story}-mine"), (SPACE, f"{story}-other")
    body = json.dumps(daemon_set(story, at=mine, driver=story))
    eventually(
        lambda: required(json.loads(sandbox.kubectl("create", *chosen, input=body))) == [{"matchExpressions": [RULE]}],
        60, "the policy",
    )  # fmt: skip
    sandbox.apply(daemon_set(story, at=mine, driver=story), daemon_set(story, at=other, driver="another"))
    kept = {name: required(sandbox.read(path_of((SPACE, name)))) for _, name in (mine, other)}
    assert kept == {mine[1]: [{"matchExpressions": [RULE]}], other[1]: []}
    eventually(lambda: pods_on(sandbox) == sorted([*masters, *masters, metal]), 60, "one of them keeps off")
    told = json.loads(hostler(sandbox.kubeconfig, "platform", "status", "-o", "json").stdout)
    assert [(one["name"], one["way"]) for one in told["daemonSets"]] == [("/".join(mine), "admission policy")]
    eventually(lambda: f"{mine[1]} is kept" in fleet_conditions(sandbox)["Available"]["message"], 60, "named")


def test_a_users_own_terms_are_kept(sandbox: Sandbox, running: Running, story: str, eventually: Eventually) -> None:
    """Every shape of affinity, through the admission policy and by the same rule in Python."""
    name = {"key": "metadata.name", "operator": "In", "values": ["x"]}

    def node_affinity(*listed: dict[str, Any]) -> dict[str, Any]:
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(listed)}}}

    eventually(lambda: rules_in_force(sandbox) == [INSTANCE_TYPE], 60, "the policy")
    shapes: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({"podAntiAffinity": {}}, [{"matchExpressions": [RULE]}]),
        ({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, [{"matchExpressions": [RULE]}]),
        (node_affinity({"matchExpressions": [ZONE]}), [{"matchExpressions": [ZONE, RULE]}]),
        (
            node_affinity({"matchExpressions": [ZONE]}, {"matchFields": [name]}, {"matchExpressions": [RULE, ZONE]}),
            [
                {"matchExpressions": [ZONE, RULE]},
                {"matchFields": [name], "matchExpressions": [RULE]},
                {"matchExpressions": [RULE, ZONE]},
            ],
        ),
        (node_affinity({}, {"matchExpressions": [ZONE]}), [{}, {"matchExpressions": [ZONE, RULE]}]),
    ]
    given, wanted = shapes[2]
    for image in ("csi:1", "csi:2"):  # its owner applies server-side, without force: our rule is in nobody's way
        body = json.dumps(daemon_set(story, affinity=given, image=image))
        sandbox.kubectl("apply", "--server-side", "--field-manager=owner", "-f", "-", input=body)
        assert terms(sandbox) == wanted
    for given, wanted in shapes:
        assert required(replace_driver(sandbox, daemon_set(story, affinity=given))) == wanted


def test_nodes_are_checked_and_all_failing_ones_named(
    sandbox: Sandbox, running: Running, simulator: Simulator, masters: list[str], make_node: MakeNode, story: str,
    eventually: Eventually,
) -> None:  # fmt: skip
    sandbox.apply(daemon_set(story))
    eventually(lambda: statuses(sandbox).get("Upgradeable") == "True", 60, "all pass")
    for vm in ("old-hardware", "old-esxi", "older-esxi"):
        make_node(f"{story}-{vm}", labels=VSPHERE_LABELS, provider_id=f"vsphere://{VMS[vm]['uuid']}")
    make_node(f"{story}-gone", labels=VSPHERE_LABELS, provider_id=f"vsphere://{uuid(99)}")

    def said(type: str) -> str:
        return fleet_conditions(sandbox).get(type, {}).get("message", "")

    eventually(lambda: f"{story}-gone" in said("Degraded"), 60, "after the grace, a missing VM is named")
    for word in ("older-esxi", "old-hardware", "gone"):
        assert f"{story}-{word}" in said("Degraded")
    assert f"{story}-old-esxi" not in said("Degraded"), "7.0.1 only blocks an upgrade"
    assert f"ESXi below 7.0.2: {story}-old-esxi" in said("Upgradeable")
    assert statuses(sandbox)["Upgradeable"] == "False"
    simulator.kill()
    try:
        eventually(lambda: statuses(sandbox)["Upgradeable"] == "Unknown", 90, "vCenter does not answer")
        assert f"{story}-gone" in said("Upgradeable"), "the last answer is kept"
        assert "since 20" in said("Upgradeable")
        assert statuses(sandbox)["Degraded"] == "True"
    finally:
        simulator.start()
    eventually(lambda: statuses(sandbox)["Upgradeable"] == "False", 120, "it answers again")


def test_a_taint_nobody_will_remove_goes_and_another_stays(
    sandbox: Sandbox, running: Running, make_node: MakeNode, story: str, eventually: Eventually
) -> None:
    taint = Taint(key=UNINITIALIZED, value="true", effect="NoSchedule")
    foreign = make_node(f"{story}-bm", provider_id="", taints=[taint])
    coming = make_node(f"{story}-vm", provider_id="", taints=[taint], system_uuid=uuid(6))

    def taints(node: str) -> set[str]:
        return {one["key"] for one in sandbox.read(f"/api/v1/nodes/{node}")["spec"].get("taints", [])}

    eventually(lambda: UNINITIALIZED not in taints(foreign), 60, "the stale taint is gone")
    assert "hostler.dev/test" in taints(foreign), "other taints stay"
    assert UNINITIALIZED in taints(coming), "a VM's cloud provider may yet come"
    events = "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=reason%3DTaintRemoved"
    eventually(
        lambda: foreign in {one["regarding"]["name"] for one in sandbox.read(events)["items"]},
        60,
        "it had one: an event",
    )


def test_a_rule_that_leaves_no_node_or_takes_the_driver_from_its_own_is_said(
    sandbox: Sandbox, running: Running, make_node: MakeNode, story: str, eventually: Eventually
) -> None:
    bare = make_node(f"{story}-vm", labels={STORY: story}, provider_id=f"vsphere://{SEED_UUID}")
    set_targets(sandbox, [])
    eventually(lambda: rules_in_force(sandbox) == [], 60, "no target, no policy")
    sandbox.apply(daemon_set(story))
    eventually(lambda: pods_on(sandbox) == [bare], 60, "the driver runs on a VM that lacks the label")
    set_targets(sandbox, None)
    held = f"would take it from {bare}"
    eventually(lambda: held in fleet_conditions(sandbox).get("Degraded", {}).get("message", ""), 60, "it is held back")
    assert terms(sandbox) == []
    assert pods_on(sandbox) == [bare], "nothing was taken away"
    events = f"/apis/events.k8s.io/v1/namespaces/{SPACE}/events?fieldSelector=reason%3DNoEligibleNode"
    eventually(lambda: sandbox.read(events)["items"], 60, "a warning")
    sandbox.kubectl("label", "node", bare, f"{INSTANCE_TYPE}=vsphere-vm.cpu-8")
    eventually(lambda: terms(sandbox) == [{"matchExpressions": [RULE]}], 60, "with the label the rule goes in")
    eventually(lambda: pods_on(sandbox) == [bare], 60, "and the driver stays")
