"""The runtime and the commands have a sandbox of their own, so that the second worker of `make test` has its share.

Alone, or with HOSTLER_TEST_SANDBOX, it is the same as for everybody.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hostler.sandbox import Sandbox
from tests.real.conftest import a_sandbox


@pytest.fixture(scope="package")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with a_sandbox(tmp_path_factory) as box:
        yield box
