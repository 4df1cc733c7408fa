"""README.md and figures of the study of trees, made from its records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairij.storage.checksummed import write_whole
from fairij_studies.figures import save_figure
from fairij_studies.tabular.trial import CONSTRAINTS
from fairij_studies.trees.data import ADULT
from fairij_studies.trees.figures import refit_figure, trade_off_figure
from fairij_studies.trees.models import LIGHTGBM
from fairij_studies.trees.refit_comparison import EDIT, LEAVES, PROXIMAL, REFIT, TRAINED_ON
from fairij_studies.trees.runs import BASE
from fairij_studies.trees.summary import (
    METHODS,
    chosen,
    compared,
    curves,
    models_in,
    ordered,
    refit_means,
)

HEADLINES = (  # aims: the gap, at an accuracy and at most so large
    ("demographic_parity", 0.849, 0.010),
    ("equal_opportunity", 0.870, 0.010),
    ("equalized_odds", 0.870, 0.055),
)
NAMES = {
    "demographic_parity": "demographic parity",
    "equalized_odds": "equalized odds (sum)",
    "equal_opportunity": "equal opportunity",
}
INTRODUCTION = """# Models that people have, edited instead of trained again

LightGBM, XGBoost, scikit-learn's HistGradientBoosting and logistic regression are trained once on
each of four tables. Then Fair-IJ edits their leaf values or coefficients. Nothing is trained again.
The other methods have the same split and the same base model:

| | needs the group at test | of training rows | trains again | random predictions |
|---|---|---|---|---|
| Fair-IJ (drops rows; the other forms reweight them) | no | no | no | no |
| Fair-IJ expected | no | yes | no, only a model of the group | no |
| LinearPost (Xian & Zhao 2024, group-blind form) | no | yes | no, only a model of the group | no |
| ExponentiatedGradient (fairlearn) | no | yes | yes, about 25 times | yes |
| RelaxedThresholds (Cruz & Hardt 2024) | **yes** | no | no | yes |

**Forms of Fair-IJ.** A path takes small steps. Equalized odds has two gaps: `both gaps` closes them
together, `cheapest first` may close one before the other. `expected` reweights, but uses
probabilities instead of the validation rows' labels and groups, as LinearPost does. The model gives
those of the label. A classifier that is trained on training rows gives those of the group. Targets
and budgets of `expected` are of expected gaps and accuracy. What is reported, and what settings are
chosen by, is measured on real rows, as for all methods. Random predictions are measured in
expectation.

