"""What the page does when its connection fails: another leader, none, no operator, a proxy that keeps events back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from hostler.inventory.picture import Picture
from hostler.inventory.states import HostState
from tests.real.web.browsing import chromium, front, page_at, until_live, violations
from tests.real.web.serving import Replica, replica
from tests.real.web.steps import tile

IN_SERVICE, HELD = HostState.IN_SERVICE, HostState.HELD
FOLLOWS = "this replica does not lead: the lease is held by pod-2"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def of_another_boot(one: Replica) -> None:
    one.place.hosts.picture = Picture("another-boot")


def test_a_page_follows_the_leader_and_misses_nothing(browser: Browser) -> None:
    with replica() as first, replica() as second:
        of_another_boot(second)
        second.place.follows = FOLLOWS
        for one in (first, second):
            one.put("a", IN_SERVICE)
            one.put("b", IN_SERVICE)
        with front(lambda: [first.url, second.url]) as url, page_at(browser, url) as page:
            tile(page, "a", "in service")
            second.put("a", HELD, "It changed while nobody led.")
            first.place.follows, second.place.follows = FOLLOWS, None
            tile(page, "a", "held")
            until_live(page)
            second.put("b", HELD)
            tile(page, "b", "held")


def test_the_last_picture_stays_with_its_age(browser: Browser) -> None:
    with replica() as operator:
        operator.put("a", HELD, "A fan is loud.")
        targets = [operator.url]
        with front(lambda: targets) as url, page_at(browser, url) as page:
            tile(page, "a", "held")
            operator.place.follows = FOLLOWS
            expect(page.locator("#link")).to_contain_text("Not connected")
            expect(page.locator("#link time")).to_be_visible()
            tile(page, "a", "held")
            assert violations(page) == ""
            operator.place.follows = None
            until_live(page)


@pytest.mark.parametrize(
    ("says", "follows", "refuses"),
    [("No replica of the operator leads yet.", FOLLOWS, False), ("You may not see this fleet.", None, True)],
)
def test_before_anything_is_known_the_page_says_why(
    browser: Browser, says: str, follows: str | None, refuses: bool
) -> None:
    with replica() as operator:
        operator.put("a", IN_SERVICE)
        with page_at(browser, "about:blank", live=False) as page:

            def refuse(route: Route) -> None:
                route.fulfill(status=403, json={"reason": "NotAllowed", "message": "The right is missing."})

            operator.place.follows = follows
            if refuses:
                page.route(re.compile("/v1/"), refuse)
            page.goto(f"{operator.url}/")
            expect(page.get_by_role("heading", name=says)).to_be_visible()
            assert violations(page) == ""
            operator.place.follows = None
            page.unroute_all()
            tile(page, "a", "in service")


def test_where_events_are_kept_back_the_page_asks_again_and_again(browser: Browser) -> None:
    with replica() as operator:
        operator.put("a", IN_SERVICE)
        with page_at(browser, "about:blank", live=False) as page:

            def buffer(route: Route) -> None:
                """As a proxy that waits for the end of an answer."""
                if "wait" in parse_qs(urlsplit(route.request.url).query):
                    route.continue_()

            page.route(re.compile("/v1/hosts/stream"), buffer)
            page.goto(f"{operator.url}/")
            tile(page, "a", "in service")
            operator.put("a", HELD)
            tile(page, "a", "held")


def test_control_characters_are_shown_and_nothing_becomes_html(browser: Browser) -> None:
    with replica() as operator:
        operator.put("evil\x1b[2J\u202egnp", HELD, "<img src=x onerror=alert(1)>\x07")
        with page_at(browser, f"{operator.url}/") as page:
            row = page.locator(".rows .row")
            expect(row).to_contain_text("evil\\x1b[2J\\u202egnp")
            expect(row).to_contain_text("<img src=x onerror=alert(1)>\\x07")
            assert page.locator("#main img").count() == 0
