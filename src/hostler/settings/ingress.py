"""The settings of ingress."""

from __future__ import annotations

from hostler.settings.model import AnySetting, Rule, Setting
from hostler.settings.readers import SWITCH, TEXT

ROOM = "ingress"

INGRESS_BACKFILL = Setting(
    "HOSTLER_INGRESS_BACKFILL", SWITCH, False, "After an upgrade, fill an empty default placement in, once.", ROOM
)
INGRESS_ROUTER_IMAGE = Setting(
    "HOSTLER_INGRESS_ROUTER_IMAGE",
    TEXT,
    "",
    "Image of routers that have no Deployment yet. Unset: none is made.",
    ROOM,
)
INGRESS_CHECK_WILDCARD = Setting(
    "HOSTLER_INGRESS_CHECK_WILDCARD", SWITCH, True, "Check that the wildcard name points at a node with a router.", ROOM
)

SETTINGS: tuple[AnySetting, ...] = (INGRESS_BACKFILL, INGRESS_ROUTER_IMAGE, INGRESS_CHECK_WILDCARD)
RULES: tuple[Rule, ...] = ()
