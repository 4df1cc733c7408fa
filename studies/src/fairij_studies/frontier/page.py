"""README.md and figures of the study, made from its records alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fairij.storage.checksummed import write_whole
from fairij_studies.figures import save_figure
from fairij_studies.frontier.details import all_figures, by_default, costs
from fairij_studies.frontier.equal import at_equal_loss, hardest
from fairij_studies.frontier.figures import SHORT, verdict_figure
from fairij_studies.frontier.measured import AS_TRAINED, BUDGETS
from fairij_studies.frontier.methods import AUTO, AUTO_BOTH, COMPETING
from fairij_studies.frontier.summary import (
    BEST,
    CLOSE,
    COMBINATION,
    WORSE,
    against,
    counts,
    verdicts,
)
from fairij_studies.markdown import table, yes
from fairij_studies.trees.data import COVERAGE_SAMPLE

RULES = tuple(f"{budget:g}" for budget in BUDGETS)
ASKED = 0.9  # the share of combinations in which ours should not be clearly worse than the best
NAMES = {
    "demographic_parity": "demographic parity",
    "equalized_odds": "equalized odds (sum)",
    "equal_opportunity": "equal opportunity",
}
INTRODUCTION = """# Which method is best, and how often

**The question:** on how many tables, models and constraints is which method best, at equal loss of
accuracy, chosen on validation rows?

{tables}

Models: the paper's network (100 SELU units), LightGBM and logistic regression, trained once for
each table and seed; the group is not among the features. Constraints: demographic parity (DP),
equalized odds as the sum of its two gaps (EO), equal opportunity (EOpp). Every method may lose
0.01, or 0.02, of the accuracy on validation rows; within that, its setting of the lowest gap on
validation rows is taken and measured on test rows. The model as it was trained is always one of
the settings.

{methods}

**How settings were fixed.** Settings of the models, of the sweeps and of OxonFair and LinearPost
were fixed on other seeds (40, 41, 105, 106), with the last 30 % of the training rows in place of
the test rows (they lie in file order; a random part, as is drawn now, would have been better);
GapReg's strengths are those of the studies of networks. Fair-IJ runs as it comes: `auto` has no
setting here but its name and the budget. The seeds reported are {seeds}. The
tables Adult, Coverage and COMPAS have been in view while Fair-IJ was developed, on other seeds;
the two others have not.

