"""What a kubelet writes about itself reaches no VM but its own: the attack as a stolen kubelet's key would do it.

A kubelet may write the status, the labels and the annotations of its own Node, its providerID once, and nothing else.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Iterator

import pytest

from hostler.sandbox import Sandbox
from hostler.sandbox import http as sandbox_http
from hostler.vsphere.vmomi import vim
from tests.real.maintaining import POLICY, Plan, Site, site, until
from tests.real.operating import Running, hostler, operator
from tests.real.story import Story, telling
from tests.real.together import own_namespace

MERGE = "application/merge-patch+json"
REFUSED = "hostler_maintenance_identity_refused{"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


class Kubelet:
    """Whoever has the credentials of a node's kubelet: the user system:node:NAME in the group system:nodes."""

    def __init__(self, sandbox: Sandbox, node: str) -> None:
        self._sandbox, self.node = sandbox, node

    def patch(self, path: str, body: object) -> int:
        tls = sandbox_http.trust(self._sandbox.layout, "admin")
        port = self._sandbox.state.ports["kube-apiserver"]
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=tls)
        headers = {"Impersonate-User": f"system:node:{self.node}", "Impersonate-Group": "system:nodes"}
        try:
            connection.request("PATCH", path, json.dumps(body), {**headers, "Content-Type": MERGE})
            return connection.getresponse().status
        finally:
            connection.close()

    def claims(self, uuid: str) -> None:
        """It says that its machine has this UUID."""
        said = {"status": {"nodeInfo": {"systemUUID": uuid}}}
        assert self.patch(f"/api/v1/nodes/{self.node}/status", said) == 200
        assert self.patch(f"/api/v1/nodes/{self.node}", {"metadata": {"annotations": {POLICY: "stay-off"}}}) == 200

    def provides(self, uuid: str) -> None:
        """Its providerID, which nobody has set yet."""
        assert self.patch(f"/api/v1/nodes/{self.node}", {"spec": {"providerID": f"vsphere://{uuid}"}}) == 200

    def may_cordon(self, node: str) -> bool:
        return self.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}) < 300


PLANS = {
    # `cp` is a VM of the control plane; the liar claims it, and `honest` too.
    "liar": Plan({"esx1": 1, "esx2": 2, "esx3": 1}, {"liar": "esx1", "cp": "esx2", "honest": "esx2"}),
    # The node `worker` runs in `hull`; the VM of its own name is another.
    "named": Plan({"esx1": 1, "esx2": 1}, {"worker": "esx2", "hull": "esx1"}),
}


@pytest.fixture(scope="module")
def vcenter(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(sandbox, tmp_path_factory.mktemp("identity"), PLANS) as made:
        yield made


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, vcenter: Site, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    told = vcenter.environment(GUEST_SHUTDOWN_TIMEOUT_SECONDS="8", DRAIN_TIMEOUT_SECONDS="20")
    with operator(sandbox, tmp_path_factory.mktemp("operator"), home, told=told) as one:
        one.said("leading")
        yield one


def refusals(running: Running) -> dict[str, float]:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(REFUSED)]
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


def asked(running: Running, sandbox: Sandbox, *words: str) -> str:
    return hostler(sandbox.kubeconfig, *words, "--operator", running.url).stdout


def refused(story: Story, vm: str, why: str) -> None:
    """A Warning Event says so, and what the owner can do."""

    def told() -> bool:
        said = [one for one in story.events(vm) if one.startswith("IdentityRefused")]
        return any(why in one and "set the custom attribute hostler-node" in one for one in said)

    until(told, f"an Event says {why!r}", seen=lambda: story.events(vm))


def test_a_kubelet_with_anothers_uuid_stops_nothing(vcenter: Site, running: Running, sandbox: Sandbox) -> None:
    with own_namespace(vcenter.kube) as namespace, telling(vcenter, "liar", namespace) as story:
        story.nodes(pods=0, provider_id="")
        control_plane = {"metadata": {"labels": {vcenter.label: None, CONTROL_PLANE: ""}}}
        vcenter.kube.patch(f"/api/v1/nodes/{story.full('cp')}", control_plane)
        kubelet = Kubelet(sandbox, story.full("liar"))
        assert not kubelet.may_cordon(story.full("cp")), "it may not do itself what it would make Hostler do"
        kubelet.claims(story.vm("cp")["uuid"])
        until(lambda: refusals(running)["outranked"] == 1, "it is counted", seen=lambda: refusals(running))
        refused(story, "liar", f"VM {story.full('cp')} is {story.full('cp')} by stronger evidence")
        assert "by stronger evidence" in asked(running, sandbox, "explain", f"node/{story.full('liar')}")
        assert "by stronger evidence" in asked(running, sandbox, "maintenance", "status", "--output", "json")
        kubelet.provides(story.vm("honest")["uuid"])
        story.enter("esx2")
        story.comes_back("honest", "esx3")
        seen = {vm: (story.cordoned(vm), story.vm(vm)["power"], story.switched(vm)) for vm in ("liar", "cp")}
        assert seen == dict.fromkeys(("liar", "cp"), (False, "poweredOn", (0, 0))), story.events("liar")


def test_the_owner_proves_in_vcenter_which_vm_it_is(vcenter: Site, running: Running, sandbox: Sandbox) -> None:
    with own_namespace(vcenter.kube) as namespace, telling(vcenter, "named", namespace) as story:
        story.nodes("worker", pods=0, provider_id="")
        Kubelet(sandbox, story.full("worker")).claims(story.vm("hull")["uuid"])
        until(lambda: refusals(running)["unproven"] == 1, "it is counted", seen=lambda: refusals(running))
        story.enter("esx1")
        plan = ("maintenance", "plan", story.full("esx1"))
        until(lambda: "only the kubelet of" in asked(running, sandbox, *plan), "the plan says so")
        assert (story.cordoned("worker"), story.vm("hull")["power"]) == (False, "poweredOn")
        with vcenter.simulator.client() as content:
            fields = content.customFieldsManager
            key = fields.AddFieldDefinition("hostler-node", vim.VirtualMachine).key
            hull = vim.VirtualMachine(story.vm("hull")["id"], content.rootFolder._stub)
            fields.SetField(hull, key, story.full("worker"))
        story.reaches("worker", "powered-off")
        assert story.vm("hull")["power"] == "poweredOff"
        assert story.vm("worker")["power"] == "poweredOn", "the VM of its name is another"
