"""Holds of maintenance on nodes that have no state: released where all is well, else named with the command. Pure.

A person may have taken the state away, or held the node in the name of `maintenance`. Nothing else would ever end such
a hold, and the node would stay cordoned in silence.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.host.holds import HOLDS, MAINTENANCE, Hold, Refusal, held_by
from hostler.kube.records import Node
from hostler.maintenance.decision import BlockedBy, Decision, Phase, frozen, released, wait
from hostler.maintenance.model import STATE, Subject
from hostler.maintenance.view import View


def has_stray_hold(node: Node | None) -> bool:
    """It is held by maintenance, and has no state. Asked of every node in every pass: most have no hold at all."""
    if node is None or HOLDS not in node.metadata.annotations or STATE in node.metadata.annotations:
        return False
    return isinstance(held_by(node, MAINTENANCE), Hold)


def mend_command(node: str) -> str:
    return f"hostler release {node} --holder {MAINTENANCE}"


def name_stray_hold(subject: Subject, because: str) -> Decision:
    """We cannot tell that the node is well, so a person decides."""
    why = f"{subject.name} carries a hold of maintenance without a state: {because}"
    mend = f"if it is to be in service: {mend_command(subject.name)}"
    return wait(subject, None, Phase.HELD, why, mend, blocked=BlockedBy.STRAY_HOLD, details=mend)


def release_stray_hold(view: View) -> Decision:
    """The VM runs on a host in service: the hold goes once the node is known to be Ready by fresh evidence."""
    subject, known, host = view.subject, view.subject.remembered, view.host_name
    runs = f"VM {view.vm.name} runs on {host}"
    if (until := view.settled(view.vm.host)) is not None:
        why = f"{subject.name} carries a hold of maintenance without a state, and {host} seems to be in service"
        return wait(subject, None, Phase.SETTLING, why, "if that lasts, the hold is released", wake=until)
    if not subject.ready:
        return name_stray_hold(subject, f"{runs}, but the node is not Ready")
    if not (known.reported or known.alive):
        why = f"{subject.name} carries a hold of maintenance without a state, and seems to be well"
        nxt = "its kubelet shows that it is alive, then the hold is released"
        return replace(wait(subject, None, Phase.CHECKING, why, nxt), pulse=True)
    patch = released(view.node, f"{runs}, and no maintenance of {subject.name} is under way", "HoldReleased")
    if isinstance(patch, Refusal):
        return frozen(subject, None, patch.why)
    return Decision(subject.name, None, Phase.ENDING, patch.why, "it is in service again", patch)
