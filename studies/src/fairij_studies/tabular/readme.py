"""A study's README and figures, made from its records alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fairij.storage.checksummed import write_whole
from fairij_studies.figures import save_figure
from fairij_studies.markdown import mean_and_deviation, table, yes
from fairij_studies.tabular.claims import verdicts
from fairij_studies.tabular.config import WHOLE, Story
from fairij_studies.tabular.editing import DAMPINGS, SLACK
from fairij_studies.tabular.figures import influence_figure, refit_figure, trade_off_figure
from fairij_studies.tabular.summary import (
    GAP_NAMES,
    ON_EDIT,
    RULES,
    chosen,
    methods_in,
    reach,
    stand_ins,
    trade_offs,
)
from fairij_studies.tabular.trial import CONSTRAINTS, MEASURES

FIGURES = {
    "trade-off": lambda records: trade_off_figure(records, error_bars=False),
    "trade-off-error-bars": lambda records: trade_off_figure(records, error_bars=True),
    "influence": influence_figure,
    "refits": refit_figure,
}


def draw(story: Story, records: pd.DataFrame, folder: Path) -> None:
    """Write README.md and every figure as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in FIGURES.items():
        save_figure(figure(records), folder / f"{name}.svg")
    write_whole(folder / "README.md", readme(story, records).encode())


def readme(story: Story, records: pd.DataFrame) -> str:
    parts = [
        f"# {story.heading}",
        _how(story, records),
        "## Trade-offs\n"
        "![Accuracy against each gap, mean over seeds](trade-off.svg)\n\n"
        "Fairer is to the right. Each point is one setting of a method: the mean over seeds, on "
        "test rows. Lines join the settings that no other setting of the method beats in both "
        "accuracy and gap. The others are pale. The picture leaves out settings that lose more "
        "than four points of accuracy, settings with a gap more than a tenth wider than the base "
        "model's, and pale points below all lines. "
        "[The same with error bars](trade-off-error-bars.svg) of one deviation over seeds.",
        "## The methods\n" + _methods(records),
        "## At comparable points\n" + "\n\n".join(_results(records, c) for c in CONSTRAINTS),
        "## The paper's claims, tested\n"
        + "\n".join(f"- {verdict}" for verdict in verdicts(records, story)),
        "## Influence\n"
        "![Sorted positive influence, and the gap before and after](influence.svg)\n\n"
        "This is the paper's figure 1. It shows the positive influences on demographic parity in "
        "rising order. It also shows the gap on test rows, before and after the edit that was "
        "chosen on validation rows.",
        "## Does an edit predict a refit?\n" + _refits(records),
        _again(story, records),
    ]
    return "\n\n".join(parts) + "\n"


def _how(story: Story, records: pd.DataFrame) -> str:
    first = records.iloc[0]
    seeds = sorted(records["seed"].unique())
    quick = (
        "**This page is of the quick form of the study (few rows, few epochs, one seed). It only "
        "shows that the code runs.**\n\n"
        if bool(first["quick"])
        else ""
    )
    about = story.about.get(str(first["data"]), str(first["data"]))
    return (
        f"{quick}{about}\n\n"
        f"- Rows: {first['n_train']:,} for training, {first['n_validation']:,} for validation, "
        f"{first['n_test']:,} for testing. Group among the features: "
        f"{yes(bool(first['group_is_feature']))}. Files: {first['data_source']} (first digits of "
        "the SHA-256).\n"
        f"- Seeds {seeds[0]} to {seeds[-1]} ({len(seeds)}), for the split and for the training. "
        f"{story.settings}\n"
        f"- All methods of a seed share one base model: the paper's network, 100 SELU units, Adam "
        f"at 1e-4, batches of 256, {WHOLE.epochs} epochs. The epoch with the best validation "
        "accuracy is kept.\n"
        "- Gaps are of thresholded predictions. Equalized odds is the paper's sum of two gaps. "
        "Randomised methods are measured in expectation over their draws.\n"
        f"- fairij {', '.join(sorted(records['version'].unique()))}. Every number is computed from "
        "`results.parquet`."
    )


