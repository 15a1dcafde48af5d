"""Where a VM can be started: which hosts can take it by what we know, and what our vCenter user may do. Pure.

A model: it prefers and explains. vCenter decides, so no return is ever held back by it (`power_on`).
Invariants: a device is given away once: what running VMs hold and what is promised to others is taken off first, and
where it is not known what a running VM holds, its host's devices count as not free. Nothing is stopped that our user
may not start again; a missing right to move a VM holds no stop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge

from hostler.host.conditions import names
from hostler.host.facts import Unknown
from hostler.instant import Instant
from hostler.maintenance.decision import Rejected
from hostler.maintenance.hosts import HostMode, judge_host
from hostler.maintenance.model import Lacks, Need, Object, Site, Unanswered, Wish
from hostler.vsphere.devices import is_tied
from hostler.vsphere.records import Backing, Cluster, Host, Pci, Vm, VmDevice

REJECTED_SHOWN = 6  # hosts with their reasons; further ones are counted


@dataclass(frozen=True, slots=True)
class Ask:
    """What is looked for: a place for this VM."""

    vm: Vm
    origin: str  # the name of the host it comes from
    own: str  # that host's id, "" where nobody can tell: the only host with its fixed devices
    wish: Wish = Wish.MIGRATE
    reserved: str = ""  # the name of the host it has reserved
    failed: tuple[str, ...] = ()  # ids of hosts where it was tried and refused: asked last
    clusters: tuple[str, ...] = ()  # names of further clusters it may go to


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A host that could take the VM, but our vCenter user lacks a right to move it there."""

    host: Host
    lacks: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Hosts that can take the VM, best first; the others with a reason each. `unknown`: it cannot be said.

    `more`: so many further hosts cannot take it, of which no reason is kept.
    """

    hosts: tuple[Host, ...]
    rejected: tuple[Rejected, ...] = ()
    unknown: str = ""
    forbidden: tuple[Forbidden, ...] = ()
    more: int = 0

    @property
    def best(self) -> Host | None:
        return self.hosts[0] if self.hosts else None

    def only_where_allowed(self, lacking: Mapping[str, str]) -> Placement:
        """Only the hosts that our user may take the VM to; the others are named with the right that is missing.

        `lacking`: by a host's id, the rights our user lacks to move the VM there; "" where it has them.
        """
        forbidden = tuple(Forbidden(host, lacking[host.moref]) for host in self.hosts if lacking[host.moref])
        named = (Rejected(found.host.name, f"our vCenter user lacks {found.lacks}") for found in forbidden)
        allowed = tuple(host for host in self.hosts if not lacking[host.moref])
        return replace(self, hosts=allowed, rejected=(*self.rejected, *named), forbidden=forbidden)

    def why_none(self) -> str:
        if self.unknown:
            return self.unknown
        shown = "; ".join(f"{rejected.host}: {rejected.why}" for rejected in self.rejected[:REJECTED_SHOWN])
        more = len(self.rejected) + self.more - REJECTED_SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown or "there is no other host"


def find_places(ask: Ask, site: Site, promised: Mapping[str, Sequence[Vm]], *, brief: bool = False) -> Placement:
    """Every host of the VM's cluster (and of the allowed ones), judged. `promised`: VMs on their way, by host id.

    `brief`: the same hosts, but only as many reasons as are shown. Then only hosts that may have what the VM needs are
    judged, and what it costs does not grow with the cluster.
    """
    vm = ask.vm
    home = site.host(vm.host)
    if home is None:
        return Placement((), unknown=f"vCenter does not show the host that VM {vm.name} is registered on")
    reach = _clusters_in_reach(ask, site, home)
    offering = _hosts_offering(ask, site) if brief else None
    judged: dict[str, str] = {}  # why not, by host id
    for host in _hosts_in_order(site, reach) if offering is None else filter(None, map(site.host, offering)):
        if host.cluster in reach:
            judged[host.moref] = _why_not_there(ask, site, home, host, promised)
    fitting = [found for moref, why in judged.items() if not why and (found := site.host(moref)) is not None]
    rejected: list[Rejected] = []
    for host in _hosts_in_order(site, reach):
        if brief and len(rejected) == REJECTED_SHOWN:
            break
        if host.moref not in judged:
            judged[host.moref] = _why_not_there(ask, site, home, host, promised)
        if judged[host.moref]:
            rejected.append(Rejected(host.name or host.moref, judged[host.moref]))
    return Placement(
        tuple(sorted(fitting, key=lambda host: _rank_host(ask, host, site, promised))), tuple(rejected),
        more=sum(map(site.count_hosts_in, reach)) - len(fitting) - len(rejected),
    )  # fmt: skip


def _why_not_there(ask: Ask, site: Site, home: Host, host: Host, promised: Mapping[str, Sequence[Vm]]) -> str:
    """Why the VM cannot be started on a host that it may move to; "" where it can."""
    if host.cluster != home.cluster and ((pool := pool_for(site, ask.vm, host)) is None or not pool.pool):
        return "its resource pool is unknown"
    return _why_unfit(ask, host, site, [vm for vm in promised.get(host.moref, ()) if vm.moref != ask.vm.moref])


def _hosts_offering(ask: Ask, site: Site) -> set[str] | None:
    """Ids of the hosts that may have what the VM needs, the ones it knows among them; None: it may be any."""
    known = {ask.own, ask.vm.host}
    if is_tied_to_host(ask.vm) or ask.wish is Wish.WAIT:
        return known
    assert not isinstance(ask.vm.devices, Unknown)  # then it counts as tied
    offering = site.hosts_offering(ask.vm.devices)
    return known | offering if offering is not None else None


def _clusters_in_reach(ask: Ask, site: Site, home: Host) -> frozenset[str]:
    """Ids of the clusters whose hosts the VM may move to."""
    others = (cluster.moref for cluster in site.clusters() if _may_leave_for(site, home, cluster.moref, ask.clusters))
    return frozenset((home.cluster, *others))


def _hosts_in_order(site: Site, clusters: Iterable[str]) -> Iterator[Host]:
    return merge(*map(site.hosts_in, clusters), key=lambda host: host.name)


def may_go(site: Site, home: Host, to: Host, clusters: Collection[str]) -> bool:
    """Within its cluster; between standalone hosts; into or out of a cluster only where a setting names it.

    A datastore belongs to one datacenter, so two hosts that reach one are in the same.
    """
    return to.cluster == home.cluster or _may_leave_for(site, home, to.cluster, clusters)


def _may_leave_for(site: Site, home: Host, to: str, clusters: Collection[str]) -> bool:
    if site.name(to) in clusters:
        return True
    found = site.cluster(home.cluster), site.cluster(to)
    return all(cluster is not None and cluster.standalone for cluster in found)


def pool_for(site: Site, vm: Vm, to: Host) -> Cluster | None:
    """The cluster into whose resource pool the VM comes on that host; None where it keeps the pool it has."""
    home = site.host(vm.host)
    return site.cluster(to.cluster) if home is None or home.cluster != to.cluster else None


def is_tied_to_host(vm: Vm) -> bool:
    """It has a device that exists on one host only. While its devices are not known it counts as tied."""
    return isinstance(vm.devices, Unknown) or is_tied(vm.devices)


def doubt_at_home(ask: Ask, site: Site, promised: Sequence[Vm]) -> str:
    """Why the VM's own host might refuse it later, by what we know. It runs there now: a doubt, no more."""
    host = site.host(ask.own)
    if host is None:
        return "its own host is unknown"
    if isinstance(ask.vm.devices, Unknown):
        return f"its devices are unknown: {ask.vm.devices.why}"
    return _what_lacks(ask.vm, host, site, promised)


