"""Models that are not what they seem: what their outputs say against them.

Outputs may be probabilities where logits are expected, may speak for another label than they are
taken for, may say the same of nearly all rows, or may have nothing to do with the labels.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata
from torch import Tensor

from fairij.data.checks import one_of
from fairij.data.row_vectors import blocks
from fairij.errors import InvalidInputError, Notice
from fairij.fairness.decisions import OWN, Decision
from fairij.models.base import Editable
from fairij.models.labels import Labels, class_words
from fairij.models.losses import Loss, get_loss

Outputs = Literal["auto", "logits", "probabilities"]
OUTPUTS = get_args(Outputs)
SURE = 3.3  # standard errors: by chance once in a thousand tables
FAR = 0.05  # of an area under the ROC curve, or of all rows
NEARLY_ALL = 0.95  # of the rows
ENOUGH = 0.1  # how far off chance may be, at most, to say that there is nothing but chance


def outputs_asked(outputs: Outputs, loss: str | Loss) -> Outputs:
    """What a module's outputs are to be taken for: those of a regression as they are."""
    one_of("outputs", outputs, OUTPUTS)
    own = not isinstance(loss, str)  # the user's loss, on whatever the module returns
    kept = own or (loss != "auto" and not get_loss(loss).is_classification)
    return "logits" if kept else outputs


def check_are_logits(editable: Editable, loss: Loss, *tables: Tensor) -> None:
    """Raise if outputs that nobody has named could be probabilities as well as logits."""
    if editable.outputs_are != "unknown" or not loss.is_classification or tables[0].ndim > 1:
        return
    low = min(float(z[some].min()) for z in tables for some in blocks(len(z)))
    high = max(float(z[some].max()) for z in tables for some in blocks(len(z)))
    if low == 0 and high == 1 and all(bool(((z == 0) | (z == 1)).all()) for z in tables):
        raise InvalidInputError(
            "The model must return scores, but it returns labels, 0 or 1 for each row: take the "
            "threshold or argmax off its end."
        )
    if 0 <= low < high <= 1:
        raise InvalidInputError(
            f"`outputs` must be said for this model: what it returns lies between {low:.3g} and "
            f"{high:.3g} in all rows, so it may be probabilities, or logits that are positive for "
            "every row. Pass outputs='probabilities' or outputs='logits', or let the model return "
            "logits."
        )


def doubts(
    labels: Labels, z_val: Tensor, decision: Decision = OWN, *, confirmed: bool
) -> list[Notice]:
    """What speaks against the model on validation rows.

    Outputs that speak for another label are an error, unless the order of the labels is
    ``confirmed``. A model that predicts one label for nearly all rows is a notice, and so is one
    that knows nothing of the labels.
    """
    if not labels.loss.is_classification:
        return []
    truth = labels.validation.cpu().numpy().astype(np.int64)
    accepted = labels.loss.predict(decision.outputs(z_val))
    predicted = decision.labels(accepted).cpu().numpy()
    names = class_words(labels.classes)
    found = _reversed(truth, z_val, names) if len(names) == 2 else None
    found = found or _exchanged(truth, predicted, names)
    if found and not confirmed:
        listed = f"({', '.join(map(repr, names))})"
        cure = (
            ""
            if len(names) > 2
            else (
                f" If the output speaks for {names[0]!r}, give `classes` in the other order, "
                f"({names[1]!r}, {names[0]!r})."
            )
        )
        raise InvalidInputError(
            f"The model's outputs must speak for the labels that they are taken for, but {found} "
            "Check which label the model was trained to call 1, and whether the columns are those "
            f"of training.{cure} If all is right as it is, confirm it by `classes` in this order, "
            f"{listed}.",
            parameter="classes",
        )
    texts = [f"Something is wrong with the model or its labels: {found}"] if found else []
    texts += _constant(truth, predicted, names)
    texts = texts or _unrelated(truth, predicted, z_val, names)
    if not texts and decision.is_own:
        texts = _cut_elsewhere(truth, predicted, z_val, names)
    return [Notice(text) for text in texts]


