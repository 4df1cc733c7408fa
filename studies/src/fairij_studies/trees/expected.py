"""Validation rows with expected labels and groups instead of observed ones.

Rates given the label depend on few rows: on Adult, on about 400 women with a high income.
LinearPost uses probabilities instead: ``P(y | x)`` by the model, and ``P(s | x, y)`` by a
classifier that is trained on training rows. Here each row is repeated, with labels and groups in
proportion to these probabilities, so that an edit can use them too. The result is only as good as
the probabilities, and it needs the groups of the training rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairij.baselines.base import count_groups, positive_scores
from fairij.baselines.group_blind import GroupModel
from fairij.datasets import Split

COPIES = 6


def expected_rows(model: Any, train: Split, validation: Split, *, seed: int = 0) -> Split:
    """Repeat every validation row ``COPIES`` times. Its own label and group are not used."""
    n_groups = count_groups(train, validation)
    groups = GroupModel.fit("equalized_odds", train, n_groups)
    joint = groups.joint(validation.X, positive_scores(model, validation.X))  # (K, N, G)
    labels = np.repeat([truth or 0 for truth in groups.strata], n_groups)  # of each cell
    codes = np.tile(np.arange(n_groups), len(groups.strata))
    bounds = joint.transpose(1, 0, 2).reshape(len(validation), -1).cumsum(1)[:, :-1]
    start = np.random.default_rng(seed).random(len(validation))
    cells = [
        ((start + copy)[:, None] / COPIES > bounds).sum(1) for copy in range(COPIES)
    ]  # evenly spaced between 0 and 1, so that shares are close to the probabilities
    cell = np.concatenate(cells)
    return Split(
        np.concatenate([np.asarray(validation.X)] * COPIES),
        labels[cell].astype(validation.y.dtype),
        codes[cell].astype(validation.s.dtype),
    )
