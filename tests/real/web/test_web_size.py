"""5,000 hosts in a real browser: few elements, and each change is seen, as the page itself observes it."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect

from hostler.inventory.states import HostState
from tests.real.web.browsing import chromium, page_at
from tests.real.web.serving import replica
from tests.unit.streaming import PictureOnly

HOSTS = 5000
MOST_ROWS = 60
CHANGES = 200
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"
# Notes when a tile first shows that its host is held, by this machine's clock, which is the operator's too.
OBSERVE = """() => {
  window.seen = {};
  const note = (tile) => {
    const label = tile.classList?.contains("tile") ? tile.getAttribute("aria-label") : "";
    if (label.endsWith(": held")) seen[label] ??= Date.now();
  };
  new MutationObserver((changes) => {
    for (const { target, addedNodes } of changes) [target, ...addedNodes].forEach(note);
  }).observe(document.getElementById("main"), { attributes: true, childList: true, subtree: true });
}"""


@pytest.mark.full
def test_5000_hosts_stay_smooth_and_live() -> None:
    hosts = PictureOnly()
    for number in range(HOSTS):
        hosts.put(f"node-{number}", HostState.IN_SERVICE, "The node is Ready and takes pods.")
    with replica(hosts) as operator, chromium() as browser:
        began = time.monotonic()
        with page_at(browser, f"{operator.url}/#/fleet?show=all") as page:
            expect(page.locator(".tile")).to_have_count(HOSTS)
            shown, paint = time.monotonic() - began, page.evaluate(FIRST_PAINT)
            assert page.locator(".rows .row").count() < MOST_ROWS
            page.evaluate(OBSERVE)
            put = {}
            for number in range(CHANGES):
                name = f"node-{number * 24}"
                put[f"{name}: held"] = time.time() * 1000
                operator.put(name, HostState.HELD, "It is held by ann.")
                time.sleep(0.05 + 0.001 * (number * 37 % 300))
            took = sorted(at - put[label] for label, at in seen_of(page, len(put)).items())
            page.get_by_label("Filter hosts").fill("node-499")
            expect(page.locator(".rows .row")).to_have_count(11)
            median, most = took[len(took) // 2], took[-1]
            print(f"first paint {paint:.0f} ms, all shown after {shown:.2f} s")
            print(f"{len(took)} changes: median {median:.0f} ms, p99 {took[-(len(took) // 100)]:.0f}, most {most:.0f}")


def seen_of(page: Page, number: int) -> dict[str, float]:
    page.wait_for_function("(number) => Object.keys(seen).length >= number", arg=number)
    found: dict[str, float] = page.evaluate("() => seen")
    return found
