"""What is decided once for the whole cluster: the default IngressController, and the backfill after an upgrade. Pure.

`decide_cluster` is what is carried out: the backfill first, and the default IngressController only once it is done.

The backfill's states are on the Ingress itself (annotation hostler.dev/ingress-backfill), one line per transition:

    (none)                status.defaultPlacement empty   ->  "deciding X"     the decision is made, and stays made
    deciding X            status.defaultPlacement empty   ->  status X         it is written into the status
    deciding X            status.defaultPlacement set     ->  "X"              done
    X                     any                             ->  nothing: a user who empties the field later means it

Every write carries the version it was decided on, so of two operators one gets a conflict and decides again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import INGRESS, INGRESS_CONTROLLER, Infrastructure, IngressConfig, IngressController
from hostler.host.conditions import count
from hostler.host.writes import EventNote, Verb, Write
from hostler.ingress.model import (
    BACKFILL,
    CLUSTER,
    CONTROLLERS_IN,
    DEFAULT,
    EXTERNAL,
    OS_LINUX,
    SINGLE,
    Decision,
    Placement,
    Unreadable,
    Where,
    undecided,
)
from hostler.ingress.placement import place
from hostler.kube.records import Metadata, Node

LONE_PLATFORMS = ("None", "External")
_DECIDING = "deciding "
# How soon to decide again after a step of the backfill.
NEXT_STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of the cluster, and what its owner wants of it."""

    ingress: IngressConfig | Unreadable | None
    infrastructure: Infrastructure | Unreadable | None
    default: IngressController | Unreadable | None
    nodes: Sequence[Node]
    label: str = ""  # of control-plane nodes, as the Fleet says
    backfill: bool = False
    openshift: bool = True  # its kinds are served here


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    backfill: Decision
    default: Decision


@dataclass(frozen=True, slots=True)
class BackfillMark:
    """The annotation on the Ingress: the placement that was decided, and whether its status has it."""

    placement: str = ""  # empty: nothing was decided yet
    done: bool = False

    @classmethod
    def of(cls, ingress: IngressConfig) -> BackfillMark:
        text = ingress.metadata.annotations.get(BACKFILL, "")
        return cls(text.removeprefix(_DECIDING), bool(text) and not text.startswith(_DECIDING))

    def __str__(self) -> str:
        return self.placement if self.done else f"{_DECIDING}{self.placement}"


def decide_cluster(facts: ClusterFacts) -> ClusterDecision:
    """The backfill, then the default IngressController: what is written into that is never rewritten."""
    ingress, infrastructure = facts.ingress, facts.infrastructure
    if not facts.openshift:
        nothing = Decision("This cluster is not OpenShift: there is nothing to fill in and no router to create.")
        return ClusterDecision(nothing, nothing)
    if isinstance(ingress, Unreadable):
        return ClusterDecision(undecided(ingress), undecided(ingress))
    if isinstance(infrastructure, Unreadable):
        return ClusterDecision(undecided(infrastructure), undecided(infrastructure))
    backfill = decide_backfill(ingress, infrastructure, facts.nodes, facts.backfill)
    if ingress is None:
        return ClusterDecision(backfill, backfill)
    if backfill.writes:
        return ClusterDecision(backfill, Decision("The default placement is being filled in first."))
    if isinstance(facts.default, Unreadable):
        return ClusterDecision(backfill, undecided(facts.default))
    return ClusterDecision(backfill, decide_default(ingress, infrastructure, facts.default, facts.nodes, facts.label))


def decide_backfill(
    ingress: IngressConfig | None, infrastructure: Infrastructure | None, nodes: Sequence[Node], wanted: bool
) -> Decision:
    """Fill an empty default placement in, once, if the owner wants it; without that, an upgrade changes nothing."""
    if ingress is None:
        return Decision("There is no Ingress named cluster.")
    mark, placed = BackfillMark.of(ingress), ingress.status.default_placement
    if not wanted:
        if placed:
            return Decision(f"The default placement is {placed}.")
        return Decision("The default placement is empty, which means Workers, and the backfill is off.")
    if mark.done:
        return Decision(f"The backfill was done before ({mark}) and is not done again.")
    if mark.placement and placed:
        why = f"the default placement is {placed}; it is not filled in again"
        return _mark(ingress, BackfillMark(placed, done=True), why)
    if mark.placement:
        body = {"status": {"defaultPlacement": mark.placement}}
        return _patch(ingress, body, f"an empty default placement becomes {mark.placement}", subresource="status")
    if placed:
        return Decision(f"The default placement is {placed}; there is nothing to fill in.")
    if infrastructure is None:
        return Decision("There is no Infrastructure named cluster, so nothing is filled in.")
    where, why = choose_backfill(infrastructure, nodes)
    return _mark(ingress, BackfillMark(where), f"the default placement is empty and becomes {where}: {why}")


