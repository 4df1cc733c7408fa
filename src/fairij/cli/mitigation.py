"""The work of `fairij mitigate`: fit, measure on test rows, and write the folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairij.cli.black_boxes import opened_to_edit, reader
from fairij.cli.config import file_hash, note_changed
from fairij.cli.console import metrics_table, positive_said, print_json, say, show, show_views
from fairij.cli.edits import save_model
from fairij.cli.errors import TARGET_MISSED, fail
from fairij.cli.fitting import Fitted, fit, read_test
from fairij.cli.folder import (
    CARD,
    folder_holds,
    write_card,
    write_page,
    write_result,
)
from fairij.cli.naming import about_of, note_tables, tried_on
from fairij.cli.options import ColumnOptions, EditOptions, MitigateOptions
from fairij.cli.outputs import MARK, PAGE, check_folder, check_inputs_apart, whole_folder
from fairij.cli.rows import Part, check_two_groups, features_said
from fairij.cli.sentences import check_sentences, probe_of
from fairij.errors import InvalidInputError
from fairij.method.preparation import get_selection
from fairij.mitigator import FairIJ
from fairij.report.about import About
from fairij.report.checks import checks
from fairij.report.comparisons import Comparison, on_validation_rows
from fairij.report.headline import answer, costs
from fairij.report.probe import probe_check, probe_summary
from fairij.report.shortfalls import Shortfall, first_lines, shortfalls
from fairij.report.verdicts import MEANING, Check, reasons, worst
from fairij.storage.model_files import ModelFile

COMMAND = "mitigate"


def run(asked: MitigateOptions) -> None:
    page, out = asked.page, asked.out
    check_folder(out, COMMAND, force=asked.force)
    check_inputs_apart(out, asked.files())
    _check_apart(asked)
    check_sentences(page, asked.sentences)
    file = opened_to_edit(asked)
    test = None
    if page.test is not None:
        test = read_test(asked.tables, page, asked.columns, file)
        check_two_groups(test, page.test)
    note_changed(asked.config, asked.files())
    refits = tuple(asked.page.predict_refit or ())
    fitted = fit(file, asked, refits=refits, sentences=asked.sentences, checkpoint=asked.checkpoint)
    mitigator = fitted.mitigator
    if test is not None:
        note_tables(fitted, test)
    unseen = None if test is None else tried_on(mitigator, fitted.train, test)
    shown = unseen or on_validation_rows(mitigator)
    about = about_of(asked.model, file, asked.tables, page, asked.columns)
    missed = shortfalls(mitigator, shown, about)
    probe = probe_of(mitigator, file, fitted.train, test, page, asked.sentences)
    holds = folder_holds(file.saved_name(), page)
    with whole_folder(out, COMMAND, holds, force=asked.force) as folder:
        model = folder / file.saved_name()
        save_model(file, mitigator.estimator_, model, reader(file, asked.opening))
        (folder / MARK).write_text(asked.settings(COMMAND), encoding="utf-8")
        facts = _facts(file, fitted, asked.columns, test, shown, about)
        facts |= {} if probe is None else {"probe": probe_summary(probe)}
        summary = write_result(folder, mitigator, facts, unseen, fitted.train.identifier)
        write_page(
            mitigator,
            folder / PAGE,
            train=fitted.train,
            test=test,
            page=page,
            probe=probe,
            about=about,
        )
        if page.model_card:
            table = page.test or asked.tables.validation or asked.tables.train
            write_card(mitigator, folder / CARD, shown, file, table, about)
    if asked.as_json:
        print_json({**summary, "out": out})
    else:
        if probe is not None and probe.verdict == "red":
            say(probe.sentence)
        found = checks(mitigator, on_validation_rows(mitigator), unseen, about)
        found += [] if probe is None else [probe_check(mitigator, probe)]
        _show(shown, summary, features_said(fitted.train, asked.columns), found)
        if test is None:
            say("The choice was made on these rows: give --test for figures that you can rely on.")
        say(f"The edited model is {out / file.saved_name()}, the page is {out / PAGE}")
    _check_aims(mitigator, asked.edit, missed)


def _check_apart(asked: MitigateOptions) -> None:
    """Raise if one file serves as two kinds of rows, unless queries select them."""
    tables, page = asked.tables, asked.page
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


def _facts(
    file: ModelFile,
    fitted: Fitted,
    columns: ColumnOptions,
    test: Part | None,
    shown: Comparison,
    about: About,
) -> dict[str, Any]:
    features = fitted.train.feature_names
    split_off = np.isnan(fitted.mitigator.influence_)
    return {
        "answer": answer(fitted.mitigator, shown, about),
        "shortfalls": first_lines(fitted.mitigator, shown, about),
        "costs": costs(fitted.mitigator, shown),
        "model": file.saved_name(),
        "kind": file.kind,
        "rows": {
            "train": int((~split_off).sum()),
            "validation": int(split_off.sum())
            if fitted.validation is None
            else len(fitted.validation),
            "test": 0 if test is None else len(test),
        },
        "features": features,
        "sensitive": columns.sensitive,
        "sensitive_is_a_feature": any(name in features for name in columns.sensitive),
    }


def _show(shown: Comparison, summary: dict[str, Any], said: str, found: list[Check]) -> None:
    for text in summary["shortfalls"]:
        say(text)
    audits = {"before": shown.before, "after": shown.after}
    show(metrics_table(f"Before and after, on {shown.rows}", audits))
    show_views(audits)
    for text in shown.said:
        say(text)
    say(f"{summary['answer']} {summary['costs']}".strip())
    say(f"{positive_said(shown.after)} The model has {said}".strip())
    doubts = [check.name for check in found if check.verdict not in ("green", worst(found))]
    said = f"How far to trust it: {MEANING[worst(found)]}. {reasons(found)}".rstrip()
    say(said + (f" The page says more: {' '.join(doubts)}" if doubts else ""))


def _check_aims(fitted: FairIJ, asked: EditOptions, missed: list[Shortfall]) -> None:
    """End with an exit code of its own if a target or a budget that was given is missed."""
    is_asked = asked.accuracy_budget is not None or bool(asked.budget)
    texts = [part.text for part in missed if part.is_promise]
    if texts and (is_asked or get_selection(fitted.selection).target is not None):
        fail(f"{' '.join(texts)} The edit was written all the same.", TARGET_MISSED)