def _rank_host(
    ask: Ask, host: Host, site: Site, promised: Mapping[str, Sequence[Vm]]
) -> tuple[int, bool, bool, int, str]:
    busy = sum(vm.power == "poweredOn" for vm in site.vms_on(host.moref)) + len(promised.get(host.moref, ()))
    reserved = bool(ask.reserved) and host.name == ask.reserved
    return tries_before(ask.failed, host), host.moref != ask.vm.host, not reserved, busy, host.name


def tries_before(failed: Sequence[str], host: Host) -> int:
    """0 where it was not tried; else the later it was tried, the later it comes again."""
    return failed.index(host.moref) + 1 if host.moref in failed else 0


def _why_unfit(ask: Ask, host: Host, site: Site, promised: Sequence[Vm]) -> str:
    """Why not, in one line; "" where it fits."""
    vm = ask.vm
    how = judge_host(site, host)
    if how.what is not HostMode.IN_SERVICE:
        return how.why
    if host.power != "poweredOn" or host.standby not in ("none", ""):
        return f"it is not running ({host.standby if host.standby not in ('none', '') else host.power or 'unknown'})"
    if ask.wish is Wish.WAIT and host.moref not in (ask.own, vm.host):
        return "the node's policy is to wait for its own host"
    if host.moref != ask.own and is_tied_to_host(vm):
        if isinstance(vm.devices, Unknown):
            return f"the VM's devices are unknown: {vm.devices.why}"
        return f"the VM holds a device that only {ask.origin} has"
    return _what_lacks(vm, host, site, promised)


