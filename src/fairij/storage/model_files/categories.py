"""Values of categorical columns that were not in the training table of a model."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pandas as pd

from fairij.errors import FairIJWarning, InvalidInputError
from fairij.storage.model_files.columns import (
    as_booster,
    as_xgboost,
    is_lightgbm,
    is_xgboost,
    lightgbm_categories,
)

MOST_SHOWN = 5


@dataclass(frozen=True)
class Known:
    """The values of a column that a model knows."""

    listed: tuple[Any, ...]
    takes_others: bool  # as missing values; else the model fails on them


def known_categories(model: Any, frame: pd.DataFrame) -> dict[str, Known]:
    """The categorical columns whose values the model has stored, by name."""
    if is_lightgbm(model):
        lists = lightgbm_categories(as_booster(model), frame)
        return {name: Known(tuple(values), True) for name, values in lists.items()}
    found = _stored(as_xgboost(model)) if is_xgboost(model) else _encoded(model)
    return {name: known for name, known in found if name in frame.columns}


def check_categories(model: Any, tables: Iterable[pd.DataFrame], *, where: str) -> None:
    """Warn about values that the model does not know; raise if it cannot take them.

    ``tables`` are the feature columns, as one table or in parts.
    """
    known: dict[str, Known] | None = None
    present: Counter[str] = Counter()
    unseen: dict[str, Counter[Any]] = {}
    for table in tables:
        known = known_categories(model, table) if known is None else known
        if not known:
            return
        for name, one in known.items():
            column = table[name].dropna()
            present[name] += len(column)
            strange = column[~column.isin(list(one.listed))]
            unseen.setdefault(name, Counter()).update(strange.tolist())
    for name, counts in unseen.items():
        if counts and known:
            _warn_or_raise(where, name, known[name], counts, present[name])


def _warn_or_raise(where: str, name: str, known: Known, unseen: Counter[Any], present: int) -> None:
    shown = ", ".join(repr(value) for value, _ in unseen.most_common(MOST_SHOWN))
    shown += ", ..." if len(unseen) > MOST_SHOWN else ""
    if unseen.total() == present:
        raise InvalidInputError(
            f"The feature {name!r} must hold the categories of the training table, such as "
            f"{list(known.listed[:MOST_SHOWN])}, but none of its values in {where} is among them: "
            f"{shown}."
        )
    text = (
        f"{where} has {unseen.total()} of {present} rows whose {name!r} the model does not know "
        f"from its training: {shown}."
    )
    if not known.takes_others:
        raise InvalidInputError(f"{text} It cannot take them: drop or recode those rows.")
    warnings.warn(
        f"{text} It treats them as missing.",
        FairIJWarning,
        stacklevel=3,
    )


def _stored(booster: Any) -> Iterator[tuple[str, Known]]:
    """The categories in an XGBoost file (since 3.1)."""
    if hasattr(booster, "get_categories") and find_spec("pyarrow") is not None:
        for name, values in booster.get_categories(export_to_arrow=True).to_arrow():
            if values is not None:
                yield str(name), Known(tuple(values.to_pylist()), False)


def _encoded(model: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Known]]:
    """The categories of all scikit-learn encoders inside a model."""
    names = tuple(map(str, getattr(model, "feature_names_in_", names)))
    lists = getattr(model, "categories_", ())
    if len(lists) == len(names):
        takes_others = getattr(model, "handle_unknown", "error") != "error"
        for name, values in zip(names, lists, strict=True):
            yield name, Known(tuple(values.tolist()), takes_others)
    for part in _parts(model):
        yield from _encoded(part, names)
        if hasattr(part, "transformers_"):
            names = ()  # its output has other columns


def _parts(model: Any) -> list[Any]:
    steps = [step for _, step in getattr(model, "steps", ())]
    steps += [step for _, step, _ in getattr(model, "transformers_", ())]
    inner = ("_preprocessor", "best_estimator_", "estimator")
    return steps + [getattr(model, name) for name in inner if hasattr(model, name)]
