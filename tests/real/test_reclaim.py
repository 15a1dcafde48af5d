"""Reclaim on two real API servers, a hub and an old cluster: hosts go back to discovery, are refused, or fail aloud."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.errors import Exit
from hostler.reclaim.agent_manifests import NAMESPACE_NAME
from hostler.sandbox import Options, Sandbox
from hostler.sandbox.load import create
from tests.real.agent_world import Fault, Server
from tests.real.operating import Running, denied, hostler, refused
from tests.real.reclaiming import PULL_SECRET, Case, Make, Site, making, site, until


@pytest.fixture(scope="module")
def old_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """An API server of its own, with nothing in it."""
    box = Sandbox.up(tmp_path_factory.mktemp("old"), Options(vcenter=False))
    yield box
    box.down()


@pytest.fixture(scope="module")
def clusters(
    sandbox: Sandbox, old_cluster: Sandbox, home: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with site(sandbox, old_cluster, tmp_path_factory.mktemp("hub"), home) as made:
        yield made


@pytest.fixture(scope="module")
def running(clusters: Site) -> Iterator[Running]:
    with clusters.running(HOSTLER_RECLAIM_ARTIFACT_HOSTS="127.0.0.1") as started:
        yield started
        assert refused(started) == []
        assert denied(clusters.hub, started.user) == []


@pytest.fixture(scope="module")
def their_namespace(clusters: Site) -> None:
    """Somebody else made it, so it stays, and no test waits for it to go: that takes seconds each time."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    path = f"/api/v1/namespaces/{NAMESPACE_NAME}"
    until(lambda: not clusters.there.get(path), "the last one is gone")
    metadata = {"name": NAMESPACE_NAME, "labels": labels}
    create(clusters.spoke, [{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])


@pytest.fixture
def make(clusters: Site, namespace: str, tmp_path: Path) -> Iterator[Make]:
    with making(clusters, namespace, tmp_path) as one:
        yield one


def test_a_host_returns_to_discovery_and_into_a_second_cluster(
    clusters: Site, running: Running, make: Make, tmp_path: Path
) -> None:
    case, other = make(f"worker.{os.urandom(3).hex()}.example"), make()
    until(lambda: case.agent()["status"].get("deprovision_info"), "the cluster is noted")
    noted = case.agent()["status"]["deprovision_info"]
    assert noted == {"cluster_namespace": case.namespace, "cluster_name": "old", "node_name": case.node}
    kubeconfig = clusters.hub.kubeconfig
    asked = hostler(kubeconfig, "reclaim", "start", case.name, "--yes", "--output", "json")
    assert asked.returncode == 0, asked.stderr
    case.reach("reclaiming", "Reclaiming")
    assert case.condition("Bound") == ("False", "Unbinding")

    (pod,) = until(case.pods, "the agent's pod")
    assert pod["spec"]["nodeName"] == case.node
    assert case.daemon_set()["metadata"]["name"] == f"{case.node.replace('.', '-')}-reclaim"
    assert other.daemon_set() == {}
    (pull,) = pod["spec"]["imagePullSecrets"]
    copied = clusters.there.get(f"/api/v1/namespaces/{NAMESPACE_NAME}/secrets/{pull['name']}")
    assert base64.b64decode(copied["data"][".dockerconfigjson"]).decode() == PULL_SECRET
    case.start_agent()
    case.reach("reclaiming-rebooting", "Rebooting")
    assert "Not verified" not in case.message()
    entry = case.scratch.text("boot/loader/entries/00-assisted-discovery.conf")
    assert "ignition.firstboot" in entry
    assert f"{clusters.url}/api/assisted-install/v2/infra-envs/{case.infra_env}/boot-artifacts/rootfs" in entry
    told = json.loads(hostler(kubeconfig, "reclaim", "status", case.name, "--output", "json").stdout)
    assert [(one["state"], one["reason"]) for one in told] == [("reclaiming-rebooting", "Rebooting")]
    late = hostler(kubeconfig, "reclaim", "cancel", case.name)
    assert (late.returncode != 0, "too late" in late.stderr) == (True, True)
    case.reboot()
    assert case.state == "reclaiming-rebooting"  # that it restarts is no end: only that it is there is
    clusters.spoke.node_power(case.node, "off")  # its kubelet confirms nothing any more
    ignition = hostler(kubeconfig, "reclaim", "token", f"{case.namespace}/env", "--operator-namespace", clusters.home)
    assert case.register(ignition.stdout.strip()) == 201, ignition.stderr
    case.reach("discovering-unbound", "Registered")
    assert case.condition() == ("True", "Registered")
    assert case.condition("Bound") == ("False", "Unbound")
    until(lambda: "deprovision_info" not in case.agent()["status"], "the old cluster is forgotten")
    until(lambda: not clusters.left(), f"nothing is left in the old cluster: {clusters.left()}")
    assert clusters.there.get(f"/api/v1/nodes/{case.node}")["metadata"]["name"] == case.node
    expected = {"Reclaiming", "AgentDeployed", "Rebooting", "Registered", "Withdrawn"}
    until(lambda: expected <= {reason for _, reason in case.events()}, "every step is told")

    explained = json.loads(
        hostler(
            kubeconfig, "explain", f"agent/{case.namespace}/{case.name}", "--operator", running.url, "--output", "json"
        ).stdout
    )
    assert explained["explanations"][0]["outcome"] == "It is in discovery."
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    assert 'hostler_reclaim_transitions_total{reason="Registered",transition="RegisterHost"}' in metrics
    assert 'hostler_hub_requests_total{call="registration",status="201"}' in metrics
    assert "hostler_hub_connections_dropped_total 0.0" in metrics

    # Whoever installs it next binds it, and the same Agent is known to be there.
    case.second_cluster("second", clusters.spoke.kubeconfig.read_bytes())
    case.bind("second")
    case.patch({"status": {"debugInfo": {"state": "installed"}}}, status=True)
    until(
        lambda: case.agent()["status"].get("deprovision_info", {}).get("cluster_name") == "second",
        "the second cluster is noted",
    )
    assert case.condition() == ("", "")
    # The second look writes nothing, once what the first one had to write is written.
    until(lambda: not case.agent()["metadata"].get("finalizers"), "nothing keeps the Agent")
    until(lambda: "reclaim.hostler.dev/node" not in case.agent()["metadata"].get("annotations", {}), "no node is held")
    case.annotate(nothing="1")
    before = case.agent()["metadata"]["resourceVersion"]
    time.sleep(2)
    assert case.agent()["metadata"]["resourceVersion"] == before
    assert "Traceback" not in running.log.read_text()


def test_every_refusal_has_its_reason_and_nothing_is_begun(
    clusters: Site, running: Running, their_namespace: None, make: Make
) -> None:
    last = make(roles=["control-plane"])
    machine = make(annotations={"machine.openshift.io/machine": "openshift-machine-api/m-1"})
    provider = make(provider_id="aws:///us-east-1/i-1")
    metal = make(**{"agent-install.openshift.io/bmh": "bmh-1"})
    another = make()
    another.patch({"status": {"inventory": {"systemVendor": {"serialNumber": f"VMware-{'42 ' * 16}"}}}}, status=True)
    gone, edited, early = make(), make(), make()
    for case in (last, machine, provider, metal, another, gone, edited, early):
        until(lambda case=case: case.agent()["status"].get("deprovision_info"), "noted")  # type: ignore[misc]
    stranger = make(bound=False)  # unbound before anybody noted where it was
    clusters.there.call("DELETE", f"/api/v1/nodes/{gone.node}")
    # Whoever may edit an Agent's spec does not choose with it which machine is restarted.
    edited.patch({"spec": {"hostname": last.node}})
    until(lambda: edited.condition()[1] == "PreviousClusterNotConfirmed", "it is said while it is bound")
    # Unbound and cancelled at once: of a host that is bound, a wish to cancel says nothing.
    cancelled = {"metadata": {"annotations": {"reclaim.hostler.dev/cancel": "yes"}}}
    early.patch({**cancelled, "spec": {"clusterDeploymentName": None}})
    expected = {
        "LastControlPlane": last, "ManagedByMachineProvider": machine, "BMCManaged": metal, "AnotherMachine": another,
        "NodeNotFound": gone, "PreviousClusterUnknown": stranger, "PreviousClusterNotConfirmed": edited,
        "Cancelled": early,
    }  # fmt: skip
    for case in (*expected.values(), provider):
        case.bind(None)
    for reason, case in expected.items():
        case.reach("unbinding-pending-user-action", reason)
        until(lambda case=case, reason=reason: ("Warning", reason) in case.events(), reason)  # type: ignore[misc]
    provider.reach("unbinding-pending-user-action", "ManagedByMachineProvider")
    assert "aws:///us-east-1/i-1" in provider.message()
    explained = hostler(
        clusters.hub.kubeconfig, "explain", f"agent/{last.namespace}/{last.name}", "--operator", running.url
    )
    assert "LastControlPlane" in explained.stdout, explained.stderr

    # What a person can mend, or mean: then it goes.
    last.annotate(confirm=f"{last.namespace}/old", retry="1")
    last.reach("reclaiming", "Reclaiming")
    provider.annotate(**{"managed-by": "aws:///us-east-1/i-1", "retry": "1"})
    provider.reach("reclaiming", "Reclaiming")
    assert "as the annotation reclaim.hostler.dev/managed-by accepts" in provider.message()
    # Cluster API's provider for Agents: the Machine of the node is this very Agent.
    clusters.there.call("PATCH", f"/api/v1/nodes/{machine.node}", {"spec": {"providerID": f"agent://{machine.name}"}})
    machine.annotate(retry="1")
    machine.reach("reclaiming", "Reclaiming")
    for case in (last, provider, machine):
        case.annotate(cancel="yes")
        case.reach("unbinding-pending-user-action", "Cancelled")


def test_a_control_plane_keeps_its_majority_and_goes_after_the_workers(
    clusters: Site, running: Running, their_namespace: None, make: Make
) -> None:
    first, second, _third = (make(roles=["control-plane"]) for _ in range(3))
    worker = make()
    first.unbind()
    first.reach("reclaiming", "Reclaiming")
    second.unbind()
    second.reach("unbinding-pending-user-action", "QuorumLost")
    assert "only 1 of 3 control-plane nodes" in second.message()
    assert f"reclaim.hostler.dev/confirm={second.namespace}/old" in second.message()

    # The whole cluster goes, by its name; its workers go first, while its API answers.
    words = ("reclaim", "start", f"{worker.namespace}/{worker.name}", "--yes", "--whole-cluster")
    wrong = hostler(clusters.hub.kubeconfig, *words, "hosts/another")
    assert (wrong.returncode, f"--whole-cluster {worker.namespace}/old" in wrong.stderr) == (Exit.REFUSED, True)
    assert hostler(clusters.hub.kubeconfig, *words, f"{worker.namespace}/old").returncode == 0
    worker.reach("reclaiming", "Reclaiming")
    second.annotate(confirm=f"{second.namespace}/old", retry="1")
    until(lambda: second.condition() == ("False", "WorkersFirst"), "it waits for the worker")
    assert (second.state, worker.node in second.message()) == ("unbinding-pending-user-action", True)
    worker.bind("old")
    second.reach("reclaiming", "Reclaiming")
    assert f"{second.namespace}/old loses its control plane" in second.message()


def test_without_kubeconfig_or_artifacts_it_is_refused_and_a_silent_cluster_is_waited_for(
    clusters: Site, running: Running, their_namespace: None, make: Make
) -> None:
    read = clusters.spoke.kubeconfig.read_text()
    silent = read.replace(f":{clusters.spoke.state.ports['kube-apiserver']}", ":9")
    bare = make(artifacts={}, kubeconfig=silent.encode())
    bare.unbind()
    until(lambda: bare.condition() == ("Unknown", "Deciding"), "a silent cluster is waited for")
    assert bare.state == "installed"
    secret = f"/api/v1/namespaces/{bare.namespace}/secrets/old-admin"
    code, _ = clusters.here.call("PATCH", secret, {"stringData": {"kubeconfig": read}})
    assert code == 200
    bare.reach("unbinding-pending-user-action", "ArtifactsUnavailable")
    clusters.here.call("DELETE", secret)
    bare.annotate(retry="1")
    until(lambda: bare.condition()[1] == "NoKubeconfig", "no kubeconfig")
    assert bare.state == "unbinding-pending-user-action"
    # A ClusterDeployment of assisted-service may name none: the Secret has a name of its own then.
    metadata = {"name": "old-admin-kubeconfig", "namespace": bare.namespace}
    create(clusters.hub, [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": read}}
    ])  # fmt: skip
    old = f"/apis/hive.openshift.io/v1/namespaces/{bare.namespace}/clusterdeployments/old"
    code, _ = clusters.here.call("PATCH", old, {"spec": {"clusterMetadata": None}})
    assert code == 200
    bare.annotate(retry="2")
    until(lambda: bare.condition()[1] == "ArtifactsUnavailable", "its cluster is asked again")


def test_cancelled_bound_again_and_tried_again(
    clusters: Site, running: Running, their_namespace: None, make: Make
) -> None:
    case, again = make(), make()
    for one in (case, again):
        one.unbind()
        one.reach("reclaiming", "Reclaiming")
        until(one.daemon_set, "the agent")
    asked = hostler(clusters.hub.kubeconfig, "reclaim", "cancel", f"{case.namespace}/{case.name}")
    assert asked.returncode == 0, asked.stderr
    case.reach("unbinding-pending-user-action", "Cancelled")
    again.bind("old")
    again.reach("installed", "Rebound")
    assert again.condition("Bound") == ("True", "Bound")
    until(lambda: not clusters.left(), "nothing is left")
    assert case.scratch.commands == []
    asked = hostler(clusters.hub.kubeconfig, "reclaim", "retry", case.name, "--output", "json")
    assert asked.returncode == 0, asked.stderr
    case.reach("reclaiming", "Reclaiming")
    case.start_agent()
    case.reach("reclaiming-rebooting")
    case.reboot()
    assert case.register() == 201
    case.reach("discovering-unbound", "Registered")


# -- failures of the download, each with the words a user sees


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Server]:
    """Where the InfraEnv says its artifacts are, with faults."""
    found = Server(tmp_path)
    yield found
    found.close()


