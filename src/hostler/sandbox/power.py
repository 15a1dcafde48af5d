"""The tie between VMs and nodes: a VM that is off has no kubelet.

A node is off while its VM is, or while annotation `sandbox.hostler.dev/power` says `off`. Off means the label that
takes it away from kwok: no heartbeat, no lease, nobody who ends its pods. Before a node comes back it gets a new boot
id, so that at no moment it is Ready with the old one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable

import aiohttp
import msgspec

from hostler.sandbox.follow import Meta, for_ever, lines, patch, say
from hostler.sandbox.parts import OFF_LABEL

POWER = "sandbox.hostler.dev/power"  # a person's wish
BOOTS = "sandbox.hostler.dev/boots"  # how often the VM behind the node had booted when its boot id was made


class NodeInfo(msgspec.Struct, rename="camel", frozen=True):
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeStatus(msgspec.Struct, rename="camel", frozen=True):
    node_info: NodeInfo = NodeInfo()


class Taint(msgspec.Struct, frozen=True):
    key: str
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True):
    taints: list[Taint] = []


class Node(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def off(self) -> bool:
        return self.metadata.labels.get(OFF_LABEL) == "off"


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    renew_time: str = ""


class Lease(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: LeaseSpec = LeaseSpec()


class Leases(msgspec.Struct, frozen=True):
    items: list[Lease]


class Vm(msgspec.Struct, frozen=True):
    """A line of the simulator's event stream."""

    type: str
    seq: int = 0
    vm: str = ""
    uuid: str = ""
    state: str = "poweredOff"
    boots: int = 0


def both_orders(value: str) -> tuple[str, str]:
    """A UUID as such and as SMBIOS writes it (the first three fields in the other byte order)."""
    try:
        known = uuid.UUID(value)
    except ValueError:
        return value, value
    return str(known), str(uuid.UUID(bytes_le=known.bytes))


