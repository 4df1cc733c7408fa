"""The study's tables as Markdown, in the paper's layout."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fairij.fairness.optimism import half_width
from fairij_studies.comments.heads import STRENGTHS
from fairij_studies.comments.prepared import ENCODER, PARTS
from fairij_studies.comments.t5 import SMALL_T5

TITLES = {
    ENCODER: "MiniLM",
    SMALL_T5: "A small T5, pre-trained on the training comments by span corruption",
}
MODELS = ("LC", "NC", "TT=4", "TT=8", "TT=10")
IDENTITIES = ("muslim", "female", "lgbt")
N_SEEDS = 5
METHODS = {"erm": "ERM", "gapreg": "GapReg", "hgr": "HGR", "fair-ij": "Fair-IJ"}
BUDGET_RULE = "budget 0.005"
RUN_NAMES = ["encoder", "model", "identity", "constraint", "label"]


def model_table(block: pd.DataFrame) -> str:
    """Return one line per model and method: BA and EO of runs for EO, BA and DP of runs for DP."""
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
    """Return each group's rates before and after the edit, means over seeds."""
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
    """Return the costs of editing trigger tokens."""
    parts = []
    for _, r in records[records["method"] == "cost"].iterrows():
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in r["phases"].items())
        parts.append(
            f"- {r['model'].removeprefix('cost of ')} on {r['rows']:,.0f} comments, {r['device']}: "
            f"training {r['training_seconds']:.1f} s ({r['epochs']:.0f} epochs); three forward "
            f"passes, a lower bound, {r['floor_seconds']:.2f} s; all Jacobians and one product "
            f"{r['scores_seconds']:.2f} s ({r['scores_seconds'] / r['floor_seconds']:.2f} of the "
            f"lower bound); a whole mitigation {r['mitigation_seconds']:.2f} s "
            f"({r['mitigation_seconds'] / r['training_seconds']:.2f} of the training). Its phases "
            f"in seconds: {phases}. All Jacobians are made in the first phase. The unit ran alone."
        )
    for _, r in records[records["method"] == "timing"].iterrows():
        parts.append(
            f"- {r['encoder']} ({r['parameters'] / 1e6:.0f} million parameters), "
            f"{r['rows']:,.0f} comments, {r['device']}: forward {r['forward_seconds']:.2f} s, all "
            f"Jacobians {r['jacobian_seconds']:.2f} s, an epoch of training "
            f"{r['epoch_seconds']:.2f} s. This measures cost only: the weights are random."
        )
    for _, r in records[records["method"] == "span corruption"].iterrows():
        parts.append(
            f"- Pre-training of the small T5 ({r['parameters'] / 1e6:.1f} million parameters in "
            f"its encoder): mean loss of each epoch {r['losses']}."
        )
    return "## Cost\n" + "\n".join(parts) + "\n" if parts else ""


def agreement_lines(records: pd.DataFrame) -> str:
    parts = [
        f"- {'float32' if r['compared'] == 'device' else 'bfloat16 encoder'} on {r['device']} "
        f"and float32 on a CPU: {r['shared_in_top_500']:.3f} of the 500 most harmful comments "
        f"shared; gap of the chosen edit {r['gap']:.4f} and {r['gap_on_cpu']:.4f}; "
        f"{r['seconds']:.1f} s and {r['seconds_on_cpu']:.0f} s."
        for _, r in records[records["method"] == "agreement"].iterrows()
    ]
    return "## The same edit on two devices\n" + "\n".join(parts) + "\n" if parts else ""


def machine_lines(results: pd.DataFrame, others: pd.DataFrame) -> str:
    """Compare the results with those of other machines: means over the seeds that both have."""
    parts = []
    for _, rows in others.groupby(["machine", "encoder", "model"], sort=False):
        machine, encoder, model = rows[["machine", "encoder", "model"]].iloc[0]
        units = rows.drop_duplicates("unit")
        here = results[(results["encoder"] == encoder) & (results["model"] == model)]
        hours = units["unit_cpu_seconds"].sum() / 3600
        codes = ", ".join(rows["code"].dropna().unique()) or "not known"
        apart = (_by_run(rows) - _by_run(results)).dropna()
        if apart.empty:
            continue
        seeds = apart.groupby(level=RUN_NAMES)
        means, fewest = seeds.mean().abs(), int(seeds.size().min())
        run_for = means.index.get_level_values("constraint")
        said = {"balanced accuracy": means["balanced_accuracy"]} | {
            short: means.loc[run_for == name, name]
            for name, short in (("equalized_odds", "EO"), ("demographic_parity", "DP"))
        }
        parts.append(
            f"- {TITLES.get(encoder, encoder)}, {model}, {machine}: {len(rows)} runs in "
            f"{len(units)} of {here['unit'].nunique()} units, {hours:.1f} hours of one core, by "
            f"the code {codes}. Means over the seeds that both have ({fewest} or more) differ on "
            "average and at most by: "
            + ", ".join(
                f"{name} {d.mean():.4f} and {d.max():.4f}" for name, d in said.items() if len(d)
            )
            + "."
        )
    return "## The same study elsewhere\n" + "\n".join(parts) + "\n" if parts else ""


