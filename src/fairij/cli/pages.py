"""The report page of a result and its tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fairij.cli.rows import Part
from fairij.mitigator import FairIJ


def write_page(
    fitted: FairIJ,
    target: Path,
    *,
    train: Part,
    test: Part | None,
    show_text: bool,
    title: str,
    overwrite: bool,
) -> None:
    """Write the page. Of texts it shows only the lengths, unless ``show_text``."""
    from fairij.report import write_report  # the charting library takes a moment to load

    rows = {}
    if test is not None:
        y = test.y if train.names is None else np.asarray(train.names)[test.y.astype(int)]
        rows = {"X_test": test.X, "y_test": y, "sensitive_features_test": test.groups}
    write_report(
        fitted,
        target,
        X=train.features if show_text or not train.is_text else _lengths(train.features),
        y=train.label,
        sensitive_features=train.groups,
        title=title,
        overwrite=overwrite,
        **rows,
    )


def _lengths(texts: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({f"characters of {name}": texts[name].str.len() for name in texts})
