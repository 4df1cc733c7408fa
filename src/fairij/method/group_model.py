"""A small model of the group, for the chances that a row belongs to each group and label.

Logistic regression on standardised columns, or a closer model that sees the scores of the edited
model too. It only helps to find the edit: it is thrown away, and the edited model never sees a
group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import is_streamed, take_rows
from fairij.fairness.chances import Chances, observed_weights
from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.method.encoding import NoChancesError, encoded, standardised
from fairij.method.fairness_rows import FairnessRows, GroupedRows
from fairij.method.small_models import cautious, close, simple
from fairij.method.types import FOLDS, assigned
from fairij.models.losses import Loss

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Learned = Callable[[Any], list[Array]]  # `P(g | x, c)` of new rows, for each label c
Given = Sequence[int | None]  # the labels that groups are told given; None: given none
OWN = 1 / 3  # of close chances of labels, the part that is the edited model's own
FEWER = 3  # folds, of a closer model, which takes longer


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
    chances are nearer to those of new rows than the observed ones are, and steps go by them alone.
    """
    check_counted(constraint, loss)
    seen, known = rows.validation, rows.training
    y, codes = seen.y.long(), torch.as_tensor(seen.groups.codes, device=seen.y.device).long()
    of_label = loss.scores(z).double().detach()
    of_label = torch.stack([1 - of_label, of_label], 1) if of_label.ndim == 1 else of_label
    n_groups, n_classes = len(seen.groups.names), of_label.shape[1]
    given: Given = range(n_classes) if _asks_for_labels(constraint) else (None,)
    if seen.groups.chances is not None:
        return _as_given(seen.groups, of_label, y)
    tables = [seen.X] if known is None else [seen.X, known.X]
    design = encoded(tables)
    labels, groups = y.cpu().numpy(), codes.cpu().numpy()
    observed = _observed(seen.groups, y, n_classes)
    fold = assigned(groups * n_classes + labels, FEWER if closely else FOLDS, seed)
    mine, others = design[: len(labels)], design[len(labels) :]
    of_group = None
    if known is not None and known.groups.is_plain:
        y_known, s_known = known.y.long().cpu().numpy(), known.groups.codes.astype(np.int64)
        if _has_all(y_known, s_known, labels, groups):
            learn = _close_model if closely else _simple_models
            of_group = learn(others, s_known, y_known, given, n_groups)(mine)
    if closely:
        mine = _with_scores(mine, of_label)
    if of_group is None:
        of_group = _cross_fitted(mine, groups, labels, given, n_groups, fold, closely=closely)
    if not closely:
        return _joint(of_group, of_label, observed, seen.groups)
    if _asks_for_labels(constraint):
        of_label = _close_labels(mine, labels, of_label, fold)
    return replace(_joint(of_group, of_label, observed, seen.groups), believed=1.0)


def check_chances(rows: GroupedRows, constraint: Constraint, loss: Loss) -> None:
    """Raise unless there can be chances of such rows for this constraint and loss."""
    check_counted(constraint, loss)
    if rows.groups.chances is None:
        few = np.arange(len(rows.y))[:2]
        encoded([rows.X if is_streamed(rows.X) else take_rows(rows.X, few)])


def check_counted(constraint: Constraint, loss: Loss) -> None:
    if constraint.expected is None or not constraint.is_counted(loss):
        raise NoChancesError(
            "`search` by chances of groups needs a constraint that compares rates of classes, as "
            f"those in `fairij.CONSTRAINTS` do; {constraint.name!r} is none. Use `chances=False`."
        )


def _cross_fitted(
    design: Any,
    groups: Codes,
    labels: Codes,
    given: Given,
    n_groups: int,
    fold: Codes,
    *,
    closely: bool,
) -> list[Array]:
    """``P(g | x, c)`` for each label c, of each fold by a model that learned from the others."""
    learn = _close_model if closely else _simple_models
    of_group = [np.zeros((len(labels), n_groups)) for _ in given]
    for part in range(fold.max() + 1):
        own, rest = fold == part, (fold != part) & (groups < n_groups)
        likely = learn(design[rest], groups[rest], labels[rest], given, n_groups)(design[own])
        for found, new in zip(of_group, likely, strict=True):
            found[own] = new
    return of_group


def _close_model(X: Any, s: Codes, y: Codes, given: Given, n_groups: int) -> Learned:
    """One model for all labels, which sees the label."""
    likely = close(_with_label(X, y, given), s, n_groups)
    return lambda X_new: [likely(_with_label(X_new, c, given)) for c in given]


def _simple_models(X: Any, s: Codes, y: Codes, given: Given, n_groups: int) -> Learned:
    """A model for each label, which learns from the rows that have it."""
    return lambda X_new: [_learned(X, s, y, c, X_new, n_groups) for c in given]


def _close_labels(design: Any, labels: Codes, of_label: Tensor, fold: Codes) -> Tensor:
    """``P(c | x)``: by the edited model and by a small one."""
    n = of_label.shape[1]
    small = np.zeros((len(labels), n))
    for part in range(fold.max() + 1):
        own, rest = fold == part, fold != part
        small[own] = cautious(design[rest], labels[rest], design[own], n)
    return OWN * of_label + (1 - OWN) * torch.as_tensor(small).to(of_label)


def _with_label(design: Any, label: Codes | int | None, given: Given) -> Any:
    """The rows with a column for each label but the first, if groups are told given the label."""
    if label is None:
        return design
    columns = (np.asarray(label)[..., None] == np.array(given)[1:]).astype(np.float64)
    return _beside(design, np.broadcast_to(columns, (design.shape[0], columns.shape[-1])))


def _beside(design: Any, columns: Array) -> Any:
    if sp.issparse(design):
        return sp.csr_matrix(sp.hstack([design, sp.csr_matrix(columns)]))  # type: ignore[arg-type]
    return np.concatenate([design, columns], 1)


def _with_scores(design: Any, of_label: Tensor) -> Any:
    """The rows with the model's scores: chances, their logarithms, and which is the highest."""
    p = of_label.cpu().numpy()
    highest = np.eye(p.shape[1])[p.argmax(1)]
    return _beside(design, standardised(np.concatenate([p, np.log(p.clip(1e-6)), highest], 1)))


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
) -> Array:
    """``P(s | x)`` of new rows, ``(N, G)``, learned from the rows with this label, or from all."""
    own = np.ones(len(s), dtype=bool) if label is None else y == label
    if len(np.unique(s[own])) == 0:
        found = np.zeros((X_new.shape[0], n_groups))
        found[:, np.unique(s)] = 1.0
        return found / found.sum(1, keepdims=True)
    return simple(X[own], s[own], X_new, n_groups)
