"""The definitions of Metal3 and Cluster API, and who the operators are: made once for all files of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hostler.sandbox import Sandbox
from tests.real.accounts import charted, new_account, rights_here
from tests.real.metal_world import THERE, install, uninstall
from tests.real.operating import denied


@pytest.fixture(scope="package")
def definitions(sandbox: Sandbox) -> Iterator[None]:
    install(sandbox)
    yield
    uninstall(sandbox)


@pytest.fixture(scope="package")
def account(sandbox: Sandbox, definitions: None) -> Iterator[str]:
    """A service account with the documented rights and no other; nothing was refused to it, here or there."""
    name = f"metal-{os.urandom(4).hex()}"
    sandbox.kubectl("create", "namespace", name)
    with charted(sandbox, new_account(name), rights_here(sandbox, ["metal"])) as user:
        yield user
    lacked = [*denied(sandbox, user), *denied(sandbox, THERE)]
    sandbox.kubectl("delete", "namespace", name, "--wait=false")
    assert lacked == []
