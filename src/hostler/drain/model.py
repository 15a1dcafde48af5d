"""What a drain knows, what it may do, and the words for how it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from hostler.host.facts import Fact
from hostler.instant import Instant
from hostler.kube.records import Pod, PodDisruptionBudget, Selector, VolumeAttachment, key_of


class State(StrEnum):
    """How a drain stands. DRAINED and DEADLINE_PASSED are ends; the others go on by themselves, except REFUSED."""

    DRAINING = "draining"  # pods are on their way out, or have their turn later
    BLOCKED = "blocked"  # every pod left was refused by the API server; tried again with back-off
    WAITING_FOR_VOLUMES = "waiting-for-volumes"  # no pod left, but volumes are still attached to the node
    DRAINED = "drained"
    DEADLINE_PASSED = "deadline-passed"  # with pods or volumes left, named in the decision
    REFUSED = "refused"  # a setting forbids evicting a pod; nothing is evicted, and the deadline does not pass
    UNKNOWN = "unknown"  # pods or volumes are not known; nothing is done, and the deadline does not pass


@dataclass(frozen=True, slots=True)
class Policy:
    """How to empty a node. The defaults are the seed's: pods with emptyDir and pods without a controller go too."""

    timeout: float | None = 600.0  # seconds from the persisted start; None waits for ever
    evict_empty_dir: bool = True  # kubectl: --delete-emptydir-data
    evict_unmanaged: bool = True  # kubectl: --force; also pods whose DaemonSet is gone
    leave_daemon_sets: bool = True  # kubectl: --ignore-daemonsets; False refuses where there are any
    selector: Selector | None = None  # kubectl: --pod-selector; None means every pod
    skip_terminating_after: float | None = None  # kubectl: --skip-wait-for-delete-timeout
    grace_seconds: int | None = None  # kubectl: --grace-period; None leaves it to the pod
    wait_for_volumes: bool = True
    max_age: float = 120.0  # facts older than this are unknown; an idle watch is confirmed about every minute
    # How long lower priorities and replicas of a cluster helper may keep others waiting, from the start.
    patience: float = 300.0
    backoff_first: float = 5.0
    backoff_most: float = 60.0
    # More than one budget on a pod is a mistake of people: nothing but a change of budgets helps.
    backoff_several: float = 300.0

    def deadline(self, started: Instant) -> Instant | None:
        return None if self.timeout is None else started + self.timeout

    def patience_ends(self, started: Instant) -> Instant:
        """Half of the time at most goes into good order; then everything that is left goes at once."""
        half = self.patience if self.timeout is None else self.timeout / 2
        return started + min(self.patience, half)


# -- what was seen of a pod, and what may happen to it


class Act(StrEnum):
    EVICT = "evict"
    WAIT = "wait"  # it is terminating already: its deletion is waited for
    SKIP = "skip"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the filters say of one pod, and why."""

    pod: Pod
    act: Act
    why: str

    @property
    def key(self) -> str:
        return key_of(self.pod.metadata)


class Outcome(StrEnum):
    """What the API server answered to an eviction."""

    ACCEPTED = "accepted"
    GONE = "gone"  # no such pod
    MOVED = "moved"  # 409: another pod of that name by now; asked again only if the facts go on showing this one
    REFUSED = "refused"  # 429: a PodDisruptionBudget says not now
    SEVERAL_BUDGETS = "several-budgets"  # 500: more than one budget covers the pod
    FAILED = "failed"  # anything else, or no answer at all


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last eviction asked for one pod, and not before when it may be asked again."""

    outcome: Outcome
    at: Instant
    number: int
    not_before: Instant
    earliest: Instant  # what the server's Retry-After asks for; even a change of budgets does not go below it
    said: str = ""
    budgets: tuple[str, ...] = ()  # the budgets as they stood then, to tell when they have changed


