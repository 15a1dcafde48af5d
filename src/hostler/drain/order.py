"""Whose turn it is: lower priorities first, and never all replicas of a cluster helper at once.

Good order has a limit in time (`Policy.patience_ends`): past it everything left goes, because a pod evicted out of
order is still better off than one whose machine is switched off under it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from hostler.drain.budgets import ready
from hostler.drain.filters import controller_of, finished
from hostler.drain.model import Act, Facts, Outcome, Policy, Verdict
from hostler.instant import Instant
from hostler.kube.records import Pod, key_of


def rank(pod: Pod) -> tuple[int, str]:
    """Lower goes first."""
    return pod.spec.priority, key_of(pod.metadata)


def whose_turn(leaving: Iterable[Verdict], facts: Facts, policy: Policy, now: Instant) -> list[Verdict]:
    """The pods that may be asked to go now, in order; those not among them wait for others."""
    among = list(leaving)
    evictable = sorted((v for v in among if v.act is Act.EVICT), key=lambda v: rank(v.pod))
    if not evictable or now >= policy.patience_ends(facts.started):
        return evictable
    # A wave is over when its last pod is gone, so terminating pods count: they still serve, or still let go.
    lowest = min(verdict.pod.spec.priority for verdict in among)
    wave = [verdict for verdict in evictable if verdict.pod.spec.priority == lowest]
    return _spread(wave, among, facts)


def is_helper(pod: Pod) -> bool:
    """A part of the cluster itself that others cannot do without, CoreDNS above all, run as replicas."""
    owner, metadata = controller_of(pod), pod.metadata
    return (
        owner is not None
        and owner.kind != "DaemonSet"
        and (
            metadata.namespace == "kube-system"
            or metadata.namespace.startswith("openshift-")
            or pod.spec.priority_class_name.startswith("system-")
        )
    )


def replicas_of(pods: Iterable[Pod]) -> dict[str, int]:
    """How many replicas each cluster helper among these pods has, not counting those on their way out."""
    return dict(Counter(_group(pod) for pod in pods if is_helper(pod) and _counts(pod)))


def _spread(wave: list[Verdict], among: list[Verdict], facts: Facts) -> list[Verdict]:
    """Of each helper's replicas, one at a time: the next when all are there and Ready again, here and elsewhere."""
    replicas: dict[str, list[Pod]] = defaultdict(list)
    for pod in (*facts.peers, *(verdict.pod for verdict in among)):
        replicas[_group(pod)].append(pod)
    turn, taken = [], set()
    for verdict in wave:
        pod, group = verdict.pod, _group(verdict.pod)
        if not is_helper(pod) or not ready(pod):
            turn.append(verdict)
        elif group not in taken and _whole(replicas[group], group, facts):
            turn.append(verdict)
            taken.add(group)
    return turn


def _whole(replicas: list[Pod], group: str, facts: Facts) -> bool:
    """Nobody is between two places, and nobody is missing."""
    there = sum(_counts(pod) for pod in replicas)
    return there >= facts.memory.replicas.get(group, 0) and not any(_moving(pod, facts) for pod in replicas)


def _counts(pod: Pod) -> bool:
    return not finished(pod) and not pod.metadata.deletion_timestamp


def _group(pod: Pod) -> str:
    owner = controller_of(pod)
    return owner.uid or f"{pod.metadata.namespace}/{owner.name}" if owner is not None else pod.metadata.uid


def _moving(pod: Pod, facts: Facts) -> bool:
    """Between two places: leaving, or a replacement that does not serve yet."""
    asked = facts.memory.attempts.get(pod.metadata.uid)
    accepted = asked is not None and asked.outcome is Outcome.ACCEPTED
    return not finished(pod) and (accepted or bool(pod.metadata.deletion_timestamp) or not ready(pod))