def _methods(records: pd.DataFrame) -> str:
    rows = records[records["kind"] == "trade_off"]
    lines = []
    for name in methods_in(rows):
        own = rows[rows["method"] == name]
        first = own.iloc[0]
        settings = own.groupby(["constraint", "seed"])["value"].size()
        tried = str(int(settings.max())) if len(settings) else "1"
        if "candidates" in own and own["candidates"].notna().any():
            tried = f"{int(own['candidates'].max())} candidates, {tried} budgets"
        seconds = own.groupby(["constraint", "seed"])["cpu_seconds"]
        edit = name.startswith("Fair-IJ")
        cost = seconds.max() if edit else seconds.sum()
        lines.append(
            (
                name,
                ", ".join(GAP_NAMES[c] for c in CONSTRAINTS if c in set(own["constraint"])) or "—",
                yes(bool(first["needs_group"])),
                yes(bool(first["refits"])),
                yes(bool(first["randomised"])),
                "—" if pd.isna(first["parameter"]) else str(first["parameter"]),
                tried,
                "—" if name == "ERM" else f"{cost.mean():.1f}",
            )
        )
    header = (
        "method",
        "run for",
        "group at test",
        "trains",
        "randomised",
        "trade-off",
        "settings tried",
        "CPU seconds for all",
    )
    return table(header, lines) + "\n\n" + "\n".join(f"- {note}" for note in _notes(rows))


def _notes(rows: pd.DataFrame) -> list[str]:
    """Return notes on how the methods were run and tuned."""
    return [
        "Settings are chosen on validation rows only, by the same rules for every method. Methods "
        "of one kind have the same number of settings. Methods that train have "
        f"{_strengths(rows, 'GapReg')} and the base model (strength 0); on the edited model they "
        f"have {_strengths(rows, 'GapReg-IJ')}. Post-processing methods have ten tolerances, and "
        "the loosest has no effect. ExponentiatedGradient has five. One strength of a method that "
        "trains from scratch costs more CPU time than all candidates of Fair-IJ.",
        "The last column of the tables below shows how far each sweep goes on validation rows. FST "
        "bounds mean scores, not the rates of labels, so its gaps may stay open. Methods on the "
        "edited model start at the edit.",
        f"Methods that train do so for {WHOLE.epochs} epochs from scratch. They keep the epoch "
        "with the lowest loss and penalty on validation rows. On the edited model they continue "
        f"for {WHOLE.tuning_epochs} epochs.",
        "ExponentiatedGradient would train the network more than twenty times per setting. "
        "Therefore its learner here is a logistic regression on the base model's frozen hidden "
        "layer, and it moves the last layer only. Refitting that layer changes the model by "
        f"itself: {_loosest(rows)}.",
        f"Fair-IJ has one fit for each of the dampings {', '.join(f'{d:g}' for d in DAMPINGS)}, "
        "with 40 values of k and the paper's 7 scales. Each accuracy budget takes the lowest "
        "validation gap within that loss of validation accuracy. These forms are ours: 'balanced' "
        "weights the two parts of equalized odds so that both close; 'reweight' lowers each "
        "harmful row's weight by its influence; 'path' takes many small steps instead of dropping "
        "rows; 'cheapest first' takes small steps and closes the cheaper of the two gaps first. "
        "'Printed' uses the paper's recurrence for the curvature exactly as printed, which acts "
        "like an identity.",
        f"{', '.join(ON_EDIT.values())}: the plain method on Fair-IJ's most accurate edit with a "
        f"validation gap within {SLACK:g} of the lowest.",
        "HPS, HPS-IJ and RelaxedThresholds need the group of every person at prediction time. They "
        "are in italics in tables, and hollow and dashed in figures.",
    ]


def _strengths(rows: pd.DataFrame, method: str) -> str:
    """Return the number of strengths of a method that trains, by constraint."""
    own = rows[(rows["method"] == method) & (rows["value"] > 0)]
    return ", ".join(
        f"{own['value'][own['constraint'] == c].nunique()} for {GAP_NAMES[c]}" for c in CONSTRAINTS
    )


def _loosest(rows: pd.DataFrame) -> str:
    """Return the accuracy of ExponentiatedGradient's learner with almost no constraint."""
    own = rows[rows["method"] == "ExponentiatedGradient"]
    loose = own[own["value"] == own["value"].max()]["test_accuracy"].mean()
    base = rows[rows["method"] == "ERM"]["test_accuracy"].mean()
    return f"at its loosest tolerance its accuracy is {loose:.4f}, the base model's {base:.4f}"


