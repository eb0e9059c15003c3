"""The page in headless Chromium: accessible, narrow, safe against texts of the cluster, and large enough."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Browser, Page, expect

from shared.adapters.kubernetes.reviews import Reviews
from shared.cli.ui.app import UiServer, make_app
from shared.cli.ui.cluster_view import CachedView
from shared.cli.ui.command import serve_app
from tests.browsers import started_chromium
from tests.builders import ago, job
from tests.ui_views import SCRIPT, view_of
from tests.unit.cli.ui.test_ui_app import ReviewingServer

pytestmark = pytest.mark.anyio

WIDTH_MIN = 320
CONTROLS = "a[href], button, input, select, summary, [tabindex='0']"


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with started_chromium() as browser:
        yield browser


@asynccontextmanager
async def opened_page(
    browser: Browser, view: Any, *, server: ReviewingServer | None = None, is_attacked: bool = False, **options: Any
) -> AsyncIterator[Page]:
    """Open the page; at the end, no other server was asked, and unless it is attacked, the console has no error."""

    async def read() -> Any:
        return view

    reviews: Any = Reviews(server) if server else None  # type: ignore[arg-type]
    ui = UiServer(CachedView(read, seconds=5), 5, reviews)
    async with (
        serve_app(make_app(ui, loopback_only=True), "127.0.0.1", 0) as address,
        await browser.new_context(**options) as context,
    ):
        page = await context.new_page()
        page.set_default_timeout(20_000)
        problems, hosts = list[str](), set[str]()
        page.on("console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]) if "://" in request.url else None)
        await page.goto(address)
        yield page
        assert hosts == {address.split("/")[2]}
        assert await context.cookies() == []
        assert is_attacked or [one for one in problems if "401" not in one] == []


async def read_page(page: Page) -> None:
    await expect(page.locator("#data")).to_be_visible()


async def violations(page: Page) -> list[str]:
    await page.evaluate(f"() => {{ {AXE_SCRIPT} }}")
    found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html']}: {node['failureSummary']}" for one in found["violations"] for node in one["nodes"]
    ]


async def is_scrolled_sideways(page: Page) -> bool:
    return await page.evaluate("() => document.documentElement.scrollWidth > document.documentElement.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDTH_MIN, 1_280])
async def test_page_is_accessible_and_fits_the_width(browser, scheme, width):
    viewport = {"width": width, "height": 800}
    async with opened_page(browser, await view_of(), color_scheme=scheme, viewport=viewport) as page:
        await read_page(page)
        await page.locator("summary").click()
        assert await violations(page) == []
        assert not await is_scrolled_sideways(page)
        back = await page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") == (scheme == "light")


async def test_page_shows_each_section_of_the_document(browser):
    async with opened_page(browser, await view_of()) as page:
        await read_page(page)
        for text in (
            "due now",
            "gone",
            "held",
            "no-ttl",
            "pod-1/7",
            "open",
            "Job.batch/ci/loop",
            "cronjobs.batch: may not list",
        ):
            await expect(page.locator("main")).to_contain_text(text)
        label = await page.locator("#plot").get_attribute("aria-label")
        assert label == (
            "Bar chart by hour: 3 due now, 2 in the next 24 hours, 1 later. The table below has the numbers."
        )
        await expect(page.locator("#hours tr")).to_have_count(26)


async def test_keyboard_reaches_every_control(browser):
    async with opened_page(browser, await view_of()) as page:
        await read_page(page)
        await page.locator("#pause").click()
        await page.locator("summary").click()
        visible = await page.evaluate(
            "(what) => [...document.querySelectorAll(what)].filter((one) => one.checkVisibility()).length", CONTROLS
        )
        await page.evaluate("() => document.activeElement.blur()")
        reached = set()
        for _ in range(visible + 3):
            await page.keyboard.press("Tab")
            reached.add(await page.evaluate(
                "(what) => [...document.querySelectorAll(what)].filter((one) => one.checkVisibility())"
                ".indexOf(document.activeElement)", CONTROLS
            ))  # fmt: skip
        assert set(range(visible)) <= reached


async def test_markup_in_the_texts_of_a_cluster_is_text(browser):
    named = job(name=SCRIPT, uid="x", namespace="ci", failed=ago(600))
    view = await view_of(named)
    async with opened_page(browser, replace(view, server=SCRIPT)) as page:
        await read_page(page)
        assert await page.title() == "ttl-after-finished"
        await expect(page.locator("#kept")).to_contain_text(SCRIPT)
        await expect(page.locator("#deletions")).to_contain_text(SCRIPT)
        await expect(page.locator("#obstacles")).to_contain_text(SCRIPT)
        await expect(page.locator("#read")).to_contain_text(SCRIPT)
        assert await page.locator("script").count() == 1


async def test_policy_of_the_page_stops_a_foreign_script_and_markup(browser):
    async with opened_page(browser, await view_of(), is_attacked=True) as page:
        await read_page(page)
        blocked = await page.evaluate(
            "() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch (error) { return true } }"
        )
        assert blocked
        asked = await page.evaluate("() => fetch('https://example.com/').then(() => true, () => false)")
        assert not asked


async def test_filter_asks_the_server_and_pause_stops_the_refresh(browser):
    async with opened_page(browser, await view_of()) as page:
        await read_page(page)
        await page.locator("#namespace").fill("web")
        await page.keyboard.press("Enter")
        await expect(page.locator("#sums div").first).to_contain_text("3")
        await page.locator("#clear").click()
        await expect(page.locator("#sums div").first).to_contain_text("8")
        async with page.expect_response("**/api/v1/overview*", timeout=15_000):
            pass  # by itself
        await page.locator("#pause").click()
        await expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.wait_for_timeout(6_000)
        assert asked == []


async def test_token_is_asked_for_and_is_gone_after_a_reload(browser):
    view = await view_of()
    async with opened_page(browser, view, server=ReviewingServer()) as page:
        await expect(page.locator("#login")).to_be_visible()
        assert await violations(page) == []
        await page.locator("#token").fill("mallory")
        await page.keyboard.press("Enter")
        await expect(page.locator("#error")).to_contain_text("rejects the token")
        await page.locator("#token").fill("bob")
        await page.keyboard.press("Enter")
        await read_page(page)
        await expect(page.locator("#read")).to_contain_text("only what you may list")
        await expect(page.locator("#no-status")).to_be_visible()
        assert await page.evaluate("() => [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        await page.reload()
        await expect(page.locator("#login")).to_be_visible()


async def test_page_of_100000_objects_is_rendered(browser):
    view = await view_of()
    groups = [
        replace(one, place=replace(one.place, namespace=f"{one.place.namespace}-{number}"))
        for number in range(12_500)
        for one in view.groups
    ]
    viewport = {"width": WIDTH_MIN, "height": 800}
    async with opened_page(browser, replace(view, groups=groups), viewport=viewport) as page:
        await read_page(page)
        await expect(page.locator("#sums div").first).to_contain_text("100,000")
        await expect(page.locator("#forecast-rows tr")).to_have_count(50)
        await expect(page.locator("#forecast-more")).to_contain_text("24,950 more rows")
        assert not await is_scrolled_sideways(page)
        assert await violations(page) == []
