"""Which pods a drain evicts, leaves or refuses: kubectl's filters, in kubectl's order, with a reason per pod.

The first filter with something to say decides. One difference from kubectl: a pod that is terminating already is
waited for, never refused for its emptyDir or its missing controller, because that was decided by somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hostler.drain.model import Act, Memory, Policy, Verdict
from hostler.drain.selector import matches
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.kube.records import OwnerReference, Pod


@dataclass(frozen=True, slots=True)
class Around:
    """What a filter may look at besides the pod."""

    policy: Policy
    daemon_sets: Fact[frozenset[str]]
    memory: Memory
    now: Instant


Said: TypeAlias = tuple[Act, str] | None
Filter: TypeAlias = Callable[[Pod, Around], Said]


def judge(pod: Pod, around: Around) -> Verdict:
    """The verdict on one pod; without an objection it is evicted."""
    for look in FILTERS:
        said = look(pod, around)
        if said is not None:
            return Verdict(pod, *said)
    return Verdict(pod, Act.EVICT, "nothing keeps it here")


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def finished(pod: Pod) -> bool:
    """Its work is over; there is nothing to disrupt."""
    return pod.status.phase in ("Succeeded", "Failed")


def terminating_until(pod: Pod, around: Around) -> Instant | None:
    """When a terminating pod stops being waited for; None: it is waited for as long as it takes.

    Counted from when we first saw it terminate: its deletionTimestamp is another machine's clock.
    """
    since = around.memory.terminating.get(pod.metadata.uid, around.now)
    limit = around.policy.skip_terminating_after
    return None if limit is None or not pod.metadata.deletion_timestamp else since + limit


def _selected(pod: Pod, around: Around) -> Said:
    selector = around.policy.selector
    if selector is not None and not matches(selector, pod.metadata.labels):
        return Act.SKIP, "the pod selector leaves it out"
    return None


def _long_gone(pod: Pod, around: Around) -> Said:
    until = terminating_until(pod, around)
    if until is not None and around.now >= until:
        return Act.SKIP, "it has been terminating for too long to be waited for"
    return None


def _daemon_set(pod: Pod, around: Around) -> Said:
    owner = controller_of(pod)
    if owner is None or owner.kind != "DaemonSet" or finished(pod):
        return None
    match around.daemon_sets:
        case Unknown(why):
            return Act.SKIP, f"it belongs to DaemonSet {owner.name}, which cannot be looked up: {why}"
        case Known(existing) if f"{pod.metadata.namespace}/{owner.name}" in existing:
            if around.policy.leave_daemon_sets:
                return Act.SKIP, f"DaemonSet {owner.name} would put it back at once"
            return Act.REFUSE, f"it belongs to DaemonSet {owner.name}, and the policy does not leave such pods"
        case _ if pod.metadata.deletion_timestamp:
            return Act.WAIT, "it is terminating"
        case _ if around.policy.evict_unmanaged:
            return Act.EVICT, f"its DaemonSet {owner.name} is gone, nobody will put it back"
        case _:
            return Act.REFUSE, f"its DaemonSet {owner.name} is gone, and the policy keeps pods without a controller"


def _mirror(pod: Pod, around: Around) -> Said:
    if pod.metadata.annotations.mirror is not None:
        return Act.SKIP, "it mirrors a static pod, which only its kubelet can stop"
    return None


def _terminating(pod: Pod, around: Around) -> Said:
    return (Act.WAIT, "it is terminating") if pod.metadata.deletion_timestamp else None


def _finished(pod: Pod, around: Around) -> Said:
    return (Act.EVICT, f"it has {pod.status.phase.lower()}, nothing is disrupted") if finished(pod) else None


def _local_storage(pod: Pod, around: Around) -> Said:
    volume = next((volume.name for volume in pod.spec.volumes if volume.empty_dir is not None), None)
    if volume is not None and not around.policy.evict_empty_dir:
        return Act.REFUSE, f"the data in its emptyDir {volume} would be lost"
    return None


def _unmanaged(pod: Pod, around: Around) -> Said:
    if controller_of(pod) is not None:
        return None
    if around.policy.evict_unmanaged:
        return Act.EVICT, "it has no controller and will not come back by itself"
    return Act.REFUSE, "it has no controller, so it would not come back"


FILTERS: tuple[Filter, ...] = (
    _selected,
    _long_gone,
    _mirror,
    _daemon_set,
    _terminating,
    _finished,
    _local_storage,
    _unmanaged,
)
