"""The comments study: its quick form from end to end, and what is drawn from records alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers")

from fairij_studies.comments import TRIED, make_study, whole_units
from fairij_studies.comments.__main__ import on_machine
from fairij_studies.comments.cost import shared_in_top
from fairij_studies.comments.fear_tables import RULES, curve_figure, curve_section, fear_section
from fairij_studies.comments.heads import (
    both_gaps_unit,
    edited,
    edited_by_both_rules,
    plain,
    shared_solver,
)
from fairij_studies.comments.measured import measured
from fairij_studies.comments.prepared import comments, make_up
from fairij_studies.comments.readme import readme, trade_off
from fairij_studies.comments.settings_tables import settings_section
from fairij_studies.comments.t5 import corrupted
from fairij_studies.comments.tables import shortfall
from fairij_studies.driver import Unit, load_records, run_study
from fairij_studies.records import identity

from fairij.language.probe_sentences import KINDS

RECORDED = Path(__file__).parents[2] / "studies" / "comments"


def test_a_few_units_of_the_study_run_and_are_recorded(tmp_path: Path) -> None:
    def wanted(unit: Unit) -> bool:
        extra = {"surrogate", "asked"} & set(unit.key)
        return unit.key["model"] in ("mentions", "LC") and not extra

    study = make_study(prepared=make_up(tmp_path / "prepared"))
    records = run_study(study, tmp_path / "out", quick=True, only=wanted)
    assert set(records["method"]) == {"mentions", "erm", "gapreg", "hgr", "fair-ij"}
    judged = records[records["constraint"].notna()]
    assert judged["balanced_accuracy"].between(0, 1).all()
    assert all(sum(phases.values()) > 0 for phases in judged["phases"].dropna())


@pytest.mark.slow
def test_the_quick_form_runs_and_draws(tmp_path: Path) -> None:
    study = make_study(prepared=tmp_path / "prepared")
    records = run_study(study, tmp_path / "out", quick=True)
    assert {"erm", "gapreg", "hgr", "fair-ij", "cost", "agreement", "timing"} <= set(
        records["method"]
    )
    figures = records[records["constraint"].notna()]
    assert figures["balanced_accuracy"].between(0, 1).all()
    tried = figures[figures["asked"] == "fear of a word"]
    assert tried[[f"kept_{kind}" for kind in KINDS]].notna().all().all()
    cost = records[records["method"] == "cost"].iloc[0]
    assert cost["floor_seconds"] > 0.1 * cost["scores_seconds"]  # passes that were really made
    whole = cost["mitigation_seconds"]
    assert 0.8 * whole < sum(cost["phases"].values()) <= whole + 1e-3
    agreement = records[records["compared"] == "device"].iloc[0]
    assert agreement["shared_in_top_500"] >= 0.97
    assert agreement["gap"] == pytest.approx(agreement["gap_on_cpu"], abs=2e-3)
    study.draw(records, tmp_path / "out")
    page = (tmp_path / "out" / "README.md").read_text()
    for line in (
        "records of the quick form",
        "LC-ERM",
        "NC-HGR (λ=0.2)",
        "TT=4-Fair-IJ",
        "## Does an edit fear the word?",
        "## Which comments",
        "| mentions (toxic ones) | training | validation | test |",
        "## Cost",
    ):
        assert line in page


def test_the_part_on_fear_has_a_line_for_each_method_and_no_part_in_the_tables() -> None:
    run = {"quick": False, "encoder": "encoder", "model": "LC", "identity": "muslim"}
    run |= {"asked": "fear of a word", "rows": 1000, "balanced_accuracy": 0.9, "strength": None}
    run |= {"equalized_odds": 0.3, "demographic_parity": 0.1, "rule": None}
    run |= {f"kept_{kind}": 0.2 for kind in KINDS}
    methods = [("erm", None, None), ("gapreg", 0.2, None), ("gapreg", 1.0, None)]
    methods += [("fair-ij", None, rule) for rule in RULES]
    records = pd.DataFrame(
        {**run, "seed": seed, "method": method, "strength": strength, "rule": rule, "constraint": c}
        for seed in (1, 2)
        for method, strength, rule in methods
        for c in ("equalized_odds", "demographic_parity")
    )
    page = readme(records)
    for name in ("ERM", "GapReg (λ=0.2)", "GapReg (λ=1)", *RULES.values()):
        assert page.count(f"| {name} | 90.0 ± 0.0 |") == 2
    assert "LC-ERM" not in page
    curve = {**run, "seed": 1, "method": "curve", "asked": "which comments", "positive": 900}
    curve |= {"places": [0, 600, 899], "scores": [0.0, 0.1, 0.5], "words": ["w"], "lifts": [3.0]}
    curve |= {"gap_before": 0.2, "gap_after": 0.1}
    curve |= {"toxic_among_worst": 0.5, "mentioned_among_worst": 0.1}
    found = curve_section(pd.DataFrame([curve]))
    assert "from 0.200 to\n0.100" in found or "from 0.200 to 0.100" in found
    assert "w (3.0)" in found
    assert curve_figure(pd.DataFrame([curve])) is not None


def test_sentences_tried_on_two_machines_and_on_fewer_comments_have_tables_of_their_own() -> None:
    run = {"quick": False, "encoder": "encoder", "identity": "muslim", "method": "erm", "seed": 1}
    run |= {"asked": "fear of a word", "balanced_accuracy": 0.9, "constraint": "equalized_odds"}
    run |= {"strength": None, "rule": None}
    run |= {f"kept_{kind}": 0.2 for kind in KINDS}
    records = pd.DataFrame(
        [
            {**run, "model": "NC", "rows": 9000, "equalized_odds": 0.3, "machine": None},
            {**run, "model": "NC", "rows": 9000, "equalized_odds": 0.5, "machine": "two cores"},
            {**run, "model": "LoRA", "rows": 3000, "equalized_odds": 0.4, "device": "NVIDIA H200"},
        ]
    )
    page = fear_section(records)
    here, there = page.index("“muslim”\n"), page.index("“muslim”, two cores\n")
    assert "| 0.300 |" in page[here:there]
    assert "| 0.500 |" in page[there:]
    assert "0.400 ± " not in page
    lora = page[page.index("### LoRA") :]
    assert "Trained and edited on: NVIDIA H200." in lora
    assert "there are 3,000 training and" in lora
    assert "Not run on this model: GapReg; HGR; Fair-IJ, rows dropped; " in lora
    assert "9,000 training comments in all" in page


def test_a_setting_is_chosen_by_training_comments_on_seeds_that_are_not_reported() -> None:
    figures = {  # on training and on test comments, balanced accuracy and gap
        None: (0.90, 0.30, 0.90, 0.35),
        "constrained": (0.90, 0.20, 0.90, 0.18),
        "damping 1": (0.895, 0.10, 0.895, 0.16),
        "chances": (0.88, 0.02, 0.90, 0.01),  # costs too much on training comments
        "groups of training comments": (0.90, 0.01, 0.90, 0.12),
    }
    run = {"asked": "settings for EO", "model": "LC", "identity": "muslim"}
    run |= {"constraint": "equalized_odds"}
    run |= {"true_positive_rate_mentioned": 0.5, "false_positive_rate_mentioned": 0.0}
    names = [
        f"{part}{name}"
        for part in ("training_", "")
        for name in ("balanced_accuracy", "equalized_odds")
    ]
    records = pd.DataFrame(
        {**run, "rule": rule, "seed": seed, **dict(zip(names, found, strict=True))}
        for rule, found in figures.items()
        for seed in (11, 12, 1, 2)
    )
    # a reported seed is no reason to choose
    better = (records["rule"] == "constrained") & (records["seed"] < 11)
    records.loc[better, "training_equalized_odds"] = 0.0
    counts = {"method": "mentions", "part": "test", "identity": "muslim"}
    mentions = pd.DataFrame([{**counts, "mentioned": 357, "toxic": 25}])
    above = records[records["rule"].isna() | (records["rule"] == "constrained")]
    above = above.assign(
        asked="fear of a word", method=np.where(above["rule"].isna(), "erm", "fair-ij")
    )
    page = settings_section(pd.concat([records, above]), mentions)
    assert "| LC | Fair-IJ, constrained | 0.180 | 0.00 | no |" in page
    assert "| **damping 1** (chosen) | 89.5 ± 0.0 | 0.100 ± 0.000 | 2 |" in page
    assert "(damping 1) misses the aim by 0.020: 0.160, at 0.5 points" in page
    assert "a deviation of 0.100" in page
    assert settings_section(records[records["rule"] == "none"], mentions) == ""


def test_the_committed_page_is_what_the_committed_records_say() -> None:
    assert readme(load_records(RECORDED)) == (RECORDED / "README.md").read_text()


def of_one_machine() -> pd.DataFrame:
    records = load_records(RECORDED)
    return records[records["machine"].isna()]


@cache
def page_of_one_machine() -> str:
    return readme(of_one_machine())


def with_another_machine(changed: dict[str, float]) -> tuple[list[str], pd.DataFrame]:
    """The lines that such records of seed 0, with figures changed by so much, add to the page."""
    here = of_one_machine()
    head = here[here["model"].isin(["NC", "TT=4"]) & (here["seed"] == 0)]
    other = head.assign(
        machine="two cores",
        unit_cpu_seconds=3600.0,
        **{name: head[name] + by for name, by in changed.items()},
    )
    page = readme(pd.concat([here, other], ignore_index=True)).splitlines()
    before = page_of_one_machine().splitlines()
    return [line for line in page if line not in before], other


def test_records_of_another_machine_stand_next_to_the_tables() -> None:
    lines, other = with_another_machine({})
    assert lines[0] == "## The same study elsewhere"
    assert len(lines) == 4  # NC, and TT=4 on each encoder
    assert all("balanced accuracy 0.0000 and 0.0000" in line for line in lines[1:])
    assert all("EO 0.0000 and 0.0000, DP 0.0000 and 0.0000" in line for line in lines[1:])
    head = other[other["model"] == "NC"]
    runs = f"MiniLM, NC, two cores: {len(head)} runs in 6 of 30 units, 6.0 hours of one core"
    assert sum(runs in line for line in lines) == 1
    assert "over the seeds that both have (1 or more)" in lines[1]


def test_what_another_machine_differs_in_is_said() -> None:
    lines, _ = with_another_machine({"equalized_odds": 0.25})
    for line in lines[1:]:
        assert "balanced accuracy 0.0000 and 0.0000, EO 0.2500 and 0.2500, DP 0.0000" in line


def test_units_of_another_machine_have_keys_of_their_own(tmp_path: Path) -> None:
    study = make_study(prepared=make_up(tmp_path))
    there = on_machine(study, "two cores")
    assert on_machine(study, None) is study
    keys = {identity(unit.key) for s in (study, there) for unit in s.units(True)}
    assert len(keys) == 2 * len(study.units(True))
    assert all(unit.key["machine"] == "two cores" for unit in there.units(True))


def test_the_lowest_gap_is_that_of_a_fit_by_that_rule(tmp_path: Path) -> None:
    """Taken from the candidates of another rule's fit, and solved until it is the lowest still."""
    folder = str(make_up(tmp_path / "prepared"))
    parts, base = comments(folder), plain(folder, "LC", 0)
    given = ("demographic_parity", parts, base.rows, "muslim")
    dampings = (1e-3, 1e-1)
    lowest, within = edited_by_both_rules(
        base, "demographic_parity", parts, "muslim", dampings, shared_solver("LC")
    )
    own = edited(base.trained.model, *given, budget=None, dampings=dampings)
    assert (lowest["rule"], within["rule"]) == ("lowest gap", "budget 0.005")
    for name in ("validation_demographic_parity", "validation_accuracy", "k", "scale", "damping"):
        assert lowest[name] == pytest.approx(own[name])
    assert lowest["validation_demographic_parity"] <= within["validation_demographic_parity"]


