"""Reclaim with settings of its own, and killed at every stage; here one API server plays hub and old cluster."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from hostler.reclaim.agent_manifests import NAMESPACE_NAME, name_for
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.accounts import charted, kubeconfig_of, new_account, rights_here
from tests.real.doors import Doors
from tests.real.nursery import nursery
from tests.real.operating import Running, hostler, operator
from tests.real.reclaiming import Case, Make, Site, free_port, making, site, until
from tests.real.test_maintenance_kill import Chain, by_the_doors


@pytest.fixture
def clusters(sandbox: Sandbox, namespace: str, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "hub").mkdir()
    with site(sandbox, sandbox, tmp_path / "hub", namespace) as made:
        yield made


@pytest.fixture
def make(clusters: Site, namespace: str, tmp_path: Path) -> Iterator[Make]:
    with making(clusters, namespace, tmp_path) as one:
        yield one


def test_the_node_is_emptied_first_and_goes_with_its_host(clusters: Site, make: Make, namespace: str) -> None:
    """As `hostler plan` foretells it, write by write.

    Beside it: a host that is refused while no hub is configured, and one whose cluster is silent for too long.
    """
    api = clusters.there
    case, kept = make(), make()
    with clusters.running(name="unconfigured", HUB_URL=""):
        kept.unbind()
        kept.reach("unbinding-pending-user-action", "HubNotConfigured")
        assert "HUB_URL is not set" in kept.message()
        until(lambda: case.agent()["status"].get("deprovision_info"), "the cluster is noted on the Agent")
    silent = make()
    silent.second_cluster("silent", unanswered(clusters))
    silent.bind("silent")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for one in (case, kept):
        spec = {"nodeName": one.node, "containers": [{"name": "c", "image": "app:1"}]}
        create(clusters.spoke, [{
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": one.node, "namespace": namespace, "labels": {"app": one.node}},
        }])  # fmt: skip
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": kept.node}}},
    }  # fmt: skip
    # Without AGENT_IMAGE agents have the operator's own, which its pod says; nobody runs this one.
    own = {"nodeSelector": {"nobody": "has-this"}, "containers": [{"name": "c", "image": "operator:7"}]}
    create(clusters.hub, [
        budget,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own", "namespace": namespace}, "spec": own},
    ])  # fmt: skip
    told = {"AGENT_IMAGE": "", "HOSTLER_POD_NAME": "own"}
    wishes = ("--reclaim-drain", "--reclaim-remove-node")
    case.bind(None)
    planned = plan_of(clusters, case, wishes, told)
    with clusters.running(*wishes, name="draining", **told) as running:
        kept.annotate(retry="1")
        silent.unbind()
        until(lambda: silent.condition() == ("Unknown", "Deciding"), "a silent cluster is waited for")
        silent.waited(700)
        until(lambda: api.get(f"/api/v1/nodes/{kept.node}")["spec"].get("unschedulable"), "it is to be emptied")
        kept.later(700)  # longer than a drain may take
        (container,) = until(case.daemon_set, "the agent comes when the node is empty")["spec"]["template"]["spec"][
            "containers"
        ]
        assert container["image"] == "operator:7"
        assert api.get(f"{pods}/{case.node}") == {}
        assert api.get(f"/api/v1/nodes/{case.node}")["spec"]["unschedulable"] is True
        case.start_agent()
        case.reach("reclaiming-rebooting")
        case.reboot()
        assert case.register() == 201
        case.reach("discovering-unbound")
        time.sleep(1)
        assert api.get(f"/api/v1/nodes/{case.node}"), "a node that says it is ready is not deleted"
        clusters.spoke.node_power(case.node, "off")
        kept.reach("unbinding-pending-user-action", "DrainFailed")
        until(lambda: not api.get(f"/api/v1/nodes/{kept.node}")["spec"].get("unschedulable"), "it is schedulable again")
        assert api.get(f"{pods}/{kept.node}")["spec"]["nodeName"] == kept.node
        silent.reach("unbinding-pending-user-action", "SpokeUnreachable")
        assert "Hostler waited" in silent.message()
        until(lambda: not api.get(f"/api/v1/nodes/{case.node}"), "the node is deleted", 180)
        until(lambda: "deprovision_info" not in case.agent()["status"], "forgotten")
        until(lambda: not case.agent()["metadata"].get("finalizers"), "the finalizer is gone")
    compare(planned, case, running)


# The write by which each verb of a plan is recognised.
WRITES = {
    "move": ("patch", "Agent"), "put a finalizer on": ("patch", "Agent"), "hold the node of": ("patch", "Node"),
    "wait for": ("evict", "Pod"), "put the agent on the node of": ("apply", "DaemonSet"),
    "take the agent off the node of": ("delete", "DaemonSet"), "release the node of": ("patch", "Node"),
    "delete the node of": ("delete", "Node"), "forget the cluster of": ("patch", "Agent"),
    "take the finalizer off": ("patch", "Agent"),
}  # fmt: skip


def plan_of(clusters: Site, case: Case, wishes: tuple[str, ...], told: dict[str, str]) -> list[dict[str, str]]:
    """What an operator that may write nothing foretells."""
    flags = ("--dry-run", "--no-leader-election", *wishes)
    with operator(clusters.hub, clusters.folder, clusters.home, *flags, name="dry", told=clusters.told | told) as dry:
        words = ("plan", f"agent/{case.namespace}/{case.name}", "--operator", dry.url, "--output", "json")

        def planned() -> list[dict[str, str]]:
            answer = json.loads(hostler(clusters.hub.kubeconfig, *words).stdout or "{}")
            (found,) = answer.get("explanations") or [{}]
            steps = list(found.get("actions", []))
            return steps if steps and steps[0]["verb"] == "move" else []  # else it is still being read

        return until(planned, "the plan")


def compare(planned: list[dict[str, str]], case: Case, running: Running) -> None:
    """The operator wrote what was planned, in that order, and for these reasons."""
    names = {f"{case.namespace}/{case.name}", case.node, f"{NAMESPACE_NAME}/{name_for(case.node)}"}
    names.add(f"{case.namespace}/{case.node}")  # the pod
    wrote = [(one["verb"], one["kind"]) for one in running.lines() if one["event"] == "wrote" and one["name"] in names]
    kinds = set(WRITES.values())
    done = [what for what, _ in groupby(what for what in wrote if what in kinds)]
    steps = [one for one in planned if one["verb"] != "wait for" or one["target"] == "the pods"]
    assert done == [what for what, _ in groupby(WRITES[one["verb"]] for one in steps)], planned
    moved = [one for one in running.lines() if one["event"] == "host" and one["agent"] == case.name]
    moves = [one["why"] for one in planned if one["verb"] == "move"]
    assert len(moved) == len(moves)
    for one, move in zip(moved, moves, strict=True):
        assert move.endswith(f"({one['transition']}, {one['reason']})")


def test_beside_assisted_service_hosts_are_explained_and_left_alone(clusters: Site, make: Make) -> None:
    pod = {"nodeSelector": {"nobody": "has-this"}, "containers": [{"name": "c", "image": "theirs:1"}]}
    template = {"metadata": {"labels": {"app": "assisted-service"}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": "assisted-service"}}, "template": template}
    engine = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "multicluster-engine"}}
    theirs = {"name": "assisted-service", "namespace": "multicluster-engine"}
    create(clusters.hub, [engine, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": theirs, "spec": spec}])
    try:
        case = make()
        before = case.agent()
        with clusters.running("--no-leader-election", name="beside") as running:
            words = ("explain", f"agent/{case.namespace}/{case.name}", "--operator", running.url)

            def explained() -> str:
                said = " ".join(hostler(clusters.hub.kubeconfig, *words).stdout.split())
                return said if "note its cluster on" in said else ""

            told = until(explained, "what would be done is explained")
            assert "Only one of the two may own the Agents: docs/reclaim-assisted-service.md" in told
            assert case.agent() == before
    finally:
        clusters.here.call("DELETE", "/apis/apps/v1/namespaces/multicluster-engine/deployments/assisted-service")
        clusters.here.call("DELETE", "/api/v1/namespaces/multicluster-engine")


def unanswered(clusters: Site) -> bytes:
    """The old cluster's kubeconfig, with a port where nobody is."""
    read = clusters.spoke.kubeconfig.read_text()
    return read.replace(f":{clusters.spoke.state.ports['kube-apiserver']}", ":9").encode()


