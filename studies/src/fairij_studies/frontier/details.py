"""Further parts of the page: what edits cost beside accuracy, the default rule, all figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fairij_studies.frontier.figures import SHORT
from fairij_studies.frontier.measured import AS_TRAINED
from fairij_studies.frontier.methods import AUTO, COMPETING, DEFAULT_RULE, METHODS
from fairij_studies.frontier.summary import COMBINATION, combinations, lost
from fairij_studies.markdown import table


def costs(found: dict[str, pd.DataFrame]) -> str:
    parts = [
        "## What else an edit costs\n\nOn test rows, in the mean over the combinations that a "
        "method ran in, next to the models as trained. Scores of random predictions, and of "
        "methods that move labels by a rule, are no chances; their AUC and Brier score show what "
        "becomes of a score that is used for more than its label."
    ]
    for rule, verdict in found.items():
        rows = [
            (
                str(name),
                str(int(line["combinations"])),
                f"{line['gap before']:.4f} → {line['gap']:.4f}",
                f"{line['accuracy']:.4f}",
                f"{line['auc']:.4f} ({line['most auc']:.4f})",
                f"{line['brier']:+.4f}",
            )
            for name, line in lost(verdict, AS_TRAINED).iterrows()
            if name != AS_TRAINED
        ]
        header = ("combinations", "gap", "accuracy lost", "AUC lost (most)", "Brier score")
        parts.append(f"Up to {rule} of accuracy:\n\n" + table(("method", *header), rows))
    return "\n\n".join(parts)


def by_default(records: pd.DataFrame) -> str:
    """What `auto` gives by the default rule of choice, which guards more than accuracy."""
    own = records[(records["method"] == AUTO) & (records["rule"] == DEFAULT_RULE)]
    before = records[records["method"] == AS_TRAINED].set_index([*COMBINATION, "seed"])
    rows, least = [], 1.0
    for key, some in combinations(own):
        start = before.loc[pd.MultiIndex.from_frame(some[[*COMBINATION, "seed"]])]
        apart = {
            name: float(some[f"test_{name}"].mean() - start[f"test_{name}"].mean())
            for name in ("accuracy", "auc", "brier")
        }
        rare = some["test_positive"].clip(upper=1).pipe(lambda p: p.where(p < 0.5, 1 - p))
        rare_before = start["test_positive"].pipe(lambda p: p.where(p < 0.5, 1 - p))
        least = min(least, float((rare.to_numpy() / rare_before.to_numpy()).min()))
        rows.append(
            (
                f"{key[0]}, {key[1]}, {SHORT[key[2]]}",
                f"{start['test_gap'].mean():.4f} → {some['test_gap'].mean():.4f}",
                f"{apart['accuracy']:+.4f}",
                f"{apart['auc']:+.4f}",
                f"{apart['brier']:+.4f}",
            )
        )
    if not rows:
        return ""
    header = ("combination", "gap", "accuracy", "AUC", "Brier score")
    return (
        '## By the default rule of choice\n\n`auto` with `selection="budget"`, as people get it '
        "who set nothing else: changes on test rows. The rarer label is predicted at least "
        f"{least:.2f} times as often as before in every fit.\n\n" + table(header, rows)
    )


def all_figures(verdict: pd.DataFrame, rule: str) -> str:
    parts = [f"## All figures, {rule} of accuracy\n\nTest rows, means over seeds."]
    order = {name: place for place, name in enumerate((AS_TRAINED, *COMPETING, *METHODS))}
    header = ("", "method", "accuracy", "gap", "AUC", "Brier", "verdict")
    for title in dict.fromkeys(verdict["data"]):
        own = verdict[verdict["data"] == title]
        found = own.assign(place=own["method"].map(order)).to_dict("records")
        pairs = list(dict.fromkeys((row["model"], row["constraint"]) for row in found))
        found.sort(key=lambda row: (pairs.index((row["model"], row["constraint"])), row["place"]))
        parts.append(f"### {title}\n\n" + table(header, [_cells(row) for row in found]))
    return "\n\n".join(parts)


def _cells(row: Mapping[Any, Any]) -> tuple[str, ...]:
    spread = "" if pd.isna(row["gap_deviation"]) else f" ± {row['gap_deviation']:.4f}"
    return (
        f"{row['model']}, {SHORT[row['constraint']]}",
        row["method"],
        f"{row['accuracy']:.4f}",
        f"{row['gap']:.4f}{spread}",
        f"{row['auc']:.3f}",
        f"{row['brier']:.4f}",
        row["verdict"] if row["method"] in COMPETING else "",
    )