@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")
def test_a_unit_does_not_depend_on_others(tmp_path: Path) -> None:
    folder = str(make_up(tmp_path / "prepared"))
    named = {"folder": folder, "head": "LC", "seed": 0}
    plain.cache_clear()
    alone = both_gaps_unit(**named, identity="female")
    plain.cache_clear()
    both_gaps_unit(**named, identity="muslim")
    after = both_gaps_unit(**named, identity="female")
    taken = set(alone[0]) - {"seconds", "phases"}
    assert {n: alone[0][n] for n in taken} == {n: after[0][n] for n in taken}


def test_a_point_of_the_figure_is_a_mean_over_seeds_and_over_nothing_else() -> None:
    rows = [
        (encoder, seed, strength, base + 0.02 * seed + 0.05 * strength)
        for encoder, base in (("encoder", 0.8), ("small-t5", 0.7))
        for seed in (0, 1)
        for strength in (0.2, 1.0)
    ]
    records = pd.DataFrame(rows, columns=["encoder", "seed", "strength", "balanced_accuracy"])
    records = records.assign(
        model="TT=4",
        identity="muslim",
        method="gapreg",
        constraint="demographic_parity",
        demographic_parity=0.1,
    )
    points = trade_off(records).data.set_index(["encoder", "label"])["balanced"]
    assert points.to_dict() == pytest.approx(
        {
            ("MiniLM", "GapReg (λ=0.2)"): 0.82,
            ("MiniLM", "GapReg (λ=1)"): 0.86,
            ("A small T5", "GapReg (λ=0.2)"): 0.72,
            ("A small T5", "GapReg (λ=1)"): 0.76,
        }
    )


