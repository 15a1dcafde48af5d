"""`hostler metal takeover --check`: what has to be done first, and that its own commands do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.metal_world import Json, World
from tests.real.operating import hostler
from tests.real.shell import run_shell

MACHINES = "metal3machines.infrastructure.cluster.x-k8s.io"
PROVIDER = ("-n", "capm3-system", "deployment", "capm3-controller-manager")


@pytest.fixture
def world(sandbox: Sandbox, definitions: None, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    yield made
    made.scrub()


def first(sandbox: Sandbox) -> tuple[int, dict[str, Json]]:
    """The exit code, and what has to be done first."""
    done = hostler(sandbox.kubeconfig, "metal", "takeover", "--check", "--output", "json")
    assert done.stdout, done.stderr
    lines = json.loads(done.stdout)
    return done.returncode, {one["what"].rpartition("/")[2]: one for one in lines if one["effect"] == "first"}


def stored(sandbox: Sandbox, name: str, *versions: str) -> None:
    status = json.dumps({"status": {"storedVersions": versions}})
    sandbox.kubectl("patch", "crd", name, "--subresource=status", "--type=merge", "-p", status)


@contextmanager
def provider(sandbox: Sandbox) -> Iterator[None]:
    """Something of the provider's name that is wanted."""
    sandbox.kubectl("create", "namespace", "capm3-system")
    sandbox.kubectl("create", *PROVIDER, "--image=sandbox.invalid/provider")
    try:
        yield
    finally:
        sandbox.kubectl("delete", "namespace", "capm3-system")


def test_a_check_names_what_comes_first_and_its_commands_do_it(world: World, sandbox: Sandbox, tmp_path: Path) -> None:
    world.make_machines("m1")
    assert first(sandbox) == (Exit.OK, {})
    stored(sandbox, MACHINES, "v1beta1", "v1beta2")
    stored(sandbox, "metal3remediationtemplates.infrastructure.cluster.x-k8s.io", "v1beta1", "v1beta2")
    with provider(sandbox):
        code, found = first(sandbox)
        assert code == Exit.FAILED
        assert "capm3-controller-manager is scaled to 1" in found.pop("provider")["why"]
        assert len(found) == 2
    for line in found.values():
        run_shell(sandbox, line["fix"], tmp_path)
    assert first(sandbox) == (Exit.OK, {})
    assert world.machine("m1")["spec"]["image"], "it is as it was"
