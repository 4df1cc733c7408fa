"""Pages made from real fits, opened in the system's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opened_page import Opened
from playwright.sync_api import Browser, Page, sync_playwright
from report_cases import CASES, Case, make_case

from fairij.report import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SKIP = "no Chromium found: install the system's package, as in `apt-get install chromium`"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("FAIRIJ_REQUIRE_CHROMIUM"):
            pytest.fail(SKIP)
        pytest.skip(SKIP)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Case, Path]]:
    """A case and its page, each made once."""
    folder = tmp_path_factory.mktemp("pages")
    made: dict[str, tuple[Case, Path]] = {}

    def get(name: str) -> tuple[Case, Path]:
        if name not in made:
            case = make_case(name)
            path = folder / f"{name}.html"
            write_report(case.fitted, path, **case.arguments, top_rows=40)
            made[name] = (case, path)
        return made[name]

    return get


@pytest.fixture
def open_page(
    browser: Browser, written: Callable[[str], tuple[Case, Path]]
) -> Iterator[Callable[..., Opened]]:
    pages: list[Page] = []

    def get(name: str, width: int = 1280) -> Opened:
        """A fresh page; what a test does to it no other test sees."""
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        return Opened(page, written(name)[1])

    yield get
    for page in pages:
        page.close()


@pytest.fixture(scope="session", params=[(name, width) for name in CASES for width in (1280, 390)])
def looked_at(
    request: pytest.FixtureRequest, browser: Browser, written: Callable[[str], tuple[Case, Path]]
) -> Iterator[Opened]:
    """Every page at both sizes, for tests that only look."""
    name, width = request.param
    page = browser.new_page(viewport={"width": width, "height": 900})
    yield Opened(page, written(name)[1])
    page.close()
