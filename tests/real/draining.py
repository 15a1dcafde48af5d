"""What the drain tests share: workloads on a node of their own, and a drain under way to look at."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hostler.drain.executor import Executor
from hostler.drain.loop import drain
from hostler.drain.model import Decision, Policy, State
from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.kinds import DAEMON_SET, POD, POD_DISRUPTION_BUDGET, VOLUME_ATTACHMENT
from hostler.kube.metrics import Metrics
from hostler.kube.records import Pod, PodDisruptionBudget, VolumeAttachment, Workload
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.sandbox import Sandbox

Object = dict[str, Any]
SECONDS = 60.0


# -- objects


def template(namespace: str, app: str, **spec: Any) -> Object:
    """A pod that may only run on the nodes of its test."""
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "nodeSelector": {"pool": namespace},
            "tolerations": [{"key": "hostler.dev/test", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "x"}],
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


def workload(kind: str, namespace: str, name: str, replicas: int = 1, **spec: Any) -> Object:
    body: Object = {
        "selector": {"matchLabels": {"app": name}},
        "template": template(namespace, name, **spec),
        **({} if kind == "DaemonSet" else {"replicas": replicas}),
    }
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": body}


def bare(namespace: str, name: str, node: str, metadata: Object | None = None, **spec: Any) -> Object:
    made = template(namespace, name, nodeName=node, **spec)
    made["metadata"] |= {"name": name, "namespace": namespace, **(metadata or {})}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def budget(namespace: str, name: str, app: str = "", **spec: Any) -> Object:
    selector = {"selector": {"matchLabels": {"app": app}}} if app else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**selector, **spec},
    }


def pods_on(sandbox: Sandbox, node: str, namespace: str) -> dict[str, Object]:
    """The test's own pods; the shared fleet has a DaemonSet of its own on every node."""
    found = sandbox.read(f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D{node}")["items"]
    return {one["metadata"]["name"]: one for one in found}


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def running(sandbox: Sandbox, node: str, namespace: str, number: int) -> Callable[[], bool]:
    def look() -> bool:
        found = pods_on(sandbox, node, namespace).values()
        return len(found) == number and all(is_ready(one) for one in found)

    return look


def accepts_pods(sandbox: Sandbox, namespace: str) -> Callable[[], bool]:
    """Its default service account is there; before that the API server refuses every pod."""
    return lambda: bool(sandbox.read(f"/api/v1/namespaces/{namespace}/serviceaccounts")["items"])


def settled(sandbox: Sandbox, namespace: str, name: str) -> Callable[[], bool]:
    """Its controller has worked the budget out."""

    def look() -> bool:
        found = sandbox.read(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}")
        status = found.get("status", {})
        counted = status.get("expectedPods", 0) > 0 and status["currentHealthy"] == status["expectedPods"]
        return bool(counted and status.get("observedGeneration", 0) >= found["metadata"]["generation"])

    return look


def posts(sandbox: Sandbox, namespace: str) -> dict[str, list[int]]:
    """The answers to every eviction asked for in a namespace, by pod name, as the API server logged them."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in sandbox.audit(namespace):
        about = event.get("objectRef", {})
        if about.get("subresource") == "eviction" and about.get("namespace") == namespace:
            found[about["name"]].append(event["responseStatus"]["code"])
    return dict(found)


# -- a drain under way


@dataclass
class Drain:
    """A drain as a task, with everything it said."""

    task: asyncio.Task[Decision]
    said: list[Decision] = field(default_factory=list)

    async def until(self, look: Callable[[Decision], bool], what: str) -> Decision:
        """The first decision, from the last one on, of which this is true."""
        end = time.monotonic() + SECONDS
        while True:
            if self.said and look(self.said[-1]):
                return self.said[-1]
            if self.task.done() or time.monotonic() > end:
                raise AssertionError(f"not seen: {what}; said: {[(d.state.value, d.why) for d in self.said]}")
            await asyncio.sleep(0.05)

    async def end(self, state: State) -> Decision:
        async with asyncio.timeout(SECONDS):
            decision = await self.task
        assert decision.state is state, [(d.state.value, d.why) for d in self.said]
        return decision


@dataclass
class Work:
    """A client, full caches and an executor on the sandbox."""

    client: Client
    sources: Sources
    executor: Executor
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def drain(self, node: str, policy: Policy | None = None) -> Drain:
        said: list[Decision] = []
        task = asyncio.create_task(
            drain(
                self.client,
                self.sources,
                self.executor,
                node,
                policy=policy or Policy(),
                started=time.time(),
                clock=time.time,
                progress=said.append,
            )
        )
        self.tasks.append(task)
        return Drain(task, said)


@asynccontextmanager
async def at_work(
    sandbox: Sandbox, *, dry_run: bool = False, gate: Callable[[], str | None] = lambda: None
) -> AsyncIterator[Work]:
    metrics = Metrics()
    async with Client(load(str(sandbox.kubeconfig))) as client:
        sources = Sources(
            Watch(client, POD, Pod, metrics=metrics, indexes=POD_INDEXES),
            Watch(client, POD_DISRUPTION_BUDGET, PodDisruptionBudget, metrics=metrics),
            Watch(client, VOLUME_ATTACHMENT, VolumeAttachment, metrics=metrics, indexes=ATTACHMENT_INDEXES),
            Watch(client, DAEMON_SET, Workload, metrics=metrics),
        )
        writer = Writer(client, "test", gate=gate, budget=WriteBudget(), dry_run=dry_run)
        work = Work(client, sources, Executor(writer, time.time))
        watches = (sources.pods, sources.budgets, sources.attachments, sources.daemon_sets)
        work.tasks += [asyncio.create_task(watch.run()) for watch in watches]
        try:
            for watch in watches:
                async with asyncio.timeout(SECONDS):
                    await watch.synced.wait()
            yield work
        finally:
            for task in work.tasks:
                task.cancel()
            await asyncio.gather(*work.tasks, return_exceptions=True)
            # A cut TLS stream says goodbye to its server before its socket closes; aiohttp has no way to wait for it.
            await asyncio.sleep(0.25)
