"""The folder that `mitigate` writes, and a fitted `FairIJ` from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij._version import __version__
from fairij.cli.console import audit_dict, plain
from fairij.cli.contents import Holds
from fairij.cli.fitting import ID, scores_frame
from fairij.cli.naming import labels_of
from fairij.cli.options import PageOptions
from fairij.cli.outputs import MARK, PAGE
from fairij.cli.rows import Part
from fairij.errors import InvalidInputError
from fairij.fairness import Audit
from fairij.fairness.decisions import read_decisions
from fairij.fairness.optimism import HonestGap
from fairij.fairness.paired import Paired
from fairij.language.probes import ProbeChange
from fairij.method.preparation import get_search
from fairij.method.refit import PredictedRefit
from fairij.mitigator import FairIJ
from fairij.models.losses import get_loss
from fairij.report import write_report
from fairij.report.about import About
from fairij.report.card import card_of
from fairij.report.comparisons import Comparison
from fairij.storage.edits import Edit
from fairij.storage.model_files import ModelFile

EDIT, SUMMARY = "edit.safetensors", "summary.json"
CANDIDATES, INFLUENCE, SEAL = "candidates.csv", "influence.csv", "sha256"
CARD = "README.md"  # the name by which registries show it
NEEDED = ("k", "scale", "damping", "gap")  # columns of the candidates
MODEL_HOLDS = Holds(
    "The edited model. It may give away as much about its training rows as the model before."
)
HOLDS = {
    EDIT: Holds("The edit: parameters, and the numbers of the rows that it leaves out.", True),
    INFLUENCE: Holds(
        "One line for each training row: its number, its scores, and its --identifier if one was "
        "named.",
        True,
    ),
    SUMMARY: Holds("The figures of the run: rates and gaps of groups, and diagnostics."),
    CANDIDATES: Holds("Every edit that was tried, with its gap and accuracy."),
    MARK: Holds("The options of the run, with the paths and hashes of its files."),
}


def page_holds(page: PageOptions) -> Holds:
    if page.show_rows:
        return Holds("The page, which lists training rows with their values.", True)
    return Holds("The page: figures and charts, and no training rows.")


def folder_holds(model: str, page: PageOptions) -> dict[str, Holds]:
    """What each file of the folder holds."""
    card = (
        {CARD: Holds("The model card: figures, and no training rows.")} if page.model_card else {}
    )
    return {**HOLDS, model: MODEL_HOLDS, PAGE: page_holds(page), **card}


def write_result(
    folder: Path,
    fitted: FairIJ,
    about: Mapping[str, Any],
    test: Comparison | None,
    identifier: NDArray[Any] | None = None,
) -> dict[str, Any]:
    """Write edit, candidates, scores and summary; return the summary."""
    fitted.edit_.save(folder / EDIT)
    fitted.candidates_.to_csv(folder / CANDIDATES, index=False)
    scores_frame(fitted, identifier).to_csv(folder / INFLUENCE, index=False)
    parts = {"validation": {"before": fitted.before_, "after": fitted.after_}}
    if fitted.holdout_before_ is not None and fitted.holdout_after_ is not None:
        parts["holdout"] = {"before": fitted.holdout_before_, "after": fitted.holdout_after_}
    changes = {"validation": fitted.changes_, "holdout": fitted.holdout_changes_}
    if test is not None:
        parts["test"] = {"before": test.before, "after": test.after}
        changes["test"] = test.changes
    summary: dict[str, Any] = plain(
        {
            **about,
            **{
                part: {when: audit_dict(audit) for when, audit in audits.items()}
                for part, audits in parts.items()
            },
            "changes": {
                part: found.to_dict() for part, found in changes.items() if found is not None
            },
            "edit": dict(fitted.edit_.settings),
            "chosen": int(fitted.chosen_),
            "candidates": len(fitted.candidates_),
            "classes": np.asarray(fitted.classes_).tolist(),
            "predicted_refits": [one.figures() for one in fitted.predicted_refits_],
            "honest_gap": fitted.honest_gap_ and dataclasses.asdict(fitted.honest_gap_),
            "diagnostics": fitted.diagnostics_,
            "version": __version__,
        }
    )
    summary[SEAL] = _seal(folder, summary)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _seal(folder: Path, summary: Mapping[str, Any]) -> str:
    """Hash of the edit and of all figures, so that files of several runs cannot be mixed."""
    figures = {key: value for key, value in summary.items() if key != SEAL}
    digest = hashlib.sha256(json.dumps(figures, sort_keys=True).encode())
    for name in (EDIT, CANDIDATES, INFLUENCE):
        digest.update(_file_in(folder, name).read_bytes())
    return digest.hexdigest()


def _file_in(folder: Path, name: str) -> Path:
    """A file of the folder; a pipe or a device in its place would be read without an end."""
    if not (folder / name).is_file():
        raise ValueError(f"it has no file {name}")
    return folder / name


def read_result(folder: Path, unfitted: FairIJ) -> FairIJ:
    """Fill ``unfitted`` with the result in a folder, as `fit` left it.

    ``moves_`` and ``direction_`` are as large as the model and no page needs them: left out.
    """
    try:
        summary = json.loads(_file_in(folder, SUMMARY).read_text(encoding="utf-8"))
        if summary.get(SEAL) != _seal(folder, summary):
            raise ValueError(
                f"the hash in {SUMMARY} must fit {EDIT}, {CANDIDATES}, {INFLUENCE} and its own "
                "figures, but it is another one, or missing as in folders of an earlier version"
            )
        candidates = _exactly(folder / CANDIDATES)
        scores = _exactly(folder / INFLUENCE)
        audits = _audits(summary["validation"])
        held = _audits(summary["holdout"]) if "holdout" in summary else (None, None)
        changes = {n: Paired.from_dict(one) for n, one in summary.get("changes", {}).items()}
        honest = summary["honest_gap"] and HonestGap(**summary["honest_gap"])
        loss = get_loss(summary["edit"]["loss"])
        decisions = read_decisions(summary["edit"])
        chosen, classes = int(summary["chosen"]), np.asarray(summary["classes"])
        _check_candidates(candidates, chosen)
        if not isinstance(summary["diagnostics"], dict) or classes.ndim != 1:
            raise ValueError("diagnostics must be a table, and classes a list")
        diagnostics = summary["diagnostics"]
        influence = scores["influence"].to_numpy(dtype=np.float64)
        joint = scores["joint_influence"].to_numpy() if "joint_influence" in scores else None
        refits = [PredictedRefit(**one) for one in summary.get("predicted_refits", [])]
        on_loss = scores["loss_influence"].to_numpy() if "loss_influence" in scores else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"{folder} must be a folder as `fairij mitigate` writes it, with {SUMMARY}, complete "
            f"and unchanged: {error}. Run `fairij mitigate` again."
        ) from None
    fitted = unfitted
    fitted.edit_ = Edit.load(folder / EDIT)
    fitted.estimator_ = fitted.edit_.apply(fitted.estimator)
    fitted.influence_, fitted.loss_influence_ = influence, on_loss
    fitted.joint_influence_, fitted.predicted_refits_ = joint, refits
    fitted.dropped_ = fitted.edit_.dropped
    fitted.candidates_, fitted.chosen_ = candidates, chosen
    fitted.before_, fitted.after_ = audits
    fitted.holdout_before_, fitted.holdout_after_ = held
    fitted.changes_, fitted.holdout_changes_ = changes.get("validation"), changes.get("holdout")
    fitted._honest_gap, fitted._choice, fitted.moves_ = honest, None, None
    fitted.loss_, fitted.classes_, fitted.decisions_ = loss, classes, decisions
    fitted.search_ = get_search(fitted.search)
    fitted.diagnostics_ = diagnostics
    return fitted


def _check_candidates(candidates: pd.DataFrame, chosen: int) -> None:
    """Raise unless the table has the columns of a run, and a line of this number."""
    if missing := [name for name in NEEDED if name not in candidates]:
        raise ValueError(f"{CANDIDATES} has no column {missing[0]!r}")
    if not 0 <= chosen < len(candidates):
        raise ValueError(f"{CANDIDATES} has no line {chosen}, which was chosen")


def _audits(stored: Mapping[str, Any]) -> tuple[Audit, Audit]:
    return audit_from_dict(stored["before"]), audit_from_dict(stored["after"])


def _exactly(path: Path) -> pd.DataFrame:
    """Read a table of numbers and booleans exactly as it was written."""
    cells = pd.read_csv(path, dtype=str)

    def column(name: str) -> Any:
        texts = cells[name]
        if texts.isin(["True", "False"]).all():
            return texts == "True"
        numbers = texts.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers if any("." in str(t) or t != t for t in texts) else numbers.astype(int)

    return pd.DataFrame({name: column(name) for name in cells.columns if name != ID})


def audit_from_dict(stored: Mapping[str, Any]) -> Audit:
    def frame(metrics: Mapping[str, Any]) -> pd.DataFrame:
        columns = ["value", "low", "high"]
        rows = {name: [row[column] for column in columns] for name, row in metrics.items()}
        found = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
        return found.astype(float).rename_axis("metric")

    by_group = pd.DataFrame.from_dict(stored["by_group"], orient="index")
    intervals = pd.DataFrame(stored["group_intervals"]).set_index(["group", "rate"])
    found = Audit(
        frame(stored["metrics"]),
        by_group.rename_axis("group"),
        float(stored["confidence"]),
        intervals.astype(float),
        stored["positive_label"],
        frame(stored.get("more", {})),
        tuple(stored.get("undefined", ())),
        tuple(stored.get("notes", ())),
        frame(stored.get("ratios", {})),
        frame(stored.get("scores", {})),
    )
    if stored.get("views"):
        views = pd.DataFrame(stored["views"]).set_index(["view", "metric"]).astype(float)
        found = replace(found, views=views)
    scores = stored.get("group_scores", [])
    if not scores:
        return found
    table = pd.DataFrame(scores).set_index(["group", "measure"]).astype(float)
    return replace(found, group_scores=table)


def write_page(
    fitted: FairIJ,
    target: Path,
    *,
    train: Part,
    test: Part | None,
    page: PageOptions,
    probe: ProbeChange | None = None,
    about: About | None = None,
) -> None:
    """Write the page. Of texts it shows only the lengths, unless their column is asked for."""
    rows = {}
    if test is not None:
        rows = {
            "X_test": test.X,
            "y_test": labels_of(train, test),
            "sensitive_features_test": test.weighed,
        }
    shown = page.show_column or []
    is_shown = not train.is_text or set(train.feature_names) <= set(shown)
    write_report(
        fitted,
        target,
        X=train.features if is_shown else _lengths(train.features),
        y=train.label,
        sensitive_features=None if train.groups is None else _all_known(train.groups),
        title=page.title,
        show_rows=page.show_rows,
        show_columns=shown,
        probe=probe,
        about=about,
        **rows,
    )


def _all_known(groups: pd.DataFrame) -> pd.DataFrame:
    """The groups of training rows, where some may be missing."""
    lost = groups.columns[groups.isna().any()]
    return groups.assign(**{name: groups[name].astype(object).fillna("not known") for name in lost})


def write_card(
    fitted: FairIJ,
    target: Path,
    shown: Comparison,
    file: ModelFile,
    measured_on: Path | None,
    about: About | None = None,
) -> None:
    """Write the model card, named after the model file and the table that was measured on."""
    dataset = "not named" if measured_on is None else measured_on.name
    text = card_of(fitted, shown, name=file.saved_name(), dataset=dataset, about=about)
    target.write_text(text, encoding="utf-8", errors="replace")


def _lengths(texts: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({f"characters of {name}": texts[name].str.len() for name in texts})
