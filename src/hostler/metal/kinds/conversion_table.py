"""What differs between v1beta1 and v1beta2 of the provider's kinds: one row per field and place, both ways. Pure.

Each row changes the mapping at its place as far as the other version can say it; `conversion` keeps the rest. A field
that no row names has the same name and form in both. What is not of the expected form is left as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hostler.webhooks.reviews import CannotConvert

Json = dict[str, Any]
Edit = Callable[[Json], None]


@dataclass(frozen=True, slots=True)
class Change:
    """`place`: a path of fields, `[]` for each entry of a list."""

    place: str
    newer: Edit  # to v1beta2
    older: Edit  # to v1beta1


def convert_fields(kind: str, body: Json, *, newer: bool) -> Json:
    """`spec` and `status` in the other version. `body` must not be used afterwards: parts of it are taken over."""
    rows = CHANGES[kind]
    for row in rows if newer else reversed(rows):
        for mapping in _places(body, row.place.split(".")):
            (row.newer if newer else row.older)(mapping)
    return body


def _places(at: Any, path: list[str]) -> Iterator[Json]:
    """The mappings at this place; none where something is missing on the way."""
    if not path:
        if isinstance(at, dict):
            yield at
        return
    field, entries = path[0].removesuffix("[]"), path[0].endswith("[]")
    under = at.get(field) if isinstance(at, dict) else None
    if not entries:
        yield from _places(under, path[1:])
    elif isinstance(under, list):
        for one in under:
            yield from _places(one, path[1:])


# -- what rows are made of


def _nothing(_: Json) -> None:
    """The other version says it in the same way."""


def _rename(place: str, old: str, new: str) -> Change:
    def move(mapping: Json, before: str, after: str) -> None:
        if before in mapping:
            mapping[after] = mapping.pop(before)

    return Change(place, lambda it: move(it, old, new), lambda it: move(it, new, old))


def _drop_older(place: str, field: str) -> Change:
    """Only v1beta1 has it."""
    return Change(place, lambda it: _remove(it, field), _nothing)


def _drop_newer(place: str, field: str) -> Change:
    """Only v1beta2 has it."""
    return Change(place, _nothing, lambda it: _remove(it, field))


def _remove(mapping: Json, field: str) -> None:
    mapping.pop(field, None)


def _reference(place: str, field: str, *, required: bool = False) -> Change:
    """An ObjectReference in v1beta1, only name and namespace in v1beta2. `required`: in v1beta1, be it empty."""

    def newer(mapping: Json) -> None:
        reference = mapping.get(field)
        if isinstance(reference, dict):
            kept = {name: reference[name] for name in ("name", "namespace") if reference.get(name)}
            if kept or not required:
                mapping[field] = kept
            else:
                del mapping[field]

    def older(mapping: Json) -> None:
        if required:
            mapping.setdefault(field, {})

    return Change(place, newer, older)


def _by_name(place: str, field: str, read: Callable[[str, Any], Json], write: Callable[[Json], Any]) -> Change:
    """A mapping by name in v1beta1, a list of entries with a name in v1beta2, which may not be empty."""

    def newer(mapping: Json) -> None:
        named = mapping.get(field)
        if isinstance(named, dict):
            mapping[field] = [read(name, value) for name, value in sorted(named.items())]
            if not named:
                del mapping[field]

    def older(mapping: Json) -> None:
        entries = mapping.get(field)
        if isinstance(entries, list) and all(isinstance(one, dict) and "name" in one for one in entries):
            mapping[field] = {str(one["name"]): write(one) for one in entries}

    return Change(place, newer, older)


def _failure_domains(place: str) -> Change:
    def entry(name: str, domain: Any) -> Json:
        return {"name": name, **(domain if isinstance(domain, dict) else {})}

    return _by_name(place, "failureDomains", entry, lambda one: {key: one[key] for key in one if key != "name"})


def _parameters(place: str) -> Change:
    def entry(name: str, value: Any) -> Json:
        return {"name": name, "value": value}

    return _by_name(place, "parameters", entry, lambda one: one.get("value"))


def _indexes() -> Change:
    """By index, as the Go provider sorts them."""
    by_name = _by_name(
        "status", "indexes", lambda name, index: {"name": name, "index": index}, lambda one: one.get("index")
    )

    def newer(mapping: Json) -> None:
        by_name.newer(mapping)
        entries = mapping.get("indexes")
        if isinstance(entries, list) and all(type(one.get("index")) is int for one in entries):
            entries.sort(key=lambda one: (one["index"], one["name"]))

    return Change("status", newer, by_name.older)


def _endpoint(place: str) -> Change:
    """v1beta1 wants host and port, be they empty; v1beta2 allows neither to be empty."""

    def newer(mapping: Json) -> None:
        endpoint = mapping.get("controlPlaneEndpoint")
        if isinstance(endpoint, dict):
            kept = {name: value for name, value in endpoint.items() if value not in ("", 0)}
            mapping["controlPlaneEndpoint"] = kept
            if not kept:
                del mapping["controlPlaneEndpoint"]

    def older(mapping: Json) -> None:
        endpoint = mapping.get("controlPlaneEndpoint")
        if isinstance(endpoint, dict):
            mapping["controlPlaneEndpoint"] = {"host": "", "port": 0, **endpoint}

    return Change(place, newer, older)


def _cloud_provider(place: str) -> Change:
    """`noCloudProvider` is the older word for the opposite; where both are set, the newer one counts."""

    def newer(mapping: Json) -> None:
        without = mapping.pop("noCloudProvider", None)
        if isinstance(without, bool):
            mapping.setdefault("cloudProviderEnabled", not without)

    def older(mapping: Json) -> None:
        enabled = mapping.get("cloudProviderEnabled")
        if isinstance(enabled, bool):
            mapping["noCloudProvider"] = not enabled

    return Change(place, newer, older)


def _status() -> Change:
    """Conditions and failures of v1beta1 are under `deprecated` in v1beta2; `ready` is `initialization.provisioned`."""
    failures = ("conditions", "failureReason", "failureMessage")

    def newer(status: Json) -> None:
        newest = status.pop("v1beta2", None)
        old = {name: status.pop(name) for name in failures if name in status}
        if isinstance(newest, dict) and "conditions" in newest:
            status["conditions"] = newest["conditions"]
        if old:
            status["deprecated"] = {"v1beta1": old}
        if "ready" in status:
            status["initialization"] = {"provisioned": status.pop("ready")}

    def older(status: Json) -> None:
        deprecated, initialization = status.pop("deprecated", None), status.pop("initialization", None)
        if "conditions" in status:
            status["v1beta2"] = {"conditions": status.pop("conditions")}
        old = deprecated.get("v1beta1") if isinstance(deprecated, dict) else None
        if isinstance(old, dict):
            status |= {name: old[name] for name in failures if name in old}
        if isinstance(initialization, dict) and "provisioned" in initialization:
            status["ready"] = initialization["provisioned"]

    return Change("status", newer, older)


def _index() -> Change:
    """v1beta1 leaves out the index 0."""

    def older(spec: Json) -> None:
        if spec.get("index") == 0:
            del spec["index"]

    return Change("spec", lambda spec: spec.setdefault("index", 0), older)


def _pool_of_ipv6() -> Change:
    """Required in v1beta1, be it empty."""

    def newer(network: Json) -> None:
        if network.get("ipAddressFromIPPool") == "":
            del network["ipAddressFromIPPool"]

    place = "spec.networkData.networks.ipv6[]"
    return Change(place, newer, lambda network: network.setdefault("ipAddressFromIPPool", ""))


def _timeout(place: str) -> Change:
    """A duration in v1beta1, whole seconds in v1beta2."""

    def newer(strategy: Json) -> None:
        if "timeout" in strategy:
            strategy["timeoutSeconds"] = math.trunc(read_duration(strategy.pop("timeout"), f"{place}.timeout"))

    def older(strategy: Json) -> None:
        seconds = strategy.pop("timeoutSeconds", None)
        if isinstance(seconds, int):
            strategy["timeout"] = write_duration(seconds)

    return Change(place, newer, older)


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"([-+]?)((?:{_PART.pattern})+)")


def read_duration(text: Any, field: str) -> float:
    """Seconds of a duration as Go writes it: `1h30m`, `1.5s`, `0`."""
    if text == "0":
        return 0.0
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise CannotConvert(f"{field} is {text!r}, which is no duration such as 10m0s")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(found[2]))
    if seconds >= 2**31:
        raise CannotConvert(f"{field} is {text!r}, which is more than v1beta2 can say in whole seconds")
    return -seconds if found[1] == "-" else seconds


def write_duration(seconds: int) -> str:
    """As Go writes it: `10m0s`, `1h0m0s`, `45s`."""
    sign, seconds = "-" if seconds < 0 else "", abs(seconds)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds % 60}s"
    return f"{sign}{minutes}m{seconds % 60}s" if minutes else f"{sign}{seconds}s"


# -- the table


def _cluster(place: str) -> Iterable[Change]:
    return _failure_domains(place), _endpoint(place), _cloud_provider(place)


def _machine(place: str) -> Iterable[Change]:
    return _rename(f"{place}.image", "format", "diskFormat"), _reference(place, "dataTemplate")


CHANGES: Mapping[str, tuple[Change, ...]] = {
    "Metal3Cluster": (*_cluster("spec"), _failure_domains("status"), _status()),
    "Metal3ClusterTemplate": (*_cluster("spec.template.spec"), _drop_newer("spec.template", "metadata")),
    "Metal3Machine": (
        *_machine("spec"), _reference("status", "renderedData"), _drop_older("status", "phase"), _status(),
    ),
    "Metal3MachineTemplate": (*_machine("spec.template.spec"), _drop_newer("spec.template", "metadata")),
    "Metal3Data": (
        _index(), _drop_older("spec", "templateReference"),
        *(_reference("spec", name, required=True) for name in ("claim", "template")),
    ),
    "Metal3DataClaim": (_reference("spec", "template", required=True), _reference("status", "renderedData")),
    "Metal3DataTemplate": (
        _drop_older("spec", "templateReference"),
        *(
            _rename("spec.metaData", f"{what}FromIPPool", f"{what}FromPool")
            for what in ("ipAddresses", "prefixes", "gateways", "dnsServers")
        ),
        _parameters("spec.networkData.links.bonds[]"), _pool_of_ipv6(), _indexes(),
    ),
    "Metal3Remediation": (_timeout("spec.strategy"),),
    "Metal3RemediationTemplate": (_timeout("spec.template.spec.strategy"),),
}  # fmt: skip
