"""What the provider's kinds may not say: one row per rule, as the Go provider's webhooks. Pure.

A rule is asked about the object as it would be, and about the one that it replaces. What is wrong with that one in the
same field already is only warned of: an object from before there were webhooks can still lose its finalizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hostler.metal.kinds.conversion import read_kept
from hostler.metal.kinds.conversion_table import read_duration
from hostler.metal.kinds.defaulting import BOTH, NEW, OLD, REBOOT, RETRIES
from hostler.metal.kinds.webhook_objects import KINDS
from hostler.webhooks.reviews import CannotConvert

Json = dict[str, Any]
LIVE_ISO = "live-iso"
LEAST_SECONDS = 100  # between two reboots of a remediation


@dataclass(frozen=True, slots=True)
class Wrong:
    """`field`: its path as users write it."""

    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {self.why}"


@dataclass(frozen=True, slots=True)
class Rule:
    """`find` is for an object by itself, `compare` for one that replaces another."""

    kind: str
    what: str
    find: Callable[[Json], Iterator[Wrong]] | None = None
    compare: Callable[[Json, Json], Iterator[Wrong]] | None = None
    versions: frozenset[str] = BOTH
    only_new: bool = False  # only when the object is created


@dataclass(frozen=True, slots=True)
class Judgement:
    wrong: tuple[Wrong, ...] = ()
    warnings: tuple[Wrong, ...] = ()  # was wrong before


def judge(thing: Json, before: Json | None, version: str) -> Judgement:
    """`before`: the object that is replaced; None: it is created."""
    wrong: dict[Wrong, None] = {}
    known: set[str] = set()
    for rule in RULES:
        if rule.kind != thing.get("kind") or version not in rule.versions or (rule.only_new and before is not None):
            continue
        if rule.find is not None:
            wrong |= dict.fromkeys(rule.find(thing))
            if before is not None:
                known |= {one.field for one in rule.find(before)}
        if rule.compare is not None and before is not None:
            wrong |= dict.fromkeys(rule.compare(thing, before))
    return Judgement(
        tuple(one for one in wrong if one.field not in known), tuple(one for one in wrong if one.field in known)
    )


# -- looking into an object


def _at(thing: Any, path: str) -> Any:
    """What is there; None where something is missing on the way."""
    for name in path.split("."):
        thing = thing.get(name) if isinstance(thing, dict) else None
    return thing


def _text(thing: Any, path: str) -> str:
    found = _at(thing, path)
    return found if isinstance(found, str) else ""


def _entries(thing: Any, path: str) -> Iterator[tuple[str, Json]]:
    found = _at(thing, path)
    for number, one in enumerate(found if isinstance(found, list) else ()):
        if isinstance(one, dict):
            yield f"{path}[{number}]", one


# -- rules


def _endpoint(at: str, *, port: bool) -> Callable[[Json], Iterator[Wrong]]:
    def find(thing: Json) -> Iterator[Wrong]:
        if not _text(thing, f"{at}.controlPlaneEndpoint.host"):
            yield Wrong(f"{at}.controlPlaneEndpoint.host", "is required")
        if port and not _at(thing, f"{at}.controlPlaneEndpoint.port"):
            yield Wrong(f"{at}.controlPlaneEndpoint.port", "is required")

    return find


def _cloud_provider(thing: Json) -> Iterator[Wrong]:
    enabled, without = _at(thing, "spec.cloudProviderEnabled"), _at(thing, "spec.noCloudProvider")
    if isinstance(enabled, bool) and enabled is without:
        yield Wrong("spec.cloudProviderEnabled", f"is {enabled}, and noCloudProvider says the opposite".lower())


def _image(at: str, disk_format: str) -> Callable[[Json], Iterator[Wrong]]:
    def find(thing: Json) -> Iterator[Wrong]:
        if _text(thing, f"{at}.customDeploy.method"):
            return
        url, checksum = _text(thing, f"{at}.image.url"), _text(thing, f"{at}.image.checksum")
        if not url and not checksum:
            yield Wrong(f"{at}.image", "either image or customDeploy is required")
            return
        if not url:
            yield Wrong(f"{at}.image.url", "is required")
        elif not is_url(url):
            yield Wrong(f"{at}.image.url", f"{url!r} is not a URL")
        if _text(thing, f"{at}.image.{disk_format}") == LIVE_ISO:
            return
        if not checksum:
            yield Wrong(f"{at}.image.checksum", "is required, except for a live-iso")
        elif checksum.startswith(("http://", "https://")) and not is_url(checksum):
            yield Wrong(f"{at}.image.checksum", f"{checksum!r} is not a URL")

    return find


def is_url(text: str) -> bool:
    """A scheme and something after it, or an absolute path; no blanks, no control characters, whole escapes."""
    if re.search(r"[\x00-\x20\x7f]", text) or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port  # it is only looked at when asked for
    except ValueError:
        return False
    return text.startswith("/") or bool(parts.scheme and (parts.netloc or parts.path))


def _same_namespace(thing: Json) -> Iterator[Wrong]:
    named = _text(thing, "spec.template.namespace")
    if named and named != _text(thing, "metadata.namespace"):
        why = f"is {named!r}: it must be empty or the namespace of the {thing.get('kind')}"
        yield Wrong("spec.template.namespace", why)


def _template_named(thing: Json) -> Iterator[Wrong]:
    if not _text(thing, "spec.template.name"):
        yield Wrong("spec.template.name", "is required")


def _named(*, implied: bool) -> Callable[[Json], Iterator[Wrong]]:
    """`implied`: in v1beta1 an index that is left out is 0."""

    def find(thing: Json) -> Iterator[Wrong]:
        index, template = _at(thing, "spec.index"), _text(thing, "spec.template.name")
        index = 0 if index is None and implied else index
        if isinstance(index, int) and template and _text(thing, "metadata.name") != f"{template}-{index}":
            yield Wrong("metadata.name", f"must be {template}-{index}: the template's name and the index")

    return find


def _index(thing: Json) -> Iterator[Wrong]:
    index = _at(thing, "spec.index")
    if isinstance(index, int) and index < 0:
        yield Wrong("spec.index", "must not be negative")


def _kept_index(thing: Json, before: Json) -> Iterator[Wrong]:
    if (_at(thing, "spec.index") or 0) != (_at(before, "spec.index") or 0):
        yield Wrong("spec.index", "cannot be changed")


def _kept_reference(field: str) -> Callable[[Json, Json], Iterator[Wrong]]:
    def compare(thing: Json, before: Json) -> Iterator[Wrong]:
        for name in ("name", "namespace"):
            if _text(thing, f"spec.{field}.{name}") != _text(before, f"spec.{field}.{name}"):
                yield Wrong(f"spec.{field}", "cannot be changed")
                return

    return compare


def _kept_whole(field: str) -> Callable[[Json, Json], Iterator[Wrong]]:
    def compare(thing: Json, before: Json) -> Iterator[Wrong]:
        if _at(thing, f"spec.{field}") != _at(before, f"spec.{field}"):
            yield Wrong(f"spec.{field}", "cannot be changed: make another Metal3DataTemplate")

    return compare


def _interfaces(thing: Json) -> Iterator[Wrong]:
    for place, one in _entries(thing, "spec.metaData.fromHostInterfaces"):
        named, boots = bool(one.get("interface")), one.get("fromBootMAC") is True
        if not named and not boots:
            yield Wrong(f"{place}.interface", "is required where fromBootMAC is not true")
        if named and boots:
            yield Wrong(f"{place}.interface", "must be empty where fromBootMAC is true")


def _pools(thing: Json) -> Iterator[Wrong]:
    for family in ("ipv4", "ipv6"):
        for place, one in _entries(thing, f"spec.networkData.networks.{family}"):
            annotated = _at(one, "fromPoolAnnotation") is not None
            if not (_text(one, "fromPoolRef.name") or one.get("ipAddressFromIPPool") or annotated):
                yield Wrong(f"{place}.fromPoolRef.name", "is required: no pool gives this network an address")


def _strategy(at: str) -> Callable[[Json], Iterator[Wrong]]:
    def find(thing: Json) -> Iterator[Wrong]:
        kind, retries = _text(thing, f"{at}.type"), _at(thing, f"{at}.retryLimit")
        if kind != REBOOT:
            yield Wrong(f"{at}.type", f"must be {REBOOT}, the only strategy there is")
        if not isinstance(retries, int) or retries < RETRIES:
            yield Wrong(f"{at}.retryLimit", f"must be {RETRIES} or more")

    return find


def _timeout(at: str) -> Callable[[Json], Iterator[Wrong]]:
    def find(thing: Json) -> Iterator[Wrong]:
        text = _at(thing, f"{at}.timeout")
        if text is None:
            return
        try:
            seconds = read_duration(text, f"{at}.timeout")
        except CannotConvert as error:
            yield Wrong(f"{at}.timeout", str(error))
            return
        if seconds < LEAST_SECONDS:
            yield Wrong(f"{at}.timeout", f"must be {LEAST_SECONDS}s or more")

    return find


def _timeout_seconds(at: str) -> Callable[[Json], Iterator[Wrong]]:
    def find(thing: Json) -> Iterator[Wrong]:
        seconds = _at(thing, f"{at}.timeoutSeconds")
        if isinstance(seconds, int) and seconds < LEAST_SECONDS:
            yield Wrong(f"{at}.timeoutSeconds", f"must be {LEAST_SECONDS} or more")

    return find


def _kept_data(thing: Json) -> Iterator[Wrong]:
    """One unreadable object would fail every list in the other version."""
    try:
        read_kept(thing)
    except CannotConvert as error:
        yield Wrong("metadata.annotations", str(error))


_SPEC, _TEMPLATE = "spec", "spec.template.spec"
RULES: tuple[Rule, ...] = (
    Rule("Metal3Cluster", "an endpoint names a host", _endpoint(_SPEC, port=False)),
    Rule("Metal3Cluster", "with a cloud provider or without", _cloud_provider, versions=OLD),
    Rule("Metal3ClusterTemplate", "an endpoint names a host and a port", _endpoint(_TEMPLATE, port=True)),
    *(
        Rule(kind, "an image, or a way to deploy without one", _image(at, field), versions=version)
        for kind, at in (("Metal3Machine", _SPEC), ("Metal3MachineTemplate", _TEMPLATE))
        for field, version in (("format", OLD), ("diskFormat", NEW))
    ),
    Rule("Metal3Data", "named after template and index", _named(implied=True), versions=OLD, only_new=True),
    Rule("Metal3Data", "named after template and index", _named(implied=False), versions=NEW, only_new=True),
    Rule("Metal3Data", "its template is in its namespace", _same_namespace, only_new=True),
    Rule("Metal3Data", "no negative index", _index, only_new=True),
    Rule("Metal3Data", "its index stays", compare=_kept_index),
    Rule("Metal3Data", "its template stays", compare=_kept_reference("template")),
    Rule("Metal3Data", "its claim stays", compare=_kept_reference("claim")),
    Rule("Metal3DataClaim", "it names a template", _template_named, only_new=True),
    Rule("Metal3DataClaim", "its template is in its namespace", _same_namespace),
    Rule("Metal3DataClaim", "its template stays", compare=_kept_reference("template")),
    Rule("Metal3DataTemplate", "interface or boot MAC", _interfaces, only_new=True),
    Rule("Metal3DataTemplate", "every network has a pool", _pools, only_new=True),
    Rule("Metal3DataTemplate", "metaData stays", compare=_kept_whole("metaData")),
    Rule("Metal3DataTemplate", "networkData stays", compare=_kept_whole("networkData")),
    *(
        rule
        for kind, at in (("Metal3Remediation", "spec.strategy"), ("Metal3RemediationTemplate", f"{_TEMPLATE}.strategy"))
        for rule in (
            Rule(kind, "a known strategy, tried at least once", _strategy(at)),
            Rule(kind, "time for a reboot", _timeout(at), versions=OLD),
            Rule(kind, "time for a reboot", _timeout_seconds(at), versions=NEW),
        )
    ),
    *(Rule(kind, "what conversion keeps can be read", _kept_data) for kind in KINDS.values()),
)
