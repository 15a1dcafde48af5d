"""Any world of one worker: every state, and any fact as it may be, unknown and stale ones among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from hostler.host.facts import Fact, Known, Unknown
from hostler.host.holds import HOLDS
from hostler.host.maintenance import OUT_OF_SERVICE
from hostler.kube.records import Taint
from hostler.maintenance.model import (
    BOOT_BEFORE,
    HOST,
    POLICY,
    POWER_ON_SINCE,
    RELOCATE_SINCE,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    TARGET,
    Attempts,
    Mark,
    Marked,
    Site,
    Unanswered,
    World,
    stamp_of,
)
from hostler.maintenance.placement import MOVE, STOP
from hostler.vsphere.records import NOT_SAID, POWER_ON, RELOCATE, Cluster, Task, Unread
from tests.unit.maintenance_world import DYNAMIC, NOW, VC, Play, fixed

ANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
QUICK = settings(ANY, derandomize=True)  # the same examples each time; the search for others is the full run's
OURS = '[{"holder":"maintenance","why":"w","since":"","cordonedBefore":false}]'
BYTES = 64  # choices of a world, and some to spare
ASKED = (stamp_of(NOW - 1), stamp_of(NOW - 300))


class Facts:
    """Facts as they should be, but for a few: where everything is odd at once, nothing is ever about to be done.

    Each choice is one byte of a single draw: drawn one by one, they take ten times as long as what is tried on them.
    """

    FACTS = 23  # how often it is called for a world

    def __init__(self, choices: bytes) -> None:
        self._choices = iter(choices)
        self._odd = {next(self._choices) % (self.FACTS * 3) for _ in range(2)}  # none, one or two of them
        self._number = -1

    def __call__(self, well: Any, *odd: Any) -> Any:
        """The next fact."""
        self._number += 1
        return self.any(*odd) if self._number in self._odd else well

    def any(self, *values: Any) -> Any:
        """None of these is odder than the others."""
        return values[next(self._choices) % len(values)]

    def mostly(self, well: Any, *others: Any) -> Any:
        """Whatever would keep most worlds from ever coming to an act."""
        return self.any(*[well] * 5 * len(others), *others)

    def all_asked(self) -> None:
        """Every fact has had its chance to be odd."""
        assert self._number == self.FACTS - 1, self._number


def any_world() -> st.SearchStrategy[World]:
    """One worker in any state, with any fact as it may be, unknown and stale ones among them."""
    return st.binary(min_size=BYTES, max_size=BYTES).map(lambda choices: some_world(Facts(choices)))


def some_world(fact: Facts) -> World:
    state = fact.any("draining", "draining", "draining", "powered-off", "powered-off", "migrated", "")
    power = fact.any("poweredOff", "poweredOn") if state == "powered-off" else "poweredOn"
    play = Play()
    play.cluster(fact.any("off", "fullyAutomated", "partiallyAutomated"))
    if fact(False, True):
        play.put(Cluster, "domain-1", drs_enabled=NOT_SAID)
    for host in ("esx1", "esx2"):
        play.host(
            host,
            connection=fact("connected", "disconnected", "notResponding", ""),
            in_maintenance=fact(False, True, NOT_SAID),
            unread=fact((), (Unread("runtime.inMaintenanceMode", "no"),)),
        )
    entering = fact.any(*[("esx1",)] * 4, ("esx2",), ("esx1", "esx2"), (), ())
    for host in entering:
        play.enter(host)
    annotations = {
        STATE: fact(state, "odd"),
        HOST: fact("esx1", "esx2", "", "gone"),
        SINCE: fact(fact.any(stamp_of(NOW - 500), stamp_of(NOW - 5)), "", "soon"),
        SHUTDOWN_SINCE: fact(fact.any("", *ASKED) if state == "draining" else fact.any("", "", *ASKED), "soon"),
        POWER_ON_SINCE: fact.any("", ASKED[0]) if state == "powered-off" else "",
        RELOCATE_SINCE: fact.any("", *ASKED, stamp_of(NOW - 700)) if state == "powered-off" else "",
        BOOT_BEFORE: fact.any("boot-0-a", "boot-0-a", "boot-x", ""),
        POLICY: fact("", "migrate", "wait", "stay-off", "ignore", "odd"),
        TARGET: fact("esx2", "", "gone"),
        HOLDS: fact(OURS, "", "broken"),
    }
    play.worker(
        "a",
        fact.mostly(*(("esx2", "esx1") if state == "migrated" else ("esx1", "esx2"))),
        devices=fact((DYNAMIC,), (fixed(),), (), Unknown("not read")),
        pods=fact.any(0, 2),
        power=fact(power, "poweredOff", "suspended", ""),
        connection=fact("connected", "inaccessible", "orphaned"),
        tools=fact.any("guestToolsRunning", "guestToolsNotRunning", "guestToolsExecutingScripts", ""),
        unread=fact((), (Unread("runtime.powerState", "no"),)),
        annotations={key: value for key, value in annotations.items() if value},
    )
    node = play.nodes["a"]
    taints = (Taint(key=OUT_OF_SERVICE, effect="NoExecute"),) if fact.mostly(False, True) else ()
    spec = msgspec.structs.replace(node.spec, unschedulable=bool(state), taints=taints)
    play.nodes["a"] = msgspec.structs.replace(node, spec=spec)
    play.report("a", fact.any("True", "True", "Unknown"))
    what = {"draining": Marked.DRAINING, "powered-off": Marked.STOPPED}.get(state) if fact.any(False, True) else None
    what = Marked.STOPPED if annotations[SHUTDOWN_SINCE] and fact.any(False, True) else what
    if what is not None:
        play.marks["a"] = Mark("a", "esx1", "", fact.any(what, what, Marked.ASKED))
    task = fact.mostly("", POWER_ON, RELOCATE)
    if task:
        play.put(Task, "task-a", kind=task, state="running", entity="vm-a")
    seen, kept = fact.mostly(NOW, NOW - 30, NOW - 61, NOW - 500), Unknown("no answer")
    lacks = fact((), None, kept, (MOVE,), STOP, Unanswered("no answer", NOW - 59), Unanswered("no answer", NOW - 60))
    play.rights["vm-a"] = Known(lacks, seen) if isinstance(lacks, tuple) else lacks
    play.now = NOW
    world = play.world()
    since = annotations[SHUTDOWN_SINCE]
    remembered = replace(
        world.subjects[0].remembered,
        alive=fact.any(False, True),
        reported=fact.any(False, True),
        stop_noted=fact.any("", since, *ASKED),
        shutdown_asked=fact.any("", since, *ASKED),
        shutdown_at=fact.any(NOW - 1, NOW - 300),
        shutdown_refused=fact.any("", "", "no Tools"),
        running_since=fact.any(NOW, NOW - 300),
        mark=fact.mostly(Attempts(3, NOW + 60, "no attributes here"), Attempts()),
    )
    known: Site = play.inventory
    site: Fact[Site] = fact(Known(known, NOW), Known(known, NOW - 1e4), Unknown("away"))
    subject = replace(world.subjects[0], remembered=remembered)
    pods = fact(None, Unknown("not read"))
    if subject.drain is not None and pods is not None:
        subject = replace(subject, drain=replace(subject.drain, pods=pods))
    subject = replace(subject, vm=fact(subject.vm, Unknown("two VMs have its UUID")))
    unread = fact("", "nodes are still being read")
    fact.all_asked()
    return replace(
        world,
        subjects=(subject,),
        sites={VC: site},
        unknown=unread,
        out_since=dict.fromkeys(world.out_since, fact.any(NOW - 60, NOW - 60, NOW - 1)),
        resumed=fact.mostly(0.0, NOW - 1, NOW),
    )
