"""The plugin of examples/headlamp-plugin, built with Headlamp's tool, on a page with Headlamp's libraries in Chromium.

`make headlamp` runs it. Behind the page is what Headlamp and the API server do between a plugin and the server of `ui`:
tests/integration/test_ui.py tests the proxy of a real API server.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from playwright.async_api import Browser, Page, expect

from shared.adapters.kubernetes.reviews import Reviews
from shared.cli.ui.app import UiServer, make_app
from shared.cli.ui.cluster_view import CachedView
from shared.cli.ui.command import ServerCertificate, serve_app
from tests.browsers import started_chromium
from tests.builders import ROOT
from tests.certificates import write_certificate
from tests.examples.headlamp_builds import build_plugin, run_node
from tests.loopback import answering_with
from tests.ui_views import SCRIPT, view_of
from tests.unit.cli.ui.test_ui_app import ReviewingServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400), pytest.mark.verify]  # they need Node.js and Chromium

HOST = ROOT / "tests" / "examples" / "headlamp_host"
PREFIX = "/api/v1/namespaces/ttl-after-finished/services/"
HTTPS, HTTP = "https:ui:https", "ui:http"
HTML = "<!doctype html><title>host</title><div id=root></div><script type=module src=/host.js></script>"
REMOVED = {"host", "cookie", "authorization"}
"""Headers that Headlamp or the API server do not pass on."""


@dataclass(frozen=True)
class Built:
    host: Path
    plugin: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The plugin and the page around it."""
    folder = tmp_path_factory.mktemp("headlamp")
    plugin, host = build_plugin(folder), folder / "host"
    shutil.copytree(HOST, host)
    run_node(host, "vite", "build")
    return Built(host / "dist" / "host.js", plugin / "dist" / "main.js")


@pytest.fixture(scope="module")
async def browser(built: Built) -> AsyncIterator[Browser]:
    async with started_chromium() as browser:
        yield browser


@dataclass
class Backend:
    """The backend of Headlamp with two clusters; each has the same server of `ui`.

    Attributes:
        built: The plugin and the page around it.
        ui: The URL of the server of `ui`.
        target: The one port of the Service, with the scheme, as the API server's proxy names it.
        forbidden: The targets on which the user of Headlamp has no right.
        is_broken: Whether the Pod does not speak the scheme of the target.
        asked: The clusters of the requests.
        passed: The targets of the requests that reached `ui`.
        refused: The targets of the requests that the API server refused.
    """

    built: Built
    ui: str
    target: str = HTTP
    forbidden: set[str] = field(default_factory=set)
    is_broken: bool = False
    asked: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/host.js":
            return web.FileResponse(self.built.host)
        if request.path == "/plugin.js":
            return web.FileResponse(self.built.plugin)
        if request.path.startswith(("/assets/", "/locales/")):
            text = "export default {};" if "/locales/" in request.path else ""
            return web.Response(text=text, content_type="text/javascript")
        if not request.path.startswith("/clusters/"):
            return web.Response(text=HTML, content_type="text/html")
        _, _, cluster, rest = request.path.split("/", 3)
        self.asked.append(cluster)
        target, _, path = f"/{rest}".removeprefix(PREFIX).partition("/proxy/")
        if refusal := self.refusal_of(target):
            self.refused.append(target)
            return web.json_response({"kind": "Status", "message": refusal[1]}, status=refusal[0])
        self.passed.append(target)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in REMOVED}
        # The API server does not verify the certificate of the Pod.
        async with ClientSession() as session, session.get(self.ui + path, headers=headers, ssl=False) as answer:
            return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)

    def refusal_of(self, target: str) -> tuple[int, str] | None:
        """The status and the message of the API server, as tests/integration/test_ui.py finds them."""
        if target in self.forbidden:
            return 403, f'services "{target}" is forbidden: User "eve" cannot get resource "services/proxy"'
        if target != self.target:
            return 503, f'no endpoints available for service "{target}"'
        return (503, "error trying to reach service: tls: first record does not look like") if self.is_broken else None


@asynccontextmanager
async def opened(
    browser: Browser, built: Built, server: ReviewingServer | None, certificate: ServerCertificate | None = None
) -> AsyncIterator[tuple[Page, Backend]]:
    """Open the page of the cluster `main`; at the end no script failed, and nothing is stored."""
    view = await view_of()

    async def read() -> Any:
        return view

    reviews: Any = Reviews(server) if server else None  # type: ignore[arg-type]
    ui = UiServer(CachedView(read, seconds=5), 5, reviews)
    async with serve_app(make_app(ui, loopback_only=False), "127.0.0.1", 0, certificate) as address:
        backend = Backend(built, address, HTTPS if certificate else HTTP)
        async with answering_with(backend.handle) as host, await browser.new_context() as context:
            page = await context.new_page()
            page.set_default_timeout(20_000)
            failed = list[str]()
            page.on("pageerror", lambda error: failed.append(str(error)))
            await page.goto(f"{host}/c/main/finished-objects")
            yield page, backend
            assert failed == []
            assert await context.cookies() == []
            stored = await page.evaluate("() => JSON.stringify([localStorage, sessionStorage])")
            assert not {"bob", "ann", "mallory"} & set(stored.split('"'))


