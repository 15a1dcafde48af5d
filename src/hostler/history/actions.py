"""What was done to hosts, with its result, and what was refused, on its way into the history.

Every write of every capability ends in `kube.writer.Writer`, every refusal with a typed reason in an Event, every call
to a vCenter in `vsphere.vcenter.VCenter`. Each calls in here, which costs a look into a cache and an append: nothing
that is decided or written ever waits for the history.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hostler.apis.assisted import AGENT
from hostler.apis.metal3 import BARE_METAL_HOST
from hostler.host.conditions import count, names
from hostler.instant import Instant
from hostler.inventory.model import agent_key, bare_metal_key, node_key, vm_key
from hostler.inventory.sources import RecordedAs
from hostler.kube.kinds import NODE, POD, Kind
from hostler.kube.records import Identity, Pod
from hostler.kube.writer import Write
from hostler.vsphere.outcomes import AlreadySo, Asked, Refused, Started

WAITING_LIMIT = 10_000
GONE_PODS_LIMIT = 2_000
OK, STARTED, ALREADY, CONFLICT = "ok", "started", "already", "409"
DONE = frozenset({OK, STARTED, ALREADY})
VSPHERE_ASKER = "maintenance"  # the one capability that acts on VMs


@dataclass(frozen=True, slots=True)
class Happened:
    """One action with its result, or a refusal (then without one)."""

    at: Instant
    key: str
    capability: str
    reason: str  # of an action: what it is, such as PatchNode
    result: str
    sentence: str
    pod: str = ""  # evictions in one moment are one action
    operation: str = ""  # where it is known without looking at the layer

    @property
    def is_refusal(self) -> bool:
        return not self.result


class ActionFeed:
    def __init__(
        self,
        cluster: str,
        node_of_pod: Callable[[str], str],
        recorded_as: Callable[[Kind, str, str], RecordedAs | None],
        clock: Callable[[], Instant],
    ) -> None:
        """`node_of_pod`: the node of a pod by NAMESPACE/NAME, "" where it is not known. `recorded_as`: of an object
        that is no layer, by kind, namespace and name.
        """
        self.cluster, self._node_of_pod, self._recorded_as, self.clock = cluster, node_of_pod, recorded_as, clock
        self._waiting = deque[Happened](maxlen=WAITING_LIMIT)
        self._last_nodes = OrderedDict[str, str]()

    def pod_changed(self, pod: str, before: Pod | None, after: Pod | None) -> None:
        """A pod may be gone before the answer to its eviction has come: its node is remembered for a while."""
        if after is None and before is not None:
            self._last_nodes[pod] = before.spec.node_name
            if len(self._last_nodes) > GONE_PODS_LIMIT:
                self._last_nodes.popitem(last=False)

    def wrote(self, write: Write, result: str, answer: str) -> None:
        """A write to the API server. A report does nothing to a host, and a conflict is decided again at once."""
        if write.reports or result == CONFLICT:
            return
        if (found := self._about(write.kind, write.namespace or "", write.name)) is not None:
            sentence = f"{write.why.rstrip('.')}: {answer}" if answer else write.why
            reason = f"{write.verb.capitalize()}{write.kind.kind}"
            pod = f"{write.namespace}/{write.name}" if write.kind is POD else ""
            self._waiting.append(
                Happened(self.clock(), found.key, write.owner, reason, result, sentence, pod, found.operation)
            )

    def refused(self, capability: str, kind: Kind, about: Identity, reason: str, note: str) -> None:
        if (found := self._about(kind, about.namespace, about.name)) is not None:
            self._waiting.append(
                Happened(self.clock(), found.key, capability, reason, "", note, operation=found.operation)
            )

    def asked(self, asked: Asked) -> None:
        match asked.outcome:
            case Started(task):
                result, answer = STARTED if task else OK, ""
            case AlreadySo(why):
                result, answer = ALREADY, why
            case Refused(kind, why):
                result, answer = str(kind), why
        reason = "".join(word.capitalize() for word in asked.what.split("_"))
        sentence = asked.sentence[:1].upper() + asked.sentence[1:]
        key = vm_key(asked.vcenter, asked.uuid)
        self._waiting.append(
            Happened(
                self.clock(), key, VSPHERE_ASKER, reason, result, f"{sentence}: {answer}" if answer else f"{sentence}."
            )
        )

    def take(self) -> list[Happened]:
        """What happened since the last call, evictions from one node together."""
        taken = list(self._waiting)
        self._waiting.clear()
        return group_pods(taken)

    def _about(self, kind: Kind, namespace: str, name: str) -> RecordedAs | None:
        """The layer that an object is, or is on, or belongs to; None where there is none."""
        match kind.kind, kind.group:
            case NODE.kind, NODE.group:
                return RecordedAs(node_key(self.cluster, name))
            case POD.kind, POD.group:
                pod = f"{namespace}/{name}"
                node = self._node_of_pod(pod) or self._last_nodes.get(pod, "")
                return RecordedAs(node_key(self.cluster, node)) if node else None
            case BARE_METAL_HOST.kind, BARE_METAL_HOST.group:
                return RecordedAs(bare_metal_key(namespace, name))
            case AGENT.kind, AGENT.group:
                return RecordedAs(agent_key(namespace, name))
        return self._recorded_as(kind, namespace, name)


def group_pods(happened: Iterable[Happened]) -> list[Happened]:
    """The evictions from one node with one result as one action, in the place of the first."""
    groups = dict[tuple[str, ...], list[Happened]]()
    for place, action in enumerate(happened):
        group = (action.key, action.capability, action.reason, action.result) if action.pod else (str(place),)
        groups.setdefault(group, []).append(action)
    return [_together(group) for group in groups.values()]


def _together(group: list[Happened]) -> Happened:
    first = group[0]
    if not first.pod:
        return first
    pods = {action.pod for action in group}
    return replace(first, sentence=f"{count(len(pods), 'pod')}: {names(pods)}; {first.sentence}", pod="")
