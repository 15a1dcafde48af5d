"""The settings that decide which host a machine gets, each by an operator that runs with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.metal_world import World, consumer, history, home, one_to_one
from tests.real.operating import operator, refused

DOMAIN = "infrastructure.cluster.x-k8s.io/failure-domain"
# Each policy takes another two of the same three hosts: by name, by failure domain, by when they were last used.
DOMAINS = {"h1": "a", "h2": "a", "h3": "b"}
USED = {"h1": "2026-03-01T00:00:00Z", "h2": None, "h3": "2026-01-01T00:00:00Z"}
TAKEN = {"ordered": {"h1", "h2"}, "spread": {"h1", "h3"}, "least-recently-used": {"h2", "h3"}}


@pytest.fixture
def world(sandbox: Sandbox, account: str, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    yield made
    made.scrub()


@contextmanager
def choosing(sandbox: Sandbox, folder: Path, account: str, *flags: str) -> Iterator[None]:
    """An operator with these settings; nobody drives the hosts."""
    with operator(sandbox, folder, home(account), "--only", "metal", *flags, user=account) as running:
        yield
        assert refused(running) == []


def moments(world: World, since: str) -> tuple[int, int]:
    """When the last host was claimed and when the first machine said so, as versions of the whole store."""
    claims: dict[str, int] = {}
    for host in history(world.api, world.hosts_path(), since):
        if consumer(host):
            claims.setdefault(host["metadata"]["name"], int(host["metadata"]["resourceVersion"]))
    said = [
        int(machine["metadata"]["resourceVersion"])
        for machine in history(world.api, world.metal("metal3machines"), since)
        for one in machine.get("status", {}).get("conditions", ())
        if (one["type"], one["status"]) == ("AssociateBareMetalHost", "True")
    ]
    return max(claims.values()), min(said)


def test_a_failure_domain_is_preferred_and_else_any_host_will_do_at_random(
    world: World, sandbox: Sandbox, account: str, eventually: Eventually, tmp_path: Path
) -> None:
    others = [f"h{number:02}" for number in range(24)]
    world.make_hosts("near", ready=True, labels={DOMAIN: "d1"})
    world.make_hosts(*others, ready=True, labels={DOMAIN: "d2"})
    world.make_machines("first", spec={"failureDomain": "d1"})
    with choosing(sandbox, tmp_path, account):
        eventually(lambda: world.host_of("first") == "near", 90, "the one of its domain, of all these")
        # The next wants the same, by its Machine; there is none left, and it takes another one instead of waiting.
        world.make_machines("second", bootstrap=False)
        asked = {"failureDomain": "d1", "bootstrap": {"dataSecretName": "second-bootstrap"}}
        world.api.patch(world.capi("machines", "second"), {"spec": asked})
        world.make_machines(*(f"m{number}" for number in range(7)))
        eventually(lambda: len(one_to_one(world)) == 9, 60, "all have one")
        taken = set(one_to_one(world).values())
        assert taken - {"near"} != {*others[:8]}, "the first by their names, which chance gives once in 735,471 times"


@pytest.mark.parametrize("policy", TAKEN)
def test_every_policy_takes_its_own_hosts_and_a_strict_failure_domain_is_waited_for(
    world: World, sandbox: Sandbox, account: str, eventually: Eventually, tmp_path: Path, policy: str
) -> None:
    world.make_hosts(*DOMAINS, ready=True)
    for name, domain in DOMAINS.items():
        world.api.patch(world.hosts_path(name), {"metadata": {"labels": {DOMAIN: domain}}})
        used = {"operationHistory": {"deprovision": {"end": USED[name]}}}
        world.api.patch(f"{world.hosts_path(name)}/status", {"status": used})
    world.make_machines("m1", "m2")
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    flags = ("--metal-selection", policy, "--metal-strict-failure-domains", "--metal-workers", "1")
    with choosing(sandbox, tmp_path, account, *flags):
        eventually(
            lambda: all(world.condition(name).get("status") == "True" for name in ("m1", "m2")), 90, "both say so"
        )
        assert {*one_to_one(world).values()} == TAKEN[policy]
        both_have_one, first_says_so = moments(world, since)
        assert both_have_one < first_says_so, "who has a host lets the others have theirs before it says so"
        # One is free, and not of the domain that the next machine is to be in.
        (left,) = DOMAINS.keys() - TAKEN[policy]
        world.make_machines("m3", spec={"failureDomain": "c"})
        says = "some are in another failure domain"
        eventually(lambda: says in world.condition("m3").get("message", ""), 60, "it waits, and says why")
        assert "consumerRef" not in world.host(left)["spec"]
        world.api.patch(world.hosts_path(left), {"metadata": {"labels": {DOMAIN: "c"}}})
        eventually(lambda: world.host_of("m3") == left, 60, "now it is")