def at(server: Server) -> dict[str, str]:
    return {name: f"{server.url}/{name}" for name in ("kernel", "initrd", "rootfs")}


DOWNLOADS = {
    "no space": ("huge", "NoSpace"),
    "404": ("404", "ArtifactsUnavailable"),
    "reset in mid-download": ("reset", "DownloadFailed"),
    "short body": ("short", "DownloadFailed"),
}


@pytest.mark.parametrize(
    "story", ["404", *(pytest.param(one, marks=pytest.mark.full) for one in DOWNLOADS if one != "404")]
)
def test_a_download_that_fails(story: str, running: Running, their_namespace: None, make: Make, files: Server) -> None:
    kind, reason = DOWNLOADS[story]
    files.world.faults["/initrd"] = Fault(kind)
    failing(make(artifacts=at(files)), reason)


def failing(case: Case, reason: str, **told: str) -> None:
    """The agent fails with this reason: state, condition and event say so, and nothing is left anywhere."""
    case.unbind()
    case.reach("reclaiming", "Reclaiming")
    case.start_agent(**told)
    case.reach("unbinding-pending-user-action", reason)
    assert case.condition() == ("False", reason), case.said()
    assert len(case.message()) > 10
    until(lambda: ("Warning", reason) in case.events(), "the event")
    until(lambda: not case.site.left(), "nothing is left")
    case.end_agents()
    assert not list((case.scratch.root / "boot/loader/entries").glob("*discovery*"))
    assert case.scratch.commands == []


