"""The settings of ingress."""

from __future__ import annotations

import re

from hostler.settings.model import AnySetting, Rule, Setting
from hostler.settings.readers import SWITCH, TEXT, Reader

SECTION = "ingress"
_ONE = re.compile(r"(Deployment|DaemonSet)/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def _read_workloads(text: str) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not all(_ONE.fullmatch(word) for word in given):
        raise ValueError
    return given


WORKLOADS: Reader[tuple[str, ...]] = Reader(
    "a comma-separated list of KIND/NAMESPACE/NAME, where KIND is Deployment or DaemonSet",
    _read_workloads,
    ",".join,
    metavar="A,B",
)

INGRESS_BACKFILL = Setting(
    "HOSTLER_INGRESS_BACKFILL", SWITCH, False, "After an upgrade, fill an empty default placement in, once.", SECTION
)
INGRESS_ROUTER_IMAGE = Setting(
    "HOSTLER_INGRESS_ROUTER_IMAGE",
    TEXT,
    "",
    "Image of routers that have no Deployment yet. Unset: none is made.",
    SECTION,
)
INGRESS_CHECK_WILDCARD = Setting(
    "HOSTLER_INGRESS_CHECK_WILDCARD",
    SWITCH,
    True,
    "Check that the wildcard name points at a node with a router.",
    SECTION,
)
INGRESS_WORKLOADS = Setting(
    "HOSTLER_INGRESS_WORKLOADS",
    WORKLOADS,
    (),
    "Workloads that are placed as the Fleet says without the label hostler.dev/ingress: managed. Those in kube-system "
    "must be here, such as Deployment/kube-system/traefik of k3s.",
    SECTION,
)

SETTINGS: tuple[AnySetting, ...] = (
    INGRESS_BACKFILL, INGRESS_ROUTER_IMAGE, INGRESS_CHECK_WILDCARD, INGRESS_WORKLOADS,
)  # fmt: skip
RULES: tuple[Rule, ...] = ()
