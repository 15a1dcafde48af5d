"""The capability as the operator sees it: its vCenters, its controller, what wakes it, what it explains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web

from hostler.capability import Capability
from hostler.explain.read_api import answer
from hostler.explain.registry import Registry
from hostler.kube.client import Gate
from hostler.kube.http import Server
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.records import Node, Pod
from hostler.kube.watch import Watch
from hostler.maintenance import settings as setting
from hostler.maintenance.controller import KEY, MaintenanceController, concerns_decisions
from hostler.maintenance.executor import ActionExecutor
from hostler.maintenance.explain import MaintenanceExplainers
from hostler.maintenance.host_layers import VSphereSource
from hostler.maintenance.identities import CONFIG_MAP_NAME, ConfigMap, Identities, Marks
from hostler.maintenance.machines import Machines, NodeMachines
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import Policy
from hostler.maintenance.observe import Observer
from hostler.maintenance.status import MaintenanceMetrics
from hostler.safety.pauses import PauseEnd
from hostler.settings.foundation import NAMESPACE
from hostler.shared import Shared
from hostler.vsphere.records import ENTER_MAINTENANCE, Host, Task
from hostler.vsphere.settings import POLL_INTERVAL_SECONDS
from hostler.vsphere.vcenter import VCenter

# Pods change in bursts; a moment later the picture is the same for all of them.
SOON = 0.05


class MaintenanceCapability(Capability):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        client, settings, metrics = shared.client, shared.settings, shared.metrics
        nodes, sources, vcenters = shared.nodes, shared.sources, shared.vcenters
        writer, guard = shared.writers.of("maintenance"), shared.writers.guard
        gate, last_pause = guard.gate_for("maintenance"), PauseEnd(guard.pause, shared.fleet.store)
        namespace = settings[NAMESPACE]
        self._marks = Watch(
            client,
            CONFIG_MAP,
            ConfigMap,
            metrics=metrics,
            namespace=namespace,
            fields=f"metadata.name={CONFIG_MAP_NAME}",
        )
        measured = MaintenanceMetrics(metrics.registry, lambda: metrics.loop_failed("maintenance"))
        marks = Marks(self._marks, writer, namespace)
        self._machines = NodeMachines(client, metrics)
        self._identities = identities = Identities(
            nodes, {vcenter.name: vcenter for vcenter in vcenters}, marks, self._machines,
            by_uuid=settings[setting.VM_IDENTITY] == setting.BY_UUID,
        )  # fmt: skip
        observer = Observer(
            identities, sources, Memory(), settings[setting.GPU_NODE_LABEL], shared.ceiling,
            lambda now: max(last_pause.ended(now), shared.stepped(now)),
        )  # fmt: skip
        executor = ActionExecutor(
            observer, writer, shared.recorder, measured, gate, shared.drain, machines=Machines(client, writer)
        )
        self.maintenance = MaintenanceController(client, observer, executor, _policy_of(shared), acting=shared.acting)
        self.controller = self.add_controller("maintenance", self.maintenance.reconcile)
        self.maintenance.queue = self.controller.queue
        self._explainers = MaintenanceExplainers(self.maintenance, gate, lambda: guard.blocked("maintenance"))

    def watches(self) -> Iterator[Watch[Any]]:
        yield self._marks
        yield from self._machines.watches()

    async def finish(self) -> None:
        await self.maintenance.stop()

    # -- what it says

    def register(self, registry: Registry, gate: Gate) -> None:
        self._explainers.register(registry)

    def host_source(self, cluster: str) -> VSphereSource:
        return VSphereSource(self._identities, cluster, self._explainers.esxi_hosts)

    def serve(self, server: Server, notes: Callable[[], tuple[str, ...]]) -> None:
        async def status(_: web.Request) -> web.Response:
            return answer(self._explainers.status(notes()))

        server.add_get("/v1/maintenance", status)

    # -- what wakes it

    def led(self, held: bool) -> None:
        self.maintenance.led(held)

    def wake_all(self) -> None:
        self.maintenance.try_now()

    def listen(self) -> None:
        for vcenter in self.shared.vcenters:
            vcenter.listen(lambda changed, vcenter=vcenter: self._vcenter_changed(vcenter, changed))  # type: ignore[misc]
        self.shared.nodes.store.listen(self._node_changed)
        self.shared.sources.pods.store.listen(self._pod_changed)
        self.shared.sources.attachments.store.listen(lambda *_: self._if_busy())
        self.shared.sources.budgets.store.listen(lambda *_: self._if_busy())
        self._marks.store.listen(lambda *_: self.wake_all())
        self._machines.listen(lambda _: self._soon())
        self.wake_all()

    def _vcenter_changed(self, vcenter: VCenter, changed: frozenset[str]) -> None:
        if not changed or any(self._matters(vcenter, moref) for moref in changed):
            self.controller.queue.add(KEY, priority=0)

    def _matters(self, vcenter: VCenter, moref: str) -> bool:
        """A host, a task that enters maintenance, or anything of a VM that is at hand; the rest of 5,000 VMs is not."""
        inventory = vcenter.inventory
        task: Task | None = inventory.task(moref)
        if task is not None:
            return task.kind == ENTER_MAINTENANCE or self.maintenance.at_hand(vcenter.name, task.entity)
        host: Host | None = inventory.host(moref)
        return host is not None or self.maintenance.at_hand(vcenter.name, moref) or inventory.vm(moref) is None

    def _node_changed(self, _: str, before: Node | None, after: Node | None) -> None:
        node = after or before
        if node is not None and self.maintenance.observer.is_managed(node) and concerns_decisions(before, after):
            self.controller.queue.add(KEY, priority=0)

    def _pod_changed(self, _: str, before: Pod | None, after: Pod | None) -> None:
        for pod in (before, after):
            if pod is not None and self.maintenance.is_subject(pod.spec.node_name):
                self._soon()

    def _soon(self) -> None:
        """With a hundred nodes draining a pass takes a while: then pods wait longer for the next, and tasks do not."""
        self.controller.queue.add(KEY, after=max(SOON, 2 * self.maintenance.seconds))

    def _if_busy(self) -> None:
        if self.maintenance.subjects:
            self._soon()


def _policy_of(shared: Shared) -> Policy:
    settings = shared.settings
    return Policy(
        drain=shared.drain,
        max_drains=settings[setting.MAX_CONCURRENT_DRAINS],
        guest_shutdown=settings[setting.GUEST_SHUTDOWN_TIMEOUT_SECONDS],
        power_on=settings[setting.POWER_ON_TIMEOUT_SECONDS],
        relocate=settings[setting.RELOCATE_TIMEOUT_SECONDS],
        max_age=max(2 * settings[POLL_INTERVAL_SECONDS], 15.0),
        clusters=tuple(name for name in settings[setting.MAINTENANCE_CLUSTERS].split(",") if name),
        vgpu_vmotion=settings[setting.MAINTENANCE_VGPU_VMOTION],
        only_proven=settings[setting.MAINTENANCE_STOP_ONLY_PROVEN],
        skip_remediation=settings[setting.SKIP_REMEDIATION],
        unknown_rights_hold=settings[setting.UNKNOWN_RIGHTS_HOLD],
    )
