"""What happens to workers when ESXi hosts go into maintenance: one function per story, from the first click to the end.

A story knows its hosts and what it expects, not its operator: the same functions run with one operator that lives
through all of them (`test_maintenance.py`) and with one that is killed after every write (`test_maintenance_kill.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from hostler.maintenance.status import LASTS_SECONDS
from tests.real.draining import budget, settled
from tests.real.filming import filmed
from tests.real.maintaining import OURS, POLICY, SEED, Plan, until
from tests.real.story import Story

Script = Callable[[Story], None]
TARGET = f"{OURS}maintenance-target"
PLANS: dict[str, Plan] = {}
SCRIPTS: dict[str, Script] = {}

# What the operator of these stories is told besides the site's own: short enough to wait for, long enough for a slow
# machine where a story does not want to see them pass.
TOLD = {
    "GUEST_SHUTDOWN_TIMEOUT_SECONDS": "8",
    "DRAIN_TIMEOUT_SECONDS": "20",
    "RELOCATE_TIMEOUT_SECONDS": "6",
    "POWER_ON_TIMEOUT_SECONDS": "60",
    "MAX_CONCURRENT_DRAINS": "50",  # they run side by side
}


def story(plan: Plan) -> Callable[[Script], Script]:
    def keep(script: Script) -> Script:
        name = script.__name__.replace("_", "-")
        PLANS[name], SCRIPTS[name] = plan, script
        return script

    return keep


PAIR = Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"})  # a free GPU on the other host
ALONE = Plan({"esx1": 1, "esx2": 0}, {"a": "esx1"})  # none anywhere else
DRS = Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, drs="fullyAutomated")


def ends(story: Story, vm: str) -> Counter[tuple[str, str]]:
    """How often which task of this VM ended how."""
    return Counter((what, how) for what, how, _ in story.tasks(vm))


def blocked(story: Story, vm: str) -> None:
    """A budget over this worker's pods that never lets one go."""
    app = f"app-{vm}"
    story.site.kube.create(
        f"/apis/policy/v1/namespaces/{story.namespace}/poddisruptionbudgets",
        budget(story.namespace, f"keep-{vm}", app, maxUnavailable=0),
    )
    until(settled(story.site.sandbox, story.namespace, f"keep-{vm}"), f"the budget of {app}")


def unblock(story: Story, vm: str) -> None:
    story.site.kube.delete(f"/apis/policy/v1/namespaces/{story.namespace}/poddisruptionbudgets/keep-{vm}")


# -- to its end, without anybody in the way


@story(PAIR)
def free_host(story: Story) -> None:
    """No DRS: drained, shut down, moved to the host with the free GPU, started there."""
    story.nodes()
    story.enter("esx1")
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)
    assert ends(story, "a") == {("relocate", "success"): 1, ("powerOn", "success"): 1}, "and the guest shut itself down"
    story.evicted_once()
    assert len(story.trail.evictions()) == 2
    until(lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.exit("esx1")
    time.sleep(1)
    assert (story.state("a"), story.switched("a")) == ("", (1, 1)), "it lives elsewhere and is left alone"


@story(DRS)
def drs(story: Story) -> None:
    """DRS fully automated: powered on, and vCenter chooses."""
    story.nodes()
    story.enter("esx1")
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)
    assert ends(story, "a") == {("powerOn", "success"): 1}
    story.evicted_once()


@story(Plan({"esx1": 0, "esx2": 0}, {"a": "esx1"}, drs="fullyAutomated", tuned={"a": {"devices": []}}))
def left_to_drs(story: Story) -> None:
    """No device ties it, and no host of it has any: DRS moves it live, and its node is never touched."""
    story.nodes()
    story.tune("a", migrateSeconds=3)
    story.enter("esx1")
    until(lambda: story.host("esx1")["inMaintenance"], "the task completed")
    assert story.vm("a")["host"] == story.full("esx2")
    assert (story.state("a"), story.cordoned("a"), story.switched("a")) == ("", False, (0, 0))
    assert not [one for one in story.events("a") if "Draining" in one]
    assert not story.trail.evictions()


@story(Plan({"esx1": 1, "esx2": 0}, {"a": "esx1"}, tuned={"a": {"tools": "executingScripts"}}))
def tools_are_starting(story: Story) -> None:
    """The guest is asked, and asked again where it cannot be yet: nothing is powered off."""
    story.nodes(pods=0)
    story.fault("ShutdownGuest", "ToolsUnavailable", "a")
    story.enter("esx1")
    story.reaches("a", "powered-off")
    assert ends(story, "a") == {}, "the guest shut itself down"
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.exit("esx1")
    story.comes_back("a", "esx1")