async def connect(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Show", exact=True).click()


async def test_plugin_shows_each_section_and_markup_as_text(browser, built):
    async with opened(browser, built, None) as (page, _):
        await connect(page, "any")
        for text in (
            "Due within 1 to 24 hours",
            "open, 12 deletions in its window",
            "complete: listed all objects of jobs.batch",
            "web jobs.batch",
            "no-ttl",
            "Job/web/held",
            "Job/ci/gone",
            "7 of them are only counted",
            "cronjobs.batch: may not list",
            SCRIPT,
        ):
            await expect(page.locator("#root")).to_contain_text(text)
        assert await page.title() == "host"
        row = page.locator("tr", has_text="ci jobs.batch").first
        await expect(row.locator("td")).to_contain_text(["ci jobs.batch", "3", "0", "2", "0"])


async def test_plugin_shows_only_what_the_user_of_the_token_may_list(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, _):
        await connect(page, "bob")
        await expect(page.locator("#root")).to_contain_text("Only what the user of the token may list.")
        await expect(page.locator("#root")).to_contain_text("may not read the breaker")
        await expect(page.locator("#root")).to_contain_text("Job/web/gone")
        await expect(page.locator("#root")).not_to_contain_text("ci jobs.batch")


async def test_rejected_token_is_reported_and_can_be_replaced(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, _):
        await connect(page, "mallory")
        await expect(page.get_by_role("alert")).to_contain_text("the API server rejects the token")
        await page.get_by_role("button", name="Forget the token").click()
        await connect(page, "ann")
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        await page.reload()
        await expect(page.get_by_label("Token")).to_have_value("")


async def test_token_is_not_sent_to_another_cluster(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, backend):
        await connect(page, "ann")
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        await page.get_by_role("link", name="other: Finished objects").click()
        await expect(page.get_by_label("Token")).to_have_value("")
        await expect(page.locator("#root")).not_to_contain_text("ci jobs.batch")
        await page.get_by_role("link", name="main: Finished objects").click()
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        assert set(backend.asked) == {"main"}


@pytest.fixture
def certificate(tmp_path: Path) -> ServerCertificate:
    return ServerCertificate(*write_certificate(tmp_path / "tls", "ui"))


async def test_plugin_reads_ui_over_https_and_sends_no_token_over_http(browser, built, certificate):
    async with opened(browser, built, ReviewingServer(), certificate) as (page, backend):
        assert backend.ui.startswith("https://")
        await connect(page, "ann")
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        assert (backend.passed, backend.refused) == ([HTTPS], [])


async def test_plugin_asks_for_https_first_and_then_keeps_the_port_that_answered(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, backend):
        await connect(page, "ann")
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        await page.get_by_role("link", name="other: Finished objects").click()
        await page.get_by_role("link", name="main: Finished objects").click()
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        assert (backend.passed, backend.refused) == ([HTTP, HTTP], [HTTPS])


async def test_plugin_finds_the_port_after_ui_changes_to_https(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, backend):
        await connect(page, "ann")
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        backend.target = HTTPS
        await page.get_by_role("link", name="other: Finished objects").click()
        await page.get_by_role("link", name="main: Finished objects").click()
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        assert (backend.passed, backend.refused) == ([HTTP, HTTPS], [HTTPS, HTTP])


async def test_right_on_the_port_of_the_service_is_enough(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, backend):
        backend.forbidden = {HTTPS}
        await connect(page, "ann")
        await expect(page.locator("#root")).to_contain_text("ci jobs.batch")
        assert backend.passed == [HTTP]


async def test_user_without_a_right_on_the_proxy_gets_the_names_of_both_ports(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, backend):
        backend.forbidden = {HTTPS, HTTP}
        await connect(page, "ann")
        for target in (HTTPS, HTTP):
            await expect(page.get_by_role("alert")).to_contain_text(f'services "{target}" is forbidden')
        assert backend.passed == []


async def test_failure_of_tls_does_not_lead_to_http(browser, built):
    async with opened(browser, built, ReviewingServer()) as (page, backend):
        backend.target, backend.is_broken = HTTPS, True
        await connect(page, "ann")
        await expect(page.get_by_role("alert")).to_contain_text("error trying to reach service: tls")
        assert (backend.passed, backend.refused) == ([], [HTTPS])
