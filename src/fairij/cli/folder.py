"""The folder that `mitigate` writes, and the work of `report`, which writes its page again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd

from fairij._version import __version__
from fairij.cli.config import HASHES, NEVER_FROM_FILE, changed_files, fits, read_toml, shortened
from fairij.cli.console import audit_dict, plain
from fairij.cli.fitting import make_mitigator, read_train, scores_frame
from fairij.cli.options import ColumnOptions, EditOptions, FitTables, ModelOptions, PageOptions
from fairij.cli.outputs import MARK, PAGE, check_target
from fairij.cli.rows import Part, read_part
from fairij.errors import InvalidInputError
from fairij.fairness import Audit
from fairij.fairness.optimism import HonestGap
from fairij.method.preparation import get_search
from fairij.method.refit import PredictedRefit
from fairij.mitigator import FairIJ
from fairij.models.losses import get_loss
from fairij.report import write_report
from fairij.storage.edits import Edit

EDIT, SUMMARY = "edit.safetensors", "summary.json"
CANDIDATES, INFLUENCE, SEAL = "candidates.csv", "influence.csv", "sha256"
GROUPS = (ModelOptions, ColumnOptions, FitTables, EditOptions, PageOptions)
OWN = {"model": Path, HASHES: dict[str, str]}
KINDS: dict[Any, str] = {
    Path: "a path",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list[str]: "a list of texts",
    list[float]: "a list of numbers",
}


def write_result(
    folder: Path, fitted: FairIJ, about: Mapping[str, Any], test: Mapping[str, Audit]
) -> dict[str, Any]:
    """Write edit, candidates, scores and summary; return the summary."""
    fitted.edit_.save(folder / EDIT)
    fitted.candidates_.to_csv(folder / CANDIDATES, index=False)
    scores_frame(fitted).to_csv(folder / INFLUENCE, index=False)
    parts = {"validation": {"before": fitted.before_, "after": fitted.after_}}
    if fitted.holdout_before_ is not None and fitted.holdout_after_ is not None:
        parts["holdout"] = {"before": fitted.holdout_before_, "after": fitted.holdout_after_}
    if test:
        parts["test"] = dict(test)
    summary: dict[str, Any] = plain(
        {
            **about,
            **{
                part: {when: audit_dict(audit) for when, audit in audits.items()}
                for part, audits in parts.items()
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
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def read_result(folder: Path, unfitted: FairIJ) -> FairIJ:
    """Fill ``unfitted`` with the result in a folder, as `fit` left it.

    ``moves_`` and ``direction_`` are as large as the model and no page needs them: left out.
    """
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if summary.get(SEAL) != _seal(folder, summary):
            raise ValueError(
                f"the hash in {SUMMARY} must fit {EDIT}, {CANDIDATES}, {INFLUENCE} and its own "
                "figures, but it is another one, or missing as in folders of an earlier version"
            )
        candidates = _exactly(folder / CANDIDATES)
        scores = _exactly(folder / INFLUENCE)
        audits = _audits(summary["validation"])
        held = _audits(summary["holdout"]) if "holdout" in summary else (None, None)
        honest = summary["honest_gap"] and HonestGap(**summary["honest_gap"])
        loss = get_loss(summary["edit"]["loss"])
        chosen, classes = int(summary["chosen"]), summary["classes"]
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
    fitted._honest_gap, fitted._choice, fitted.moves_ = honest, None, None
    fitted.loss_, fitted.classes_ = loss, np.asarray(classes)
    fitted.search_ = get_search(fitted.search)
    fitted.diagnostics_ = diagnostics
    return fitted


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

    return pd.DataFrame({name: column(name) for name in cells.columns})


def audit_from_dict(stored: Mapping[str, Any]) -> Audit:
    def frame(metrics: Mapping[str, Any]) -> pd.DataFrame:
        columns = ["value", "low", "high"]
        rows = {name: [row[column] for column in columns] for name, row in metrics.items()}
        found = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
        return found.astype(float).rename_axis("metric")

    by_group = pd.DataFrame.from_dict(stored["by_group"], orient="index")
    intervals = pd.DataFrame(stored["group_intervals"]).set_index(["group", "rate"])
    return Audit(
        frame(stored["metrics"]),
        by_group.rename_axis("group"),
        float(stored["confidence"]),
        intervals.astype(float),
        stored["positive_label"],
        frame(stored.get("more", {})),
    )


def write_page(
    fitted: FairIJ,
    target: Path,
    *,
    train: Part,
    test: Part | None,
    page: PageOptions,
    overwrite: bool = False,
) -> None:
    """Write the page. Of texts it shows only the lengths, unless asked for the texts."""
    rows = {}
    if test is not None:
        y = test.y if train.names is None else np.asarray(train.names)[test.y.astype(int)]
        rows = {"X_test": test.X, "y_test": y, "sensitive_features_test": test.groups}
    is_shown = page.show_text or not train.is_text
    write_report(
        fitted,
        target,
        X=train.features if is_shown else _lengths(train.features),
        y=train.label,
        sensitive_features=train.groups,
        title=page.title,
        overwrite=overwrite,
        **rows,
    )


def _lengths(texts: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({f"characters of {name}": texts[name].str.len() for name in texts})


def write_again(
    folder: Path,
    out: Path | None,
    *,
    title: str | None,
    show_text: bool,
    trust_pickle: bool,
    force: bool,
) -> Path:
    """Write the page of a folder, and return its path."""
    settings, target = _settings(folder), out or folder / PAGE
    check_target(target, force=force)
    with _as_said_in(folder / MARK):
        opening = dataclasses.replace(_of(ModelOptions, settings), trust_pickle=trust_pickle)
        columns, tables = _of(ColumnOptions, settings), _of(FitTables, settings)
        page = _of(PageOptions, settings)
        page = dataclasses.replace(
            page, title=title or page.title, show_text=show_text or page.show_text
        )
        file = opening.open(Path(settings["model"]))
        unfitted = make_mitigator(file.model, _of(EditOptions, settings))
    fitted = read_result(folder, unfitted)
    _check_unchanged(folder, settings)
    with _as_said_in(folder / MARK):
        train, test = read_train(tables, columns, file), None
        if page.test is not None:
            test = read_part(page.test, page.test_query, columns, file, with_weights=False)
    if len(train) != len(fitted.influence_):
        raise InvalidInputError(
            f"{tables.train} must be the training table of that run, of {len(fitted.influence_)} "
            f"rows; it has {len(train)} now."
        )
    with _as_said_in(folder / MARK):
        write_page(fitted, target, train=train, test=test, page=page, overwrite=force)
    return target


def _settings(folder: Path) -> dict[str, Any]:
    """The settings of a folder, checked: no key is unknown and none is missing."""
    mark = folder / MARK
    try:
        settings = read_toml(mark)
    except (OSError, InvalidInputError) as error:
        raise InvalidInputError(
            f"{folder} must be a folder as `fairij mitigate` writes it, with {MARK}: {error}"
        ) from None
    missing = [key for key in ("model", "train", "label", "sensitive") if key not in settings]
    if missing:
        raise InvalidInputError(
            f"{mark} must say {missing[0]!r}, but does not: add it as `fairij mitigate` had it."
        )
    known = OWN | {name: kind for group in GROUPS for name, kind in get_type_hints(group).items()}
    for key, value in settings.items():
        if key not in known or key in NEVER_FROM_FILE:
            raise InvalidInputError(f"{mark} has the key {key!r}, which no run writes: delete it.")
        if not fits(value, known[key]):
            raise InvalidInputError(
                f"{mark} must set {key!r} to {_spoken(known[key])}, got {shortened(value)}: write "
                "it as `fairij mitigate` had it."
            )
    return settings


def _spoken(kind: Any) -> str:
    """A type in words."""
    return next(KINDS[one] for one in (kind, *get_args(kind)) if one in KINDS)


@contextmanager
def _as_said_in(settings: Path) -> Iterator[None]:
    """Let errors name the file that the values come from."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{settings} cannot be followed: {error}") from None


def _check_unchanged(folder: Path, settings: dict[str, Any]) -> None:
    """Raise if a table has changed since the run. Tables behind queries are not checked."""
    names = [n for n in ("train", "test") if n in settings and f"{n}_query" not in settings]
    for name in changed_files(settings, {name: Path(settings[name]) for name in names}):
        raise InvalidInputError(
            f"{settings[name]} must be the table of that run, but it has changed since, and the "
            "page would show rows that were not used: put the old file back, or run `fairij "
            f"mitigate --config {folder / MARK}` again."
        )


def _of(kind: Any, settings: dict[str, Any]) -> Any:
    """An options object from its own settings."""
    names = {field.name for field in dataclasses.fields(kind)}
    given = {key: value for key, value in settings.items() if key in names}
    for key in ("train", "validation", "test"):
        if key in given:
            given[key] = Path(given[key])
    return kind(**given)
