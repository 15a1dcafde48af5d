"""The page in a real browser: over `hostler web`, the API server's proxy and two replicas of the real operator."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.people import NOBODY, VIEWER, World, may, request_token
from tests.real.web.browsing import front, hostler_web, page_at, until_live, violations
from tests.real.web.steps import ESXI, GPU, hold, release, tile

MakeNode = Callable[..., str]
LARGEST_TEXT = """() => {
  const size = (one) => parseFloat(getComputedStyle(one).fontSize);
  return [...document.querySelectorAll("#main *")].reduce((most, one) => (size(one) > size(most) ? one : most)).tagName;
}"""
VIEWS = ("#/fleet", "#/fleet?show=all&group=esxi", "#/operations", "#/history")


def test_two_viewers_see_a_node_held_and_released(
    sandbox: Sandbox, url: str, browser: Browser, make_node: MakeNode
) -> None:
    name = make_node()
    with page_at(browser, url) as one, page_at(browser, url) as other:
        for page in (one, other):
            tile(page, name, "in service")
        hold(sandbox, name)
        for page in (one, other):
            tile(page, name, "held")
            row = page.get_by_role("row").filter(has_text=name)
            expect(row).to_contain_text("Held by ann: a fan is loud")
        release(sandbox, name)
        for page in (one, other):
            tile(page, name, "in service")
            expect(page.get_by_role("row").filter(has_text=name)).to_have_count(0)


def test_the_address_holds_the_filter(url: str, browser: Browser) -> None:
    with page_at(browser, f"{url}#/fleet?q={GPU}&show=all") as page:
        expect(page.locator(".rows .row")).to_have_count(1)
        assert page.get_by_label("Filter hosts").input_value() == GPU
        page.get_by_label("Filter hosts").fill("")
        page.get_by_label("Kind", exact=True).select_option("esxi")
        page.get_by_label("Group the map by").select_option("esxi")
        expect(page.locator(".rows .row").filter(has_text="esx")).not_to_have_count(0)
        shown = page.locator(".rows .row").count()
        assert "kind=esxi" in page.url
        assert "group=esxi" in page.url
        assert "q=" not in page.url
        page.reload()
        until_live(page)
        expect(page.locator(".rows .row")).to_have_count(shown)
        page.get_by_label("Kind", exact=True).select_option("")
        page.locator('.count[data-state="in service"]').click()
        assert "state=in" in page.url
        expect(page.locator('.count[data-state="in service"]')).to_have_attribute("aria-pressed", "true")
        page.goto(f"{url}#/fleet?q=no-such-host")
        expect(page.get_by_text("No host fits this filter.")).to_be_visible()


def test_a_hosts_page_has_the_sentence_facts_reasons_and_plan(
    sandbox: Sandbox, url: str, browser: Browser, make_node: MakeNode
) -> None:
    name = make_node()
    hold(sandbox, name, "<b>loud</b>")
    with page_at(browser, f"{url}#/fleet?q={name}&show=all") as page:
        page.locator(".rows").get_by_role("link", name=name).click()
        sentence = page.get_by_role("heading", level=1)
        expect(sentence).to_contain_text("held by ann")
        assert page.evaluate(LARGEST_TEXT) == "H1"
        expect(page.get_by_role("heading", name="Not safe to stop")).to_be_visible()
        expect(page.get_by_text("It is held by ann.").first).to_be_visible()
        expect(page.locator(".part", has_text="Who holds it")).to_contain_text("<b>loud</b>")
        expect(page.locator(".part", has=page.get_by_role("heading", name="Why")).locator(".fold")).not_to_have_count(0)
        expect(
            page.locator(".part", has=page.get_by_role("heading", name="What would happen")).locator(".fold")
        ).not_to_have_count(0)
        expect(page.get_by_text(f"hostler release {name}")).to_be_visible()
        assert page.locator("b", has_text="loud").count() == 0, "text of objects is no HTML"
        release(sandbox, name)
        expect(page.locator(".standing")).to_contain_text("in service")
        expect(page.locator(".entries .entry").filter(has_text="held")).not_to_have_count(0)


def test_a_maintenance_is_followed_to_its_end(sandbox: Sandbox, url: str, browser: Browser) -> None:
    with page_at(browser, f"{url}#/fleet?q={GPU}&show=all") as page:
        tile(page, GPU, "in service")
        sandbox.maintenance(ESXI, "enter")
        try:
            tile(page, GPU, "stopped")
            expect(page.get_by_role("row").filter(has_text=GPU)).to_contain_text(ESXI)
        finally:
            sandbox.maintenance(ESXI, "cancel")
        tile(page, GPU, "in service")
        page.goto(f"{url}#/history?host={GPU}")
        expect(page.locator(".entry").filter(has_text="stopped")).not_to_have_count(0)
        expect(page.locator(".stretch.c-stopped")).not_to_have_count(0)
        page.locator(".entry").filter(has_text="stopped").first.locator(".when a").click()
        expect(page.locator(".entry.chosen")).not_to_have_count(0)
        assert "at=" in page.url


def test_everything_is_reached_by_keys(url: str, browser: Browser) -> None:
    with page_at(browser, f"{url}#/fleet?show=all") as page:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_label("Filter hosts")).to_be_focused()
        page.keyboard.type("esxi:")  # the beginning of an id; places of VMs name their ESXi host too
        expect(page.locator(".rows .row .name").first).to_have_text("esx1")
        page.keyboard.press("Escape")
        rows = page.locator(".rows .row .name")
        rows.first.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator(".rows .row:focus-within .name")).to_have_text("esx2")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        assert "#/host/esxi" in page.url
        page.go_back()
        page.locator('.tile[tabindex="0"]').focus()
        before = page.locator(".tile:focus").get_attribute("aria-label")
        page.keyboard.press("ArrowRight")
        assert page.locator(".tile:focus").get_attribute("aria-label") != before
        page.keyboard.press("Home")
        assert page.locator(".tile:focus").get_attribute("aria-label") == before
        page.keyboard.press("Enter")
        expect(page.locator(".standing")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_any_view(world: World, url: str, browser: Browser, dark: bool) -> None:
    with page_at(browser, url, dark=dark) as page:
        tile(page, GPU, "in service")
        node = page.get_by_label(f"{GPU}: in service", exact=True).get_attribute("href")
        for view in (*VIEWS, str(node)):
            page.goto(url + view)
            page.get_by_role("heading", level=1).wait_for(state="attached")
            page.wait_for_timeout(500)  # what a view loads of its own
            assert violations(page) == "", view


def test_without_rights_the_page_names_the_one_that_is_missing(world: World, browser: Browser) -> None:
    with (
        hostler_web(world.folder / f"{NOBODY}.kubeconfig", "--operator-namespace", world.namespace) as url,
        page_at(browser, url, live=False) as page,
    ):
        expect(page.get_by_text("You may not see this fleet.")).to_be_visible()
        expect(page.locator("#main")).to_contain_text("leases.coordination.k8s.io")
        assert violations(page) == ""


def test_an_operator_at_a_url_gets_the_readers_token(world: World) -> None:
    words = ("--operator-namespace", world.namespace, "--operator", world.leader().url)
    with (
        hostler_web(world.folder / f"{VIEWER}.kubeconfig", *words) as url,
        urllib.request.urlopen(f"{url}v1/hosts", timeout=60) as answer,
    ):
        assert answer.status == 200


def test_behind_a_front_a_token_logs_in(world: World, browser: Browser, eventually: Eventually) -> None:
    with front(lambda: [one.url for one in world.replicas]) as url, page_at(browser, url, live=False) as page:
        field = page.get_by_label("Bearer token")
        field.fill(request_token(world.sandbox, world.namespace, "prometheus", []))
        assert violations(page) == ""
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("fleets/picture")
        assert page.context.cookies() == []
        field.fill("a.forged.token")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
        with viewing(world, "prometheus", eventually):
            field.fill(request_token(world.sandbox, world.namespace, "prometheus", []))
            page.get_by_role("button", name="Log in").click()
            until_live(page)
            tile(page, GPU, "in service")
            (cookie,) = page.context.cookies()
            assert cookie["httpOnly"]
            assert cookie["secure"]
            assert cookie["sameSite"] == "Strict"
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_label("Bearer token")).to_be_visible()
            assert page.context.cookies() == []


@contextmanager
def viewing(world: World, account: str, eventually: Eventually) -> Iterator[None]:
    """The account may see for as long as this lasts."""
    role, name = f"{world.namespace}-viewer", f"{world.namespace}-web"
    world.sandbox.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={role}", f"--serviceaccount={world.namespace}:{account}"
    )
    try:
        user = f"system:serviceaccount:{world.namespace}:{account}"
        eventually(lambda: may(world, user, "get", "fleets.hostler.dev/picture"), what="the binding is in force")
        yield
    finally:
        world.sandbox.kubectl("delete", "clusterrolebinding", name)


def test_a_page_misses_nothing_while_the_leader_is_replaced(
    sandbox: Sandbox, world: World, url: str, browser: Browser, make_node: MakeNode
) -> None:
    names = [make_node(), make_node()]
    with page_at(browser, url) as page:
        for name in names:
            tile(page, name, "in service")
        hold(sandbox, names[0], "before")
        tile(page, names[0], "held")
        leader = world.leader()
        leader.process.send_signal(signal.SIGKILL)
        leader.process.wait()
        sandbox.kubectl("cordon", names[1])
        tile(page, names[0], "held")  # the last picture stays
        tile(page, names[1], "held")
        until_live(page)
        page.goto(f"{url}#/history?host={quote(names[0])}")
        expect(page.locator(".entry").filter(has_text="held")).not_to_have_count(0)
        expect(page.locator(".entry").filter(has_text="in service")).not_to_have_count(0)
        sandbox.kubectl("uncordon", names[1])
        release(sandbox, names[0])
        expect(page.locator(".entry")).to_have_count(3)
