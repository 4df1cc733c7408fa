"""Audits of a model on a table."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairij
from fairij.cli.options import MeasureOptions
from fairij.cli.rows import Part
from fairij.errors import FairIJError, InvalidInputError
from fairij.fairness import Audit, audit
from fairij.fairness.audit import audit_regression
from fairij.labels import encode_labels, positive_label
from fairij.models import adapt
from fairij.models.training import classes_of, loss_of


def measured(model: Any, part: Part, how: MeasureOptions) -> Audit:
    """Metrics with intervals, and rates by group; as `FairIJ` measures before and after."""
    with model_speaks():
        editable = adapt(model)
        z = editable.outputs(part.X)
    labels = encode_labels(z, z, part.y, part.y, loss_of(editable, how.loss), classes_of(editable))
    predicted = labels.loss.predict(z).cpu().numpy()
    truth = labels.train.cpu().numpy()
    settings: dict[str, Any] = {"confidence": how.confidence, "random_state": how.seed}
    if not labels.loss.is_classification:
        if part.weight is not None:
            raise InvalidInputError("Weights are for classification; leave --weights out.")
        return audit_regression(truth, predicted, sensitive_features=part.groups, **settings)
    if len(labels.classes) > 2:  # of two, 1 is the positive one whatever its name
        predicted, truth = labels.classes[predicted], labels.classes[truth.astype(int)]
    found = audit(
        truth, predicted, sensitive_features=part.groups, sample_weight=part.weight, **settings
    )
    return replace(found, positive_label=positive_label(part.named(labels.classes)))


@contextmanager
def model_speaks() -> Iterator[None]:
    """Let a library's complaint about the rows become one clear error."""
    try:
        yield
    except (FairIJError, OSError, MemoryError):
        raise
    except Exception as error:  # every library has its own kinds of error
        if _raised_here(error):
            raise
        text = " ".join(str(error).split())[:400].rstrip(".")
        raise InvalidInputError(
            f"The model must take these features as they are, but it says: {text}. Give the "
            "columns that it was trained on, prepared in the same way."
        ) from error


def _raised_here(error: Exception) -> bool:
    """Whether the error comes from this package's own code, and so is a fault of it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(fairij.__file__).parent in Path(last.filename).parents
