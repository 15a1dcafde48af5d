"""VMs that Hostler stopped come back where vCenter can run them, whatever Hostler's own picture of the hosts says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hostler.sandbox import Sandbox
from tests.real.maintaining import GPU, OURS, SEED, Plan, Site, site
from tests.real.maintenance_stories import TOLD, ends
from tests.real.operating import Running, hostler, operator
from tests.real.story import Story, telling
from tests.real.together import Told, own_namespace, selected, side_by_side

Script = Callable[[Story, Running], None]
# A VM of somebody else with a GPU: how it runs can be read, what it is configured with cannot.
SECRETIVE = {"devices": [{"kind": "dynamic", "allowed": [GPU]}], "movable": False}
FIXED = {"devices": [{"kind": "fixed", "id": "0000:10:00.0"}]}
PLANS = {
    "wide": Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, tuned={"a": {"cpus": 48}}),
    "neighbour": Plan({"esx1": 2, "esx2": 0}, {"a": "esx1"}, others={"x": {"host": "esx1", **SECRETIVE}}),
    "renamed": Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, tuned={"a": FIXED}),
    "drs": Plan(
        {"esx1": 1, "esx2": 2}, {"a": "esx1"}, drs="fullyAutomated", others={"x": {"host": "esx2", **SECRETIVE}}
    ),
    "datastore": Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}),
    "standalone": Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, standalone=True),
}


def shown(story: Story, running: Running) -> str:
    """What `hostler maintenance status` says of a story's worker."""
    told = hostler(story.site.sandbox.kubeconfig, "maintenance", "status", "--operator", running.url).stdout
    return "\n".join(line for line in told.splitlines() if story.full("a") in line)


def wide(story: Story, running: Running) -> None:
    """48 vCPUs, and hosts with 32 cores: ESXi compares with the 64 logical CPUs, so it runs on the other host."""
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)
    assert ends(story, "a") == {("relocate", "success"): 1, ("powerOn", "success"): 1}


def neighbour(story: Story, running: Running) -> None:
    """What another VM at home holds cannot be read; the task is cancelled, and it is started there all the same."""
    story.reaches("a", "powered-off")
    story.cancel("esx1")
    story.comes_back("a", "esx1")
    assert story.switched("a") == (1, 1)


def renamed(story: Story, running: Running) -> None:
    """Tied to its host by a device's address; the host has another name when it comes out of maintenance."""
    story.reaches("a", "powered-off")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    said = story.annotations("a")
    home = story.host("esx1")["id"]
    assert (said[f"{SEED}host"], said[f"{OURS}maintenance-origin"].split("/")[1]) == (story.full("esx1"), home)
    new = {"name": story.full("esx1-renamed")}
    story.site.control("POST", f"/hosts/{home}/rename", new)
    story.exit("esx1-renamed")
    story.comes_back("a", "esx1-renamed")
    assert story.switched("a") == (1, 1)


def drs(story: Story, running: Running) -> None:
    """What another VM on the only other host holds cannot be read: DRS knows, so vCenter is asked, and starts it."""
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)
    assert ends(story, "a") == {("powerOn", "success"): 1}


def datastore(story: Story, running: Running) -> None:
    """vCenter says that it could not be started again: neither emptied nor stopped, until that is mended."""
    story.wait("a", lambda: "datastore" in shown(story, running), "the status names the datastore")
    plan = hostler(story.site.sandbox.kubeconfig, "maintenance", "plan", story.full("esx1"), "--operator", running.url)
    assert "is inaccessible on" in " ".join(plan.stdout.split()), plan.stdout
    assert (story.switched("a"), story.cordoned("a")) == ((0, 0), False)
    access(story.site, story.full("esx1"), accessible=True)
    story.comes_back("a", "esx2")


def standalone(story: Story, running: Running) -> None:
    """Hosts that are in no cluster: it moves to the other one, into that host's own resource pool."""
    story.comes_back("a", "esx2")
    assert ends(story, "a") == {("relocate", "success"): 1, ("powerOn", "success"): 1}


STORIES = (wide, neighbour, renamed, drs, datastore, standalone)
SCRIPTS: dict[str, Script] = {one.__name__: one for one in STORIES}


def access(made: Site, host: str, *, accessible: bool) -> None:
    made.control("POST", "/datastores/datastore1/access", {"host": host, "accessible": accessible})


@pytest.fixture(scope="module")
def yard(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(sandbox, tmp_path_factory.mktemp("returns"), PLANS) as made:
        for plan in ("neighbour", "drs"):
            hidden = {"method": "config", "fault": "NoPermission", "vm": f"{plan}-{made.mark}-x", "times": -1}
            made.control("POST", "/faults", hidden)
        access(made, f"datastore-{made.mark}-esx1", accessible=False)
        yield made


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, yard: Site, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("operator")
    with operator(sandbox, folder, home, told=yard.environment(**TOLD)) as one:
        one.said("leading")
        yield one


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, yard: Site, running: Running) -> Iterator[Told]:
    def tell_one(name: str) -> None:
        with own_namespace(yard.kube) as namespace, telling(yard, name, namespace) as story:
            story.nodes(pods=0)
            story.enter("esx1")
            SCRIPTS[name](story, running)

    with side_by_side(selected(request), tell_one, len(SCRIPTS)) as futures:
        yield futures


@pytest.mark.parametrize("name", SCRIPTS)
def test_return(name: str, told: Told, running: Running) -> None:
    told[name].result()
    assert running.process.poll() is None
