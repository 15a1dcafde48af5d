"""What the provider's kinds get where their author left it out: one row per rule, as the Go provider's webhooks. Pure.

`cloudProviderEnabled` is filled in only when an object is created: an object that has lived without it means "no", and
must not change its meaning with the next write of a finalizer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hostler.metal.kinds.webhook_objects import VERSIONS

Json = dict[str, Any]

PORT = 6443
REBOOT, RETRIES, SECONDS, DURATION = "Reboot", 1, 600, "10m0s"
BOTH, OLD, NEW = frozenset(VERSIONS), frozenset({"v1beta1"}), frozenset({"v1beta2"})


@dataclass(frozen=True, slots=True)
class Default:
    kind: str
    what: str
    fill: Callable[[Json], None]  # given `spec`, which it changes
    versions: frozenset[str] = BOTH
    only_new: bool = False  # only when the object is created


def fill_defaults(thing: Json, version: str, *, created: bool) -> Json:
    """A copy with everything filled in."""
    thing = copy.deepcopy(thing)
    spec = thing.setdefault("spec", {})
    for row in DEFAULTS if isinstance(spec, dict) else ():
        if row.kind == thing.get("kind") and version in row.versions and (created or not row.only_new):
            row.fill(spec)
    return thing


def _port(spec: Json) -> None:
    endpoint = spec.get("controlPlaneEndpoint")
    if isinstance(endpoint, dict) and not endpoint.get("port"):
        endpoint["port"] = PORT


def _cloud_provider(spec: Json) -> None:
    enabled, without = spec.get("cloudProviderEnabled"), spec.get("noCloudProvider")
    if enabled is None:
        spec["cloudProviderEnabled"] = without is not True
    if without is None:
        spec["noCloudProvider"] = not spec["cloudProviderEnabled"]


def _strategy(spec: Json) -> Json:
    at = spec
    for name in ("template", "spec", "strategy"):
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            return {}  # the schema refuses it
    return at


def _reboot(spec: Json) -> None:
    strategy = _strategy(spec)
    strategy["type"] = strategy.get("type") or REBOOT


def _retries(spec: Json) -> None:
    strategy = _strategy(spec)
    limit = strategy.get("retryLimit")
    if not isinstance(limit, int) or limit < RETRIES:
        strategy["retryLimit"] = RETRIES


def _missing(field: str, value: Any) -> Callable[[Json], None]:
    def fill(spec: Json) -> None:
        strategy = _strategy(spec)
        if strategy.get(field) is None:
            strategy[field] = value

    return fill


_TEMPLATE = "Metal3RemediationTemplate"
DEFAULTS: tuple[Default, ...] = (
    Default("Metal3Cluster", "an endpoint has port 6443", _port),
    Default(
        "Metal3Cluster", "a cluster of v1beta1 has a cloud provider unless it says otherwise", _cloud_provider, OLD,
        only_new=True,
    ),
    Default(_TEMPLATE, "the strategy is Reboot", _reboot),
    Default(_TEMPLATE, "a host is rebooted at least once", _retries),
    Default(_TEMPLATE, "ten minutes between two reboots, in v1beta1", _missing("timeout", DURATION), OLD),
    Default(_TEMPLATE, "ten minutes between two reboots", _missing("timeoutSeconds", SECONDS), NEW),
)  # fmt: skip
