"""A page in a browser, and what it says there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE = 120_000  # milliseconds; a busy machine may need them
DRAWN = """() => [...document.querySelectorAll("[data-chart]")].every((chart) =>
    Math.abs(chart.clientWidth - chart.querySelector("svg").clientWidth) <= 1)"""


def violations(page: Page) -> list[dict[str, Any]]:
    """The rules of accessibility that axe finds broken."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]})
    return list(found.response["violations"])


class Opened:
    """A page in the browser, and everything that it complained about or asked for."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.said: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.set_default_timeout(PATIENCE)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")

    def resized(self, width: int) -> Opened:
        """The same page in a window of this width, with its charts drawn again."""
        if self.page.viewport_size != {"width": width, "height": 900}:
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.wait_for_function(DRAWN)
        return self