def test_a_broken_connection_is_gone_on_with(
    running: Running, their_namespace: None, make: Make, files: Server
) -> None:
    # Ended half-way, and not reset: a reset takes with it what the agent has not read yet, which may be all of it.
    files.world.faults["/initrd"] = Fault("short", 1)
    case = make(artifacts=at(files))
    case.to_rebooting()
    assert any(ranged for _, path, ranged, _ in files.world.requests if path == "/initrd"), "it was begun anew"
    assert "Not verified: kernel and initrd" in case.message()


def test_a_wrong_hash(running: Running, their_namespace: None, make: Make, files: Server) -> None:
    """As the InfraEnv's owner wrote it down, for what comes from its own addresses."""
    case = make(artifacts=at(files))
    case.hashes(initrd=hashlib.sha256(b"something else").hexdigest())
    failing(case, "WrongHash")


def test_a_host_that_keeps_starting_discovery_is_warned_about(
    running: Running, their_namespace: None, make: Make
) -> None:
    case = make(scratch="zipl")
    case.to_rebooting()
    assert case.condition("NotOneShot") == ("True", "BootLoader")
    until(lambda: ("Warning", "NotOneShot") in case.events(), "the Event")


@pytest.mark.full
def test_a_host_nobody_can_boot(running: Running, their_namespace: None, make: Make) -> None:
    failing(make(scratch=""), "UnknownBootloader")


