"""Drains on the real API server, with its eviction API, its disruption and volume controllers, and kwok's kubelets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from hostler.drain.model import Evict, Memory, Outcome, Policy, State
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.draining import Object, accepts_pods, at_work, bare, budget, pods_on, posts, running, settled, workload

Make = Callable[..., str]
Pool = tuple[str, str, str]


@pytest.fixture
def pool(sandbox: Sandbox, namespace: str, make_node: Make, eventually: Eventually) -> Pool:
    """A namespace with two nodes of its own; the second is cordoned, so that workloads start on the first."""
    here, there = make_node(labels={"pool": namespace}), make_node(labels={"pool": namespace})
    sandbox.kubectl("cordon", there)
    eventually(accepts_pods(sandbox, namespace), what="the namespace accepts pods")
    return namespace, here, there


def filled(
    sandbox: Sandbox, pool: Pool, eventually: Eventually, pods: int, *objects: Object, budgets: Sequence[Object] = ()
) -> list[str]:
    """So many pods run on the first node, and no more are sent there; their names. Budgets come when they run: of two
    over one pod, the disruption controller tells only one of the pod's changes."""
    namespace, here, there = pool
    sandbox.apply(*objects)
    eventually(running(sandbox, here, namespace, pods), what=f"{pods} pods run")
    if budgets:
        sandbox.apply(*budgets)
    for one in budgets:
        eventually(settled(sandbox, namespace, one["metadata"]["name"]), what="the budget is worked out")
    turn_round(sandbox, here, there)
    return sorted(pods_on(sandbox, here, namespace))


def turn_round(sandbox: Sandbox, here: str, there: str) -> None:
    """From now on pods land on the second node."""
    sandbox.kubectl("cordon", here)
    sandbox.kubectl("uncordon", there)


def test_every_kind_of_pod(sandbox: Sandbox, pool: Pool, eventually: Eventually) -> None:
    """Each pod is asked to go once; pods of DaemonSets and static pods stay; a terminating one is waited for."""
    namespace, here, there = pool
    scratch = [{"name": "scratch", "emptyDir": {}}]
    sandbox.apply(
        workload("Deployment", namespace, "web", 3),
        workload("Deployment", namespace, "cache", 1, volumes=scratch),
        workload("DaemonSet", namespace, "agent"),
        bare(namespace, "alone", here),
        bare(namespace, "static", here, {"annotations": {"kubernetes.io/config.mirror": "h"}}),
        bare(namespace, "going", here, {"finalizers": ["hostler.dev/test"]}),
    )
    eventually(running(sandbox, here, namespace, 8), what="eight pods run")
    sandbox.kubectl("delete", "pod", "-n", namespace, "going", "--wait=false")
    before = pods_on(sandbox, here, namespace)
    turn_round(sandbox, here, there)

    async def story() -> None:
        async with at_work(sandbox) as work:
            drain = work.drain(here)
            waiting = await drain.until(lambda d: d.left == (f"{namespace}/going",), "only the terminating pod is left")
            assert waiting.why == f"1 pod left on {here} (1 terminating)."
            sandbox.kubectl(
                "patch", "pod", "-n", namespace, "going", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
            )
            drained = await drain.end(State.DRAINED)
            assert drained.why == f"{here} is drained; 3 pods of its own stay.", "the fleet has a DaemonSet too"

    asyncio.run(story())
    agent = next(name for name in before if name.startswith("agent"))
    assert set(pods_on(sandbox, here, namespace)) == {"static", agent}
    gone = set(before) - {"static", agent, "going"}
    assert posts(sandbox, namespace) == {name: [201] for name in gone}


def test_a_refusal_of_the_policy_names_the_pods_and_evicts_none(
    sandbox: Sandbox, pool: Pool, eventually: Eventually
) -> None:
    namespace, here, _ = pool
    sandbox.apply(
        workload("Deployment", namespace, "web"),
        workload("Deployment", namespace, "cache", 1, volumes=[{"name": "scratch", "emptyDir": {}}]),
        bare(namespace, "alone", here),
    )
    eventually(running(sandbox, here, namespace, 3), what="three pods run")

    async def story() -> None:
        async with at_work(sandbox) as work:
            policy = Policy(evict_empty_dir=False, evict_unmanaged=False)
            refused = await work.drain(here, policy).end(State.REFUSED)
            assert f"{namespace}/alone: it has no controller" in refused.why
            assert "the data in its emptyDir scratch would be lost" in refused.why

    asyncio.run(story())
    assert posts(sandbox, namespace) == {}


