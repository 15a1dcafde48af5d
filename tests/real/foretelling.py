"""What a plan foretells of each worker, and what was written in the end, as the API server and vCenter have it.

Both are sequences of the same words. Left out on both sides are notes on the Node and marks on the VM, which a plan
does not show, and what a plan waits for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from hostler.vsphere.vmomi import vim
from tests.real.auditing import who
from tests.real.maintaining import OUT_OF_SERVICE, SEED, Object, until
from tests.real.operating import Running, hostler
from tests.real.story import Story

WRITES = ("hold", "release", "taint", "untaint", "evict", "shut down", "power off", "move", "power on")
UNREAD = ("waiting", "not known")  # what a worker is called whose VM or rights have not been looked at yet


@dataclass
class Foretelling:
    """Compares a story's writes with the plan of its first host that enters, asked for right before."""

    story: Story
    running: Running
    plan: dict[str, list[str]] = field(default_factory=dict)  # by VM
    pods: dict[str, set[str]] = field(default_factory=dict)

    def foretell(self, host: str) -> None:
        """Ask for the plan; the answer of the first time counts."""
        if self.plan:
            return
        story = self.story
        asked = ("maintenance", "plan", story.full(host), "--operator", self.running.url, "--output", "json")

        def read() -> list[Object]:
            (said,) = json.loads(hostler(story.site.sandbox.kubeconfig, *asked).stdout)["explanations"]
            decided = [one["outcome"] for one in said["rules"] if one.get("decided")]
            return said["actions"] if len(decided) == len(story.plan.vms) and not set(decided) & set(UNREAD) else []

        steps = until(read, f"the plan of {host}")
        for vm in story.plan.vms:
            self.pods[vm] = {f"{story.namespace}/{pod}" for pod in story.pods(vm)}
            names = {story.full(vm), *self.pods[vm]}
            mine = [one for one in steps if one["verb"] in WRITES and names & set(one["target"].split())]
            self.plan[vm] = in_order((one["verb"], one["target"]) for one in mine if not one.get("heldBack"))

    def came_true(self) -> None:
        assert self.plan, "no host entered maintenance"
        found = {vm: self.written(vm) for vm in self.plan}
        assert found == self.plan, f"written: {found}; foretold: {self.plan}"

    def written(self, vm: str) -> list[str]:
        """What the operator wrote for a worker, and vCenter did to its VM, since the story began, in order of time."""
        steps = sorted((*self._in_kubernetes(vm), *self._in_vcenter(vm)))
        return in_order((what, target) for _, what, target in steps)

    def _in_kubernetes(self, vm: str) -> Iterator[tuple[float, str, str]]:
        name = self.story.full(vm)
        for entry in self.story.trail.read():
            about, at = entry["objectRef"], datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
            if who(entry) != self.running.user or entry["responseStatus"]["code"] >= 300:
                continue
            pod = f"{about.get('namespace', '')}/{about.get('name', '')}"
            if about.get("subresource") == "eviction" and pod in self.pods[vm]:
                yield at, "evict", pod
            elif (about["resource"], about.get("name"), about.get("subresource")) == ("nodes", name, None):
                yield from ((at, what, name) for what in _patched(entry.get("requestObject", {})))

    def _in_vcenter(self, vm: str) -> Iterator[tuple[float, str, str]]:
        story, name = self.story, self.story.full(vm)
        verbs = {"powerOff": "power off", "relocate": "move", "powerOn": "power on"}
        with story.site.simulator.client() as content:
            tasks = [one.info for one in vim.VirtualMachine(story.vm(vm)["id"], content.rootFolder._stub).recentTask]
        done = [(one.queueTime.timestamp(), one.descriptionId.rpartition(".")[2]) for one in tasks]
        yield from ((at, verbs[what], name) for at, what in done if what in verbs)
        if not any(what == "powerOff" for _, what in done):  # then the guest did it, which is no task
            off = (one for one in story.told("power", vm) if one["state"] == "poweredOff")
            yield from ((one["at"], "shut down", name) for one in off)


def in_order(steps: Iterable[tuple[str, str]]) -> list[str]:
    """Pods that are evicted one after the other go in any order."""
    found: list[str] = []
    for verb, some in groupby(steps, key=lambda one: one[0]):
        targets = sorted(target for _, target in some)
        found += [f"evict {one}" for one in targets] if verb == "evict" else [verb] * len(targets)
    return found


def _patched(body: Object) -> Iterator[str]:
    annotations, spec = body.get("metadata", {}).get("annotations", {}), body.get("spec", {})
    if f"{SEED}state" in annotations and annotations[f"{SEED}state"] in ("draining", None):
        yield "hold" if annotations[f"{SEED}state"] else "release"
    if "taints" in spec:
        yield "taint" if any(one["key"] == OUT_OF_SERVICE for one in spec["taints"] or ()) else "untaint"
