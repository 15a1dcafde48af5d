"""Programs of the machine that some tests judge by. Where one is missing the test is skipped, in CI it fails."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def tool(name: str, package: str) -> str:
    """Its path. `.ci/run` sets HOSTLER_CI: there nobody would notice that something was skipped."""
    found = shutil.which(name)
    if found is None:
        not_here(f"{name} is not installed (Debian: apt-get install {package})")
    return found


def not_here(said: str) -> NoReturn:
    """What this test judges by is not here."""
    if os.environ.get("HOSTLER_CI"):
        pytest.fail(said)
    pytest.skip(said)
