"""The one table of settings. A room adds its own here: one import, one line in each tuple."""

from __future__ import annotations

from hostler.settings import foundation, ingress, join, maintenance, metal, platform, reclaim
from hostler.settings.model import AnySetting, Rule

SETTINGS: tuple[AnySetting, ...] = (
    *foundation.SETTINGS,
    *maintenance.SETTINGS,
    *ingress.SETTINGS,
    *metal.SETTINGS,
    *platform.SETTINGS,
    *join.SETTINGS,
    *reclaim.SETTINGS,
)
RULES: tuple[Rule, ...] = (
    *foundation.RULES,
    *maintenance.RULES,
    *ingress.RULES,
    *metal.RULES,
    *platform.RULES,
    *join.RULES,
    *reclaim.RULES,
)
