"""What metal reads: one watch per kind, with the indexes that make every question cheap; and how it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hostler.apis import capi, metal3
from hostler.apis.capi import Cluster, ControlPlane, Machine, MachineSet
from hostler.apis.metal3 import (
    BareMetalHost,
    BmcSecret,
    Metal3Cluster,
    Metal3Machine,
    Metal3MachineTemplate,
)
from hostler.apis.metal3_data import Data, DataClaim, DataTemplate, IpAddress, IpClaim
from hostler.kube.cache import Unread, first_unread
from hostler.kube.client import Client
from hostler.kube.kinds import SECRET, Kind
from hostler.kube.metrics import Metrics
from hostler.kube.namespaced_watch import NamespacedWatch
from hostler.kube.records import Object, key_of
from hostler.kube.watch import Watch
from hostler.metal import names
from hostler.metal.model import Facts, cluster_of, consumer_key, held_by, host_of, owner_key
from hostler.metal.remediation.model import Remediation
from hostler.metal.scope import EVERYTHING, Scope

# The capability wakes everything once all is read; this is only for a cache that was complete and no longer is.
UNREAD_SECONDS = 15.0


def watch_in(scope: Scope, client: Client, kind: Kind, record: Any, **more: Any) -> Watch[Any]:
    """Follows a kind in the namespaces of the scope: each by itself, or all of them at once."""
    if scope.namespaces:
        return NamespacedWatch(client, kind, record, scope.namespaces, **more)
    return Watch(client, kind, record, **more)


def _consumers(host: BareMetalHost) -> Iterable[str]:
    return (found,) if (found := consumer_key(host)) else ()


def _owners(host: BareMetalHost) -> Iterable[str]:
    """The machines that Kubernetes takes for its owners: with the last of them it would be deleted."""
    meta = host.metadata
    kind = metal3.METAL3_MACHINE.kind
    return tuple([names.key(meta.namespace, one.name) for one in meta.owner_references if one.kind == kind])


def _owner_machine(machine: Metal3Machine | Remediation) -> Iterable[str]:
    return (found,) if (found := owner_key(machine.metadata, "Machine")) else ()


def _template(machine: Metal3Machine) -> Iterable[str]:
    name = machine.metadata.annotations.get(names.CLONED_FROM, "")
    return (names.key(machine.metadata.namespace, name),) if name else ()


def _cluster_label(machine: Metal3Machine) -> Iterable[str]:
    """`NAMESPACE/` where there is none: then its Machine names the cluster."""
    return (names.key(machine.metadata.namespace, machine.metadata.labels.get(capi.CLUSTER_NAME, "")),)


@dataclass(frozen=True, slots=True)
class Caches:
    hosts: Watch[BareMetalHost]
    machines: Watch[Metal3Machine]
    clusters: Watch[Metal3Cluster]
    templates: Watch[Metal3MachineTemplate]
    capi_machines: Watch[Machine]
    capi_clusters: Watch[Cluster]
    machine_sets: Watch[MachineSet]
    control_planes: Watch[ControlPlane]
    deployments: Watch[Object]
    remediations: Watch[Remediation]
    secrets: Watch[BmcSecret]  # by the label that Baremetal Operator gives them
    scope: Scope = EVERYTHING

    @classmethod
    def make(cls, client: Client, metrics: Metrics, scope: Scope = EVERYTHING) -> Caches:
        def watch(kind: Any, record: Any, **indexes: Any) -> Watch[Any]:
            return watch_in(scope, client, kind, record, metrics=metrics, indexes=indexes)

        return cls(
            hosts=watch(
                metal3.BARE_METAL_HOST,
                BareMetalHost,
                namespace=lambda one: (one.metadata.namespace,),
                consumer=_consumers,
                held=held_by,
                owner=_owners,
            ),
            machines=watch(
                metal3.METAL3_MACHINE, Metal3Machine, owner=_owner_machine, template=_template, cluster=_cluster_label
            ),
            clusters=watch(metal3.METAL3_CLUSTER, Metal3Cluster),
            templates=watch(metal3.METAL3_MACHINE_TEMPLATE, Metal3MachineTemplate),
            capi_machines=watch(capi.MACHINE, Machine),
            capi_clusters=watch(capi.CLUSTER, Cluster),
            machine_sets=watch(capi.MACHINE_SET, MachineSet),
            control_planes=watch(capi.KUBEADM_CONTROL_PLANE, ControlPlane),
            deployments=watch(capi.MACHINE_DEPLOYMENT, Object),
            remediations=watch(
                metal3.METAL3_REMEDIATION, Remediation, owner=_owner_machine, power=lambda one: (one.power_off,)
            ),
            secrets=watch_in(scope, client, SECRET, BmcSecret, metrics=metrics, labels=names.BMC_SECRETS),
            scope=scope,
        )

    def all(self) -> Iterator[Watch[Any]]:
        yield from (self.hosts, self.machines, self.clusters, self.templates)
        yield from (self.capi_machines, self.capi_clusters, self.machine_sets, self.control_planes)
        yield from (self.deployments, self.remediations, self.secrets)

    def unread(self) -> Unread | None:
        return first_unread(self.all())

    # -- questions

    def host_of(self, machine: Metal3Machine) -> BareMetalHost | None:
        """The host whose consumer this machine is; else the one it names."""
        own = tuple(self.hosts.store.by("consumer", key_of(machine.metadata)))
        return host_of(machine, own, self.named_host(machine))

    def own_host(self, machine: Metal3Machine) -> BareMetalHost | None:
        """The host whose consumer this machine is."""
        host = self.host_of(machine)
        consumer = host.spec.consumer_ref if host is not None else None
        return host if consumer is not None and consumer.is_machine(machine) else None

    def named_host(self, machine: Metal3Machine) -> BareMetalHost | None:
        """The host a machine names, if there is one; a host of another namespace is not for it."""
        named = machine.metadata.annotations.get(names.HOST_ANNOTATION, "")
        return self.hosts.store.get(named) if named.partition("/")[0] == machine.metadata.namespace else None

    def unreadable_host(self, machine: Metal3Machine) -> str:
        """That the host a machine names cannot be read, as a sentence; empty: it can, or is known not to exist."""
        named = machine.metadata.annotations.get(names.HOST_ANNOTATION, "")
        why = self.hosts.store.unreadable.get(named, "")
        return f"Host {named} cannot be read ({why}); nothing is done until it can." if why else ""

    def host_elsewhere(self, machine: Metal3Machine) -> str:
        """That a host of another namespace has this machine, as a sentence; empty: the one it names does not.

        Nothing of ours begins that; another provider may have. Such a host is not touched, and not forgotten either.
        """
        named = machine.metadata.annotations.get(names.HOST_ANNOTATION, "")
        found = self.hosts.store.get(named) if named.partition("/")[0] != machine.metadata.namespace else None
        consumer = found.spec.consumer_ref if found is not None else None
        if consumer is None or not consumer.is_machine(machine):
            return ""
        return f"Host {named} is in another namespace, so it is not touched, and still has this machine as its consumer"

    def paused(self, namespace: str, cluster: str) -> bool:
        """Whether nothing of this cluster is to be touched; one that does not exist is not paused."""
        found = self.capi_clusters.store.get(names.key(namespace, cluster))
        return found is not None and found.spec.paused

    def machine_of(self, owner: Machine) -> Metal3Machine | None:
        """The Metal3Machine of a Machine."""
        return next(iter(self.machines.store.by("owner", key_of(owner.metadata))), None)

    def facts(self, machine: Metal3Machine) -> Facts:
        owner = self.capi_machines.store.get(owner_key(machine.metadata, "Machine"))
        namespace = machine.metadata.namespace
        cluster = self.capi_clusters.store.get(names.key(namespace, cluster_of(machine, owner)))
        host = self.host_of(machine)
        return Facts(
            machine,
            owner,
            cluster,
            self.template_of(machine, owner),
            host,
            self.reuse_of(owner),
            secret_cluster=self._secret_cluster(host) if host is not None else None,
            host_unreadable=self.unreadable_host(machine),
            several=len(self.hosts.store.keys_by("consumer", key_of(machine.metadata))) > 1,
            elsewhere=self.host_elsewhere(machine),
            owned=tuple(self.hosts.store.by("owner", key_of(machine.metadata))),
        )

    def _secret_cluster(self, host: BareMetalHost) -> str | None:
        secret = self.secrets.store.get(names.key(host.metadata.namespace, host.spec.bmc.credentials_name))
        return secret.metadata.labels.get(capi.CLUSTER_NAME, "") if secret is not None else None

    def template_of(self, machine: Metal3Machine, owner: Machine | None) -> Metal3MachineTemplate | None:
        """The template a machine was made from: as its annotation says, else as the owner of its Machine does.

        Cluster API is known to leave out the annotation at times, and node reuse must not depend on that.
        """
        name = machine.metadata.annotations.get(names.CLONED_FROM, "")
        if not name and owner is not None:
            meta = owner.metadata
            made_by: MachineSet | ControlPlane | None = self.machine_sets.store.get(owner_key(meta, "MachineSet"))
            if made_by is None:
                key = owner_key(meta, capi.KUBEADM_CONTROL_PLANE.kind)
                made_by = self.control_planes.store.get(key)
            reference = made_by.infrastructure if made_by is not None else None
            if reference is not None and reference.kind == metal3.METAL3_MACHINE_TEMPLATE.kind:
                name = reference.name
        return self.templates.store.get(names.key(machine.metadata.namespace, name)) if name else None

    def reuse_of(self, owner: Machine | None) -> str:
        """`cp-NAME` or `md-NAME`: whose hosts a machine may have again; empty where that is not known."""
        if owner is None:
            return ""
        meta = owner.metadata
        if names.CONTROL_PLANE in meta.labels:
            name = meta.labels.get(names.CONTROL_PLANE_NAME, "")
            controller = next((one.name for one in meta.owner_references if one.controller), "")
            return names.reuse_label("cp", name or controller) if name or controller else ""
        deployment = meta.labels.get(names.DEPLOYMENT_NAME, "")
        if not deployment:
            found = self.machine_sets.store.get(owner_key(meta, "MachineSet"))
            deployment = owner_key(found.metadata, "MachineDeployment").partition("/")[2] if found is not None else ""
        return names.reuse_label("md", deployment) if deployment else ""

    def leaving(self, host: BareMetalHost) -> bool:
        """Whether the machine that has this host is being deleted, or gone already; another consumer stays."""
        key = consumer_key(host)
        machine = self.machines.store.get(key)
        return bool(key) and (machine is None or bool(machine.metadata.deletion_timestamp))


def owner_datas(claim: IpClaim) -> list[str]:
    """The Metal3Data an address was claimed for, as a key."""
    name = next((one.name for one in claim.metadata.owner_references if one.kind == metal3.METAL3_DATA.kind), "")
    return [names.key(claim.metadata.namespace, name)] if name else []


@dataclass(frozen=True, slots=True)
class DataCaches:
    templates: Watch[DataTemplate]
    claims: Watch[DataClaim]
    datas: Watch[Data]
    pools: Watch[Object]
    ip_claims: Watch[IpClaim]
    ip_addresses: Watch[IpAddress]
    capi_claims: Watch[IpClaim]
    capi_addresses: Watch[IpAddress]

    @classmethod
    def make(cls, client: Client, metrics: Metrics, scope: Scope = EVERYTHING) -> DataCaches:
        def watch(kind: Kind, record: Any, **indexes: Any) -> Watch[Any]:
            return watch_in(scope, client, kind, record, metrics=metrics, indexes=indexes)

        return cls(
            templates=watch(metal3.METAL3_DATA_TEMPLATE, DataTemplate),
            claims=watch(
                metal3.METAL3_DATA_CLAIM, DataClaim,
                template=lambda one: (names.key(one.metadata.namespace, one.spec.template.name),),
            ),
            datas=watch(
                metal3.METAL3_DATA, Data,
                claim=lambda one: (names.key(one.metadata.namespace, one.spec.claim.name),),
                template=lambda one: (names.key(one.metadata.namespace, one.spec.template.name),),
                unready=lambda one: () if one.status.ready else (one.metadata.namespace,),
            ),
            pools=watch(metal3.METAL3_IP_POOL, Object),
            ip_claims=watch(metal3.METAL3_IP_CLAIM, IpClaim, data=owner_datas),
            ip_addresses=watch(metal3.METAL3_IP_ADDRESS, IpAddress),
            capi_claims=watch(capi.IP_ADDRESS_CLAIM, IpClaim, data=owner_datas),
            capi_addresses=watch(capi.IP_ADDRESS, IpAddress),
        )  # fmt: skip

    def all(self) -> Iterator[Watch[Any]]:
        yield from (self.templates, self.claims, self.datas, self.pools)
        yield from (self.ip_claims, self.ip_addresses, self.capi_claims, self.capi_addresses)

    def unread(self) -> Unread | None:
        return first_unread(self.all())
