"""5,000 hosts in a real browser: few elements, and each change is seen."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

from hostler.inventory.states import HostState
from tests.real.web.browsing import chromium, page_at
from tests.real.web.serving import replica
from tests.real.web.steps import tile
from tests.unit.streaming import PictureOnly

HOSTS = 5000
MOST_ROWS = 60


@pytest.mark.full
def test_5000_hosts_stay_smooth_and_live() -> None:
    hosts = PictureOnly()
    for number in range(HOSTS):
        hosts.put(f"node-{number}", HostState.IN_SERVICE, "The node is Ready and takes pods.")
    with replica(hosts) as operator, chromium() as browser:
        began = time.monotonic()
        with page_at(browser, f"{operator.url}/#/fleet?show=all") as page:
            expect(page.locator(".tile")).to_have_count(HOSTS)
            shown = time.monotonic() - began
            assert page.locator(".rows .row").count() < MOST_ROWS
            took = []
            for number in range(30):
                began = time.monotonic()
                name = f"node-{number * 160}"
                operator.put(name, HostState.HELD, "It is held by ann.")
                tile(page, name, "held")
                took.append(time.monotonic() - began)
            page.get_by_label("Filter hosts").fill("node-499")
            expect(page.locator(".rows .row")).to_have_count(11)
            print(
                f"shown after {shown:.2f} s; a change after {sorted(took)[15]:.2f} s (median), {max(took):.2f} s (most)"
            )
