"""Keeps the admission policies of the scoped DaemonSets as they ought to be, and takes ours away that nobody needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hostler.fleet.model import ScopedDaemonSet
from hostler.kube.client import How
from hostler.kube.kinds import Kind
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.platform.model import BINDING, MANAGER, POLICY, PolicySpec
from hostler.platform.policy import LABELS, PREFIX, as_wanted, manifests
from hostler.platform.scope import words


class PolicyKeeper:
    """The policy first, then its binding: a binding without its policy would say nothing."""

    def __init__(self, policies: Watch[PolicySpec], bindings: Watch[PolicySpec], writer: Writer) -> None:
        self._policies = policies
        self._bindings = bindings
        self._writer = writer

    async def keep(self, targets: Sequence[ScopedDaemonSet]) -> None:
        """Write what differs; a second look writes nothing."""
        if self._policies.absent or self._bindings.absent:
            return
        wanted = manifests(targets)
        why = f"every write of {len(targets)} DaemonSets gets the rule ({words(targets[0])})" if targets else ""
        for one in wanted:
            await self._apply(POLICY, self._policies, one.name, one.policy, why)
            await self._apply(BINDING, self._bindings, one.name, one.binding, why)
        known = {one.name for one in wanted}
        for kind, watch in ((BINDING, self._bindings), (POLICY, self._policies)):
            for found in watch.store:
                meta = found.metadata
                ours = meta.name.startswith(PREFIX) and LABELS.items() <= meta.labels.items()
                if ours and meta.name not in known and not meta.deletion_timestamp:
                    await self._writer.delete(
                        kind, meta.name, uid=meta.uid, why="no DaemonSet needs this rule any more"
                    )

    async def _apply(self, kind: Kind, watch: Watch[PolicySpec], name: str, spec: Mapping[str, Any], why: str) -> None:
        there = watch.store.get(name)
        if there is not None and as_wanted(there.spec, spec) and as_wanted(there.metadata.labels, LABELS):
            return
        body = {"metadata": {"name": name, "labels": dict(LABELS)}, "spec": spec}
        written = await self._writer.patch(
            kind, name, body, type=PolicySpec, why=why, how=How.APPLY, manager=MANAGER, force=True
        )
        if written is not None:
            watch.store.overlay(written)