def _results(records: pd.DataFrame, constraint: str) -> str:
    """Return accuracy and gap on test rows at the points chosen on validation rows."""
    picks = {rule: chosen(records, constraint, budget) for rule, budget in RULES.items()}
    lines = []
    for name in methods_in(trade_offs(records, constraint)):
        cells = []
        for frame in picks.values():
            own = frame[frame["method"] == name]
            instead = stand_ins(frame, name)
            cells += [mean_and_deviation(own[c]) for c in ("accuracy", "gap")]
            cells[-1] += f" [{instead}]" if instead else ""
        aware = bool(own["needs_group"].any())
        ends = (
            "—" if name == "ERM" else "{:.3f} to {:.3f}".format(*reach(records, constraint, name))
        )
        lines.append((f"*{name}* (group at test)" if aware else name, *cells, ends))
    header = ["method"]
    for rule in RULES:
        header += [f"accuracy, {rule}", "gap"]
    header.append("validation gaps of its settings")
    return (
        f"**{GAP_NAMES[constraint]}**, test rows, mean ± deviation over seeds. [n]: in n seeds no "
        "setting of the method kept this accuracy and lowered the gap, so the base model stands in "
        "for it.\n\n" + table(header, lines)
    )


def _refits(records: pd.DataFrame) -> str:
    rows = records[records["kind"] == "refit"]
    seeds = sorted(rows["seed"].unique())
    base = rows[(rows["value"] == 0) & (rows["method"] == "edit")]
    other = rows[(rows["value"] == 0) & (rows["method"] == "refit")]
    lines = []
    for k, own in rows[rows["value"] > 0].groupby("value"):
        cells = [f"{int(float(str(k)))}"]
        for measure in ("demographic_parity", "accuracy"):
            for method in ("edit", "refit"):
                cells.append(
                    mean_and_deviation(own.loc[own["method"] == method, f"test_{measure}"])
                )
        lines.append(cells)
    first, second = base.set_index("seed"), other.set_index("seed")
    moved = {
        m: float((second[f"test_{m}"] - first[f"test_{m}"]).abs().mean())
        for m in ("demographic_parity", "accuracy")
    }
    return (
        "The rows with the largest influence on demographic parity are dropped, by the edit (scale "
        "1, damping 0.01) and by training again without them. Test rows, seeds "
        f"{', '.join(map(str, seeds))}. Before: gap "
        f"{base['test_demographic_parity'].mean():.4f}, accuracy {base['test_accuracy'].mean():.4f}"
        ". Training on all rows from another seed moves the gap by "
        f"{moved['demographic_parity']:.4f} and the accuracy by {moved['accuracy']:.4f}.\n\n"
        + table(("k", "gap, edit", "gap, refit", "accuracy, edit", "accuracy, refit"), lines)
        + f"\n\n{_answer(rows)}\n\n![The edit against real refits, over k](refits.svg)"
    )


def _answer(rows: pd.DataFrame) -> str:
    """Return how much of a refit's change of the gap the edit predicts, from the base model on.

    The refit that drops no row has another seed, so it is not the starting point.
    """
    gaps = rows.pivot_table(index="value", columns="method", values="test_demographic_parity")
    fallen = gaps["edit"][0] - gaps[gaps.index > 0]
    shares = fallen["edit"] / fallen["refit"]
    return (
        f"The edit moves the gap {shares.min():.2f} to {shares.max():.2f} times as far as a refit."
    )


def _again(story: Story, records: pd.DataFrame) -> str:
    minutes = records.groupby("unit")["unit_cpu_seconds"].first().sum() / 60
    arguments = story.arguments.get(str(records.iloc[0]["data"]), "")
    return (
        "## Run it again\n"
        f"`fairij reproduce {story.name} --processes 2{arguments}` continues where it was stopped "
        f"and draws this page. The whole study took {minutes:.0f} CPU minutes. `--quick` runs a "
        "short form. Every record has "
        f"{', '.join(name.replace('_', ' ') for name in MEASURES)} on validation and test rows."
    )
