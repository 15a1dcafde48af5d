"""What holds maintenance back: bad input, a dry run, the number of drains at a time. Each with an operator of its own.

They run side by side (`together.py`): every one has its own vCenter, its own nodes and its own namespace.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostler.errors import Exit
from hostler.install.roles import Account, roles
from hostler.maintenance.model import State
from hostler.maintenance.placement import ON_VM, POOL, STOP
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.accounts import charted, new_account, rights_here
from tests.real.maintaining import Kube, Plan, Site, site, until
from tests.real.maintenance_stories import ALONE, PAIR, blocked, unblock
from tests.real.metal_world import install
from tests.real.operating import Running, environment, hostler, operator
from tests.real.story import Story, on_its_own, telling
from tests.real.together import Told, own_namespace, selected, side_by_side
from tests.real.vsphere_world import certificate

AT_ONCE = 6
UUID = "4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001"
Tale = Callable[[Sandbox, str, Path], None]
TALES: dict[str, Tale] = {}


def tale(script: Tale) -> Tale:
    TALES[script.__name__.replace("_", "-")] = script
    return script


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folders, kube = tmp_path_factory.mktemp("tales"), Kube(sandbox)

    def tell(name: str) -> None:
        (folders / name).mkdir()
        with own_namespace(kube) as namespace:
            TALES[name](sandbox, namespace, folders / name)

    with side_by_side(selected(request), tell, AT_ONCE) as futures:
        yield futures
    kube.close()


# -- what we are told is wrong


def says(running: Running, words: str, seconds: float = 60) -> None:
    until(lambda: words in running.log.read_text(), f"it says {words!r}", seconds, seen=running.log.read_text)
    assert running.process.poll() is None


def lacking(*privileges: str) -> Callable[[Site], object]:
    return lambda made: made.control("POST", "/privileges", {"missing": list(privileges)})


def measures(running: Running, wanted: dict[str, int]) -> None:
    """Its metrics of maintenance come to say this."""

    def measured() -> dict[str, float]:
        with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if line[:1] != "#"]
        return {name.removeprefix("hostler_maintenance_"): float(value) for name, _, value in lines}

    until(lambda: wanted.items() <= measured().items(), f"its metrics say {wanted}", seen=measured)


@contextmanager
def watched(sandbox: Sandbox, running: Running, folder: Path) -> Iterator[Callable[[], str]]:
    """`hostler maintenance status --watch` from here on, ended by Ctrl-C: all that it has shown so far."""
    shown = folder / "watched.txt"
    words = ("maintenance", "status", "--watch", "--operator", running.url)
    with shown.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hostler", *words],
            stdout=out, stderr=out, env=environment(sandbox.kubeconfig), cwd=folder,
        )  # fmt: skip
    try:
        yield shown.read_text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == Exit.INTERRUPTED, shown.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def leases(story: Story, running: Running) -> int:
    """How often this operator has written its lease."""
    return sum(resource == "leases" for _, resource, _ in story.trail.writes(running.user))


@tale
def a_wrong_password_is_tried_once_and_the_rest_goes_on(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong")
    told = {"VCENTER_PASSWORD_FILE": str(secret), "VCENTER_PASSWORD": ""}
    with on_its_own(sandbox, tmp_path, namespace, PAIR, told=told) as (running, story):
        story.nodes()
        story.enter("esx1")
        says(running, "refuses our user or password")
        # The rest does not need vCenter: what it reads, and what nobody but this operator writes.
        refused = hostler(sandbox.kubeconfig, "hold", story.full("a"), "--why", "a test", "--holder", "maintenance")
        assert (refused.returncode, story.cordoned("a")) == (Exit.REFUSED, False), refused.stderr
        hostler(sandbox.kubeconfig, "hold", story.full("a"), "--why", "a test", "--holder", "tester")
        explain = ("explain", f"node/{story.full('a')}", "--operator", running.url)
        until(lambda: "tester" in hostler(sandbox.kubeconfig, *explain).stdout, "this operator knows of the hold")
        hostler(sandbox.kubeconfig, "release", story.full("a"), "--holder", "tester")
        renewed = leases(story, running)
        until(lambda: leases(story, running) >= renewed + 2, "it goes on renewing its lease")
        assert story.site.control("GET", "/state")["logins"]["failures"] == 1, "accounts get locked"
        assert story.state("a") == ""
        secret.write_text("right")
        story.comes_back("a", "esx2")


@tale
def a_certificate_nobody_vouches_for(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    other, _ = certificate(tmp_path)
    with on_its_own(sandbox, tmp_path, namespace, PAIR, told={"VCENTER_CA_BUNDLE": str(other)}) as (running, story):
        story.nodes(pods=0)
        story.enter("esx1")
        says(running, "has a certificate that we do not trust")
        says(running, "VCENTER_CA_BUNDLE")
        time.sleep(1)
        assert story.state("a") == ""
        assert story.site.control("GET", "/state")["logins"]["attempts"] == 0, "the password went nowhere"


@tale
def a_malformed_label_is_refused_at_start(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    with (
        site(sandbox, tmp_path, {"label": PAIR}) as made,
        operator(sandbox, tmp_path, namespace, told=made.environment(GPU_NODE_LABEL="gpu in (a,b")) as running,
    ):
        assert running.process.wait(60) == Exit.SETTING
        said = running.log.read_text()
        assert "GPU_NODE_LABEL" in said
        assert "Traceback" not in said


@tale
def other_controllers_are_told_and_told_of_the_end(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """The cluster autoscaler on the Node, Cluster API's health checks on its Machine, which is in this cluster."""
    install(sandbox)
    scale_down = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    skip = "cluster.x-k8s.io/skip-remediation"
    told = {"HOSTLER_MAINTENANCE_SKIP_REMEDIATION": "true"}
    with on_its_own(sandbox, tmp_path, namespace, ALONE, told=told) as (_, story):
        kube, at = story.site.kube, f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/machines"
        spec = {
            "clusterName": "c",
            "bootstrap": {"dataSecretName": "b"},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "X", "name": "x"},
        }
        kind = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine"}
        kube.create(at, {**kind, "metadata": {"name": "m"}, "spec": spec})
        assert kube.patch(f"{at}/m/status", {"status": {"nodeRef": {"name": story.full("a")}}}) == 200

        def said() -> tuple[bool, bool]:
            machine = kube.get(f"{at}/m")["metadata"].get("annotations", {})
            return scale_down in story.annotations("a"), skip in machine

        machine = {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": namespace}
        story.nodes(annotations=machine)
        story.enter("esx1")
        story.wait("a", story.trail.evictions, "its first eviction")
        assert said() == (True, True)
        story.reaches("a", "powered-off")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        story.exit("esx1")
        story.comes_back("a", "esx1")
        assert said() == (False, False)


@tale
def two_vms_with_one_uuid_are_a_reason_and_never_a_guess(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """The node whose VM is not certain is left alone and says why; its neighbour goes on."""
    twins = Plan(
        {"esx1": 2, "esx2": 2},
        {"a": "esx1", "b": "esx1"},
        tuned={"a": {"uuid": UUID}},
        others={"twin": {"host": "esx2", "uuid": UUID}},
    )
    top = {"allowDuplicateUUIDs": True}
    with on_its_own(sandbox, tmp_path, namespace, twins, top=top) as (running, story):
        story.nodes()
        story.enter("esx1")
        story.comes_back("b", "esx2")
        explain = ("explain", f"node/{story.full('a')}", "--operator", running.url)
        both = [story.vm(name)["id"] for name in ("a", "twin")]
        until(lambda: all(one in hostler(sandbox.kubeconfig, *explain).stdout for one in both), "both are named")
        assert story.switched("a") == story.switched("twin") == (0, 0)


@tale
def missing_rights_are_named_with_their_object_and_granting_them_releases(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    """Nothing begins without them; when they are granted it goes on by itself, also where vCenter has refused us."""
    plans = {"own": Plan({"esx1": 1}, {"a": "esx1"}), "spare": Plan({"esx9": 1}, {})}
    with site(sandbox, tmp_path, plans) as made:
        lacking(*ON_VM, POOL)(made)
        spare = f"spare-{made.mark}"
        told = made.environment(HOSTLER_MAINTENANCE_CLUSTERS=spare)
        with operator(sandbox, tmp_path, namespace, told=told) as running, telling(made, "own", namespace) as story:
            story.nodes()
            story.tune("a", migrateSeconds=4)
            story.enter("esx1")
            for one in (*ON_VM, POOL):
                says(running, f"lacks {one}, which it needs")
            said = f"{' and '.join(STOP)} on VM {story.full('a')}; it is not stopped"
            story.wait(
                "a", lambda: any(said in event for event in story.events("a")), "an Event names what a stop takes"
            )
            assert (story.state("a"), story.cordoned("a"), story.switched("a")) == ("", False, (0, 0))
            assert not story.trail.evictions()
            lacking()(made)
            story.wait("a", lambda: story.vm("a")["power"] == "poweredOff", "its VM is off")
            lacking(ON_VM[1])(made)  # before it is moved, which takes a while
            refused = f"NoPermission: {ON_VM[1]}"
            story.wait("a", lambda: any(refused in event for event in story.events("a")), "vCenter refuses the start")
            assert story.cordoned("a")
            lacking()(made)
            story.comes_back("a", f"{spare}-esx9")
            assert story.switched("a") == (1, 1)
            story.evicted_once()


@tale
def a_right_that_comes_late_is_noticed(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """Until it may read kube-system a mark cannot name the cluster; then it does, without a restart."""
    rights, who = rights_here(sandbox, ["maintenance"]), new_account(namespace)
    late = [one for one in rights if one.names == ("kube-system",)]
    role, binding = roles(late, Account(namespace, f"{who.name}-late"), openshift=False)
    binding["subjects"][0]["name"] = who.name
    with (
        site(sandbox, tmp_path, {"own": PAIR}) as made,
        charted(sandbox, who, [one for one in rights if one not in late]) as user,
        operator(sandbox, tmp_path, namespace, user=user, told=made.environment()) as running,
        telling(made, "own", namespace) as story,
    ):
        story.nodes()
        blocked(story, "a")
        story.enter("esx1")
        says(running, "The namespace kube-system cannot be read")
        story.wait("a", lambda: "cluster=- " in story.mark("a"), "its mark names no cluster")
        try:
            create(sandbox, [role, binding])
            story.wait(
                "a", lambda: "cluster=" in (said := story.mark("a")) and "cluster=- " not in said, "it names it", 180
            )
        finally:
            sandbox.kubectl("delete", "clusterrole,clusterrolebinding", role["metadata"]["name"])
        unblock(story, "a")
        story.comes_back("a", "esx2")


@tale
def what_may_not_be_moved_waits_for_its_own_host(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """Without the right to move VMs a worker is stopped with a warning, and started again where it was."""
    with on_its_own(sandbox, tmp_path, namespace, PAIR, before=lacking("Resource.ColdMigrate")) as (_, story):
        story.nodes()
        story.enter("esx1")
        story.wait("a", lambda: any("Resource.ColdMigrate" in one for one in story.events("a")), "an Event names it")
        story.reaches("a", "powered-off")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        story.exit("esx1")
        story.comes_back("a", "esx1")
        assert story.switched("a") == (1, 1)
        assert any(one.startswith("ReturnInDoubt: ") for one in story.events("a")), story.events("a")


@tale
def a_label_that_no_node_has_is_said(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    told = {"GPU_NODE_LABEL": f"nobody.hostler.dev/{namespace}=true"}
    with on_its_own(sandbox, tmp_path, namespace, PAIR, told=told) as (running, _):
        sentence = f"No node has the label nobody.hostler.dev/{namespace}=true"
        says(running, sentence)
        status = hostler(sandbox.kubeconfig, "maintenance", "status", "--operator", running.url)
        assert sentence in status.stderr, status
        assert running.log.read_text().count(sentence) == 1


@tale
def without_the_right_to_mark_vms_all_else_works(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """The mark is kept in a ConfigMap, and the privilege is named."""
    poor = lacking("Global.SetCustomField", "Global.ManageCustomFields")
    with on_its_own(sandbox, tmp_path, namespace, ALONE, before=poor) as (running, story):
        story.nodes()
        story.enter("esx1")
        story.reaches("a", "powered-off")
        says(running, "Global.")

        def kept() -> str:
            path = f"/api/v1/namespaces/{namespace}/configmaps/hostler-stopped-vms"
            return str(story.site.kube.get(path).get("data", {}))

        story.wait("a", lambda: story.full("a") in kept(), "it is kept in the ConfigMap")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        story.exit("esx1")
        story.comes_back("a", "esx1")
        story.wait("a", lambda: story.full("a") not in kept(), "and taken out again")


@tale
def ha_starts_a_worker_elsewhere_and_its_kubelet_does_not_come_up(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    """Its host dies while it is emptied. It runs elsewhere, its last Ready is a dead machine's: cordoned, with why."""
    told = {"POWER_ON_TIMEOUT_SECONDS": "6"}
    with on_its_own(sandbox, tmp_path, namespace, PAIR, told=told) as (running, story):
        story.nodes()
        blocked(story, "a")
        story.enter("esx1")
        story.reaches("a", "draining")
        story.kubelet("a", comes_up=False)
        story.site.control("POST", f"/hosts/{story.full('esx1')}/crash", {"ha": True, "haSeconds": 1})
        story.reaches("a", "migrated")
        story.wait("a", lambda: any(one.startswith("PowerOnTimeout") for one in story.events("a")), "an Event says it")
        measures(running, {"power_on_timeouts_total": 1, 'nodes{state="migrated"}': 1})
        explain = ("explain", f"node/{story.full('a')}", "--operator", running.url)
        until(lambda: "is not back yet" in hostler(sandbox.kubeconfig, *explain).stdout, "explain says it too")
        assert (story.state("a"), story.cordoned("a"), story.vm("a")["power"]) == ("migrated", True, "poweredOn")
        unblock(story, "a")
        story.kubelet("a", comes_up=True)
        story.comes_back("a", "esx2")
        assert not [one for one in story.tasks("a") if one[0].startswith("power")], "HA did it, nobody else"


# -- held back


@tale
def a_dry_run_writes_nothing_and_says_each_decision_once(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    told = {"DRY_RUN": "true", "POLL_INTERVAL_SECONDS": "1"}
    with on_its_own(sandbox, tmp_path, namespace, PAIR, told=told) as (running, story):
        story.nodes()
        running.said("started")
        story.enter("esx1")
        until(lambda: story.full("a") in running.log.read_text(), "it says what it would do", seen=running.lines)
        time.sleep(5)
        assert not story.trail.writes(running.user)
        assert not story.trail.evictions()
        assert not story.leftovers("a")
        assert story.tasks("a") == []
        assert (story.switched("a"), story.mark("a")) == ((0, 0), "")
        lines = [{key: value for key, value in line.items() if key != "timestamp"} for line in running.lines()]
        about = Counter(json.dumps(line, sort_keys=True) for line in lines if story.full("a") in json.dumps(line))
        assert about
        assert set(about.values()) == {1}, about
        story.cancel("esx1")


@tale
def no_more_drains_at_a_time_than_allowed(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """Two workers leave one host, one at a time; one that is parked off does not count."""
    both = Plan({"esx1": 2, "esx2": 1}, {"a": "esx1", "b": "esx1"})
    with (
        on_its_own(sandbox, tmp_path, namespace, both, told={"MAX_CONCURRENT_DRAINS": "1"}) as (running, story),
        watched(sandbox, running, tmp_path) as shown,
    ):
        story.nodes()
        running.said("leading")
        blocked(story, "a")
        story.enter("esx1")
        story.reaches("a", "draining")
        time.sleep(2)
        assert (story.state("b"), story.cordoned("b")) == ("", False)
        explain = ("explain", f"node/{story.full('b')}", "--operator", running.url)
        until(lambda: "MAX_CONCURRENT_DRAINS" in hostler(sandbox.kubeconfig, *explain).stdout, "explain says why")
        until(lambda: f"{namespace}/keep-a" in shown(), "the status shows what blocks it", seen=shown)
        measures(running, {'blocked{reason="budget"}': 1, 'blocked{reason="slot"}': 1, 'nodes{state="draining"}': 1})
        unblock(story, "a")

        def one_parked() -> bool:
            stopped = all(story.switched(vm)[0] == 1 for vm in "ab")  # before that, the second has not begun
            return stopped and sorted(story.state(vm) for vm in "ab") == ["", "powered-off"]

        story.wait("b", one_parked, "one parked, one back")
        until(lambda: "or another host can take it" in shown(), "the status shows who waits for a host", seen=shown)
        story.exit("esx1")
        for vm in "ab":
            story.wait(vm, lambda vm=vm: not story.leftovers(vm), "in service")  # type: ignore[misc]
            assert story.switched(vm) == (1, 1)
        ended = {f'nodes{{state="{state}"}}': 0 for state in State} | {'blocked{reason="budget"}': 0}
        done = {'power_tasks_total{result="started",what="shutdown"}': 2, "detection_seconds_count": 2}
        done |= {'power_tasks_total{result="success",what="PowerOn"}': 2, "drain_seconds_count": 2}
        measures(running, ended | done)
        until(lambda: "No managed node is in maintenance" in shown(), "and that it is over", seen=shown)


@pytest.mark.parametrize("name", TALES)
def test_tale(name: str, told: Told) -> None:
    told[name].result()
