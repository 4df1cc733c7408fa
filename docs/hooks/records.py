"""Tables made from the records of benchmarks and studies, so that no number is copied by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pandas as pd
from fairij_studies.records import read_records

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MARK = re.compile(r"<!-- record: (\w+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return MARK.sub(lambda found: TABLES[found[1]](), markdown)


def _record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def engine() -> str:
    """Seconds, memory and agreement of all toolkits that score training rows."""
    record = _record("engine.json")
    rows = [row for row in record["rows"] if row["spearman"] is not None]
    old = {True: "", False: "an earlier run"}
    return _table(
        ["", "seconds", "MB beyond the data", "Spearman", "shared in top 500", "note"],
        [
            [
                row["name"],
                f"{row['seconds']:.2f}",
                f"{row['peak_mb']:.0f}",
                f"{row['spearman']:.4f}",
                f"{row['top500']:.3f}",
                "; ".join(filter(None, [row["note"], old[row["code"] == record["code"]]])),
            ]
            for row in rows
        ],
    )


ADULT = {
    "ERM": "nothing (the model as trained)",
    "demographic_parity, default": "demographic parity, by default",
    "equalized_odds, default": "equalized odds, by default",
    "equal_opportunity, default": "equal opportunity, by default",
    "demographic_parity, slack 0.005": "demographic parity, `LowestGap(slack=0.005)`",
    "demographic_parity": "demographic parity, lowest gap (the paper's rule)",
    "demographic_parity, reweight": 'demographic parity, `search="reweight"`, slack 0.005',
    "demographic_parity, path": 'demographic parity, `search="path"`, slack 0.005',
    "equal_opportunity": "equal opportunity, as in the paper",
    "equalized_odds": "equalized odds, as in the paper",
    "equalized_odds_balanced": "`equalized_odds_balanced`, `AccuracyBudget(0.005)`",
    "equalized_odds_balanced, path": 'the same, `search="path"`',
}
COLUMNS = (
    "accuracy",
    "auc",
    "demographic_parity_difference",
    "equalized_odds_sum",
    "equal_opportunity_difference",
)


def adult() -> str:
    """Adult on seeds that were not used to pick settings: mean and deviation."""
    record = _record("adult_fresh_seeds.json")
    test, seeds = record["test"], record["seeds"]
    rows = [
        [ADULT.get(name, name), *(f"{v[0]:.4f} ± {v[1]:.4f}" for v in map(found.get, COLUMNS))]
        for name, found in test.items()
    ]
    head = ["asked for", "accuracy", "AUC", "demographic parity gap", "equalized odds gap (sum)"]
    return f"Seeds {seeds[0]} to {seeds[-1]}:\n\n" + _table([*head, "equal opportunity gap"], rows)


def refits() -> str:
    """The gap after an edit, and after training again without the same rows."""
    found: dict[tuple[int, str], dict[int, float]] = {}
    for row in read_records(ROOT / "studies" / "adult"):
        if row["kind"] == "refit":
            gaps = found.setdefault((row["seed"], row["method"]), {})
            gaps[int(row["value"])] = row["test_demographic_parity"]
    rows = [
        [f"seed {seed}, {kind}", *(f"{gaps[k]:.3f}" for k in sorted(gaps))]
        for (seed, kind), gaps in sorted(found.items())
    ]
    return _table(["k", *(str(k) for k in sorted(next(iter(found.values()))))], rows)


def coverage() -> str:
    """How often the interval of the honest gap covers a fresh audit."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in _record("coverage.json")["records"]:
        found.setdefault((row["constraint"], row["rows"]), {})[row["choice"]] = row["coverage"]
    names = {
        "one: as it is": "one edit: as it is",
        "one: an edit": "one edit: lowest gap",
        "budget": "`AccuracyBudget(0.01)`",
        "target": "`TargetGap(0.05)`",
        "lowest gap": "`LowestGap()`",
    }
    rows = [
        [constraint.replace("_", " "), f"{size:,}", *(f"{cell[name]:.2f}" for name in names)]
        for (constraint, size), cell in found.items()
    ]
    return _table(["constraint", "rows", *names.values()], rows)


