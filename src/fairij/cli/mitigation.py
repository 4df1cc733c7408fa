"""The work of `fairij mitigate`: fit, measure on test rows, and write the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairij.cli.config import as_asked, file_hash, note_changed, settings_toml
from fairij.cli.console import print_json, say, show
from fairij.cli.display import metrics_table, positive_said
from fairij.cli.errors import TARGET_MISSED, fail
from fairij.cli.fitting import Fitted, fit
from fairij.cli.folder import write_result
from fairij.cli.measure import measured
from fairij.cli.options import (
    ColumnOptions,
    EditOptions,
    FitTables,
    MeasureOptions,
    ModelOptions,
    PageOptions,
)
from fairij.cli.outputs import MARK, PAGE, check_target, save_model, whole_folder
from fairij.cli.pages import write_page
from fairij.cli.rows import Part, check_two_groups, features_said, read_part
from fairij.errors import InvalidInputError
from fairij.fairness import Audit
from fairij.method.selection import TargetGap
from fairij.mitigator import FairIJ
from fairij.report.checks import MEANING, checks, worst
from fairij.report.comparisons import Comparison, compared, on_validation_rows
from fairij.report.headline import answer, costs
from fairij.storage.model_files import ModelFile


@dataclass(frozen=True)
class Asked:
    """The options that decide the result."""

    model: Path
    tables: FitTables
    columns: ColumnOptions
    opening: ModelOptions
    edit: EditOptions
    page: PageOptions

    def files(self) -> dict[str, Path | None]:
        return {"model": self.model, **self.tables.files(), "test": self.page.test}

    def settings(self) -> str:
        """All options as TOML, with the hashes of the files."""
        groups = (self.page, self.opening, self.tables, self.columns, self.edit)
        return settings_toml("mitigate", as_asked({"model": self.model}, *groups), self.files())


def run(
    asked: Asked,
    out: Path,
    *,
    checkpoint: Path | None,
    as_json: bool,
    force: bool,
    config: Path | None,
) -> None:
    check_target(out, force=force, folder=True)
    _check_apart(asked.tables, asked.page)
    file = asked.opening.open(asked.model)
    test = _read_test(asked, file)
    note_changed(config, asked.files())
    fitted = fit(file, asked.tables, asked.columns, asked.edit, checkpoint=checkpoint)
    audits = _on_test(fitted.mitigator, test, asked.edit)
    with whole_folder(out, force=force) as folder:
        model = folder / file.saved_name()
        save_model(file, fitted.mitigator.estimator_, model, asked.opening.open)
        (folder / MARK).write_text(asked.settings(), encoding="utf-8")
        about = _about(file, fitted, asked.columns, test, audits)
        summary = write_result(folder, fitted.mitigator, about, audits)
        write_page(
            fitted.mitigator,
            folder / PAGE,
            train=fitted.train,
            test=test,
            show_text=asked.page.show_text,
            title=asked.page.title,
            overwrite=False,
        )
    if as_json:
        print_json({**summary, "out": out})
    else:
        said = features_said(fitted.train, asked.columns)
        _show(fitted.mitigator, audits, out, file, summary, said)
    _check_target_gap(fitted.mitigator)


def _read_test(asked: Asked, file: ModelFile) -> Part | None:
    path, query = asked.page.test, asked.page.test_query
    if path is None:
        return None
    return check_two_groups(read_part(path, query, asked.columns, file, with_weights=False), path)


def _check_apart(tables: FitTables, page: PageOptions) -> None:
    """Raise if one file serves as two kinds of rows, unless queries select them."""
    given = {
        "train": (tables.train, tables.train_query),
        "validation": (tables.validation, tables.validation_query),
        "test": (page.test, page.test_query),
    }
    known: dict[str, str] = {}
    for name, (path, query) in given.items():
        if path is None or query is not None or not path.is_file():
            continue
        other = known.setdefault(file_hash(path), name)
        if other != name:
            raise InvalidInputError(
                f"--{name} must hold other rows than --{other}, but the two files are the same: "
                "figures on rows that the edit was made from mislead. Leave one out, or give "
                "other rows."
            )


def _on_test(fitted: FairIJ, part: Part | None, edit: EditOptions) -> dict[str, Audit]:
    if part is None:
        return {}
    how = MeasureOptions(fitted.loss_.name, edit.confidence, edit.seed)
    return {
        when: measured(model, part, how)
        for when, model in (("before", fitted.estimator), ("after", fitted.estimator_))
    }


def _comparison(fitted: FairIJ, test: dict[str, Audit]) -> Comparison:
    """Before and after, on test rows if there are any."""
    return compared(fitted, "test rows", **test) if test else on_validation_rows(fitted)


def _about(
    file: ModelFile,
    fitted: Fitted,
    columns: ColumnOptions,
    test: Part | None,
    audits: dict[str, Audit],
) -> dict[str, Any]:
    features = fitted.train.feature_names
    shown = _comparison(fitted.mitigator, audits)
    return {
        "answer": answer(fitted.mitigator, shown),
        "costs": costs(fitted.mitigator, shown),
        "model": file.saved_name(),
        "kind": file.kind,
        "rows": {
            "train": int((~_is_nan(fitted.mitigator)).sum()),
            "validation": int(_is_nan(fitted.mitigator).sum())
            if fitted.validation is None
            else len(fitted.validation),
            "test": 0 if test is None else len(test),
        },
        "features": features,
        "sensitive": columns.sensitive,
        "sensitive_is_a_feature": any(name in features for name in columns.sensitive),
    }


def _is_nan(fitted: FairIJ) -> Any:
    scores = fitted.influence_
    return scores != scores


def _show(
    fitted: FairIJ,
    test: dict[str, Audit],
    out: Path,
    file: ModelFile,
    summary: dict[str, Any],
    said: str,
) -> None:
    shown = _comparison(fitted, test)
    audits = {"before": shown.before, "after": shown.after}
    show(metrics_table(f"Before and after, on {shown.rows}", audits))
    say(f"{summary['answer']} {summary['costs']}".strip())
    say(f"{positive_said(shown.after)} The model has {said}".strip())
    unseen = shown if test else None
    found = checks(fitted, on_validation_rows(fitted), unseen)
    doubts = [check.name for check in found if check.verdict != "green"]
    why = f" The page says more: {' '.join(doubts)}" if doubts else ""
    say(f"How far to trust it: {MEANING[worst(found)]}.{why}")
    if not test:
        say("The choice was made on these rows: give --test for figures that you can rely on.")
    say(f"The edited model is {out / file.saved_name()}, the page is {out / PAGE}")


def _check_target_gap(fitted: FairIJ) -> None:
    if not isinstance(fitted.selection, TargetGap):
        return
    gap = float(fitted.candidates_["gap"].iloc[fitted.chosen_])
    if fitted.selection.shortfall(gap):
        fail(
            f"no edit reached the gap of {fitted.selection.gap:g} asked for; the lowest, "
            f"{gap:.4f}, was written.",
            TARGET_MISSED,
        )
