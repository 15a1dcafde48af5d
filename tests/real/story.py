"""One story of maintenance under way: what is done to its hosts, and what can be seen of its nodes, pods and VMs.

Hosts, VMs and nodes are named as in the story's plan; a worker's node has its VM's name.
"""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hostler.sandbox import Sandbox
from hostler.sandbox.expand import node_object, waves
from hostler.sandbox.fleet import Fleet, Node, Volume
from hostler.sandbox.load import create
from hostler.vsphere.vmomi import vim
from tests.real.draining import workload
from tests.real.maintaining import (
    OURS,
    OUT_OF_SERVICE,
    POLICY,
    SECONDS,
    SEED,
    Object,
    Plan,
    Site,
    Trail,
    site,
    until,
)
from tests.real.operating import Running, operator

T = TypeVar("T")


@contextmanager
def telling(site: Site, name: str, namespace: str) -> Iterator[Story]:
    """A story of this site's plans; at its end its nodes are gone and nobody enters maintenance any more."""
    story = Story(site, name, site.plans[name], namespace, Trail(site.sandbox, namespace))
    try:
        yield story
    finally:
        story.end()


@contextmanager
def on_its_own(
    sandbox: Sandbox,
    folder: Path,
    namespace: str,
    plan: Plan,
    *,
    before: Callable[[Site], object] = lambda made: None,
    top: Object | None = None,
    told: dict[str, str] | None = None,
) -> Iterator[tuple[Running, Story]]:
    """A story with a vCenter and an operator of its own. `before` is done to the vCenter before the operator starts."""
    with site(sandbox, folder, {"own": plan}, **(top or {})) as made:
        before(made)
        with (
            operator(sandbox, folder, namespace, told=made.environment(**(told or {}))) as running,
            telling(made, "own", namespace) as story,
        ):
            yield running, story


@contextmanager
def outage(story: Story, seconds: float) -> Iterator[None]:
    """vCenter is away for so long at least; what is done inside happens meanwhile."""
    begin = time.monotonic()
    story.site.control("POST", "/outage", {"mode": "refuse"})
    try:
        yield
        time.sleep(max(0.0, seconds - (time.monotonic() - begin)))
    finally:
        story.site.control("DELETE", "/outage")


