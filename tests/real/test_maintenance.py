"""Every story of maintenance with one operator that lives through all of them, one after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hostler.maintenance.model import Wish
from hostler.sandbox import Sandbox
from tests.real.foretelling import Foretelling
from tests.real.maintaining import POLICY, Plan, Site, site, until
from tests.real.maintenance_stories import PAIR, PLANS, SCRIPTS, TOLD
from tests.real.operating import Running, hostler, operator
from tests.real.story import outage, telling
from tests.real.together import Told, own_namespace, selected, side_by_side

AT_ONCE = 8
SECOND = "second-vcenter"
PLANNED = "plan-comes-true"
NOBODY = "without-an-operator-the-task-hangs-for-ever"
# One worker of each policy.
WISHES = {"move": "migrate", "wait": "wait", "stay": "stay-off", "not": "ignore"}
FOUR = Plan({"esx1": 4, "esx2": 4}, dict.fromkeys(WISHES, "esx1"))
# Stories in which nobody interferes: what they write is compared with the plan asked for right before.
FORETOLD = ("free-host", "drs", "wait-and-return", "two-workers-one-gpu", "fixed-device")
LONG = ("budget-for-ever", "power-on-fails-three-times", "policies", "relocate-takes-too-long", SECOND)  # begun first


@pytest.fixture(scope="module")
def yard(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(
        sandbox, tmp_path_factory.mktemp("yard"), {**PLANS, "nobody": PAIR, "beside": PAIR, PLANNED: FOUR}
    ) as made:
        yield made


@pytest.fixture(scope="module")
def elsewhere(sandbox: Sandbox, yard: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A second vCenter of the same operator."""
    with site(sandbox, tmp_path_factory.mktemp("elsewhere"), {"far": PAIR}) as made:
        made.label = yard.label
        yield made


def without_an_operator(yard: Site) -> None:
    """What every story relies on: the task waits for the VM, and the node lives and dies with its VM."""
    nobodys = replace(yard, label=f"{yard.label}-nobody")  # of no operator
    with own_namespace(yard.kube) as namespace, telling(nobodys, "nobody", namespace) as story:
        story.nodes()
        story.enter("esx1")
        time.sleep(2)
        assert story.host("esx1")["entering"]
        assert (story.switched("a"), story.cordoned("a"), story.serving("app-a")) == ((0, 0), False, 2)
        story.switch("a", "off")
        until(lambda: story.host("esx1")["inMaintenance"], "the task completes once it is off")
        until(lambda: not story.ready("a"), "its node is not heard of any more")
        story.move("a", "esx2")
        story.switch("a", "on")
        until(lambda: story.ready("a") and story.rebooted("a"), "its node is back with a new boot id")
        until(lambda: story.serving("app-a") == 2, "and its pods")
        assert (story.switched("a"), story.vm("a")["host"]) == ((1, 1), story.full("esx2"))
        story.exit("esx1")


@pytest.fixture(scope="module")
def running(
    sandbox: Sandbox, yard: Site, elsewhere: Site, home: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("operator")
    further = folder / "vcenters.yaml"
    further.write_text(json.dumps({"vcenters": [elsewhere.as_further()]}))
    told = yard.environment(**TOLD, VCENTERS_FILE=str(further))
    with operator(sandbox, folder, home, "--log-level", "debug", told=told) as one:
        one.said("leading")
        yield one
        assert one.process.poll() is None, f"it ended in between:\n{one.log.read_text()[-3000:]}"


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, yard: Site, elsewhere: Site, running: Running) -> Iterator[Told]:
    wanted = sorted(selected(request), key=lambda name: name not in LONG)

    def tell_one(name: str) -> None:
        if name == SECOND:
            second_vcenter(yard, elsewhere, running)
        elif name == PLANNED:
            plan_comes_true(yard, running)
        elif name == NOBODY:
            without_an_operator(yard)
        else:
            tell(yard, running, name)

    with side_by_side(wanted, tell_one, AT_ONCE) as futures:
        yield futures


def tell(yard: Site, running: Running, name: str) -> None:
    with own_namespace(yard.kube) as namespace, telling(yard, name, namespace) as story:
        if name not in FORETOLD:
            SCRIPTS[name](story)
            return
        foretelling = Foretelling(story, running)
        story.before_enter = foretelling.foretell
        SCRIPTS[name](story)
        foretelling.came_true()


def second_vcenter(yard: Site, elsewhere: Site, running: Running) -> None:
    """A worker in another vCenter, which is away when its host enters: a worker in the first one has not to wait."""
    with (
        own_namespace(yard.kube) as namespace,
        telling(elsewhere, "far", namespace) as far,
        telling(yard, "beside", namespace) as near,
    ):
        far.nodes()
        near.nodes(pods=0)
        with outage(far, 0.0):
            far.enter("esx1")
            near.enter("esx1")
            near.comes_back("a", "esx2")
            assert (far.state("a"), far.switched("a")) == ("", (0, 0))
            status = ("maintenance", "status", "--operator", running.url)
            until(
                lambda: "Cannot tell whether" in hostler(yard.sandbox.kubeconfig, *status).stderr,
                "the status says so",
                30,
            )
        far.comes_back("a", "esx2")
        assert far.switched("a") == (1, 1)
        far.evicted_once()


def plan_comes_true(yard: Site, running: Running) -> None:
    """What is foretold of each policy is what is written afterwards, step by step."""
    assert set(WISHES.values()) == set(Wish), "every policy has its worker"
    with own_namespace(yard.kube) as namespace, telling(yard, PLANNED, namespace) as story:
        foretelling = Foretelling(story, running)
        story.before_enter = foretelling.foretell
        for vm, wish in WISHES.items():
            story.nodes(vm, pods=1, annotations={POLICY: wish})
        story.enter("esx1")
        story.comes_back("move", "esx2")
        story.reaches("stay", "powered-off")
        story.reaches("wait", "powered-off")
        story.cancel("esx1")  # the plan too lets the host leave when nothing goes on any more
        story.comes_back("wait", "esx1")
        assert foretelling.plan["not"] == []
        assert foretelling.plan["move"][:1] == foretelling.plan["wait"][:1] == ["hold"]
        foretelling.came_true()


@pytest.mark.parametrize("name", [NOBODY, *SCRIPTS, SECOND, PLANNED])
def test_story(name: str, told: Told, running: Running) -> None:
    told[name].result()
    assert running.process.poll() is None
