"""What taking over from another Metal3 provider would change, before anything does. Pure.

It asks the operator's own decisions about the objects as the other provider left them, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.apis.metal3_data import Data, DataClaim
from hostler.host.conditions import count
from hostler.host.conditions import names as listed
from hostler.kube.kinds import SECRET
from hostler.kube.records import Metadata, Record, key_of
from hostler.metal import names
from hostler.metal.model import Decision, Facts, Step, Write
from hostler.metal.remediation_model import Remediation
from hostler.metal.scope import Scope
from hostler.metal.status import settled

VERSION = "v1beta2"  # of the provider's API: the only one that Hostler reads and writes


class Effect(StrEnum):
    """What a line is about."""

    FIRST = "first"  # has to be done before Hostler takes over
    WRITE = "write"  # Hostler would write this
    JUDGED = "judged"  # Hostler would call it otherwise than it is called now
    OUTSIDE = "outside"  # out of scope
    NOTE = "note"


class Line(msgspec.Struct, frozen=True):
    effect: Effect
    what: str  # kind/namespace/name
    why: str
    fix: str = ""


# -- definitions


class VersionSpec(Record, frozen=True):
    name: str = ""
    storage: bool = False


class DefinitionSpec(Record, frozen=True):
    versions: tuple[VersionSpec, ...] = ()


class DefinitionStatus(Record, frozen=True):
    stored_versions: tuple[str, ...] = ()


class Definition(Record, frozen=True):
    """A CRD: in which version objects are written, and in which ones there may still be some."""

    metadata: Metadata = Metadata()
    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()

    @property
    def storage(self) -> str:
        return next((one.name for one in self.spec.versions if one.storage), "")

    @property
    def older(self) -> list[str]:
        return [one for one in self.status.stored_versions if one != VERSION]


def definition_lines(definitions: Iterable[Definition], empty: Collection[str] = ()) -> Iterator[Line]:
    """Objects in an older version can be read only while the provider's conversion webhook answers.

    `empty`: the definitions of which there is no object.
    """
    for definition in definitions:
        name, storage = definition.metadata.name, definition.storage
        what = f"customresourcedefinition/{name}"
        if storage != VERSION:
            why = f"It stores {storage or 'no version'}, and Hostler reads and writes {VERSION} only."
            yield Line(Effect.FIRST, what, why, f"Bring the provider to a release that stores {VERSION}.")
        elif definition.older:
            them = listed(definition.older)
            why = f"Objects may still be stored as {them}, which only the provider's webhook converts."
            yield Line(Effect.FIRST, what, why, rewrite_command(name, objects=name not in empty))


def rewrite_command(name: str, *, objects: bool = True) -> str:
    """Writes every object once, in the version that is stored now, and then says that there is no other."""
    status = f'{{"status":{{"storedVersions":["{VERSION}"]}}}}'
    rewrite = f"kubectl get {name} --all-namespaces -o json | kubectl replace -f - && " if objects else ""
    return f"{rewrite}kubectl patch crd {name} --subresource=status --type=merge -p '{status}'"


# -- machines and hosts


def machine_lines(facts: Facts, decision: Decision) -> Iterator[Line]:
    """What is decided for a machine: the writes that come first, and whether it is ready."""
    machine = facts.machine
    for write in (*decision.unpause, *decision.writes):
        # Whether a BMC secret has the label is not known here: that would take the right to read secrets.
        if write.kind != SECRET:
            yield write_line(write)
    if decision.make_movable and facts.host is not None:
        what = f"baremetalhost/{key_of(facts.host.metadata)}"
        yield Line(Effect.WRITE, what, f"It is paused, with its status for a move: {decision.make_movable}.")
    if decision.step is Step.CLAIM:
        yield Line(Effect.WRITE, f"metal3machine/{key_of(machine.metadata)}", decision.why)
    if line := judged_line(facts, decision):
        yield line


def judged_line(facts: Facts, decision: Decision) -> Line | None:
    """That a machine would be ready no more, or again; None: it stays as it is, or that takes a look for its node."""
    machine, host = facts.machine, facts.host if facts.associated else None
    if host is not None and host.state == "provisioned" and not settled(machine):
        return None
    now = next((one.status for one in machine.status.conditions if one.type == names.READY), None)
    said = next((one for one in decision.said if one.type == names.READY), None)
    if said is None or now is None or (now == "True") is said.true:
        return None
    becomes = f"True to False ({said.reason})" if not said.true else f"{now} to True"
    return Line(
        Effect.JUDGED, f"metal3machine/{key_of(machine.metadata)}", f"Ready goes from {becomes}: {decision.why}"
    )


def write_line(write: Write) -> Line:
    what = f"{write.kind.kind.lower()}/{names.key(write.namespace, write.name)}"
    return Line(Effect.WRITE, what, f"{', '.join(changed_fields(write.body)) or write.verb}, because {write.why}.")


def changed_fields(body: dict[str, Any]) -> list[str]:
    """What a merge patch changes, with a sign: `+label x`, `-annotation y`, `ownerReferences`, `spec.image`."""
    meta = body.get("metadata", {})
    found = [
        f"{'-' if value is None else '+'}{part.removesuffix('s')} {name}"
        for part in ("labels", "annotations")
        for name, value in (meta.get(part) or {}).items()
    ]
    found += [part for part in ("ownerReferences", "finalizers") if part in meta]
    return found + [f"{part}.{name}" for part in ("spec", "status") for name in body.get(part) or ()]


def freed_line(host: BareMetalHost, why: str) -> Line:
    return Line(Effect.WRITE, f"baremetalhost/{key_of(host.metadata)}", f"It is freed for any machine, because {why}.")


def outside_lines(scope: Scope, machines: Iterable[Metal3Machine]) -> Iterator[Line]:
    for machine in machines:
        if why := scope.why_outside(machine.metadata):
            yield Line(Effect.OUTSIDE, f"metal3machine/{key_of(machine.metadata)}", why)


# -- what goes with the machines


def data_lines(claims: Iterable[DataClaim], datas: Iterable[Data]) -> Iterator[Line]:
    doubled = [one for one in claims if names.MACHINE_FINALIZER in one.metadata.finalizers]
    known = tuple(datas)
    doubled_data = [one for one in known if names.DATA_CLAIM_FINALIZER in one.metadata.finalizers]
    if doubled or doubled_data:
        what = f"{count(len(doubled), 'Metal3DataClaim')} and {count(len(doubled_data), 'Metal3Data')}"
        why = f"{what} have the Go provider's second finalizer, which is taken off when their machine goes."
        yield Line(Effect.NOTE, "metal3data", why)
    if unmarked := [one for one in known if names.RENDERED_FOR not in one.metadata.annotations]:
        why = f"{count(len(unmarked), 'Metal3Data')} get annotation {names.RENDERED_FOR}; nothing is rendered again."
        yield Line(Effect.WRITE, "metal3data", why)


def remediation_lines(remediations: Iterable[Remediation]) -> Iterator[Line]:
    for remediation in remediations:
        phase = remediation.status.phase or "new"
        why = f"It is {phase} and gone on with. A taint of the Go provider's on its node stays: take it off by hand."
        yield Line(Effect.NOTE, f"metal3remediation/{key_of(remediation.metadata)}", why)


def label_lines(commands: Iterable[str]) -> Iterator[Line]:
    for command in commands:
        why = "Without a label `clusterctl move` leaves its objects behind."
        yield Line(Effect.NOTE, f"customresourcedefinition/{command.split()[3]}", why, command)
