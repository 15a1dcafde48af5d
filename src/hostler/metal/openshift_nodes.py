"""Which Node of this cluster a BareMetalHost is that an OpenShift Machine has. Pure.

OpenShift's Machines are always of their own cluster. Proof is what two parties say of each other: the host names the
Machine as its consumer, the Machine names the host (an annotation) and its Node (`status.nodeRef`), and no kubelet may
write either. The Node's own provider ID, which its kubelet wrote, only ever raises a doubt.
"""

from __future__ import annotations

from msgspec.structs import replace

from hostler.apis import openshift
from hostler.apis.capi import group_of
from hostler.apis.metal3 import BareMetalHost
from hostler.inventory.model import Layer, node_key
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.host_lines import Here

NAMESPACE = "openshift-machine-api"  # its controllers manage no Machine elsewhere


def openshift_machine_key(host: BareMetalHost) -> str:
    """The OpenShift Machine that is the consumer of a host; "": none is."""
    consumer = host.spec.consumer_ref
    if consumer is None or (group_of(consumer.api_version), consumer.kind) != (
        openshift.MACHINE.group, openshift.MACHINE.kind,
    ):  # fmt: skip
        return ""
    return names.key(consumer.namespace, consumer.name) if consumer.namespace == NAMESPACE else ""


def named_host(machine: openshift.Machine) -> str:
    """The host that a Machine says it has, as NAMESPACE/NAME; "" where it names none."""
    return machine.metadata.annotations.get(names.HOST_ANNOTATION, "")


def join_openshift_node(
    layer: Layer, host: BareMetalHost, machine: openshift.Machine, here: Here, cluster: str
) -> Layer:
    """The layer with the Node that it is, or with the doubt. `cluster`: what this cluster is called."""
    named = here.node(machine.node)
    if named is None:
        return replace(layer, cluster=cluster, node=machine.node)
    ids = {one for one in (machine.spec.provider_id, named.provider_id) if one}
    doubt = ""
    if named_host(machine) != key_of(host.metadata):
        doubt = f"Machine {machine.metadata.name}, its consumer, does not name it"
    elif len(ids) > 1:
        doubt = "the node has another provider ID than its Machine"
    if doubt:
        return replace(layer, doubts=(f"Node {named.name} may be it, without proof: {doubt}.",))
    return replace(layer, cluster=cluster, node=named.name, same_as=(node_key(cluster, named.name),))
