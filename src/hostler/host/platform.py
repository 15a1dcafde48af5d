"""Which platform a node belongs to. One function, used everywhere. Pure.

Labels are scheduling hints, not proof of identity: a kubelet can set them on itself. What may power off or wipe a
machine asks `host.identity` instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hostler.instant import Instant, parse
from hostler.kube.records import Node

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
# OpenShift's label, and the one the seed names as its alternative. Both are read, neither is written.
PLATFORM_TYPES = ("node.openshift.io/platform-type", "node.kubernetes.io/platform-type")
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
VSPHERE = "vsphere"


class Class(StrEnum):
    VSPHERE = "vsphere"
    OTHER = "other"
    LABELLED = "labelled"
    UNINITIALISED = "uninitialised"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Classification:
    """The one class of a node, the platform's name where it has one, and why."""

    kind: Class
    platform: str
    why: str


def classify(node: Node, now: Instant, grace: float) -> Classification:
    """The platform class of a node; the first rule that fits.

    Total: every node has exactly one class. A node whose age cannot be told counts as young, because `foreign` is the
    class that is acted upon.
    """
    provider, labels = node.spec.provider_id, node.metadata.labels
    instance, platform = labels.get(INSTANCE_TYPE), platform_label(labels)
    if provider.startswith("vsphere://"):
        return Classification(Class.VSPHERE, VSPHERE, f"its providerID is {provider}")
    if any(labels.get(key) == VSPHERE for key in PLATFORM_TYPES):
        return Classification(Class.VSPHERE, VSPHERE, "its platform-type label says vsphere")
    if instance is not None and instance.startswith("vsphere-vm."):
        return Classification(Class.VSPHERE, VSPHERE, f"its instance type is {instance}")
    if provider:
        scheme = scheme_of(provider)
        return Classification(Class.OTHER, scheme, f"its providerID {provider} is of platform {scheme}")
    if instance is not None or platform is not None:
        label = f"platform-type {platform!r}" if platform is not None else f"instance type {instance!r}"
        return Classification(Class.LABELLED, platform or "", f"it has no providerID, but a label: {label}")
    if any(taint.key == UNINITIALIZED for taint in node.spec.taints):
        return _uninitialised(node, now, grace)
    return Classification(Class.FOREIGN, "", "it has no providerID and no instance-type or platform label")


def _uninitialised(node: Node, now: Instant, grace: float) -> Classification:
    # The creation time is the API server's clock and `now` is ours. The grace is minutes, a skew is seconds; and a
    # node that seems to come from the future is young.
    created = parse(node.metadata.creation_timestamp)
    if created is None:
        return Classification(
            Class.UNINITIALISED, "", "its cloud provider has not initialised it, and its age is unknown"
        )
    if now - created < grace:
        return Classification(
            Class.UNINITIALISED, "", f"its cloud provider has not initialised it yet (grace {grace:g} s)"
        )
    return Classification(
        Class.FOREIGN, "", f"no cloud provider initialised it within {grace:g} s; it has no providerID and no label"
    )


def platform_label(labels: dict[str, str]) -> str | None:
    """The platform a node's labels claim; None where no such label is set (an empty one is set)."""
    return next((labels[key] for key in PLATFORM_TYPES if key in labels), None)


def scheme_of(provider_id: str) -> str:
    """`aws` of `aws:///eu-1a/i-1`; the whole text where it has no scheme, so that the class has a name at all."""
    return provider_id.partition("://")[0] or "unknown"