def audit_coverage() -> str:
    """How often the intervals of an audit cover the gaps and ratios that rows were drawn from."""
    found: dict[str, dict[str, tuple[float, float | None]]] = {}
    for row in _record("audit_coverage.json")["records"]:
        found.setdefault(row["case"], {})[row["metric"]] = row["coverage"], row["bootstrap"]
    metrics = list(next(iter(found.values())))

    def cell(now: float, before: float | None) -> str:
        return f"{now:.2f}" + ("" if before is None else f" ({before:.2f})")

    rows = [[case, *(cell(*of[metric]) for metric in metrics)] for case, of in found.items()]
    names = [metric.replace("_difference", " gap").replace("_", " ") for metric in metrics]
    return _table(["rows", *names], rows)


def predicted_refits() -> str:
    """How far predicted refits move the gap, as a part of how far real ones move it."""
    forms = {
        "edit": "the edit",
        "first step": "kept curvature",
        "prediction": "and the further step",
    }
    rows = [
        [f"{row['k']:,}", what, *(_spread(row[f"{kind}, {form}"]) for form in forms)]
        for row in _record("refits.json")["summary"]
        for kind, what in (("hard", "predicted labels"), ("smooth", "mean scores"))
    ]
    return _table(["rows left out", "gap of", *forms.values()], rows)


MEASURES = ("accuracy", "gap", "auc")


def families() -> str:
    """Accuracy, gap and AUC of each model family on Adult's test rows, before and after."""
    return _families(dict(zip(MEASURES, ("accuracy", "gap", "AUC"), strict=True)))


def families_of_numbers() -> str:
    """R2 and the gap of mean predictions of each regression, before and after."""
    return _families({"r2": "R²", "gap": "gap"})


def _families(heads: dict[str, str]) -> str:
    """The families that have all of these measures."""
    rows = [
        [
            name,
            row["library"],
            *(f"{row['before'][of]:.3f} → {row['after'][of]:.3f}" for of in heads),
            f"{row['training']:.0f}",
            f"{row['seconds']:.0f}",
            "" if "round_trip" not in row else f"{row['round_trip']:.0e}".replace("0e+00", "0"),
            {True: "yes", False: "no"}.get(row.get("undone"), ""),
        ]
        for name, row in _record("families.json").items()
        if set(heads) == set(row["before"])
    ]
    head = ["", "library", *heads.values(), "seconds of training", "of the edit"]
    return _table([*head, "round trip", "undone"], rows)


def black_boxes() -> str:
    """The gap and the AUC of black boxes before and after a correction, and of edited models."""
    rows = []
    for name, row in _record("black_boxes.json").items():
        before = row["before"]
        cells = [f"{name} ({row['form']})" if row["form"] not in name else name]
        cells.append(f"{before['gap']:.3f}, {before['auc']:.4f}")
        for which in ("default", "target", "itself"):
            if which not in row:
                cells.append("not possible")
                continue
            found = row[which]
            share = found["gap"] / before["gap"]
            lost = before["auc"] - found["auc"]
            cells.append(f"{found['gap']:.3f} ({share:.0%}), AUC {-lost:+.4f}")
        rows.append(cells)
    head = ["", "gap, AUC before", "by default", "half", "the model itself, half"]
    return _table(head, rows)


CHOICES = ("lowest_gap", "budget")
TRIAL = ["table", "model", "seed", "constraint"]


def _defaults() -> dict[str, pd.DataFrame]:
    """The fits before, and after each rule, in the same order."""
    found = pd.read_csv(RESULTS / "defaults.csv")
    parts = {name: part.set_index(TRIAL).sort_index() for name, part in found.groupby("rule")}
    return {name: parts[name] for name in ("before", *CHOICES)}


def defaults() -> str:
    """What the paper's rule and search and the default ones keep of a model."""
    found = _defaults()
    before, columns = found["before"], []
    rare = {
        name: np.minimum(part["positive"], 1 - part["positive"]) for name, part in found.items()
    }
    for name in CHOICES:
        after = found[name]
        lost = {measure: before[measure] - after[measure] for measure in ("accuracy", "auc")}
        grew = after["gap"] - before["gap"]
        columns.append(
            [
                f"{after['gap'].mean():.3f}",
                *(f"{of.mean():.3f} ({of.max():.3f})" for of in lost.values()),
                str(int((lost["auc"] > 0.05).sum())),
                str(int((rare[name] < 0.1 * rare["before"]).sum())),
                f"{grew.max():.3f}",
                str(int((after["k"] == 0).sum())),
            ]
        )
    names = [
        f"mean gap, {before['gap'].mean():.3f} before",
        "accuracy lost, mean (most)",
        "AUC lost, mean (most)",
        "edits that lose more than 0.05 of AUC",
        "models that are nearly constant: the rarer label a tenth as often as before",
        "most that a gap grew",
        "models that come back unchanged",
    ]
    head = [f"{len(before)} fits", '`"grid"`, `"lowest_gap"`', '`"auto"`, `"budget"`']
    return _table(head, [list(row) for row in zip(names, *columns, strict=True)])


