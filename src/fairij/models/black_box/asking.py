"""Asking a model for scores: a function, an estimator, an ONNX file, or a column of the table."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.data.memory import check_size
from fairij.data.rows import n_rows, take_rows
from fairij.data.sources import Source
from fairij.errors import FairIJError, InvalidInputError

Array = NDArray[np.float64]
CLIP = 1e-6  # chances are kept this far from 0 and 1
SILENT = 4  # of onnxruntime: it prints what ends the process, and nothing else
GROWTH = 3  # memory that a byte of an ONNX file takes while it is read
TWICE = 32  # rows that are asked for twice
SAME = 1e-4  # how far two answers for one row may be apart, as chances
ROUNDED = 1e-5  # how far float32 may lead outside of 0 to 1
SUM = 1e-3  # how far the chances of a row may sum beside one


@dataclass(frozen=True)
class Asked:
    """Something that gives scores of rows, and the classes that it gives them for, if known."""

    answer: Callable[[Any], Any]  # rows -> (N,), (N, 1) or (N, C)
    classes: NDArray[Any] | None
    name: str


def asked_of(model: Any) -> Asked:
    """Find out how this model is asked."""
    if isinstance(model, Asked):
        return model
    if isinstance(model, (str, os.PathLike)):
        text = os.fspath(model)
        return onnx_file(text) if text.lower().endswith(".onnx") else column_of(text)
    if type(model).__module__.split(".")[0] == "onnxruntime":
        return onnx_session(model)
    if hasattr(model, "predict_proba") and not isinstance(model, type):
        return Asked(model.predict_proba, classes_of(model), type(model).__name__)
    if callable(model) and not isinstance(model, type):
        owner = model.__self__ if hasattr(model, "__self__") else None
        name = model.__name__ if hasattr(model, "__name__") else type(model).__name__
        return Asked(model, classes_of(owner), str(name))
    raise InvalidInputError(
        "`predict_proba` must be a function of rows, a model that has `predict_proba`, the path of "
        "an ONNX file, or the name of a column of scores; got "
        f"{model.__name__ if isinstance(model, type) else type(model).__name__}. A model that only "
        "gives labels has nothing that can be corrected: calibrate it first, as with "
        "scikit-learn's CalibratedClassifierCV."
    )


def classes_of(model: Any) -> NDArray[Any] | None:
    """The labels of a classifier in the style of scikit-learn; None if it does not tell them."""
    try:
        found = model.classes_ if hasattr(model, "classes_") else None
    except Exception:  # an estimator that is not fitted
        return None
    return None if found is None or np.ndim(found) != 1 else np.asarray(found)


def column_of(name: str) -> Asked:
    def answer(X: Any) -> Any:
        if not isinstance(X, pd.DataFrame) or name not in X.columns:
            found = list(X.columns)[:8] if isinstance(X, pd.DataFrame) else type(X).__name__
            raise InvalidInputError(
                f"`X` must be a frame with the column of scores {name!r}; found {found}."
            )
        return X[name].to_numpy()

    return Asked(answer, None, name)


def onnx_file(path: str) -> Asked:
    """A model file that onnxruntime runs."""
    return onnx_session(_session(path), os.path.basename(path))


@lru_cache(maxsize=4)
def _session_of(path: str, changed: int) -> Any:
    """A loaded file; ``changed`` is when it was written."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = SILENT  # errors are raised, and told by fairij
    given = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}
    return runtime.InferenceSession(path, options, **given)


def _session(path: str) -> Any:
    if not os.path.isfile(path):
        raise InvalidInputError(f"`predict_proba` names an ONNX file, and there is none at {path}.")
    check_size(path, GROWTH * os.stat(path).st_size)
    try:
        return _session_of(path, os.stat(path).st_mtime_ns)
    except ImportError:
        raise InvalidInputError(
            "ONNX files need the package onnxruntime: pip install onnxruntime."
        ) from None
    except Exception as error:  # of onnxruntime's own kinds
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise InvalidInputError(f"{path} cannot be read as an ONNX model: {said}.") from None


