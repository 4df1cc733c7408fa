"""Labels for a model: encoded in the order of its outputs, with the loss that fits both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.row_vectors import blocks, by_blocks
from fairij.data.rows import n_rows, take_rows
from fairij.errors import InvalidInputError
from fairij.fairness.decisions import OWN, Decision, Threshold
from fairij.fairness.groups import numbers
from fairij.models.base import Editable
from fairij.models.losses import Loss, get_loss, infer_loss

ENCODED_AT_ONCE = 2**18  # labels


@dataclass(frozen=True)
class Labels:
    """Labels as the loss takes them, the loss, and what its class indices stand for."""

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
    """Labels for a model with these outputs; ``known`` are its classes if the model tells them."""
    check_outputs("X", z)
    check_outputs("X_val", z_val)
    named = None if isinstance(loss, str) and loss == "auto" else get_loss(loss)
    classes: NDArray[Any] = np.empty(0)
    both = (("y", y), ("y_val", y_val))
    if named is not None and not named.is_classification:
        encoded: list[NDArray[Any]] = [numbers(name, values) for name, values in both]
        if (encoded[1] == encoded[1][0]).all():
            raise InvalidInputError(
                f"`y_val` must vary so that R^2 is defined, but all of it is {encoded[1][0]:g}; "
                "add validation rows."
            )
    else:
        classes = class_labels(y, z) if known is None else np.asarray(known)
        width = 2 if z.ndim == 1 else z.shape[1]
        if len(classes) != width:
            raise InvalidInputError(
                f"The model's {1 if z.ndim == 1 else width} output(s) are for {width} labels, but "
                f"it has {len(classes)} labels, {classes[:5].tolist()}: name one for each output, "
                "or the negative and the positive one for a single output.",
                parameter="classes",
            )
        encoded = [encode_classes(name, values, classes) for name, values in both]
        if len(classes) == 2 and encoded[0].min() == encoded[0].max():
            raise one_class(classes[encoded[0][0]])
    train, validation = _like_outputs(z, encoded[0]), _like_outputs(z_val, encoded[1])
    for some in blocks(len(train)):
        chosen = named or infer_loss(z[some], train[some])
        chosen.check(z[some], train[some])
    chosen.check(z_val, validation)
    return Labels(chosen, classes, train, validation)


def known_classes(editable: Editable, y: NDArray[Any], given: Any = None) -> NDArray[Any] | None:
    """The class labels: as given, or the model's, or its words for them if labels are such words.

    If the model tells its classes, those given must be the same, in the same order.
    """
    if given is not None:
        return _given_classes(given, editable.classes)
    names = np.asarray(editable.class_names)
    if len(names) and y.dtype.kind in "UO":
        own = np.isin(y, names)
        if own.all():
            return names
        if own.any():
            raise InvalidInputError(
                f"`y` must hold the model's own labels, {names.tolist()}, or none of them; got "
                f"also {str(y[~own][0])!r}: correct it, or give `classes`."
            )
    return editable.classes


def _given_classes(given: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    listed = isinstance(given, (list, tuple, np.ndarray)) and np.ndim(given) == 1
    classes = np.asarray(given) if listed else np.empty(0)
    if classes.dtype.kind not in "biufUO" or len(set(map(str, classes))) < max(len(classes), 2):
        raise InvalidInputError(
            "`classes` must be the labels in the order of the model's outputs, at least two and "
            f"all different; got {given!r}."
        )
    if known is not None and list(map(str, classes.tolist())) != list(map(str, known.tolist())):
        raise InvalidInputError(
            f"`classes` must be the model's own labels in its order, {known.tolist()}; got "
            f"{classes.tolist()}: leave it out."
        )
    return classes


def check_runs(name: str, editable: Editable, X: Any) -> None:
    """Raise unless the model takes rows like these; two of them are tried."""
    try:
        editable.outputs(take_rows(X, np.arange(min(2, n_rows(X)))))
    except (InvalidInputError, torch.OutOfMemoryError):
        return  # there will be a better message once all rows are run
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
            "for parameters that became too large in training."
        )


def _like_outputs(z: Tensor, values: NDArray[Any]) -> Tensor:
    """The values as a tensor of the outputs' type, in memory or in a file like those."""
    return by_blocks(lambda some: torch.as_tensor(values[some], dtype=z.dtype, device=z.device), z)