def default_tables() -> str:
    """Demographic parity on each table, in the mean over models and seeds."""
    found = {
        name: part[part.index.get_level_values("constraint") == "demographic_parity"]
        for name, part in _defaults().items()
    }
    means = {name: part.groupby("table", sort=False) for name, part in found.items()}
    order = pd.read_csv(RESULTS / "defaults.csv")["table"].drop_duplicates()
    rows = []
    for table in order:
        own = {name: groups.get_group(table) for name, groups in means.items()}
        measures = ("auc", "gap", "positive")
        cells = [f"{own[name][of].mean():.3f}" for of in measures for name in own]
        rows.append([str(table).replace("%", " %"), *cells])
    shown = [f"{of} {part}" for of in ("AUC", "gap", "share") for part in ("before", *CHOICES)]
    return _table(["table", *(name.replace("_", " ") for name in shown)], rows)


PAPERS = ("UCI Adult", "ACSPublicCoverage, sample")  # the tables of the paper
OF_SCORES = ("accuracy", "auc", "brier")
FRONTIER = {  # method and rule of the study of frontiers
    ("as trained", "none"): "as trained",
    ("Fair-IJ auto", "default"): "by default",
    ("Fair-IJ auto", "0.02"): "`AccuracyBudget(0.02)`",
    ("Fair-IJ auto, training groups", "0.02"): "the same, groups of training rows known",
    ("LinearPost", "0.02"): "LinearPost, at most 0.02 of accuracy",
}


def networks() -> str:
    """The paper's network on the paper's tables, from the study of frontiers."""
    return _frontier("network")


def ensembles() -> str:
    """LightGBM on the paper's tables, from the study of frontiers."""
    return _frontier("LightGBM")


def trees_search() -> str:
    """What the default search costs on LightGBM, in seconds and in trainings."""
    cells: dict[tuple[str, str], list[str]] = {}
    for row in _record("trees_search.json")["rows"]:
        about = (row["data"].split(",")[0], row["constraint"].replace("_", " "))
        cells.setdefault(about, [f"{row['train_seconds']:.2f}"])
        cells[about].append(f"{row['fit_seconds']:.2f} ({row['trainings']:.1f})")
    names = dict.fromkeys(row["search"] for row in _record("trees_search.json")["rows"])
    head = ["table and gap", "a training", *(f"`{name}`" for name in names)]
    return _table(head, [[", ".join(about), *own] for about, own in cells.items()])


def _frontier(model: str) -> str:
    found: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for row in read_records(ROOT / "studies" / "frontier"):
        if row["model"] == model:
            key = (row["data"], row["constraint"], row["method"], row["rule"])
            found.setdefault(key, []).append(row)
    rows = []
    constraints = dict.fromkeys(key[1] for key in found)
    for table, constraint, ((method, rule), words) in product(
        PAPERS, constraints, FRONTIER.items()
    ):
        own = found.get((table, constraint, method, rule), [])
        if not own:
            continue
        gaps = [row["test_gap"] for row in own]
        means = {name: fmean(row[f"test_{name}"] for row in own) for name in OF_SCORES}
        rows.append(
            [
                f"{table.split(',')[0]}, {constraint.replace('_', ' ')}",
                words,
                f"{means['accuracy']:.4f}",
                f"{fmean(gaps):.4f} ± {pstdev(gaps):.4f}",
                f"{means['auc']:.3f}",
                f"{means['brier']:.4f}",
                str(len(own)),
            ]
        )
    return _table(["table and gap", "", "accuracy", "gap", "AUC", "Brier score", "seeds"], rows)


def _spread(found: dict[str, float]) -> str:
    return f"{found['mean']:.2f} ({found['lowest']:.2f} to {found['highest']:.2f})"


TABLES: dict[str, Callable[[], str]] = {
    "engine": engine,
    "adult": adult,
    "refits": refits,
    "predicted_refits": predicted_refits,
    "coverage": coverage,
    "audit_coverage": audit_coverage,
    "families": families,
    "defaults": defaults,
    "default_tables": default_tables,
    "networks": networks,
    "ensembles": ensembles,
    "trees_search": trees_search,
    "families_of_numbers": families_of_numbers,
    "black_boxes": black_boxes,
}
