"""Maintenance while vCenter is away, forgets us, or somebody presses the stop button: nothing is done meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from hostler.instant import parse
from hostler.sandbox import Sandbox
from tests.real.maintaining import SEED, Site, site, until
from tests.real.maintenance_stories import ALONE, PAIR, TOLD, blocked, unblock
from tests.real.operating import Running, hostler, operator
from tests.real.story import Story, outage, telling

DRAIN_SECONDS = 300
PLANS = {
    **{f"{state}-{length}": plan for length in ("short", "minute") for state, plan in (
        ("draining", PAIR), ("off", ALONE), ("migrated", PAIR))},
    "expired": ALONE,
    "paused": ALONE,
}  # fmt: skip


@pytest.fixture(scope="module")
def yard(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(sandbox, tmp_path_factory.mktemp("yard"), PLANS) as made:
        yield made


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, yard: Site, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    told = yard.environment(**{**TOLD, "DRAIN_TIMEOUT_SECONDS": str(DRAIN_SECONDS)})
    with operator(sandbox, tmp_path_factory.mktemp("operator"), home, told=told) as one:
        one.said("leading")
        yield one


LENGTHS = [
    pytest.param(("short", 3.0), id="short"),
    pytest.param(("minute", 60.0), id="minute", marks=pytest.mark.full),
]


@pytest.mark.parametrize("length", LENGTHS)
def test_away_while_draining(length: tuple[str, float], yard: Site, running: Running, namespace: str) -> None:
    """The pods go on leaving; the VM is not touched before vCenter is back."""
    with telling(yard, f"draining-{length[0]}", namespace) as story:
        story.nodes()
        blocked(story, "a")
        story.enter("esx1")
        story.reaches("a", "draining")
        with outage(story, length[1]):
            unblock(story, "a")
            time.sleep(1)
            assert story.cordoned("a")
        story.comes_back("a", "esx2")
        assert story.switched("a") == (1, 1)
        story.evicted_once(refused=True)


@pytest.mark.parametrize("length", LENGTHS)
def test_away_while_powered_off(
    length: tuple[str, float], yard: Site, running: Running, namespace: str, sandbox: Sandbox
) -> None:
    """The host comes back while nobody can see it; the node says what it waits for."""
    with telling(yard, f"off-{length[0]}", namespace) as story:
        story.nodes()
        story.enter("esx1")
        story.reaches("a", "powered-off")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        with outage(story, length[1]):
            story.exit("esx1")
            explain = ("explain", f"node/{story.full('a')}", "--operator", running.url)
            until(lambda: "cannot be reached" in hostler(sandbox.kubeconfig, *explain).stdout, "it says so", 60)
            status = hostler(sandbox.kubeconfig, "maintenance", "status", "--operator", running.url)
            assert "Whether a host is entering maintenance is not known" in status.stderr, status
            assert story.state("a") == "powered-off"
        story.comes_back("a", "esx1")
        assert story.switched("a") == (1, 1)


@pytest.mark.parametrize("length", LENGTHS)
def test_away_while_migrated(length: tuple[str, float], yard: Site, running: Running, namespace: str) -> None:
    """The node is Ready anew, but whether its VM really runs elsewhere is not known: it stays cordoned."""
    with telling(yard, f"migrated-{length[0]}", namespace) as story:
        story.nodes()
        story.kubelet("a", comes_up=False)
        story.enter("esx1")
        story.reaches("a", "migrated")
        with outage(story, length[1]):
            time.sleep(0.5)
            story.kubelet("a", comes_up=True)
            story.wait("a", lambda: story.ready("a") and story.rebooted("a"), "its node is alive")
            time.sleep(1)
            assert story.cordoned("a")
        story.comes_back("a", "esx2")
        assert story.switched("a") == (1, 1)


def test_the_session_expires(yard: Site, running: Running, namespace: str) -> None:
    with telling(yard, "expired", namespace) as story:
        story.nodes()
        story.enter("esx1")
        story.reaches("a", "powered-off")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        logins = story.site.control("GET", "/state")["logins"]["attempts"]
        story.site.control("POST", "/sessions/expire")
        story.exit("esx1")
        story.comes_back("a", "esx1")
        assert story.switched("a") == (1, 1)
        assert story.site.control("GET", "/state")["logins"]["attempts"] > logins


# -- the stop button


@pytest.fixture
def fleet(sandbox: Sandbox) -> Iterator[None]:
    """The CRD; no Fleet afterwards."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    yield
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")


def deadline(story: Story, running: Running) -> float:
    """When the pods of the worker are out of time, as `explain` has it."""
    done = hostler(story.site.sandbox.kubeconfig, "explain", f"node/{story.full('a')}", "--operator", running.url)
    found = re.search(r"or at (\d\S+Z)", done.stdout)
    return (parse(found[1]) if found else None) or 0.0


def asked_for(story: Story) -> int:
    """Evictions, once those that were under way have been answered."""
    count = -1
    while count != (now := sum(len(answers) for answers in story.trail.evictions().values())):
        count = now
        time.sleep(0.5)
    return count


def test_a_pause_stops_it_wherever_it_is(
    sandbox: Sandbox, fleet: None, yard: Site, running: Running, namespace: str
) -> None:
    """Paused while a budget blocks: when the budget is gone, still nothing is evicted and nothing is powered off."""
    with telling(yard, "paused", namespace) as story:
        story.nodes()
        blocked(story, "a")
        story.enter("esx1")
        story.wait("a", lambda: story.trail.evictions(), "it drains")
        assert hostler(sandbox.kubeconfig, "pause", "--why", "a test").returncode == 0
        since = parse(story.annotations("a")[f"{SEED}transition-time"]) or 0.0
        # Its time does not run: it would end so long after now, whenever that is.
        until(lambda: deadline(story, running) > since + DRAIN_SECONDS + 2, "its deadline goes on with the clock")
        asked = asked_for(story)
        unblock(story, "a")
        time.sleep(3)
        assert asked_for(story) == asked
        assert story.state("a") == "draining"
        assert hostler(sandbox.kubeconfig, "resume").returncode == 0
        story.reaches("a", "powered-off")
        assert hostler(sandbox.kubeconfig, "pause", "--why", "a test").returncode == 0
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        time.sleep(1)
        story.exit("esx1")
        time.sleep(5)
        assert story.vm("a")["power"] == "poweredOff", "vCenter is not told anything either"
        assert hostler(sandbox.kubeconfig, "resume").returncode == 0
        story.comes_back("a", "esx1")
        assert story.switched("a") == (1, 1)
        story.evicted_once(refused=True)
