"""One vCenter in memory, found by id, name, UUID and host. Lives on the event loop; only `apply` changes it.

Nothing is guessed: whoever asks by name or UUID gets every candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from hostler.instant import Instant
from hostler.uuids import canonical
from hostler.vsphere.offers import Offers
from hostler.vsphere.records import (
    ENTER_MAINTENANCE,
    Change,
    Cluster,
    Entering,
    Fields,
    Host,
    Names,
    Place,
    Record,
    Task,
    Vm,
    VmDevice,
)

_ID = re.compile(r"\b[a-zA-Z]+-[0-9]+\b")  # as vCenter gives them: vm-39, host-21, domain-c8 has a letter more
R = TypeVar("R", Host, Vm, Task, Cluster, Place, Fields)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one answer of the server said, already decoded.

    `began`: the first of a full listing. `complete`: the listing ends here, and what it did not name is gone.
    """

    changes: tuple[Change, ...]
    at: Instant
    began: bool = False
    complete: bool = False
    missing: tuple[tuple[str, str], ...] = ()  # objects we may not see: id and why
    instance: str = ""  # the vCenter's own UUID, with the first of a listing


class Inventory:
    """Hosts, VMs, tasks and clusters of one vCenter. `complete` only after everything was seen once."""

    def __init__(self) -> None:
        self.complete = False
        self.instance = ""  # the vCenter's own UUID: ids of objects mean something only within it
        self.missing: dict[str, str] = {}  # id -> why vCenter will not show it
        self._records: dict[str, Record] = {}
        self._by_uuid: dict[str, set[str]] = {}
        self._by_name: dict[str, set[str]] = {}
        self._on_host: dict[str, set[str]] = {}  # VMs by where they are registered
        self._tasks_of: dict[str, set[str]] = {}
        self._in_cluster: dict[str, set[str]] = {}  # hosts
        self._with_attribute: dict[str, set[str]] = {}  # VMs by the key of a custom attribute that they have
        self._of_kind: dict[type[Record], dict[str, Record]] = {kind: {} for kind in get_args(Record)}
        self._by_host_name: dict[str, tuple[str, ...]] = {}  # hosts of a cluster in the order of names, once asked for
        self._offers = Offers(self)
        self.fields = Fields("CustomFieldsManager")  # which custom attributes are defined
        self._next: Inventory | None = None  # a full listing that is being gathered

    # -- reading

    def host(self, moref: str) -> Host | None:
        return self._get(Host, moref)

    def vm(self, moref: str) -> Vm | None:
        return self._get(Vm, moref)

    def task(self, moref: str) -> Task | None:
        return self._get(Task, moref)

    def cluster(self, moref: str) -> Cluster | None:
        return self._get(Cluster, moref)

    def hosts(self) -> Iterator[Host]:
        return self._all(Host)

    def vms(self) -> Iterator[Vm]:
        return self._all(Vm)

    def tasks(self) -> Iterator[Task]:
        return self._all(Task)

    def clusters(self) -> Iterator[Cluster]:
        return self._all(Cluster)

    def hosts_named(self, name: str) -> list[Host]:
        return [one for one in self._named(name) if isinstance(one, Host)]

    def hosts_with_uuid(self, uuid: str) -> list[Host]:
        """Every host that goes by this hardware UUID, by id."""
        wanted = canonical(uuid)
        found = (one for one in self.hosts() if wanted and canonical(one.uuid) == wanted)
        return sorted(found, key=lambda one: one.moref)

    def hosts_in(self, cluster: str) -> Iterator[Host]:
        """The hosts of a cluster, in the order of their names."""
        ordered = self._by_host_name.get(cluster)
        if ordered is None:
            hosts = self._found(Host, self._in_cluster.get(cluster, ()))
            ordered = tuple(host.moref for host in sorted(hosts, key=lambda host: host.name))
            self._by_host_name[cluster] = ordered
        return self._found(Host, ordered)

    def count_hosts_in(self, cluster: str) -> int:
        return len(self._in_cluster.get(cluster, ()))

    def hosts_offering(self, devices: Iterable[VmDevice]) -> frozenset[str] | None:
        """Ids of hosts that may have all these devices free: none that has them is left out. None: it may be any."""
        return self._offers.hosts_with(devices)

    def place(self, moref: str) -> Place | None:
        """A datastore or a network."""
        return self._get(Place, moref)

    def vms_named(self, name: str) -> list[Vm]:
        return [one for one in self._named(name) if isinstance(one, Vm)]

    def vms_with_uuid(self, uuid: str) -> list[Vm]:
        """Every VM that goes by this BIOS or instance UUID, in either byte order, by id."""
        found = (self.vm(moref) for moref in sorted(self._by_uuid.get(canonical(uuid) or "", ())))
        return [vm for vm in found if vm is not None]

    def vms_on(self, host: str) -> list[Vm]:
        """The VMs registered on a host, running or not, by id."""
        found = (self.vm(moref) for moref in sorted(self._on_host.get(host, ())))
        return [vm for vm in found if vm is not None]

    def tasks_of(self, entity: str) -> list[Task]:
        """The recent tasks of a host or a VM, by id."""
        found = (self.task(moref) for moref in sorted(self._tasks_of.get(entity, ())))
        return [task for task in found if task is not None]

    def entering(self, host: str) -> Entering | None:
        """The host is on its way into maintenance: a task to enter is queued or runs, and nobody cancelled it."""
        tasks = [
            task
            for task in self.tasks_of(host)
            if task.kind == ENTER_MAINTENANCE and task.under_way and not task.cancelled
        ]
        if not tasks:
            return None
        times = [at for task in tasks for at in [task.started or task.queued] if at is not None]
        return Entering(host, tuple(task.moref for task in tasks), min(times, default=None))

    def attribute(self, vm: Vm, name: str) -> str:
        """The value of a custom attribute of a VM; "" where it has none."""
        key = self.attribute_key(name)
        return next((value for own, value in vm.attributes if own == key), "")

    def vms_with_attribute(self, name: str) -> Iterator[Vm]:
        """The VMs that have a value of this custom attribute."""
        return self._found(Vm, self._with_attribute.get(str(self.attribute_key(name)), ()))

    def attribute_key(self, name: str) -> int | None:
        return next((key for key, called in self.fields.names if called == name), None)

    def name(self, moref: str) -> str:
        """How people call an object; its id where we do not know."""
        return getattr(self._records.get(moref), "name", "") or moref

    def with_names(self, text: str) -> str:
        """A sentence with the names of objects in place of their ids."""
        return _ID.sub(lambda found: self.name(found[0]), text)

    def __len__(self) -> int:
        return len(self._records)

    # -- for a simulation

    def copy(self) -> Inventory:
        """A second inventory with the same records; a change of either does not show in the other."""
        other = Inventory()
        other.complete, other.missing, other.fields = self.complete, dict(self.missing), self.fields
        other.instance = self.instance
        for moref, record in self._records.items():
            other._put(moref, record)
        return other

    def put(self, record: Record) -> None:
        """Take a whole record in place of the one with its id."""
        self._put(record.moref, record)

    # -- what the watcher does

    def apply(self, batch: Batch) -> frozenset[str]:
        """Take one answer of the server; returns the ids of what is different now.

        A full listing is gathered aside and takes the old one's place at its end, so nobody ever reads half of it.
        """
        if batch.began:
            self._next = Inventory()
            self.instance = batch.instance or self.instance
        target = self if self._next is None else self._next
        for change in batch.changes:
            target.missing.pop(change.moref, None)
        target.missing.update(batch.missing)
        changed = {change.moref for change in batch.changes if target._take(change)}
        if target is self:
            return frozenset(changed)
        return self._replace(target) if batch.complete else frozenset()

    def amend(self, changes: Iterable[Change]) -> frozenset[str]:
        """Take something the server told us elsewhere and that its push cannot contradict."""
        return frozenset(change.moref for change in changes if change.moref in self._records and self._take(change))

    def refresh(self, changes: Iterable[Change]) -> frozenset[str]:
        """As `amend`, from a direct look at hosts and VMs, where tasks may be new."""
        known = [one for one in changes if one.kind is Task or one.moref in self._records]
        return frozenset(one.moref for one in known if self._take(one))

    def _replace(self, by: Inventory) -> frozenset[str]:
        keys = self._records.keys() | by._records.keys()
        changed = frozenset(moref for moref in keys if self._records.get(moref) != by._records.get(moref))
        for moref in changed:
            self._put(moref, by._records.get(moref))
        self.missing, self.complete, self._next = by.missing, True, None
        return changed

    def _take(self, change: Change) -> bool:
        before = self._records.get(change.moref)
        if change.fields is None:
            self._put(change.moref, None)
            return before is not None
        base: Record = before if type(before) is change.kind else change.kind(change.moref)
        fields: dict[str, Any] = dict(change.fields)
        if change.unread or base.unread:
            still = {one for one in base.unread if one.path not in change.told}
            fields["unread"] = tuple(sorted({*still, *change.unread}))
        record: Record = replace(base, **fields)
        if record == before:
            return False
        self._put(change.moref, record)
        return True

    def _put(self, moref: str, record: Record | None) -> None:
        before = self._records.pop(moref, None)
        for changed in (before, record):
            if isinstance(changed, Host):
                self._offers.changed(moref)
                self._by_host_name.pop(changed.cluster, None)
            elif isinstance(changed, Vm):
                self._offers.changed(changed.host)
        if before is not None:
            del self._of_kind[type(before)][moref]
        for index, values in self._places(before):
            for value in values:
                index[value].discard(moref)
                if not index[value]:
                    del index[value]
        if isinstance(record, Fields):
            self.fields = record
        if record is not None:
            self._records[moref] = self._of_kind[type(record)][moref] = record
            for index, values in self._places(record):
                for value in values:
                    index.setdefault(value, set()).add(moref)

    def _places(self, record: Record | None) -> Iterable[tuple[dict[str, set[str]], Names]]:
        """Under which values of which index a record is found."""
        match record:
            case Vm():
                uuids = {one for one in map(canonical, (record.uuid, record.instance_uuid)) if one}
                yield self._by_name, (record.name,)
                yield self._by_uuid, tuple(uuids)
                yield self._on_host, (record.host,)
                yield self._with_attribute, tuple(str(key) for key, value in record.attributes if value)
            case Host():
                yield self._by_name, (record.name,)
                yield self._in_cluster, (record.cluster,)
            case Task():
                yield self._tasks_of, (record.entity,)

    def _get(self, kind: type[R], moref: str) -> R | None:
        found = self._records.get(moref)
        return found if isinstance(found, kind) else None

    def _all(self, kind: type[R]) -> Iterator[R]:
        return iter([found for found in self._of_kind[kind].values() if isinstance(found, kind)])

    def _found(self, kind: type[R], morefs: Iterable[str]) -> Iterator[R]:
        return (found for moref in morefs if isinstance(found := self._records.get(moref), kind))

    def _named(self, name: str) -> list[Record]:
        return [self._records[moref] for moref in sorted(self._by_name.get(name, ()))]
