"""Volumes: a node is not drained while volumes of departed pods are attached to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hostler.drain.model import Policy, State
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.disks import make_disks, uses
from tests.real.draining import accepts_pods, at_work, bare, running


def attached(sandbox: Sandbox, node: str) -> set[str]:
    items = sandbox.read("/apis/storage.k8s.io/v1/volumeattachments")["items"]
    return {one["spec"]["source"]["persistentVolumeName"] for one in items if one["spec"]["nodeName"] == node}


def test_volumes_that_go_later_and_volumes_of_pods_that_stay(
    sandbox: Sandbox, namespace: str, make_node: Callable[..., str], eventually: Eventually
) -> None:
    """The first is waited for, by name, until it is detached; the second belongs to a static pod and never goes."""
    node = make_node(labels={"pool": namespace})
    eventually(accepts_pods(sandbox, namespace), what="the namespace accepts pods")
    static = {"annotations": {"kubernetes.io/config.mirror": "h"}}
    make_disks(sandbox, namespace, "data", "logs")
    sandbox.apply(
        bare(namespace, "writer", node, volumes=uses("data")),
        bare(namespace, "static", node, static, volumes=uses("logs")),
    )
    both = {f"{namespace}-data", f"{namespace}-logs"}
    eventually(lambda: attached(sandbox, node) == both, what="both volumes are attached")
    eventually(running(sandbox, node, namespace, 2), what="both pods run")
    # A disk still mounted somewhere: its attachment cannot go while this finalizer is there.
    mine = next(
        one["metadata"]["name"]
        for one in sandbox.read("/apis/storage.k8s.io/v1/volumeattachments")["items"]
        if one["spec"]["source"]["persistentVolumeName"] == f"{namespace}-data"
    )
    held = '[{"op":"add","path":"/metadata/finalizers/-","value":"hostler.dev/test"}]'
    sandbox.kubectl("patch", "volumeattachment", mine, "--type=json", "-p", held)

    async def story() -> None:
        async with at_work(sandbox) as work:
            drain = work.drain(node)
            waiting = await drain.until(
                lambda d: d.state is State.WAITING_FOR_VOLUMES and len(d.volumes) == 1, "one volume is waited for"
            )
            assert waiting.why == f"No pod is left on {node}, but 1 volume still attached: {namespace}-data."
            late = await work.drain(node, Policy(timeout=1)).end(State.DEADLINE_PASSED)
            assert late.why == f"{node} was not drained within 1 s: 1 volume attached: {namespace}-data."
            finalizers = sandbox.get("volumeattachment", mine)["metadata"]["finalizers"]
            index = finalizers.index("hostler.dev/test")
            freed = f'[{{"op":"remove","path":"/metadata/finalizers/{index}"}}]'
            sandbox.kubectl("patch", "volumeattachment", mine, "--type=json", "-p", freed)
            await drain.end(State.DRAINED)

    asyncio.run(story())
    assert attached(sandbox, node) == {f"{namespace}-logs"}
    sandbox.kubectl("delete", "pod", "-n", namespace, "static", "--force", "--grace-period=0")
    sandbox.kubectl("delete", "pv", f"{namespace}-data", f"{namespace}-logs", "--wait=false")
