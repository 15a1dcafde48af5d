"""Incumbents on the real API server: at work, scaled away, renewing a lease, leaving webhooks behind, out of sight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.apis.fleet import Fleet, Pause
from hostler.capabilities import BY_NAME
from hostler.fleet.controller import FleetController
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import WriteRefused
from hostler.kube.kinds import CONFIG_MAP, DEPLOYMENT, FLEET, NODE, PAUSE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Object
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.safety.guard import Guard
from hostler.safety.incumbent_watch import Lookout, look
from hostler.safety.incumbents import Incumbent, State, Trail, Verdict, Where
from hostler.safety.switches import CapabilityInfo, Choice
from hostler.sandbox import Sandbox
from tests.real.draining import workload
from tests.real.operating import kubeconfig_as

IMAGE = "example.org/none:1"


def incumbent(namespace: str) -> Incumbent:
    return Incumbent(
        "the old provider",
        deployments=(Where(namespace, "old"),),
        leases=(Where(namespace, "old-lock"),),
        trails=(Trail("deployments.apps", Where(namespace, "router"), "old-operator"),),
        webhook_services=(Where(namespace, "old-hook"),),
        definitions=("none.test.hostler.dev", f"olds.{namespace}.test.hostler.dev"),
        remedy="Scale it to 0.",
    )


class Story:
    """A lookout with a clock of the test's own, over the real API server."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.now = 1000.0
        self._runner = asyncio.Runner()
        self._client = Client(load(str(kubeconfig)))
        choice = Choice(CapabilityInfo("metal", "Test.", incumbents=(incumbent(namespace),)), True, "Named.")
        self._guard = self._runner.run(self._guarding(choice))
        self._lookout = Lookout(self._client, self._guard, clock=lambda: self.now)

    async def _guarding(self, choice: Choice) -> Guard:
        pauses = Watch(self._client, PAUSE, Pause, metrics=Metrics())
        fleet = Watch(self._client, FLEET, Fleet, metrics=Metrics())
        return Guard(pauses, fleet, leader=lambda: None, choices=[choice])

    def look(self) -> Verdict:
        self._runner.run(self._lookout.once())
        verdict = self._guard.verdict("metal")
        assert verdict is not None
        return verdict

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture
def story(sandbox: Sandbox, namespace: str) -> Iterator[Story]:
    made = Story(sandbox.kubeconfig, namespace)
    yield made
    made.close()


def deployment(namespace: str, name: str, replicas: int) -> dict[str, object]:
    return workload(
        "Deployment", namespace, name, replicas, nodeSelector={}, containers=[{"name": "c", "image": IMAGE}]
    )


def lease(namespace: str, renewed: str, holder: str = "old-pod") -> dict[str, object]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "old-lock", "namespace": namespace},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    }


def test_nothing_there(story: Story) -> None:
    verdict = story.look()
    assert verdict.state is State.ABSENT
    assert verdict.why == "the old provider was looked for and is not there."


def test_a_deployment_until_it_is_scaled_away(sandbox: Sandbox, namespace: str, story: Story) -> None:
    sandbox.apply(deployment(namespace, "old", 1))
    found = story.look()
    assert found.state is State.FOUND
    assert f"Deployment {namespace}/old is scaled to 1" in found.why
    sandbox.kubectl("-n", namespace, "scale", "deployment", "old", "--replicas=0")
    assert story.look().state is State.ABSENT


def test_a_deployment_in_a_namespace_we_do_not_know(sandbox: Sandbox, namespace: str) -> None:
    name = f"wanderer-{namespace}"
    sandbox.apply(deployment(namespace, name, 2))

    async def see() -> None:
        async with Client(load(str(sandbox.kubeconfig))) as client:
            sighting = await look(client, Incumbent("x", deployments=(Where("", name),)))
            assert [(str(one.at), one.replicas) for one in sighting.deployments] == [(f"{namespace}/{name}", 2)]

    asyncio.run(see())


def test_the_predecessor_under_any_name_of_its_release(sandbox: Sandbox, namespace: str) -> None:
    """Known by its chart's label, its image or its variables; Hostler itself, which has the same variables, is not."""
    controller = "gpu-node-vsphere-maintenance-controller"
    variables = [{"name": name, "value": "x"} for name in ("GPU_NODE_LABEL", "VCENTER_HOST")]
    made = {name: deployment(namespace, name, 1) for name in ("blue", "green", "red", "web", "ours")}
    made["blue"]["metadata"]["labels"] = {"app.kubernetes.io/name": controller}  # type: ignore[index]
    for name, container in {
        "green": {"name": "c", "image": f"example.org/team/{controller}:1"},
        "red": {"name": "c", "image": IMAGE, "env": variables},
        "ours": {
            "name": "c",
            "image": IMAGE,
            "env": [*variables, {"name": "HOSTLER_OPERATOR_NAMESPACE", "value": "x"}],
        },
    }.items():
        made[name]["spec"]["template"]["spec"]["containers"] = [container]  # type: ignore[index]

    async def see() -> dict[str, str]:
        (one,) = BY_NAME["maintenance"].incumbents
        async with Client(load(str(sandbox.kubeconfig))) as client:
            sighting = await look(client, one)
            assert not sighting.failed
            return {seen.at.name: seen.sign for seen in sighting.deployments if seen.at.namespace == namespace}

    try:
        for one in made.values():
            sandbox.apply(one)
        assert asyncio.run(see()) == {
            "blue": f"label app.kubernetes.io/name={controller}",
            "green": f"image example.org/team/{controller}:1",
            "red": "it sets GPU_NODE_LABEL and VCENTER_HOST",
        }
    finally:  # or the operators of later tests would keep still beside them
        sandbox.kubectl("-n", namespace, "delete", "deployment", *made, "--ignore-not-found")