def _what_lacks(vm: Vm, host: Host, site: Site, promised: Sequence[Vm]) -> str:
    """What the VM needs and the host does not have, by what we know; "" where it has all of it."""
    for what, wanted, there in (("datastore", vm.datastores, host.datastores), ("network", vm.networks, host.networks)):
        lacking = [site.name(moref) for moref in wanted if moref not in there]
        if lacking:
            return f"it does not reach {what} {names(lacking)}"
    running = [other for other in site.vms_on(host.moref) if other.power != "poweredOff" and other.moref != vm.moref]
    return _lacking_capacity(vm, host, running, promised) or _lacking_devices(vm, host, running, promised)


def _lacking_capacity(vm: Vm, host: Host, running: Sequence[Vm], promised: Sequence[Vm]) -> str:
    """VMs with devices have all their memory reserved; what others reserve only vCenter knows, and it says so then.

    ESXi compares a VM's vCPUs with the host's logical CPUs (fault NotEnoughLogicalCpus), not with its cores.
    """
    if host.cpu_threads and vm.cpus > host.cpu_threads:
        return f"it has {host.cpu_threads} logical CPUs, the VM needs {vm.cpus}"
    taken = sum(other.memory_mb for other in (*filter(_has_devices, running), *promised))
    if host.memory_mb and vm.memory_mb + taken > host.memory_mb:
        return f"it has {max(0, host.memory_mb - taken)} MB of memory left, the VM needs {vm.memory_mb}"
    return ""


def _has_devices(vm: Vm) -> bool:
    return not isinstance(vm.devices, Unknown) and bool(vm.devices)


def _lacking_devices(vm: Vm, host: Host, running: Sequence[Vm], promised: Sequence[Vm]) -> str:
    own = () if isinstance(vm.devices, Unknown) else vm.devices
    if not own:
        return ""
    for device in own:
        if device.backing is Backing.VGPU and device.profile not in host.vgpu_profiles:
            return f"it does not offer the vGPU profile {device.profile}"
    wanted = _devices_anywhere([vm])
    if not wanted:
        return ""
    secretive = [vm.name for vm in running if isinstance(vm.devices, Unknown)]
    if secretive:
        return f"cannot tell which devices {names(secretive)} holds"
    held = [device for vm in running if not isinstance(vm.devices, Unknown) for device in vm.devices]
    if _match_devices([*held, *_devices_anywhere(promised)], wanted, host.devices):
        return ""
    kinds = names({pair for device in wanted for pair in device.allowed} or {device.id for device in wanted})
    like = [pci for pci in host.devices if any(_suits_device(device, pci) for device in wanted)]
    labels = names({device.label for device in wanted if device.backing is Backing.DYNAMIC and device.label})
    if not like and kinds:
        return f"it has no device {kinds}" + (f" labelled {labels}" if labels else "")
    if not like:
        return "vCenter does not say which devices the VM may have"
    holders = [vm.name for vm in running if _has_devices(vm)]
    waiting = [f"{vm.name} (promised)" for vm in promised]
    return f"no device {kinds} is free: {len(like)} there, taken by {names([*holders, *waiting]) or 'others'}"


def _suits_device(device: VmDevice, pci: Pci) -> bool:
    """By address where the device has one: that is held already, or fixed."""
    if device.backing is Backing.FIXED or (device.backing is Backing.DYNAMIC and device.id):
        return device.id == pci.id
    if device.label and device.label != pci.label:
        return False
    return f"{pci.vendor}:{pci.device}" in device.allowed


def _devices_anywhere(vms: Iterable[Vm]) -> list[VmDevice]:
    """The devices these VMs need wherever they start: the address one holds now is of no use on another host."""
    needed = (device for vm in vms if not isinstance(vm.devices, Unknown) for device in vm.devices)
    return [
        replace(device, id="") if device.backing is Backing.DYNAMIC else device
        for device in needed
        if device.backing in (Backing.FIXED, Backing.DYNAMIC)
    ]


