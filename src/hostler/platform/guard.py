"""Keeps what guards the scoped DaemonSets: the admission policies, and OpenShift's ClusterCSIDriver where asked to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hostler.apis.fleet import ScopedDaemonSet
from hostler.host.conditions import names
from hostler.kube.client import How
from hostler.kube.events import Recorder
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.platform.driver import DriverVerdict, decide_driver
from hostler.platform.model import (
    CLUSTER_CSI_DRIVER,
    CSI_DRIVER,
    MANAGER,
    CsiDriver,
    PolicySpec,
)
from hostler.platform.policy import LABELS, PREFIX, as_wanted, manifests
from hostler.platform.targets import key_of_target


class PolicyKeeper:
    """The policy first, then its binding: a binding without its policy would say nothing. Ours that nobody needs go."""

    def __init__(self, policies: Watch[PolicySpec], bindings: Watch[PolicySpec], writer: Writer) -> None:
        self._policies = policies
        self._bindings = bindings
        self._writer = writer

    async def keep(self, entries: Sequence[ScopedDaemonSet], held: Collection[str] = ()) -> None:
        """Write what differs; a second look writes nothing. `held`: keys of DaemonSets the rule is kept from."""
        if self._policies.absent or self._bindings.absent:
            return
        wanted = manifests(entries, held)
        why = f"every write of {names(map(key_of_target, entries))} gets its rule"
        for one in wanted:
            await self._apply(self._policies, one.name, one.policy, why)
            await self._apply(self._bindings, one.name, one.binding, why)
        known = {one.name for one in wanted}
        for watch in (self._bindings, self._policies):
            for found in watch.store:
                meta = found.metadata
                ours = meta.name.startswith(PREFIX) and LABELS.items() <= meta.labels.items()
                if ours and meta.name not in known and not meta.deletion_timestamp:
                    await self._writer.delete(
                        watch.kind, meta.name, uid=meta.uid, why="no DaemonSet needs this rule any more"
                    )

    async def _apply(self, watch: Watch[PolicySpec], name: str, spec: Mapping[str, Any], why: str) -> None:
        there = watch.store.get(name)
        if there is not None and as_wanted(there.spec, spec) and as_wanted(there.metadata.labels, LABELS):
            return
        body = {"metadata": {"name": name, "labels": dict(LABELS)}, "spec": spec}
        await watch.patch(self._writer, name, body, why=why, how=How.APPLY, manager=MANAGER, force=True)


class DriverKeeper:
    """Sets the ClusterCSIDriver Unmanaged while that is wanted, and back: beside an operator at work, only back."""

    def __init__(
        self, drivers: Watch[CsiDriver], writer: Writer, back: Writer, recorder: Recorder, displaced: Callable[[], bool]
    ) -> None:
        self._drivers, self._writer, self._back, self._recorder = drivers, writer, back, recorder
        self._displaced = displaced

    def verdict(self, wanted: bool | None) -> DriverVerdict:
        """`wanted` is None where that is not known: then it stays as it is."""
        why = self._drivers.store.unreadable.get(CSI_DRIVER)
        if why is not None:
            return DriverVerdict(None, f"its ClusterCSIDriver cannot be read ({why})")
        if self._displaced():
            wanted = False
        if wanted is None:
            return DriverVerdict(None, "its ClusterCSIDriver stays as it is, because its DaemonSet cannot be read")
        return decide_driver(self._drivers.store.get(CSI_DRIVER), wanted=wanted)

    async def keep(self, wanted: bool | None) -> None:
        verdict = self.verdict(wanted)
        if verdict.patch is None:
            return
        writer = self._back if verdict.back else self._writer
        written = await self._drivers.patch(writer, CSI_DRIVER, verdict.patch, why=verdict.why)
        if written is not None:
            reason = "ManagedAgain" if verdict.back else "Unmanaged"
            self._recorder.event(CLUSTER_CSI_DRIVER, written.metadata, "Normal", reason, "Manage", f"{verdict.why}.")
