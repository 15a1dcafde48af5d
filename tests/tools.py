"""Programs of the machine that some tests judge by. Where one is missing the test is skipped, in CI it fails."""

from __future__ import annotations

import os
import shutil

import pytest


def tool(name: str, package: str) -> str:
    """Its path. `.ci/run` sets HOSTLER_CI: there nobody would notice that something was skipped."""
    found = shutil.which(name)
    if found is None:
        said = f"{name} is not installed (Debian: apt-get install {package})"
        if os.environ.get("HOSTLER_CI"):
            pytest.fail(said)
        pytest.skip(said)
    return found
