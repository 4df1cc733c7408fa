"""One model on one split, what is measured of a method, and how its setting is chosen."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairij.baselines import ERM, Predictor
from fairij.baselines.base import positive_scores
from fairij.baselines.group_blind import GroupModel
from fairij.datasets import Split, Splits
from fairij.fairness import GAPS, rates
from fairij.fairness.uncertainty import of_counts
from fairij.storage.checksummed import write_whole
from fairij_studies.frontier.tables import Source, data_source, load_splits, slug
from fairij_studies.tabular.trial import base_model, first_rows
from fairij_studies.trees.models import LIGHTGBM, LOGISTIC, make_model

NETWORK = "network"
MODELS = (NETWORK, LIGHTGBM, LOGISTIC)
CONSTRAINTS = ("demographic_parity", "equalized_odds", "equal_opportunity")
BUDGETS = (0.01, 0.02)  # of accuracy on validation rows
AS_TRAINED = "as trained"
Record = dict[str, Any]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One base model: the table, the kind of model, and the seed of the split.

    ``rows`` is the largest number of rows in each part, None for all. ``tuning`` puts training rows
    in place of the test rows, to choose settings.
    """

    title: str
    model: str
    seed: int
    source: Source
    rows: int | None = None
    epochs: int = 100
    tuning: bool = False


@dataclass(frozen=True)
class Base:
    """A case with its splits and its trained model."""

    case: Case
    splits: Splits
    model: Any
    train_seconds: float

    def facts(self, method: str, constraint: str) -> Record:
        train, validation, test = self.splits
        return {
            "data": self.case.title,
            "data_source": data_source(self.case.title, self.case.source),
            "sensitive": self.splits.sensitive,
            "n_train": len(train),
            "n_validation": len(validation),
            "n_test": len(test),
            "model": self.case.model,
            "method": method,
            "constraint": constraint,
            "train_seconds": self.train_seconds,
        }


@lru_cache(maxsize=4)  # the units of a case run one after another
def base_of(case: Case) -> Base:
    splits = load_splits(case.title, case.source, case.seed)
    if case.tuning:
        splits = _without_test(splits, case.seed)
    if case.rows is not None:
        train, validation, test = (first_rows(part, case.rows) for part in splits)
        splits = replace(splits, train=train, validation=validation, test=test)
    start = time.process_time()
    if case.model == NETWORK:
        model: Any = base_model(splits, case.seed, case.epochs, Path(case.source.cache))
    else:
        model = make_model(case.model, case.title).fit(splits.train.X, splits.train.y)
    return Base(case, splits, model, time.process_time() - start)


def trained(case: Case) -> list[Record]:
    """Train a model, which is kept in the cache if it is a network."""
    return [{"seconds": base_of(case).train_seconds}]


def _without_test(splits: Splits, seed: int) -> Splits:
    """A random 30 % of the training rows stand in for the test rows; they lie in file order."""
    train = splits.train
    order = np.random.default_rng(seed).permutation(len(train))
    cut = round(0.7 * len(train))
    kept, held = (
        Split(train.X[rows], train.y[rows], train.s[rows]) for rows in (order[:cut], order[cut:])
    )
    return replace(splits, train=kept, test=held)


def of_scores(scores: Array, part: Split, constraint: str, *, randomised: bool = False) -> Record:
    """Measures of a method by its scores in [0, 1] on rows; label 1 is above one half."""
    chance = scores if randomised else (scores > 0.5).astype(np.float64)
    y, s = part.y.astype(np.int64), part.s.astype(np.int64)
    cells, size = 2 * s + y, 2 * (int(s.max()) + 1)
    by_label = [np.bincount(cells, weight, size) for weight in (1 - chance, chance)]
    counts = np.stack(by_label, 1).reshape(-1, 2, 2).astype(np.float64)
    gap = GAPS[constraint]
    return {
        "accuracy": float(rates.accuracy(counts)),
        "gap": float(gap.metric(counts)),
        "gap_error": float(of_counts(gap, counts)["gap_error"]),
        "auc": float(roc_auc_score(y, scores)),
        "brier": float(np.mean((scores - y) ** 2)),
        "balanced_accuracy": float(rates.balanced_accuracy(counts)),
        "positive": float(chance.mean()),
    }


def of_predictor(predictor: Predictor, part: Split, constraint: str) -> Record:
    s = part.s if predictor.needs_group else None
    scores = predictor.predict_proba(part.X, s)[:, 1]
    return of_scores(scores, part, constraint, randomised=predictor.randomised)


def group_learner() -> Any:
    """The model of the group of methods that infer it; chosen by `tune`."""
    return HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=7, random_state=0)


@lru_cache(maxsize=4)
def group_model(case: Case, constraint: str) -> GroupModel:
    """The model of the group that all tolerances of a method share."""
    splits = base_of(case).splits
    return GroupModel.fit(constraint, splits.train, len(splits.groups), group_learner())


def keep_scores(base: Base) -> None:
    """Keep what a method needs that runs in an environment of its own: scores, labels and groups.

    The chance of each group is that of `LinearPost` for parity, learned from training rows.
    """
    path = scores_path(base.case)
    if path.exists():
        return
    _, validation, test = base.splits
    groups = group_model(base.case, "demographic_parity")
    kept: dict[str, NDArray[Any]] = {}
    for name, part in (("validation", validation), ("test", test)):
        positive = positive_scores(base.model, part.X)
        shares = groups.joint(part.X, positive)[0]
        numbers = {"p": positive, "q": shares}
        kept |= {f"{name}_{short}": of.astype(np.float32) for short, of in numbers.items()}
        kept |= {f"{name}_y": part.y.astype(np.int8), f"{name}_s": part.s.astype(np.int8)}
    content = BytesIO()
    np.savez_compressed(content, **kept)  # type: ignore[arg-type]
    write_whole(path, content.getvalue())


def scores_path(case: Case) -> Path:
    name = "-".join(slug(part) for part in (case.title, case.model, str(case.seed)))
    return Path(case.source.cache) / "scores" / f"{name}.npz"


def as_predictor(base: Base, model: Any) -> Predictor:
    return ERM().fit(model, base.splits.train, base.splits.validation)


def within(budget: float, before: Mapping[str, float], tried: Iterable[Record]) -> Record:
    """The record of the lowest gap that keeps the accuracy; records are of validation rows.

    The model as it was trained is among what can be chosen, whatever the method.
    """
    least = before["accuracy"] - budget
    able = [one for one in tried if one["accuracy"] >= least - 1e-9]
    return min(able, key=lambda one: (one["gap"], -one["accuracy"]))


def prefixed(part: str, measures: Mapping[str, float]) -> Record:
    return {f"{part}_{name}": value for name, value in measures.items()}
