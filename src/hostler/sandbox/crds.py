"""The CRDs of the APIs that Hostler serves, for `--crds`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hostler.sandbox.build import Progress

if TYPE_CHECKING:
    from hostler.sandbox.life import Sandbox


def install_crds(box: Sandbox, wanted: Sequence[str], progress: Progress) -> None:
    """Install the CRDs of the named APIs."""
