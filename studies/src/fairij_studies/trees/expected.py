"""Validation rows with labels and groups as they are expected instead of as they were seen.

Rates given the label rest on few rows: on Adult some 400 women of high income. LinearPost has the
chances of label and group stand in for them, ``P(y | x)`` by the model and ``P(s | x, y)`` by a
classifier learnt from training rows. Here each row is repeated, with labels and groups in
proportion to those chances, so that the same can be asked of an edit. What comes out is as right as
the chances are, and the groups of the training rows are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairij.baselines.base import count_groups, positive_scores
from fairij.baselines.group_model import GroupModel
from fairij.datasets import Split

COPIES = 6


def expected_rows(model: Any, train: Split, validation: Split, *, seed: int = 0) -> Split:
    """Every validation row ``COPIES`` times; its own label and group are not looked at."""
    n_groups = count_groups(train, validation)
    groups = GroupModel.fit("equalized_odds", train, n_groups)
    joint = groups.joint(validation.X, positive_scores(model, validation.X))  # (K, N, G)
    labels = np.repeat([truth or 0 for truth in groups.strata], n_groups)  # of each cell
    codes = np.tile(np.arange(n_groups), len(groups.strata))
    bounds = joint.transpose(1, 0, 2).reshape(len(validation), -1).cumsum(1)[:, :-1]
    start = np.random.default_rng(seed).random(len(validation))
    cells = [
        ((start + copy)[:, None] / COPIES > bounds).sum(1) for copy in range(COPIES)
    ]  # evenly spaced between 0 and 1, so that shares are as near to the chances as can be
    cell = np.concatenate(cells)
    return Split(
        np.concatenate([np.asarray(validation.X)] * COPIES),
        labels[cell].astype(validation.y.dtype),
        codes[cell].astype(validation.s.dtype),
    )
