"""Runs `decide` forward on one host in memory: what would be done until nothing is left to do. Pure.

The decisions are the operator's own, and what they write on the Agent is what `status.py` writes. The rest of the world
is played in its simplest form:

- both API servers do at once what they are asked, and nothing in the old cluster belongs to another party;
- a fact that is unknown stays unknown, and one that no decision needed so far turns out well: the old cluster can be
  reached, the node is the one that was pinned, it is a worker, and an agent that was deployed is there;
- pods that were not looked at can be evicted; those that are evicted end; a PodDisruptionBudget that lets no pod go
  now never does;
- the agent starts, downloads, reports success and restarts the host; one whose restart is called off reports that;
- the node is not Ready after that, and the discovery system registers at once, in the stage that is under way;
- workers that are on their way out of a cluster leave it while their control plane waits for them;
- no person and no other controller changes anything, and no node is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hostler.drain.model import Decision as Drain
from hostler.drain.model import State as DrainState
from hostler.host.facts import Known
from hostler.instant import Instant, iso, parse
from hostler.reclaim import decision as actions
from hostler.reclaim import model
from hostler.reclaim.agent_manifests import agent_of, is_deployed
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import Action, Decision
from hostler.reclaim.model import (
    UNASKED,
    Cause,
    ControlPlane,
    Host,
    Policy,
    Reason,
    Report,
    Spoke,
    SpokeNode,
    State,
    find_called_off,
    is_going_down,
    is_unbound,
    next_stage,
    stage_key,
    step_id,
)

PASSES_MOST = 200


class Happening(StrEnum):
    """What others do, and what is waited for."""

    PODS_END = "pods-end"
    PODS_STAY = "pods-stay"
    AGENT_DOWNLOADS = "agent-downloads"
    AGENT_GIVES_UP = "agent-gives-up"  # its restart was called off
    HOST_RESTARTS = "host-restarts"
    HOST_REGISTERS = "host-registers"
    NODE_GOES_DOWN = "node-goes-down"
    WORKERS_LEAVE = "workers-leave"
    TIME_PASSES = "time-passes"


class Ending(StrEnum):
    DISCOVERED = "discovered"
    LEFT_TO_PEOPLE = "left-to-people"
    IN_ITS_CLUSTER = "in-its-cluster"
    DELETED = "deleted"
    NOT_OURS = "not-ours"  # a state that reclaim has nothing to do with
    OPEN = "open"  # it did not come to rest in so many passes


@dataclass(frozen=True, slots=True)
class Step:
    """An action of the decision, or what happens while it has none."""

    what: Action | Happening
    decision: Decision


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would happen, in order, and how it ends; `cause` is the reason of the condition `Reclaimed` then."""

    steps: tuple[Step, ...]
    last: Decision
    ending: Ending
    cause: Cause | None


def simulate(host: Host, policy: Policy, now: Instant) -> Forecast:
    """The course of this host from here on."""
    decision = decide(host, policy, now)
    world = _World(host, policy, now)
    steps = [Step(action, decision) for action in decision.actions]
    for action in decision.actions:
        world.apply(action)
    world.assume()
    for _ in range(PASSES_MOST):
        decision = decide(world.host, policy, world.now)
        before = world.seen()
        for action in decision.actions:
            if world.apply(action):
                steps.append(Step(action, decision))
        if world.seen() == before:
            happening = world.go_on(decision)
            if happening is None:
                break
            steps.append(Step(happening, decision))
    else:
        return Forecast(tuple(steps), decision, Ending.OPEN, world.host.reason)
    return Forecast(tuple(steps), decision, _ending(world.host), world.host.reason)


def _ending(host: Host) -> Ending:
    if host.deleted:
        return Ending.DELETED
    if is_unbound(host.state):
        return Ending.DISCOVERED
    if host.state in model.IN_A_CLUSTER:
        return Ending.IN_ITS_CLUSTER
    return Ending.LEFT_TO_PEOPLE if host.state == State.PENDING else Ending.NOT_OURS


def apply_to_agent(host: Host, action: Action, now: Instant) -> Host:
    """The host as its Agent reads once this is written on it; a test compares with what `status.py` writes."""
    match action:
        case actions.NoteCluster(cluster):
            return replace(
                host, previous=cluster, reason=None, waiting_since=None, confirmed=False, managed_by="",
            )  # fmt: skip
        case actions.ForgetCluster():
            return replace(host, previous=None, confirmed=False, managed_by="")
        case actions.Enter(transition, reason, _):
            stage = next_stage(host.stage, now)
            if transition is model.REBIND:
                host = replace(host, confirmed=False, managed_by="")
            return replace(
                host, state=transition.target, stage=stage, since=parse(stage), reason=reason, waiting_since=None
            )
        case actions.SetCondition(reason, _):
            since = host.waiting_since if host.waiting_since is not None else parse(iso(now))
            return replace(host, reason=reason, waiting_since=since if reason == Reason.DECIDING else None)
        case actions.AddFinalizer(pin):
            return replace(host, kept=True, pinned=pin)
        case actions.RemoveFinalizer():
            return replace(host, kept=False, pinned=None)
        case actions.AnswerRetry(request):
            return replace(host, retried=request)
        case actions.ClearCancel():
            return replace(host, cancelled=False)
    return host


