"""What this process remembers between two passes. All of it may be lost at a restart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from hostler.drain.model import Memory as Evicted
from hostler.host.facts import Fact, Known
from hostler.instant import Instant
from hostler.maintenance.hosts import judge_host
from hostler.maintenance.model import (
    SHUTDOWN_SINCE,
    Attempts,
    Busy,
    Lacks,
    Object,
    Pending,
    Remembered,
    Site,
    Subject,
    Unanswered,
    ready_stamp,
)
from hostler.vsphere.outcomes import Kind

RENEWALS = 2  # of a lease: a kubelet that lives for a whole period has also said whether it is Ready
BACKOFF_FIRST, BACKOFF_MOST = 1.0, 60.0
BACKOFF_RETURN = 600.0  # a return that was refused so long is tried this often, and at once when something changes


class Memory:
    """By subject: the node's name, or vm/NAME."""

    def __init__(self) -> None:
        self._of: dict[str, Remembered] = defaultdict(Remembered)
        self.evicted: dict[str, Evicted] = defaultdict(Evicted)
        self.busy: dict[str, Busy] = {}
        self.rest: dict[str, Instant] = {}  # after an error: not before
        self.out_since: dict[tuple[str, str], Instant] = {}
        self.unmarkable: dict[str, str] = {}  # by vCenter: why marks go into the ConfigMap
        self.rights: dict[Object, Lacks] = {}  # what our user lacks on VMs and resource pools
        # Since its VM runs where it is: the last renewal of its node's lease and how many were seen; the first Ready.
        self.pulses: dict[str, tuple[str, int]] = {}
        self.reports: dict[str, str] = {}
        self._runs_at: dict[str, str] = {}

    def of(self, name: str) -> Remembered:
        return self._of[name]

    def note(self, name: str, **changes: Any) -> None:
        self._of[name] = replace(self._of[name], **changes)

    def saw(self, subject: Subject, site: Fact[Site] | None, now: Instant) -> Remembered:
        """What this look at a subject adds to what is remembered of it."""
        name = subject.name
        boot = subject.node.status.node_info.boot_id if subject.node is not None else ""
        if self.of(name).boot[0] != boot:
            self.note(name, boot=(boot, now))
        if isinstance(subject.vm, Known) and isinstance(site, Known):
            vm = subject.vm.value
            ready = ready_stamp(subject.node) if subject.node is not None else ""
            self.runs(name, f"{vm.host} {subject.state}" if vm.power == "poweredOn" else "", ready, now)
            entering, since = judge_host(site.value, site.value.host(vm.host)).leaving, self.of(name).entering_since
            if entering != (since is not None):
                self.note(name, entering_since=site.at if entering else None)
        return self.of(name)

    def unanswered(self, key: Object, why: str, now: Instant) -> None:
        """vCenter would not say what our user may do there. What was lacking when it last said so is still lacking."""
        before = self.rights.get(key)
        if isinstance(before, Known) and before.value:
            return
        self.rights[key] = Unanswered(why, before.since if isinstance(before, Unanswered) else now)

    def why_unanswered(self, vcenter: str) -> str:
        found = (fact for (name, _), fact in self.rights.items() if name == vcenter)
        return next((fact.why for fact in found if isinstance(fact, Unanswered)), "")

    def renewed(self, node: str, at: str) -> int:
        """The node's lease was last renewed at this time by its kubelet's clock; how often that changed so far."""
        last, times = self.pulses.get(node, (at, 0))
        times += last != at and bool(last) and bool(at)
        self.pulses[node] = (at, times)
        if times >= RENEWALS:
            self.note(node, alive=True)
        return times

    def runs(self, name: str, at: str, ready: str, now: Instant) -> None:
        """What this look shows of a VM and of its node's Ready. `at` is where it runs and what for, "" while it is off.

        What was seen of its kubelet ends when the VM goes off, and also when it runs elsewhere or in another state: a
        machine that died and was started again between two looks was never seen off.
        """
        on, known = bool(at), self._of[name]
        same = on and self._runs_at.get(name, at) == at
        self._runs_at[name] = at
        if not same:
            self.pulses.pop(name, None)
            self.reports.pop(name, None)
        self.note(
            name,
            alive=same and known.alive,
            reported=on and (self.reports.setdefault(name, ready) != ready or (same and known.reported)),
            running_since=(known.running_since if known.running_since is not None else now) if on else None,
        )

    def stop_noted(self, subject: Subject, since: str) -> None:
        """We wrote down a stop. Over an earlier note that was not ours, another may have asked the guest before us."""
        before = subject.annotations.get(SHUTDOWN_SINCE, "")
        self.note(subject.name, stop_noted=since if before in ("", self.of(subject.name).stop_noted) else "")

    def led(self) -> None:
        """We lead (again): another replica may have led meanwhile. What was seen counts no more.

        What was asked, refused or found stays: that is as true as before.
        """
        for name, known in self._of.items():
            self._of[name] = replace(
                known, stop_noted="", alive=False, reported=False, running_since=None, started=False, marked=None,
                entering_since=None,
            )  # fmt: skip
        for book in (self.out_since, self.pulses, self.reports, self._runs_at):
            book.clear()

    def keep_only(self, names: set[str]) -> None:
        """Forget whoever is no subject any more."""
        for book in (self._of, self.evicted, self.rest, self.pulses, self.reports, self._runs_at):
            for name in [known for known in book if known not in names and known not in self.busy]:
                del book[name]

    def failed(
        self,
        name: str,
        what: str,
        why: str,
        now: Instant,
        *,
        kind: Kind | None = None,
        host: str = "",
        returns: bool = False,
    ) -> Attempts:
        """`what` is power, relocate or mark: tried again after 1, 2, 4 ... 60 s; a return then every 10 minutes."""
        before: Attempts = getattr(self._of[name], what)
        doubled = BACKOFF_FIRST * 2.0 ** min(before.number, 10)
        delay = BACKOFF_RETURN if returns and doubled >= 2 * BACKOFF_MOST else min(doubled, BACKOFF_MOST)
        hosts = (*(tried for tried in before.hosts if tried != host), host) if host else before.hosts
        after = Attempts(before.number + 1, now + delay, why, kind, hosts, now)
        self.note(name, **{what: after})
        return after

    def pending(self, name: str, task: str, what: str, now: Instant, host: str = "") -> None:
        self.note(name, pending=Pending(task, what, now, host) if task else None)