@story(Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, tuned={"a": {"guestShutdownSeconds": -1}}))
def stubborn_guest(story: Story) -> None:
    """The guest never shuts down: powered off hard, once, after the timeout and not before."""
    story.nodes()
    begin = time.monotonic()
    story.enter("esx1")
    story.wait("a", lambda: story.switched("a")[0] == 1, "powered off")
    assert time.monotonic() - begin > 8
    story.comes_back("a", "esx2")
    assert ends(story, "a") == {("powerOff", "success"): 1, ("relocate", "success"): 1, ("powerOn", "success"): 1}


PLAIN = {"tools": "notRunning", "devices": [], "movable": False}


@story(Plan({"esx1": 0, "esx2": 0}, {"a": "esx1"}, tuned={"a": PLAIN}))
def no_tools(story: Story) -> None:
    """Nobody in the guest to ask: powered off at once. No GPU here: what it holds is read only when it is at hand."""
    story.nodes()
    story.enter("esx1")
    story.comes_back("a", "esx2")
    assert ends(story, "a") == {("powerOff", "success"): 1, ("relocate", "success"): 1, ("powerOn", "success"): 1}


@story(ALONE)
def wait_and_return(story: Story) -> None:
    """No free GPU: off until the host comes back; the reason is to be read on the node and on the VM."""
    story.nodes()
    story.enter("esx1")
    story.reaches("a", "powered-off")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.wait("a", lambda: story.condition("a", "MaintenanceInProgress").get("status") == "True", "a condition")
    assert story.annotations("a")[f"{SEED}host"] == story.full("esx1")
    assert story.cordoned("a")
    story.wait("a", lambda: story.full("esx1") in story.mark("a"), "a mark in vCenter that names the host")
    time.sleep(1)
    assert story.switched("a") == (1, 0)
    story.exit("esx1")
    story.comes_back("a", "esx1")
    assert story.switched("a") == (1, 1)
    assert ends(story, "a") == {("powerOn", "success"): 1}
    story.evicted_once()


@story(Plan({"esx1": 2, "esx2": 1}, {"a": "esx1", "b": "esx1"}))
def two_workers_one_gpu(story: Story) -> None:
    """Two workers leave a host, one free GPU elsewhere: one moves, one waits, and no power-on was tried in vain."""
    story.nodes()
    story.enter("esx1")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.wait("a", lambda: sorted(story.state(vm) for vm in "ab") == ["", "powered-off"], "one is back, one waits")
    moved, waiting = ("a", "b") if story.state("b") else ("b", "a")
    story.comes_back(moved, "esx2")
    story.exit("esx1")
    story.comes_back(waiting, "esx1")
    for vm in "ab":
        assert story.switched(vm) == (1, 1)
        assert not [one for one in story.tasks(vm) if one[1] != "success"]
    story.evicted_once()


@story(Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, tuned={"a": {"devices": [{"kind": "fixed", "id": "0000:10:00.0"}]}}))
def fixed_device(story: Story) -> None:
    """A device by its address exists on one host only: the free GPU elsewhere is of no use, so it waits."""
    story.nodes(pods=0)
    story.enter("esx1")
    story.reaches("a", "powered-off")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.exit("esx1")
    story.comes_back("a", "esx1")
    assert story.switched("a") == (1, 1)
    assert ends(story, "a") == {("powerOn", "success"): 1}


VGPU = {"devices": [{"kind": "vgpu", "profile": "grid_a100-40c"}]}


@story(
    Plan(
        {"esx1": 1, "esx2": 1, "esx3": 1, "esx4": 1},
        {"a": "esx1"},
        tuned={"a": VGPU},
        others={"x": {"host": "esx3", **VGPU}, "y": {"host": "esx4"}},
        profiles={"esx1": "grid_a100-40c", "esx2": "grid_a100-8c", "esx3": "grid_a100-40c", "esx4": "grid_a100-40c"},
    )
)
def vgpu(story: Story) -> None:
    """Where its profile is offered; whether one is free there only vCenter knows, and if it says no, the next host."""
    story.nodes(pods=0)
    story.enter("esx1")
    story.comes_back("a", "esx4")
    assert story.switched("a") == (1, 1)
    done = ends(story, "a")
    assert done.pop(("powerOn", "error")) >= 1, "an operator that is killed forgets that it was refused there"
    assert done == {("relocate", "success"): 2, ("powerOn", "success"): 1}