def test_a_budget_that_blocks_is_named_and_its_end_is_used_at_once(
    sandbox: Sandbox, pool: Pool, eventually: Eventually
) -> None:
    namespace, here, _ = pool
    all_of_web = budget(namespace, "all-of-web", "web", minAvailable=3)
    names = filled(sandbox, pool, eventually, 3, workload("Deployment", namespace, "web", 3), budgets=[all_of_web])

    async def story() -> None:
        async with at_work(sandbox) as work:
            # Far longer than the test: only the budget's end can have made the second attempt.
            drain = work.drain(here, Policy(backoff_first=600.0, backoff_most=600.0))
            blocked = await drain.until(lambda d: d.state is State.BLOCKED, "blocked")
            assert blocked.why == (
                f"3 pods left on {here}: {', '.join(f'{namespace}/{name}' for name in names[:2])} and "
                f"{namespace}/{names[2]}: blocked by PodDisruptionBudget {namespace}/all-of-web "
                f"(needs 3 healthy pods, has 3)."
            )
            assert {blocker.budget for blocker in blocked.blockers} == {f"{namespace}/all-of-web"}
            assert posts(sandbox, namespace) == {name: [429] for name in names}
            sandbox.kubectl("delete", "pdb", "-n", namespace, "all-of-web")
            await drain.end(State.DRAINED)

    asyncio.run(story())
    assert posts(sandbox, namespace) == {name: [429, 201] for name in names}


def test_a_budget_of_one_lets_pods_go_one_by_one_and_nobody_asks_in_vain(
    sandbox: Sandbox, pool: Pool, eventually: Eventually
) -> None:
    """The replacement must be Ready before the next: the disruption controller says so, and the watch tells us."""
    namespace, here, _ = pool
    one_of_web = budget(namespace, "web", "web", maxUnavailable=1)
    names = filled(sandbox, pool, eventually, 4, workload("Deployment", namespace, "web", 4), budgets=[one_of_web])

    async def story() -> None:
        async with at_work(sandbox) as work:
            await work.drain(here).end(State.DRAINED)

    asyncio.run(story())
    answers = posts(sandbox, namespace)
    assert sorted(answers) == names
    assert all(codes.count(201) == 1 and codes[-1] == 201 and len(codes) <= 3 for codes in answers.values()), answers


def test_more_than_one_budget_on_a_pod_is_said_as_such_and_asked_once(
    sandbox: Sandbox, pool: Pool, eventually: Eventually
) -> None:
    namespace, here, _ = pool
    two = [budget(namespace, "one", "web", maxUnavailable=2), budget(namespace, "two", maxUnavailable=2, selector={})]
    names = filled(sandbox, pool, eventually, 2, workload("Deployment", namespace, "web", 2), budgets=two)

    async def story() -> None:
        async with at_work(sandbox) as work:
            drain = work.drain(here)
            blocked = await drain.until(lambda d: d.state is State.BLOCKED, "blocked")
            assert (
                f"more than one PodDisruptionBudget covers it ({namespace}/one and {namespace}/two), which the "
                f"eviction API does not support; delete one or narrow its selector"
            ) in blocked.why
            assert posts(sandbox, namespace) == {name: [500] for name in names}
            sandbox.kubectl("delete", "pdb", "-n", namespace, "two")
            await drain.end(State.DRAINED)

    asyncio.run(story())
    assert posts(sandbox, namespace) == {name: [500, 201] for name in names}


def test_a_pod_replaced_under_its_name_is_another_pod(sandbox: Sandbox, pool: Pool, eventually: Eventually) -> None:
    namespace, here, _ = pool
    sandbox.apply(bare(namespace, "db-0", here))
    eventually(running(sandbox, here, namespace, 1), what="the first runs")
    old = pods_on(sandbox, here, namespace)["db-0"]["metadata"]["uid"]
    sandbox.kubectl("delete", "pod", "-n", namespace, "db-0", "--force", "--grace-period=0")
    sandbox.apply(bare(namespace, "db-0", here))
    eventually(running(sandbox, here, namespace, 1), what="the second runs")

    async def story() -> Memory:
        async with at_work(sandbox) as work:
            stale = [Evict(namespace, "db-0", old, "decided long ago"), Evict(namespace, "db-1", old, "never was")]
            return (await work.executor.perform(stale[:1], Memory(), Policy())).memory

    memory = asyncio.run(story())
    assert memory.attempts[old].outcome is Outcome.MOVED
    found = pods_on(sandbox, here, namespace)["db-0"]
    assert found["metadata"]["uid"] != old
    assert "deletionTimestamp" not in found["metadata"]
    assert posts(sandbox, namespace) == {"db-0": [409]}


def test_a_pod_that_is_gone_already_is_no_failure(sandbox: Sandbox, namespace: str) -> None:
    async def story() -> Memory:
        async with at_work(sandbox) as work:
            gone = Evict(namespace, "never-was", "some-uid", "decided long ago")
            return (await work.executor.perform([gone], Memory(), Policy())).memory

    assert asyncio.run(story()).attempts["some-uid"].outcome is Outcome.GONE


