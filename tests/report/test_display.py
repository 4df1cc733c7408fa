"""Plots and the notebook cell of a result."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_cases import HOSTILE, make_case
from sklearn import config_context
from sklearn.exceptions import NotFittedError

from biased import fair

KINDS = ["binary", "three", "real", "lightgbm", "hostile", "unedited"]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("plot", ["plot_frontier", "plot_influence", "plot_group_rates"])
def test_every_plot_draws(name: str, plot: str, tmp_path: Path) -> None:
    chart = getattr(make_case(name).fitted, plot)()
    chart.save(tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert drawn.count("<path") > 5
    assert "<script" not in drawn


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
    for word in ("demographic parity gap", "balanced accuracy", "f (", "without training again"):
        assert word in shown["text/html"]
    assert f"{fitted.after_['accuracy']:.4f}" in shown["text/html"]
    with config_context(display="text"):
        assert "text/html" not in fitted._repr_mimebundle_()


def test_a_cell_escapes_names_from_data() -> None:
    text = make_case("hostile").fitted._repr_html_()
    assert HOSTILE[1] not in text
    assert "&lt;/script&gt;" in text


def test_before_fitting_it_shows_as_any_estimator_and_plots_say_what_is_missing() -> None:
    model = fair()
    assert "FairIJ" in model._repr_html_()
    with pytest.raises(NotFittedError):
        model.plot_frontier()