**How settings were chosen.** They were fixed on training and validation rows of other seeds: seeds
40 and 41 for the models, Adult's seeds 40, 41 and 0 to 4 for Fair-IJ. The command `python -m
fairij_studies.trees.tune` repeats this. The form of `reweight` and `path` comes from an earlier
choice, on Adult's seeds 0 to 4 with known test results. The seeds reported here are {seeds}. They
were not used for these choices, but earlier runs of them led us to look at some settings again.
Those runs had other settings and a narrower search for LightGBM, without sampled columns and small
leaves (the other ensembles still have that search). With the new LightGBM, a few of the
combinations of `tune` were tried for demographic parity by `path`, and for `cheapest first`. All
other settings of Fair-IJ were found with the former LightGBM. `both gaps` (its damping is one of
three that were tried), `expected`, targets and finer budgets were added when the test gaps of the
other forms were known.

**How to read the results.** `expected` reduces the effect of chance in the few rows of a label and
group, so that seeds give similar results. It does not help if training and validation rows differ
from test rows: on rows that replace the test rows it is no better than `reweight`
(`python -m fairij_studies.trees.tune expected`). Unless said otherwise, the setting with the lowest
gap on validation rows is chosen for each seed. Methods that know the group at test are a ceiling,
not a fair comparison. ExponentiatedGradient trains the model about 25 times per setting. On the two
large tables it is left out with HistGradientBoosting, and, except for logistic regression, with the
group among the features. It has at most five steps and two tolerances. Seconds are of all choices
of a form together (ten fits if rows are dropped), and of one setting of another method.
Rows: {rows}.
"""
STATIONARITY = """## Is the edit what leaving the rows out would do?

Boosting stops long before the leaf values minimise the training loss. Therefore "as if these rows
had been dropped" has more than one meaning for an ensemble. This is Adult with LightGBM, sex not a
feature, damping 0.01, scale 1. The k rows with the highest influence on demographic parity are left
out:

- *{proximal}* keeps the splits and moves the leaves to the minimum of the same damped loss without
  the rows. The edit is the first-order estimate of this.
- *{trained_on}* is the same with more training. Its distance from the model at k = 0 is the drift.
- *{leaves}* keeps the splits and computes all leaves again, as boosting does.
- *{refit}* trains everything again, with new splits.

![The gap over k by the edit and by real refits](refits.svg)

{table}
"""


def draw(records: pd.DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    blind = compared(records, group_is_feature=False)
    for title in dict.fromkeys(blind["data"]):
        save_figure(trade_off_figure(blind, title), folder / f"{_slug(title)}.svg")
    save_figure(refit_figure(records), folder / "refits.svg")
    write_whole(folder / "README.md", page(records).encode())


def page(records: pd.DataFrame) -> str:
    """Return the text of the page."""
    blind, seeing = (compared(records, group_is_feature=seen) for seen in (False, True))
    titles = list(dict.fromkeys(blind["data"]))
    seeds = ", ".join(str(seed) for seed in sorted(set(records["seed"])))
    parts = [INTRODUCTION.format(seeds=seeds, rows=_rows(blind, titles))]
    parts.append("## Adult, LightGBM, sex not among the features\n\n" + _headlines(blind))
    parts.append("### Every setting, on test rows\n\n" + _every_setting(blind))
    for title in titles:
        parts.append(
            f"## {title}, {_attribute(blind, title)} not among the features\n\n"
            f"![Accuracy against each gap]({_slug(title)}.svg)\n\n" + _table(blind, title)
        )
    parts.append("## The group among the features\n")
    parts += [
        f"### {title}, {_attribute(seeing, title)} among the features\n\n" + _table(seeing, title)
        for title in titles
        if title in set(seeing["data"])
    ]
    parts.append(
        STATIONARITY.format(
            proximal=PROXIMAL,
            trained_on=TRAINED_ON,
            leaves=LEAVES,
            refit=REFIT,
            table=_refit_table(records),
        )
    )
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _headlines(records: pd.DataFrame) -> str:
    """Return the goals on Adult with LightGBM, and what each method reaches on test rows."""
    records = records[(records["data"] == ADULT) & (records["model"] == LIGHTGBM)]
    lines = [
        "Settings are chosen on validation rows in three ways: the lowest gap; the lowest gap "
        "among settings that keep the accuracy asked for; the most accurate among settings that "
        "keep the gap asked for. *Reached by choice*: one of the three reaches the goal on test "
        "rows. *In the sweep*: one setting, the same for all seeds, reaches it on test rows.",
        "",
        "| asked for | method | lowest gap: accuracy | gap | accuracy kept: accuracy | gap "
        "| gap kept: accuracy | gap | reached by choice | in the sweep |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for constraint, accuracy, gap in HEADLINES:
        tables = [
            chosen(records, constraint),
            chosen(records, constraint, accuracy=accuracy),
            chosen(records, constraint, gap=gap),
        ]
        sweep = curves(records, constraint)
        for method in ordered(tables[0]["method"], METHODS):
            rows = [_records(table[table["method"] == method])[0] for table in tables]
            swept = _records(sweep[sweep["method"] == method])
            reached = [
                any(row["gap"] <= gap and row["accuracy"] >= accuracy for row in some)
                for some in (rows, swept)
            ]
            cells = " | ".join(f"{_pair(row, 'accuracy')} | {_pair(row, 'gap')}" for row in rows)
            asked = f"{NAMES[constraint]} at most {gap:.3f} at {accuracy:.3f}"
            said = " | ".join("" if method == BASE else "yes" if r else "no" for r in reached)
            lines.append(f"| {asked} | {method} | {cells} | {said} |")
    base = records[records["method"] == BASE]
    means = ", ".join(
        f"{NAMES[c]} {base[f'validation_{c}'].mean():.3f} and {base[f'test_{c}'].mean():.3f}"
        for c, _, _ in HEADLINES
    )
    lines += [
        "",
        f"Gaps of the base model on validation rows and on test rows: {means}. Where these differ, "
        "closing the gap on the validation rows leaves or opens a gap on the test rows, for every "
        "method. Fewer than 400 women among the validation rows, and 590 among the test rows, have "
        "an income above 50,000, so their true positive rate is known to 0.02 at best.",
    ]
    return "\n".join(lines)


def _every_setting(records: pd.DataFrame) -> str:
    """Return accuracy and gap of every setting of every method."""
    records = records[(records["data"] == ADULT) & (records["model"] == LIGHTGBM)]
    lines = ["| constraint | method | setting | accuracy | gap |", "|---|---|---|---|---|"]
    for constraint in CONSTRAINTS:
        own = records[records["constraint"] == constraint]
        for method in ordered(own["method"], METHODS):
            tried = own[own["method"] == method].groupby(["parameter", "value"])
            for (parameter, value), rows in tried:
                cells = " | ".join(
                    f"{rows[name].mean():.4f} ± {rows[name].std():.4f}"
                    for name in ("test_accuracy", f"test_{constraint}")
                )
                lines.append(
                    f"| {NAMES[constraint]} | {method} | {parameter} {value:g} | {cells} |"
                )
    return "\n".join(lines)


def _table(records: pd.DataFrame, title: str) -> str:
    """Return accuracy and gap on test rows by model, method and constraint."""
    records = records[records["data"] == title]
    tables = {
        c: {(row["model"], row["method"]): row for row in _records(chosen(records, c))}
        for c in CONSTRAINTS
    }
    head = " | ".join(f"{NAMES[c]}: accuracy | gap" for c in CONSTRAINTS)
    lines = [f"| model | method | {head} | seconds |", "|" + "---|" * (2 * len(CONSTRAINTS) + 3)]
    for model in models_in(records):
        for method in ordered(records["method"], METHODS):
            rows = [tables[c].get((model, method)) for c in CONSTRAINTS]
            if not any(rows):
                continue
            cells = [
                f"{_pair(row, 'accuracy')} | {_pair(row, 'gap')}" if row else "— | —"
                for row in rows
            ]
            seconds = float(np.mean([row["seconds"] for row in rows if row]))
            lines.append(f"| {model} | {method} | {' | '.join(cells)} | {seconds:.2f} |")
    return "\n".join(lines)


def _refit_table(records: pd.DataFrame) -> str:
    lines = []
    for column, words in (
        ("validation_surrogate", "gap of mean scores, validation"),
        ("test_demographic_parity", "demographic parity gap, test"),
        ("test_accuracy", "accuracy, test"),
    ):
        frame = refit_means(records, column)
        ks = sorted(set(frame["k"]))
        lines.append(f"| {words}; k | " + " | ".join(f"{k:.0f}" for k in ks) + " |")
        lines.append("|" + "---|" * (len(ks) + 1))
        table = frame.set_index(["method", "k"])["mean"]
        for form in ordered(frame["method"], (EDIT, PROXIMAL, TRAINED_ON, LEAVES, REFIT)):
            cells = " | ".join(f"{table[(form, k)]:.4f}" for k in ks)
            lines.append(f"| {form} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def _rows(records: pd.DataFrame, titles: list[str]) -> str:
    sizes = {row["data"]: row for row in _records(records.drop_duplicates("data"))}
    parts = ("n_train", "n_validation", "n_test")
    return "; ".join(
        f"{title} {'/'.join(f'{int(sizes[title][part]):,}' for part in parts)}" for title in titles
    )


def _attribute(records: pd.DataFrame, title: str) -> str:
    return str(records.loc[records["data"] == title, "sensitive"].iloc[0])


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def _pair(row: dict[str, Any], name: str) -> str:
    deviation = row[f"{name}_deviation"]
    spread = "" if np.isnan(deviation) else f" ± {deviation:.4f}"
    return f"{row[name]:.4f}{spread}"


def _slug(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")
