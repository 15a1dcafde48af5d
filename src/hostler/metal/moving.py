"""What `clusterctl move` must find on a host, and what it must not. Pure.

A host that is copied without its status is installed once more where it arrives. So a host that one of our machines
has is always in one of two states, and becomes movable in a single patch that holds for one version only:

- not paused, with the annotation block-move: clusterctl waits, also while no operator runs;
- paused, with its status in an annotation, without block-move: clusterctl may copy it.

On the way back block-move comes first and the pause goes last, with a fresh read of the Cluster between the two.
No host has its machine as an owner: Kubernetes would delete the host after the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hostler.apis import capi, metal3
from hostler.apis.metal3 import BareMetalHost, OwnedMetadata, Owner
from hostler.kube.records import Metadata
from hostler.metal import names
from hostler.metal.model import MakeMovable, Write

UNBLOCKED: dict[str, Any] = {"annotations": {names.BLOCK_MOVE: None}}


def block_change(host: BareMetalHost) -> dict[str, str]:
    """The annotation that keeps a host from being moved; empty: it has it, or is paused."""
    has = host.metadata.annotations
    return {} if names.PAUSED in has or names.BLOCK_MOVE in has else {names.BLOCK_MOVE: ""}


def is_movable(host: BareMetalHost) -> bool:
    """Whether clusterctl may copy this host as it is."""
    has = host.metadata.annotations
    return names.PAUSED in has and names.STATUS_ANNOTATION in has and names.BLOCK_MOVE not in has


def is_moved_away(meta: Metadata | OwnedMetadata) -> bool:
    """Whether clusterctl has copied this object and deletes it here: nothing of it is to be touched any more."""
    return names.DELETE_FOR_MOVE in meta.annotations


def pause_change(whole: Mapping[str, Any], machine: Metadata, *, pause: bool) -> dict[str, Any]:
    """The patch that makes a host movable, from the whole object: our record has only part of the status.

    Without `pause` only a host that another party paused. Their pause stays. A host without a status, and without one
    that is to be restored, is blocked until it has one: it would be installed again where it arrives.
    """
    meta = msgspec.convert(whole["metadata"], OwnedMetadata)
    has, change = meta.annotations, dict[str, str | None]()
    if is_moved_away(meta) or (names.PAUSED not in has and not pause):
        return {}
    if names.PAUSED not in has:
        change[names.PAUSED] = names.OUR_PAUSE
    status = {name: value for name, value in (whole.get("status") or {}).items() if name != "hardware"}
    # While a host is paused its status does not change; one from before the pause is out of date.
    if status.get("provisioning", {}).get("state") and (change or names.STATUS_ANNOTATION not in has):
        change[names.STATUS_ANNOTATION] = msgspec.json.encode(status).decode()
    saved = names.STATUS_ANNOTATION in has or names.STATUS_ANNOTATION in change
    if saved == (names.BLOCK_MOVE in has):
        change[names.BLOCK_MOVE] = None if saved else ""
    return {"metadata": {"annotations": change, **owner_change(meta, machine)}} if change else {}


def movable_write(whole: Mapping[str, Any], machine: Metadata, wanted: MakeMovable) -> Write | None:
    """The write that makes a host movable, for the version that was read; None: nothing is to change."""
    change, meta = pause_change(whole, machine, pause=wanted.pause), whole["metadata"]
    if not change:
        return None
    name, namespace, version = str(meta["name"]), str(meta["namespace"]), str(meta["resourceVersion"])
    return Write(metal3.BARE_METAL_HOST, name, namespace, change, wanted.why, version=version)


def unpause_change(host: BareMetalHost) -> dict[str, Any]:
    """Take back our own pause; another party's stays, and so does the status that a moved host is restored from."""
    if host.metadata.annotations.get(names.PAUSED) != names.OUR_PAUSE:
        return {}
    return {"metadata": {"annotations": {names.PAUSED: None, names.BLOCK_MOVE: ""}}}


# -- owners


def is_machine(owner: Owner) -> bool:
    kind = metal3.METAL3_MACHINE
    return owner.kind == kind.kind and capi.group_of(owner.api_version) == kind.group


def owner_change(host: OwnedMetadata, machine: Metadata) -> dict[str, Any]:
    """The owner references of a host without this machine's, which the Go provider and Hostler used to write."""
    kept = [one for one in host.owner_references if not (is_machine(one) and one.name == machine.name)]
    if len(kept) == len(host.owner_references):
        return {}
    return {"ownerReferences": [msgspec.to_builtins(one) for one in kept] or None}
