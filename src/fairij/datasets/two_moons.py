"""Two moons that a line can part."""

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

TEST_SHARE = 0.2
NOISE_LIMIT = 0.4  # of the gap: two points at the limit still leave a fifth of it between them

DESCR = """Two moons, linearly separable (Sattigeri et al. 2022, Appendix C).

Two half circles of radius 1, one open below and one open above, {n} points in all, with Gaussian
noise of standard deviation {noise} cut off at {limit:g}. The second moon lies {gap} below the
first, so that a horizontal line parts the classes with certainty. The paper gives the number of
points and the 80/20 split; shift and noise are this package's choice.
"""


def make_two_moons(
    n: int = 10_000,
    *,
    noise: float = 0.1,
    gap: float = 0.5,
    random_state: int | np.random.Generator,
) -> Bunch:
    """Draw the paper's linearly separable two moons.

    Class 0 is (cos t, sin t), class 1 is (1 - cos t, -gap - sin t), t uniform in [0, pi].

    Parameters
    ----------
    n : int
        Number of points, one half in each class.
    noise : float
        Standard deviation of the noise on each coordinate, cut off at 0.4 times `gap`.
    gap : float
        Distance between the moons along the second axis.
    random_state : int or Generator
        Seed of the points and of `split`.

    Returns
    -------
    Bunch
        As of `fetch_adult`; `split` marks 80 % 'train', and there are no sensitive features.
    """
    if n < 2:
        raise ValueError(f"`n` must be at least 2, so that both classes have a point, got {n}.")
    if gap <= 0:
        raise ValueError(f"`gap` must be positive so that a line can part the moons, got {gap}.")
    if noise < 0:
        raise ValueError(f"`noise` is a standard deviation and must not be negative, got {noise}.")
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
