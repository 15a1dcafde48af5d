"""The definitions of Metal3 and Cluster API, installed once for all files of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hostler.sandbox import Sandbox
from tests.real.metal_world import install, uninstall


@pytest.fixture(scope="package")
def definitions(sandbox: Sandbox) -> Iterator[None]:
    install(sandbox)
    yield
    uninstall(sandbox)
