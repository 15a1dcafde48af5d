"""Whose data it is, how far it is, and whether it is in use; when a machine claims it and lets it go. Pure."""

from __future__ import annotations

import msgspec

from hostler.apis import capi, metal3
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.apis.metal3_data import Data, DataClaim
from hostler.kube.records import Metadata, Record
from hostler.metal import names
from hostler.metal.model import Facts, Write, owner_reference
from hostler.metal.names import RENDERED_FOR


class RenderedSecret(Record, frozen=True):
    """A Secret with the name of one of ours."""

    metadata: Metadata = Metadata()
    type: str = ""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)


# -- whose data it is


def is_rendered_for(data: Data, host: BareMetalHost) -> bool:
    """Whether this was rendered for this host. Where nobody wrote for which, as the Go provider does not, it was."""
    return data.metadata.annotations.get(RENDERED_FOR, host.metadata.uid) == host.metadata.uid


def is_installed_with(data: Data, host: BareMetalHost) -> bool:
    """Whether this host is installed with the secrets this data names; its status may be lost, as after a move."""
    pairs = ((data.spec.meta_data, host.spec.meta_data), (data.spec.network_data, host.spec.network_data))
    used = [(ours.name, theirs.name if theirs is not None else "") for ours, theirs in pairs if ours is not None]
    return host.imaged and bool(used) and all(ours == theirs for ours, theirs in used)


def names_secrets(data: Data, host: BareMetalHost, secrets: dict[str, dict[str, str] | None]) -> bool:
    """Whether it names these secrets already, as rendered for this host."""
    known = {"metaData": data.spec.meta_data, "networkData": data.spec.network_data}
    same = {field: msgspec.to_builtins(one) if one is not None else None for field, one in known.items()} == secrets
    return same and data.metadata.annotations.get(RENDERED_FOR) == host.metadata.uid


def is_of_other_template(claim: DataClaim, machine: Metal3Machine) -> bool:
    wanted = machine.spec.data_template
    return wanted is not None and claim.spec.template.name != wanted.name


def is_owned(claim: DataClaim, machine: Metal3Machine) -> bool:
    return any(one.uid == machine.metadata.uid for one in claim.metadata.owner_references)


def why_in_use(claim: DataClaim, machine: Metal3Machine, host: BareMetalHost | None, unreadable: str) -> str:
    """That a host is, or may be, installed with what a user deletes by hand: its addresses must stay its own."""
    if machine.metadata.deletion_timestamp or not is_owned(claim, machine):
        return ""
    if host is None or not host.imaged:
        return unreadable
    return f"Host {host.metadata.name} is installed with this data, which goes with its machine and not before."


def why_unfit(claim: DataClaim, machine: Metal3Machine) -> str:
    """Why a claim of the machine's name is not the one it is to be provisioned with; empty: it is."""
    name = claim.metadata.name
    if claim.metadata.deletion_timestamp:
        return f"it waits until the Metal3DataClaim {name} of before is gone."
    if not is_owned(claim, machine):
        return f"Metal3DataClaim {name} belongs to another machine of its name, or to nobody: delete it."
    if is_of_other_template(claim, machine):
        return f"its data is claimed again: the claim was for Metal3DataTemplate {claim.spec.template.name}."
    return ""


def why_not_ours(secret: RenderedSecret) -> str:
    """Why a Secret that has the name of ours is another's; empty: it is ours, of an earlier try or another machine."""
    stranger = next((one for one in secret.metadata.owner_references if one.kind != metal3.METAL3_DATA.kind), None)
    if stranger is not None:
        return f"it belongs to {stranger.kind} {stranger.name}"
    return "" if secret.type == names.SECRET_TYPE else f"its type is {secret.type or 'not known'}"


# -- the claim of a machine


def ask_writes(facts: Facts) -> tuple[Write, ...]:
    """Claim data once the machine has a host: only then is known what is to be rendered. Of another template: again."""
    machine, template, seen = facts.machine, facts.machine.spec.data_template, facts.data_claim
    if template is None or seen is None:
        return ()
    meta, claim = machine.metadata, seen.claim
    if claim is not None:
        unused = facts.host is not None and not facts.host.imaged
        if not (unused and is_of_other_template(claim, machine) and is_owned(claim, machine)):
            return ()
        return _delete(claim, f"Metal3Machine {meta.name} wants its data from {template.name} now")
    body = {
        "metadata": {
            "name": meta.name, "namespace": meta.namespace,
            "labels": {capi.CLUSTER_NAME: facts.cluster_name, **seen.labels},
            "finalizers": [names.DATA_CLAIM_FINALIZER],
            "ownerReferences": [owner_reference(metal3.METAL3_MACHINE, meta)],
        },
        "spec": {"template": {"name": template.name, "namespace": meta.namespace}},
    }  # fmt: skip
    why = f"data for Metal3Machine {meta.name}"
    return (Write(metal3.METAL3_DATA_CLAIM, meta.name, meta.namespace, body, why, verb="create"),)


def let_go_writes(facts: Facts) -> tuple[Write, ...]:
    """The machine goes, and its data with it; not while a host of another namespace may have its addresses."""
    seen = facts.data_claim
    if seen is None or seen.claim is None or facts.elsewhere:
        return ()
    return _delete(seen.claim, f"Metal3Machine {facts.machine.metadata.name} goes")


def _delete(claim: DataClaim, why: str) -> tuple[Write, ...]:
    meta = claim.metadata
    if meta.deletion_timestamp:
        return ()
    return (Write(metal3.METAL3_DATA_CLAIM, meta.name, meta.namespace, {}, why, verb="delete", uid=meta.uid),)
