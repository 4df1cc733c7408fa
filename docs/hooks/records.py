"""Tables made from the records of benchmarks and studies, so that no number is copied by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    "demographic_parity, slack 0.005": "demographic parity, `LowestGap(slack=0.005)`",
    "demographic_parity": "demographic parity, lowest gap (the paper's rule)",
    "demographic_parity, reweight": 'demographic parity, `search="reweight"`, slack 0.005',
    "demographic_parity, path": 'demographic parity, `search="path"`, slack 0.005',
    "equal_opportunity": "equal opportunity",
    "equalized_odds": "equalized odds, as in the paper",
    "equalized_odds_balanced": "`equalized_odds_balanced`, `AccuracyBudget(0.005)`",
    "equalized_odds_balanced, path": 'the same, `search="path"`',
}
COLUMNS = (
    "accuracy",
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
    head = ["asked for", "accuracy", "demographic parity gap", "equalized odds gap (sum)"]
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


TREES = (
    ("as trained", "none", "as trained"),
    ("path", "default", '`search="path"`'),
    ("training loss", "default", "training loss, groups as observed"),
    ("chances, validation loss", "default", "validation loss, chances of groups"),
    ("auto", "default", '`search="auto"`'),
    ("auto", "accuracy 0.02", '`search="auto"`, `AccuracyBudget(0.02)`'),
    ("auto", "accuracy 0.03", '`search="auto"`, `AccuracyBudget(0.03)`'),
    ("LinearPost", "accuracy 0.02", "`LinearPost`, at most 0.02 of accuracy"),
    ("LinearPost", "accuracy 0.03", "`LinearPost`, at most 0.03 of accuracy"),
)


def trees_constrained() -> str:
    """Forms of the constrained search on LightGBM: means over seeds on test rows."""
    records, rows = _record("trees_constrained.json")["records"], []
    for table, gap in dict.fromkeys((row["table"], row["constraint"]) for row in records):
        for form, rule, words in TREES:
            asked = {"table": table, "constraint": gap, "form": form, "rule": rule}
            own = [row for row in records if asked.items() <= row.items()]
            values = {name: [row[name] for row in own] for name in ("accuracy", "gap", "auc")}
            mean = {name: sum(found) / len(found) for name, found in values.items()}
            variance = sum((value - mean["gap"]) ** 2 for value in values["gap"]) / len(own)
            rows.append(
                [
                    f"{table.capitalize()}, {gap.replace('_', ' ')}",
                    words,
                    f"{mean['accuracy']:.4f}",
                    f"{mean['gap']:.4f} ({variance**0.5:.4f})",
                    f"{mean['auc']:.4f}",
                    f"{sum(row['seconds'] for row in own) / len(own):.1f}",
                ]
            )
    return _table(["table and gap", "method", "accuracy", "gap", "AUC", "seconds"], rows)


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
    "families_of_numbers": families_of_numbers,
    "black_boxes": black_boxes,
    "trees_constrained": trees_constrained,
}
