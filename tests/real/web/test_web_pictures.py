"""Pictures of the page for docs/web.md and the README: `PAGE_PICTURES=docs` writes them there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from hostler.sandbox import Sandbox
from tests.real.web.browsing import page_at
from tests.real.web.steps import ESXI, GPU, hold, release, tile

MOST = 300_000  # bytes of all pictures together


@pytest.mark.full
def test_the_pictures_of_the_docs_are_small(sandbox: Sandbox, url: str, browser: Browser, tmp_path: Path) -> None:
    folder = Path(os.environ.get("PAGE_PICTURES", tmp_path))
    hold(sandbox, "app-1", "fan 3 is being replaced")
    sandbox.maintenance(ESXI, "enter")
    try:
        with page_at(browser, url) as page:
            tile(page, GPU, "stopped")
            page.screenshot(path=folder / "page-fleet.png")
            page.locator(".rows").get_by_role("link", name=GPU, exact=True).click()
            expect(page.locator(".fold")).not_to_have_count(0)
            expect(page.locator(".entries .entry")).not_to_have_count(0)
            page.screenshot(path=folder / "page-host.png")
        with page_at(browser, f"{url}#/history?since=1h", dark=True) as page:
            expect(page.locator(".entry")).not_to_have_count(0)
            page.screenshot(path=folder / "page-history.png")
    finally:
        sandbox.maintenance(ESXI, "cancel")
        release(sandbox, "app-1")
    assert sum(one.stat().st_size for one in folder.glob("page-*.png")) < MOST
    with page_at(browser, url) as page:
        tile(page, GPU, "in service")
