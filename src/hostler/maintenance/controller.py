"""Observe, decide, act: one key, one pass over everything, woken by vCenter's push and by nodes and pods.

A pass only looks and decides; what it decides runs beside it, one action per node at a time, so that no slow answer
delays the detection of a task or another node.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AbstractContextManager
from typing import Any

import structlog

from hostler.drain.model import State as DrainState
from hostler.drain.observe import volumes_of_staying
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable, WriteRefused
from hostler.kube.kinds import LEASE, NAMESPACE
from hostler.kube.queue import Queue
from hostler.kube.records import Lease, Node, Object
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import Decision, Pass, machine_of
from hostler.maintenance.executor import ActionExecutor, Changed
from hostler.maintenance.model import STATE, Busy, InDoubt, Policy, Subject, World, ready_condition, ready_stamp
from hostler.maintenance.observe import Observer, Privileges
from hostler.maintenance.status import EventReporter, patch_conditions
from hostler.vsphere.vcenter import VCenter

log = structlog.get_logger("hostler.maintenance")

KEY = "maintenance"
LOOK_AGAIN = 30.0  # a cache grows old without an event to say so
NOT_READY = 0.5
PULSE_SECONDS = 2.0
FOLLOW_SECONDS = 10.0  # so often all managed VMs are looked through for new ones
REST_FIRST, REST_MOST = 0.2, 30.0
LEASES_IN = "kube-node-lease"


class MaintenanceController:
    """Reconciles the one key. `look` serves whoever explains, on any replica."""

    def __init__(
        self,
        client: Client,
        observer: Observer,
        executor: ActionExecutor,
        policy: Policy,
        *,
        acting: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        self._client = client
        self.observer = observer
        self._executor = executor
        self._memory, self._metrics = observer.memory, executor.metrics
        self.policy = policy
        self._acting = acting
        self.clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: Counter[str] = Counter()
        self._pulsing: set[str] = set()
        self._followed: dict[str, frozenset[str]] = {}  # by vCenter: VMs whose devices are read wherever they are
        self._refreshed: dict[str, Instant] = {}  # by vCenter
        self._follow_looked: dict[str, Instant] = {}  # by vCenter: when all our VMs were last looked through
        self._warned: set[str] = set()
        self._reporter = EventReporter(executor.recorder, executor.metrics)
        self._privileges = Privileges(observer, policy, executor.recorder, self._spawn, self.wake)
        self._forgetting = False
        self._named = False  # the cluster
        self._name_after = 0.0  # when it is asked for again, where we may not read it
        self.queue: Queue | None = None
        self.subjects: frozenset[str] = frozenset()  # of the last pass
        self._vms: frozenset[tuple[str, str]] = frozenset()
        self.seconds = 0.0  # how long the last pass took

    def is_subject(self, node: str) -> bool:
        return node in self.subjects

    def at_hand(self, vcenter: str, vm: str) -> bool:
        """This VM was part of the last pass."""
        return (vcenter, vm) in self._vms

    # -- looking

    def unanswered(self, vcenter: str) -> str:
        """Why this vCenter does not say what our user may do; "" where it does, or was not asked."""
        return self._memory.why_unanswered(vcenter)

    def untold_machines(self) -> tuple[str, ...]:
        """Cluster API Machines of our nodes that nobody tells of a maintenance."""
        told, absent = self.policy.skip_remediation, self._executor.machines
        nodes = self.observer.managed_nodes()
        machines = filter(None, map(machine_of, nodes))
        return tuple(
            sorted(machine for machine in machines if not told or (absent is not None and machine in absent.elsewhere))
        )

    def look(self, also: Collection[str] = ()) -> tuple[World, Pass]:
        now = self.clock()
        world = self.observer.world(now, also)
        return world, decide(world, self.policy, now)

    async def reconcile(self, _: str) -> float | None:
        if not self._named and self.clock() >= self._name_after and not await self._name_cluster():
            return NOT_READY
        began = time.perf_counter()
        now = self.clock()
        world = self.observer.world(now, brief=True)
        if self._settle_tasks(world):
            world = self.observer.world(now, brief=True)
        found = decide(world, self.policy, now)
        states = Counter(subject.annotations.get(STATE, "") for subject in world.subjects)
        self.seconds = time.perf_counter() - began
        self._metrics.passed(world, found, states, self.seconds)
        subjects = {subject.name: subject for subject in world.subjects}
        self.subjects = frozenset(subjects)
        known = {
            (subject.vcenter, subject.vm.value.moref) for subject in world.subjects if isinstance(subject.vm, Known)
        }
        doubted = {
            subject.vm.vm for subject in world.subjects if isinstance(subject.vm, InDoubt) and subject.vm.vm is not None
        }
        self._vms = frozenset(known | doubted)
        self._memory.keep_only(set(subjects))
        self._housekeep(world, now)
        shown = self._reporter.lasting(world, found, now)
        for decision in shown.decisions:
            self._handle(subjects[decision.subject], decision, now)
        if self._executor.gate() is None or self._executor.writer.dry_run:
            self._reporter.tell(world, shown)
        connected = (vcenter for vcenter in self.observer.vcenters.values() if vcenter.link.connected)
        looks = [self._refreshed.get(vcenter.name, now) + vcenter.poll for vcenter in connected]
        wake = min([now + LOOK_AGAIN, *looks, *filter(None, [shown.wake]), *self._rests(now)])
        return max(0.02, wake - now) if not world.unknown else NOT_READY

    async def _name_cluster(self) -> bool:
        """Which Kubernetes cluster this is, for marks on VMs: the UID of kube-system, as others do it.

        Asked until we may read it: an API server that has just started may not know of our rights yet.
        """
        try:
            found = await self._client.get(NAMESPACE, "kube-system", type=Object)
            self.observer.identities.name_cluster(found.metadata.uid[:8])
        except (Forbidden, NotFound) as error:
            if not self._name_after:
                log.warning(
                    "The namespace kube-system cannot be read, so VMs we stop are marked without the cluster's name; "
                    "one whose Node is deleted meanwhile is then not started again.", error=str(error),
                )  # fmt: skip
            self._name_after = self.clock() + LOOK_AGAIN
            return True
        except (ApiError, Unreachable) as error:
            log.debug("kube-system could not be read yet", error=str(error))
            return False
        self._named = True
        return True

    def _rests(self, now: Instant) -> list[Instant]:
        return [at for at in self._memory.rest.values() if at > now]

    # -- acting

    def _handle(self, subject: Subject, decision: Decision, now: Instant) -> None:
        if decision.bug is not None and f"bug {subject.name} {decision.bug!r}" not in self._warned:
            self._warned.add(f"bug {subject.name} {decision.bug!r}")
            self._metrics.bug()
            log.error("bug in a decision", subject=subject.name, exc_info=decision.bug)
        if decision.pulse and subject.name not in self._pulsing:
            self._pulsing.add(subject.name)
            self._spawn(self._pulse(subject.name))
        if subject.name in self._memory.busy or now < self._memory.rest.get(subject.name, 0.0):
            return
        if decision.action is None and not self._conditions_due(subject, decision, now):
            self._look_up_volumes(subject, decision)
            return
        if self._executor.gate() is not None and not self._executor.writer.dry_run:
            return  # paused, not leading, or an incumbent is at work: a change of that wakes us
        self._memory.busy[subject.name] = Busy(decision.state, decision.target)
        self._spawn(self._perform(subject, decision))

    def _conditions_due(self, subject: Subject, decision: Decision, now: Instant) -> bool:
        node = subject.node
        return node is not None and patch_conditions(node, decision, now) is not None

    async def _perform(self, subject: Subject, decision: Decision) -> None:
        name, again = subject.name, not self._executor.writer.dry_run
        what = decision.action.why if decision.action is not None else "its conditions"
        try:
            with self._acting():
                await self._executor.perform(subject, decision)
            self._failures.pop(name, None)
        except WriteRefused as refused:
            log.debug("not done", subject=name, what=what, why=refused.why)
            self._rest(name)
        except Changed as changed:
            log.info("not done: it changed meanwhile", subject=name, what=what, why=str(changed))
            self._rest(name)
        except Conflict:
            self._rest(name)  # another writer was first; the cache has it in a moment
        except NotFound as error:
            log.warning("it is gone", subject=name, error=str(error))
            self._rest(name)
        except (ApiError, Unreachable) as error:
            self._rest(name)
            log.warning("will try again", subject=name, what=what, error=str(error))
        except Exception:
            # One bad node never stops the others: loud here, and tried again later.
            self._rest(name)
            self._metrics.bug()
            log.exception("bug in an action", subject=name, what=what)
        finally:
            self._memory.busy.pop(name, None)
            if again:
                self.wake(after=self.seconds)  # where a hundred are at work, not a pass for the end of each

    def _rest(self, name: str) -> None:
        self._failures[name] += 1
        delay = min(REST_FIRST * 2.0 ** min(self._failures[name] - 1, 10), REST_MOST)
        self._memory.rest[name] = self.clock() + delay

    def try_now(self) -> None:
        """Something that held us back has changed: nobody rests for an error from before."""
        self._memory.rest.clear()
        self.wake()

    def led(self, held: bool) -> None:
        """Between losing the lease and holding it again others may have acted: what we saw before proves nothing."""
        if held:
            self._memory.led()

    def wake(self, after: float = 0.0) -> None:
        if self.queue is not None:
            self.queue.add(KEY, after=after, priority=0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What is foreseen is caught where it happens; the rest is a bug, and never only a task that nobody asked."""
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._metrics.bug()
            log.error("bug in what runs beside the pass", exc_info=bug)

    async def stop(self, within: float = 10.0) -> None:
        """What was begun is finished; what does not end in time is cut."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=within)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # -- what became of tasks

    def _settle_tasks(self, world: World) -> bool:
        """Tasks of ours that have ended: a failure is tried again later, a success ends the counting."""
        ended = False
        for subject in world.subjects:
            pending = subject.remembered.pending
            site = world.sites.get(subject.vcenter)
            task = site.value.task(pending.task) if pending is not None and isinstance(site, Known) else None
            if pending is None or task is None or task.under_way:
                continue
            ended = True
            self._memory.note(subject.name, pending=None)
            if task.error is not None and not task.error.already:
                self._executor.ended(subject, pending.what, task.error.kind, task.error.sentence, pending.host)
            elif task.state == "success":
                self._executor.succeeded(subject, pending.what)
        return ended

    # -- what is looked up beside the pass

    async def _pulse(self, node: str) -> None:
        """Whether the kubelet is alive: its lease is renewed under our eyes. No clock is compared."""
        try:
            await asyncio.sleep(PULSE_SECONDS if node in self._memory.pulses else 0)
            lease = await self._client.get(LEASE, node, LEASES_IN, type=Lease)
            self._memory.renewed(node, lease.spec.renew_time or "")
        except (ApiError, Unreachable) as error:
            log.debug("the node's lease could not be read", node=node, error=str(error))
            await asyncio.sleep(PULSE_SECONDS)
        finally:
            self._pulsing.discard(node)
            self.wake()

    def _look_up_volumes(self, subject: Subject, decision: Decision) -> None:
        """Only volumes are left: those of pods that stay are not waited for."""
        found = decision.drain
        if found is None or found.state is not DrainState.WAITING_FOR_VOLUMES or subject.name in self._pulsing:
            return
        if f"volumes {subject.name} {found.volumes}" in self._warned:
            return
        self._warned.add(f"volumes {subject.name} {found.volumes}")
        self._spawn(self._keep_volumes(subject.name, found.verdicts))

    async def _keep_volumes(self, name: str, verdicts: Any) -> None:
        kept = await volumes_of_staying(self._client, verdicts)
        if kept:
            self._memory.note(name, kept_volumes=kept)
            self.wake()

    def _housekeep(self, world: World, now: Instant) -> None:
        """Devices of managed VMs are followed; what our user may do is asked now and then."""
        for vcenter in self.observer.vcenters.values():
            self._follow(vcenter, world, now)
            self._refresh(vcenter, now)
            self._privileges.check(vcenter, world, now)
            gone = self.observer.marks.gone(vcenter.name, vcenter.inventory) if vcenter.link.connected else ()
            if gone and self._executor.gate() is None and not self._forgetting:
                self._forgetting = True
                self._spawn(self._forget(vcenter.name, gone))

    def _follow(self, vcenter: VCenter, world: World, now: Instant) -> None:
        """Read which devices our VMs hold before anybody needs to know: a VM without any may be left to DRS.

        Only of those on hosts without devices, the others are read with their host; none is given up again, because
        each change costs vCenter a lot, and for the same reason many are added at once.
        """
        name, inventory = vcenter.name, vcenter.inventory
        if not vcenter.link.connected or not inventory.complete or not self.observer.nodes.store.synced:
            return
        vms = {
            subject.vm.value.moref
            for subject in world.subjects
            if subject.vcenter == name and isinstance(subject.vm, Known)
        }
        if now - self._follow_looked.get(name, -FOLLOW_SECONDS) >= FOLLOW_SECONDS:
            self._follow_looked[name] = now
            vms |= self.observer.managed_vms(name)
        unread = {moref for moref in vms if (vm := inventory.vm(moref)) is not None and isinstance(vm.devices, Unknown)}
        if not unread <= (followed := self._followed.get(name, frozenset())):
            self._followed[name] = followed | unread
            self._spawn(vcenter.follow(self._followed[name]))

    def _refresh(self, vcenter: VCenter, now: Instant) -> None:
        """POLL_INTERVAL_SECONDS: so often our VMs and their hosts are looked at, whatever is pushed."""
        if now < self._refreshed.get(vcenter.name, 0.0) + vcenter.poll or not vcenter.link.connected:
            return
        self._refreshed[vcenter.name] = now
        marked = {vm for name, vm in self._vms if name == vcenter.name}  # also of nodes that are gone
        self._spawn(vcenter.refresh(self.observer.managed_vms(vcenter.name) | marked))

    async def _forget(self, vcenter: str, gone: Iterable[str]) -> None:
        """Marks of VMs that are not in vCenter any more."""
        try:
            for vm in gone:
                await self.observer.marks.keep(vcenter, vm, None, f"VM {vm} is not in vCenter {vcenter} any more")
        except (ApiError, Unreachable, WriteRefused) as error:
            log.warning("a mark could not be taken away", vcenter=vcenter, error=str(error))
        finally:
            self._forgetting = False


def concerns_decisions(before: Node | None, after: Node | None) -> bool:
    """Whether a change of a node can change a decision; heartbeats cannot, but of a node that is to come back."""
    if before is None or after is None:
        return True
    return _relevant_fields(before) != _relevant_fields(after)


def _relevant_fields(node: Node) -> tuple[object, ...]:
    ready = ready_condition(node)
    said = (ready.status, ready_stamp(node) if STATE in node.metadata.annotations else "") if ready is not None else ()
    return (
        node.metadata.annotations, node.metadata.labels, node.spec, said,
        node.status.node_info.boot_id, node.status.node_info.system_uuid,
    )  # fmt: skip
