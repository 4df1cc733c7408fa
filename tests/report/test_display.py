"""Plots and the notebook cell of a result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest
from audit_cases import made
from jsonschema import ValidationError
from report_cases import HOSTILE, make_case
from sklearn import config_context
from sklearn.exceptions import NotFittedError

from biased import fair, problem
from fairij import audit
from fairij.report import influence_curve, write_audit, write_report
from fairij.report.plots import rate_chart


@pytest.mark.parametrize(
    ("name", "plot"),
    [
        ("binary", "plot_frontier"),
        ("real", "plot_frontier"),
        ("hostile", "plot_influence"),
        ("unedited", "plot_influence"),
        ("three", "plot_group_rates"),
        ("hostile", "plot_group_rates"),
    ],
)
def test_every_plot_draws(name: str, plot: str, tmp_path: Path) -> None:
    chart = getattr(make_case(name).fitted, plot)()
    chart.save(tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert drawn.count("<path") > 5
    assert "<script" not in drawn


def labels_along(chart: Any, role: str, folder: Path) -> list[str]:
    """The numbers along an axis, as they are drawn."""
    chart.save(folder / "plot.svg")
    drawn = (folder / "plot.svg").read_text()
    axis = drawn[drawn.index(f"{role}-axis") :]
    axis = axis[axis.index("role-axis-label") : axis.index("role-axis-title")]
    return re.findall(r"<text[^>]*>([^<]*)</text>", axis)


def test_no_label_of_an_axis_is_rounded_to_another(tmp_path: Path) -> None:
    """Steps of 0.02 up to 0.12, which are not exact in floating point."""
    index = pd.MultiIndex.from_product([["f", "m"], ["selection_rate"]], names=["group", "rate"])
    rates = pd.DataFrame({"value": [0.03, 0.1], "low": 0.02, "high": [0.05, 0.117]}, index=index)
    labels = labels_along(rate_chart(rates, rates, "selection_rate"), "X", tmp_path)
    assert labels == ["0", "0.02", "0.04", "0.06", "0.08", "0.1", "0.12"]
    curve = influence_curve(np.array([0.00117, 0.0006, 0.0001]), marked=0)
    labels = labels_along(curve, "Y", tmp_path)
    assert labels == ["0", "2e-4", "4e-4", "6e-4", "8e-4", "1e-3", "1.2e-3"]


@pytest.mark.parametrize("name", ["binary", "an audit"])
def test_charts_of_a_page_follow_the_schema(
    name: str, written: Callable[[str], tuple[Any, Path]], tmp_path: Path
) -> None:
    """They are not checked while a page is written."""
    if name == "an audit":
        page = write_audit(made("two"), tmp_path / "audit.html")
    else:
        page = written(name)[1]
    found = re.findall(r'id="spec-[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    assert len(found) > 3
    for text in found:
        spec = json.loads(text)
        alt.LayerChart.validate(spec)
    spec["layer"][0]["mark"] = {"type": "point", "colour": "red"}
    with pytest.raises(ValidationError):
        alt.LayerChart.validate(spec)


def test_the_frontier_holds_every_candidate_and_names_two() -> None:
    fitted = make_case("binary").fitted
    spec = fitted.plot_frontier(performance="balanced_accuracy").to_dict()
    sizes = sorted(len(rows) for rows in spec["datasets"].values())
    assert sizes == [1, 1, len(fitted.candidates_)]
    assert spec["layer"][0]["encoding"]["y"]["title"] == "balanced accuracy"


def test_a_cell_shows_the_answer_and_the_metrics() -> None:
    fitted = make_case("binary").fitted
    shown = fitted._repr_mimebundle_()
    assert shown["text/html"] == fitted._repr_html_()
    for word in ("demographic parity gap", "balanced accuracy", "f (", "was not trained again"):
        assert word in shown["text/html"]
    assert f"{fitted.after_['accuracy']:.4f}" in shown["text/html"]
    with config_context(display="text"):
        assert "text/html" not in fitted._repr_mimebundle_()


def test_the_positive_label_is_said(tmp_path: Path) -> None:
    """The alphabet decides which of two words is positive, so the reader must see it."""
    data = problem()
    words, words_val = (np.where(y == 1, ">50K", "<=50K") for y in (data.y, data.y_val))
    fitted = data.fit(fair(), y=words, y_val=words_val)
    assert fitted.before_.positive_label == fitted.after_.positive_label == ">50K"
    assert "Positive label: &gt;50K. Groups:" in fitted._repr_html_()
    found = audit(words_val, fitted.predict(data.X_val), sensitive_features=data.sex_val)
    assert found.positive_label == ">50K"
    assert found.to_dict() == fitted.after_.to_dict()
    page = write_report(fitted, tmp_path / "page.html", X=data.X, y=words).read_text()
    assert "Positive label: <b>&gt;50K</b>" in page


@pytest.mark.parametrize("name", ["three", "real"])
def test_there_is_no_positive_label_among_several_or_numbers(name: str) -> None:
    fitted = make_case(name).fitted
    assert fitted.before_.positive_label is None
    assert "Positive label" not in fitted._repr_html_()


def test_a_cell_escapes_names_from_data() -> None:
    text = make_case("hostile").fitted._repr_html_()
    assert HOSTILE[1] not in text
    assert "&lt;/script&gt;" in text


def test_before_fitting_it_shows_as_any_estimator_and_plots_say_what_is_missing() -> None:
    model = fair()
    assert "FairIJ" in model._repr_html_()
    with pytest.raises(NotFittedError):
        model.plot_frontier()
