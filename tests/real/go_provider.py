"""Objects as the Go provider (cluster-api-provider-metal3) writes them, step by step, on a real API server.

It is not that provider: each method writes what the provider leaves behind at that point, by the public facts of its
1.13 (owner reference host -> machine, no block-move) and 1.14 (the other way round) releases, under Cluster API's own
controllers. Nothing goes on by itself.
"""

from __future__ import annotations

from tests.real.capi_world import BLOCK_MOVE, GROUP, IMAGE, INFRA, CapiWorld
from tests.real.metal_world import METAL, Json

OLD = f"{GROUP}/v1beta1"
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"


def condition(kind: str, *, true: bool = True, reason: str = "") -> Json:
    return {
        "type": kind, "status": "True" if true else "False", "reason": reason or kind, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip


class GoProvider:
    """What it writes in one namespace."""

    def __init__(self, world: CapiWorld) -> None:
        self._world, self._api = world, world.api

    def _machine(self, name: str) -> str:
        return self._world.metal("metal3machines", name)

    def owner(self, kind: str, plural: str, name: str, *, version: str = INFRA, controller: bool = False) -> Json:
        found = self._api.get(self._world.metal(plural, name))
        made = {"apiVersion": version, "kind": kind, "name": name, "uid": found["metadata"]["uid"]}
        return {**made, "controller": True, "blockOwnerDeletion": True} if controller else made

    def prepare_cluster(self) -> None:
        path = self._world.metal("metal3clusters", self._world.name)
        self._api.patch(path, {"metadata": {"finalizers": [f"metal3cluster.{GROUP}"]}})
        old = {"conditions": [condition("Ready"), condition("BaremetalInfrastructureReady")]}
        status = {
            "initialization": {"provisioned": True}, "conditions": [condition("Ready")],
            "deprecated": {"v1beta1": old},
        }  # fmt: skip
        self._api.patch(f"{path}/status", {"status": status})

    def adopt_machine(self, machine: str) -> None:
        """The first thing that it does: the finalizer, long before there is a host."""
        self._api.patch(self._machine(machine), {"metadata": {"finalizers": [f"metal3machine.{GROUP}"]}})

    def claim_host(self, machine: str, host: str, *, before_1_14: bool) -> None:
        """The host first, then the annotation on the machine and the label of the BMC secret."""
        world = self._world
        self.adopt_machine(machine)
        meta: Json = {"labels": {CLUSTER_NAME: world.name}}
        if before_1_14:
            meta["ownerReferences"] = [
                self.owner("Metal3Machine", "metal3machines", machine, version=OLD, controller=True)
            ]
        else:
            meta["annotations"] = {BLOCK_MOVE: ""}
        consumer = {"apiVersion": OLD, "kind": "Metal3Machine", "name": machine, "namespace": world.name}
        self._api.patch(world.hosts_path(host), {"metadata": meta, "spec": {"consumerRef": consumer}})
        annotation = {"metal3.io/BareMetalHost": f"{world.name}/{host}"}
        self._api.patch(self._machine(machine), {"metadata": {"annotations": annotation}})
        secret = f"/api/v1/namespaces/{world.name}/secrets/{host}-bmc"
        self._api.patch(secret, {"metadata": {"labels": {CLUSTER_NAME: world.name}}})
        self._say(machine, condition("AssociateBareMetalHost"))

    def provision(self, machine: str, host: str) -> None:
        """Image and bootstrap data on the host; Baremetal Operator installs it from here on."""
        found = self._api.get(self._machine(machine))
        owner = next(one["name"] for one in found["metadata"]["ownerReferences"] if one["kind"] == "Machine")
        bootstrap = self._api.get(self._world.capi("machines", owner))["spec"]["bootstrap"]["dataSecretName"]
        user_data = {"name": bootstrap, "namespace": self._world.name}
        spec = {"image": IMAGE, "userData": user_data, "online": True}
        self._api.patch(self._world.hosts_path(host), {"spec": spec})
        self._api.patch(f"{self._machine(machine)}/status", {"status": {"userData": user_data}})

    def render_data(self, machine: str, template: str, index: int) -> None:
        """Claim and data with two finalizers each, and the owners that the provider gives them."""
        world, name = self._world, f"{template}-{index}"
        reference = {"name": template, "namespace": world.name}
        owner = self.owner("Metal3Machine", "metal3machines", machine, controller=True)
        done = {"metadata": {"finalizers": [f"metal3datatemplate.{GROUP}"]}}
        self._api.patch(world.metal("metal3datatemplates", template), done)
        self._make("Metal3DataClaim", "metal3dataclaims", machine, {"template": reference}, {
            "ownerReferences": [owner], "finalizers": [f"metal3machine.{GROUP}", f"metal3dataclaim.{GROUP}"],
        })  # fmt: skip
        secret = {"name": f"{machine}-metadata", "namespace": world.name}
        claim = {"name": machine, "namespace": world.name}
        spec = {"index": index, "template": reference, "claim": claim, "metaData": secret}
        self._make("Metal3Data", "metal3datas", name, spec, {
            "finalizers": [f"metal3dataclaim.{GROUP}", f"metal3data.{GROUP}"],
            "ownerReferences": [
                self.owner("Metal3DataTemplate", "metal3datatemplates", template, controller=True),
                self.owner("Metal3DataClaim", "metal3dataclaims", machine),
                self.owner("Metal3Machine", "metal3machines", machine),
            ],
        })  # fmt: skip
        body = {
            "metadata": {**secret, "ownerReferences": [self.owner("Metal3Data", "metal3datas", name, controller=True)]},
            "type": f"{GROUP}/secret", "stringData": {"metaData": "written: before\n"},
        }  # fmt: skip
        code, answer = self._api.call("POST", f"/api/v1/namespaces/{world.name}/secrets", body)
        assert code == 201, answer
        rendered = {"name": name, "namespace": world.name}
        self._api.patch(f"{world.metal('metal3datas', name)}/status", {"status": {"ready": True}})
        self._api.patch(f"{world.metal('metal3dataclaims', machine)}/status", {"status": {"renderedData": rendered}})
        status = {"renderedData": rendered, "metaData": secret}
        self._api.patch(f"{self._machine(machine)}/status", {"status": status})

    def finish(self, machine: str, host: str, node: str, *, before_1_14: bool) -> None:
        """Its node is up: provider id on both, and it is ready."""
        world = self._world
        uid = world.hosts()[host]["metadata"]["uid"]
        provider_id = f"metal3://{uid}" if before_1_14 else f"metal3://{world.name}/{host}/{machine}"
        world.workload.kubectl(
            "patch", "node", node, "--type=merge", "-p", f'{{"spec":{{"providerID":"{provider_id}"}}}}'
        )
        self._api.patch(self._machine(machine), {"spec": {"providerID": provider_id}})
        status = {"initialization": {"provisioned": True}}
        self._api.patch(f"{self._machine(machine)}/status", {"status": status})
        self._say(machine, condition("AssociateBareMetalHost"), condition("Ready"))

    def begin_release(self, machine: str, host: str) -> None:
        """Its Machine is being deleted: image and data are off the host, and it is on its way to be empty."""
        empty = {"image": None, "userData": None, "metaData": None, "networkData": None, "online": False}
        self._api.patch(self._world.hosts_path(host), {"spec": empty})
        self._say(machine, condition("Ready", true=False, reason="Deleting"))

    def _say(self, machine: str, *said: Json) -> None:
        """In both forms, as it keeps the older one for those who still read it."""
        old = [{**one, "severity": ""} for one in said]
        status = {"conditions": list(said), "deprecated": {"v1beta1": {"conditions": old}}}
        self._api.patch(f"{self._machine(machine)}/status", {"status": status})

    def _make(self, kind: str, plural: str, name: str, spec: Json, meta: Json) -> None:
        labels = {CLUSTER_NAME: self._world.name}
        body = {
            "apiVersion": INFRA, "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": self._world.name, "labels": labels, **meta},
        }  # fmt: skip
        code, answer = self._api.call("POST", f"{METAL}/namespaces/{self._world.name}/{plural}", body)
        assert code == 201, answer
