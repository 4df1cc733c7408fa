"""What the page says of single people: nothing, unless it is asked to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_cases import make_case

from fairij.report import write_report
from fairij.report.slices import concentration
from fairij.report.training_table import TrainingTable, telling_columns

ROWS = 240
RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame(
    {
        "name": [f"Zoe Example-{row}" for row in range(ROWS)],
        "number": 7_000_000 + RNG.permutation(ROWS),
        "nearly": [f"s-{max(row, 40)}" for row in range(ROWS)],
        "born": pd.Timestamp("1970-01-01") + pd.to_timedelta(np.arange(ROWS), "D"),
        "score": RNG.normal(size=ROWS) + 0.123456,
        "age": RNG.integers(20, 60, ROWS),
        "town": RNG.choice(["Aton", "Beton"], ROWS),
    }
)
TELLING = ["name", "number", "nearly", "born"]


def page(folder: Path, **options: Any) -> str:
    case = make_case("binary")
    arguments = case.arguments | {"X": PEOPLE}
    return write_report(case.fitted, folder / "page.html", **arguments, **options).read_text()


def cells(text: str) -> tuple[list[str], list[list[str]]]:
    """The columns and the rows of the table of rows."""
    table = text[text.index('<table id="harmful"') :]
    table = table[: table.index("</table>")]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    return re.findall(r'<button type="button">(.*?)</button>', table), rows


def test_no_row_is_shown_unless_asked(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert '<table id="harmful"' not in text
    assert "They are not listed here" in text
    assert "This page lists no training rows." in text
    body = text[: text.index("<script>")]  # the charting library comes after the page
    for told in ("Zoe Example", "7,000,", "70000", "s-100", "1970-"):
        assert told not in body


def test_columns_that_tell_rows_apart_are_left_out(tmp_path: Path) -> None:
    text = page(tmp_path, show_rows=30)
    columns, rows = cells(text)
    assert len(rows) == 30
    assert columns[-4:] == ["label", "score", "age", "town"]
    assert (
        f"Left out because most rows have a value of their own there: {', '.join(TELLING)}." in text
    )
    assert "Zoe" not in text
    assert "This page lists training rows" in text


def test_they_are_shown_where_they_are_named(tmp_path: Path) -> None:
    columns, rows = cells(page(tmp_path, show_rows=3, show_columns=["name", "born"]))
    assert {"name", "born"} <= set(columns)
    assert not {"number", "nearly"} & set(columns)
    assert len(rows) == 3
    assert all(row[columns.index("name")].startswith("Zoe Example-") for row in rows)


def test_a_named_column_alone_shows_no_row(tmp_path: Path) -> None:
    assert "Zoe" not in page(tmp_path, show_columns=["name"])


def test_measurements_are_rounded_also_where_they_are_sorted_by(tmp_path: Path) -> None:
    text = page(tmp_path, show_rows=ROWS)
    columns, rows = cells(text)
    place = columns.index("score")
    shown = {row[place] for row in rows}
    assert all(len(value.strip("-").replace(".", "").lstrip("0")) <= 3 for value in shown)
    for value in PEOPLE["score"]:
        assert repr(float(value)) not in text


@pytest.mark.parametrize(
    ("values", "tells"),
    [
        (np.arange(ROWS), True),
        (np.arange(ROWS).astype(float), True),
        (np.arange(ROWS) // 2, False),  # each value twice
        (np.minimum(np.arange(ROWS), 130), True),
        (np.minimum(np.arange(ROWS), 110), False),
        (np.arange(ROWS) / 7, False),
        ([[row] for row in range(ROWS)], True),
        ([None] * ROWS, False),
        ([None] * 200 + list(range(40)), False),
        (np.arange(ROWS) > 5, False),
    ],
)
def test_what_tells_rows_apart(values: Any, tells: bool) -> None:
    table = TrainingTable(pd.DataFrame({"x": pd.Series(list(values))}), ("x",), None, None)
    assert telling_columns(table) == (["x"] if tells else [])


def test_the_ends_of_a_range_are_not_told() -> None:
    """The highest salary is that of one person."""
    rng = np.random.default_rng(1)
    salary = rng.integers(1000, 9000, 4000)
    salary[7], salary[8] = 1234567, 11
    table = TrainingTable(pd.DataFrame({"salary": salary}), ("salary",), None, None)
    for far in (salary > 7400, salary < 2600):
        harmful = np.flatnonzero(rng.random(4000) < np.where(far, 0.4, 0.01))
        (found,) = concentration(table, harmful, np.arange(4000)).slices[:1]
        assert re.fullmatch(r"salary: (under [\d,.]+|[\d,.]+ or more)", found.text)
        assert not {"1,234,567", "11"} & set(found.text.split())
