"""The study's tables as Markdown, in the paper's layout."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fairij.studies.comments.prepared import ENCODER
from fairij.studies.comments.t5 import SMALL_T5

TITLES = {
    ENCODER: "MiniLM",
    SMALL_T5: "A small T5, pre-trained on the training comments by span corruption",
}
MODELS = ("LC", "NC", "TT=4", "TT=8", "TT=10")
METHODS = {"erm": "ERM", "gapreg": "GapReg", "hgr": "HGR", "fair-ij": "Fair-IJ"}
BUDGET_RULE = "budget 0.005"


def model_table(block: pd.DataFrame) -> str:
    """One line a model and method: BA and EO of the runs for EO, BA and DP of those for DP."""
    lines = ["| Model | BA | ΔEO | BA | ΔDP | seeds |", "|---|---|---|---|---|---|"]
    for model in [m for m in MODELS if m in set(block["model"])]:
        some = block[block["model"] == model]
        for label in _labels(some):
            rows = some[run_labels(some) == label]
            cells = []
            for constraint in ("equalized_odds", "demographic_parity"):
                run = rows[rows["constraint"] == constraint]
                cells += [_spread(run["balanced_accuracy"], 100, 1), _spread(run[constraint], 1, 3)]
            seeds = rows["seed"].nunique()
            lines.append(f"| {model}-{label} | {' | '.join(cells)} | {seeds} |")
    return "\n".join(lines) + "\n"


def rate_table(block: pd.DataFrame) -> str:
    """Each group's rates before the edit and after it, means over seeds."""
    rows = [
        "Per-identity rates before and after the edit (test comments):\n",
        "| Model, edit for | | called toxic | of the toxic ones | of the others |",
        "|---|---|---|---|---|",
    ]
    names = ("selection_rate", "true_positive_rate", "false_positive_rate")
    plain = block["method"] == "erm"
    edit = (block["method"] == "fair-ij") & (_column(block, "rule") == BUDGET_RULE)
    for model in [m for m in MODELS if m in set(block["model"])]:
        for constraint in ("equalized_odds", "demographic_parity"):
            here = (block["model"] == model) & (block["constraint"] == constraint)
            before, after = block[here & plain], block[here & edit]
            if before.empty or after.empty:
                continue
            short = "EO" if constraint == "equalized_odds" else "DP"
            for group in ("mentioned", "others"):
                cells = [
                    f"{before[f'{n}_{group}'].mean():.3f} → {after[f'{n}_{group}'].mean():.3f}"
                    for n in names
                ]
                rows.append(f"| {model}, {short} | {group} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n" if len(rows) > 3 else ""


def cost_lines(records: pd.DataFrame) -> str:
    """What an edit of trigger tokens costs."""
    parts = []
    for _, r in records[records["method"] == "cost"].iterrows():
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in r["phases"].items())
        parts.append(
            f"- {r['model'].removeprefix('cost of ')} on {r['rows']:,.0f} comments, {r['device']}: "
            f"training {r['training_seconds']:.1f} s ({r['epochs']:.0f} epochs); the floor, three "
            f"forward passes, {r['floor_seconds']:.2f} s; all Jacobians and one product "
            f"{r['scores_seconds']:.2f} s ({r['scores_seconds'] / r['floor_seconds']:.2f} of the "
            f"floor); a whole mitigation {r['mitigation_seconds']:.2f} s "
            f"({r['mitigation_seconds'] / r['training_seconds']:.2f} of the training), of which "
            f"by phase, in seconds: {phases}; the rest is the Jacobians of the training comments, "
            "fingerprints and audits."
        )
    for _, r in records[records["method"] == "timing"].iterrows():
        parts.append(
            f"- {r['encoder']} ({r['parameters'] / 1e6:.0f} million parameters), "
            f"{r['rows']:,.0f} comments, {r['device']}: forward {r['forward_seconds']:.2f} s, all "
            f"Jacobians {r['jacobian_seconds']:.2f} s, an epoch of training "
            f"{r['epoch_seconds']:.2f} s. For the cost alone: the weights are random."
        )
    for _, r in records[records["method"] == "span corruption"].iterrows():
        parts.append(
            f"- Pre-training of the small T5 ({r['parameters'] / 1e6:.1f} million parameters in "
            f"its encoder): {r['seconds']:.0f} s, mean loss of each epoch {r['losses']}."
        )
    return "## Cost\n" + "\n".join(parts) + "\n" if parts else ""


def agreement_lines(records: pd.DataFrame) -> str:
    parts = [
        f"- {'float32' if r['compared'] == 'device' else 'bfloat16 encoder'} on {r['device']} "
        f"beside float32 on a CPU: {r['shared_in_top_500']:.3f} of the 500 most harmful comments "
        f"shared; gap of the chosen edit {r['gap']:.4f} and {r['gap_on_cpu']:.4f}; "
        f"{r['seconds']:.1f} s and {r['seconds_on_cpu']:.0f} s."
        for _, r in records[records["method"] == "agreement"].iterrows()
    ]
    return "## The same edit on two devices\n" + "\n".join(parts) + "\n" if parts else ""


def shortfall(records: pd.DataFrame) -> str:
    """Which parts of the tables have not been run."""
    if bool(records["quick"].any()) or "constraint" not in records:
        return ""
    results = records[records["constraint"].notna()]
    missing = []
    for encoder, title in TITLES.items():
        for model in MODELS if encoder == ENCODER else MODELS[2:]:
            here = results[(results["encoder"] == encoder) & (results["model"] == model)]
            seeds = here.groupby("identity")["seed"].nunique().to_dict() if len(here) else {}
            wanted = ("muslim", "female", "lgbt") if encoder == ENCODER else ("muslim",)
            few = [f"{i} {seeds.get(i, 0)} of 5" for i in wanted if seeds.get(i, 0) < 5]
            if few:
                missing.append(f"- {title.split(',')[0]}, {model}: {', '.join(few)} seeds")
    if not missing:
        return ""
    return "## Not run yet\n" + "\n".join(missing) + "\n"


def run_labels(some: pd.DataFrame) -> pd.Series:
    """The method of each record with its strength or rule."""
    strength, rule = _column(some, "strength"), _column(some, "rule")
    return pd.Series(
        [
            METHODS[method] + (f" (λ={s:g})" if _is_number(s) else f" ({r})" if r else "")
            for method, s, r in zip(some["method"], strength, rule, strict=True)
        ],
        index=some.index,
    )


def _labels(some: pd.DataFrame) -> list[str]:
    order = {name: place for place, name in enumerate(METHODS.values())}
    return sorted(set(run_labels(some)), key=lambda label: (order[label.split(" ")[0]], label))


def _column(frame: pd.DataFrame, name: str) -> Any:
    if name not in frame:
        return pd.Series([None] * len(frame), index=frame.index)
    return frame[name].astype(object).where(frame[name].notna(), None)


def _is_number(value: Any) -> bool:
    return value is not None and not math.isnan(float(value))


def _spread(values: pd.Series, scale: float, digits: int) -> str:
    if not len(values):
        return "-"
    mean = f"{scale * values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {scale * values.std():.{digits}f}"
