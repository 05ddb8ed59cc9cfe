"""Chromium without a screen: pages as readers see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Process
    from playwright.sync_api import Page

LOOKS = ((360, "light"), (800, "dark"), (1280, "light"))
"""Widths of a telephone, a tablet and a desk, in pixels, and what the reader prefers."""


class Browser:
    """A browser that reaches no other host, and what pages have said on its console."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.messages: list[str] = []

    def opened(self, address: str, width: int = 1280, theme: str = "light") -> Page:
        """A page, once it has fetched all that it wants to."""
        page = self._process.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.goto(address, wait_until="networkidle")
        return page


@contextmanager
def chromium(executable: str) -> Iterator[Browser]:
    """Run chromium; what it tells of requests to other hosts is among its messages."""
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=executable, args=options) as process,
    ):
        yield Browser(process)


def violations(page: Page) -> list[str]:
    """Rules of accessibility that a page breaks, and where, as axe-core finds them."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['target']}" for one in found for node in one["nodes"]]
