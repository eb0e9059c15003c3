"""Chromium of the system, headless, for the tests of the page."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from tests.required import required

BROWSER = "chromium"


def required_chromium() -> Path:
    """The program; without it the test is skipped, and in CI it fails unless TESTS_WITHOUT_CHROMIUM is set."""
    reason = f"no {BROWSER} on the PATH: it is the package {BROWSER} of Debian"
    is_needed = not os.getenv("TESTS_WITHOUT_CHROMIUM")
    return Path(required(shutil.which(BROWSER), reason, in_ci=is_needed))


@asynccontextmanager
async def started_chromium() -> AsyncIterator[Browser]:
    program = required_chromium()
    async with async_playwright() as playwright:
        # Tests run as root in a container, where Chromium's own sandbox cannot start.
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