def test_the_operator_is_killed_after_every_stage(clusters: Site, make: Make, namespace: str) -> None:
    """Each operator dies at once when the Agent has reached its next stage; the next one goes on."""
    case = make()

    def killed(step: Callable[[], object], name: str) -> None:
        with clusters.running("--no-leader-election", name=name) as one:
            step()
            one.process.kill()
            one.process.wait()

    def to_reclaiming() -> None:
        case.unbind()
        case.reach("reclaiming")

    def downloaded() -> None:
        case.start_agent()
        until(lambda: case.agent()["metadata"].get("annotations", {}).get("reclaim.hostler.dev/report"), "the report")

    def registered() -> None:
        case.reboot()
        assert case.register() == 201

    for number, step in enumerate((to_reclaiming, downloaded, registered)):
        killed(step, f"killed-{number}")
    with clusters.running("--no-leader-election", name="last"):
        case.reach("discovering-unbound", "Registered")
        until(lambda: not clusters.left(), "nothing is left")
    assert case.scratch.commands.count("systemctl reboot") == 1
    assert name_for(case.node) not in str(clusters.there.get(f"/apis/apps/v1/namespaces/{NAMESPACE_NAME}/daemonsets"))


@pytest.mark.full
def test_two_operators_and_the_one_that_leads_is_killed(clusters: Site, make: Make, namespace: str) -> None:
    """Hosts only ever talk to the other one: it writes down what they say, and leads when the first one is gone."""
    case, beside = make(), free_port()
    with (
        clusters.running(name="first", HOSTLER_HUB_ADDRESS=f"127.0.0.1:{beside}") as first,
        clusters.running(name="second") as second,
    ):
        first.said("leading")
        case.unbind()
        case.reach("reclaiming")
        case.start_agent()
        case.reach("reclaiming-rebooting", "Rebooting")
        first.process.kill()
        first.process.wait()
        second.said("leading")
        with clusters.running(name="third", HOSTLER_HUB_ADDRESS=f"127.0.0.1:{beside}"):
            case.end_agents()
            case.start_agent(HUB_URL=f"https://127.0.0.1:{beside}")
            until(lambda: "systemctl reboot" in case.scratch.commands, "the restart")
            second.process.kill()
            second.process.wait()
            assert case.register(port=beside) == 201
            case.reach("discovering-unbound", "Registered")
            until(lambda: not clusters.left(), "nothing is left")
    assert case.scratch.commands.count("systemctl reboot") == 1


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_killed_after_every_write(clusters: Site, make: Make, namespace: str, tmp_path: Path) -> None:
    """Every write, to the hub, to the old cluster, and of what a host reports, is the last of its operator, once."""
    hub, folder = clusters.hub, tmp_path / "doors"
    folder.mkdir()
    with (
        Doors(hub, 1, folder).open() as doors,
        nursery() as born,
        charted(hub, new_account(namespace), rights_here(hub, ["reclaim"])) as user,
    ):
        doors.killing = True
        kubeconfig = by_the_doors(doors, kubeconfig_of(hub, folder, user), folder / "kubeconfig")
        case = make(kubeconfig=by_the_doors(doors, hub.kubeconfig, folder / "old-cluster").read_bytes())
        chain = Chain(doors, born, kubeconfig, namespace, clusters.told)
        try:
            case.unbind()
            case.reach("reclaiming")
            case.start_agent()
            until(lambda: case.state == "reclaiming-rebooting", "downloaded", 600)
            case.reboot()
            until(lambda: registered(case), "registered", 600)
            until(lambda: case.state == "discovering-unbound", "in discovery", 600)
            until(lambda: not clusters.left(), "nothing is left", 600)
            until(lambda: "deprovision_info" not in case.agent()["status"], "forgotten", 600)
            until(lambda: not case.agent()["metadata"].get("finalizers"), "let go", 600)
        finally:
            chain.stop()
    assert case.scratch.commands.count("systemctl reboot") == 1
    assert len(doors.stopped_at) > 15, doors.stopped_at
    assert any(what.startswith("DELETE") for what in doors.stopped_at)


def registered(case: Case) -> bool:
    """A discovery system asks until it is heard; the hub may be dead just now."""
    try:
        return case.register() == 201
    except (OSError, http.client.HTTPException):
        return False
