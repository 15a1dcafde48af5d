"""How many examples a property is tried on: all of them in `make test`, a quarter in `make check` (HOSTLER_QUICK).

CI tries the same ones each time, so that it says something about the change it judges; everybody else tries new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

QUICK = bool(os.environ.get("HOSTLER_QUICK"))
settings.register_profile(
    "whole",
    deadline=None,  # and no word about slowness: the machine may be busy
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("HOSTLER_CI")),
)
settings.register_profile("quick", settings.get_profile("whole"), max_examples=25)
settings.load_profile("quick" if QUICK else "whole")


def examples(many: int) -> int:
    return max(10, many // 4) if QUICK else many
