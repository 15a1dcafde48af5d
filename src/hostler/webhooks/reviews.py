"""What the API server asks a webhook, and the answers: AdmissionReview and ConversionReview, both v1. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from hostler.kube.records import Record

Json = dict[str, Any]
R = TypeVar("R")
ADMISSION, CONVERSION = "admission.k8s.io/v1", "apiextensions.k8s.io/v1"
# A message is shown to the user and written into logs. Warnings are cut by the API server at 256 characters.
LONGEST_MESSAGE, LONGEST_WARNING, MOST_WARNINGS = 8192, 250, 10


class NotAReview(Exception):
    """What was sent is no review; `str()` says what it is instead."""


class GroupVersionKind(Record, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(Record, frozen=True):
    """`object` is the object as it would be, `old_object` the one that it replaces."""

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    operation: str = ""
    namespace: str = ""
    name: str = ""
    object: Json | None = None
    old_object: Json | None = None


class _Review(Record, Generic[R], frozen=True):
    api_version: str
    request: R


class ConversionRequest(Record, frozen=True):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion", default="")
    objects: tuple[Json, ...] = ()


class Verdict(Record, frozen=True):
    """`patched`: the object with everything filled in; None: nothing was. `code`: as HTTP has it, of a refusal."""

    allowed: bool
    message: str = ""
    code: int = 422
    warnings: tuple[str, ...] = ()
    patched: Json | None = None


# Both raise nothing that a request can cause but what is named here.
Admit = Callable[[AdmissionRequest], Verdict]
Convert = Callable[[Json, str], Json]  # an object and a version; raises CannotConvert


class CannotConvert(Exception):
    """An object that has no form in the other version. `str()` says why, without naming the object."""


_ADMISSION_DECODER = msgspec.json.Decoder(_Review[AdmissionRequest])
_CONVERSION_DECODER = msgspec.json.Decoder(_Review[ConversionRequest])
_ENCODER = msgspec.json.Encoder()


def read_admission(body: bytes) -> AdmissionRequest:
    return _read(_ADMISSION_DECODER, body, ADMISSION)


def read_conversion(body: bytes) -> ConversionRequest:
    return _read(_CONVERSION_DECODER, body, CONVERSION)


def _read(decoder: msgspec.json.Decoder[_Review[R]], body: bytes, version: str) -> R:
    try:
        review = decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise NotAReview(f"this is no review of {version}: {error}") from error
    if review.api_version != version:
        raise NotAReview(f"reviews of {review.api_version!r} are not known here, only {version}")
    return review.request


def write_admission(request: AdmissionRequest, verdict: Verdict) -> bytes:
    response: Json = {"uid": request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        reason = "Invalid" if verdict.code == 422 else "BadRequest" if verdict.code == 400 else "Forbidden"
        message = verdict.message[:LONGEST_MESSAGE]
        response["status"] = {"status": "Failure", "message": message, "reason": reason, "code": verdict.code}
    if verdict.warnings:
        response["warnings"] = [warning[:LONGEST_WARNING] for warning in verdict.warnings[:MOST_WARNINGS]]
    if verdict.allowed and verdict.patched is not None:
        changes = list(_changes(request.object or {}, verdict.patched))
        if changes:
            response |= {"patchType": "JSONPatch", "patch": _ENCODER.encode(changes)}
    return _ENCODER.encode({"apiVersion": ADMISSION, "kind": "AdmissionReview", "response": response})


def _changes(before: Json, after: Json) -> Any:
    """A JSON patch, field by field of the object: `add` replaces what is there."""
    for name, value in after.items():
        if name not in before or before[name] != value:
            yield {"op": "add", "path": f"/{name}", "value": value}


def answer_conversion(request: ConversionRequest, convert: Convert) -> tuple[bytes, str]:
    """The whole answer, and why it failed; empty: it did not. One object that fails is named, and none is changed."""
    converted: list[Json] = []
    for thing in request.objects:
        try:
            converted.append(convert(thing, request.desired_api_version))
        except (CannotConvert, RecursionError) as error:
            why = f"{name_of(thing)} cannot be converted to {request.desired_api_version}: {error}"
            return _conversion(request, {"status": "Failure", "message": why[:LONGEST_MESSAGE]}, []), why
    return _conversion(request, {"status": "Success"}, converted), ""


def _conversion(request: ConversionRequest, result: Json, converted: list[Json]) -> bytes:
    response = {"uid": request.uid, "result": result, "convertedObjects": converted}
    return _ENCODER.encode({"apiVersion": CONVERSION, "kind": "ConversionReview", "response": response})


def name_of(thing: Json) -> str:
    """`Metal3Machine metal/worker-0`, as far as it has a name."""
    metadata = thing.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    place = "/".join(str(known[name]) for name in ("namespace", "name") if known.get(name))
    return f"{thing.get('kind') or 'an object'} {place or 'without a name'}"
