"""Choices, fronts, verdicts and labels on records whose answers are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from fairij_studies.palette import spread_out
from fairij_studies.tabular.claims import front_against_gapreg, lower_disparity
from fairij_studies.tabular.config import QUICK, WHOLE
from fairij_studies.tabular.figures import _on_front
from fairij_studies.tabular.readme import _answer
from fairij_studies.tabular.summary import (
    Front,
    accuracy_at_equal_gap,
    chosen,
    curves,
    reach,
    stand_ins,
)
from hypothesis import given
from hypothesis import strategies as st

GAP = "demographic_parity"


def record(
    method: str, value: float | None, accuracy: float, gap: float, seed: int = 20, **other: float
) -> dict[str, object]:
    return {
        "kind": "trade_off",
        "method": method,
        "constraint": None if method == "ERM" else GAP,
        "parameter": None if method == "ERM" else "strength",
        "value": value,
        "seed": seed,
        "needs_group": False,
        "data": "made up",
        "test_accuracy": accuracy,
        f"test_{GAP}": gap,
        "validation_accuracy": accuracy,
        f"validation_{GAP}": gap,
    } | other


def made_up(shift: float = 0.0, seeds: tuple[int, ...] = (20, 21, 22, 23)) -> pd.DataFrame:
    """GapReg from (0.20, 0.85) to (0.00, 0.83); Fair-IJ ``shift`` less accurate at every gap."""
    rows = []
    for seed in seeds:
        rows.append(record("ERM", None, 0.85, 0.2, seed))
        for strength, share in ((0.0, 0.0), (1.0, 0.5), (2.0, 1.0)):
            rows.append(record("GapReg", strength, 0.85 - 0.02 * share, 0.2 - 0.2 * share, seed))
        for budget, share in ((0.0, 0.0), (0.5, 0.6), (1.0, 1.0)):
            rows.append(
                record("Fair-IJ", budget, 0.85 - shift - 0.02 * share, 0.2 - 0.2 * share, seed)
            )
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("shift", "agrees"), [(0.001, True), (0.004, True), (0.006, False)])
def test_the_front_is_compared_at_equal_gap_between_its_settings(
    shift: float, agrees: bool
) -> None:
    """GapReg's gap of 0.1 is none of Fair-IJ's, whose front is a straight line there."""
    records = made_up(shift)
    difference = accuracy_at_equal_gap(records, "Fair-IJ", "GapReg", GAP)["difference"]
    np.testing.assert_allclose(difference, [-shift] * 2, atol=1e-12)  # not at the base model
    verdict = front_against_gapreg(records, "Fair-IJ", GAP)
    assert verdict.agrees == ("agrees" if agrees else "does not agree")
    assert f"{-100 * shift:+.2f} points" in verdict.found


def test_gaps_that_are_not_reached_are_not_compared() -> None:
    records = made_up()
    records = records[~((records["method"] == "Fair-IJ") & (records["value"] == 1.0))]
    frame = accuracy_at_equal_gap(records, "Fair-IJ", "GapReg", GAP)
    assert frame["difference"].isna().tolist() == [True, False]
    verdict = front_against_gapreg(records, "Fair-IJ", GAP)
    assert "; 1 of them, with gaps down to 0.0000" in verdict.found
    assert verdict.agrees == "agrees in part"  # there it has no front at all
    assert "Why: the edits reduce the gap less, already on the validation rows" in verdict.found


def test_why_a_front_falls_short_is_told_from_validation_and_test_rows() -> None:
    records = made_up()
    edit = (records["method"] == "Fair-IJ") & (records["value"] == 1.0)
    records.loc[edit, f"test_{GAP}"] = 0.06
    verdict = front_against_gapreg(records, "Fair-IJ", GAP)
    assert verdict.agrees == "agrees in part"
    assert "Why: the edit overfits the validation rows" in verdict.found
    assert "Fair-IJ 0.0000 on validation and 0.0600 on test rows" in verdict.found
    assert "Why" not in front_against_gapreg(made_up(), "Fair-IJ", GAP).found
    paid = front_against_gapreg(made_up(0.006), "Fair-IJ", GAP).found
    assert "Why: edits reduce the gap as much, but lose more accuracy" in paid


def test_seeds_in_which_the_base_model_stands_in_do_not_decide() -> None:
    rows = []
    for seed in range(20, 30):
        rows.append(record("ERM", None, 0.85, 0.2, seed))
        failed = seed < 24
        rows.append(record("GapReg", 1.0, 0.7 if failed else 0.84, 0.05 + seed / 1e5, seed))
        rows.append(record("Fair-IJ", 1.0, 0.84, 0.05, seed))
    verdict = lower_disparity(pd.DataFrame(rows), GAP)
    assert verdict.agrees == "agrees"
    assert "in 4 seeds the base model in place of GapReg" in verdict.found
    for row in rows:
        if row["method"] == "Fair-IJ":
            row[f"test_{GAP}"] = 0.051
    assert lower_disparity(pd.DataFrame(rows), GAP).agrees == "does not agree"


def test_a_difference_must_hold_with_and_without_the_seeds_of_stand_ins() -> None:
    rows = []
    for seed in range(20, 30):
        rows.append(record("ERM", None, 0.85, 0.2, seed))
        failed = seed < 25
        rows.append(record("GapReg", 1.0, 0.7 if failed else 0.84, 0.05 + seed % 2 / 100, seed))
        rows.append(record("Fair-IJ", 1.0, 0.84, 0.055, seed))
    verdict = lower_disparity(pd.DataFrame(rows), GAP)  # over all seeds alone it would be lower
    assert verdict.agrees == "does not agree"
    assert "no clear difference: GapReg" in verdict.found


def test_an_edit_is_compared_with_refits_from_the_base_model() -> None:
    """The refit that drops no row is of another seed, and no starting point."""
    gaps = {0: (0.20, 0.15), 100: (0.18, 0.16), 200: (0.15, 0.10)}
    rows = [
        {"value": k, "method": method, "test_demographic_parity": gap}
        for k, pair in gaps.items()
        for method, gap in zip(("edit", "refit"), pair, strict=True)
    ]
    assert "0.50 to 0.50 times" in _answer(pd.DataFrame(rows))


def test_how_far_a_sweep_goes_is_without_the_base_model() -> None:
    assert reach(made_up(), GAP, "GapReg") == pytest.approx((0.1, 0.0))
    assert reach(made_up(), GAP, "Fair-IJ") == pytest.approx((0.08, 0.0))


def test_a_front_leaves_out_settings_that_another_one_beats() -> None:
    curve = pd.DataFrame(
        {"method": "a", "gap": [0.0, 0.1, 0.2], "accuracy": [0.8, 0.7, 0.9], "value": [0, 1, 2]}
    )
    front = Front.of(curve, "a")
    assert front.gap.tolist() == [0.0, 0.2]
    np.testing.assert_allclose(front.at(np.array([-0.1, 0.1, 0.5])), [np.nan, 0.85, 0.9])


def test_settings_are_chosen_on_validation_and_reported_on_test() -> None:
    flattered = {f"validation_{GAP}": 0.0, "validation_accuracy": 0.84}
    records = pd.DataFrame(
        [
            record("ERM", None, 0.85, 0.2),
            record("GapReg", 1.0, 0.83, 0.05),
            record("GapReg", 2.0, 0.70, 0.01),
            record("GapReg", 3.0, 0.60, 0.15, **flattered),
            record("HGR", 1.0, 0.70, 0.02),
        ]
    )
    within = chosen(records, GAP, 0.02).set_index("method")
    assert within.loc["GapReg", ["accuracy", "gap"]].tolist() == [0.60, 0.15]
    assert within.loc["HGR", ["accuracy", "gap"]].tolist() == [0.85, 0.2]  # stays the base model
    anyway = chosen(records, GAP, 1.0).set_index("method")
    assert anyway.loc["HGR", "gap"] == 0.02


def test_where_the_base_model_stands_in_is_said() -> None:
    records = pd.DataFrame(
        [
            record("ERM", None, 0.85, 0.2),
            record("ERM", None, 0.85, 0.2, 21),
            record("GapReg", 0.0, 0.85, 0.2),  # trained without its penalty: the base model
            record("GapReg", 1.0, 0.70, 0.1),
            record("GapReg", 1.0, 0.84, 0.1, 21),
            record("HGR", 1.0, 0.70, 0.1),
            record("HGR", 1.0, 0.70, 0.1, 21),
        ]
    )
    picks = chosen(records, GAP, 0.02)
    assert [stand_ins(picks, name) for name in ("GapReg", "HGR", "ERM")] == [1, 2, 0]
    assert [stand_ins(chosen(records, GAP, 0.2), name) for name in ("GapReg", "HGR")] == [0, 0]


def test_points_that_another_setting_beats_are_off_the_line() -> None:
    frame = pd.DataFrame(
        {
            "method": ["a", "a", "b", "a"],
            "gap": [0.1, 0.0, 0.05, 0.2],
            "accuracy": [0.7, 0.8, 0.1, 0.9],
        },
        index=[7, 3, 5, 1],
    )
    assert _on_front(frame).to_dict() == {7: False, 3: True, 5: True, 1: True}


def test_curves_are_means_and_deviations_over_seeds() -> None:
    records = pd.DataFrame([record("ERM", None, 0.8, 0.2, 20), record("ERM", None, 0.9, 0.4, 21)])
    row = curves(records, GAP).iloc[0]
    assert row[["gap", "accuracy", "seeds"]].tolist() == pytest.approx([0.3, 0.85, 2])
    assert row["gap_deviation"] == pytest.approx(np.std([0.2, 0.4], ddof=1))


@pytest.mark.parametrize(
    ("moved", "expected"), [(-0.01, "agrees"), (0.01, "does not agree"), (0.0, "does not agree")]
)
def test_lower_disparity_needs_a_clear_difference(moved: float, expected: str) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(20, 30):
        rows.append(record("ERM", None, 0.85, 0.2, seed))
        gap = 0.05 + 0.002 * rng.standard_normal()
        rows.append(record("GapReg", 1.0, 0.84, gap, seed))
        rows.append(record("Fair-IJ", 1.0, 0.83, gap + moved, seed))
    assert lower_disparity(pd.DataFrame(rows), GAP).agrees == expected


@given(st.lists(st.floats(0, 300), max_size=14))
def test_labels_are_moved_apart_in_order_and_stay_inside(places: list[float]) -> None:
    moved = spread_out(places, 13, 0, 330)
    ordered = [moved[i] for i in sorted(range(len(places)), key=lambda i: places[i])]
    assert all(b - a > 12 for a, b in pairwise(ordered))
    assert all(-1 <= place <= 331 for place in moved)


def test_a_short_sweep_keeps_both_ends() -> None:
    assert QUICK.thinned((1.0, 2.0, 3.0, 4.0)) == (1.0, 4.0)
    assert QUICK.thinned((1.0,)) == (1.0,)
    assert WHOLE.thinned((1.0, 2.0, 3.0)) == (1.0, 2.0, 3.0)