class Power:
    """Keeps every node as its VM is."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._vms: dict[str, Vm] = {}  # by UUID
        self._names: dict[str, str] = {}  # VM name to UUID
        self.nodes: dict[str, Node] = {}
        self._dirty: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._doubted: set[str] = set()  # off, but kwok does not seem to know

    # -- what is known -------------------------------------------------------------------------------------------

    def listed(self, nodes: list[Node]) -> None:
        self.nodes = {node.metadata.name: node for node in nodes}
        self.touch(self.nodes)

    def changed(self, what: str, node: Node) -> None:
        name, known = node.metadata.name, self.nodes.get(node.metadata.name)
        if what == "DELETED":
            self.nodes.pop(name, None)
            return
        # An event from before our own last patch must not make us patch again.
        if known is None or node.metadata.version > known.metadata.version:
            self.nodes[name] = node
            self.touch([name])

    def vm_changed(self, vm: Vm) -> None:
        state = "poweredOff" if vm.type == "removed" else vm.state
        known = both_orders(vm.uuid)[0]
        before = self._vms.get(known)
        boots = before.boots if vm.type == "removed" and before else vm.boots
        self._vms[known] = msgspec.structs.replace(vm, state=state, boots=boots)
        self._names[vm.vm] = known
        self.touch(name for name, node in self.nodes.items() if self.vm_of(node) is self._vms[known])

    def vm_of(self, node: Node) -> Vm | None:
        """By system UUID in either byte order, else by name."""
        for known in both_orders(node.status.node_info.system_uuid):
            if vm := self._vms.get(known):
                return vm
        known_name = self._names.get(node.metadata.name)
        return self._vms.get(known_name) if known_name else None

    def touch(self, names: Iterable[str]) -> None:
        for name in list(names):
            if name not in self._waiting:
                self._waiting.add(name)
                self._dirty.put_nowait(name)

    # -- what is done --------------------------------------------------------------------------------------------

    async def follow_vcenter(self, control: str, synced: asyncio.Event) -> None:
        """The simulator's feed, for ever. While it is away, every VM stays as it was last seen."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=20)
        decode = msgspec.json.Decoder(Vm)
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def once() -> None:
                async with session.get(f"{control}/events") as answer:
                    answer.raise_for_status()
                    async for line in lines(answer):
                        event = decode.decode(line)
                        if event.type in ("power", "removed"):
                            self.vm_changed(event)
                        elif event.type == "synced":
                            synced.set()

            await for_ever("the vCenter simulator", once)

    async def work(self) -> None:
        """One node after the other: the order of on and off is the order of what was seen."""
        while True:
            name = await self._dirty.get()
            self._waiting.discard(name)
            if node := self.nodes.get(name):
                try:
                    await self._bring_in_line(node)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    say(f"node {name} could not be written: {error!r}; trying again")
                    await asyncio.sleep(0.5)
                    self.touch([name])

    async def guard(self, every: float) -> None:
        """See to it that kwok really let go of every node that is off.

        kwok watches from version 0 and never compares with a new list, so a node that is switched off while kwok is
        not connected stays alive for it. Its lease tells: one that moves gets the label anew, and kwok sees it go.
        """
        before: dict[str, str] = {}
        while True:
            await asyncio.sleep(every)
            off = {name for name, node in self.nodes.items() if node.off}
            try:
                leases = await self._leases() if off else {}
                for name in off:
                    if name in before and leases.get(name, before[name]) != before[name]:
                        self._doubted.add(name)  # written by the one worker, so that on and off stay in order
                        self.touch([name])
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                say(f"the leases could not be looked at: {error!r}; trying again")
                continue
            # Only what was off all the time between two looks can be judged by them.
            before = {name: leases[name] for name in off & leases.keys() if self.nodes[name].off}

    async def _leases(self) -> dict[str, str]:
        async with self._session.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases") as answer:
            answer.raise_for_status()
            found = msgspec.json.decode(await answer.read(), type=Leases)
        return {one.metadata.name: one.spec.renew_time for one in found.items}

    async def _bring_in_line(self, node: Node) -> None:
        if not node.metadata.labels:
            # kwok overlooks a node without any label, and for good: only one that comes into its sight anew is taken.
            labels = {"kubernetes.io/hostname": node.metadata.name, OFF_LABEL: "off"}
            await self._patch(node.metadata.name, {"metadata": {"labels": labels}})
            node = self.nodes[node.metadata.name]
        vm, name = self.vm_of(node), node.metadata.name
        off = node.metadata.annotations.get(POWER) == "off" or (vm is not None and vm.state == "poweredOff")
        boots = str(vm.boots) if vm else None
        recorded = node.metadata.annotations.get(BOOTS)
        doubted = name in self._doubted
        self._doubted.discard(name)
        if off:
            if doubted and node.off:
                say(f"kwok still renews the lease of node {name}, which is off: telling it again")
                await self._patch(name, {"metadata": {"labels": {OFF_LABEL: None}}})
                await self._patch(name, {"metadata": {"labels": {OFF_LABEL: "off"}}})
            elif not node.off:
                say(f"node {name} is off")
                await self._patch(name, {"metadata": {"labels": {OFF_LABEL: "off"}}})
            return
        if node.off or (boots and recorded and boots != recorded):
            boot_id = str(uuid.uuid4())
            say(f"node {name} is on, boot id {boot_id}")
            await self._patch(name, {"status": {"nodeInfo": {"bootID": boot_id}}}, "/status")
        if node.off or boots != recorded:
            await self._patch(name, {"metadata": {"labels": {OFF_LABEL: None}, "annotations": {BOOTS: boots}}})

    async def _patch(self, name: str, body: object, subresource: str = "") -> None:
        answer = await patch(self._session, f"/api/v1/nodes/{name}{subresource}", body)
        if answer is not None:
            self.nodes[name] = msgspec.json.decode(answer, type=Node)
            # What somebody else changed before our patch came with the answer, and no newer event will tell of it.
            self.touch([name])
