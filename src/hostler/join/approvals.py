"""What is written to let nodes in: first whom we let in, many at once, then the approval of each request. Pure.

Invariant: no client certificate is approved before our memory of it is written; a machine is let in once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hostler.host.conditions import count, cut, names
from hostler.host.facts import Known
from hostler.instant import Instant, iso
from hostler.join.decide import decide
from hostler.join.model import SIGNING_REQUEST, USED, Act, Facts, Policy, SigningRequest, Use, Verdict
from hostler.join.shape import Misshapen, Shape
from hostler.kube.kinds import CONFIG_MAP, Kind

BATCH = 200  # hosts remembered in one patch
REMEMBERED_SECONDS = 30 * 86400.0  # a host let in longer ago than this, whom nobody expects, is forgotten
AGAIN_SECONDS = 60.0


class Verb(StrEnum):
    CREATE = "create"
    PATCH = "patch"
    APPROVE = "approve"


@dataclass(frozen=True, slots=True)
class Write:
    """One write, as data. `lines` of our memory: None takes one away."""

    verb: Verb
    kind: Kind
    name: str
    why: str
    lines: Mapping[str, Use | None] = field(default_factory=dict)
    request: SigningRequest | None = None  # as it was judged
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Approvals, and what must be remembered before any of them; None: nothing, or it is remembered already."""

    memory: Write | None
    approvals: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about every pending request, in one pass."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # by name of the request
    batches: tuple[Batch, ...] = ()
    wake: float | None = None

    def writes_about(self, csr: str) -> tuple[Write, ...]:
        """What is written to approve one request."""
        for batch in self.batches:
            for approval in batch.approvals:
                if approval.name == csr:
                    lines = batch.memory.lines if batch.memory is not None else {}
                    remembered = batch.memory is not None and self.verdicts[csr].node in lines
                    return (batch.memory, approval) if remembered and batch.memory is not None else (approval,)
        return ()


def decide_approvals(
    requests: Sequence[SigningRequest],
    facts: Facts,
    policy: Policy,
    now: Instant,
    shapes: Mapping[str, Shape | Misshapen] | None = None,
    *,
    remembers: bool = True,
) -> Decision:
    """Judge every request and plan the approvals. `remembers`: our ConfigMap is there."""
    verdicts = decide(requests, facts, policy, now, shapes)
    judged = {one.metadata.name: one for one in requests}
    # Without our memory nothing says that a host was not let in before; `decide` has a rule for that too.
    due = [one for one in verdicts if one.act is Act.APPROVE and (one.serving or isinstance(facts.used, Known))]
    batches = []
    for start in range(0, len(due), BATCH):
        batch = due[start : start + BATCH]
        memory = _memory(batch, facts, now, create=not remembers)
        remembers = remembers or memory is not None
        batches.append(Batch(memory, tuple(_approval(one, judged[one.csr]) for one in batch)))
    waiting = any(one.act is Act.WAIT or (one.act is Act.LEAVE and one.serving) for one in verdicts)
    return Decision({one.csr: one for one in verdicts}, tuple(batches), AGAIN_SECONDS if waiting else None)


def _approval(verdict: Verdict, request: SigningRequest) -> Write:
    return Write(Verb.APPROVE, SIGNING_REQUEST, verdict.csr, verdict.why, request=request, verdict=verdict)


def _memory(verdicts: Iterable[Verdict], facts: Facts, now: Instant, *, create: bool) -> Write | None:
    """The lines of hosts that are about to come in; those of hosts long in, whom nobody expects, go."""
    used = facts.used.value if isinstance(facts.used, Known) else {}
    new = {
        one.node: Use(one.csr, one.uid, one.created)
        for one in verdicts
        if not one.serving and ((before := used.get(one.node)) is None or before.uid != one.uid)
    }
    if not new:
        return None
    # An invitation may last longer than our memory does: a host that is expected is not forgotten.
    expected = facts.invited.value if isinstance(facts.invited, Known) else used
    old = {
        name: None for name, use in used.items() if now - use.at > REMEMBERED_SECONDS and name not in expected
    }  # fmt: skip
    why = f"{count(len(new), 'host')} let in: {names(new)}"
    lines: dict[str, Use | None] = {**({} if create else old), **new}
    return Write(Verb.CREATE if create else Verb.PATCH, CONFIG_MAP, USED, why, lines=lines)


def approval_body(request: SigningRequest, why: str, now: Instant) -> dict[str, Any]:
    """The patch of the approval subresource; with the version that was judged, so it cannot land on another."""
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "HostlerJoin",
        "message": cut(why),
        "lastUpdateTime": iso(now),
    }
    about = {"uid": request.metadata.uid, "resourceVersion": request.metadata.resource_version}
    return {"metadata": about, "status": {"conditions": [condition]}}