def test_a_lease_is_believed_by_our_own_clock_only(sandbox: Sandbox, namespace: str, story: Story) -> None:
    sandbox.apply(lease(namespace, "2001-01-01T00:00:00.000000Z"))
    assert story.look().state is State.UNKNOWN
    story.now += 5
    sandbox.apply(lease(namespace, "2001-01-01T00:00:05.000000Z"))
    found = story.look()
    assert found.state is State.FOUND
    assert "old-pod renews lease" in found.why
    story.now += 23
    assert story.look().state is State.ABSENT


def test_a_field_manager_that_writes(sandbox: Sandbox, namespace: str, story: Story) -> None:
    sandbox.apply(deployment(namespace, "router", 0))
    assert story.look().state is State.ABSENT
    for number in ("1", "2"):
        sandbox.kubectl(
            "-n", namespace, "patch", "deployment", "router", "--field-manager=old-operator", "--type=merge",
            "-p", f'{{"metadata":{{"labels":{{"seen":"{number}"}}}}}}',
        )  # fmt: skip
        if number == "1":
            story.look()
            story.now += 5
            time.sleep(1.1)  # managedFields carry whole seconds: two writes in one second look like one
    found = story.look()
    assert found.state is State.FOUND
    assert 'field manager "old-operator" wrote deployments.apps' in found.why


@pytest.fixture
def webhook(sandbox: Sandbox, namespace: str) -> Iterator[str]:
    name = f"hook-{namespace}"
    sandbox.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "hook.test.hostler.dev",
                    "clientConfig": {"service": {"namespace": namespace, "name": "old-hook"}},
                    "rules": [
                        {"apiGroups": ["nothing.test"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
                    ],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    )
    yield name
    sandbox.kubectl("delete", "validatingwebhookconfiguration", name)


def test_a_webhook_left_behind(sandbox: Sandbox, namespace: str, webhook: str, story: Story) -> None:
    left = story.look()
    assert left.state is State.FOUND
    assert f"its webhook ValidatingWebhookConfiguration {webhook} is still registered and points at nothing" in left.why
    sandbox.apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "old-hook-1", "namespace": namespace, "labels": {"kubernetes.io/service-name": "old-hook"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
        }
    )  # fmt: skip
    assert story.look().state is State.ABSENT


@pytest.fixture
def converted(sandbox: Sandbox, namespace: str) -> Iterator[str]:
    """A CRD of the old provider whose conversion webhook is left behind."""
    group = f"{namespace}.test.hostler.dev"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    sandbox.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"olds.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "olds", "kind": "Old"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {
                        "conversionReviewVersions": ["v1"],
                        "clientConfig": {"service": {"namespace": namespace, "name": "old-hook"}},
                    },
                },
            },
        }
    )
    yield f"olds.{group}"
    sandbox.kubectl("delete", "crd", f"olds.{group}")


def test_a_conversion_webhook_left_behind(converted: str, story: Story) -> None:
    left = story.look()
    assert left.state is State.FOUND
    assert f"its webhook conversion of {converted} is still registered" in left.why


def test_ours_observes_and_says_so_but_writes_nothing(sandbox: Sandbox, namespace: str) -> None:
    """The whole way: incumbent, lookout, guard, writer, Fleet status. Then the incumbent goes, and ours may write."""
    sandbox.apply(deployment(namespace, "old", 1))
    choice = Choice(CapabilityInfo("metal", "Test.", incumbents=(incumbent(namespace),)), True, "Named.")

    async def story() -> None:
        async with Client(load(str(sandbox.kubeconfig))) as client:
            metrics = Metrics()
            fleet, nodes = Watch(client, FLEET, Fleet, metrics=metrics), Watch(client, NODE, Node, metrics=metrics)
            pauses = Watch(client, PAUSE, Pause, metrics=metrics)
            tasks = [asyncio.create_task(watch.run()) for watch in (pauses, fleet, nodes)]
            for watch in (pauses, fleet, nodes):
                await watch.synced.wait()
            guard = Guard(pauses, fleet, leader=lambda: None, choices=[choice])
            lookout = Lookout(client, guard)
            writer = Writer(client, "metal", gate=guard.gate_for("metal"), budget=WriteBudget())
            status = FleetController(fleet, nodes, guard, writer, limit="", leader=lambda: "me", metrics=metrics)
            await lookout.once()
            with pytest.raises(WriteRefused, match="The old provider: Deployment"):
                await writer.create(
                    CONFIG_MAP, {"metadata": {"name": "ours"}}, namespace, type=Object, why="it is our turn"
                )
            shown = status.status()
            condition = next(one for one in shown.conditions if one.type == "IncumbentFound")
            assert condition.status == "True"
            assert condition.message.startswith("metal only observes. The old provider: Deployment")
            assert shown.capabilities[0].incumbent == "the old provider"
            await client.patch(DEPLOYMENT, "old", {"spec": {"replicas": 0}}, namespace, type=Object)
            await lookout.once()
            made = await writer.create(
                CONFIG_MAP, {"metadata": {"name": "ours"}}, namespace, type=Object, why="it is our turn"
            )
            assert made is not None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())


def test_what_we_may_not_see_is_not_absent(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    blind = Story(kubeconfig_as(sandbox, tmp_path, "nobody"), namespace)
    verdict = blind.look()
    blind.close()
    assert verdict.state is State.UNKNOWN
    assert "could not be read" in verdict.why
    assert "forbidden" in verdict.why