def test_the_whole_study_holds_the_papers_tables() -> None:
    keys = [unit.key for unit in whole_units("nowhere")]
    assert len({identity(key) for key in keys}) == len(keys)
    asked = {(k["model"], k["seed"]) for k in keys if k.get("asked") == "fear of a word"}
    assert asked == {(model, seed) for model in TRIED for seed in range(1, 6)}
    keys = [key for key in keys if "asked" not in key]
    for model in ("LC", "NC"):
        for name in ("muslim", "female", "lgbt"):
            own = [k for k in keys if k["model"] == model and k.get("identity") == name]
            assert {k["seed"] for k in own} == set(range(5))
    for encoder in ("encoder", "small-t5"):
        for n in (4, 8, 10):
            found = [k for k in keys if (k["encoder"], k["model"]) == (encoder, f"TT={n}")]
            assert {k["seed"] for k in found} == set(range(5))

    for strength in (0.2, 1.0):
        found = [(k["model"], k["seed"]) for k in keys if k.get("strength") == strength]
        assert sorted(found) == sorted((f"TT={n}", s) for n in (4, 8, 10) for s in range(5))


def test_what_has_not_been_run_is_listed_by_method() -> None:
    run = {"quick": False, "encoder": "encoder", "identity": "muslim", "method": "gapreg"}
    run |= {"constraint": "demographic_parity", "strength": 0.2}
    records = pd.DataFrame([{**run, "model": "TT=8", "seed": seed} for seed in range(5)])
    found = shortfall(records).splitlines()
    (line,) = [text for text in found if "MiniLM, TT=8, “muslim”" in text]
    assert line.endswith(": ERM, GapReg (λ=1), Fair-IJ (budget 0.005): 0 of 5 seeds")
    assert any("A small T5, TT=4, “muslim”" in text for text in found)
    assert not any("GapReg" in text for text in found if "TT" in text and "muslim" not in text)