def choose_backfill(infrastructure: Infrastructure, nodes: Sequence[Node]) -> tuple[Where, str]:
    """What the installation would have decided, from what is left of it, with the reason."""
    status = infrastructure.status
    if len(nodes) != 1:
        return Where.WORKERS, f"there are {len(nodes)} nodes, not one"
    if (status.control_plane_topology, status.infrastructure_topology) != (SINGLE, SINGLE):
        return Where.WORKERS, "not both topologies are SingleReplica"
    if infrastructure.platform not in LONE_PLATFORMS:
        return Where.WORKERS, f"the platform is {infrastructure.platform or 'unknown'}, which has load balancing"
    return Where.CONTROL_PLANE, f"one node, both topologies SingleReplica, platform {infrastructure.platform}"


def decide_default(
    ingress: IngressConfig,
    infrastructure: Infrastructure | None,
    existing: IngressController | None,
    nodes: Sequence[Node],
    label: str,
) -> Decision:
    """Make the IngressController `default` if there is none; one that is there is never rewritten."""
    if existing is not None:
        return Decision("There is an IngressController default; it is never rewritten.")
    if infrastructure is None:
        return Decision("There is no Infrastructure named cluster, so no default IngressController is made.")
    if infrastructure.status.control_plane_topology == EXTERNAL:
        return Decision("The control plane is External: whoever hosts it makes the default IngressController.")
    if not infrastructure.status.control_plane_topology or not infrastructure.status.infrastructure_topology:
        return Decision("The Infrastructure does not say its topologies yet, so no default IngressController is made.")
    body: dict[str, Any] = {"metadata": {"name": DEFAULT, "namespace": CONTROLLERS_IN}, "spec": {}}
    if not ingress.status.default_placement:
        # What is written here is never rewritten. An installation that writes its status a moment after its objects,
        # and the backfill, must still count: an empty placement is followed, not carved in.
        why = "there is none; its fields stay empty because the default placement is"
        write = Write(Verb.CREATE, INGRESS_CONTROLLER, DEFAULT, why, CONTROLLERS_IN, body)
        return _made(write, None)
    nobody = IngressController(metadata=Metadata(name=DEFAULT, namespace=CONTROLLERS_IN))
    placed = place(ingress, infrastructure, nobody, nodes, configured=label)
    if not isinstance(placed, Placement):
        return Decision(placed.why)
    body["spec"] = {"replicas": placed.replicas}
    if placed.where is Where.WORKERS or len(placed.node_selector) > len(OS_LINUX):
        # Where control-plane nodes have different values of their label, only the defaults can select them.
        body["spec"]["nodePlacement"] = {"nodeSelector": {"matchLabels": dict(placed.node_selector)}}
    if placed.tolerations and "nodePlacement" in body["spec"]:
        body["spec"]["nodePlacement"]["tolerations"] = [dict(toleration) for toleration in placed.tolerations]
    why = f"there is none; the defaults decide {placed.where} with {count(placed.replicas or 0, 'replica')}"
    write = Write(Verb.CREATE, INGRESS_CONTROLLER, DEFAULT, why, CONTROLLERS_IN, body)
    return _made(write, placed)


def _made(write: Write, placed: Placement | None) -> Decision:
    sentence = f"The default IngressController is made: {write.why}."
    return Decision(sentence, (write,), (EventNote("Normal", "DefaultControllerMade", sentence),), placement=placed)


def _mark(ingress: IngressConfig, mark: BackfillMark, why: str) -> Decision:
    return _patch(ingress, {"metadata": {"annotations": {BACKFILL: str(mark)}}}, why)


def _patch(ingress: IngressConfig, body: dict[str, Any], why: str, subresource: str | None = None) -> Decision:
    version = {"resourceVersion": ingress.metadata.resource_version}
    body = {**body, "metadata": {**body.get("metadata", {}), **version}}
    sentence = f"{why[0].upper()}{why[1:]}."
    notices = (EventNote("Normal", "DefaultPlacementFilledIn", sentence),) if subresource else ()
    write = Write(Verb.PATCH, INGRESS, CLUSTER, why, body=body, subresource=subresource)
    return Decision(sentence, (write,), notices, NEXT_STEP_SECONDS)
