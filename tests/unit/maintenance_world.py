"""A small world for maintenance, in memory and with its own clock: hosts, VMs, nodes, pods, and a hand that acts.

The inventory is the real one, the decisions are the real ones; only what vCenter, the API server and the kubelets
would do is played here, in its simplest form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import msgspec

from hostler.drain import model as drain
from hostler.host.ceiling import DEFAULT, room
from hostler.host.facts import Fact, Known, Unknown
from hostler.kube.records import (
    Condition,
    Metadata,
    Node,
    NodeInfo,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    Pod,
    PodMetadata,
    PodPhase,
    PodSpec,
    PodStatus,
    Taint,
)
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import (
    CancelTask,
    Decision,
    Evictions,
    Pass,
    PatchNode,
    PowerOff,
    PowerOn,
    Relocate,
    SetMark,
    ShutDown,
    TellMachine,
)
from hostler.maintenance.hosts import HostMode, Restart, judge_host, judge_restart
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import (
    RELOCATE_SINCE,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    Attempts,
    Lacks,
    Mark,
    Marked,
    Policy,
    Site,
    State,
    Subject,
    World,
)
from hostler.vsphere.decode import Change
from hostler.vsphere.inventory import Batch, Inventory
from hostler.vsphere.records import ENTER_MAINTENANCE, Backing, Cluster, Host, Pci, Place, Task, Vm, VmDevice

VC = "vc"
GPU = "8086:56c0"
NOW = 1_700_000_000.0
BEATS = 4  # a kubelet says Ready anew with so many renewals of its lease
NEVER = float("inf")
NO_DEVICE = "CPU, memory or a device is not free (InsufficientResourcesFault)"
STALE_SECONDS = 40.0  # so long a node is called Ready though its kubelet is gone
DYNAMIC = VmDevice(Backing.DYNAMIC, allowed=(GPU,))


def hardware(host: str) -> str:
    """The UUID of a host's hardware."""
    return str(uuid5(NAMESPACE_DNS, host))


def fixed(address: str = "0000:00:00.0") -> VmDevice:
    return VmDevice(Backing.FIXED, address, (GPU,))


