"""`BlackBox`: a model that can only be asked for scores, with a correction that can be edited."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from fairij.data.checks import number_between, one_of, whole_number
from fairij.data.paths import path_of
from fairij.data.rows import processes
from fairij.errors import InvalidInputError
from fairij.models import adapt
from fairij.models.black_box.asking import CLIP, asked_of, chances, log_odds, width
from fairij.models.black_box.correction import KINDS, Correction, Kind, correction_of
from fairij.storage.black_boxes import FILE, SUFFIX, Stored, read_box, write_box

Array = NDArray[np.float64]


class BlackBox(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any model that gives chances. What is edited is a small correction of its log-odds.

    ``z(x) = log(p / (1 - p)) + f(x) theta``: the model stays as it is and is only asked for ``p``;
    ``f`` are functions of the columns, fixed by the training rows, and ``theta`` is zero until an
    edit. ``FairIJ(BlackBox(model)).fit(...)`` makes one. Predicting needs no group.

    Parameters
    ----------
    model : callable, estimator, path or str
        A function of rows that gives chances, of shape (N,) of the second of two classes, or (N, C)
        of all classes; a fitted estimator with ``predict_proba``; the path of an ONNX file or a
        session of onnxruntime; or the name of a column of scores in ``X``.
    correction : {"linear", "trees"}, default="linear"
        "linear": a linear function of the columns, each as a number of one scale, and another one
        for rows near the cut-off. "trees": the leaves of twelve small trees that tell the groups of
        known rows apart.
    columns : sequence of str or int, default=None
        The columns that the correction may look at. None: all, but a column of scores.
    classes : sequence, default=None
        The labels in the order of the chances. None: as the model says, else as in the rows.
    batch_size : int, default=None
        Rows for one call of the model. None: all at once.
    clip : float, default=1e-6
        Chances are kept this far from 0 and 1, whose log-odds are infinite.

    Attributes
    ----------
    correction_ : Correction or None
        The functions, once they are fixed.
    theta_ : ndarray of shape (D,)
        The parameters; zero before an edit.

    Examples
    --------
    >>> def service(rows):  # anything that gives chances
    ...     return model.predict_proba(rows)[:, 1]
    >>> fair = FairIJ(BlackBox(service), verbose=False)
    >>> fair = fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)
    >>> fair.predict_proba(X_val).shape
    (600, 2)
    """

    def __init__(
        self,
        model: Any,
        *,
        correction: Kind = "linear",
        columns: Sequence[Any] | None = None,
        classes: Sequence[Any] | None = None,
        batch_size: int | None = None,
        clip: float = CLIP,
    ) -> None:
        self.model, self.correction, self.columns = model, correction, columns
        self.classes, self.batch_size, self.clip = classes, batch_size, clip
        self.correction_: Correction | None = None
        self.theta_: Array = np.zeros(0)

    def fit(
        self, X: Any, y: Any = None, *, grouped: Any = None, threshold: float = 0.5
    ) -> BlackBox:
        """Fix the functions of the correction by these rows; the correction itself stays zero.

        `FairIJ.fit` does this with a copy. ``grouped`` are rows and the numbers of their groups,
        from which trees are grown. ``threshold`` is the chance of the second of two labels at which
        decisions are made. Labels take no part.
        """
        number_between("threshold", threshold, 0, 1)
        one_of("correction", self.correction, KINDS)
        number_between("clip", self.clip, 0, 0.5)
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size, 1)
        if processes() > 1:
            raise InvalidInputError(
                "With several processes a black box must be the same in all: call `fit(X)` on one "
                "table that all of them have, before `FairIJ`."
            )
        outputs = width(asked_of(self.model), X)
        asked = self.columns if self.columns is not None else self._all_but_scores(X)
        self.correction_ = correction_of(
            self.correction,
            X,
            outputs,
            columns=asked,
            grouped=grouped,
            centre=float(logit(threshold)),
        )
        self.theta_ = np.zeros(self.correction_.size)
        return self

    def _all_but_scores(self, X: Any) -> list[Any] | None:
        known = list(X.columns) if hasattr(X, "columns") else []
        is_column = isinstance(self.model, str) and self.model in known
        return [name for name in known if name != self.model] if is_column else None

    def __sklearn_is_fitted__(self) -> bool:
        return True  # the model is, and without a correction it is asked as it is

    def shaped(self, X: Any, grouped: Any = None, threshold: float = 0.5) -> BlackBox:
        """A copy whose functions are fixed by these rows; itself if they are fixed already."""
        if self.correction_ is not None:
            return self
        return copy.copy(self).fit(X, grouped=grouped, threshold=threshold)

    def with_theta(self, theta: Array) -> BlackBox:
        """A copy with these parameters and the same model."""
        made = copy.copy(self)
        made.theta_ = theta
        return made

    @property
    def known_classes(self) -> NDArray[Any] | None:
        """The labels, if they were given or the model tells them."""
        if self.classes is not None:
            return np.asarray(self.classes)
        return asked_of(self.model).classes

    @property
    def classes_(self) -> NDArray[Any]:
        known = self.known_classes
        several = self.correction_.n_outputs if self.correction_ is not None else 2
        return np.arange(max(several, 2)) if known is None else known

    def log_odds(self, X: Any) -> Array:
        """The model's own log-odds, without the correction."""
        return log_odds(chances(asked_of(self.model), X, self.batch_size), self.clip)

    def decision_function(self, X: Any) -> Array:
        """Log-odds with the correction: (N,) of the second of two classes, or (N, C)."""
        z: Array = adapt(self).outputs(X).numpy()
        return z

    def predict_proba(self, X: Any) -> Array:
        """The chances of all classes, with the correction."""
        z = self.decision_function(X)
        if z.ndim == 2:
            return np.asarray(softmax(z, axis=1))
        p = expit(z)
        return np.stack([1 - p, p], 1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row."""
        z = self.decision_function(X)
        index = z.argmax(1) if z.ndim == 2 else (z > 0).astype(np.int64)
        return np.asarray(self.classes_[index])

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the correction into a folder, without the model. Nothing is pickled.

        A path that ends in .safetensors names the file.
        """
        if self.correction_ is None:
            raise InvalidInputError(
                "This black box has no correction to save: edit it with FairIJ first."
            )
        path = path_of("folder", folder, "name a folder, as in 'result'")
        target = path if path.suffix == SUFFIX else path / FILE
        if target.exists() and not overwrite:
            raise FileExistsError(f"{target} exists already; pass overwrite=True to replace it.")
        known = self.known_classes
        classes = None if known is None else known.tolist()
        write_box(target, Stored(self.correction_, self.theta_, float(self.clip), classes))
        return target

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: Any, **settings: Any) -> BlackBox:
        """The black box that was saved there, of the model that it was made for.

        ``settings`` are as in the constructor, such as ``batch_size``.
        """
        path = path_of("folder", folder, "name a folder, as in 'result'")
        stored = read_box(path / FILE if path.is_dir() else path)
        kind = "trees" if stored.correction.trees else "linear"
        given = {"correction": kind, "clip": stored.clip, "classes": stored.classes, **settings}
        made = cls(model, **given)
        made.correction_, made.theta_ = stored.correction, stored.theta
        return made