def test_the_deadline_passes_with_what_is_left_named_and_nothing_forced(
    sandbox: Sandbox, pool: Pool, eventually: Eventually
) -> None:
    namespace, here, _ = pool
    names = filled(
        sandbox, pool, eventually, 2, workload("Deployment", namespace, "web", 2),
        budgets=[budget(namespace, "web", "web", minAvailable=2)],
    )  # fmt: skip

    async def story() -> None:
        async with at_work(sandbox) as work:
            late = await work.drain(here, Policy(timeout=3)).end(State.DEADLINE_PASSED)
            assert late.left == tuple(f"{namespace}/{name}" for name in names)
            assert late.why.startswith(f"{here} was not drained within 3 s: 2 pods left: {namespace}/")

    asyncio.run(story())
    assert sorted(pods_on(sandbox, here, namespace)) == names


def test_lower_priorities_first_and_cluster_helpers_one_at_a_time(
    sandbox: Sandbox, pool: Pool, eventually: Eventually
) -> None:
    namespace, here, _ = pool
    dns = workload("Deployment", namespace, "dns", 3, priorityClassName="system-cluster-critical")
    names = filled(sandbox, pool, eventually, 5, dns, workload("Deployment", namespace, "batch", 2))

    async def story() -> None:
        async with at_work(sandbox) as work:
            await work.drain(here).end(State.DRAINED)

    asyncio.run(story())
    order = [
        event["objectRef"]["name"]
        for event in sandbox.audit(namespace)
        if event["objectRef"].get("subresource") == "eviction" and event["objectRef"]["namespace"] == namespace
    ]
    assert sorted(order) == names
    assert {name.split("-")[0] for name in order[:2]} == {"batch"}
    # Between two evictions of the helper its controller has made a replacement, and that has become Ready.
    assert _together(sandbox, namespace) == 1


def _together(sandbox: Sandbox, namespace: str) -> int:
    """How many replicas of `dns` were out at once: evictions less the replacements that became Ready since."""
    out = most = 0
    made: set[str] = set()
    for event in sandbox.audit(namespace):
        about, body = event["objectRef"], event.get("requestObject") or {}
        if about.get("namespace") != namespace or not about.get("name", "").startswith("dns-"):
            continue
        if about.get("subresource") == "eviction":
            out += 1
        elif about.get("subresource") == "status" and about["name"] not in made and _says_ready(body):
            made.add(about["name"])
            out -= 1 if out else 0
        most = max(most, out)
    return most


def _says_ready(body: dict[str, object]) -> bool:
    status = body.get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def test_a_dry_run_decides_the_same_and_sends_nothing(sandbox: Sandbox, pool: Pool, eventually: Eventually) -> None:
    namespace, here, _ = pool
    sandbox.apply(workload("Deployment", namespace, "web", 2))
    eventually(running(sandbox, here, namespace, 2), what="two pods run")
    names = sorted(pods_on(sandbox, here, namespace))

    async def story() -> None:
        async with at_work(sandbox, dry_run=True) as work:
            decision = await work.drain(here).end(State.DRAINING)
            assert sorted(action.name for action in decision.actions) == names

    asyncio.run(story())
    assert posts(sandbox, namespace) == {}
    assert sorted(pods_on(sandbox, here, namespace)) == names


def test_while_we_may_not_write_the_drain_says_so_and_goes_on_afterwards(
    sandbox: Sandbox, pool: Pool, eventually: Eventually
) -> None:
    namespace, here, _ = pool
    names = filled(sandbox, pool, eventually, 2, workload("Deployment", namespace, "web", 2))
    paused = ["The Fleet is paused: freeze."]

    async def story() -> None:
        async with at_work(sandbox, gate=lambda: paused[0] if paused else None) as work:
            drain = work.drain(here)
            said = await drain.until(lambda d: "Nothing is evicted now" in d.why, "it says that it may not")
            assert said.why.endswith("Nothing is evicted now: The Fleet is paused: freeze.")
            assert posts(sandbox, namespace) == {}
            paused.clear()
            await drain.end(State.DRAINED)

    asyncio.run(story())
    assert posts(sandbox, namespace) == {name: [201] for name in names}


def test_a_drain_outlives_its_api_server(sandbox: Sandbox, pool: Pool, eventually: Eventually) -> None:
    namespace, here, _ = pool
    filled(
        sandbox, pool, eventually, 2, workload("Deployment", namespace, "web", 2),
        budgets=[budget(namespace, "web", "web", minAvailable=2)],
    )  # fmt: skip

    async def story() -> None:
        async with at_work(sandbox) as work:
            drain = work.drain(here)
            await drain.until(lambda d: d.state is State.BLOCKED, "blocked")
            await asyncio.to_thread(sandbox.kill, "kube-apiserver")
            await asyncio.to_thread(sandbox.start, "kube-apiserver")
            await asyncio.to_thread(sandbox.wait_ready)
            await asyncio.to_thread(sandbox.kubectl, "delete", "pdb", "-n", namespace, "web")
            await drain.end(State.DRAINED)

    asyncio.run(story())