@pytest.mark.full
def test_secure_boot_and_an_unsigned_kernel(running: Running, their_namespace: None, make: Make) -> None:
    case = make()
    case.scratch.efi(secure_boot=True)
    failing(case, "SecureBoot")


def test_agents_nobody_hears_time_out(
    clusters: Site, running: Running, their_namespace: None, make: Make, tmp_path: Path
) -> None:
    """A wrong CA, another host's token, an expired one: the hub never hears them, and the state's time ends it."""
    untrusting, stranger, late = make(), make(), make()
    keys = clusters.keys()
    for case in (untrusting, stranger, late):
        case.unbind()
        case.reach("reclaiming", "Reclaiming")

    def token(case: Case, host: str, seconds: float) -> str:
        place = tmp_path / f"token-{case.node}"
        now = time.time()
        place.write_text(keys.for_host(case.namespace, case.infra_env, "env", host, now=now, seconds=seconds))
        return str(place)

    files = Server(tmp_path, tls=True)
    files.close()  # only its CA is wanted
    untrusting.start_agent(CA_FILE=files.ca_file)
    stranger.start_agent(TOKEN_FILE=token(stranger, untrusting.name, 600))
    late.start_agent(TOKEN_FILE=token(late, late.name, -1))
    until(lambda: "check HUB_CA" in untrusting.said(), "it says what is wrong")
    until(lambda: "403" in stranger.said(), "it is sent away")
    until(lambda: "401" in late.said(), "it is sent away")
    for case in (untrusting, stranger, late):
        assert not any(
            name.endswith(("report", "progress")) for name in case.agent()["metadata"].get("annotations", {})
        )
        case.later(3700)
    for case in (untrusting, stranger, late):
        case.reach("unbinding-pending-user-action", "TimedOut")
        until(lambda case=case: ("Warning", "TimedOut") in case.events(), "the event")  # type: ignore[misc]


