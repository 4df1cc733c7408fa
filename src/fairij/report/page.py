"""`write_report`: one file that an auditor can read offline and print."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairij._version import __version__
from fairij.data.checks import whole_number
from fairij.data.overlap import shared_rows
from fairij.data.paths import path_of
from fairij.data.ranges import unlike_columns
from fairij.errors import FairIJWarning, SeenRowsWarning, printable
from fairij.language.probes import ProbeChange
from fairij.mitigator import FairIJ
from fairij.report import comparisons, facts, headline, sections, training_table
from fairij.report.about import About
from fairij.report.checks import checks
from fairij.report.comparisons import Comparison
from fairij.report.probe import probe_check, probe_section, probed
from fairij.report.render import assets, render
from fairij.report.shortfalls import first_lines
from fairij.report.verdicts import MEANING, deciding, noted, worst
from fairij.report.wording import is_edited
from fairij.storage.checksummed import write_whole

SECTIONS = (
    ("decisions", "Decisions that changed"),
    ("rates", "Rates by group"),
    ("probe", "Identity probe"),
    ("frontier", "Candidates"),
    ("influence", "Influence"),
    ("where", "Where it concentrates"),
    ("rows", "Harmful rows"),
    ("prediction", "Predicted and actual"),
    ("trust", "Trust"),
    ("settings", "Settings"),
    ("limits", "Limits"),
)


def write_report(
    fitted: FairIJ,
    path: str | os.PathLike[str],
    *,
    X: Any,
    y: Any = None,
    sensitive_features: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    sensitive_features_test: Any = None,
    control_features_test: Any = None,
    title: str = "Fairness report",
    feature_names: Sequence[str] | None = None,
    show_rows: int = 0,
    show_columns: Sequence[str] = (),
    probe: ProbeChange | None = None,
    about: About | None = None,
    overwrite: bool = False,
) -> Path:
    """Write one self-contained HTML page about a fitted `FairIJ`.

    No training row is listed unless you ask for it by ``show_rows``.

    Parameters
    ----------
    fitted : FairIJ
        The result.
    path : path-like
        The file to write. It appears whole or not at all.
    X : table
        The training rows, in the order in which `fit` got them. Give the table before encoding
        if you can: it is easier to read.
    y, sensitive_features : array-like, optional
        Labels and groups of the training rows.
    X_test, y_test, sensitive_features_test : table and array-likes, optional
        Rows that the edit never used, in the form that the model takes.
    control_features_test : array-like, optional
        Their strata, if the gap was closed within strata.
    title : str, default="Fairness report"
        The heading of the page.
    feature_names : sequence of str, optional
        Names for the columns of ``X``, if it has none.
    show_rows : int, default=0
        How many of the most harmful rows to list. They may be personal data. Numbers with decimals
        are rounded, and columns that tell rows apart are left out: those in which most rows have a
        value of their own, such as names and numbers of people.
    show_columns : sequence of str, optional
        Columns to list although they tell rows apart.
    probe : ProbeChange, optional
        The identity probe of a classifier of texts, as `identity_probe(...).since(...)` gives it.
        If the rows given here are texts, it is made with the usual sentences.
    about : About, optional
        The names of files and columns. Without it, names of series and frames are taken.
    overwrite : bool, default=False
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> from fairij.report import write_report
    >>> write_report(fair, "page.html", X=X, y=y).name
    'page.html'
    """
    check_is_fitted(fitted, "edit_")
    target = path_of("path", path, "name a file, as in 'page.html'")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it.")
    given = (X_test, y_test, sensitive_features_test, control_features_test)
    test = comparisons.on_test_rows(fitted, *given)
    if test is not None and y is not None:
        _note_tables((X, y), (X_test, y_test))
    rows = whole_number("show_rows", show_rows, 0)
    table = training_table.training_table(fitted, X, y, sensitive_features, feature_names)
    scored = np.flatnonzero(~np.isnan(fitted.influence_))
    where = sections.concentration_section(fitted, table, scored)
    notable = [name for found in where["slices"] for name in found.columns]
    asked = training_table.check_columns(table, show_columns)
    harmful = training_table.harmful_rows(fitted, rows)
    training = {
        "concentration": where,
        "harmful": training_table.harmful_table(fitted, table, harmful, notable, asked),
        "asked_rows": rows,
        "positive": int((fitted.influence_ > 0).sum()),
    }
    unseen = test or comparisons.on_held_out_rows(fitted)
    if probe is None:
        probe = probed(fitted, [(X_test, sensitive_features_test), (X, sensitive_features)])
    named = (about or About()).with_names(y, sensitive_features)
    text = _page(fitted, printable(str(title)), unseen, training, probe, named)
    write_whole(target, text.encode("utf-8", errors="replace"))
    return target


def _note_tables(train: tuple[Any, Any], test: tuple[Any, Any]) -> None:
    """Warn if many test rows are training rows too, or look prepared otherwise."""
    text = shared_rows("test", "training", train, test)
    if text is not None:
        warnings.warn(text, SeenRowsWarning, stacklevel=3)
    text = unlike_columns("test", "training", train[0], test[0])
    if text is not None:
        warnings.warn(text, FairIJWarning, stacklevel=3)


def _page(
    fitted: FairIJ,
    title: str,
    unseen: Comparison | None,
    training: dict[str, Any],
    probe: ProbeChange | None,
    about: About,
) -> str:
    validation = comparisons.on_validation_rows(fitted)
    shown = unseen or validation
    found = checks(fitted, validation, unseen, about)
    if probe is not None:
        found.append(probe_check(fitted, probe))
    verdict, missed = worst(found), first_lines(fitted, shown, about)
    absent = {"probe"} if probe is None else set()
    absent |= {"decisions"} if shown.changes is None else set()
    return render(
        "page.html",
        title=title,
        version=__version__,
        date=datetime.now(UTC).date().isoformat(),
        sections=[part for part in SECTIONS if part[0] not in absent],
        probe=None if probe is None else probe_section(probe),
        meanings=MEANING,
        shortfalls=missed,
        answer=headline.opening(fitted, shown, about),
        edited=is_edited(fitted),
        how=headline.how(fitted),
        about=facts.about_section(fitted, validation, unseen, about),
        decisions=facts.decisions_section(shown, about),
        shown_rows=shown.rows,
        words=facts.words_section(shown),
        tiles=headline.tiles(fitted, shown),
        checks=found,
        overall=verdict,
        meaning=MEANING[verdict],
        deciding=deciding(found),
        reasons=noted(found, missed),
        percent=f"{100 * shown.confidence:g}",
        positive_label=validation.before.positive_label,
        parts=sections.rates_section(fitted, validation, unseen),
        influence=sections.influence_section(fitted),
        prediction=sections.prediction_section(fitted),
        **sections.frontier_section(fitted),
        **sections.settings_section(fitted),
        **training,
        **assets(),
    )
