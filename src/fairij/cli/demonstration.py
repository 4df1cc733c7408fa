"""The work of `fairij demo`: train the paper's network on Adult, edit it, measure, draw."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from fairij._version import __version__
from fairij.cli.outputs import replacing
from fairij.datasets import Split, Splits, adult_splits, fetch_adult
from fairij.datasets.adult import VALIDATION
from fairij.datasets.splits import three_way_split
from fairij.fairness import Audit, audit
from fairij.method.selection import LowestGap
from fairij.mitigator import FairIJ
from fairij.models.torch.training import train_mlp
from fairij.report.page import write_report
from fairij.report.plots import group_rates, save_chart
from fairij.report.wording import GAP_METRIC, LABELS

SLACK = 0.005  # validation gap that may be given up for accuracy
REPORTED = (
    "accuracy",
    "balanced_accuracy",
    "demographic_parity_difference",
    "equalized_odds_sum",
    "equal_opportunity_difference",
)


@dataclass(frozen=True)
class Demo:
    """The results of the demo."""

    constraint: str
    seed: int
    splits: Splits
    people: pd.DataFrame  # the training rows before they are encoded
    mitigator: FairIJ
    audits: dict[str, dict[str, Audit]]  # "before"/"after" -> "validation"/"test"
    seconds: dict[str, float]

    def summary(self) -> dict[str, Any]:
        """The figures of ``summary.json``."""
        figures = {
            when: {part: {name: found[name] for name in REPORTED} for part, found in parts.items()}
            for when, parts in self.audits.items()
        }
        return {
            **figures,
            "seconds": self.seconds,
            "data": "UCI Adult, official test set; a third of the training rows for validation",
            "rows": {
                "train": len(self.splits.train),
                "validation": len(self.splits.validation),
                "test": len(self.splits.test),
            },
            "sensitive": self.splits.sensitive,
            "sensitive_is_a_feature": self.splits.includes_sensitive,
            "constraint": self.constraint,
            "selection": repr(self.mitigator.selection),
            "edit": dict(self.mitigator.edit_.settings),
            "seed": self.seed,
            "version": __version__,
        }

    def table(self, part: str = "test") -> pd.DataFrame:
        """Before and after on one part, with intervals."""
        rows = {}
        for name in REPORTED:
            cells = {}
            for when in ("before", "after"):
                value, low, high = self.audits[when][part].metrics.loc[name]
                cells[when] = f"{value:.4f}"
                cells[f"{when} 95 %"] = f"{low:.4f} to {high:.4f}"
            rows[LABELS[name]] = cells
        return pd.DataFrame.from_dict(rows, orient="index")

    def answer(self) -> str:
        metric = GAP_METRIC[self.constraint]
        before, after = (self.audits[when]["test"] for when in ("before", "after"))
        edit, rows = self.mitigator.edit_.settings, len(self.splits.train)
        return (
            f"Asked to lower the {self.constraint.replace('_', ' ')} gap between "
            f"{' and '.join(self.splits.groups)}, the edit moved the parameters "
            f"{edit['scale']:g} times as far as leaving out {edit['k']} of the {rows} training "
            "rows would, without training again. On the official test set the gap went from "
            f"{before[metric]:.3f} to {after[metric]:.3f} and accuracy from "
            f"{before['accuracy']:.4f} to {after['accuracy']:.4f}." + self._costs(before, after)
        )

    def _costs(self, before: Audit, after: Audit) -> str:
        """Other gaps that grew."""
        others = [
            f"the {LABELS[name]} from {before[name]:.3f} to {after[name]:.3f}"
            for name in REPORTED[2:]
            if name != GAP_METRIC[self.constraint] and after[name] > before[name] + SLACK
        ]
        return f" Not asked for, and worse now: {', '.join(others)}." if others else ""


def run_demo(
    *,
    seed: int,
    constraint: str,
    data_home: Path | None = None,
    epochs: int = 100,
    on_epoch: Callable[[int, int], None] | None = None,
) -> Demo:
    """Train, mitigate and audit; nothing is written."""
    splits = adult_splits(seed, data_home=data_home)
    train, validation, test = splits
    start = time.perf_counter()
    model = train_mlp(
        train.X, train.y, validation.X, validation.y, seed=seed, epochs=epochs, on_epoch=on_epoch
    )
    trained = time.perf_counter()
    mitigator = FairIJ(
        model, constraints=constraint, selection=LowestGap(slack=SLACK), random_state=seed
    ).fit(
        train.X,
        _incomes(train),
        X_val=validation.X,
        y_val=_incomes(validation),
        sensitive_features_val=[splits.groups[code] for code in validation.s],
    )
    seconds = {"train": trained - start, "mitigate": time.perf_counter() - trained}
    parts = {"validation": validation, "test": test}
    audits = {
        when: {name: _audit(module, part, splits.groups) for name, part in parts.items()}
        for when, module in (("before", model), ("after", mitigator.estimator_))
    }
    people = _people(seed, data_home)
    return Demo(constraint, seed, splits, people, mitigator, audits, seconds)


def _people(seed: int, data_home: Path | None) -> pd.DataFrame:
    """The training rows of `adult_splits` before they were encoded."""
    adult = fetch_adult(include_sensitive=False, data_home=data_home)
    official = np.flatnonzero(adult.split == "train")
    fitted, _, _ = three_way_split(len(official), seed, validation=VALIDATION, test=0.0)
    return adult.data.iloc[official[fitted]].reset_index(drop=True)


def _audit(module: nn.Module, part: Split, groups: tuple[str, ...]) -> Audit:
    with torch.no_grad():
        predicted = (module(torch.from_numpy(part.X))[:, 0] > 0).numpy().astype(int)
    named = [groups[code] for code in part.s]
    return audit(part.y.astype(int), predicted, sensitive_features=named)


def write_demo(demo: Demo, out: Path) -> None:
    """Write the summary, the edit, the plots and the page: all of them, or nothing."""
    with replacing(out) as folder:
        _write(demo, folder)


def _write(demo: Demo, folder: Path) -> None:
    mitigator, splits = demo.mitigator, demo.splits
    before, after = (demo.audits[when]["test"].group_intervals for when in ("before", "after"))
    charts = {
        "influence": mitigator.plot_influence(),
        "candidates": mitigator.plot_frontier(),
        "rates": group_rates(before, after, title="Rates by group on the test set"),
    }
    for name, chart in charts.items():
        save_chart(chart, folder / name)
    train, _, test = splits
    write_report(
        mitigator,
        folder / "report.html",
        X=demo.people,
        y=_incomes(train),
        sensitive_features=pd.Series(_named(train, splits), name=splits.sensitive),
        X_test=test.X,
        y_test=_incomes(test),
        sensitive_features_test=_named(test, splits),
        title=f"{demo.constraint.replace('_', ' ').capitalize()} on UCI Adult, official test set",
    )
    (folder / "summary.json").write_text(json.dumps(demo.summary(), indent=2) + "\n")
    mitigator.candidates_.to_csv(folder / "candidates.csv", index=False)
    mitigator.edit_.save(folder / "edit.safetensors")


def _incomes(part: Split) -> NDArray[np.str_]:
    """The labels as the data set writes them."""
    return np.where(part.y > 0, ">50K", "<=50K")


def _named(part: Split, splits: Splits) -> list[str]:
    return [splits.groups[code] for code in part.s]
