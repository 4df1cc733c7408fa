"""Pages made from real fits, opened in the system's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opened_page import Opened
from report_cases import Case, make_case

from fairij.report import write_report

if TYPE_CHECKING:  # imported by the process that opens pages
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SKIP = "no Chromium found: install the system's package, as in `apt-get install chromium`"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("FAIRIJ_REQUIRE_CHROMIUM"):
            pytest.fail(SKIP)
        pytest.skip(SKIP)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Case, Path]]:
    """A case and its page; each is made once."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def get(name: str) -> tuple[Case, Path]:
        case = make_case(name)
        path = folder / f"{name}.html"
        rows = 40 if name == "unedited" else 12  # few, since axe looks at every cell
        write_report(case.fitted, path, **case.arguments, show_rows=rows)
        return case, path

    return get


@pytest.fixture(scope="session")
def open_page(
    browser: Browser, written: Callable[[str], tuple[Case, Path]]
) -> Callable[[str], Opened]:
    """The page of a case, opened once: every test must bring it into the state that it needs."""

    @cache
    def get(name: str) -> Opened:
        return Opened(browser.new_page(), written(name)[1])

    return lambda name: get(name).resized(1280)