# -- drains that do not end


@story(ALONE)
def budget_for_ever(story: Story) -> None:
    """A budget never lets a pod go: the deadline passes, the VM is stopped, its volume is let go by the taint."""
    story.nodes(pods=0)
    volume = story.volume("a", "disk")
    story.deploy("a", 1, volumes=[{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}])
    story.wait("a", lambda: story.attached("a") == [volume], "its volume is attached")
    blocked(story, "a")
    with filmed(story, "a") as film:
        story.enter("esx1")
        story.reaches("a", "draining")
        story.wait(
            "a", lambda: f"{story.namespace}/keep-a" in story.condition("a", "DrainInProgress").get("message", ""),
            "the budget is named",
        )  # fmt: skip
        assert story.switched("a") == (0, 0)
        story.reaches("a", "powered-off")
        story.wait("a", lambda: story.attached("a") == [], "its volume is released")
        story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
        story.exit("esx1")
        story.comes_back("a", "esx1")
    story.evicted_once(refused=True)
    tainted = [frame for frame in film.frames if frame.tainted]
    assert tainted, "the taint was there"
    assert all(frame.power == "poweredOff" for frame in tainted[:1]), "only after vCenter confirmed that it is off"
    assert not [frame for frame in film.frames if frame.tainted and not frame.cordoned], "gone before the uncordon"
    assert story.switched("a") == (1, 1)


@story(PAIR)
def cancel_while_draining(story: Story) -> None:
    """The task is cancelled while a budget blocks: everything is as before, and the VM never stopped."""
    story.nodes()
    blocked(story, "a")
    story.enter("esx1")
    story.reaches("a", "draining")
    story.wait("a", lambda: story.trail.evictions(), "it has begun to drain")
    story.cancel("esx1")
    story.comes_back("a", "esx1", rebooted=False)
    assert story.switched("a") == (0, 0)
    assert ends(story, "a") == {}
    time.sleep(1)
    assert not story.leftovers("a")


@story(Plan({"esx1": 1, "esx2": 0}, {"a": "esx1"}, others={"db": {"host": "esx1", "movable": False}}))
def cancel_after_power_off(story: Story) -> None:
    """Somebody else's VM keeps the task hanging, and is named; when the task is cancelled, ours starts again."""
    story.nodes()
    story.enter("esx1")
    story.reaches("a", "powered-off")
    story.wait("a", lambda: any(story.full("db") in event for event in story.events("a")), "the other VM is named")
    assert story.host("esx1")["entering"]
    story.cancel("esx1")
    story.comes_back("a", "esx1")
    assert story.switched("a") == (1, 1)
    assert story.switched("db") == (0, 0), "it is not ours"
    story.evicted_once()


# -- vCenter does not do as it is told


@story(PAIR)
def power_on_fails_three_times(story: Story) -> None:
    """Tried again with pauses; the fourth works."""
    story.nodes()
    story.fault("PowerOnVM_Task", "InsufficientResourcesFault", "a", times=3)
    story.enter("esx1")
    story.comes_back("a", "esx2")
    assert ends(story, "a")["powerOn", "error"] == 3
    assert ends(story, "a")["powerOn", "success"] == 1
    assert ends(story, "a")["relocate", "success"] == 1
    assert story.switched("a") == (1, 1)


@story(PAIR)
def relocate_takes_too_long(story: Story) -> None:
    """A move that outlives its timeout is cancelled; when moves work again, or the host is back, so is the node."""
    story.nodes()
    story.tune("a", migrateSeconds=900)
    story.enter("esx1")
    story.wait("a", lambda: ("relocate", "error", "RequestCanceled") in story.tasks("a"), "the move is cancelled")
    assert story.cordoned("a")
    story.tune("a")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.exit("esx1")
    story.wait("a", lambda: story.vm("a")["power"] == "poweredOn", "it runs")
    story.comes_back("a", story.vm("a")["host"].removeprefix(f"{story.prefix}-"))
    assert story.switched("a") == (1, 1)


@story(DRS)
def drs_is_faster(story: Story) -> None:
    """DRS starts the VM a moment before we do: "already on" on a healthy host is what was wanted."""
    story.nodes()
    story.site.control("POST", f"/vms/{story.full('a')}/drs", {"when": "nextPowerOn"})
    story.enter("esx1")
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)
    tried = sorted(one for one in story.tasks("a") if one[0] == "powerOn")
    assert tried == [("powerOn", "error", "InvalidPowerState"), ("powerOn", "success", "")], "ours, and that of DRS"


