"""Maintenance while vCenter is away, forgets us, or somebody presses the stop button: nothing is done meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from hostler.instant import parse
from hostler.sandbox import Sandbox
from tests.real.maintaining import SEED, Plan, Site, site, until
from tests.real.maintenance_stories import ALONE, PAIR, TOLD, blocked, ends, unblock
from tests.real.operating import Running, hostler, operator
from tests.real.story import Story, outage, telling
from tests.real.together import own_namespace

DRAIN_SECONDS = 300
# Nothing runs out in an outage but where it is looked for.
PATIENT = {
    "DRAIN_TIMEOUT_SECONDS": str(DRAIN_SECONDS),
    "GUEST_SHUTDOWN_TIMEOUT_SECONDS": "300",
    "RELOCATE_TIMEOUT_SECONDS": "300",
    "POWER_ON_TIMEOUT_SECONDS": "300",
}
# A moment of a maintenance: up to the first `yield` it comes to that, up to the second vCenter is away, then back.
Moment = Callable[[Story, Running], Iterator[None]]
MOMENTS: dict[str, tuple[Plan, Moment]] = {}
TAKES_SECONDS = 12.0  # so long a task runs that is under way when vCenter goes
FLEETING = ("moving", "starting")  # those are begun last


def moment(plan: Plan) -> Callable[[Moment], Moment]:
    def keep(script: Moment) -> Moment:
        MOMENTS[script.__name__.replace("_", "-")] = plan, script
        return script

    return keep


def stuck(story: Story) -> None:
    """Its node drains, and a budget keeps its pods."""
    story.nodes()
    blocked(story, "a")
    story.enter("esx1")
    story.reaches("a", "draining")


def back(story: Story, host: str) -> None:
    """It runs there, and was stopped and started once."""
    story.comes_back("a", host)
    assert story.switched("a") == (1, 1)


@moment(PAIR)
def in_service(story: Story, running: Running) -> Iterator[None]:
    """The host enters while nobody can see it."""
    story.nodes(pods=0)
    yield
    story.enter("esx1")
    time.sleep(1)
    assert (story.state("a"), story.cordoned("a")) == ("", False)
    yield
    back(story, "esx2")


@moment(PAIR)
def draining(story: Story, running: Running) -> Iterator[None]:
    """Its pods may go, and nobody asks them to before vCenter is back: the task may be cancelled by now."""
    stuck(story)
    yield
    unblock(story, "a")
    time.sleep(1)
    assert story.cordoned("a")
    assert len(story.pods("a")) == 2
    yield
    back(story, "esx2")
    story.evicted_once(refused=True)


@moment(PAIR)
def cancelled(story: Story, running: Running) -> Iterator[None]:
    """The task is cancelled while nobody can see it."""
    stuck(story)
    yield
    story.cancel("esx1")
    time.sleep(1)
    assert story.cordoned("a")
    yield
    story.comes_back("a", "esx1", rebooted=False)
    assert story.switched("a") == (0, 0)


@moment(Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, tuned={"a": {"guestShutdownSeconds": -1}}))
def stopping(story: Story, running: Running) -> Iterator[None]:
    """The guest was asked, and goes off while nobody can see it."""
    story.nodes(pods=0)
    story.enter("esx1")
    story.wait("a", lambda: any(one.startswith("GuestShutdown") for one in story.events("a")), "its guest was asked")
    yield
    story.switch("a", "off")
    time.sleep(1)
    assert story.state("a") == "draining", "vCenter has not said that it is off"
    yield
    back(story, "esx2")


@moment(ALONE)
def off(story: Story, running: Running) -> Iterator[None]:
    """The host comes back while nobody can see it; the node says what it waits for."""
    story.nodes()
    story.enter("esx1")
    story.reaches("a", "powered-off")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    yield
    story.exit("esx1")
    kubeconfig = story.site.sandbox.kubeconfig
    explain = ("explain", f"node/{story.full('a')}", "--operator", running.url)
    until(lambda: "cannot be reached" in hostler(kubeconfig, *explain).stdout, "it says so", 60)
    status = hostler(kubeconfig, "maintenance", "status", "--operator", running.url)
    assert "Cannot tell whether an ESXi host is entering maintenance" in status.stderr, status
    assert story.state("a") == "powered-off"
    yield
    back(story, "esx1")


@moment(PAIR)
def moving(story: Story, running: Running) -> Iterator[None]:
    """Its move goes on without us, and is not asked for a second time."""
    story.nodes(pods=0)
    story.tune("a", migrateSeconds=TAKES_SECONDS)
    story.enter("esx1")
    story.wait("a", lambda: ("relocate", "running", "") in story.tasks("a"), "it is being moved")
    yield
    yield
    story.comes_back("a", "esx2")
    assert ends(story, "a") == {("relocate", "success"): 1, ("powerOn", "success"): 1}


@moment(PAIR)
def starting(story: Story, running: Running) -> Iterator[None]:
    """Its start is under way, and fails while nobody can see it: it is tried again."""
    story.nodes(pods=0)
    story.fault("PowerOnVM_Task", "InsufficientResourcesFault", "a", delaySeconds=TAKES_SECONDS)
    story.enter("esx1")
    story.wait("a", lambda: ("powerOn", "running", "") in story.tasks("a"), "it is being started")
    yield
    yield
    story.comes_back("a", "esx2")
    assert ends(story, "a") == {("relocate", "success"): 1, ("powerOn", "error"): 1, ("powerOn", "success"): 1}


@moment(PAIR)
def migrated(story: Story, running: Running) -> Iterator[None]:
    """The node is Ready anew, but whether its VM really runs elsewhere is not known: it stays cordoned."""
    story.nodes()
    story.kubelet("a", comes_up=False)
    story.enter("esx1")
    story.reaches("a", "migrated")
    yield
    time.sleep(0.5)
    story.kubelet("a", comes_up=True)
    story.wait("a", lambda: story.ready("a") and story.rebooted("a"), "its node is alive")
    time.sleep(1)
    assert story.cordoned("a")
    yield
    back(story, "esx2")


ALWAYS = ("draining", "off", "migrated")
AT_REST = tuple(name for name in MOMENTS if name not in FLEETING)
LENGTHS = {"short": 3.0, "minute": 60.0}
PLANS = {
    **{f"{name}-{length}": plan for length in LENGTHS for name, (plan, _) in MOMENTS.items()},
    "expired": ALONE,
    "silent": ALONE,
    "paused": ALONE,
}


@pytest.fixture(scope="module")
def yard(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(sandbox, tmp_path_factory.mktemp("yard"), PLANS) as made:
        yield made


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, yard: Site, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    told = yard.environment(**TOLD | PATIENT)
    with operator(sandbox, tmp_path_factory.mktemp("operator"), home, told=told) as one:
        one.said("leading")
        yield one


@pytest.mark.parametrize("length", ["short", pytest.param("minute", marks=pytest.mark.full)])
def test_vcenter_goes_away_at_every_moment_of_a_maintenance(length: str, yard: Site, running: Running) -> None:
    """One outage, and a worker at each moment: none is touched meanwhile, and all come to their end.

    In every run one per state; in the full one every moment, those with a task under way too.
    """
    at_rest, fleeting = (AT_REST, FLEETING) if length == "minute" else (ALWAYS, ())
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(MOMENTS)))
        scripts: dict[str, Iterator[None]] = {}
        for name in (*at_rest, *fleeting):
            _, script = MOMENTS[name]
            story = stack.enter_context(
                telling(yard, f"{name}-{length}", stack.enter_context(own_namespace(yard.kube)))
            )
            scripts[name] = script(story, running)

        def go_on(*names: str) -> None:
            for done in [pool.submit(next, scripts[name], None) for name in names]:
                done.result()

        go_on(*at_rest)
        go_on(*fleeting)
        known = _losses(running)
        with outage(story, LENGTHS[length]):
            until(lambda: _losses(running) > known, "the operator knows that vCenter is away", 60)
            go_on(*scripts)
        go_on(*scripts)


def _losses(running: Running) -> int:
    return sum("cannot be reached" in str(one.get("event")) for one in running.lines())


def test_the_session_expires(yard: Site, running: Running, namespace: str) -> None:
    with telling(yard, "expired", namespace) as story:
        story.nodes()
        story.enter("esx1")
        story.reaches("a", "powered-off")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        logins = story.site.control("GET", "/state")["logins"]["attempts"]
        story.site.control("POST", "/sessions/expire")
        story.exit("esx1")
        back(story, "esx1")
        assert story.site.control("GET", "/state")["logins"]["attempts"] > logins


def test_pushes_that_never_come_do_not_stop_it(yard: Site, running: Running, namespace: str) -> None:
    """Every POLL_INTERVAL_SECONDS our VMs and their hosts are looked at."""
    with telling(yard, "silent", namespace) as story:
        story.nodes(pods=0)
        story.site.control("POST", "/silence")
        try:
            story.enter("esx1")
            story.reaches("a", "powered-off")
            assert story.switched("a") == (1, 0)
        finally:
            story.site.control("DELETE", "/silence")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        story.exit("esx1")
        back(story, "esx1")


# -- the stop button


@pytest.fixture
def fleet(sandbox: Sandbox) -> Iterator[None]:
    """The CRD; no Fleet afterwards."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


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
        back(story, "esx1")
        story.evicted_once(refused=True)
