"""README.md and the figure of the comments study, made from the records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from fairij.storage.checksummed import write_whole
from fairij_studies.comments.fear_tables import (
    CURVE,
    curve_figure,
    curve_section,
    fear_section,
    is_fear,
)
from fairij_studies.comments.settings_tables import settings_section
from fairij_studies.comments.tables import (
    METHODS,
    MODELS,
    TITLES,
    agreement_lines,
    cost_lines,
    machine_lines,
    mention_table,
    model_table,
    rate_table,
    run_labels,
    shortfall,
)
from fairij_studies.figures import save_figure
from fairij_studies.palette import look_of

FIGURE = "trade-off.svg"
RUN = ("encoder", "model", "identity", "seed", "method", "constraint", "strength", "rule")
MACHINE = "machine"  # a field of records that are not in the tables
HEADING = """# Comments: toxicity classifiers on frozen language models

The tables show balanced accuracy (BA, in percent) and the gap on test comments, as mean ± deviation
over seeds. Each block of two columns is one method run for one gap. EO is the gap of true positive
rates plus that of false positive rates. DP is the gap of the shares called toxic. LC is a linear
head. NC is a head with two hidden layers. TT=n is n trigger tokens (trained embeddings before the
text) and a linear head.

**What is used**

- Comments: 184,354 from Wikipedia talk pages and Twitter with people's labels
  (`fetch_wikipedia_comments`). They are *not* CivilComments, which you have to supply
  (`fetch_civil_comments`).
- Groups: comments that mention an identity, by a list of terms, and the rest.
- Split: 50/25/25, fixed by a hash of the text. Seeds change only the training, so the deviations do
  not include the sampling of test comments.
- Encoder: all-MiniLM-L6-v2 (a BERT of 6 layers by 384, stored in half precision), frozen, with its
  last layer averaged. It is *not* bert-base-uncased.
- The small T5 (4 layers by 256) is *not* T5. It has seen only the training comments, three times.
  Its figures show that the method works with T5's code, not how well T5 would do.

**Fair-IJ** takes the smallest gap on validation comments among edits that lose at most 0.005 of
balanced accuracy there ("budget"). By the paper's rule it takes the smallest gap at any cost
("lowest gap"; for NC that is a model that calls nothing toxic). "Both gaps" weights the two gaps of
EO so that both close. GapReg and HGR need the group of all training comments. Fair-IJ needs it on
validation comments only. The epoch with the best validation loss is kept. The loss includes the
penalty, if there is one.

Trainings of NC are equal to the bit on the same machine with the same libraries, but differ on
others: the mean EO over seeds for "muslim" differed by up to 0.033 (GapReg) from an earlier run.

Settings were tried on a seed that is not reported, with one exception: "both gaps" was added after
the other figures for EO had been seen, including test figures.
"""
MADE_UP = """
*These are records of the quick form, with made-up comments and random encoders. They only show that
the study runs.*
"""
COMMANDS = """
## Run it again
```
python -m fairij_studies.comments prepare                          # fetches and tokenises, once
python -m fairij_studies.comments run --only model=LC --processes 2   # two cores are enough
python -m fairij_studies.comments run --only model=NC --processes 12  # side by side on one GPU
python -m fairij_studies.comments run --only model=NC --processes 2 --machine "two cores"
python -m fairij_studies.comments run                              # everything, one GPU
python -m fairij_studies.comments prepare --prepared part --others 20000 10000 12000
python -m fairij_studies.comments run --prepared part --only model=LC "asked=fear of a word" \\
    "asked=which comments"
python -m fairij_studies.comments run --prepared part --only model=NC model=TT=10 model=LoRA \\
    "asked=fear of a word" --processes 8                           # side by side on one GPU
python -m fairij_studies.comments run --only "asked=fear of a word, all comments"
fairij reproduce comments --quick                                  # made-up comments, on a CPU
```
A run continues where it stopped. Most units here ran side by side, so the seconds in their records
do not measure their cost. This page and the figure are drawn from `results.parquet` alone.
"""


def draw(records: pd.DataFrame, folder: Path) -> None:
    """Write README.md and the figure into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    of_words = is_fear(records)
    figures = {
        FIGURE: trade_off(_runs(records[~of_words])[0]),
        CURVE: curve_figure(records[of_words]),
    }
    for name, figure in figures.items():
        if figure is not None:
            save_figure(figure, folder / name)
    write_whole(folder / "README.md", readme(records).encode())


