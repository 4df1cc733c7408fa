"""A small model of the group, for the chances that a row belongs to each group and label.

Logistic regression on standardised columns, or a closer model that sees the scores of the edited
model too. It only helps to find the edit: it is thrown away, and the edited model never sees a
group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import is_streamed, processes
from fairij.errors import InvalidInputError
from fairij.fairness.chances import Chances, observed_weights
from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.method.fairness_rows import FairnessRows
from fairij.method.small_models import close, simple
from fairij.method.types import FOLDS, assigned
from fairij.models.losses import Loss

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Learner = Callable[[Any, Codes, Any, int], Array]
MOST_WORDS = 50  # of a column of words; rarer ones count as one
LARGEST = 1e100  # whose square is a number
EXTREME = 10.0  # deviations, beyond which numbers count as that
# of close chances: the parts of observed labels and, of the rest, of the model's own chances of
# labels; and how far steps go by chances rather than by what was observed
OBSERVED, OWN, BELIEVED = 0.3, 1 / 3, 0.5
FEWER = 3  # folds, of a closer model, which takes longer


class NoChancesError(InvalidInputError):
    """Chances cannot be had for these rows, this constraint or this loss."""


def chances_of(
    rows: FairnessRows,
    z: Tensor,
    loss: Loss,
    constraint: Constraint,
    seed: int,
    *,
    closely: bool = False,
) -> Chances:
    """Chances of the validation rows, whose outputs are ``z``.

    The model of the group learns from training rows if their groups are known. Else each fifth of
    the validation rows is judged by a model that learned from the others.

    ``closely``: by a closer model, which sees the scores as well. Then rates of predictions by
    chances agree with those observed, but for noise, and steps may go by both.
    """
    if constraint.expected is None or not constraint.is_counted(loss):
        raise NoChancesError(
            "`search` by chances of groups needs a constraint that compares rates of classes, as "
            f"those in `fairij.CONSTRAINTS` do; {constraint.name!r} is none. Use `chances=False`."
        )
    seen, known = rows.validation, rows.training
    y, codes = seen.y.long(), torch.as_tensor(seen.groups.codes, device=seen.y.device).long()
    of_label = loss.scores(z).double().detach()
    of_label = torch.stack([1 - of_label, of_label], 1) if of_label.ndim == 1 else of_label
    n_groups, n_classes = len(seen.groups.names), of_label.shape[1]
    given = range(n_classes) if _asks_for_labels(constraint) else (None,)
    if seen.groups.chances is not None:
        return _as_given(seen.groups, of_label, y)
    tables = [seen.X] if known is None else [seen.X, known.X]
    design = encoded(tables)
    labels, groups = y.cpu().numpy(), codes.cpu().numpy()
    observed = _observed(seen.groups, y, n_classes)
    if known is not None and known.groups.is_plain:
        y_known, s_known = known.y.long().cpu().numpy(), known.groups.codes.astype(np.int64)
        if _has_all(y_known, s_known, labels, groups):
            mine, others = design[: len(labels)], design[len(labels) :]
            of_group = [_learned(others, s_known, y_known, c, mine, n_groups) for c in given]
            return _joint(of_group, of_label, observed, seen.groups)
    design = design[: len(labels)]
    if closely:
        design = _with_scores(design, of_label)
    fold = assigned(groups * n_classes + labels, FEWER if closely else FOLDS, seed)
    learn: Learner = close if closely else simple
    of_group = [np.zeros((len(labels), n_groups)) for _ in given]
    of_own = np.zeros((len(labels), n_classes))  # labels
    for part in range(fold.max() + 1):
        own, rest = fold == part, (fold != part) & (groups < n_groups)
        for found, c in zip(of_group, given, strict=True):
            learned = (design[rest], groups[rest], labels[rest], c, design[own], n_groups)
            found[own] = _learned(*learned, learn)
        if closely and _asks_for_labels(constraint):
            of_own[own] = learn(design[rest], labels[rest], design[own], n_classes)
    if not closely:
        return _joint(of_group, of_label, observed, seen.groups)
    if _asks_for_labels(constraint):
        of_label = OWN * of_label + (1 - OWN) * torch.as_tensor(of_own).to(of_label)
        as_seen = torch.nn.functional.one_hot(y, n_classes).to(of_label)
        of_label = of_label + OBSERVED * (as_seen - of_label)
    return replace(_joint(of_group, of_label, observed, seen.groups), believed=BELIEVED)


def _with_scores(design: Any, of_label: Tensor) -> Any:
    """The rows with the model's scores: chances, their logarithms, and which is the highest."""
    p = of_label.cpu().numpy()
    highest = np.eye(p.shape[1])[p.argmax(1)]
    found = _standardised(np.concatenate([p, np.log(p.clip(1e-6)), highest], 1))
    if sp.issparse(design):
        return sp.csr_matrix(sp.hstack([design, sp.csr_matrix(found)]))  # type: ignore[arg-type]
    return np.concatenate([design, found], 1)


def _observed(groups: Groups, y: Tensor, n_classes: int) -> Tensor:
    """What each row counts for each group with its own label, ``(N, G, C)``."""
    codes = torch.as_tensor(groups.codes, device=y.device).long()
    found = observed_weights(y, codes, groups.slots, n_classes)[:, : len(groups.names)]
    return found if groups.weight is None else found * _column(groups, y)


