"""The page of an audit in a real browser: charts, search, narrow screens, accessibility."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from audit_cases import made
from opened_page import Opened, violations
from report_cases import HOSTILE

from fairij.report import write_audit

if TYPE_CHECKING:
    from playwright.sync_api import Browser


Open = Callable[[str], Opened]


@pytest.fixture(scope="module")
def open_audit(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder: Path = tmp_path_factory.mktemp("audits")

    @cache
    def get(name: str) -> Opened:
        return Opened(browser.new_page(), write_audit(made(name), folder / f"{name}.html"))

    return lambda name: get(name).resized(1280)


@pytest.mark.parametrize("name", ["two", "many", "hostile"])
def test_it_draws_itself_quietly_fits_and_is_accessible(open_audit: Open, name: str) -> None:
    opened = open_audit(name)
    page = opened.page
    for width in (1280, 390, 320):
        opened.resized(width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for chart in page.locator("[data-chart] svg").all():
            box = chart.bounding_box()
            assert box is not None
            assert 100 < box["width"] <= width - box["x"]
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    found = violations(page)
    assert [(rule["id"], node["html"][:200]) for rule in found for node in rule["nodes"]] == []
    assert opened.said == []
    assert len(opened.requests) == 1  # the file itself
    assert page.evaluate("window.hacked") is None


def test_names_stay_text(open_audit: Open) -> None:
    page = open_audit("hostile").page
    assert page.locator("img, iframe").count() == 0
    text = page.evaluate("document.body.textContent")
    for value in (HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[6]):
        assert value in text


def test_many_groups_can_be_searched_and_sorted(open_audit: Open) -> None:
    page = open_audit("many").page
    rows = page.locator("#groups tbody tr")
    assert rows.count() == 87
    page.get_by_label("Search these groups").fill("town 4")
    assert page.locator("#groups tbody tr:visible").count() == 18
    assert page.locator(".search output").inner_text() == "18 of 87 groups"
    page.get_by_label("Search these groups").fill("")
    page.locator("#groups th button", has_text="selection rate").click()
    shown = [
        float(text.split()[0]) for text in page.locator("#groups td:nth-child(4)").all_inner_texts()
    ]
    assert shown == sorted(shown)
    assert len(set(shown)) > 10
    assert page.locator("[data-chart=rate-0] svg .role-mark path").count() >= 16


def test_it_prints_every_group(open_audit: Open) -> None:
    page = open_audit("many").page
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.emulate_media(media="print")
    rows = page.locator("#groups tbody tr:visible").count()
    page.emulate_media(media="screen")
    assert rows == 87
