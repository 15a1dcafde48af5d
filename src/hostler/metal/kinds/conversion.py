"""Objects of the provider's kinds in another version, without loss. Pure.

What one version cannot say is kept in the annotation `cluster.x-k8s.io/conversion-data`, as Cluster API does: the whole
object as it was, and only where something would be lost. Who changes the object in the other version meanwhile changes
just what they see: `_restored` takes everything else from what was kept.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from hostler.apis.metal3 import GROUP
from hostler.metal.kinds.conversion_table import CHANGES, convert_fields
from hostler.metal.kinds.webhook_objects import KEPT, VERSIONS
from hostler.webhooks.reviews import CannotConvert

Json = dict[str, Any]
NEWER, OLDER = (f"{GROUP}/{version}" for version in VERSIONS)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_MISSING = object()
_KEYS = ("name", "key", "id", "type")  # by which entries of a list are known, where each has a different one


def convert(thing: Json, version: str) -> Json:
    """The object in `version` (with its group). Raises CannotConvert with what is wrong with it."""
    current, kind = str(thing.get("apiVersion")), str(thing.get("kind"))
    if kind not in CHANGES:
        raise CannotConvert(f"Hostler knows no kind {kind!r} of group {GROUP}")
    for one in (current, version):
        if one not in (NEWER, OLDER):
            raise CannotConvert(f"Hostler knows no version {one!r} of {kind}")
    if current == version:
        return thing
    newer = version == NEWER
    body = {name: value for name, value in thing.items() if name not in ("apiVersion", "kind", "metadata")}
    kept = read_kept(thing)
    made = _made(kind, body, newer=newer)
    if kept is not None:
        seen = _made(kind, _made(kind, kept, newer=not newer), newer=newer)
        made = _restored(made, seen, kept)
    annotations = {**((thing.get("metadata") or {}).get("annotations") or {})}
    annotations.pop(KEPT, None)
    if not _same(_made(kind, made, newer=not newer), body):
        annotations[KEPT] = _ENCODER.encode({"apiVersion": current, "kind": kind, **body}).decode()
    return {"apiVersion": version, "kind": kind, "metadata": _annotated(thing.get("metadata"), annotations), **made}


def read_kept(thing: Json) -> Json | None:
    """What the object was in the other version when it was last converted; None where nothing was lost.

    Cluster API's own tools leave out the version: then it is the newer one's, on an object of the older.
    """
    text = ((thing.get("metadata") or {}).get("annotations") or {}).get(KEPT)
    if text is None:
        return None
    try:
        kept = msgspec.json.decode(text, type=Json)
    except (msgspec.MsgspecError, RecursionError, TypeError, UnicodeError) as error:
        raise CannotConvert(f"its annotation {KEPT} cannot be read ({error}); remove it") from error
    current = thing.get("apiVersion")
    default = NEWER if current == OLDER else None
    if kept.pop("kind", thing.get("kind")) != thing.get("kind"):
        raise CannotConvert(f"its annotation {KEPT} is of another kind; remove it")
    saved = kept.pop("apiVersion", default)
    kept.pop("metadata", None)
    return kept if saved in (NEWER, OLDER) and saved != current else None


def _made(kind: str, body: Json, *, newer: bool) -> Json:
    return convert_fields(kind, copy.deepcopy(body), newer=newer)


def _annotated(metadata: Any, annotations: dict[str, str]) -> Json:
    known = {**(metadata or {})}
    if annotations or known.get("annotations"):
        known["annotations"] = annotations
    return known


def _restored(now: Any, seen: Any, kept: Any) -> Any:
    """`now` with what `kept` says more than was `seen` of it. Whatever differs from what was seen was changed since."""
    if _same(now, seen):
        return kept
    if isinstance(now, dict) and isinstance(seen, dict) and isinstance(kept, dict):
        return dict(_fields(now, seen, kept))
    if isinstance(now, list) and isinstance(seen, list) and isinstance(kept, list):
        return [_entry(one, seen, kept) for one in now]
    return now


def _fields(now: Json, seen: Json, kept: Json) -> Any:
    for name in (*now, *(name for name in kept if name not in now)):
        new, old = now.get(name, _MISSING), seen.get(name, _MISSING)
        if new is _MISSING and old is not _MISSING:
            continue  # taken away since
        found = _restored(new, old, kept.get(name, _MISSING))
        if found is not _MISSING:
            yield name, found


def _entry(one: Any, seen: list[Any], kept: list[Any]) -> Any:
    """An entry of a list: known by its name, else by not having been changed, never by its place alone."""
    key = _key([*seen, one], kept)
    if key:
        before = [(old, rich) for old in seen for rich in kept if old[key] == rich[key] == one[key]]
        return _restored(one, *before[0]) if len(before) == 1 else one
    same = [rich for old, rich in zip(seen, kept, strict=False) if len(seen) == len(kept) and _same(one, old)]
    return same[0] if same else one


def _key(seen: list[Any], kept: list[Any]) -> str:
    for key in _KEYS:
        if all(isinstance(one, dict) and isinstance(one.get(key), str) for one in (*seen, *kept)):
            return key
    return ""


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: to Python, 1 and true are the same."""
    if one is _MISSING or other is _MISSING:
        return one is other
    return _ENCODER.encode(one) == _ENCODER.encode(other)
