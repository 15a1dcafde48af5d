"""A drain ends, or waits, when the ground goes: its hold is released, its node uncordoned, Hostler paused."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import environment, hostler
from tests.real.runtime.test_cli_nodes import MakeNode, cordoned, keep_all, pods_on, running_on


@contextmanager
def blocked_drain(
    sandbox: Sandbox, node: str, namespace: str, eventually: Eventually
) -> Iterator[subprocess.Popen[str]]:
    """A drain that a budget holds, and that has said so."""
    running_on(sandbox, namespace, node, 1, eventually)
    keep_all(sandbox, namespace, eventually)
    process = subprocess.Popen(
        [sys.executable, "-m", "hostler", "drain", node, "--timeout", "90"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(sandbox.kubeconfig),
    )  # fmt: skip
    try:
        says(process, "keep")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def says(process: subprocess.Popen[str], words: str) -> None:
    """Wait until it has said so."""
    assert process.stderr is not None
    while words not in process.stderr.readline():
        assert process.poll() is None


def evictions(sandbox: Sandbox, namespace: str) -> int:
    """Evictions the API server carried out in this namespace."""
    return sum(
        entry["stage"] == "ResponseComplete"
        and entry["objectRef"].get("subresource") == "eviction"
        and entry["objectRef"].get("namespace") == namespace
        and entry["responseStatus"]["code"] < 300
        for entry in sandbox.audit(namespace)
        if "objectRef" in entry
    )


def test_a_released_node_is_no_longer_emptied(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    name = make_node()
    with blocked_drain(sandbox, name, namespace, eventually) as drain:
        assert hostler(sandbox.kubeconfig, "release", name).returncode == 0
        sandbox.kubectl("delete", "pdb", "keep", "-n", namespace)
        _, said = drain.communicate(timeout=60)
        assert drain.returncode == Exit.REFUSED
        assert f"{name} is no longer held" in said
    assert evictions(sandbox, namespace) == 0
    assert len(pods_on(sandbox, namespace, name)) == 1


def test_a_node_uncordoned_by_hand_is_no_longer_emptied(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    name = make_node()
    with blocked_drain(sandbox, name, namespace, eventually) as drain:
        sandbox.kubectl("uncordon", name)
        _, said = drain.communicate(timeout=60)
        assert drain.returncode == Exit.REFUSED
        assert f"{name} was uncordoned by hand" in said
    assert evictions(sandbox, namespace) == 0


def test_the_stop_button_stops_a_drain_that_runs(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    name = make_node()
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    with blocked_drain(sandbox, name, namespace, eventually) as drain:
        try:
            assert hostler(sandbox.kubeconfig, "pause", "--why", "a test", "--wait", "0").returncode == 0
            says(drain, "Nothing is evicted now: Hostler is paused")  # when it would have asked again
            sandbox.kubectl("delete", "pdb", "keep", "-n", namespace)
            time.sleep(2)
            assert drain.poll() is None
            assert evictions(sandbox, namespace) == 0
        finally:
            hostler(sandbox.kubeconfig, "resume", "--wait", "0")
        eventually(lambda: drain.poll() is not None, 60, "it goes on after resume")
        assert drain.returncode == 0
    assert evictions(sandbox, namespace) == 1
    sandbox.kubectl("delete", "fleets,pauses", "--all")


def test_a_hold_that_had_yielded_begins_again_when_asked_for_anew(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    yielded = (
        '[{"holder": "me", "why": "x", "since": "2026-01-01T00:00:00Z", "cordonedBefore": false,'
        ' "recordoned": "2026-01-01T00:01:00Z", "yielded": "2026-01-01T00:02:00Z"}]'
    )
    sandbox.kubectl("annotate", "node", name, f"hostler.dev/holds={yielded}")
    done = hostler(sandbox.kubeconfig, "hold", name, "--why", "again", "--holder", "me")
    assert done.returncode == 0, done.stderr
    assert cordoned(sandbox, name)
    assert hostler(sandbox.kubeconfig, "release", name, "--holder", "me").returncode == 0
    assert not cordoned(sandbox, name)


def test_dry_run_from_the_environment_binds_people_s_commands_too(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    for words in (("hold", name, "--why", "x"), ("drain", name)):
        done = subprocess.run(
            [sys.executable, "-m", "hostler", *words],
            capture_output=True, text=True, timeout=120, env={**environment(sandbox.kubeconfig), "DRY_RUN": "true"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not cordoned(sandbox, name)


def test_contradictions_and_empty_words_are_refused(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    for words in (("hold", name, "--why", "  "), ("release", name, "--holder", "x", "--all"), ("pause", "--why", "")):
        done = hostler(sandbox.kubeconfig, *words)
        assert done.returncode == Exit.USAGE, done.stderr
