"""What wakes what: which change of an object queues which keys.

A key too many costs a look; one too few is a machine that waits until everything is looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, BmcSecret, Metal3Cluster, Metal3Machine, Metal3MachineTemplate
from hostler.apis.metal3_data import Data, DataClaim, DataTemplate, IpAddress, IpClaim
from hostler.kube.controller import Controller
from hostler.kube.records import key_of
from hostler.kube.watch import Watch
from hostler.metal import names
from hostler.metal.caches import Caches, DataCaches, owner_datas
from hostler.metal.claiming.claims import Claims
from hostler.metal.claiming.reservations import ReservedHostReconciler, is_upkept
from hostler.metal.controller import MachineReconciler
from hostler.metal.data.controller import CLAIM, DATA, TEMPLATE, DataReconciler
from hostler.metal.model import consumer_key, owner_key
from hostler.metal.remediation.controller import RemediationReconciler
from hostler.metal.remediation.model import Remediation


@dataclass(frozen=True, slots=True)
class Queues:
    """The keys that each controller is to look at."""

    machines: Controller
    clusters: Controller
    templates: Controller
    reserved_hosts: Controller
    data: Controller
    remediations: Controller
    labels: Controller


@dataclass(frozen=True, slots=True)
class Followers:
    """Who follows the caches too, or knows which keys a change concerns."""

    claims: Claims
    machines: MachineReconciler
    data: DataReconciler
    reserved: ReservedHostReconciler
    remediations: RemediationReconciler


class Wakeups:
    def __init__(self, caches: Caches, data: DataCaches, followers: Followers, queues: Queues) -> None:
        self._caches, self._data, self._followers, self._queues = caches, data, followers, queues

    def wake_all(self) -> None:
        """Everything again; machines that only wait for a host last."""
        for machine in self._caches.machines.store:
            self._queues.machines.queue.add(key_of(machine.metadata), priority=2)
        for cluster in self._caches.clusters.store:
            self._queues.clusters.queue.add(key_of(cluster.metadata), priority=2)
        for template in self._caches.templates.store:
            self._queues.templates.queue.add(key_of(template.metadata), priority=2)
        for key in self._followers.reserved.reserved():
            self._queues.reserved_hosts.queue.add(key, priority=2)
        for key in list(self._caches.remediations.store.keys()):
            self._queues.remediations.queue.add(key)
        for host in self._caches.hosts.store:
            if consumer_key(host):
                self._queues.labels.queue.add(key_of(host.metadata), priority=2)
        for prefix, watch in ((CLAIM, self._data.claims), (DATA, self._data.datas), (TEMPLATE, self._data.templates)):
            for key in list(watch.store.keys()):
                self._queues.data.queue.add(f"{prefix}{key}", priority=2)
        self._ip_claims_that_go()

    def listen(self) -> None:
        caches = self._caches
        caches.hosts.store.listen(self._host_changed)
        caches.machines.store.listen(self._machine_changed)
        caches.clusters.store.listen(self._metal_cluster_changed)
        caches.templates.store.listen(self._template_changed)
        caches.capi_machines.store.listen(self._capi_machine_changed)
        caches.capi_clusters.store.listen(self._capi_cluster_changed)
        caches.deployments.store.listen(self._deployment_changed)
        caches.remediations.store.listen(self._remediation_changed)
        caches.secrets.store.listen(self._secret_changed)
        data = self._data
        data.claims.store.listen(self._claim_changed)
        data.datas.store.listen(self._data_changed)
        data.templates.store.listen(self._data_template_changed)
        data.pools.store.listen(lambda key, before, _: self._unready_data(key) if before is None else None)
        for claims in (data.ip_claims, data.capi_claims):
            claims.store.listen(self._ip_claim_changed)
        data.ip_addresses.store.listen(lambda _, before, after: self._address_changed(data.ip_claims, before, after))
        data.capi_addresses.store.listen(
            lambda _, before, after: self._address_changed(data.capi_claims, before, after)
        )

    # -- what wakes what

    def _host_changed(self, key: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        self._followers.claims.host_changed(key, before, after)
        self._followers.remediations.power.host_changed(before, after)
        self._followers.machines.troubles.host_changed(key, before, after)
        claimed = before is not None and after is not None and not consumer_key(before)
        for host in (before, after):
            if host is not None and (machine := consumer_key(host)):
                self._queues.machines.queue.add(machine, priority=2 if claimed else 1)
                self._unfinished(machine)
        if after is not None and is_upkept(after):
            self._queues.reserved_hosts.queue.add(key)
        if len(self._caches.remediations.store) and after is not None:
            for remediation in self._followers.remediations.of_host(after):
                self._queues.remediations.queue.add(remediation)
        if before is not None and after is not None and before.metadata.labels != after.metadata.labels:
            self._queues.labels.queue.add(key)

    def _secret_changed(self, key: str, before: BmcSecret | None, _: BmcSecret | None) -> None:
        if before is None and (machine := self._followers.machines.secretless.pop(key, "")):
            self._queues.machines.queue.add(machine)

    def _machine_changed(self, key: str, before: Metal3Machine | None, after: Metal3Machine | None) -> None:
        machine = after or before
        if before is None or after is None or not _only_status(before, after):
            self._queues.machines.queue.add(key)
            self._unfinished(key)
        if machine is None:
            return
        for remediation in self._caches.remediations.store.keys_by("owner", owner_key(machine.metadata, "Machine")):
            self._queues.remediations.queue.add(remediation)
        cleaned = after is not None and (before is None or _cleaning(before) != _cleaning(after))
        if cleaned and (template := machine.metadata.annotations.get(names.CLONED_FROM)):
            self._queues.templates.queue.add(names.key(machine.metadata.namespace, template), after=0.1)
        if after is None:
            for host in self._caches.hosts.store.keys_by("consumer", key):
                self._queues.reserved_hosts.queue.add(host)
            for cluster in self._caches.clusters.store:
                if cluster.metadata.deletion_timestamp:
                    self._queues.clusters.queue.add(key_of(cluster.metadata))

    def _claim_changed(self, key: str, _: DataClaim | None, __: DataClaim | None) -> None:
        self._queues.data.queue.add(f"{CLAIM}{key}")
        self._queues.machines.queue.add(key)  # a claim has its machine's name

    def _data_changed(self, key: str, before: Data | None, after: Data | None) -> None:
        data = after or before
        self._queues.data.queue.add(f"{DATA}{key}")
        if data is not None:
            claim = names.key(data.metadata.namespace, data.spec.claim.name)
            self._queues.data.queue.add(f"{CLAIM}{claim}")
            self._queues.machines.queue.add(claim)
            if before is None or after is None:
                template = names.key(data.metadata.namespace, data.spec.template.name)
                self._queues.data.queue.add(f"{TEMPLATE}{template}", after=0.2)

    def _data_template_changed(self, key: str, before: DataTemplate | None, after: DataTemplate | None) -> None:
        self._queues.data.queue.add(f"{TEMPLATE}{key}")
        if before is None or after is None or before.spec != after.spec:
            for claim in self._data.claims.store.by("template", key):
                self._queues.data.queue.add(f"{CLAIM}{key_of(claim.metadata)}")
            for data in self._data.datas.store.by("template", key):
                self._queues.data.queue.add(f"{DATA}{key_of(data.metadata)}")

    def _ip_claim_changed(self, key: str, before: IpClaim | None, after: IpClaim | None) -> None:
        for claim in (before, after):
            if claim is not None:
                for data in owner_datas(claim):
                    self._queues.data.queue.add(f"{DATA}{data}")
        if after is None:
            self._unready_data(key)  # another data may wait for a claim of this name to go

    def _ip_claims_that_go(self) -> None:
        """Their data may be gone already, and then nothing else would wake whoever lets them go."""
        for claims in (self._data.ip_claims, self._data.capi_claims):
            for claim in claims.store:
                for data in owner_datas(claim) if claim.metadata.deletion_timestamp else ():
                    self._queues.data.queue.add(f"{DATA}{data}", priority=2)

    def _address_changed(self, claims: Watch[IpClaim], before: IpAddress | None, after: IpAddress | None) -> None:
        if before is not None or after is None:
            return
        name = after.spec.claim.name or after.spec.claim_ref.name
        claim = claims.store.get(names.key(after.metadata.namespace, name))
        for data in owner_datas(claim) if claim is not None else ():
            self._queues.data.queue.add(f"{DATA}{data}")

    def _unfinished(self, machine: str) -> None:
        """What its data is rendered from may have changed: the host, its interfaces, a label, an annotation."""
        for key in self._followers.data.unfinished(machine):
            self._queues.data.queue.add(key)

    def _data_of_cluster(self, key: str) -> None:
        """A cluster that was paused goes on."""
        namespace = key.partition("/")[0]
        for prefix, watch in ((CLAIM, self._data.claims), (DATA, self._data.datas), (TEMPLATE, self._data.templates)):
            for one in watch.store:
                if one.metadata.namespace == namespace:
                    self._queues.data.queue.add(f"{prefix}{key_of(one.metadata)}")
        self._ip_claims_that_go()
        for template in self._caches.templates.store:
            if template.metadata.namespace == namespace:
                self._queues.templates.queue.add(key_of(template.metadata))

    def _unready_data(self, key: str) -> None:
        """A pool that came or a claim that went may be what any of the waiting ones wait for."""
        for data in self._data.datas.store.keys_by("unready", key.partition("/")[0]):
            self._queues.data.queue.add(f"{DATA}{data}", after=0.02)

    def _metal_cluster_changed(self, key: str, before: Metal3Cluster | None, after: Metal3Cluster | None) -> None:
        if after is None:
            return
        self._queues.clusters.queue.add(key)
        asked = after.metadata.annotations.get(names.LABEL_PREFIXES)
        if before is not None and before.metadata.annotations.get(names.LABEL_PREFIXES) != asked:
            for machine in self._caches.machines.store.by("cluster", owner_key(after.metadata, "Cluster")):
                self._labels_of(machine)

    def _labels_of(self, machine: Metal3Machine) -> None:
        if named := machine.metadata.annotations.get(names.HOST_ANNOTATION):
            self._queues.labels.queue.add(named)

    def _remediation_changed(self, key: str, _: Remediation | None, after: Remediation | None) -> None:
        if after is not None:
            self._queues.remediations.queue.add(key)
        else:
            self._followers.remediations.forget(key)

    def _template_changed(
        self, key: str, before: Metal3MachineTemplate | None, after: Metal3MachineTemplate | None
    ) -> None:
        if after is not None and (before is None or before.spec != after.spec):
            self._queues.templates.queue.add(key)

    def _capi_machine_changed(self, key: str, before: Machine | None, after: Machine | None) -> None:
        turned = before is not None and after is not None and before.status != after.status  # another node
        same = before is not None and after is not None and before.spec == after.spec and _same(before, after)
        for machine in self._caches.machines.store.by("owner", key) if turned or not same else ():
            if not same:
                self._queues.machines.queue.add(key_of(machine.metadata))
                self._unfinished(key_of(machine.metadata))
            if turned:
                self._labels_of(machine)
        if not same:
            for remediation in self._caches.remediations.store.keys_by("owner", key):
                self._queues.remediations.queue.add(remediation)

    def _capi_cluster_changed(self, key: str, before: Cluster | None, after: Cluster | None) -> None:
        unchanged = before is not None and after is not None and _same(before, after)
        if unchanged and before.spec == after.spec and before.status == after.status:  # type: ignore[union-attr]
            return
        machines = self._caches.machines.store
        for machine in (*machines.by("cluster", key), *machines.by("cluster", names.key(key.partition("/")[0], ""))):
            self._queues.machines.queue.add(key_of(machine.metadata))
            self._labels_of(machine)
        if before is not None and before.spec.paused:
            self._data_of_cluster(key)
        for remediation in list(self._caches.remediations.store.keys()):
            self._queues.remediations.queue.add(remediation)
        for cluster in self._caches.clusters.store:
            if owner_key(cluster.metadata, "Cluster") == key:
                self._queues.clusters.queue.add(key_of(cluster.metadata))
        self._reserved_of(key)

    def _deployment_changed(self, key: str, _: Any, after: Any) -> None:
        if after is None:
            self._reserved_of(key)

    def _reserved_of(self, key: str) -> None:
        for host in self._followers.reserved.reserved(key.partition("/")[0]):
            self._queues.reserved_hosts.queue.add(host)


def _cleaning(machine: Metal3Machine) -> tuple[str | None, str]:
    """What its template may put right: whose machine it is, and how its host is cleaned."""
    return machine.metadata.annotations.get(names.CLONED_FROM), machine.spec.automated_cleaning_mode


def _only_status(before: Metal3Machine, after: Metal3Machine) -> bool:
    """Whether only its status changed: that is our own doing, and the second look would write nothing."""
    return before.spec == after.spec and before.status != after.status and _same(before, after)


def _same(before: Any, after: Any) -> bool:
    """Whether nothing of the metadata that we read changed."""
    was, now = before.metadata, after.metadata
    return (was.labels, was.annotations, was.owner_references, was.finalizers, was.deletion_timestamp) == (
        now.labels, now.annotations, now.owner_references, now.finalizers, now.deletion_timestamp,
    )  # fmt: skip