@story(Plan({"esx1": 2, "esx2": 2}, {"a": "esx1", "b": "esx1"}))
def one_vm_may_not_be_read(story: Story) -> None:
    """NoPermission on one VM: its node is frozen and says why; the other goes on. When it may be read, so does it."""
    story.nodes()
    story.fault("*", "NoPermission", "a", times=-1)
    story.enter("esx1")
    story.comes_back("b", "esx2")
    assert story.switched("a") == (0, 0)
    story.fault_ends("a")
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)


# -- people and other machines act too


@story(Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"}, tuned={"a": {"guestShutdownSeconds": -1}}))
def powered_off_by_hand(story: Story) -> None:
    """Somebody is faster than the timeout of the guest's shutdown: "already off" is what was wanted."""
    story.nodes()
    story.enter("esx1")
    story.reaches("a", "draining")
    story.wait("a", lambda: not story.pods("a"), "drained")
    story.by_hand("a", "off")
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)
    assert ends(story, "a")["powerOff", "success"] == 1, "theirs"


OCCUPIED = Plan(
    {"esx1": 1, "esx2": 1},
    {"a": "esx1"},
    others={"x": {"host": "esx2", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}]}]}},
)


@story(OCCUPIED)
def moved_by_hand(story: Story) -> None:
    """Waiting for its host, the VM is moved elsewhere by somebody; once its GPU is free there, it is started there."""
    story.nodes()
    story.enter("esx1")
    story.reaches("a", "powered-off")
    story.move("a", "esx2")
    time.sleep(1)
    assert story.vm("a")["power"] == "poweredOff", "the GPU there is somebody else's"
    story.switch("x", "off")
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)


@story(OCCUPIED)
def powered_on_by_hand(story: Story) -> None:
    """vCenter evacuates the VM, which is off, and somebody starts it: that is seen, and the node goes into service."""
    story.nodes()
    story.enter("esx1", evacuatePoweredOffVms=True)
    story.reaches("a", "powered-off")
    story.wait("a", lambda: story.vm("a")["host"] == story.full("esx2"), "vCenter has moved it")
    story.switch("x", "off")
    story.by_hand("a", "on")
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)


@story(ALONE)
def node_deleted_while_off(story: Story) -> None:
    """The Node object goes while its VM is off: the VM is still started when its host is back."""
    story.nodes(pods=0)
    story.enter("esx1")
    story.reaches("a", "powered-off")
    story.wait("a", lambda: story.mark("a"), "marked in vCenter")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.site.kube.delete(f"/api/v1/nodes/{story.full('a')}")
    time.sleep(1)
    story.exit("esx1")
    until(lambda: story.vm("a")["power"] == "poweredOn", "the VM is started")
    story.node("a")  # its kubelet registers it anew
    until(lambda: story.ready("a"), "Ready")
    until(lambda: not story.mark("a") and not story.leftovers("a"), "nothing is left of it")
    assert story.switched("a") == (1, 1)


@story(PAIR)
def cordoned_before(story: Story) -> None:
    """Somebody had cordoned the node before: that cordon is not ours to undo."""
    story.nodes()
    story.site.kube.patch(f"/api/v1/nodes/{story.full('a')}", {"spec": {"unschedulable": True}})
    story.enter("esx1")
    story.comes_back("a", "esx2", cordoned=True)
    assert story.switched("a") == (1, 1)


@story(Plan({"esx1": 1, "esx2": 1, "esx3": 1}, {"a": "esx1"}))
def second_host_enters(story: Story) -> None:
    """The host that was to take the VM enters maintenance too: it is looked at again before the VM moves."""
    story.nodes()
    blocked(story, "a")
    story.enter("esx1")
    story.wait("a", lambda: story.annotations("a").get(TARGET) == story.full("esx2"), "a place is reserved")
    story.enter("esx2")
    unblock(story, "a")
    story.comes_back("a", "esx3")
    assert story.switched("a") == (1, 1)
    assert not [one for one in story.tasks("a") if one[1] != "success"]


@story(ALONE)
def repeated_enter_tasks(story: Story) -> None:
    """vLCM asks again and again: it is one maintenance."""
    story.nodes()
    blocked(story, "a")
    for _ in range(3):
        story.enter("esx1")
        time.sleep(0.5)
    unblock(story, "a")
    story.reaches("a", "powered-off")
    story.wait("a", lambda: story.host("esx1")["inMaintenance"], "the tasks completed")
    story.exit("esx1")
    story.comes_back("a", "esx1")
    assert story.switched("a") == (1, 1)
    story.evicted_once(refused=True)