**Best, not clearly worse, clearly worse.** In each combination of table, model and constraint, the
best method is the one with the lowest mean gap on test rows, among those that need no group at
prediction. Another is *clearly worse* if its gap is larger by more than chance: the 95 % interval
of the difference, paired over seeds, is above zero. The best of several, picked after the fact, is
partly best by luck, so this is hard on every single method. A method with fewer than three seeds is
shown, but not judged. Seeds of Adult share UCI's test rows:
its intervals do not cover the draw of these rows. The records were made on two machines. Models of
LightGBM and logistic regression are equal on both; networks that are trained from one seed differ
a little, and so do some of the models that are compared in pairs. Thresholds per group see the
group at prediction: they are shown for scale and do not compete.
"""


def draw(records: pd.DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rule in RULES:
        verdict = verdicts(records, rule, COMPETING)
        title = f"Mean test gap; up to {rule} of validation accuracy may be lost"
        shown = (AS_TRAINED, *COMPETING)
        save_figure(verdict_figure(verdict, shown, title), folder / f"verdicts-{rule}.svg")
    write_whole(folder / "README.md", page(records).encode())


def page(records: pd.DataFrame) -> str:
    """Return the text of the page."""
    seeds = ", ".join(str(seed) for seed in sorted(set(records["seed"])))
    parts = [INTRODUCTION.format(tables=_tables(records), methods=_methods(records), seeds=seeds)]
    found = {rule: verdicts(records, rule, COMPETING) for rule in RULES}
    parts.append("## The answer\n\n" + "\n\n".join(_answer(rule, v) for rule, v in found.items()))
    parts += [_equal(records), _pairs(records)]
    for rule, verdict in found.items():
        parts.append(
            f"## Every combination, {rule} of accuracy\n\n"
            f"![Verdicts on every method in every combination](verdicts-{rule}.svg)\n\n"
            + _worse(rule, verdict)
        )
    parts += [costs(found), by_default(records), all_figures(found[RULES[-1]], RULES[-1])]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _tables(records: pd.DataFrame) -> str:
    rows = []
    for name, own in records.groupby("data", sort=False):
        first = own.iloc[0]
        sizes = "/".join(f"{int(first[f'n_{p}']):,}" for p in ("train", "validation", "test"))
        trained = own[own["method"] == AS_TRAINED]
        cells = []
        for constraint in NAMES:
            of = trained[trained["constraint"] == constraint]
            cells.append(f"{of['test_gap'].mean():.3f} ({of['test_gap_error'].mean():.3f})")
        rows.append((str(name), str(first["sensitive"]), sizes, *cells))
    header = ("table", "group", "rows: training/validation/test", *SHORT.values())
    said = (
        "\n\nGaps are those of the models as trained, on test rows, in the mean over models and "
        "seeds; in brackets the standard error of one such gap from the draw of the test rows."
    )
    if COVERAGE_SAMPLE in set(records["data"]):
        said += (
            " Coverage is a sample of California 2018, not the paper's survey; `--path` and "
            "folktables decide which is read."
        )
    return table(header, rows) + said


def _methods(records: pd.DataFrame) -> str:
    rows = []
    for name, own in records[records["method"] != AS_TRAINED].groupby("method", sort=False):
        first = own.iloc[0]
        rows.append(
            (
                str(name),
                ", ".join(dict.fromkeys(own["model"])),
                yes(not first["competes"]),
                yes(bool(first["training_groups"])),
                yes(bool(first["refits"])),
                yes(bool(first["randomised"])),
                str(own["seed"].nunique()),
                f"{own['seconds'].mean():.1f}",
            )
        )
    header = ("method", "models", "needs the group at prediction", "of training rows")
    return table((*header, "trains again", "random predictions", "seeds", "CPU seconds"), rows)


def _answer(rule: str, verdict: pd.DataFrame) -> str:
    found = {str(name): row for name, row in counts(verdict, COMPETING).to_dict("index").items()}
    rows = [
        (name, str(sum(row.values())), *(str(row[said]) for said in (BEST, CLOSE, WORSE)))
        for name, row in found.items()
    ]
    head = f"**Up to {rule} of accuracy.** "
    if AUTO in found:
        kept, n = found[AUTO][BEST] + found[AUTO][CLOSE], sum(found[AUTO].values())
        word = "reached" if kept >= ASKED * n else "missed"
        head += (
            f"`auto` is best or not clearly worse than the best in {kept} of {n} combinations "
            f"({kept / n:.0%}; asked for: nine of ten, {word}). "
        )
    start = verdict[verdict["method"] == AS_TRAINED]
    told = int((start["verdict"] == WORSE).sum())
    head += (
        f"In {told} of {len(start)} combinations the best method is clearly better than the model "
        "as it was trained; in the others the test rows cannot tell it from doing nothing."
    )
    return head + "\n\n" + table(("method", "combinations", BEST, CLOSE, WORSE), rows)


def _equal(records: pd.DataFrame) -> str:
    """The same question at the loss of accuracy that rivals really have on test rows."""
    rivals = tuple(name for name in COMPETING if not name.startswith("Fair-IJ"))
    rows = []
    for ours in (AUTO, AUTO_BOTH):
        for rule in RULES:
            found = at_equal_loss(records, rule, ours, rivals)
            if found.empty:
                continue
            worst = hardest(found)
            clear = worst[worst["verdict"] == WORSE]
            places = "; ".join(
                f"{row['data']}, {row['model']}, {SHORT[row['constraint']]} ({row['rival']}: "
                f"{row['rival gap']:.4f} @ {row['rival accuracy']:.4f}, ours {row['gap']:.4f} @ "
                f"{row['accuracy']:.4f})"
                for row in clear.to_dict("records")
            )
            share = f"{len(worst) - len(clear)} of {len(worst)}"
            rows.append((ours, rule, share, places or "nowhere"))
    header = ("", "budget of the rivals", "not clearly behind", "clearly behind")
    return (
        "## At equal loss of accuracy on test rows\n\nBudgets are on validation rows. On test "
        "rows, methods lose different amounts at the same budget, and who loses more gets the "
        "smaller gap for it. So here the budget of `auto` is moved until it loses no more on test "
        "rows than the rival, in the mean over seeds; budgets up to 0.06, and points on the lines "
        "between them, count. Each combination is judged by the rival that `auto` is behind most "
        "there, with a paired interval.\n\n" + table(header, rows)
    )


def _pairs(records: pd.DataFrame) -> str:
    rows = []
    for rival in COMPETING:
        if rival == AUTO or rival not in set(records["method"]):
            continue
        cells = []
        for rule in RULES:
            found = against(records, rule, AUTO, rival)
            cells += [str(found[name]) for name in ("smaller", "neither", "larger")]
        rows.append((rival, *cells))
    header = [f"{rule}: {name}" for rule in RULES for name in ("smaller", "neither", "larger")]
    return (
        "## `auto` against each method alone\n\nIn how many combinations the gap of `auto` is "
        "clearly smaller, clearly larger, or neither, by the paired interval.\n\n"
        + table(("against", *header), rows)
    )


def _worse(rule: str, verdict: pd.DataFrame) -> str:
    """Where ours is clearly worse than the best, by how much, and who is best there."""
    best = verdict[verdict["verdict"] == BEST].set_index(COMBINATION)
    ours = verdict[(verdict["method"] == AUTO) & (verdict["verdict"] == WORSE)]
    if ours.empty:
        return "`auto` is nowhere clearly worse than the best."
    rows = []
    for _, row in ours.iterrows():
        other = best.loc[tuple(row[name] for name in COMBINATION)]
        rows.append(
            (
                f"{row['data']}, {row['model']}, {NAMES[row['constraint']]}",
                f"{row['gap']:.4f} @ {row['accuracy']:.4f}",
                f"{other['method']}: {other['gap']:.4f} @ {other['accuracy']:.4f}",
                f"{row['behind']:.4f} ({row['low']:.4f} to {row['high']:.4f})",
                f"{row['auc']:.3f}, {other['auc']:.3f}",
            )
        )
    header = ("combination", "`auto`: gap @ accuracy", "the best", "behind by", "AUC of both")
    return "Where `auto` is clearly worse than the best:\n\n" + table(header, rows)