def _area(truth: NDArray[np.int64], z: Tensor) -> tuple[float, float] | None:
    """The area under the ROC curve of two labels, and how far chance may take it from one half."""
    n, positive = len(truth), int((truth == 1).sum())
    if positive in (0, n):
        return None
    z = z.detach().double().cpu()
    place = rankdata((z[:, 1] - z[:, 0] if z.ndim == 2 else z).numpy())[truth == 1]
    area = float(place.mean() - (positive + 1) / 2) / (n - positive)
    return area, SURE * ((n + 1) / (12 * positive * (n - positive))) ** 0.5


def _reversed(truth: NDArray[np.int64], z: Tensor, names: list[Any]) -> str | None:
    """Whether the outputs are clearly higher for the negative label."""
    found = _area(truth, z)
    if found is None or found[0] >= 0.5 - max(FAR, found[1]):
        return None
    return (
        f"it ranks {names[0]!r} above {names[1]!r} (area under the ROC curve {found[0]:.2f} on the "
        f"rows measured), while its output is taken to speak for {names[1]!r}."
    )


def _unrelated(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], z: Tensor, names: list[Any]
) -> list[str]:
    """A sentence if nothing ties the outputs to the labels, on rows enough to tell."""
    if len(names) == 2:
        found = _area(truth, z)
        told = "" if found is None else f"the area under the ROC curve is {found[0]:.2f}"
        beyond, by_chance = (0.0, 1.0) if found is None else (found[0] - 0.5, found[1])
    else:
        shares = (np.bincount(v, minlength=len(names)) / len(v) for v in (truth, predicted))
        expected, right = float(np.prod(list(shares), axis=0).sum()), np.mean(predicted == truth)
        told = f"it is right in {right:.0%} of them, and {expected:.0%} would be right by chance"
        beyond = float(right) - expected
        by_chance = SURE * (expected * (1 - expected) / len(truth)) ** 0.5
    if abs(beyond) > by_chance or by_chance > ENOUGH:
        return []
    return [
        f"The model knows no more of the labels of the rows measured than chance: {told}. Labels, "
        "or columns, may be in another order than the rows, or prepared in another way than for "
        "training: check them before you read any figure."
    ]


def _exchanged(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], names: list[Any]
) -> str | None:
    """Whether another order of several labels would fit far better."""
    n, k = len(truth), len(names)
    if k == 2 or len(np.unique(predicted)) < 2:
        return None
    table = np.bincount(predicted * k + truth, minlength=k * k).reshape(k, k)
    _, order = linear_sum_assignment(-table)
    right, best = int(np.trace(table)), int(table[np.arange(k), order].sum())
    if best - right <= max(FAR * n, SURE * (best + right) ** 0.5):
        return None
    better = ", ".join(repr(names[place]) for place in order)
    return (
        f"in the order {', '.join(map(repr, names))} it is right in {right / n:.0%} of the rows "
        f"measured, and in the order {better} it would be in {best / n:.0%}."
    )


def _constant(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], names: list[Any]
) -> list[str]:
    """A sentence if the model predicts one label for nearly all rows, and the truth is another."""
    n, often = len(truth), np.bincount(predicted, minlength=len(names))
    top, others = int(often.argmax()), n - int(often.max())
    should = int((truth != top).sum())
    if often[top] < NEARLY_ALL * n or 10 * others >= should:
        return []
    return [
        f"The model predicts {names[top]!r} for {often[top] / n:.1%} of the rows measured, while "
        f"{should / n:.1%} have another label. Rates of such a model are all near 0 or 1, so its "
        "gaps say little: check how the rows were prepared, the labels, and what the outputs mean."
    ]


def _cut_elsewhere(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], z: Tensor, names: list[Any]
) -> list[str]:
    """A sentence if two labels are ranked well, and yet most predictions are wrong."""
    found, n = _area(truth, z) if len(names) == 2 else None, len(truth)
    right = float(np.mean(predicted == truth))
    if found is None or right > 0.5 - max(FAR, SURE * 0.5 / n**0.5):
        return []
    area, by_chance = found
    if area < 0.5 + max(FAR, by_chance):
        return []
    return [
        f"The model is right for {right:.0%} of the rows measured, although it ranks them well "
        f"(area under the ROC curve {area:.2f}): it says {names[1]!r} for {predicted.mean():.0%} "
        f"of them, and {truth.mean():.0%} are. The cut-off seems to be elsewhere. If outputs are "
        "scores from 0 to 1, or of another kind, turn them into log-odds, where one above 0 means "
        f"{names[1]!r}; if another cut-off is meant, set it as `threshold`."
    ]