def _as_given(groups: Groups, of_label: Tensor, y: Tensor) -> Chances:
    """Chances of groups that the user gave, and the model's chances of labels."""
    member = torch.as_tensor(groups.membership()[:, : len(groups.names)], device=y.device)
    own = torch.nn.functional.one_hot(y, of_label.shape[1]).to(member)
    return Chances(member[:, :, None] * of_label[:, None], member[:, :, None] * own[:, None])


def _column(groups: Groups, like: Tensor) -> Tensor:
    """What each row counts, ``(N, 1, 1)``: nothing, if it has no group."""
    member = groups.membership()[:, : len(groups.names)].sum(1)
    return torch.as_tensor(member, device=like.device)[:, None, None]


def _asks_for_labels(constraint: Constraint) -> bool:
    rates = constraint.rates
    return any(rate.given != "any label" or rate.counted == "the true class" for rate in rates)


def _has_all(y: Codes, s: Codes, y_seen: Codes, s_seen: Codes) -> bool:
    """Whether training rows have every group with every label that validation rows have."""
    return set(zip(s_seen, y_seen, strict=True)) <= set(zip(s, y, strict=True))


def _joint(of_group: list[Array], of_label: Tensor, observed: Tensor, rows: Groups) -> Chances:
    """``P(g | x, c) P(c | x)``; with one entry, ``P(g | x)`` for every label."""
    groups = torch.as_tensor(np.stack(of_group, 2), device=of_label.device)  # (N, G, C or 1)
    found = groups * of_label[:, None, :]
    return Chances(found if rows.is_plain else found * _column(rows, found), observed)


def _learned(
    X: Any,
    s: Codes,
    y: Codes,
    label: int | None,
    X_new: Any,
    n_groups: int,
    learn: Learner = simple,
) -> Array:
    """``P(s | x)`` of new rows, ``(N, G)``, learned from the rows with this label, or from all."""
    own = np.ones(len(s), dtype=bool) if label is None else y == label
    if len(np.unique(s[own])) == 0:
        found = np.zeros((X_new.shape[0], n_groups))
        found[:, np.unique(s)] = 1.0
        return found / found.sum(1, keepdims=True)
    return learn(X[own], s[own], X_new, n_groups)


def encoded(tables: list[Any]) -> Any:
    """The rows of all tables as numbers of one scale, ``(N, F)``, dense or sparse."""
    if processes() > 1 or any(is_streamed(X) for X in tables):
        raise NoChancesError(
            "`search` by chances of groups needs rows in the memory of one process, but these are "
            "streamed or shared by several. Use `chances=False`."
        )
    if all(sp.issparse(X) for X in tables):
        stacked = sp.vstack(tables).tocsr().astype(np.float64)
        squares = np.asarray(stacked.multiply(stacked).mean(0)).ravel()
        return stacked @ sp.diags(1 / np.sqrt(np.where(squares > 0, squares, 1)))
    frames = [_frame(X) for X in tables]
    frame = pd.concat(frames, ignore_index=True)
    return np.concatenate([_encoded(frame.iloc[:, place]) for place in range(frame.shape[1])], 1)


def _frame(X: Any) -> pd.DataFrame:
    """A table as a frame; texts and collections of arrays have no columns."""
    if isinstance(X, pd.DataFrame):
        return X.set_axis(range(X.shape[1]), axis=1)
    values = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    if isinstance(values, list) and values and not isinstance(values[0], str):
        values = np.asarray(values)
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.shape[1] == 0:
        raise NoChancesError(
            "`search` by chances of groups needs rows that are a table of columns, as in an array "
            f"or frame; got {type(X).__name__}. Use `chances=False`."
        )
    return pd.DataFrame(values)


def _encoded(column: pd.Series[Any]) -> Array:
    """A column as numbers with mean 0 and deviation 1, and an indicator of missing values."""
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        numbers = pd.to_numeric(column, errors="coerce") if column.dtype == object else None
        if numbers is None or bool((numbers.isna() & ~column.isna()).any()):
            return _standardised(_indicators(column))
        column = numbers
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    missing = ~np.isfinite(values)
    values = np.clip(values, -LARGEST, LARGEST)
    if missing.all():
        return np.zeros((len(values), 0))
    filled = np.where(missing, np.mean(values[~missing]), values)
    parts = [filled[:, None]] + ([missing[:, None].astype(np.float64)] if missing.any() else [])
    return _standardised(np.concatenate(parts, 1))


def _indicators(column: pd.Series[Any]) -> Array:
    """One column for each of the most frequent words; missing is a word."""
    words = column.astype(object).where(column.notna(), "").map(str)
    common = words.value_counts().index[:MOST_WORDS]
    places = common.get_indexer(pd.Index(words))
    found = np.zeros((len(words), len(common) + 1))
    found[np.arange(len(words)), places] = 1  # -1 is the last, of all rarer ones
    return found


def _standardised(values: Array) -> Array:
    deviation = values.std(0)
    kept = values[:, deviation > 0]
    scaled = (kept - kept.mean(0)) / deviation[deviation > 0]
    return np.clip(scaled, -EXTREME, EXTREME)
