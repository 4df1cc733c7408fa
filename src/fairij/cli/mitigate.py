"""`fairij mitigate`: the edited model, the edit, the report, and what was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairij.cli.config import as_asked, file_hash, note_changed, settings_toml
from fairij.cli.display import metrics_table, positive_said, print_json, say, show
from fairij.cli.errors import TARGET_MISSED, fail
from fairij.cli.fitting import Fitted, fit
from fairij.cli.folder import PAGE, write_result
from fairij.cli.measure import measured
from fairij.cli.options import (
    ColumnOptions,
    Config,
    EditOptions,
    FitTables,
    Force,
    Json,
    MeasureOptions,
    ModelOptions,
    ModelPath,
)
from fairij.cli.outputs import MARK, check_target, save_model, whole_folder
from fairij.cli.pages import write_page
from fairij.cli.rows import Part, check_two_groups, features_said, read_part
from fairij.errors import InvalidInputError
from fairij.fairness import Audit
from fairij.method.selection import TargetGap
from fairij.mitigator import FairIJ
from fairij.report.checks import MEANING, checks, worst
from fairij.report.comparisons import Comparison, on_validation_rows
from fairij.report.headline import answer, costs
from fairij.storage.model_files import ModelFile

EXAMPLES = (
    "fairij mitigate --model model.txt --train train.csv --validation validation.csv "
    "--test test.csv --label income --sensitive sex --out result",
    "fairij mitigate --model model.skops --train train.parquet --validation validation.parquet "
    "--label y --sensitive race --constraint equal_opportunity --accuracy-budget 0.01 --out result",
    "fairij mitigate --config result/settings.toml --out again",
)


def mitigate(
    model: ModelPath,
    tables: FitTables,
    columns: ColumnOptions,
    opening: ModelOptions,
    edit: EditOptions,
    out: Annotated[Path, typer.Option(help="New folder for all that comes of it.")],
    test: Annotated[
        Path | None, typer.Option(help="Rows that play no part, to report on honestly.")
    ] = None,
    test_query: Annotated[str | None, typer.Option(help="SQL, if --test is a DuckDB file.")] = None,
    title: Annotated[str, typer.Option(help="Of the report page.")] = "Fairness report",
    show_text: Annotated[
        bool,
        typer.Option(
            "--show-text",
            help="Show the worst training texts on the page; without this only their lengths.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder to note the work in: the same run goes on where it stopped."),
    ] = None,
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Edit a model so that a gap between groups shrinks, without training it again.

    The folder holds the edited model in its own format (model.*), edit.safetensors to apply or
    undo it, report.html, summary.json, candidates.csv, influence.csv, and settings.toml, with which
    the run can be repeated.
    """
    check_target(out, force=force, folder=True)
    files = {"model": model, **tables.files(), "test": test}
    _check_apart(tables, test, test_query)
    file = opening.open(model)
    test_part = None
    if test is not None:
        read = read_part(test, test_query, columns, file, with_weights=False)
        test_part = check_two_groups(read, test)
    note_changed(config, files)
    fitted = fit(file, tables, columns, edit, checkpoint=checkpoint)
    audits = _on_test(fitted.mitigator, test_part, edit)
    named: dict[str, Any] = {
        "model": model,
        "test": test,
        "test_query": test_query,
        "title": title,
        "show_text": show_text,
    }
    settings = as_asked(named, opening, tables, columns, edit)
    with whole_folder(out, force=force) as folder:
        save_model(file, fitted.mitigator.estimator_, folder / file.saved_name(), opening.open)
        (folder / MARK).write_text(settings_toml("mitigate", settings, files), encoding="utf-8")
        about = _about(file, fitted, columns, test_part, audits)
        summary = write_result(folder, fitted.mitigator, about, audits)
        write_page(
            fitted.mitigator,
            folder / PAGE,
            train=fitted.train,
            test=test_part,
            show_text=show_text,
            title=title,
            overwrite=False,
        )
    if as_json:
        print_json({**summary, "out": out})
    else:
        said = features_said(fitted.train, columns)
        _show(fitted.mitigator, audits, out, file, summary, said)
    _check_target(fitted.mitigator)


def _check_apart(tables: FitTables, test: Path | None, test_query: str | None) -> None:
    """Raise where one file serves as two kinds of rows; a DuckDB file may, by different queries."""
    given = {
        "train": (tables.train, tables.train_query),
        "validation": (tables.validation, tables.validation_query),
        "test": (test, test_query),
    }
    known: dict[str, str] = {}
    for name, (path, query) in given.items():
        if path is None or query is not None or not path.is_file():
            continue
        other = known.setdefault(file_hash(path), name)
        if other != name:
            raise InvalidInputError(
                f"--{name} must hold other rows than --{other}, but the two files are the same: "
                "figures on rows that played a part in the edit mislead. Leave one out, or give "
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


def comparison(fitted: FairIJ, test: dict[str, Audit]) -> Comparison:
    """On the rows that deserve most trust."""
    return Comparison("test rows", **test) if test else on_validation_rows(fitted)


def _about(
    file: ModelFile,
    fitted: Fitted,
    columns: ColumnOptions,
    test: Part | None,
    audits: dict[str, Audit],
) -> dict[str, Any]:
    features = fitted.train.feature_names
    shown = comparison(fitted.mitigator, audits)
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
    shown = comparison(fitted, test)
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
        say("The choice was made on these rows: give --test for figures that can be relied on.")
    say(f"The edited model is {out / file.saved_name()}, the page is {out / PAGE}")


def _check_target(fitted: FairIJ) -> None:
    if not isinstance(fitted.selection, TargetGap):
        return
    gap = float(fitted.candidates_["gap"].iloc[fitted.chosen_])
    if fitted.selection.shortfall(gap):
        fail(
            f"no edit reached the gap of {fitted.selection.gap:g} asked for; the lowest, "
            f"{gap:.4f}, was written.",
            TARGET_MISSED,
        )