class _World:
    """One Agent, its old cluster and its machine."""

    def __init__(self, host: Host, policy: Policy, now: Instant) -> None:
        self.host, self.policy, self.now = host, policy, now
        self._message = ""

    def seen(self) -> tuple[Host, str]:
        return self.host, self._message

    def assume(self) -> None:
        """What no decision needed so far turns out well."""
        host, spoke = self.host, self.host.spoke
        agent = {agent_of(host.previous.node)} if host.previous is not None and host.kept else set()
        self._change(
            Spoke(
                spoke.kubeconfig if spoke.kubeconfig is not UNASKED else Known(True, self.now),
                spoke.node if spoke.node is not UNASKED else Known(_assumed_node(host), self.now),
                spoke.control_plane if spoke.control_plane is not UNASKED else Known(ControlPlane(1, 1), self.now),
                spoke.remains if spoke.remains is not UNASKED else Known(frozenset(agent), self.now),
                spoke.drain,
                spoke.reach if spoke.reach is not UNASKED else Known(True, self.now),
                spoke.namesake,
            )
        )

    def apply(self, action: Action) -> bool:
        """Do it; whether that changes anything."""
        before = self.seen()
        self.host = apply_to_agent(self.host, action, self.now)
        spoke = self.host.spoke
        match action:
            case actions.Enter(message=message) | actions.SetCondition(message=message):
                self._message = message
            case actions.Hold(node):
                drain = spoke.drain or Drain(DrainState.DRAINING, (), "", None)
                self._change(replace(spoke, node=Known(replace(node, held=True), self.now), drain=drain))
            case actions.Release(node):
                self._change(replace(spoke, node=Known(replace(node, held=False), self.now)))
            case actions.Evict() if spoke.drain is not None:
                self._change(replace(spoke, drain=replace(spoke.drain, actions=())))
            case actions.Deploy(node):
                self._change(replace(spoke, remains=Known(frozenset({agent_of(node.name)}), self.now)))
            case actions.Withdraw():
                self._change(replace(spoke, remains=Known(frozenset(), self.now)))
            case actions.RemoveNode():
                self._change(replace(spoke, node=Known(None, self.now)))
        return self.seen() != before

    # -- what happens by itself

    def go_on(self, decision: Decision) -> Happening | None:
        """The next thing that happens while the operator has nothing to do; None: nothing ever does."""
        happening = self._find_happening()
        if happening is not None:
            return happening
        if decision.wake is None or self.host.deleted:
            return None
        self.now = max(decision.wake, self.now + 1.0)
        return Happening.TIME_PASSES

    def _find_happening(self) -> Happening | None:
        host, spoke = self.host, self.host.spoke
        if host.deleted:
            return None
        if host.state == State.REBOOTING:
            return self._restart()
        node = spoke.node.value if isinstance(spoke.node, Known) else None
        if host.state == State.RECLAIMING and node is not None:
            return self._empty_node(node) or self._download(node)
        goes = self.policy.remove_node and is_unbound(host.state) and host.previous is not None
        if goes and node is not None and node.ready:
            self._change(replace(spoke, node=Known(replace(node, ready=False), self.now)))
            return Happening.NODE_GOES_DOWN
        plane = spoke.control_plane
        if host.reason == Reason.WORKERS_FIRST and isinstance(plane, Known) and plane.value.workers:
            self._change(replace(spoke, control_plane=Known(replace(plane.value, workers=()), self.now)))
            return Happening.WORKERS_LEAVE
        return None

    def _empty_node(self, node: SpokeNode) -> Happening | None:
        spoke = self.host.spoke
        if self.policy.drain is None or spoke.drain is None or not node.held or spoke.drain.over:
            return None
        if is_deployed(spoke.remains, node.name) or spoke.drain.state is DrainState.UNKNOWN:
            return None
        if spoke.drain.state is DrainState.BLOCKED:
            if self.policy.drain.timeout is None:
                return None
            state, happening = DrainState.DEADLINE_PASSED, Happening.PODS_STAY
        else:
            state, happening = DrainState.DRAINED, Happening.PODS_END
        self._change(replace(spoke, drain=replace(spoke.drain, state=state, actions=())))
        return happening

    def _download(self, node: SpokeNode) -> Happening | None:
        if not is_deployed(self.host.spoke.remains, node.name) or self._has_report():
            return None
        self._report(0, None)
        return Happening.AGENT_DOWNLOADS

    def _restart(self) -> Happening | None:
        host, spoke = self.host, self.host.spoke
        if is_going_down(host):
            self.host = replace(host, registration=stage_key(host.state, host.stage))
            return Happening.HOST_REGISTERS
        if self._has_report():
            return None
        if find_called_off(host) is not None:
            self._report(1, Reason.CANCELLED)
            return Happening.AGENT_GIVES_UP
        self._report(0, None)
        if isinstance(spoke.node, Known) and spoke.node.value is not None:
            self._change(replace(spoke, node=Known(replace(spoke.node.value, ready=False), self.now)))
        return Happening.HOST_RESTARTS

    def _has_report(self) -> bool:
        host = self.host
        return host.report is not None and host.report.step_id == step_id(host.uid, host.state, host.stage)

    def _report(self, exit_code: int, reason: Cause | None) -> None:
        step = step_id(self.host.uid, self.host.state, self.host.stage)
        self.host = replace(self.host, report=Report(step, exit_code, reason, ""))

    def _change(self, spoke: Spoke) -> None:
        self.host = replace(self.host, spoke=spoke)


def _assumed_node(host: Host) -> SpokeNode | None:
    """The node as it was when it was proven to be this Agent's machine."""
    if host.previous is None:
        return None
    uid, boot_id = (host.pinned.uid, host.pinned.boot_id) if host.pinned is not None else ("assumed", "assumed")
    return SpokeNode(
        host.previous.node, uid, host.system_uuid or host.name, boot_id, control_plane=False, machine="",
        ready=not is_unbound(host.state), addresses=host.addresses,
    )  # fmt: skip
