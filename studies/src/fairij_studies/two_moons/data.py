"""Two moons that a line separates."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

TEST_SHARE = 0.2
NOISE_LIMIT = 0.4  # as a fraction of the gap: a fifth of the gap stays empty

DESCR = """Two moons, linearly separable (Sattigeri et al. 2022, Appendix C).

{n} points on two half circles of radius 1, one open below and one open above, with Gaussian noise
of standard deviation {noise}, clipped at {limit:g}. The second moon is {gap} below the first, so a
horizontal line always separates the classes. The number of points and the 80/20 split are the
paper's. Shift and noise are our choice.
"""


def make_two_moons(
    n: int = 10_000,
    *,
    noise: float = 0.1,
    gap: float = 0.5,
    random_state: int | np.random.Generator,
) -> Bunch:
    """Return the paper's linearly separable two moons.

    Class 0 is (cos t, sin t), class 1 is (1 - cos t, -gap - sin t), t uniform in [0, pi].

    Parameters
    ----------
    n : int, default=10000
        Number of points, half of them in each class.
    noise : float, default=0.1
        Standard deviation of the noise on each coordinate, clipped at 0.4 times `gap`.
    gap : float, default=0.5
        Distance between the moons along the second axis.
    random_state : int or Generator
        Seed of the points and of `split`.

    Returns
    -------
    Bunch
        `data`, `target` and `split`, in which 80 % are 'train'.
    """
    if n < 2:
        raise ValueError(f"`n` must be at least 2, one for each class; got {n}.")
    if gap <= 0:
        raise ValueError(f"`gap` must be positive, so that a line separates the moons; got {gap}.")
    if noise < 0:
        raise ValueError(f"`noise` must not be negative, got {noise}.")
    rng = np.random.default_rng(random_state)
    target = rng.permutation(np.arange(n) % 2)  # (n,)
    angle = rng.uniform(0.0, np.pi, n)
    upper = np.column_stack([np.cos(angle), np.sin(angle)])
    lower = np.column_stack([1.0 - np.cos(angle), -gap - np.sin(angle)])
    limit = NOISE_LIMIT * gap
    points = np.where(target[:, None] == 0, upper, lower)  # (n, 2)
    points += rng.normal(0.0, noise, points.shape).clip(-limit, limit)
    is_test = rng.permutation(n) < round(TEST_SHARE * n)
    names = ["x1", "x2"]
    return Bunch(
        data=pd.DataFrame(points, columns=names),
        target=pd.Series(target, name="target"),
        sensitive_features=None,
        split=pd.Series(np.where(is_test, "test", "train"), name="split"),
        feature_names=names,
        target_names=["upper", "lower"],
        includes_sensitive=False,
        DESCR=DESCR.format(n=n, noise=noise, limit=limit, gap=gap),
        source={},
        sha256={},
    )
