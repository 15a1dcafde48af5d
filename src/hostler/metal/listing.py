"""Hosts and capacity as `hostler metal` lists them: by the operator's own rules, but without an operator."""

from __future__ import annotations

import msgspec

from hostler.apis import metal3
from hostler.apis.metal3 import BareMetalHost, Metal3Machine, Metal3MachineTemplate
from hostler.errors import Complaint, Exit
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.claiming.choose import Policy, Wish, WrongSelector, domain_of, refuse_host
from hostler.metal.claiming.refusal import Refusal, Refused, count_refusals, why_not_free
from hostler.metal.provisioning import wrong_spec


class HostLine(msgspec.Struct, rename="camel", frozen=True):
    """One host as a person wants to see it."""

    host: str
    state: str
    consumer: str
    failure_domain: str
    last_used: str
    why_not_available: str  # empty: it can be had


class Capacity(msgspec.Struct, rename="camel", frozen=True):
    """How many machines of a template fit now, and what keeps the other hosts out."""

    template: str
    fit: int
    hosts: int
    limits: dict[str, int]


async def list_hosts(client: Client, namespace: str | None = None, labels: str = "") -> list[HostLine]:
    try:
        found = await client.list(metal3.BARE_METAL_HOST, namespace, type=BareMetalHost, labels=labels)
    except NotFound:
        raise Complaint(
            "There are no BareMetalHosts in this cluster: the kind is not installed.",
            hint="It comes with Baremetal Operator.",
            code=Exit.REFUSED,
        ) from None
    return [describe_host(one) for one in sorted(found, key=lambda one: key_of(one.metadata))]


def describe_host(host: BareMetalHost) -> HostLine:
    consumer = host.spec.consumer_ref
    label = host.metadata.labels.get(names.NODE_REUSE)
    why = why_not_free(host)
    if why is None and label is not None:
        why = Refusal(Refused.RESERVED, label)
    text = why.text if why is not None else "it has a consumer" if consumer is not None else ""
    return HostLine(
        key_of(host.metadata),
        host.state or "new",
        f"{consumer.kind} {consumer.namespace}/{consumer.name}" if consumer is not None else "",
        domain_of(host),
        host.last_used,
        text,
    )


async def measure_capacity(client: Client, template: str, *, strict: bool = False) -> Capacity:
    """How many machines of this template (NAMESPACE/NAME) could get a host right now."""
    namespace, slash, name = template.partition("/")
    if not (namespace and slash and name):
        hint = "For example: hostler metal capacity metal/workers"
        raise Complaint(f'"{template}" is not NAMESPACE/NAME.', hint=hint, code=Exit.USAGE)
    try:
        found = await client.get(metal3.METAL3_MACHINE_TEMPLATE, name, namespace, type=Metal3MachineTemplate)
    except NotFound:
        hint = f"See which there are: kubectl get metal3machinetemplates -n {namespace}"
        raise Complaint(f"There is no Metal3MachineTemplate {template}.", hint=hint, code=Exit.REFUSED) from None
    hosts = await client.list(metal3.BARE_METAL_HOST, namespace, type=BareMetalHost)
    try:
        return count_capacity(template, found, hosts, Policy(strict_domains=strict))
    except ValueError as wrong:
        raise Complaint(f"No machine of {template} could ever get a host: {wrong}", code=Exit.REFUSED) from wrong


def count_capacity(name: str, template: Metal3MachineTemplate, hosts: list[BareMetalHost], policy: Policy) -> Capacity:
    """Raises ValueError with a sentence where no machine of it would ever be given a host."""
    spec = template.spec.template.spec
    machine = Metal3Machine(metadata=template.metadata, spec=spec)
    if why := wrong_spec(machine):
        raise ValueError(why)
    try:
        wish = Wish.of(machine, domain=spec.failure_domain)
    except WrongSelector as wrong:
        raise ValueError(f"{wrong}.") from wrong
    reasons = [refuse_host(wish, one, policy) for one in hosts]
    return Capacity(name, reasons.count(None), len(hosts), dict(count_refusals(one for one in reasons if one)))
