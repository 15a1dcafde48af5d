"""Two replicas that look after one GPU worker, `hostler web` before them, and a browser: made once for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import hostler
from tests.real.people import VIEWER, World, people_world
from tests.real.web.browsing import chromium, hostler_web
from tests.real.web.steps import GPU, POLICY


@pytest.fixture(scope="module")
def world(
    sandbox: Sandbox, home: str, tmp_path_factory: pytest.TempPathFactory, eventually: Eventually
) -> Iterator[World]:
    """One GPU worker is looked after, which waits for its own host: the shared sandbox is left as it was."""
    folder = tmp_path_factory.mktemp("web")
    key = folder / "key"
    key.write_text("0123456789abcdef" * 4)
    also = {
        "HOSTLER_WEB_AUTH": "kubernetes", "HOSTLER_WEB_KEY_FILE": str(key),
        "GPU_NODE_LABEL": f"kubernetes.io/hostname={GPU}", "DRAIN_TIMEOUT_SECONDS": "15",
    }  # fmt: skip
    sandbox.kubectl("annotate", "node", GPU, f"{POLICY}=wait", "--overwrite")
    sandbox.control("POST", "/settings", {"vm": GPU, "guestShutdownSeconds": 0.3})
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    with people_world(sandbox, home, folder, eventually, also) as made:
        made.leader()
        yield made
    sandbox.kubectl("annotate", "node", GPU, f"{POLICY}-")
    sandbox.control("POST", "/settings", {"vm": GPU})


@pytest.fixture(scope="module")
def url(world: World) -> Iterator[str]:
    with hostler_web(world.folder / f"{VIEWER}.kubeconfig", "--operator-namespace", world.namespace) as found:
        yield found


@pytest.fixture(scope="module")
def browser(world: World) -> Iterator[Browser]:
    with chromium() as found:
        yield found
