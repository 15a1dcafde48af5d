"""After an upgrade: nothing changes by default; with the backfill on, the right placement is filled in, once.

A cluster of one node cannot be had on the shared sandbox, so this is a small one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.sandbox import Options, Sandbox
from hostler.sandbox.expand import node_object
from hostler.sandbox.fleet import Node
from hostler.sandbox.load import create
from tests.real.accounts import CHARTED
from tests.real.auditing import forbidden
from tests.real.conftest import Eventually
from tests.real.operating import operator
from tests.real.routing import decided, install_openshift, set_status, undecide, writes

INGRESS = "ingresses.config.openshift.io"
FLAGS = ("--only", "ingress", "--no-ingress-check-wildcard")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster with a single node."""
    box = Sandbox.up(tmp_path_factory.mktemp("alone"), Options(audit=True, vcenter=False))
    install_openshift(box)
    create(
        box, [node_object(Node(name="only", roles=["master", "worker"]), 1, None, "2026-01-01T00:00:00Z", off=False)]
    )
    yield box
    assert [f"{one['verb']} {one['requestURI']}" for one in box.audit(f":{CHARTED}-") if forbidden(one)] == []
    box.down()


@pytest.fixture
def lease(alone: Sandbox) -> Iterator[str]:
    """A namespace for the lease, and a cluster upgraded from before the field was there."""
    name = f"t-{os.urandom(4).hex()}"
    alone.kubectl("create", "namespace", name)
    undecide(alone)
    yield name
    alone.kubectl("delete", "namespace", name, "--wait=false")


def placement(box: Sandbox) -> str:
    return str(box.get(INGRESS, "cluster").get("status", {}).get("defaultPlacement", ""))


def controllers(box: Sandbox) -> list[object]:
    return list(box.get("ingresscontrollers", "-A")["items"])


def test_an_upgrade_changes_nothing_by_default(
    alone: Sandbox, lease: str, tmp_path: Path, eventually: Eventually
) -> None:
    decided(alone, "", "SingleReplica", "SingleReplica")
    with operator(alone, tmp_path, lease, *FLAGS) as running:
        running.said("leading")
        eventually(lambda: controllers(alone), 60, "it is at work")
        assert f"{INGRESS.partition('.')[0]}/status" not in writes(alone, running.user)
    assert placement(alone) == ""
    assert (
        "annotations" not in alone.get(INGRESS, "cluster")["metadata"]
        or "hostler.dev/ingress-backfill" not in (alone.get(INGRESS, "cluster")["metadata"]["annotations"])
    )


def test_two_operators_starting_together_fill_it_in_once_and_never_again(
    alone: Sandbox, lease: str, tmp_path: Path, eventually: Eventually
) -> None:
    decided(alone, "", "SingleReplica", "SingleReplica")
    flags = (*FLAGS, "--ingress-backfill")
    # Without a lease both act: what keeps them apart is the version each write was decided on.
    both = (*flags, "--no-leader-election")
    with (
        operator(alone, tmp_path, lease, *both, name="one") as one,
        operator(alone, tmp_path, lease, *both, name="two") as two,
    ):
        eventually(lambda: placement(alone) == "ControlPlane", 60, "filled in")
        eventually(lambda: controllers(alone), 60, "what follows from it")
        statuses = [what for what in writes(alone, one.user, two.user) if what == "ingresses/status"]
        assert len(statuses) == 1
    mark = alone.get(INGRESS, "cluster")["metadata"]["annotations"]["hostler.dev/ingress-backfill"]
    assert mark == "ControlPlane"
    set_status(alone, INGRESS, "cluster", {"defaultPlacement": ""})
    alone.kubectl("delete", "ingresscontrollers", "--all", "-A")
    with operator(alone, tmp_path, lease, *flags, name="three") as three:
        three.said("leading")
        eventually(lambda: controllers(alone), 60, "it is at work")
        assert "ingresses/status" not in writes(alone, three.user), "who empties it later wants it empty"
    assert placement(alone) == ""