def onnx_inputs(path: str) -> tuple[str, ...] | None:
    """The columns that an ONNX file has an input for each of; None if it takes all in one."""
    inputs = _session(path).get_inputs()
    return None if len(inputs) < 2 else tuple(one.name for one in inputs)


NUMPY = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


def onnx_session(session: Any, name: str = "ONNX") -> Asked:
    """A model that onnxruntime has loaded: one input of columns, or one input for each column."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    maps = [out.name for out in outputs if out.type.startswith("seq(map")]
    numbers = [out.name for out in outputs if out.type in ("tensor(float)", "tensor(double)")]
    if not maps and not numbers:
        raise InvalidInputError(
            f"The ONNX model must give chances, and its outputs are "
            f"{', '.join(f'{out.name} {out.type}' for out in outputs)}: convert it with its "
            "probabilities."
        )
    wanted = (maps or [n for n in numbers if "prob" in n.lower()] or numbers)[-1]

    def answer(X: Any) -> Any:
        fed = _fed(inputs, X)
        (found,) = session.run([wanted], fed)
        if isinstance(found, list):  # a map from labels to chances for each row
            return np.array([[row[key] for key in sorted(row)] for row in found])
        return found

    return Asked(answer, None, name)


def _fed(inputs: list[Any], X: Any) -> dict[str, Any]:
    if len(inputs) == 1:
        kind = NUMPY.get(inputs[0].type, np.float32)
        values = X.to_numpy(dtype=kind) if isinstance(X, pd.DataFrame) else np.asarray(X, kind)
        return {inputs[0].name: values}
    if not isinstance(X, pd.DataFrame):
        raise InvalidInputError(
            f"`X` must be a frame for this ONNX model, which has an input for each of "
            f"{', '.join(one.name for one in inputs[:6])}."
        )
    absent = [one.name for one in inputs if one.name not in X.columns]
    if absent:
        raise InvalidInputError(
            f"`X` must have a column for each input of the ONNX model, but {absent[0]!r} is "
            "missing."
        )
    found = {}
    for one in inputs:
        column = X[one.name]
        is_text = one.type == "tensor(string)"
        values = (
            column.astype(str).to_numpy(object)
            if is_text
            else column.to_numpy(NUMPY.get(one.type, np.float32))
        )
        found[one.name] = values[:, None]
    return found


def chances(asked: Asked, X: Any, batch_size: int | None = None) -> Array:
    """The chances of the second of two classes, ``(N,)``, or of all of more, ``(N, C)``.

    The first rows are asked for twice: a model that answers by chance, or by the rows that it sees
    together, has no scores that could be corrected.
    """
    rows = n_rows(X)
    whole = batch_size is None or batch_size >= rows
    starts = [0] if whole else range(0, rows, batch_size or rows)
    parts = []
    for start in starts:
        stop = rows if whole else min(start + (batch_size or rows), rows)
        some = X if whole else take_rows(X, np.arange(start, stop))
        parts.append(checked(asked, _ask(asked, some), stop - start))
    if len({part.shape[1:] for part in parts}) > 1:
        raise InvalidInputError(f"`predict_proba` must always give as many columns ({asked.name}).")
    found = np.concatenate(parts)
    head = np.arange(min(rows, TWICE))
    if rows > 1:
        again = checked(asked, _ask(asked, take_rows(X, head)), len(head))
        _check_same(asked, found[head], again)
    return found


def _ask(asked: Asked, X: Any) -> Any:
    try:
        return asked.answer(X)
    except (FairIJError, MemoryError):
        raise
    except Exception as error:  # whatever a model or a service raises
        said = " ".join((str(error) or type(error).__name__).split())[:300].rstrip(".")
        raise InvalidInputError(
            f"`predict_proba` must answer for the rows as they are given, but {asked.name} failed: "
            f"{type(error).__name__}: {said}. Give it the columns that it was trained on, prepared "
            "in the same way; of a service, try again in the function itself."
        ) from error


def checked(asked: Asked, answer: Any, rows: int, *, alone: bool = True) -> Array:
    """The answer as chances, or an error that says what is wrong with it.

    If the rows stand ``alone``, an answer of nothing but 0 and 1 is taken for labels.
    """
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu().numpy()
    try:
        found = np.asarray(answer)
        if found.dtype.kind in "USb" or found.dtype == object:
            raise ValueError("labels")
        found = found.astype(np.float64)
    except (TypeError, ValueError):
        first = str(np.asarray(answer, dtype=object).ravel()[:1].tolist())
        raise InvalidInputError(
            f"`predict_proba` must give chances from 0 to 1, but {asked.name} gives {first}: name "
            "the method that gives probabilities, not the one that gives labels."
        ) from None
    if found.ndim not in (1, 2) or len(found) != rows:
        raise InvalidInputError(
            f"`predict_proba` must give one chance, or one for each class, per row: for {rows} "
            f"rows {asked.name} gave an array of shape {found.shape}."
        )
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0][0])
        raise InvalidInputError(
            f"`predict_proba` must give chances from 0 to 1, but {asked.name} gives "
            f"{found[row].tolist()} for row {row}: drop such rows, or let the function say what to "
            "do with them."
        )
    outside = (found < -ROUNDED) | (found > 1 + ROUNDED)
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise InvalidInputError(
            f"`predict_proba` must give chances from 0 to 1, but {asked.name} gives "
            f"{found[row].tolist()} for row {row}: turn log-odds s into chances by "
            "1 / (1 + exp(-s))."
        )
    found = np.clip(found, 0, 1)
    if found.ndim == 2:
        found = _columns(asked, found)
    if alone and found.ndim == 1 and rows > TWICE and np.isin(found, (0.0, 1.0)).all():
        raise InvalidInputError(
            f"`predict_proba` must give chances, but {asked.name} gives only 0 and 1, which are "
            "labels: name the method that gives probabilities."
        )
    return found


def _columns(asked: Asked, found: Array) -> Array:
    width = found.shape[1]
    if width == 0 or (asked.classes is not None and width not in (1, len(asked.classes))):
        known = "" if asked.classes is None else f" and {len(asked.classes)} classes"
        raise InvalidInputError(
            f"`predict_proba` must give a column for each class; {asked.name} has {width} "
            f"column(s){known}."
        )
    if width == 1:
        return found[:, 0]
    off = np.abs(found.sum(1) - 1)
    if off.max(initial=0) > SUM:
        row = int(off.argmax())
        raise InvalidInputError(
            f"`predict_proba` must give chances that sum to one in every row, but {asked.name} "
            f"gives {found[row].round(6).tolist()} for row {row}: give one column if each is a "
            "question of its own."
        )
    return found[:, 1] if width == 2 else found


def _check_same(asked: Asked, first: Array, again: Array) -> None:
    apart = np.abs(first - again)
    if apart.max(initial=0) > SAME:
        row = int(np.argwhere(apart > SAME)[0][0])
        raise InvalidInputError(
            f"`predict_proba` must give a row the same chances each time, but {asked.name}, asked "
            f"twice, gives {first[row].tolist()} and {again[row].tolist()} for row {row}: fix its "
            "seed, take the mean of several answers, or write its scores into a column and name "
            "that. A model that looks at all rows together must be asked row by row."
        )


def log_odds(p: Array, clip: float) -> Array:
    """``log p / (1 - p)`` of two classes; ``log p`` of several, less its mean over classes."""
    inside = np.clip(p, clip, 1 - clip)
    if p.ndim == 1:
        return np.log(inside) - np.log1p(-inside)
    z = np.log(inside)
    return z - z.mean(1, keepdims=True)


def width(asked: Asked, X: Any) -> int:
    """The number of outputs: 1 for two classes, else one for each."""
    rows = next(iter(X.chunks(TWICE))) if isinstance(X, Source) else X
    head = take_rows(rows, np.arange(min(n_rows(rows), TWICE)))
    found = checked(asked, _ask(asked, head), n_rows(head), alone=False)
    return found.shape[1] if found.ndim == 2 else 1
