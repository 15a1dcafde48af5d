"""What we foresee, beside what the real thing says: the eviction API for budgets, kubectl for filters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from hostler.drain.budgets import Says, standing
from hostler.drain.decide import decide
from hostler.drain.model import Act, Memory, Policy
from hostler.drain.observe import observe
from hostler.kube.client import Client
from hostler.kube.errors import ServerError, TooManyRequests
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.draining import accepts_pods, at_work, bare, budget, running, settled, workload


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"selector": {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}}


async def asked(client: Client, namespace: str, name: str, uid: str) -> Says:
    """The eviction API's own answer, in a dry run."""
    try:
        await client.evict(name, namespace, uid=uid, dry_run=True)
    except TooManyRequests:
        return Says.HOLDS
    except ServerError:
        return Says.SEVERAL
    return Says.ALLOWS


def test_budgets_are_foreseen_as_the_eviction_api_answers(
    sandbox: Sandbox, namespace: str, make_node: Callable[..., str], eventually: Eventually
) -> None:
    """Every way to select, healthy and unhealthy pods, waiting pods, more than one budget."""
    node = make_node(labels={"pool": namespace})
    eventually(accepts_pods(sandbox, namespace), what="the namespace accepts pods")
    selectors: dict[str, dict[str, Any]] = {
        "labels": {"selector": {"matchLabels": {"app": "labels"}}},
        "in": expression("app", "In", "in", "x"),
        "notin": {"selector": {"matchExpressions": [
            {"key": "app", "operator": "NotIn", "values": ["free", "labels", "in"]},
            {"key": "app", "operator": "In", "values": ["notin"]},
        ]}},
        "exists": expression("exists", "Exists"),
        "absent": {"selector": {"matchExpressions": [
            {"key": "app", "operator": "Exists"}, {"key": "app", "operator": "In", "values": ["absent"]},
            {"key": "nosuch", "operator": "DoesNotExist"},
        ]}},
        "unready": {"selector": {"matchLabels": {"app": "unready"}}},
        "always": {"selector": {"matchLabels": {"app": "always"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        "pending": {"selector": {"matchLabels": {"app": "pending"}}},
        "several": {"selector": {"matchLabels": {"app": "several"}}},
    }  # fmt: skip
    tight = [budget(namespace, name, minAvailable=1, **spec) for name, spec in selectors.items()]
    loose = budget(namespace, "loose", "loose", maxUnavailable=1)
    also = budget(namespace, "several-too", "several", maxUnavailable=1)
    none = budget(namespace, "no-selector", minAvailable=1)
    names = ["free", "loose", *(name for name in selectors if name not in ("pending", "unready", "always"))]
    labels = {name: {"labels": {"app": name, **({"exists": ""} if name == "exists" else {})}} for name in names}
    # Everybody has a controller, so that the budgets' own controller can count them.
    sandbox.apply(*(_set(namespace, name, node, labels[name]["labels"]) for name in names))
    eventually(running(sandbox, node, namespace, len(names)), what="all run")
    waiting = bare(namespace, "pending", "", {"labels": {"app": "pending"}})
    del waiting["spec"]["nodeName"]
    waiting["spec"]["nodeSelector"] = {"pool": "nowhere"}
    sandbox.apply(waiting, *(bare(namespace, name, make_node(power="off")) for name in ("unready", "always")))
    for name in ("unready", "always"):
        _run_badly(sandbox, namespace, name)
    sandbox.apply(*tight, loose, also, none)
    for name in ("labels", "in", "notin", "exists", "absent", "several", "several-too", "loose"):
        eventually(settled(sandbox, namespace, name), what=f"budget {name} is worked out")
    eventually(lambda: _counted(sandbox, namespace, "unready", "always"), what="the unhealthy are counted")

    async def story() -> None:
        async with at_work(sandbox) as work:
            budgets = [one for one in work.sources.budgets.store if one.metadata.namespace == namespace]
            found: dict[str, tuple[Says, Says]] = {}
            for pod in [one for one in work.sources.pods.store if one.metadata.namespace == namespace]:
                foreseen = standing(pod, budgets).says
                real = await asked(work.client, namespace, pod.metadata.name, pod.metadata.uid)
                found[pod.metadata.labels["app"]] = foreseen, real
            wrong = {name: pair for name, pair in found.items() if _agree(*pair) is False}
            assert not wrong, f"foreseen and real: {wrong}"
            says = {name: pair[0] for name, pair in found.items()}
            assert says == {
                "free": Says.FREE, "loose": Says.ALLOWS, "labels": Says.HOLDS, "in": Says.HOLDS, "notin": Says.HOLDS,
                "exists": Says.HOLDS, "absent": Says.HOLDS, "unready": Says.HOLDS, "always": Says.FREE,
                "pending": Says.FREE, "several": Says.SEVERAL,
            }  # fmt: skip

    asyncio.run(story())


def _agree(foreseen: Says, real: Says) -> bool:
    return real is Says.ALLOWS if foreseen is Says.FREE else foreseen is real


def _set(namespace: str, name: str, node: str, labels: dict[str, str]) -> dict[str, Any]:
    made = workload("Deployment", namespace, name)
    made["spec"]["template"]["metadata"]["labels"] = labels
    return made


def _run_badly(sandbox: Sandbox, namespace: str, pod: str) -> None:
    """It runs, but is not Ready; no kubelet is there to say otherwise."""
    status = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}'
    sandbox.kubectl("patch", "pod", "-n", namespace, pod, "--subresource=status", "--type=strategic", "-p", status)


def _counted(sandbox: Sandbox, namespace: str, *budgets: str) -> bool:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    return all(sandbox.read(f"{path}/{name}").get("status", {}).get("expectedPods") == 1 for name in budgets)


def test_an_empty_selector_covers_the_namespace(
    sandbox: Sandbox, namespace: str, make_node: Callable[..., str], eventually: Eventually
) -> None:
    node = make_node(labels={"pool": namespace})
    eventually(accepts_pods(sandbox, namespace), what="the namespace accepts pods")
    sandbox.apply(workload("Deployment", namespace, "web"), budget(namespace, "all", minAvailable=1, selector={}))
    eventually(running(sandbox, node, namespace, 1), what="it runs")
    eventually(settled(sandbox, namespace, "all"), what="the budget is worked out")

    async def story() -> None:
        async with at_work(sandbox) as work:
            (pod,) = [one for one in work.sources.pods.store if one.metadata.namespace == namespace]
            assert standing(pod, work.sources.budgets.store).says is Says.HOLDS
            assert await asked(work.client, namespace, pod.metadata.name, pod.metadata.uid) is Says.HOLDS

    asyncio.run(story())


def test_the_filters_choose_as_kubectl_does(
    sandbox: Sandbox, namespace: str, make_node: Callable[..., str], eventually: Eventually
) -> None:
    """The same node, ours and `kubectl drain --dry-run`, with every combination of the flags that matter."""
    node = make_node(labels={"pool": namespace})
    eventually(accepts_pods(sandbox, namespace), what="the namespace accepts pods")
    scratch = [{"name": "scratch", "emptyDir": {}}]
    sandbox.apply(
        workload("Deployment", namespace, "web", 2),
        workload("Deployment", namespace, "cache", 1, volumes=scratch),
        workload("DaemonSet", namespace, "agent"),
        bare(namespace, "alone", node),
        bare(namespace, "alone-with-scratch", node, volumes=scratch),
        bare(namespace, "done", node, volumes=scratch),
        bare(namespace, "static", node, {"annotations": {"kubernetes.io/config.mirror": "h"}}),
    )
    eventually(running(sandbox, node, namespace, 8), what="eight pods run")
    done = '{"status":{"phase":"Succeeded"}}'
    sandbox.kubectl("patch", "pod", "-n", namespace, "done", "--subresource=status", "--type=merge", "-p", done)

    async def verdicts(policy: Policy) -> dict[str, Act]:
        async with at_work(sandbox) as work:
            now = asyncio.get_running_loop().time()
            decision = decide(observe(work.sources, node, now, Memory(), now), policy, now)
            return {verdict.key: verdict.act for verdict in decision.verdicts}

    for empty_dir in (True, False):
        for unmanaged in (True, False):
            policy = Policy(evict_empty_dir=empty_dir, evict_unmanaged=unmanaged)
            ours = asyncio.run(verdicts(policy))
            flags = [*(["--delete-emptydir-data"] if empty_dir else []), *(["--force"] if unmanaged else [])]
            evicts, refuses = _kubectl(sandbox, node, flags)
            ours_refuse = {key for key, act in ours.items() if act is Act.REFUSE}
            assert ours_refuse == refuses, flags
            if not refuses:
                assert {key for key, act in ours.items() if act is Act.EVICT} == evicts, flags


def _kubectl(sandbox: Sandbox, node: str, flags: list[str]) -> tuple[set[str], set[str]]:
    """What kubectl would evict, and what it refuses to."""
    import subprocess

    done = subprocess.run(
        [sandbox.state.programs["controlplane"], "kubectl", "drain", node, "--ignore-daemonsets", "--dry-run=client",
         *flags],
        env=sandbox.kubectl_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    evicts = set(re.findall(r"evicting pod (\S+/\S+)", done.stdout))
    refuses = set()
    for clause in re.findall(r"cannot delete [^:]*: ([^;\n\]]*)", done.stderr):
        refuses |= set(re.findall(r"[a-z0-9.-]+/[a-z0-9.-]+", clause))
    return evicts, refuses
