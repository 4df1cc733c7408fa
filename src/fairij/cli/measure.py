"""Audits of a model on a table."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fairij
from fairij.cli.options import MeasureOptions
from fairij.cli.rows import Part
from fairij.errors import FairIJError, InvalidInputError, SmallGroupWarning
from fairij.fairness import Audit, audit, audit_regression
from fairij.fairness.constraints import SMALL_CELL
from fairij.fairness.groups import encode_groups
from fairij.models import adapt
from fairij.models.labels import encode_labels, positive_label


def measured(model: Any, part: Part, how: MeasureOptions) -> Audit:
    """Metrics with intervals and rates by group, measured as `FairIJ` does."""
    with model_speaks():
        editable = adapt(model)
        z = editable.outputs(part.X)
    _check_rows(part, one_output=z.ndim == 1 and editable.classes is None)
    loss = (editable.loss_name or how.loss) if how.loss == "auto" else how.loss
    labels = encode_labels(z, z, part.y, part.y, loss, editable.classes)
    predicted = labels.loss.predict(z).cpu().numpy()
    truth = labels.train.cpu().numpy()
    settings: dict[str, Any] = {"confidence": how.confidence, "random_state": how.seed}
    if not labels.loss.is_classification:
        if part.weight is not None:
            raise InvalidInputError("Weights are for classification; leave --weights out.")
        return audit_regression(truth, predicted, sensitive_features=part.groups, **settings)
    if len(labels.classes) > 2:  # of two classes, 1 is the positive one
        predicted, truth = labels.classes[predicted], labels.classes[truth.astype(int)]
    found = audit(
        truth, predicted, sensitive_features=part.groups, sample_weight=part.weight, **settings
    )
    return replace(found, positive_label=positive_label(part.named(labels.classes)))


def _check_rows(part: Part, *, one_output: bool) -> None:
    """Raise if a label is missing from the table; warn of small groups."""
    if one_output and len(np.unique(part.y)) == 1:
        raise InvalidInputError(
            f"The table must have rows of both labels, but all of them have {part.label[0]!s}: "
            "give rows of both."
        )
    sizes = encode_groups(part.groups).sizes
    if sizes.min() < SMALL_CELL:
        few = int((sizes < SMALL_CELL).sum())
        warnings.warn(
            f"{few} of {len(sizes)} groups have fewer than {SMALL_CELL} rows to measure on, the "
            f"smallest {sizes.min()}: their rates are very uncertain, see the intervals. Cut a "
            "continuous attribute into ranges, or merge groups.",
            SmallGroupWarning,
            stacklevel=3,
        )


@contextmanager
def model_speaks() -> Iterator[None]:
    """Turn any error of the model's library into one clear error."""
    try:
        yield
    except (FairIJError, OSError, MemoryError):
        raise
    except Exception as error:  # libraries raise errors of any kind
        if _raised_here(error):
            raise
        text = " ".join(str(error).split())[:400].rstrip(".")
        raise InvalidInputError(
            f"The model must take these features as they are, but it says: {text}. Give the "
            "columns that it was trained on, prepared in the same way."
        ) from error


def _raised_here(error: Exception) -> bool:
    """Whether the error comes from the code of this package, so is a bug."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(fairij.__file__).parent in Path(last.filename).parents
