"""The plugin of examples/headlamp-plugin in Headlamp itself, with `ui` behind the proxy of a real API server.

It needs a Headlamp that you built or downloaded: the program `headlamp-server` in $HEADLAMP_SERVER, the folder of its
pages in $HEADLAMP_PAGES, and a node_modules of examples/headlamp-plugin in $HEADLAMP_MODULES.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Page, expect

from shared.core.values.objects import format_instant
from shared.devserver.ports import free_port
from tests.browsers import started_chromium
from tests.examples.headlamp_builds import build_plugin, run_node
from tests.integration.test_ui import (
    HTTP,
    HTTPS,
    certificate_options,
    let_read_proxy,
    own_address,
    service_of,
    user_of,
)
from tests.servers import shared_server  # noqa: F401 - a fixture

PROGRAM, PAGES = os.environ.get("HEADLAMP_SERVER"), os.environ.get("HEADLAMP_PAGES")
FOLDER = "ttl-after-finished"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not (PROGRAM and PAGES), reason="needs Headlamp in $HEADLAMP_SERVER and $HEADLAMP_PAGES"),
]


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Headlamp's plugins, with ours as the README installs it."""
    plugin = build_plugin(tmp_path_factory.mktemp("headlamp"))
    folder = tmp_path_factory.mktemp("plugins")
    (folder / FOLDER).mkdir()
    run_node(plugin, "headlamp-plugin", "extract", ".", str(folder / FOLDER))
    return folder


@pytest.fixture
def headlamp(api, server, plugins, tmp_path) -> Iterator[str]:
    """Headlamp with one cluster, for which it has no credentials; gives its URL."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    port = free_port()
    words = [
        str(PROGRAM),
        "-listen-addr=127.0.0.1",
        f"-port={port}",
        f"-html-static-dir={PAGES}",
        f"-plugins-dir={plugins}",
        f"-user-plugins-dir={tmp_path / 'none'}",
        f"-kubeconfig={tmp_path / 'kubeconfig'}",
    ]
    log = tmp_path / "headlamp.log"
    with log.open("wb") as file:
        process = subprocess.Popen(words, env={**os.environ, "HOME": str(tmp_path)}, stdout=file, stderr=file)
    try:
        api.wait("the start of Headlamp", lambda: process.poll() is not None or is_reachable(port))
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def is_reachable(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


@pytest.fixture
def finished_pod(api, namespace) -> str:
    """A Pod that succeeded, beside the Pod `one` of the Service; gives its name on the page."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name in ("one", "done"):
        containers = [{"name": "main", "image": "example.com/x"}]
        api.call("POST", path, {"metadata": {"name": name}, "spec": {"containers": containers}})
    ended = {"terminated": {"exitCode": 0, "finishedAt": format_instant(datetime.now(UTC).replace(microsecond=0))}}
    container = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    api.call("PATCH", f"{path}/done/status", {"status": status})
    return f"Pod/{namespace}/done"


async def log_in(page: Page, token: str) -> None:
    """Log in to Headlamp, and open the page of the plugin by the sidebar."""
    await page.get_by_label("ID token").fill(token)
    await page.get_by_role("button", name="Authenticate").click()
    await page.get_by_role("button", name="Finished objects").click()


async def show(page: Page, namespace: str, token: str) -> None:
    await page.get_by_label("Namespace of the installation").fill(namespace)
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Show", exact=True).click()


@pytest.mark.parametrize("target", [HTTPS, HTTP])
async def test_user_of_headlamp_sees_what_the_second_token_may_list(
    api, namespace, start_ui, headlamp, finished_pod, tmp_path, target
):
    address = own_address()
    options = certificate_options(tmp_path / "tls") if target == HTTPS else ()
    url = start_ui("--auth", "kubernetes", "--kinds", "pods", "--host", address, *options)
    service_of(api, namespace, address, target.rpartition(":")[2], int(url.rpartition(":")[2]))
    first, second = (user_of(api, namespace, *one) for one in (("first", ("services",)), ("second", ("pods",))))
    async with started_chromium() as browser:
        page = await browser.new_page()
        page.set_default_timeout(60_000)
        sent = list[str]()
        page.on("request", lambda one: sent.append(one.url) if "x-ttl-authorization" in one.headers else None)
        await page.goto(f"{headlamp}/c/real")
        await log_in(page, first)
        await show(page, namespace, second)
        for each in (HTTPS, HTTP):
            await expect(page.get_by_role("alert")).to_contain_text(f'services "{each}" is forbidden')
        let_read_proxy(api, namespace, (namespace, "first"), target)
        await page.get_by_role("button", name="Forget the token").click()
        await show(page, namespace, "invented")
        await expect(page.get_by_role("alert")).to_contain_text("the API server rejects the token")
        await page.get_by_role("button", name="Forget the token").click()
        sent.clear()
        await show(page, namespace, second)
        for text in ("Only what the user of the token may list.", "may not read the breaker", "no-ttl", finished_pod):
            await expect(page.locator("body")).to_contain_text(text)
        root = f"{headlamp}/clusters/real/api/v1/namespaces/{namespace}/services"
        asked = [HTTPS] if target == HTTPS else [HTTPS, HTTP]
        assert sent == [f"{root}/{each}/proxy/api/v1/overview" for each in asked]
        stored = await page.evaluate("() => JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert first not in stored
        assert second not in stored