def test_restarts_that_fail(clusters: Site, running: Running, their_namespace: None, make: Make) -> None:
    """A restart that does not begin, one that never comes, a host that boots back, one that never comes back.

    And one whose agent is killed with the entry written: the next one, as its DaemonSet starts it, takes it back.
    """
    refused, stuck, back, lost, killed = make(), make(), make(), make(), make()
    for case in (refused, stuck, back, lost, killed):
        case.to_rebooting()
    assert killed.armed()
    killed.annotate(cancel="yes")
    next_one = killed.start_agent(STAY="true")
    killed.reach("unbinding-pending-user-action", "Cancelled")
    until(lambda: not killed.armed(), "the entry is taken back")
    assert killed.scratch.commands == []
    next_one.terminate()
    assert next_one.wait(timeout=60) == 0

    refused.scratch.put("fails-systemctl", "")
    refused.start_agent()
    refused.reach("unbinding-pending-user-action", "RebootFailed")
    until(lambda: not list((refused.scratch.root / "boot/loader/entries").glob("*discovery*")), "the entry is gone")

    waiting = stuck.start_agent(STAY="true", RESTART_SECONDS="3600")
    until(lambda: "systemctl reboot" in stuck.scratch.commands, "the restart, which never comes")
    assert stuck.armed()
    stuck.later(1900)
    stuck.reach("unbinding-pending-user-action", "TimedOut")
    waiting.terminate()  # its DaemonSet is withdrawn
    assert (waiting.wait(timeout=60), stuck.armed()) == (0, False), stuck.said()

    back.reboot()
    back.scratch.put("proc/sys/kernel/random/boot_id", "22222222-2222-4222-8222-222222222222\n")
    back.start_agent()  # the pod is started again, in the old system
    back.reach("unbinding-pending-user-action", "BootedBack")
    assert back.scratch.commands.count("systemctl reboot") == 1, "it never loops"

    lost.reboot()
    lost.later(1900)
    lost.reach("unbinding-pending-user-action", "TimedOut")
    for case, reason in ((refused, "RebootFailed"), (back, "BootedBack"), (lost, "TimedOut")):
        until(lambda case=case, reason=reason: ("Warning", reason) in case.events(), reason)  # type: ignore[misc]
    until(lambda: not clusters.left(), "nothing is left")
    # Somebody walked to it in the end.
    assert lost.register() == 201
    lost.reach("discovering-unbound", "Registered")


@pytest.mark.full
def test_an_entry_that_cannot_be_verified(running: Running, their_namespace: None, make: Make) -> None:
    """bootctl says yes and does nothing: re-reading finds it."""
    case = make(scratch="systemd_boot")
    case.scratch.put("boot/loader/loader.conf", "default 6f3c-*\n")
    (case.scratch.root / "commands.sh").write_text("#!/bin/sh\nexit 0\n")
    failing(case, "EntryNotVerifiable")
