"""Every combination of what decides, as the API server would store it: accepted, and then nothing is left to write."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hostler.apis.openshift import PublishingStrategy
from hostler.ingress.decide import Facts, Policy, router_body
from hostler.ingress.model import Placed, Placement
from hostler.ingress.placement import place
from hostler.ingress.placement_patch import placement_writes
from hostler.ingress.refusals import router_template
from hostler.kube.client import Client, How
from hostler.kube.config import load
from hostler.kube.kinds import DEPLOYMENT
from hostler.sandbox import Sandbox
from tests.real.routing import ROUTERS, install_openshift
from tests.unit.test_ingress_placement import (
    CONTROL_PLANES,
    INFRASTRUCTURES,
    OPENSHIFT,
    PLACEMENTS,
    SELECTORS,
    controller,
    infrastructure,
    ingress,
)

POLICY = Policy(template=router_template("router:1"))
STRATEGIES = ("HostNetwork", "Private")


def placements(replicas: tuple[int | None, ...]) -> list[tuple[Facts, Placement]]:
    """Each combination, with its placement; those that are alike once only."""
    found: dict[str, tuple[Facts, Placement]] = {}
    for said, control_plane, infra, count, selector, published in itertools.product(
        PLACEMENTS, CONTROL_PLANES, INFRASTRUCTURES, replicas, SELECTORS, STRATEGIES
    ):
        asked = controller(count, selector, endpoint_publishing_strategy=PublishingStrategy(type=published))
        laid_out = infrastructure(control_plane, infra)
        placed = place(ingress(said), laid_out, asked, OPENSHIFT)
        assert isinstance(placed, Placement)
        facts = Facts(asked, ingress(said), laid_out, OPENSHIFT, None, None, ())
        found[repr((placed.replicas, placed.node_selector, placed.affinity, placed.strategy, published))] = (
            facts,
            placed,
        )
    return list(found.values())


async def stored(client: Client, made: list[tuple[Facts, Placement]]) -> None:
    """Created anew, and applied to a Deployment somebody else made: both are what we wanted, and are seen to be."""
    body: dict[str, Any] = {
        "metadata": {"name": "router-foreign", "namespace": ROUTERS},
        "spec": {
            "selector": {"matchLabels": {"app": "foreign"}},
            "template": {
                "metadata": {"labels": {"app": "foreign"}},
                "spec": {"containers": [{"name": "router", "image": "i"}], "nodeSelector": {"old": "selector"}},
            },
        },
    }
    foreign = await client.create(DEPLOYMENT, body, ROUTERS, type=Placed)
    try:
        for facts, placed in made:
            whole = router_body(facts, POLICY, placed)
            assert whole is not None
            await client.create(DEPLOYMENT, whole, ROUTERS, type=Placed, dry_run=True)
            (write,) = placement_writes(DEPLOYMENT, foreign, placed)
            taken = await client.patch(
                DEPLOYMENT, write.name, write.body, ROUTERS, type=Placed, how=How.APPLY, force=True, dry_run=True
            )
            assert placement_writes(DEPLOYMENT, taken, placed) == ()
    finally:
        await client.delete(DEPLOYMENT, "router-foreign", ROUTERS)


def check(sandbox: Sandbox, replicas: tuple[int | None, ...]) -> None:
    install_openshift(sandbox)

    async def work() -> None:
        async with Client(load(str(sandbox.kubeconfig), None)) as client:
            await stored(client, placements(replicas))

    asyncio.run(work())


def test_what_the_server_stores_is_what_was_decided(sandbox: Sandbox) -> None:
    check(sandbox, (None, 0, 1, 2, 3, 4, 9))