def _match_devices(taken: Iterable[VmDevice], wanted: Iterable[VmDevice], devices: Collection[Pci]) -> bool:
    """Whether all of `wanted` can have a device besides what is taken (a matching, by augmenting paths).

    A path may give a VM another device but never takes one away. More taken than there are is not our concern.
    """
    has: dict[str, VmDevice] = {}

    def give(device: VmDevice, tried: set[str]) -> bool:
        for pci in devices:
            if pci.id in tried or not _suits_device(device, pci):
                continue
            tried.add(pci.id)
            if pci.id not in has or give(has[pci.id], tried):
                has[pci.id] = device
                return True
        return False

    for device in taken:
        if device.backing in (Backing.FIXED, Backing.DYNAMIC):
            give(device, set())
    return all(give(device, set()) for device in wanted)


def drs_of(site: Site, vm: Vm) -> str | Unknown:
    host = site.host(vm.host)
    cluster = site.cluster(host.cluster) if host is not None else None
    return cluster.drs(vm.moref) if cluster is not None else "off"


# -- what our vCenter user must be allowed to do, and on which object

STOP = ("VirtualMachine.Interact.PowerOff", "VirtualMachine.Interact.PowerOn")
MOVE = "Resource.ColdMigrate"
POOL = "Resource.AssignVMToPool"  # on the pool it is put into; its own it keeps without asking
ON_VM = (*STOP, MOVE)
# Before pods are evicted or a VM is stopped, what we may do must have been looked at no longer ago than this.
RIGHTS_SECONDS = 60.0
EVER = float("inf")
# What vCenter will not say holds a VM for so long; the predecessor never asked.
UNANSWERED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Judged:
    """How our user stands with what is needed: something is lacking, or it is not known, or all is well."""

    lacking: tuple[Need, ...] = ()
    unknown: str = ""  # it was asked, and vCenter would not tell
    unseen: str = ""  # at which object nobody has looked (lately)
    since: Instant = 0.0  # since when `unknown` is so
    oldest: tuple[Instant, str] = (EVER, "")  # where all is well: the object that was looked at longest ago

    def within(self, max_age: float, now: Instant) -> Judged:
        """What is lacking counts however old it is; that all is well only if it was looked at lately."""
        return Judged(unseen=self.oldest[1]) if now - self.oldest[0] > max_age else self

    def holds(self, now: Instant, for_ever: bool) -> bool:
        """Whether this keeps a VM from being emptied or stopped; what vCenter will not say only for a time."""
        return bool(self.lacking) or (bool(self.unknown) and (for_ever or now < self.since + UNANSWERED_SECONDS))

    def __str__(self) -> str:
        return ", and ".join(map(str, self.lacking))


def needs_of(vm: Vm) -> tuple[Need, ...]:
    """To stop a VM and start it again."""
    return (Need(vm.moref, f"VM {vm.name}", STOP),)


def moves_of(vm: Vm, into: Cluster | None = None) -> tuple[Need, ...]:
    """To move a VM that is off."""
    return (Need(vm.moref, f"VM {vm.name}", (MOVE,)), *_pool_need(into))


def _pool_need(into: Cluster | None) -> tuple[Need, ...]:
    return () if into is None else (Need(into.pool, f"the resource pool of cluster {into.name}", (POOL,)),)


def judge_rights(needs: Iterable[Need], rights: Mapping[Object, Lacks], vcenter: str, now: Instant) -> Judged:
    """By what was last looked at, however long ago that is."""
    lacking: list[Need] = []
    unknown = unseen = ""
    since, oldest = 0.0, (EVER, "")
    for need in needs:
        fact = rights.get((vcenter, need.on))
        if isinstance(fact, Unknown):
            unknown = unknown or f"cannot tell what our vCenter user may do with {need.said}: {fact.why}"
            since = max(since, fact.since if isinstance(fact, Unanswered) else now)
        elif fact is not None and (
            found := tuple(privilege for privilege in need.privileges if privilege in fact.value)
        ):
            lacking.append(Need(need.on, need.said, found))
        elif fact is None:
            unseen = unseen or need.said
        else:
            oldest = min(oldest, (fact.at, need.said))
    if lacking:
        return Judged(tuple(lacking))
    if unknown or unseen:
        return Judged(unknown=unknown, since=since) if unknown else Judged(unseen=unseen)
    return Judged(oldest=oldest)