def class_labels(y: NDArray[Any], z: Tensor) -> NDArray[Any]:
    """The class labels in the order of the model's outputs."""
    parts = [np.unique(y[i : i + ENCODED_AT_ONCE]) for i in range(0, len(y), ENCODED_AT_ONCE)]
    found = np.unique(np.concatenate(parts))
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
            return _in_order(found)
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


def _in_order(found: NDArray[Any]) -> NDArray[Any]:
    """Labels in the order of the outputs: numbers by size, two words by alphabet."""
    if found.dtype.kind in "biuf" or len(found) == 2:
        return found
    words = [str(word) for word in found]
    if all(word.isdecimal() for word in words):
        return found[np.argsort([int(word) for word in words])]
    raise InvalidInputError(
        f"`classes` must say which label each of the model's {len(found)} outputs is for, because "
        f"the labels are words ({', '.join(map(repr, words[:5]))}) and the model does not know "
        "them: pass them in the order of the outputs, as in training.",
        parameter="classes",
    )


def one_class(found: Any) -> InvalidInputError:
    return InvalidInputError(
        f"The training labels must hold both classes, found only {found!s}; give all the rows that "
        "the model was trained on."
    )


def positive_label(classes: NDArray[Any], decision: Decision = OWN) -> Any:
    """Of two classes the one whose rates are measured; None of several and in regression."""
    return decision_words(classes, decision)[1] if len(classes) == 2 else None


def decision_words(classes: NDArray[Any], decision: Decision) -> list[Any]:
    """The labels in the order in which decisions are numbered: the favourable one of two last."""
    return class_words(classes)[:: -1 if decision.flipped else 1]


def decision_of(labels: Labels, threshold: Threshold, pos_label: Any, z: Tensor) -> Decision:
    """The decision that is asked for, of a model with these labels and outputs."""
    given = {"threshold": threshold, "pos_label": pos_label}
    asked = [f"`{name}`" for name, value in given.items() if value is not None]
    if not asked:
        return OWN
    classes = class_words(labels.classes)
    if len(classes) != 2:
        kind = f"tells {len(classes)} labels apart" if classes else "predicts numbers"
        raise InvalidInputError(
            f"{' and '.join(asked)} must be left out, because this model {kind}: a cut-off and a "
            "favourable label need a model of two labels."
        )
    return Decision(threshold, _is_first(pos_label, classes), has_two=z.ndim == 2)


def _is_first(pos_label: Any, classes: list[Any]) -> bool:
    """Whether the favourable label is the first of two."""
    if pos_label is None:
        return False
    if np.ndim(pos_label) == 0:
        asked = str(class_words(np.asarray([pos_label]))[0])
        if asked in (names := [str(label) for label in classes]):
            return names.index(asked) == 0
    raise InvalidInputError(
        f"`pos_label` must be one of the model's two labels, {classes[0]!r} or {classes[1]!r}; got "
        f"{pos_label!r}."
    )


def class_words(classes: NDArray[Any]) -> list[Any]:
    """The labels as people write them: 1.0 as 1."""
    return [
        int(label) if isinstance(label, float) and label.is_integer() else label
        for label in classes.tolist()
    ]


def _kind_of(*labels: NDArray[Any]) -> Any:
    """The type in which labels are compared: whole numbers exactly, also beyond 2**53."""
    kinds = {array.dtype.kind for array in labels}
    if kinds <= set("bi") or kinds <= set("bu"):
        return np.int64 if "i" in kinds else np.uint64
    return np.float64 if kinds <= set("biuf") else np.str_


def encode_classes(name: str, y: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The place of each label among the classes."""
    kind = _kind_of(classes, y)
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