@dataclass
class Play:
    """The world and the hand. `tick` is one pass with what follows from it, and a second of time."""

    policy: Policy = field(default_factory=lambda: Policy(drain=drain.Policy(timeout=30.0), guest_shutdown=5.0))
    now: float = NOW
    inventory: Inventory = field(default_factory=Inventory)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)  # pods left per node
    stuck: set[str] = field(default_factory=set)  # nodes whose pods cannot be evicted
    stubborn: set[str] = field(default_factory=set)  # VMs whose guest does not shut down
    marks: dict[str, Mark] = field(default_factory=dict)
    failing: dict[str, int] = field(default_factory=dict)  # VM: power-ons that still fail
    memory: Memory = field(default_factory=Memory)  # what a restart loses
    rights: dict[str, Any] = field(default_factory=dict)  # by id: what our user lacks; None: nobody has looked
    out_since: dict[tuple[str, str], float] = field(default_factory=dict)
    unknown_site: str = ""
    hidden: dict[str, Any] = field(default_factory=dict)  # VM: the devices that vCenter does not tell of
    paused: bool = False  # nothing that is decided is done
    resumed: float = 0.0  # when the last pause ended, or the clock was set
    done: list[tuple[str, Any]] = field(default_factory=list)
    boots: int = 0
    slow: dict[str, float] = field(default_factory=dict)  # VM: seconds from its start to its kubelet's
    mute: set[str] = field(default_factory=set)  # VMs whose kubelet does not come up
    booting: dict[str, float] = field(default_factory=dict)  # VM: when its kubelet comes up
    down_before: set[str] = field(default_factory=set)  # nodes whose kubelet was not up when we cordoned them
    beats: dict[str, int] = field(default_factory=dict)  # how often each kubelet renewed its lease
    silent: dict[str, float] = field(default_factory=dict)  # node: since when its kubelet is not heard of
    version: int = 1
    refused: list[str] = field(default_factory=list)  # VMs that vCenter would not start

    # -- making

    def host(self, name: str, devices: int = 1, **fields: Any) -> None:
        pci = tuple(Pci(f"0000:{n:02x}:00.0", "8086", "56c0") for n in range(devices))
        known = {
            "name": name, "cluster": "domain-1", "connection": "connected", "power": "poweredOn", "standby": "none",
            "in_maintenance": False, "uuid": hardware(name), "cpu_cores": 32, "cpu_threads": 64,
            "memory_mb": 1 << 20, "pci": pci,
            "passthrough": tuple(one.id for one in pci), "datastores": ("ds",), "networks": ("net",),
        }  # fmt: skip
        self.put(Host, f"host-{name}", **{**known, **fields})
        if self.inventory.place("ds") is None:
            self.put(Place, "ds", accessible=True, cut_off=())

    def cluster(self, drs: str = "off") -> None:
        on = drs != "off"
        self.put(Cluster, "domain-1", name="compute", drs_enabled=on, drs_behaviour=drs if on else "")

    def worker(self, name: str, host: str, *, devices: tuple[VmDevice, ...] = (DYNAMIC,), pods: int = 2,
               annotations: Mapping[str, str] | None = None, **fields: Any) -> None:  # fmt: skip
        known = {
            "name": name, "uuid": "", "host": f"host-{host}", "power": "poweredOn", "connection": "connected",
            "tools": "guestToolsRunning", "cpus": 4, "memory_mb": 1024, "devices": devices, "datastores": ("ds",),
            "networks": ("net",),
        }  # fmt: skip
        self.put(Vm, f"vm-{name}", **{**known, **fields})
        self.nodes[name] = Node(
            metadata=Metadata(name=name, uid=name, resource_version="1", annotations=dict(annotations or {})),
            spec=NodeSpec(),
            status=NodeStatus(
                conditions=(Condition(type="Ready", status="True"),), node_info=NodeInfo(boot_id=f"boot-0-{name}")
            ),
        )
        self.pods[name] = pods

    def put(self, kind: Any, moref: str, /, **fields: Any) -> None:
        self.inventory.apply(Batch((Change(kind, moref, fields),), self.now))
        self.inventory.complete = True

    def vm(self, name: str) -> Vm:
        found = self.inventory.vm(f"vm-{name}")
        assert found is not None
        return found

    # -- what an administrator does

    def enter(self, host: str, state: str = "running") -> None:
        known = {"kind": ENTER_MAINTENANCE, "state": state, "entity": f"host-{host}"}
        self.put(Task, f"task-{host}", **known, cancelled=False)

    def cancel(self, host: str) -> None:
        if self.inventory.task(f"task-{host}"):
            self.put(Task, f"task-{host}", state="error", cancelled=True)

    def leave(self, host: str) -> None:
        self.cancel(host)
        self.put(Host, f"host-{host}", in_maintenance=False)

    def crash(self, host: str) -> None:
        """Its power goes. HA starts what ran there on another host with a free device, never seen off; or nothing."""
        self.cancel(host)
        self.down_before -= {vm.name for vm in self.inventory.vms_on(f"host-{host}")}
        self.put(Host, f"host-{host}", connection="notResponding")
        for vm in self.inventory.vms_on(f"host-{host}"):
            if vm.power == "poweredOn":
                other = next((one for one in self.inventory.hosts() if self.free(one)), None)
                where = {"host": other.moref} if other is not None else {"connection": "disconnected"}
                self.put(Vm, vm.moref, **where)
                self.booting[vm.name] = self.now + self.slow.get(vm.name, 0.0) if other is not None else NEVER

    def recover(self, host: str) -> None:
        """It has booted: what ran on it is off."""
        self.put(Host, f"host-{host}", connection="connected")
        for vm in self.inventory.vms_on(f"host-{host}"):
            if vm.connection == "disconnected":
                self.put(Vm, vm.moref, connection="connected")
                self.off(vm.name)

    def hide(self, host: str) -> None:
        """vCenter does not tell any more what the VMs on it hold."""
        for vm in self.inventory.vms_on(f"host-{host}"):
            self.hidden.setdefault(vm.moref, vm.devices)
            self.put(Vm, vm.moref, devices=Unknown("vCenter would not tell"))

    def show(self) -> None:
        for moref, devices in self.hidden.items():
            self.put(Vm, moref, devices=devices)
        self.hidden.clear()

    def free(self, host: Host) -> bool:
        """It takes VMs, and has a device that nobody runs on."""
        running = sum(vm.power == "poweredOn" for vm in self.inventory.vms_on(host.moref))
        return judge_host(self.inventory, host).what is HostMode.IN_SERVICE and running < len(host.passthrough)

    # -- what is known

    def world(self) -> World:
        site: Fact[Site] = Unknown(self.unknown_site) if self.unknown_site else Known(self.inventory, self.now)
        subjects = [self._subject(name) for name in sorted(self.nodes)]
        named = {one.name for one in subjects}
        subjects += [
            Subject(f"vm/{name}", None, VC, Known(self.vm(name), self.now), mark)
            for name, mark in sorted(self.marks.items()) if name not in named
        ]  # fmt: skip
        subjects = [replace(one, remembered=self.memory.saw(one, site, self.now)) for one in subjects]
        for host in self.inventory.hosts():
            if not self.unknown_site and judge_host(self.inventory, host).what is HostMode.IN_SERVICE:
                self.out_since.setdefault((VC, host.moref), self.now)
            else:
                self.out_since.pop((VC, host.moref), None)
        return World(
            tuple(subjects), {VC: site}, room(self.nodes.values(), replace(DEFAULT, amount=100)),
            out_since=dict(self.out_since), rights=dict(self._rights()),
            resumed=self.now if self.paused else self.resumed,
        )  # fmt: skip

    def _rights(self) -> Iterator[tuple[tuple[str, str], Lacks]]:
        pools = (one.pool for one in self.inventory.clusters() if one.pool)
        for moref in (*(one.moref for one in self.inventory.vms()), *pools):
            found = self.rights.get(moref, ())
            if found is not None:
                yield (VC, moref), Known(found, self.now) if isinstance(found, tuple) else found

    def lacks(self, name: str, *privileges: str) -> None:
        """On this VM our user lacks these, and only these."""
        self.rights[f"vm-{name}"] = privileges

    def _subject(self, name: str) -> Subject:
        node = self.nodes[name]
        vm: Fact[Vm] = Unknown(self.unknown_site) if self.unknown_site else Known(self.vm(name), self.now)
        one = Subject(name, node, VC, vm, self.marks.get(name))
        if one.state in (State.DRAINING, State.POWERED_OFF):
            since = one.at(SINCE)
            return replace(one, drain=self.drain_facts(name, since if since is not None else self.now))
        return one

    def drain_facts(self, name: str, started: float) -> drain.Facts:
        pods = tuple(_pod(f"{name}-{number}", name) for number in range(self.pods[name]))
        return drain.Facts(
            name, started, Known(pods, self.now), Known((), self.now), Known((), self.now), Known(frozenset(), self.now)
        )

    def decide(self) -> Pass:
        return decide(self.world(), self.policy, self.now)

    # -- going on

    def tick(self, seconds: float = 1.0, interrupt: bool = False) -> Pass:
        """One pass; then time goes on, and with it guests, tasks and kubelets. `interrupt`: killed after the act."""
        found = self.decide()
        for one in found.decisions:
            assert one.bug is None, one.bug
            if one.action is not None and not self.paused:
                self.done.append((one.subject, one.action))
                self.act(one)
            if one.pulse:
                self.memory.renewed(one.subject, str(self.beats.get(one.subject, 0)))
        if interrupt:
            self.forget()
        self.now += seconds
        self.live()
        return found

    def pause(self, seconds: int, restart: bool = False) -> None:
        """Somebody presses the stop button for so long; with `restart` the operator starts anew meanwhile."""
        self.paused = True
        self.run(seconds, interrupt={seconds // 2} if restart else ())
        self.resume()

    def resume(self) -> None:
        self.paused, self.resumed = False, self.now

    def forget(self) -> None:
        """The operator starts anew."""
        self.memory = Memory()
        self.out_since.clear()

    def run(self, seconds: int, interrupt: Iterable[int] = ()) -> Pass:
        killed = set(interrupt)
        found = self.decide()
        for number in range(seconds):
            found = self.tick(interrupt=number in killed)
        return found

    def live(self) -> None:
        """Hosts complete their maintenance, kubelets of running VMs report, what is tainted is let go."""
        for host in list(self.inventory.hosts()):
            task = self.inventory.task(f"task-{host.name}")
            if task is not None and task.under_way and not any(
                vm.power == "poweredOn" for vm in self.inventory.vms_on(host.moref)
            ):  # fmt: skip
                self.put(Task, task.moref, state="success")
                self.put(Host, host.moref, in_maintenance=True)
        for name, node in self.nodes.items():
            on = self.vm(name).power == "poweredOn"
            if any(one.key.endswith("out-of-service") for one in node.spec.taints) and not on:
                self.pods[name] = 0
            if node.metadata.annotations.get(STATE) is None and on:
                self.pods[name] = max(self.pods[name], 1)
        for name in self.nodes:
            self.kubelet(name)

    # -- kubelets

    def up(self, name: str) -> bool:
        """The kubelet of the machine that runs now is up."""
        return self.vm(name).power == "poweredOn" and name not in self.booting

    def kubelet(self, name: str) -> None:
        """It comes up some time after its machine and renews its lease; when it is gone its last Ready stays."""
        if self.vm(name).power != "poweredOn":
            self.booting[name] = NEVER  # until somebody starts it
        if name in self.booting and name not in self.mute and self.now >= self.booting[name]:
            del self.booting[name]
            self.boots += 1
            self.report(name, "True", boot=f"boot-{self.boots}-{name}")
        if self.up(name):
            self.beats[name] = self.beats.get(name, 0) + 1
            if self.beats[name] % BEATS == 0:
                self.report(name, "True", heard=str(self.now))
            self.silent.pop(name, None)
        elif self.now >= self.silent.setdefault(name, self.now) + STALE_SECONDS:
            self.report(name, "Unknown")

    def report(self, name: str, ready: str, boot: str = "", heard: str = "") -> None:
        node = self.nodes[name]
        before = next(one for one in node.status.conditions if one.type == "Ready")
        if before.status == ready and not (boot or heard):
            return
        changed = before.last_transition_time if before.status == ready else str(self.now)
        said = Condition(type="Ready", status=ready, last_transition_time=changed, last_heartbeat_time=heard or None)
        info = NodeInfo(boot_id=boot) if boot else node.status.node_info
        others = (one for one in node.status.conditions if one.type != "Ready")
        status = msgspec.structs.replace(node.status, conditions=(said, *others), node_info=info)
        self.nodes[name] = msgspec.structs.replace(node, status=status)

    def note(self, name: str, **changes: Any) -> None:
        self.memory.note(name, **changes)

    def act(self, one: Decision) -> None:
        name = one.subject.removeprefix("vm/")
        self.must_be_known(one.action, name)
        match one.action:
            case PatchNode(body):
                cordon = body.get("spec", {}).get("unschedulable", "as it is")
                if cordon is True and not self.up(name):
                    self.down_before.add(name)
                elif cordon in (None, False):
                    # Called off before anything was stopped, a node goes back as it was: it may have been down then.
                    assert self.up(name) or name in self.down_before, f"{name} is given back, and its kubelet is not up"
                if since := body["metadata"].get("annotations", {}).get(SHUTDOWN_SINCE):
                    self.memory.stop_noted(self._subject(name), since)
                self.patch(name, body)
            case Evictions():
                if name not in self.stuck:
                    self.pods[name] = max(0, self.pods[name] - 1)
            case SetMark(_, mark):
                if mark is None:
                    self.marks.pop(name, None)
                else:
                    self.marks[name] = mark
            case TellMachine(machine):
                self.note(one.subject, machine_told=machine)
            case ShutDown(since=since):
                self.note(one.subject, shutdown_asked=since, shutdown_at=self.now)
                if name not in self.stubborn:
                    self.off(name)
            case PowerOff():
                self.off(name)
            case Relocate(_, host, seen=seen):
                self.note(one.subject, tried_in=seen)
                self.note(one.subject, relocate_asked=self.nodes[name].metadata.annotations.get(RELOCATE_SINCE, "")
                          if name in self.nodes else "")  # fmt: skip
                self.put(Vm, f"vm-{name}", host=host)
            case PowerOn(drs=drs, seen=seen):
                self.note(one.subject, tried_in=seen)
                self.power_on(one, name, drs)
            case CancelTask(_, task):
                self.put(Task, task, state="error", cancelled=True)

    def must_be_known(self, action: Any, name: str) -> None:
        """What nobody may do without knowing, and where."""
        if isinstance(action, (Evictions, ShutDown, PowerOff, Relocate, PowerOn, CancelTask)):
            assert not self.unknown_site, "vCenter is away"
        if isinstance(action, (Evictions, ShutDown, PowerOff)):
            host = self.inventory.host(self.vm(name).host)
            assert judge_host(self.inventory, host).leaving, "on a host that goes into maintenance"
            assert judge_restart(self.inventory, self.vm(name)) == Restart(), "what could not be started again"
        if isinstance(action, PatchNode) and action.event == "OutOfService":
            assert self.vm(name).power == "poweredOff", "only what is off is out of service"

    def off(self, name: str) -> None:
        self.put(Vm, f"vm-{name}", power="poweredOff", tools="guestToolsNotRunning")
        self.down_before.discard(name)

    def power_on(self, one: Decision, name: str, drs: bool) -> None:
        """As vCenter does: with DRS on any host with a free device, else where it is registered, or not at all."""
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            before = self.memory.of(one.subject).power
            self.note(one.subject, power=Attempts(before.number + 1, self.now + 3, "no device is free"))
            return
        here = self.inventory.host(self.vm(name).host)
        assert here is not None
        if not drs:
            assert judge_host(self.inventory, here).what is HostMode.IN_SERVICE, "started on a host that takes no VM"
        order = [here, *sorted(self.inventory.hosts(), key=lambda host: host.name)] if drs else [here]
        host = next((host for host in order if self.free(host)), None)
        if host is None:
            self.refused.append(name)
            self.memory.failed(one.subject, "power", NO_DEVICE, self.now, host=here.moref, returns=True)
            return
        self.put(Vm, f"vm-{name}", host=host.moref)
        self.start(name)
        self.note(one.subject, started=True)

    def start(self, name: str) -> None:
        """As anybody may: the VM runs and its kubelet reports from a new boot."""
        self.put(Vm, f"vm-{name}", power="poweredOn", tools="guestToolsRunning")
        self.booting[name] = self.now + self.slow.get(name, 0.0)
        if name in self.nodes:
            self.kubelet(name)

    def patch(self, name: str, body: Mapping[str, Any]) -> None:
        node = self.nodes[name]
        assert body["metadata"]["resourceVersion"] == node.metadata.resource_version
        self.version += 1
        annotations = {**node.metadata.annotations, **body["metadata"].get("annotations", {})}
        metadata = msgspec.structs.replace(
            node.metadata,
            resource_version=str(self.version),
            annotations={key: value for key, value in annotations.items() if value is not None},
        )
        spec = node.spec
        wanted = body.get("spec", {})
        if "unschedulable" in wanted:
            spec = msgspec.structs.replace(spec, unschedulable=bool(wanted["unschedulable"]))
        if "taints" in wanted:
            taints = tuple(Taint(key=t["key"], effect=t["effect"]) for t in wanted["taints"] or ())
            spec = msgspec.structs.replace(spec, taints=taints)
        self.nodes[name] = msgspec.structs.replace(node, metadata=metadata, spec=spec)

    # -- asking

    def state(self, name: str) -> str:
        return self.nodes[name].metadata.annotations.get(STATE, "")

    def in_service(self, name: str) -> bool:
        node = self.nodes[name]
        return (
            not self.state(name)
            and not node.spec.unschedulable
            and self.vm(name).power == "poweredOn"
            and (name not in self.marks or self.marks[name].what is Marked.ASKED)
            and not node.spec.taints
        )

    def did(self, kind: type[Any], subject: str = "") -> list[Any]:
        return [action for who, action in self.done if isinstance(action, kind) and subject in ("", who)]


def _pod(name: str, node: str) -> Pod:
    return Pod(
        metadata=PodMetadata(
            name=name, namespace="web", uid=name,
            owner_references=(OwnerReference(kind="ReplicaSet", name="web", uid="rs", controller=True),),
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=PodPhase.RUNNING),
    )  # fmt: skip


def blocked_text(one: Decision) -> str:
    """Why it does not go on, as the status table says it."""
    return one.blocked.text if one.blocked is not None else ""


def pair(**worker: Any) -> Play:
    """One worker on esx1, and a free GPU on esx2."""
    play = Play()
    play.cluster()
    play.host("esx1")
    play.host("esx2")
    play.worker("a", "esx1", **worker)
    return play
