"""What became of the scores of a model on the same rows: AUC, log loss, Brier score, calibration.

The measures are those of the table of candidates, so that a budget can be checked on other rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from fairij.fairness.groups import Groups
from fairij.fairness.quantiles import normal_quantile
from fairij.fairness.rates import Array, ratio_of
from fairij.fairness.scores import SMALLEST, calibration_error, scored

Row = tuple[float, ...]  # before, after, change, low, high


def score_changes(
    chances: tuple[Array, Array],
    y: NDArray[np.int64],
    groups: Groups,
    weight: Array,
    confidence: float,
) -> tuple[dict[str, Row], pd.DataFrame]:
    """``before, after, change, low, high`` of each measure; calibration errors of each group."""
    both = torch.from_numpy(np.stack(chances).astype(np.float64))
    own = Groups(groups.codes, groups.names, chances=groups.chances, weight=weight,
                 spare=groups.spare)  # fmt: skip
    found = scored(both, torch.from_numpy(np.array(y)), own)
    z = float(normal_quantile((1 - confidence) / 2))
    pulls = [_pulls(p, y, weight) for p in chances]
    rows: dict[str, Row] = {}
    for name in ("auc", "log_loss", "brier"):
        before, after = getattr(found, name).tolist()
        error = float(np.sqrt(((pulls[1][name] - pulls[0][name]) ** 2).sum()))
        change = after - before
        rows[name] = (before, after, change, change - z * error, change + z * error)
    whole = found.bins.sum(1)
    before, after = calibration_error(whole).tolist()
    error = float(np.sqrt((_noise(whole) ** 2).sum()))
    change = after - before
    rows["calibration_error"] = (before, after, change, change - z * error, change + z * error)
    return rows, _calibration(found.bins, groups, z)


def _calibration(bins: Array, groups: Groups, z: float) -> pd.DataFrame:
    """Each group's calibration error before and after, and ``low``, how large the second is surely.

    On few rows both are above zero by chance alone, and by about as much, so that their difference
    says what the edit did.
    """
    bins = bins[:, : len(groups.names)]
    before, after = calibration_error(bins)
    noise = _deviations(bins[1]) / np.maximum(bins[1][..., 0].sum(-1), 1)[:, None]
    low = after - z * np.sqrt((noise**2).sum(-1))
    columns = {"before": before, "after": after, "low": np.maximum(low, 0)}
    return pd.DataFrame(columns, index=pd.Index(groups.names, name="group"))


def _noise(bins: Array) -> Array:
    """The standard error of the calibration error before and after, ``(2,)``."""
    squares = (_deviations(bins) ** 2).sum(-1)
    return np.sqrt(squares) / bins[..., 0].sum(-1)


def _deviations(bins: Array) -> Array:
    """The standard deviation of the number of right rows of each bin, ``(..., BINS)``."""
    rows = bins[..., 0]
    share = ratio_of(bins[..., 2] + 0.5, rows + 1, empty=0)
    return np.sqrt(np.clip(share * (1 - share), 0, None) * rows)


def _pulls(chances: Array, y: NDArray[np.int64], weight: Array) -> dict[str, Array]:
    """How far each row moves each measure; the sum of squares is the variance."""
    chances = np.clip(chances.astype(np.float64), SMALLEST, 1 - SMALLEST)
    if chances.ndim == 1:
        hit = np.where(y == 1, chances, 1 - chances)
        brier, auc = (1 - hit) ** 2, _auc_pulls(chances, y == 1, weight)
    else:
        hit = chances[np.arange(len(y)), y]
        brier = (chances**2).sum(1) - 2 * hit + 1
        each = [_auc_pulls(chances[:, c], y == c, weight) for c in np.unique(y)]
        auc = np.mean(each, axis=0)
    return {"auc": auc, "log_loss": _mean_pulls(-np.log(hit), weight)} | {
        "brier": _mean_pulls(brier, weight)
    }


def _mean_pulls(values: Array, weight: Array) -> Array:
    share = weight / weight.sum()
    return share * (values - share @ values)


def _auc_pulls(score: Array, positive: NDArray[np.bool_], weight: Array) -> Array:
    """DeLong's components: how a row's place among those of the other label departs from the AUC.

    Weights count for the mean over rows, not for the places.
    """
    pulls = np.zeros(len(score))
    up, down = score[positive], score[~positive]
    if not len(up) or not len(down):
        return pulls
    ranks = rankdata(np.concatenate([up, down]))
    above = (ranks[: len(up)] - rankdata(up)) / len(down)
    below = 1 - (ranks[len(up) :] - rankdata(down)) / len(up)
    pulls[positive] = _mean_pulls(above, weight[positive])
    pulls[~positive] = _mean_pulls(below, weight[~positive])
    return pulls
