"""Labels, outputs and groups: whether they fit together, and labels as the loss takes them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from fairij.data.rows import n_rows, take_rows
from fairij.errors import FairIJWarning, InvalidInputError, SmallGroupWarning
from fairij.fairness import arrays
from fairij.fairness.constraints import CONSTRAINTS, Constraint
from fairij.fairness.groups import Groups
from fairij.fairness.optimism import half_width, rows_needed
from fairij.method.losses import Loss, get_loss, infer_loss
from fairij.method.objective import blocks, by_blocks
from fairij.models.base import Editable

SMALL_CELL = 30
REVERSED = 0.4  # of a chance of one half
ENCODED_AT_ONCE = 2**18  # labels


@dataclass(frozen=True)
class Labels:
    """Labels as the loss takes them, with the loss and what its class indices stand for."""

    loss: Loss
    classes: NDArray[Any]  # empty in regression
    train: Tensor
    validation: Tensor


def encode_labels(
    z: Tensor,
    z_val: Tensor,
    y: NDArray[Any],
    y_val: NDArray[Any],
    loss: str | Loss,
    known: NDArray[Any] | None = None,
) -> Labels:
    """Labels of training and validation rows for a model with these outputs.

    ``known`` are the class labels in the order of the outputs, where the model tells them.
    """
    check_outputs("X", z)
    check_outputs("X_val", z_val)
    named = None if isinstance(loss, str) and loss == "auto" else get_loss(loss)
    classes: NDArray[Any] = np.empty(0)
    both = (("y", y), ("y_val", y_val))
    if named is not None and not named.is_classification:
        encoded: list[NDArray[Any]] = [arrays.numbers(name, values) for name, values in both]
        if (encoded[1] == encoded[1][0]).all():
            raise InvalidInputError(
                f"`y_val` must vary so that R^2 is defined, but all of it is {encoded[1][0]:g}; "
                "add validation rows."
            )
    else:
        classes = class_labels(y, z) if known is None else np.asarray(known)
        encoded = [encode_classes(name, values, classes) for name, values in both]
        if len(classes) == 2 and encoded[0].min() == encoded[0].max():
            raise one_class(classes[encoded[0][0]])
    train, validation = _beside(z, encoded[0]), _beside(z_val, encoded[1])
    for some in blocks(len(train)):
        chosen = named or infer_loss(z[some], train[some])
        chosen.check(z[some], train[some])
    chosen.check(z_val, validation)
    return Labels(chosen, classes, train, validation)


def _beside(z: Tensor, values: NDArray[Any]) -> Tensor:
    """The values as a tensor of the outputs' type, where those are."""
    return by_blocks(lambda some: torch.as_tensor(values[some], dtype=z.dtype, device=z.device), z)


def class_labels(y: NDArray[Any], z: Tensor) -> NDArray[Any]:
    """The class labels in the order of the model's outputs."""
    found = np.unique(np.concatenate([np.unique(y[some]) for some in blocks(len(y))]))
    fractions = found[found != found.round()] if found.dtype.kind == "f" else found[:0]
    if len(fractions):
        raise InvalidInputError(
            f"`y` must hold class labels, got the fraction {fractions[0]:g}; pass "
            "loss='squared_error' for regression."
        )
    if z.ndim == 2:
        indices = np.arange(z.shape[1])
        if found.dtype.kind in "iufb" and np.isin(found, indices).all():
            return indices
        if len(found) == z.shape[1]:
            return found
        raise InvalidInputError(
            f"The model has {z.shape[1]} outputs, so labels must be 0 to {z.shape[1] - 1} or have "
            f"as many distinct values; found {found[:8].tolist()}."
        )
    if len(found) == 1:
        raise one_class(found[0])
    if len(found) > 2:
        raise InvalidInputError(
            f"A model with one output takes two classes, found {len(found)} label values "
            f"({', '.join(str(v) for v in found[:5])}, ...); pass loss='squared_error' for "
            "regression."
        )
    return found


def one_class(found: Any) -> InvalidInputError:
    return InvalidInputError(
        f"The training labels must hold both classes, found only {found!s}; give all the rows that "
        "the model was trained on."
    )


def positive_label(classes: NDArray[Any]) -> Any:
    """Of two classes the second, whose rates are measured; None of several and in regression."""
    if len(classes) != 2:
        return None
    label = classes.tolist()[1]
    return int(label) if isinstance(label, float) and label.is_integer() else label