def _runs(records: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the results of the tables, and those of other machines."""
    everything = records.reindex(columns=list(dict.fromkeys([*records.columns, *RUN, MACHINE])))
    runs = everything[everything["constraint"].notna()]
    runs = runs.drop_duplicates([*RUN, MACHINE], keep="last")
    return runs[runs[MACHINE].isna()], runs[runs[MACHINE].notna()]


def readme(records: pd.DataFrame) -> str:
    """Return the text of the page."""
    quick, of_words = bool(records["quick"].any()), records[is_fear(records)]
    records = records[~is_fear(records)]
    results, others = _runs(records)
    if MACHINE in records:
        records = records[records[MACHINE].isna()]
    parts = [HEADING, MADE_UP if quick else ""]
    if len(results):
        if trade_off(results) is not None:
            first = results["identity"].iloc[0]
            parts.append(
                f"![Balanced accuracy against each gap]({FIGURE})\n\n"
                f"The figure shows comments that mention “{first}”. A point is the mean over seeds "
                "of one\nmodel and method with one λ or rule. Models that call nothing toxic are "
                "left out.\n"
            )
        for (encoder, identity), block in results.groupby(["encoder", "identity"], sort=False):
            title = TITLES.get(str(encoder), str(encoder))
            parts.append(f"## {title}, comments that mention “{identity}”\n")
            parts.append(model_table(block))
            parts.append(rate_table(block))
    parts += [
        fear_section(of_words),
        settings_section(of_words, records),
        curve_section(of_words),
        mention_table(records),
        cost_lines(records),
        agreement_lines(records),
        machine_lines(results, others),
        shortfall(records),
        COMMANDS,
    ]
    text = "\n".join(part for part in parts if part)
    return text.rstrip() + "\n"


def trade_off(results: pd.DataFrame) -> Any:
    """Draw balanced accuracy against the gap for the first identity, means over seeds.

    There is a row of panels per encoder, and a point per model and method with its setting.
    """
    if results.empty:
        return None
    shown = results[results["identity"] == results["identity"].iloc[0]]
    frame = pd.DataFrame(
        {
            "encoder": [TITLES.get(name, name).split(",")[0] for name in shown["encoder"]],
            "kind": shown["constraint"].str.replace("_", " ").to_numpy(),
            "model": shown["model"].to_numpy(),
            "method": shown["method"].map(METHODS).to_numpy(),
            "label": run_labels(shown).to_numpy(),
            "gap": [row[row["constraint"]] for _, row in shown.iterrows()],
            "balanced": shown["balanced_accuracy"].to_numpy(),
        }
    )
    frame = frame[frame["balanced"] > 0.6]  # models that call nothing toxic are only in the tables
    if frame.empty:
        return None
    means = frame.groupby(
        ["encoder", "kind", "model", "method", "label"], as_index=False, sort=False
    ).mean(numeric_only=True)
    methods = [name for name in METHODS.values() if name in set(means["method"])]
    colours = alt.Scale(domain=methods, range=[look_of(name).colour for name in methods])
    points = (
        alt.Chart(means)
        .mark_point(filled=True, size=70)
        .encode(
            x=alt.X("gap:Q", title="gap on test comments"),
            y=alt.Y("balanced:Q", title="balanced accuracy", scale=alt.Scale(zero=False)),
            color=alt.Color("method:N", title="method", scale=colours),
            shape=alt.Shape("model:N", title="model", sort=list(MODELS)),
        )
        .properties(width=280, height=260)
    )
    panels = points.facet(
        row=alt.Row("encoder:N", title=None, sort=list(dict.fromkeys(means["encoder"]))),
        column=alt.Column("kind:N", title=None),
    )
    return panels.resolve_scale(x="independent", y="independent")
