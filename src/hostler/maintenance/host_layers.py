"""VMs and ESXi hosts as layers of the picture, and which node each VM is.

Every ESXi host is shown, and the VMs that concern us: those that are a node, or may be one, or carry our mark. Which
node a VM is comes from `identities`: what is in doubt there is a note here and never a link.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from hostler.explain.registry import Explanation
from hostler.host.conditions import names
from hostler.host.facts import Fact, Known, Unknown
from hostler.inventory.model import Layer, LayerKind, Line, Where, esxi_key, node_key, vm_key
from hostler.inventory.operations import EsxiName, ExplainEsxi
from hostler.inventory.sources import Source
from hostler.inventory.states import HostState
from hostler.maintenance.identities import Found, Identities, VmId
from hostler.maintenance.model import InDoubt
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Host, Vm

ON = "poweredOn"


class VSphereSource(Source):
    def __init__(self, identities: Identities, cluster: str, explain: ExplainEsxi) -> None:
        self._vcenters, self._identities, self._cluster = identities.vcenters, identities, cluster
        self._explain = explain
        self._listeners: list[Callable[[], None]] = []
        self._changed: set[VmId] = set()  # ids of hosts and VMs
        self._keys: dict[VmId, str] = {}  # of what was shown last
        self._objects: dict[str, VmId] = {}  # the other way round
        self._vm_of: dict[str, VmId] = {}  # by node
        self._nodes_of: dict[VmId, dict[str, str]] = {}  # by VM: nodes, with the doubt ("" where there is none)
        for name, vcenter in identities.vcenters.items():
            self._changed |= {(name, host.moref) for host in vcenter.inventory.hosts()}
            vcenter.listen(lambda changed, name=name: self._vcenter_changed(name, changed))  # type: ignore[misc]
        self._take_judged = identities.follow(self._wake)

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def take(self) -> Mapping[str, Layer | None]:
        for node in self._take_judged():
            self._link(node)
        changed, self._changed = self._changed, set()
        layers: dict[str, Layer | None] = {}
        for vm_id in changed:
            layer = self._layer_of(vm_id)
            before = self._keys.pop(vm_id, "")
            if before and (layer is None or layer.key != before) and self._objects.get(before) == vm_id:
                self._objects.pop(before, None)
                layers.setdefault(before, None)
            if layer is not None:
                self._keys[vm_id], self._objects[layer.key] = layer.key, vm_id
                layers[layer.key] = layer
        return layers

    def running_vms(self, key: str) -> Fact[tuple[str, ...]] | None:
        if (found := self._objects.get(key)) is None:
            return None
        vcenter, host = found
        facts = self._vcenters[vcenter].facts()
        if isinstance(facts, Unknown):
            return facts
        inventory, vms = facts.value, facts.value.vms_on(host)
        known = inventory.host(host)
        if known is None or known.connection != "connected":
            return Unknown("vCenter does not hear from the ESXi host")
        if inventory.missing:
            return Unknown("vCenter does not show every object to Hostler")
        if unsure := [vm.name for vm in vms if not vm.power]:
            return Unknown(f"vCenter has not reported the power state of {names(unsure)}")
        return Known(tuple(vm.name for vm in vms if vm.power == ON), facts.at)

    def explain_esxi(self, hosts: Collection[EsxiName]) -> Mapping[EsxiName, Explanation]:
        return self._explain(hosts)

    # -- what changed

    def _vcenter_changed(self, vcenter: str, changed: frozenset[str]) -> None:
        inventory = self._vcenters[vcenter].inventory
        for moref in changed:
            task = inventory.task(moref)
            key = (vcenter, task.entity if task is not None else moref)
            if key in self._keys or inventory.host(key[1]) is not None or inventory.vm(key[1]) is not None:
                self._changed.add(key)
        if not changed:  # the connection came or went: every layer of it says so
            self._changed |= {key for key in self._keys if key[0] == vcenter}
        self._wake()

    def _wake(self) -> None:
        for listener in self._listeners:
            listener()

    def _link(self, node: str) -> None:
        found, vm, doubt = self._identities.of(node), None, ""
        if isinstance(found, Found):
            vm = (found.vcenter, found.moref)
        elif isinstance(found, InDoubt):
            vm, doubt = found.vm, f"Node {node} may be it, without proof: {found.why}."
        before = self._vm_of.pop(node, None)
        if before is not None:
            self._nodes_of[before].pop(node, None)
            self._changed.add(before)
        if vm is not None:
            self._vm_of[node] = vm
            self._nodes_of.setdefault(vm, {})[node] = doubt
            self._changed.add(vm)

    # -- layers

    def _layer_of(self, vm_id: VmId) -> Layer | None:
        name, moref = vm_id
        inventory = self._vcenters[name].inventory
        if (host := inventory.host(moref)) is not None:
            return self._esxi_layer(name, inventory, host)
        if (vm := inventory.vm(moref)) is not None and not vm.template:
            nodes = self._nodes_of.get(vm_id, {})
            if nodes or self._identities.is_marked(vm_id):
                return self._vm_layer(name, inventory, vm, nodes)
        return None

    def _esxi_layer(self, vcenter: str, inventory: Inventory, host: Host) -> Layer:
        return Layer(
            esxi_key(vcenter, host.uuid or host.moref), LayerKind.ESXI, host.name, (esxi_line(inventory, host),),
            where=Where(vcenter=vcenter, compute_cluster=inventory.name(host.cluster), esxi=host.name),
            problems=self._away(vcenter),
        )  # fmt: skip

    def _vm_layer(self, vcenter: str, inventory: Inventory, vm: Vm, nodes: Mapping[str, str]) -> Layer:
        host = inventory.host(vm.host)
        problems = [] if vm.connection in ("", "connected") else [f"vCenter reports the VM as {vm.connection}."]
        return Layer(
            vm_key(vcenter, vm.instance_uuid or vm.moref), LayerKind.VM, vm.name, vm_lines(vm),
            where=Where(
                vcenter=vcenter, compute_cluster=inventory.name(host.cluster) if host is not None else "",
                esxi=host.name if host is not None else "",
            ),
            problems=(*problems, *self._away(vcenter)),
            same_as=tuple(node_key(self._cluster, node) for node, doubt in nodes.items() if not doubt),
            doubts=tuple(doubt for doubt in nodes.values() if doubt),
            under=esxi_key(vcenter, host.uuid or host.moref) if host is not None else "",
        )  # fmt: skip

    def _away(self, vcenter: str) -> tuple[str, ...]:
        facts = self._vcenters[vcenter].facts()
        return (f"Its facts may be old: {facts.why}.",) if isinstance(facts, Unknown) else ()


def vm_lines(vm: Vm) -> tuple[Line, ...]:
    """A VM that runs says nothing of its own: its node does."""
    if vm.power == ON:
        return (Line("vsphere", HostState.PROVISIONED, "vCenter reports that the VM runs."),)
    if vm.power:
        return (Line("vsphere", HostState.STOPPED, f"vCenter reports the VM as {vm.power}."),)
    return (Line("vsphere", HostState.UNKNOWN, "vCenter has not reported the power state of the VM."),)


def esxi_line(inventory: Inventory, host: Host) -> Line:
    if host.connection == "notResponding":
        return Line("vsphere", HostState.FAILED, "It does not respond to vCenter.")
    if host.connection != "connected":
        return Line("vsphere", HostState.UNKNOWN, f"vCenter reports it as {host.connection or 'not read yet'}.")
    if (entering := inventory.entering(host.moref)) is not None:
        return Line("vsphere", HostState.DRAINING, "It enters maintenance mode.", entering.since, mid_step=True)
    match host.in_maintenance:
        case Unknown(why):
            return Line("vsphere", HostState.UNKNOWN, f"Cannot tell whether it is in maintenance mode: {why}.")
        case True:
            return Line("vsphere", HostState.HELD, "It is in maintenance mode.")
        case _ if host.power == "standBy":
            return Line("vsphere", HostState.STOPPED, "It is in standby.")
        case _:
            return Line("vsphere", HostState.IN_SERVICE, "It is connected and not in maintenance mode.")
