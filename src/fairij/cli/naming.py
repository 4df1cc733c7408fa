"""What a run is about, by the names of its files and columns; and both models on its test rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.cli.fitting import Fitted
from fairij.cli.measure import model_speaks
from fairij.cli.options import ColumnOptions, FitTables, PageOptions
from fairij.cli.rows import Part
from fairij.data.overlap import shared_rows
from fairij.data.ranges import unlike_columns
from fairij.errors import FairIJWarning, SeenRowsWarning
from fairij.mitigator import FairIJ
from fairij.report.about import About
from fairij.report.comparisons import Comparison, on_test_rows
from fairij.storage.model_files import ModelFile


def about_of(
    model: Path | None,
    file: ModelFile,
    tables: FitTables,
    page: PageOptions,
    columns: ColumnOptions,
) -> About:
    """The names that the page uses."""
    files = {"training": tables.train, "validation": tables.validation, "test": page.test}
    return About(
        model=str(columns.score) if model is None else model.name,
        edited=file.saved_name(),
        tables={name: path.name for name, path in files.items() if path is not None},
        label=columns.label,
        groups=tuple(dict.fromkeys(columns.sensitive)),
        favourable_given=bool(columns.positive or columns.classes or columns.pos_label),
    )


def labels_of(train: Part, test: Part) -> NDArray[Any]:
    """The test labels as the fitted mitigator names its classes."""
    if train.names is None:
        return test.y
    names: NDArray[Any] = np.asarray(train.names)
    return names[test.y.astype(int)]


def note_tables(fitted: Fitted, test: Part) -> None:
    """Warn if many test rows are training or validation rows too, or look prepared otherwise."""
    tables = {"training": fitted.train, "validation": fitted.validation}
    for name, part in tables.items():
        if part is None:
            continue
        text = shared_rows("test", name, (part.X, part.y), (test.X, test.y))
        if text is not None:
            warnings.warn(text, SeenRowsWarning, stacklevel=2)
    text = unlike_columns("test", "training", fitted.train.X, test.X)
    if text is not None:
        warnings.warn(text, FairIJWarning, stacklevel=2)


def tried_on(fitted: FairIJ, train: Part, test: Part) -> Comparison | None:
    """Both models on the test rows."""
    with model_speaks():
        return on_test_rows(fitted, test.X, labels_of(train, test), test.weighed)
