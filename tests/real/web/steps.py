"""What the tests of the page do and wait for."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from hostler.sandbox import Sandbox
from tests.real.operating import hostler
from tests.real.web.browsing import WAIT

GPU, ESXI = "gpu-0", "esx1"
POLICY = "hostler.dev/maintenance-policy"
expect.set_options(timeout=WAIT)


def tile(page: Page, name: str, state: str) -> None:
    """Waits until the map shows it."""
    expect(page.get_by_label(f"{name}: {state}", exact=True)).to_be_visible()


def hold(sandbox: Sandbox, node: str, why: str = "a fan is loud") -> None:
    assert (
        hostler(sandbox.kubeconfig, "hold", node, "--why", why, "--holder", "ann", "--beyond-ceiling").returncode == 0
    )


def release(sandbox: Sandbox, node: str) -> None:
    assert hostler(sandbox.kubeconfig, "release", node, "--all").returncode == 0
