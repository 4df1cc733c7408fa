"""The work of `fairij demo`: train the paper's network on Adult, edit it, measure, draw."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij._version import __version__
from fairij.cli.console import metrics_table, print_json, say, show
from fairij.cli.contents import Holds
from fairij.cli.folder import CANDIDATES, EDIT, SUMMARY, page_holds
from fairij.cli.folder import HOLDS as RESULT_HOLDS
from fairij.cli.options import PageOptions, check_choice, constraints
from fairij.cli.outputs import PAGE, check_folder, whole_folder
from fairij.datasets import Split, Splits, adult_splits, fetch_adult
from fairij.datasets.adult import VALIDATION
from fairij.datasets.splits import three_way_split
from fairij.fairness import Audit
from fairij.mitigator import FairIJ
from fairij.models.torch.training import train_mlp
from fairij.report.about import About
from fairij.report.comparisons import Comparison, on_test_rows
from fairij.report.headline import answer, costs
from fairij.report.page import write_report
from fairij.report.plots import group_rates, save_chart
from fairij.report.progress import bar

COMMAND = "demo"
CHARTS = {
    "influence": Holds("A chart: the scores of all training rows, sorted, without their numbers."),
    "candidates": Holds("A chart: every edit that was tried."),
    "rates": Holds("A chart: the rates of the groups."),
}
HOLDS = {
    **{f"{name}.{kind}": held for name, held in CHARTS.items() for kind in ("svg", "png")},
    **{name: RESULT_HOLDS[name] for name in (SUMMARY, CANDIDATES, EDIT)},
    PAGE: page_holds(PageOptions()),
}
ABOUT = About(
    model="the paper's network, trained just now",
    tables={
        "training": "UCI Adult: two thirds of the official training rows",
        "validation": "UCI Adult: the other third",
        "test": "UCI Adult: the official test rows",
    },
    label="income",
    groups=("sex",),
)
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
    shown: Comparison  # on the official test rows
    seconds: dict[str, float]

    @property
    def audits(self) -> dict[str, dict[str, Audit]]:
        """By "before" and "after", then by "validation" and "test"."""
        fair, shown = self.mitigator, self.shown
        return {
            "before": {"validation": fair.before_, "test": shown.before},
            "after": {"validation": fair.after_, "test": shown.after},
        }

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


def show_demo(
    out: Path, seed: int, constraint: str, data_home: Path | None, *, as_json: bool, force: bool
) -> None:
    """Run the demo, write its folder, and show the figures."""
    check_choice("constraints", constraint, constraints(of_labels=True))
    check_folder(out, COMMAND, force=force)
    with bar(delay=0.0) as listen:
        result = run_demo(
            seed=seed,
            constraint=constraint,
            data_home=data_home,
            on_epoch=partial(listen, "training"),
        )
    write_demo(result, out, force=force)
    if as_json:
        print_json({**result.summary(), "out": out})
        return
    shown = result.shown
    audits = {"before": shown.before, "after": shown.after}
    show(metrics_table("UCI Adult, official test set", audits))
    said = answer(result.mitigator, shown, ABOUT), costs(result.mitigator, shown)
    say(" ".join(said).strip())
    say("Training took {train:.1f} s, the edit {mitigate:.1f} s.".format(**result.seconds))
    say(f"The page is {out / 'report.html'}")


def run_demo(
    *,
    seed: int,
    constraint: Any,
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
    mitigator = FairIJ(model, constraints=constraint, random_state=seed).fit(
        train.X,
        _incomes(train),
        X_val=validation.X,
        y_val=_incomes(validation),
        sensitive_features_val=_named(validation, splits),
    )
    seconds = {"train": trained - start, "mitigate": time.perf_counter() - trained}
    shown = on_test_rows(mitigator, test.X, _incomes(test), _named(test, splits))
    assert shown is not None  # all of them are given
    people = _people(seed, data_home)
    return Demo(constraint, seed, splits, people, mitigator, shown, seconds)


def _people(seed: int, data_home: Path | None) -> pd.DataFrame:
    """The training rows of `adult_splits` before they were encoded."""
    adult = fetch_adult(include_sensitive=False, data_home=data_home)
    official = np.flatnonzero(adult.split == "train")
    fitted, _, _ = three_way_split(len(official), seed, validation=VALIDATION, test=0.0)
    return adult.data.iloc[official[fitted]].reset_index(drop=True)


def write_demo(demo: Demo, out: Path, *, force: bool = False) -> None:
    """Write the summary, the edit, the plots and the page: all of them, or nothing."""
    with whole_folder(out, COMMAND, HOLDS, force=force) as folder:
        _write(demo, folder)


def _write(demo: Demo, folder: Path) -> None:
    mitigator, splits = demo.mitigator, demo.splits
    before, after = (demo.audits[when]["test"].group_intervals for when in ("before", "after"))
    drawn = (
        mitigator.plot_influence(),
        mitigator.plot_frontier(),
        group_rates(before, after, title="Rates by group on the test set"),
    )
    charts = dict(zip(CHARTS, drawn, strict=True))
    for name, chart in charts.items():
        save_chart(chart, folder / name)
    train, _, test = splits
    write_report(
        mitigator,
        folder / PAGE,
        X=demo.people,
        y=_incomes(train),
        sensitive_features=pd.Series(_named(train, splits), name=splits.sensitive),
        X_test=test.X,
        y_test=_incomes(test),
        sensitive_features_test=_named(test, splits),
        about=ABOUT,
        title=f"{demo.constraint.replace('_', ' ').capitalize()} on UCI Adult, official test set",
    )
    (folder / SUMMARY).write_text(json.dumps(demo.summary(), indent=2) + "\n")
    mitigator.candidates_.to_csv(folder / CANDIDATES, index=False)
    mitigator.edit_.save(folder / EDIT)


def _incomes(part: Split) -> NDArray[np.str_]:
    """The labels as the data set writes them."""
    return np.where(part.y > 0, ">50K", "<=50K")


def _named(part: Split, splits: Splits) -> list[str]:
    return [splits.groups[code] for code in part.s]