# -- what the owner of a node wants


@story(Plan({"esx1": 4, "esx2": 4}, {"move": "esx1", "wait": "esx1", "stay": "esx1", "not": "esx1"}))
def policies(story: Story) -> None:
    """One host, four wishes. The worker to be ignored keeps the task hanging, which is its owner's wish."""
    wishes = {"move": "migrate", "wait": "wait", "stay": "stay-off", "not": "ignore"}
    for vm, wish in wishes.items():
        story.nodes(vm, pods=0, annotations={POLICY: wish})
    story.enter("esx1")
    story.comes_back("move", "esx2")
    story.reaches("wait", "powered-off")
    story.reaches("stay", "powered-off")
    assert story.host("esx1")["entering"]
    assert (story.state("not"), story.cordoned("not"), story.switched("not")) == ("", False, (0, 0))
    story.cancel("esx1")
    story.comes_back("wait", "esx1")
    time.sleep(1)
    assert story.vm("stay")["power"] == "poweredOff", "until somebody starts it"
    assert story.cordoned("stay")
    story.switch("stay", "on")
    story.comes_back("stay", "esx1")


# -- a host that reboots in maintenance


@story(ALONE)
def reboot_in_maintenance(story: Story) -> None:
    """vCenter loses the host while it is in maintenance: a normal wait, and no Warning on the parked worker."""
    story.nodes(pods=0)
    story.enter("esx1")
    story.reaches("a", "powered-off")
    until(lambda: story.host("esx1")["inMaintenance"], "the task completed")
    story.site.control("POST", f"/hosts/{story.full('esx1')}/disconnect")
    time.sleep(LASTS_SECONDS + 2)
    story.site.control("POST", f"/hosts/{story.full('esx1')}/reconnect")
    story.exit("esx1")
    story.comes_back("a", "esx1")
    assert not [one for one in story.events("a") if one.startswith("Frozen")]


# -- a hold that nobody ends


@story(PAIR)
def stray_hold(story: Story) -> None:
    """A hold of maintenance without a state: the node is well, so the hold goes, and the cordon with it."""
    hold = '[{"holder":"maintenance","why":"by hand","since":"","cordonedBefore":false}]'
    story.nodes(pods=0, unschedulable=True, annotations={f"{OURS}holds": hold})
    story.comes_back("a", "esx1", rebooted=False)
    assert story.switched("a") == (0, 0)
    if not story.operator_is_killed:  # the write that releases comes first: who is killed after it tells of it no more
        until(lambda: any(one.startswith("HoldReleased: ") for one in story.events("a")), "an Event says so")


# -- taken over from the seed's controller


def seed_state(story: Story, state: str, host: str, **more: str) -> dict[str, str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        f"{SEED}state": state,
        f"{SEED}host": story.full(host),
        f"{SEED}transition-time": now,
        **{f"{SEED}{key}": value for key, value in more.items()},
    }


@story(PAIR)
def seed_was_draining(story: Story) -> None:
    """The seed's controller had cordoned the node and begun; its cordon counts as ours."""
    story.enter("esx1")
    story.nodes(pods=0, unschedulable=True, annotations=seed_state(story, "draining", "esx1"))
    story.comes_back("a", "esx2")
    assert story.switched("a") == (1, 1)


@story(Plan({"esx1": 1, "esx2": 0}, {"a": "esx1"}, maintenance=("esx1",), tuned={"a": {"power": "off"}}))
def seed_had_powered_off(story: Story) -> None:
    """The VM is off and the host in maintenance: when the host is back, so is the node."""
    story.node("a", unschedulable=True, annotations=seed_state(story, "powered-off", "esx1"))
    story.boots["a"] = story.look("a")["status"]["nodeInfo"]["bootID"]
    time.sleep(2)
    assert (story.state("a"), story.switched("a")) == ("powered-off", (0, 0))
    story.exit("esx1")
    story.comes_back("a", "esx1")
    assert story.switched("a") == (0, 1)


@story(Plan({"esx1": 1, "esx2": 1}, {"a": "esx2"}, maintenance=("esx1",)))
def seed_had_migrated(story: Story) -> None:
    """The VM runs elsewhere and its node is alive: the cordon is taken away, and nothing else happens."""
    seed = seed_state(story, "migrated", "esx1", **{"migrated-to-host": story.full("esx2")})
    story.nodes(pods=0, unschedulable=True, annotations=seed)
    story.comes_back("a", "esx2", rebooted=False)
    assert story.switched("a") == (0, 0)