def _by_run(results: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of each run, indexed by everything that identifies it."""
    labelled = results.assign(label=run_labels(results))
    figures = ["balanced_accuracy", "equalized_odds", "demographic_parity"]
    return labelled.set_index([*RUN_NAMES, "seed"])[figures]


def mention_table(records: pd.DataFrame) -> str:
    """Return the number of comments behind each gap, and the uncertainty of a rate."""
    found = records[records["method"] == "mentions"]
    if found.empty:
        return ""
    lines = ["| mentions (toxic ones) | training | validation | test |", "|---|---|---|---|"]
    for identity in [i for i in IDENTITIES if i in set(found["identity"])]:
        rows = found[found["identity"] == identity].set_index("part")
        cells = [f"{rows['mentioned'][p]:.0f} ({rows['toxic'][p]:.0f})" for p in PARTS]
        lines.append(f"| {identity} | {' | '.join(cells)} |")
    test = found[(found["part"] == "test") & found["identity"].isin(IDENTITIES)]
    fewest = test.sort_values("toxic").iloc[0]
    off = half_width(0.5, int(fewest["toxic"]))
    lines.append(
        f"\nA true positive rate over {fewest['toxic']:.0f} test comments is known only to within "
        f"about {off:.2f} (95%, at a rate of one half). The deviations do not show this: they are "
        "over seeds of the training."
    )
    return "## Few comments behind the gaps\n" + "\n".join(lines) + "\n"


def shortfall(records: pd.DataFrame) -> str:
    """List the parts of the tables that have not been run."""
    if bool(records["quick"].any()) or "constraint" not in records:
        return ""
    results = records[records["constraint"].notna()]
    seeds = results.assign(label=run_labels(results)).groupby(
        ["encoder", "model", "identity", "label"]
    )["seed"]
    run = seeds.nunique().to_dict()
    missing = []
    for encoder, title in TITLES.items():
        for model in MODELS if encoder == ENCODER else MODELS[2:]:
            for identity in IDENTITIES if encoder == ENCODER else IDENTITIES[:1]:
                few: dict[int, list[str]] = {}
                for label in _wanted(encoder, model, identity):
                    found = run.get((encoder, model, identity, label), 0)
                    if found < N_SEEDS:
                        few.setdefault(found, []).append(label)
                for found, labels in few.items():
                    name = f"{title.split(',')[0]}, {model}, “{identity}”"
                    missing.append(f"- {name}: {', '.join(labels)}: {found} of {N_SEEDS} seeds")
    if not missing:
        return ""
    return "## Not run yet\n" + "\n".join(missing) + "\n"


def _wanted(encoder: str, model: str, identity: str) -> list[str]:
    """Return the labels of a model in the paper's tables, and those that this study adds."""
    plain, edit = METHODS["erm"], METHODS["fair-ij"]
    gapreg, hgr = (
        [f"{METHODS[name]} (λ={strength:g})" for strength in STRENGTHS]
        for name in ("gapreg", "hgr")
    )
    if model in MODELS[:2]:
        rules = (BUDGET_RULE, f"{BUDGET_RULE}, both gaps", "lowest gap")
        return [plain, *gapreg, *hgr, *(f"{edit} ({rule})" for rule in rules)]
    penalties = gapreg if (encoder, identity) == (ENCODER, IDENTITIES[0]) else []
    return [plain, *penalties, f"{edit} ({BUDGET_RULE})"]


def run_labels(some: pd.DataFrame) -> pd.Series:
    """Return the method of each record with its strength or rule."""
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