@dataclass(frozen=True, slots=True)
class Memory:
    """What the executor remembers between two decisions, by pod UID. Losing it costs one POST per pod, no more."""

    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    terminating: Mapping[str, Instant] = field(default_factory=dict)  # when we first saw it terminate, by our clock
    # The most replicas each cluster helper has had. Between the end of one and the birth of the next there is no pod
    # to show that one is missing; without this the second would be sent after the first.
    replicas: Mapping[str, int] = field(default_factory=dict)

    def seen(self, pods: tuple[Pod, ...], now: Instant, replicas: Mapping[str, int] | None = None) -> Memory:
        """Forget pods that are no more, note which have begun to terminate and how many replicas helpers have."""
        here = {pod.metadata.uid for pod in pods}
        ending = {pod.metadata.uid for pod in pods if pod.metadata.deletion_timestamp}
        return Memory(
            {uid: attempt for uid, attempt in self.attempts.items() if uid in here},
            {uid: self.terminating.get(uid, now) for uid in ending},
            {group: max(number, self.replicas.get(group, 0)) for group, number in (replicas or {}).items()},
        )

    def after(self, evict: Evict, answer: Answer, policy: Policy, now: Instant) -> Memory:
        """The memory once an answer has come."""
        last = self.attempts.get(evict.uid)
        number = (last.number if last else 0) + 1
        earliest = now + (answer.retry_after or 0.0)
        rest = _rest(answer.outcome, number, policy)
        attempt = Attempt(answer.outcome, now, number, max(earliest, now + rest), earliest, answer.said, evict.budgets)
        return replace(self, attempts={**self.attempts, evict.uid: attempt})


def _rest(outcome: Outcome, number: int, policy: Policy) -> float:
    if outcome is Outcome.SEVERAL_BUDGETS:
        return policy.backoff_several
    return min(policy.backoff_first * 2.0 ** min(number - 1, 20), policy.backoff_most)


@dataclass(frozen=True, slots=True)
class Answer:
    outcome: Outcome
    said: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a drain decision looks at."""

    node: str
    started: Instant  # persisted by the caller, so that a restart does not begin the deadline anew
    pods: Fact[tuple[Pod, ...]]  # every pod bound to the node
    attachments: Fact[tuple[VolumeAttachment, ...]]  # every VolumeAttachment of the node
    # Without these a drain goes on: the API server enforces budgets itself, and a pod of a DaemonSet that cannot be
    # looked up is left alone.
    budgets: Fact[tuple[PodDisruptionBudget, ...]]
    daemon_sets: Fact[frozenset[str]]  # keys of those that exist
    peers: tuple[Pod, ...] = ()  # pods elsewhere with a controller that also has pods here
    kept_volumes: frozenset[str] = frozenset()  # PersistentVolumes of pods that stay: not waited for
    memory: Memory = field(default_factory=Memory)


# -- what comes out


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for the eviction of this very pod. `budgets` is how the budgets over it stood when this was decided."""

    namespace: str
    name: str
    uid: str
    why: str
    budgets: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


Action: TypeAlias = Evict


class BlockedBy(StrEnum):
    BUDGET = "budget"
    SEVERAL_BUDGETS = "several budgets"
    API_SERVER = "API server"  # it did not evict the pod, and named no budget of ours


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a pod cannot go: the budget where it is one, and the sentence."""

    pod: str
    budget: str
    why: str
    by: BlockedBy = BlockedBy.BUDGET


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the drain stands, what to do now, why, and when to look again if nothing changes before.

    `why` is stable and bounded: it goes into conditions and events.
    """

    state: State
    actions: tuple[Evict, ...]
    why: str
    wake: Instant | None
    left: tuple[str, ...] = ()  # keys of pods still to go
    volumes: tuple[str, ...] = ()  # volumes still attached
    blockers: tuple[Blocker, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    @property
    def over(self) -> bool:
        """Nothing more will come of waiting."""
        return self.state in (State.DRAINED, State.DEADLINE_PASSED, State.REFUSED)
