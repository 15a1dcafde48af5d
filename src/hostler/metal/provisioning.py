"""What a host is to be for its machine: consumer, labels, image and data. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hostler.apis import capi, metal3
from hostler.apis.metal3 import BareMetalHost, Image, MachineImage, Metal3Machine, SecretRef
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.model import Facts, Write, patch_host, patch_machine
from hostler.metal.moving import block_change, owner_change

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+$")


def wrong_spec(machine: Metal3Machine) -> str:
    """What is wrong with the machine's own spec, as a sentence; empty: nothing."""
    spec, namespace = machine.spec, machine.metadata.namespace
    # What a custom deploy procedure makes of the image is its own business, as with the Go provider.
    if (spec.custom_deploy is None or not spec.custom_deploy.method) and (why := _wrong_image(spec.image)):
        return why
    for field, secret in (
        ("userData", spec.user_data),
        ("metaData", spec.meta_data),
        ("networkData", spec.network_data),
    ):
        if secret is not None and secret.namespace not in ("", namespace):
            return f"spec.{field} names a secret in namespace {secret.namespace}; it must be in {namespace}."
    if spec.data_template is not None and spec.data_template.namespace not in ("", namespace):
        return f"spec.dataTemplate is in namespace {spec.data_template.namespace}; it must be in {namespace}."
    return ""


def _wrong_image(image: MachineImage) -> str:
    if not image.url:
        return "spec has neither image.url nor customDeploy, so there is nothing to provision."
    if not _URL.match(image.url):
        return f"spec.image.url is no URL: {image.url[:80]!r}; it begins with a scheme, such as https://."
    if not image.checksum and image.disk_format != "live-iso" and not image.url.startswith("oci://"):
        return "spec.image has no checksum; only live-iso and oci:// images go without one."
    return ""


def user_data_of(facts: Facts) -> SecretRef | None:
    """The bootstrap secret, or the one the machine names where its Machine brings none."""
    if facts.owner is None:
        return None
    namespace, bootstrap = facts.machine.metadata.namespace, facts.owner.spec.bootstrap
    if bootstrap.data_secret_name:
        return SecretRef(name=bootstrap.data_secret_name, namespace=namespace)
    own = facts.machine.spec.user_data
    if own is not None and own.name and not bootstrap.config_ref.name:
        return SecretRef(name=own.name, namespace=own.namespace or namespace)
    return None


def host_change(facts: Facts, host: BareMetalHost) -> dict[str, Any]:
    """What is to change on the host for it to be this machine's; empty: it is as it ought to be."""
    meta = host.metadata
    change: dict[str, Any] = {}
    labels: dict[str, str | None] = {}
    if facts.cluster_name and meta.labels.get(capi.CLUSTER_NAME) != facts.cluster_name:
        labels[capi.CLUSTER_NAME] = facts.cluster_name
    if names.NODE_REUSE in meta.labels:
        labels[names.NODE_REUSE] = None
    if names.MOVE_HIERARCHY not in meta.labels:
        labels[names.MOVE_HIERARCHY] = ""
    metadata = owner_change(meta, facts.machine.metadata)
    if labels:
        metadata["labels"] = labels
    if annotations := block_change(host):
        metadata["annotations"] = annotations
    if metadata:
        change["metadata"] = metadata
    spec = {} if _consumes(host, facts.machine) else {"consumerRef": consumer_of(facts.machine)}
    rendered = facts.rendered
    if rendered is None or rendered.ready:
        spec |= _provisioning(facts, host)
    if spec:
        change["spec"] = spec
    return change


def host_write(facts: Facts, host: BareMetalHost) -> Write | None:
    """The write that makes the host what it ought to be for this machine; None: it is."""
    change = host_change(facts, host)
    return patch_host(host, change, f"for Metal3Machine {facts.machine.metadata.name}") if change else None


def name_host(machine: Metal3Machine, host_key: str, why: str) -> Write | None:
    """Write on the machine which host it has, or is going to take before that is claimed; None: it says so."""
    meta = machine.metadata
    change: dict[str, Any] = {}
    if meta.annotations.get(names.HOST_ANNOTATION) != host_key:
        change["annotations"] = {names.HOST_ANNOTATION: host_key}
    if names.MACHINE_FINALIZER not in meta.finalizers:
        change["finalizers"] = [*meta.finalizers, names.MACHINE_FINALIZER]
    return patch_machine(machine, change, why) if change else None


def claim_write(facts: Facts, host: BareMetalHost) -> Write:
    """The claim itself: it holds only for the version of the host that was chosen."""
    return patch_host(host, host_change(facts, host), f"claimed for Metal3Machine {key_of(facts.machine.metadata)}")


def _provisioning(facts: Facts, host: BareMetalHost) -> dict[str, Any]:
    """Image and data, only where the host has none: another image would be a new installation."""
    wanted, spec = facts.machine.spec, host.spec
    change: dict[str, Any] = {}
    user_data = user_data_of(facts)
    # The spec may have become wrong after the claim: say a secret of another namespace, which is not ours to hand out.
    if not host.imaged and user_data is not None and not wrong_spec(facts.machine):
        if wanted.image.url:
            change["image"] = msgspec.to_builtins(
                Image(
                    url=wanted.image.url, checksum=wanted.image.checksum, checksum_type=wanted.image.checksum_type,
                    format=wanted.image.disk_format,
                )
            )  # fmt: skip
        if wanted.custom_deploy is not None:
            change["customDeploy"] = {"method": wanted.custom_deploy.method}
        meta_data, network_data = data_of(facts)
        for name, secret in (("userData", user_data), ("metaData", meta_data), ("networkData", network_data)):
            if secret is not None:
                change[name] = {"name": secret.name, "namespace": secret.namespace or host.metadata.namespace}
        if not spec.online:
            change["online"] = True  # only now: who switches a provisioned host off later has a reason
    if wanted.automated_cleaning_mode and wanted.automated_cleaning_mode != spec.automated_cleaning_mode:
        change["automatedCleaningMode"] = wanted.automated_cleaning_mode
    return change


def data_of(facts: Facts) -> tuple[SecretRef | None, SecretRef | None]:
    """metaData and networkData: what the machine names itself, else what its template rendered."""
    spec, rendered = facts.machine.spec, facts.rendered
    meta = spec.meta_data or (rendered.meta_data if rendered is not None else None)
    network = spec.network_data or (rendered.network_data if rendered is not None else None)
    return meta, network


def consumer_of(machine: Metal3Machine) -> dict[str, str]:
    kind, meta = metal3.METAL3_MACHINE, machine.metadata
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "namespace": meta.namespace}


def _consumes(host: BareMetalHost, machine: Metal3Machine) -> bool:
    return host.spec.consumer_ref is not None and host.spec.consumer_ref.is_machine(machine)


def provider_ids(machine: Metal3Machine, host: BareMetalHost) -> tuple[str, str]:
    """The provider id as it is written now, and as it was written before."""
    meta = machine.metadata
    return f"metal3://{meta.namespace}/{host.metadata.name}/{meta.name}", f"metal3://{host.metadata.uid}"
