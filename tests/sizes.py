"""How many examples a property is tried on: all of them in `make test`, a quarter in `make check` (HOSTLER_QUICK)."""

from __future__ import annotations

import os

from hypothesis import settings

QUICK = bool(os.environ.get("HOSTLER_QUICK"))
settings.register_profile("quick", max_examples=25, deadline=None)
if QUICK:
    settings.load_profile("quick")


def examples(many: int) -> int:
    return max(10, many // 4) if QUICK else many
