"""Metal's webhooks in the operator: the objects that point at them, and what they do beside the Go provider."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hostler.capabilities import BY_NAME, CAPABILITIES, read_settings
from hostler.install.grants import rights_for
from hostler.kube.client import Client
from hostler.metal.capability import MetalCapability
from hostler.metal.kinds.webhook_objects import (
    DEFINITIONS,
    ENVIRONMENT,
    KINDS,
    SECRET_NAME,
    conversion_of,
    webhook_configurations,
    webhook_service,
)
from hostler.metal.kinds.webhooks import TARGETS, MetalWebhooks, mutate, validate
from hostler.safety.guard import Guard
from hostler.safety.incumbents import State, Verdict
from hostler.safety.switches import Choice
from hostler.webhooks.client_configs import Place, bundle_patch
from hostler.webhooks.reviews import AdmissionRequest, GroupVersionKind
from tests.sharing import share
from tests.unit.nowhere import Nowhere
from tests.unit.watching import fleets, pauses

PAGE = (Path(__file__).resolve().parents[2] / "docs/metal-webhooks.md").read_text()
GROUP = "infrastructure.cluster.x-k8s.io"
Json = dict[str, Any]


def test_the_page_has_the_conversion_as_it_is() -> None:
    shown = re.search(r"conversion\.json <<'END'\n(.*?)\nEND\n", PAGE, re.DOTALL)
    assert shown is not None
    assert json.loads(shown[1]) == {"spec": {"conversion": conversion_of("hostler")}}
    loop = re.search(r"for plural in (.*?); do", PAGE, re.DOTALL)
    assert loop is not None
    assert loop[1].replace("\\", "").split() == [*KINDS]


def test_every_webhook_names_one_kind_in_both_versions_and_never_its_status() -> None:
    for one in webhook_configurations("h"):
        for webhook in one["webhooks"]:
            (rule,) = webhook["rules"]
            (plural,) = rule["resources"]
            assert webhook["name"].split(".", 1)[1] == f"{KINDS[plural].lower()}.{GROUP}"
            assert set(rule["apiVersions"]) == {"v1beta1", "v1beta2"}
            assert webhook["failurePolicy"] == "Fail"
            assert webhook["clientConfig"]["service"]["namespace"] == "h"
    assert webhook_service("h", {"a": "b"})["metadata"]["name"] == "hostler-webhook-service"


def test_the_environment_turns_them_on() -> None:
    settings = read_settings({}, {**ENVIRONMENT, "HOSTLER_ONLY": "metal"})
    found = {one.setting.name: one.value for one in settings if one.setting.name in ENVIRONMENT}
    assert found["HOSTLER_METAL_WEBHOOKS"] is True
    assert found["HOSTLER_METAL_WEBHOOKS_ADDRESS"].port == 9443


def test_rights_on_definitions_and_configurations_are_limited_by_name() -> None:
    for right in rights_for(["metal"]):
        if "patch" in right.verbs and ("webhookconf" in right.resource or "definitions" in right.resource):
            assert right.names, right
    assert any(right.names == (SECRET_NAME,) for right in rights_for(["metal"]))


def test_each_target_that_points_at_the_service_gets_the_bundle() -> None:
    place = Place("hostler-webhook-service", "h", 9443)
    made = [*webhook_configurations("h"), *({"spec": {"conversion": conversion_of("h")}} for _ in DEFINITIONS)]
    counts = [len(bundle_patch(target, one, place, "x")) - 1 for target, one in zip(TARGETS, made, strict=True)]
    assert counts == [2, 9, *([1] * 9)]


# -- beside the Go provider


def asked(spec: Json) -> AdmissionRequest:
    thing = {"kind": "Metal3Cluster", "metadata": {"name": "c"}, "spec": spec}
    return AdmissionRequest(
        uid="u", kind=GroupVersionKind(group=GROUP, version="v1beta2", kind="Metal3Cluster"), operation="CREATE",
        object=thing,
    )  # fmt: skip


def with_webhooks(story: Callable[[MetalWebhooks, Guard], None]) -> None:
    async def run() -> None:
        async with Client(Nowhere()) as client:
            shared = share(client, ["metal"], read_settings({}, {}))
            choices = [Choice(one, one.name == "metal", "It is tested.") for one in CAPABILITIES]
            guard = Guard(pauses(), fleets(), leader=lambda: None, choices=choices)
            story(MetalWebhooks(replace(shared, writers=replace(shared.writers, guard=guard))), guard)

    asyncio.run(run())


def test_beside_the_provider_everything_passes_and_the_condition_says_so() -> None:
    def story(hooks: MetalWebhooks, guard: Guard) -> None:
        for admit, rule in ((hooks.validate, validate), (hooks.mutate, mutate)):
            empty = asked({"controlPlaneEndpoint": {"host": ""}})
            before = admit(empty)
            assert before == rule(empty)
            assert (before.allowed, before.patched) != (True, None)
        guard.judged("metal", Verdict(State.FOUND, "The Metal3 provider: it is scaled to 1.", "capm3"))
        for admit in (hooks.validate, hooks.mutate):
            passed = admit(asked({"controlPlaneEndpoint": {"host": ""}}))
            assert (passed.allowed, passed.patched, passed.warnings) == (True, None, ())
        (condition,) = hooks.conditions()
        assert condition.reason == "IncumbentFound"
        assert condition.message.endswith("The Metal3 provider: it is scaled to 1.")
        assert BY_NAME["metal"].incumbents

    with_webhooks(story)


def test_a_certificate_that_is_not_there_is_named() -> None:
    def story(hooks: MetalWebhooks, guard: Guard) -> None:
        (condition,) = hooks.conditions()
        assert (condition.status, condition.reason) == ("False", "NoCertificate")
        assert SECRET_NAME in condition.message
        assert hooks.not_serving() is None  # nobody could serve: to be unready would only hold up the next replica

    with_webhooks(story)


def test_a_replica_is_ready_before_it_can_read_what_only_it_can_convert() -> None:
    """Its Service sends nothing to a pod that is not ready, so it would wait for itself."""

    async def unready(**environment: str) -> set[str]:
        async with Client(Nowhere(), timeout=1) as client:
            metal = MetalCapability(share(client, ["metal"], read_settings({}, environment)))
            found = {watch.kind.group for watch in metal.watches() if watch.not_in_step()}
            await metal.close()
            return found

    assert GROUP in asyncio.run(unready())
    for more in ({}, {"HOSTLER_METAL_NAMESPACES": "a,b"}):
        waited_for = asyncio.run(unready(HOSTLER_METAL_WEBHOOKS="true", **more))
        assert GROUP not in waited_for
        assert "metal3.io" in waited_for, "what needs no conversion"