@dataclass
class Story:
    """One plan under way."""

    site: Site
    name: str
    plan: Plan
    namespace: str
    trail: Trail
    made: list[str] = field(default_factory=list)
    boots: dict[str, str] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    seen_before: int = 0
    before_enter: Callable[[str], None] = lambda host: None  # asked right before a host enters maintenance

    def __post_init__(self) -> None:
        self.prefix = f"{self.name}-{self.site.mark}"
        self.seen_before = len(self.site.tie.told)

    @property
    def operator_is_killed(self) -> bool:
        """All the time, so that each write is followed by another life."""
        return self.site.patience > 1

    def full(self, short: str) -> str:
        return f"{self.prefix}-{short}"

    # -- making

    def nodes(self, *vms: str, pods: int = 2, **fields: Any) -> None:
        """The nodes of these VMs (or all), Ready, with a Deployment's pods on each."""
        wanted = vms or tuple(self.plan.vms)
        for vm in wanted:
            self.node(vm, **fields)
        for vm in wanted:
            until(lambda vm=vm: self.ready(vm), f"{vm} is Ready")  # type: ignore[misc]
            self.boots[vm] = self.look(vm)["status"]["nodeInfo"]["bootID"]
        if pods:
            for vm in wanted:
                self.deploy(vm, pods)

    def node(self, vm: str, annotations: dict[str, str] | None = None, **fields: Any) -> None:
        """One node as its kubelet registers it."""
        uuid = next(one["uuid"] for one in self.site.control("GET", "/state")["vms"] if one["name"] == self.full(vm))
        labels = {self.site.label: "true", "pool": self.namespace}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        off = self.site.tie.power.get(self.full(vm)) == "poweredOff"
        node = Node(name=self.full(vm), labels=labels, power="off" if off else "on", **fields)
        one = node_object(node, len(self.made), uuid, now, off=off)
        one["metadata"]["annotations"] |= annotations or {}
        one["metadata"]["annotations"].pop("sandbox.hostler.dev/boots", None)  # that VM is not the keeper's
        one["spec"]["taints"].append({"key": "hostler.dev/test", "effect": "NoSchedule"})
        self.site.kube.create("/api/v1/nodes", one)
        self.made.append(node.name)
        self.site.tie.bring_in_line(node.name)

    def deploy(self, vm: str, replicas: int, name: str = "", **spec: Any) -> str:
        """A Deployment whose pods can run on this node only: evicted, they wait for it to come back."""
        name = name or f"app-{vm}"
        one = workload("Deployment", self.namespace, name, replicas, **spec)
        one["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.full(vm)}
        self.site.kube.create(f"/apis/apps/v1/namespaces/{self.namespace}/deployments", one)
        until(lambda: self.serving(name) == replicas, f"{name} runs on {vm}")
        return name

    def volume(self, vm: str, claim: str) -> str:
        """A volume with its claim, which pods of this node can mount."""
        volume = f"{self.namespace}-{claim}"
        fleet = Fleet(
            nodes=[Node(name=self.full(vm))], volumes=[Volume(name=volume, claim=f"{self.namespace}/{claim}")]
        )
        kinds = ("PersistentVolume", "PersistentVolumeClaim", "CSINode", "CSIDriver")
        made = [one for _, some in waves(fleet) for one in some if one["kind"] in kinds]
        create(self.site.sandbox, made)
        self.volumes.append(volume)
        return volume

    def attached(self, vm: str) -> list[str]:
        found = self.site.kube.get("/apis/storage.k8s.io/v1/volumeattachments")["items"]
        return [
            one["spec"]["source"]["persistentVolumeName"] for one in found if one["spec"]["nodeName"] == self.full(vm)
        ]

    def pods(self, vm: str) -> list[str]:
        """This story's pods on a node."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?fieldSelector=spec.nodeName%3D{self.full(vm)}"
        return [one["metadata"]["name"] for one in self.site.kube.get(path)["items"]]

    def serving(self, deployment: str) -> int:
        found = self.site.kube.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{deployment}")
        return int(found.get("status", {}).get("readyReplicas", 0))

    # -- doing

    def enter(self, host: str, **settings: Any) -> str:
        self.before_enter(host)
        return str(self.site.control("POST", f"/hosts/{self.full(host)}/enter", settings)["task"])

    def exit(self, host: str) -> None:
        self.site.control("POST", f"/hosts/{self.full(host)}/exit")

    def cancel(self, host: str) -> None:
        self.site.control("POST", f"/hosts/{self.full(host)}/cancel")

    def switch(self, vm: str, state: str) -> None:
        """By hand, in vCenter."""
        self.site.control("POST", f"/vms/{self.full(vm)}/power", {"state": state})

    def by_hand(self, vm: str, state: str) -> None:
        """Somebody switches it; the operator may have been faster, which ends the same."""
        try:
            self.switch(vm, state)
        except urllib.error.HTTPError as refused:
            refused.close()
            if refused.code != 409:
                raise

    def kubelet(self, vm: str, *, comes_up: bool) -> None:
        """Whether the kubelet in this VM starts when the VM does."""
        (self.site.tie.silent.discard if comes_up else self.site.tie.silent.add)(self.full(vm))
        if comes_up:
            self.site.tie.bring_in_line(self.full(vm))

    def move(self, vm: str, host: str) -> None:
        """By hand, in vCenter: registered on another host."""
        with self.site.simulator.client() as content:
            stub = content.rootFolder._stub
            target = vim.HostSystem(self.host(host)["id"], stub)
            task = vim.VirtualMachine(self.vm(vm)["id"], stub).RelocateVM_Task(vim.vm.RelocateSpec(host=target))
            until(lambda: task.info.state in ("success", "error"), f"{vm} is moved")
            assert task.info.error is None, task.info.error

    def tune(self, vm: str, **settings: float) -> None:
        self.site.control("POST", "/settings", {"vm": self.full(vm), **settings})

    def fault(self, method: str, fault: str, vm: str, times: int = 1, **more: Any) -> None:
        with self.site.faults:
            self.site.control(
                "POST", "/faults", {"method": method, "fault": fault, "vm": self.full(vm), "times": times, **more}
            )

    def fault_ends(self, vm: str) -> None:
        """The simulator takes back all faults at once: so only when nobody else's is left."""

        def taken_back() -> bool:
            with self.site.faults:
                left = self.site.control("GET", "/faults")["faults"]
                if all(one.get("vm") == self.full(vm) for one in left):
                    self.site.control("DELETE", "/faults")
                    return True
            return False

        until(taken_back, f"the fault of {vm} is taken back", 180)

    def annotate(self, vm: str, **annotations: str | None) -> None:
        self.site.kube.patch(f"/api/v1/nodes/{self.full(vm)}", {"metadata": {"annotations": annotations}})

    # -- looking

    def look(self, vm: str) -> Object:
        return self.site.kube.get(f"/api/v1/nodes/{self.full(vm)}")

    def annotations(self, vm: str) -> dict[str, str]:
        return dict(self.look(vm).get("metadata", {}).get("annotations", {}))

    def state(self, vm: str) -> str:
        return self.annotations(vm).get(f"{SEED}state", "")

    def condition(self, vm: str, kind: str) -> Object:
        found = self.look(vm).get("status", {}).get("conditions", [])
        return next((dict(one) for one in found if one["type"] == kind), {})

    def ready(self, vm: str) -> bool:
        return self.condition(vm, "Ready").get("status") == "True"

    def rebooted(self, vm: str) -> bool:
        return bool(self.look(vm)["status"]["nodeInfo"]["bootID"] != self.boots[vm])

    def cordoned(self, vm: str) -> bool:
        return bool(self.look(vm)["spec"].get("unschedulable"))

    def tainted(self, vm: str) -> bool:
        return any(taint["key"] == OUT_OF_SERVICE for taint in self.look(vm)["spec"].get("taints", []))

    def vm(self, vm: str) -> Object:
        return next(dict(one) for one in self.site.control("GET", "/state")["vms"] if one["name"] == self.full(vm))

    def host(self, host: str) -> Object:
        return next(dict(one) for one in self.site.control("GET", "/state")["hosts"] if one["name"] == self.full(host))

    def all_hosts(self) -> list[str]:
        """Of every cluster, by their whole names."""
        return [str(one["name"]) for one in self.site.control("GET", "/state")["hosts"]]

    def told(self, kind: str, vm: str) -> list[Object]:
        """What the simulator told of a VM since this story began."""
        return [
            one
            for one in self.site.tie.told[self.seen_before :]
            if one["type"] == kind and one.get("vm") == self.full(vm)
        ]

    def switched(self, vm: str) -> tuple[int, int]:
        """How often it went off and on, whoever did it."""
        states = [one["state"] for one in self.told("power", vm)]
        return states.count("poweredOff"), states.count("poweredOn")

    def tasks(self, vm: str) -> list[tuple[str, str, str]]:
        """(what, how it ended, fault) of each task of a VM, whoever started it, as vCenter has it."""
        found = []
        with self.site.simulator.client() as content:
            one = vim.VirtualMachine(self.vm(vm)["id"], content.rootFolder._stub)
            for task in one.recentTask:
                info = task.info
                fault = type(info.error).__name__.rpartition(".")[2] if info.error else ""
                found.append((info.descriptionId.rpartition(".")[2], str(info.state), fault))
        return found

    def mark(self, vm: str) -> str:
        """What the attribute `hostler` of a VM says in vCenter."""
        with self.site.simulator.client() as content:
            keys = {one.key: one.name for one in content.customFieldsManager.field}
            one = vim.VirtualMachine(self.vm(vm)["id"], content.rootFolder._stub)
            said = [value.value for value in one.customValue if keys.get(value.key) == "hostler"]
        return str(said[0]) if said else ""

    def events(self, vm: str) -> list[str]:
        """ "REASON: note" of every Event about the node, oldest first."""
        path = "/apis/events.k8s.io/v1/events?limit=2000"
        found = [
            one
            for one in self.site.kube.get(path)["items"]
            if one.get("regarding", {}).get("name") == self.full(vm)
            and one.get("reportingController", "").startswith("hostler")
        ]
        found.sort(key=lambda one: one["metadata"]["creationTimestamp"])
        return [f"{one.get('reason')}: {one.get('note')}" for one in found]

    def seen(self, vm: str) -> Object:
        """Everything about a worker, for the sentence of a failed story."""
        node = self.look(vm)
        ours = {key: value for key, value in self.annotations(vm).items() if key.startswith((SEED, OURS))}
        conditions = {
            one["type"]: f"{one['status']} {one.get('message', '')}"
            for one in node.get("status", {}).get("conditions", [])
        }
        return {
            "spec": node.get("spec"),
            "annotations": ours,
            "conditions": conditions,
            "vm": self.vm(vm),
            "hosts": [one for one in self.site.control("GET", "/state")["hosts"] if self.prefix in one["name"]],
            "events": self.events(vm),
        }

    def wait(self, vm: str, look: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
        seconds *= self.site.patience
        return until(look, f"{vm}: {what}", seconds, seen=lambda: json.dumps(self.seen(vm), indent=1, default=str))

    # -- judging

    def reaches(self, vm: str, state: str, seconds: float = SECONDS) -> None:
        self.wait(vm, lambda: self.state(vm) == state, f"state {state}", seconds)

    def comes_back(self, vm: str, host: str, *, rebooted: bool = True, cordoned: bool = False) -> None:
        """In service again on this host (of another cluster: by its whole name), with nothing of ours left on it."""
        where = host if host in self.all_hosts() else self.full(host)

        def back() -> bool:
            now = self.vm(vm)
            return (
                (now["host"], now["power"]) == (where, "poweredOn")
                and self.rebooted(vm) == rebooted
                and self.ready(vm)
                and not self.leftovers(vm, cordoned=cordoned)
            )

        self.wait(vm, back, f"in service on {host}")
        if not cordoned:
            app = self.site.kube.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/app-{vm}")
            if app:
                self.wait(vm, lambda: self.serving(f"app-{vm}") == app["spec"]["replicas"], "its pods are back")
        self.wait(vm, lambda: not self.mark(vm), "its mark in vCenter is gone")

    def leftovers(self, vm: str, *, cordoned: bool = False) -> list[str]:
        """What of a maintenance is still on the node."""
        node = self.look(vm)
        annotations = node["metadata"].get("annotations", {})
        left = [key for key in annotations if key.startswith((SEED, OURS)) and key != POLICY]
        if bool(node["spec"].get("unschedulable")) != cordoned:
            left.append("cordoned" if not cordoned else "not cordoned any more")
        if any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints", [])):
            left.append("out of service")
        if self.condition(vm, "MaintenanceInProgress").get("status") == "True":
            left.append("MaintenanceInProgress")
        return left

    def evicted_once(self, *, refused: bool = False) -> None:
        """Each pod was asked to go once; with `refused`, again only after a budget said no."""
        for pod, answers in self.trail.evictions().items():
            assert answers.count(201) <= 1, f"{pod} was evicted twice: {answers}"
            # Who was killed right after it leaves a next one that may ask for what is gone by then: no harm in that.
            killed = self.operator_is_killed
            assert refused or answers == [201] or (killed and answers.count(201) == 1), f"{pod}: {answers}"

    def end(self) -> None:
        for host in self.plan.hosts:
            try:
                self.site.control("POST", f"/hosts/{self.full(host)}/cancel")
            except urllib.error.HTTPError as nothing_to_cancel:
                nothing_to_cancel.close()
        for name in self.made:
            self.site.kube.delete(f"/api/v1/nodes/{name}")
            self.site.kube.delete(f"/apis/storage.k8s.io/v1/csinodes/{name}")
        for name in self.volumes:
            self.site.kube.delete(f"/api/v1/persistentvolumes/{name}")
        self.trail.close()
