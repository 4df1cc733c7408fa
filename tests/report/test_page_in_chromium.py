"""The page in a real browser: charts, keyboard, sorting, printing, accessibility."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from opened_page import Opened, violations
from report_cases import CASES, HOSTILE, Case

from fairij.report.candidates import shown_candidates
from fairij.report.wording import LABELS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


Open = Callable[[str], Opened]
Written = Callable[[str], tuple[Case, Path]]


def figures(page: Page) -> dict[str, float]:
    rows = page.locator("#picked-figures tr").all()
    return {row.locator("th").inner_text(): _number(row.locator("td").inner_text()) for row in rows}


def _number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))  # noqa: RUF001 - as the page writes it


def assert_shows(page: Page, case: Case, place: int) -> None:
    """The panel shows the candidate at this place, counted from the smallest gap."""
    shown = shown_candidates(case.fitted)
    expected, found = shown.table.iloc[place], figures(page)
    for name in ("k", "scale", "gap"):
        assert found[name] == pytest.approx(expected[name], abs=6e-5)
    assert found["accuracy"] == pytest.approx(expected["accuracy"], abs=6e-5)
    cells = page.locator("#picked-rates td").all_inner_texts()
    np.testing.assert_allclose(
        [_number(text) for text in cells], shown.of_group[place].ravel(), atol=6e-5
    )


CUT_OFF = """() => [...document.querySelectorAll("[data-chart] svg")].flatMap((chart) => {
    const [left, right] = [chart.getBoundingClientRect().left, chart.getBoundingClientRect().right];
    return [...chart.querySelectorAll("text")].filter((text) => {
        const box = text.getBoundingClientRect();
        return box.width > 0 && (box.left < left - 0.5 || box.right > right + 0.5);
    }).map((text) => text.textContent);
})"""


@pytest.mark.parametrize("name", CASES)
def test_the_page_draws_itself_quietly_and_fits(open_page: Open, name: str) -> None:
    opened = open_page(name)
    page = opened.page
    assert opened.said == []
    assert len(opened.requests) == 1  # the file itself
    assert page.locator("[data-chart]").count() >= 3
    for width in (1280, 900, 390, 320) if name in ("binary", "three") else (1280, 390):
        opened.resized(width)
        for chart in page.locator("[data-chart] svg").all():
            box = chart.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert 100 < box["width"] <= width - box["x"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == []


LOOKED_AT = (("binary", 1280), ("binary", 390), ("three", 1280), ("hostile", 390))


@pytest.mark.parametrize(
    ("name", "width"),
    [
        pytest.param(name, width, marks=[pytest.mark.slow] * ((name, width) not in LOOKED_AT))
        for name in CASES
        for width in (1280, 390)
    ],
)
def test_axe_finds_nothing(open_page: Open, name: str, width: int) -> None:
    page = open_page(name).resized(width).page
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    found = [
        (rule["id"], node["html"][:200]) for rule in violations(page) for node in rule["nodes"]
    ]
    assert found == []


@pytest.mark.parametrize("measure", ["accuracy", "auc"])
def test_clicking_a_point_shows_its_figures(
    open_page: Open, written: Written, measure: str
) -> None:
    case, opened = written("binary")[0], open_page("binary")
    page = opened.page
    shown = shown_candidates(case.fitted)
    page.get_by_role("button", name="Chosen").click()
    assert_shows(page, case, shown.place(case.fitted.chosen_))
    chart = page.locator(f"[data-chart=frontier-{measure}]")
    points = chart.locator("svg .role-mark").first.locator("path")
    assert points.count() == len(shown.table)
    chart.scroll_into_view_if_needed()
    for place in (0, len(shown.table) // 2, len(shown.table) - 1):
        box = points.nth(place).bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expected = shown.table.iloc[place][["gap", measure]]
        found = figures(page)  # points may lie on one another: the figures are those of the place
        assert found["gap"] == pytest.approx(expected["gap"], abs=6e-5)
        assert found[LABELS[measure]] == pytest.approx(expected[measure], abs=6e-5)
    assert opened.said == []


def test_the_keyboard_chooses_too(open_page: Open, written: Written) -> None:
    case, page = written("binary")[0], open_page("binary").page
    shown = shown_candidates(case.fitted)
    last = len(shown.table) - 1
    front = np.flatnonzero(shown.table["pareto"])
    sliders = page.get_by_role("slider").all()
    assert len(sliders) == 2  # of accuracy and of AUC: they show the same choice
    sliders[1].focus()
    for key, place in (
        ("Home", 0),
        ("ArrowLeft", 0),  # there is nothing before the first
        ("ArrowRight", 1),
        ("ArrowUp", 2),
        ("ArrowDown", 1),
        ("PageUp", int(front[front > 1][0])),
        ("End", last),
        ("PageDown", int(front[front < last][-1])),
    ):
        page.keyboard.press(key)
        assert_shows(page, case, place)
        gap = shown.table["gap"].iloc[place]
        for slider in sliders:
            assert slider.get_attribute("aria-valuenow") == str(place + 1)
            assert f"gap {gap:.4f}" in (slider.get_attribute("aria-valuetext") or "")
    page.get_by_role("button", name="Before").press("Enter")
    assert_shows(page, case, shown.place(0))
    page.get_by_role("button", name="Chosen").press("Space")
    assert_shows(page, case, shown.place(case.fitted.chosen_))


@pytest.mark.parametrize("name", ["three", "real"])
def test_every_candidate_has_the_rates_of_its_groups(
    open_page: Open, written: Written, name: str
) -> None:
    case, page = written(name)[0], open_page(name).page
    shown = shown_candidates(case.fitted)
    page.get_by_role("slider").first.press("Home")
    cells = page.locator("#picked-rates td").all_inner_texts()
    found = [_number(text) for text in cells]
    np.testing.assert_allclose(found, shown.of_group[0].ravel(), atol=6e-5)


def column(page: Page, name: str) -> list[str]:
    heads = [text.strip() for text in page.locator("#harmful th").all_inner_texts()]
    place = heads.index(name) + 1
    return page.locator(f"#harmful tbody tr:visible td:nth-child({place})").all_inner_texts()


def test_rows_sort_by_number_and_by_text(open_page: Open, written: Written) -> None:
    case, page = written("hostile")[0], open_page("hostile").page
    worst = np.sort(case.fitted.influence_)[::-1]
    for name in ("row", "rank"):  # a second click on one name would turn the order around
        page.locator("#harmful th button", has_text=name).click()
    first = [float(text) for text in column(page, "influence")]
    np.testing.assert_allclose(first, worst[: len(first)], rtol=1e-3)
    button = page.locator("#harmful th button", has_text="influence")
    button.click()
    assert [float(text) for text in column(page, "influence")] == sorted(first)
    assert page.locator("#harmful th[aria-sort]").get_attribute("aria-sort") == "ascending"
    button.press("Enter")
    assert [float(text) for text in column(page, "influence")] == sorted(first, reverse=True)
    assert page.locator("#harmful th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.locator("#harmful th button", has_text="row").click()
    rows = [int(text) for text in column(page, "row")]
    assert rows == sorted(rows)
    page.locator("#harmful th button", has_text=HOSTILE[3]).click()
    groups = column(page, HOSTILE[3])
    ends = [
        value for value, after in zip(groups, [*groups[1:], None], strict=True) if value != after
    ]
    assert len(ends) == len(set(groups))  # equal ones stand together


def test_rows_can_be_searched(open_page: Open, written: Written) -> None:
    page = open_page("lightgbm").page
    everything = page.locator("#harmful tbody tr").count()
    values = column(page, "group")
    page.get_by_label("Search these rows").fill("b 1")
    rows = page.locator("#harmful tbody tr:visible").all_inner_texts()
    assert 0 < len(rows) < everything
    assert all("b" in row and "1" in row for row in rows)
    assert page.locator("#found").inner_text() == f"{len(rows)} of {everything} rows"
    page.get_by_label("Search these rows").fill("no such thing")
    assert page.locator("#harmful tbody tr:visible").count() == 0
    page.get_by_label("Search these rows").fill("")
    assert column(page, "group") == values


def test_the_tab_key_reaches_everything(open_page: Open) -> None:
    page = open_page("binary").page
    count: int = page.evaluate(
        """() => {
            const all = [...document.querySelectorAll(
                "a[href], button, input, summary, [tabindex='0']"
            )].filter((element) => element.checkVisibility());
            all.forEach((element, place) => { element.dataset.place = place; });
            return all.length;
        }"""
    )
    assert count > 20
    page.locator(".skip").focus()  # the first
    reached = [0]
    for _ in range(count - 1):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("Number(document.activeElement.dataset.place)"))
    assert reached == list(range(count))  # each once, in reading order


def test_hostile_names_and_values_stay_text(open_page: Open) -> None:
    opened = open_page("hostile")
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.get_by_role("slider").first.press("Home")
    page.mouse.move(200, 500)
    assert opened.said == []
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, svg[onload], iframe").count() == 0
    assert page.locator("h1").inner_text() == HOSTILE[1]
    text = page.evaluate("document.body.textContent")
    for value in HOSTILE[:5]:
        assert value in text
    assert HOSTILE[6] in text
    assert page.locator("#picked-rates tbody th").all_inner_texts() == [HOSTILE[1], HOSTILE[2]]
    in_chart = "".join(page.locator("[data-chart=test-0] svg text").all_text_contents())
    assert "</script>" in in_chart  # drawn, not dropped
    page.locator("[data-chart=test-0] svg .mark-symbol.role-mark path").first.hover()
    assert "</script>" in page.locator("#vg-tooltip-element").inner_text()
    assert page.locator("#vg-tooltip-element script").count() == 0
    assert page.evaluate("window.hacked") is None


def test_no_other_script_may_run_and_nothing_may_be_fetched(
    browser: Browser, written: Written
) -> None:
    opened = Opened(browser.new_page(), written("unedited")[1])  # one that no other test sees
    opened.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
            const picture = document.createElement("img");
            picture.src = "http://127.0.0.1:9/picture.png";
            document.body.append(picture);
        }"""
    )
    opened.page.wait_for_timeout(100)
    assert opened.page.evaluate("window.hacked") is None
    assert sum("Content Security Policy" in line for line in opened.said) == 2
    opened.page.close()


def test_it_prints(open_page: Open) -> None:
    page = open_page("unedited").page  # it lists 40 rows
    sheet = page.pdf(format="A4")
    assert sheet.startswith(b"%PDF")
    assert 2 <= sheet.count(b"/Type /Page\n") + sheet.count(b"/Type /Page ") <= 20
    page.emulate_media(media="print")
    seen = page.get_by_role("button", name="Before").is_visible()
    rows = page.locator("#harmful tbody tr:visible").count()
    page.emulate_media(media="screen")
    assert (seen, rows) == (False, 30)
    assert page.get_by_role("button", name="Before").is_visible()
    assert page.locator("#harmful tbody tr:visible").count() == 40
