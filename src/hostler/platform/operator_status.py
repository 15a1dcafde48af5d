"""Writes the conditions to a ClusterOperator of ours, where the cluster knows that kind (OpenShift)."""

from __future__ import annotations

from collections.abc import Sequence

from hostler import __version__
from hostler.host.conditions import Condition
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.platform.conditions import TYPES
from hostler.platform.model import ClusterOperator

NAME = "hostler-platform"


class OperatorStatusKeeper:
    """One object, made if it is missing; written only when a condition says something else than before."""

    def __init__(self, operators: Watch[ClusterOperator], writer: Writer) -> None:
        self._operators = operators
        self._writer = writer

    async def keep(self, conditions: Sequence[Condition]) -> None:
        if self._operators.absent or NAME in self._operators.store.unreadable:
            return
        shown = [one for one in conditions if one.type in TYPES]
        there = self._operators.store.get(NAME)
        if there is None:
            body = {"metadata": {"name": NAME}, "spec": {}}
            there = await self._operators.create(self._writer, body, why="it says how we are")
            if there is None:
                return
        said = [(one.type, one.status, one.reason, one.message) for one in there.status.conditions or ()]
        if said == [(one.type, str(one.status), one.reason, one.message) for one in shown]:
            return
        listed = [
            {
                "type": one.type,
                "status": str(one.status),
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": one.last_transition_time,
            }
            for one in shown
        ]
        status = {"conditions": listed, "versions": [{"name": "operator", "version": __version__}]}
        await self._operators.patch(
            self._writer, NAME, {"status": status}, why="a condition changed", subresource="status"
        )
