"""Turn scores into probabilities by isotonic regression of labels on scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression

from fairij.baselines.base import Array


@dataclass(frozen=True)
class Calibrated:
    """A rising step curve from scores to the share of positive labels."""

    curve: Any

    @classmethod
    def fit(cls, scores: Array, y: ArrayLike) -> Calibrated:
        """Learn the curve from scores (N,) and labels (N,)."""
        curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        return cls(curve.fit(scores, np.asarray(y, dtype=np.float64)))

    def __call__(self, scores: Array) -> Array:
        return np.asarray(self.curve.predict(scores), dtype=np.float64)