def test_the_made_up_comments_are_biased_and_parted(tmp_path: Path) -> None:
    parts = comments(str(make_up(tmp_path)))
    train = parts["train"]
    mentioned = train.mentions["muslim"].to_numpy()
    assert train.y[mentioned].mean() > train.y[~mentioned].mean() + 0.1
    rows = np.concatenate([part.rows for part in parts.values()])
    assert sorted(rows) == list(range(1000))
    assert all((5 in ids) == m for ids, m in zip(train.tokens["input_ids"], mentioned, strict=True))


@pytest.mark.parametrize("length", [1, 2, 7, 128])
def test_corruption_loses_nothing(length: int) -> None:
    rng = np.random.default_rng(0)
    row = rng.integers(1, 50, length)
    inputs, targets = corrupted(row, 50, rng)
    gaps: dict[int, list[int]] = {}
    for token in targets:
        if token >= 50:
            gaps[int(token)] = []
        else:
            gaps[max(gaps)].append(int(token))
    whole = [t for token in inputs for t in (gaps[int(token)] if token >= 50 else [int(token)])]
    assert whole == row.tolist()
    assert all(gaps.values())


def test_figures_are_those_of_the_definitions() -> None:
    z = np.array([1.0, -1, 1, -1, 1, 1, -1, -1])
    y = np.array([1, 1, 0, 0, 1, 0, 0, 0])
    s = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    found = measured(z, y, s)
    assert found["demographic_parity"] == 0.0
    assert found["equalized_odds"] == pytest.approx(abs(1 / 2 - 1) + abs(1 / 2 - 1 / 3))
    assert found["balanced_accuracy"] == pytest.approx((2 / 3 + 3 / 5) / 2)
    assert found["true_positive_rate_mentioned"] == 0.5


def test_the_shared_top_counts_rows_not_places() -> None:
    first = np.arange(10.0)
    assert shared_in_top(first, first[::-1].copy(), 5) == 0.0
    assert shared_in_top(first, first + np.array([0] * 8 + [1.5, 0]), 5) == 1.0