def encode_classes(name: str, y: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The place of each label among the classes."""
    kind = np.float64 if {classes.dtype.kind, y.dtype.kind} <= set("biuf") else np.str_
    smallest = np.min_scalar_type(-len(classes))
    known, place = pd.Index(classes.astype(kind)), np.empty(len(y), smallest)
    for start in range(0, len(y), ENCODED_AT_ONCE):  # what is made on the way is much larger
        some = slice(start, start + ENCODED_AT_ONCE)
        place[some] = known.get_indexer(pd.Index(y[some].astype(kind)))
    if place.min(initial=0) < 0:
        row = int(np.flatnonzero(place < 0)[0])
        raise InvalidInputError(
            f"`{name}` must hold only the labels {classes.tolist()}: row {row} holds "
            f"{y[row : row + 1].tolist()[0]!r}; drop such rows, or encode both tables alike."
        )
    return place


def check_runs(name: str, editable: Editable, X: Any) -> None:
    """Raise unless the model takes rows like these; two of them are tried."""
    try:
        editable.outputs(take_rows(X, np.arange(min(2, n_rows(X)))))
    except (InvalidInputError, torch.OutOfMemoryError):
        return  # told more fully once all rows are run
    except (RuntimeError, TypeError, IndexError, KeyError) as error:
        raise InvalidInputError(
            f"The model must take `{name}` as it is given, but it says: {error}. Give the features "
            "that it was trained on, prepared in the same way."
        ) from error


def check_outputs(name: str, z: Tensor) -> None:
    if not all(bool(torch.isfinite(z[some]).all()) for some in blocks(len(z))):
        bad = ~torch.isfinite(z.flatten(1) if z.ndim > 1 else z[:, None]).all(1)
        raise InvalidInputError(
            f"The model's outputs on `{name}` must be finite: row {int(torch.nonzero(bad)[0])} "
            f"gives NaN or infinity ({int(bad.sum())} rows in all); look for extreme features, or "
            "parameters that training has blown up."
        )


def warn_if_reversed(labels: Labels, z_val: Tensor, *, stacklevel: int) -> None:
    """Warn where outputs are clearly higher for the label that they speak against."""
    truth = labels.validation.cpu().numpy()
    if len(labels.classes) != 2 or truth.min() == truth.max():
        return
    z = z_val.double().cpu().numpy()
    place = rankdata(z[:, 1] - z[:, 0] if z.ndim == 2 else z)[truth == 1]
    ranked = float(place.mean() - (len(place) + 1) / 2) / (len(truth) - len(place))
    if ranked < REVERSED:
        low, high = labels.classes.tolist()
        warnings.warn(
            f"The model's output is taken to speak for {high!r} against {low!r}, but on the "
            f"validation rows it is rather higher for {low!r} (area under the ROC curve "
            f"{ranked:.2f}). If it was trained the other way round, or on other columns, what "
            "follows is of no use: give labels as 0 and 1, and rows as in training.",
            FairIJWarning,
            stacklevel=stacklevel + 1,
        )


def check_constraint(
    constraint: Constraint, labels: Labels, groups: Groups, *, stacklevel: int
) -> None:
    """Raise unless the constraint fits the task and has rows enough in every group it compares."""
    if constraint.takes_outputs:
        return  # a user's own function decides for itself
    if constraint.is_classification != labels.loss.is_classification:
        kind = "classification" if labels.loss.is_classification else "regression"
        fitting = [
            name
            for name, c in CONSTRAINTS.items()
            if c.is_classification == labels.loss.is_classification
        ]
        raise InvalidInputError(
            f"`constraints` must be defined for {kind}: one of {sorted(fitting)}, got "
            f"{constraint.name!r}."
        )
    if groups.absent:
        raise InvalidInputError(
            f"Every group must have validation rows, but {', '.join(map(repr, groups.absent))} "
            "has none, so its gap is unknown: add rows of it, or remove the unused category."
        )
    if len(groups.names) < 2:
        raise InvalidInputError(
            "A gap needs at least two groups on the validation rows, found only "
            f"{groups.names[0]!r}; add rows of another group."
        )
    cells = _cells(constraint, labels, groups)
    _check_sizes(cells, constraint.needs_truth, stacklevel + 1)


def check_precision(
    constraint: Constraint, labels: Labels, groups: Groups, selection: Any, *, stacklevel: int
) -> None:
    """Warn where a gap is asked for that some group has too few rows to show."""
    target = selection.target
    if not target or constraint.takes_outputs or not labels.loss.is_classification:
        return
    cells = _cells(constraint, labels, groups)
    rate = float((labels.validation == 1).double().mean())
    rate = 0.5 if constraint.needs_truth else min(max(rate, 0.05), 0.95)
    enough = rows_needed(rate, target)
    small = {name: n for name, n in cells.items() if n < enough}
    if small:
        name, n = min(small.items(), key=lambda item: item[1])
        warnings.warn(
            f"A gap of {target:g} is asked for, but {n} rows of {name!r} show its rate to within "
            f"{half_width(rate, n):.2g} only: about {enough:,} validation rows of each group would "
            "do.",
            SmallGroupWarning,
            stacklevel=stacklevel + 1,
        )


def _cells(constraint: Constraint, labels: Labels, groups: Groups) -> dict[str, int]:
    """How many validation rows each rate that the constraint compares is taken over."""
    if not constraint.needs_truth:
        return {name: int(n) for name, n in zip(groups.names, groups.sizes, strict=True)}
    n_classes = len(labels.classes)
    every = n_classes > 2 or constraint.every_label
    truth = labels.validation.cpu().numpy()
    return {
        f"{name} with label {labels.classes[label]}": int(
            ((groups.codes == code) & (truth == label)).sum()
        )
        for code, name in enumerate(groups.names)
        for label in (range(n_classes) if every else [1])
    }


def _check_sizes(cells: dict[str, int], given_label: bool, stacklevel: int) -> None:
    few = {name: n for name, n in cells.items() if n < 2}
    if few:
        raise InvalidInputError(
            "Every group needs at least two validation rows"
            + (" of each label that the constraint looks at" if given_label else "")
            + f"; found {_listed(few)}. Add validation rows, merge groups (cut a continuous "
            "attribute into ranges), or choose another constraint."
        )
    small = {name: n for name, n in cells.items() if n < SMALL_CELL}
    if small:
        warnings.warn(
            f"Few validation rows: {_listed(small)}. Rates over fewer than {SMALL_CELL} rows are "
            "very uncertain; see the intervals in `before_` and `after_`.",
            SmallGroupWarning,
            stacklevel=stacklevel + 1,
        )


def _listed(cells: dict[str, int], most: int = 6) -> str:
    some = [f"{n} of {name!r}" for name, n in list(cells.items())[:most]]
    more = len(cells) - len(some)
    return ", ".join(some) + (f" and {more} more like these" if more else "")
