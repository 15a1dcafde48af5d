"""Caches filled by hand and vCenters that were heard just now: the real ones, with nothing running."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from hostler.drain import model as drain
from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources
from hostler.host.ceiling import DEFAULT, OutOfService, room_of
from hostler.instant import Instant
from hostler.kube import kinds
from hostler.kube.client import Client
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.records import (
    Metadata,
    Node,
    NodeInfo,
    NodeSpec,
    NodeStatus,
    Pod,
    PodDisruptionBudget,
    VolumeAttachment,
    Workload,
)
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.maintenance.controller import MaintenanceController
from hostler.maintenance.executor import ActionExecutor
from hostler.maintenance.identities import ConfigMap, Identities, Marks
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import Policy
from hostler.maintenance.observe import Observer
from hostler.maintenance.status import MaintenanceMetrics
from hostler.vsphere.decode import Change
from hostler.vsphere.endpoints import Endpoint
from hostler.vsphere.inventory import Batch
from hostler.vsphere.metrics import Metrics as VCenterMetrics
from hostler.vsphere.records import ENTER_MAINTENANCE, Host, Place, Task, Vm
from hostler.vsphere.session import Link, Standing
from hostler.vsphere.vcenter import VCenter
from tests.unit.nowhere import Nowhere

NOW = 1_700_000_000.0
LABEL = "gpu"
UUIDS = [f"4206e4b5-0d3a-1d0f-86a1-2c1b6d9a000{n}" for n in range(9)]


def _act_never() -> AbstractContextManager[None]:
    raise AssertionError("nothing is done")


class Yard:
    """Caches filled by hand, and a vCenter that was heard just now; nothing is running."""

    def __init__(self, *vcenters: str, by_uuid: bool = False) -> None:
        metrics, registry = Metrics(), CollectorRegistry()
        client = Client(Nowhere())
        measured = VCenterMetrics(registry)
        self.nodes = Watch(client, kinds.NODE, Node, metrics=metrics)
        self.vcenters = {name: VCenter(Endpoint(name), measured, clock=lambda: NOW) for name in vcenters or ("vc",)}
        self.client = client
        self.sources = sources = Sources(
            Watch(client, kinds.POD, Pod, metrics=metrics, indexes=POD_INDEXES),
            Watch(client, kinds.POD_DISRUPTION_BUDGET, PodDisruptionBudget, metrics=metrics),
            Watch(client, kinds.VOLUME_ATTACHMENT, VolumeAttachment, metrics=metrics, indexes=ATTACHMENT_INDEXES),
            Watch(client, kinds.DAEMON_SET, Workload, metrics=metrics),
        )
        self.config = Watch(client, kinds.CONFIG_MAP, ConfigMap, metrics=metrics)
        writer = cast(Writer, None)  # looking writes nothing
        self.memory = Memory()
        marks = Marks(self.config, writer, "hostler")
        self.identities = Identities(self.nodes, self.vcenters, marks, by_uuid=by_uuid)
        out = OutOfService(self.nodes.store)
        self.observer = Observer(
            self.identities, sources, self.memory, LABEL,
            lambda also, touched: room_of(out.count(), DEFAULT, also, touched),
        )  # fmt: skip
        for watch in (self.nodes, self.config):
            watch.store.begin_sync()
            watch.store.end_sync(0)
        self.nodes.heard = self.nodes._clock()
        for vcenter in self.vcenters.values():
            vcenter.link, vcenter.heard = Link(Standing.CONNECTED, "connected", NOW), NOW
            vcenter.inventory.complete = True
        self._version = 0

    def executor(self, bug: Callable[[], None] = lambda: None) -> ActionExecutor:
        """One that writes nowhere and leaves out Events."""
        recorder = cast(Recorder, SimpleNamespace(event=lambda *words, **more: None))
        measured = MaintenanceMetrics(CollectorRegistry(), bug)
        writer = cast(Writer, None)
        return ActionExecutor(
            self.observer, writer, recorder, measured, lambda: None, drain.Policy(), clock=lambda: NOW
        )

    def controller(self, bug: Callable[[], None] = lambda: None) -> MaintenanceController:
        """One that only looks. `bug` counts what nobody foresaw."""
        return MaintenanceController(
            self.client, self.observer, self.executor(bug), Policy(), acting=_act_never, clock=lambda: NOW
        )

    def node(
        self, name: str, uuid: str = "", *, labelled: bool = True, annotations: dict[str, str] | None = None
    ) -> None:
        self._version += 1
        self.nodes.store.put(
            Node(
                metadata=Metadata(
                    name=name, uid=name, resource_version=str(self._version), annotations=annotations or {},
                    labels={LABEL: "yes"} if labelled else {},
                ),
                spec=NodeSpec(provider_id=f"vsphere://{uuid}" if uuid else ""),
                status=NodeStatus(node_info=NodeInfo(boot_id="b")),
            )
        )  # fmt: skip

    def put(self, kind: Any, moref: str, /, vcenter: str = "vc", **fields: Any) -> None:
        self.push(vcenter, Change(kind, moref, fields))

    def vm(self, name: str, uuid: str = "", vcenter: str = "vc", **fields: Any) -> None:
        known: dict[str, Any] = {
            "name": name,
            "uuid": uuid,
            "host": "h1",
            "power": "poweredOn",
            "connection": "connected",
        }
        known |= {"datastores": ("ds",), **fields}
        self.put(Vm, f"vm-{name}-{uuid[-1:]}", vcenter=vcenter, **known)

    def host(self, moref: str = "h1", vcenter: str = "vc", **fields: Any) -> None:
        known = {"name": moref, "connection": "connected", "in_maintenance": False, "datastores": ("ds",), **fields}
        self.put(Host, moref, vcenter=vcenter, **known)
        self.put(Place, "ds", vcenter=vcenter, name="ds", accessible=True, cut_off=())

    def enter(self, host: str = "h1", vcenter: str = "vc") -> None:
        known = {"kind": ENTER_MAINTENANCE, "state": "running", "entity": host}
        self.push(vcenter, Change(Task, f"task-{host}", known))

    def push(self, vcenter: str, *changes: Change, at: Instant = NOW) -> None:
        """vCenter says that something changed."""
        self.vcenters[vcenter]._take(Batch(changes, at))

    def seen(self, also: str = "") -> list[str]:
        return [one.name for one in self.observer.world(NOW, also).subjects]
