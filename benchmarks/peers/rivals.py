"""fairret, maxcorr and AIF360 on the rows of one file; run in an environment of their own."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import torch

Rows = Any  # what np.load gives: z, y, s


def fairret_gaps(rows: Rows) -> dict[str, float]:
    """The norm of two groups' violations, times the target that it is divided by."""
    from fairret.loss import NormLoss
    from fairret.statistic import PositiveRate, TruePositiveRate

    z = torch.from_numpy(rows["z"])[:, None]
    y = torch.from_numpy(rows["y"]).double()[:, None]
    groups = torch.nn.functional.one_hot(torch.from_numpy(rows["s"])).double()
    score = torch.sigmoid(z)
    rate, hits = score.mean(), (score * y).sum() / y.sum()
    return {
        "demographic_parity": float(rate * NormLoss(PositiveRate())(z, groups)),
        "equal_opportunity": float(hits * NormLoss(TruePositiveRate())(z, groups, y)),
    }


def maxcorr_dependence(rows: Rows) -> dict[str, float]:
    from maxcorr import hgr

    score, group = 1 / (1 + np.exp(-rows["z"])), rows["s"].astype(float)
    methods = {"kernels": {"algorithm": "dk"}, "density": {"algorithm": "kde"}}
    return {name: float(hgr(**how).compute(score, group)) for name, how in methods.items()}


def aif360_odds(rows: Rows) -> dict[str, float]:
    """Its equalized odds by linear program, from predicted labels, on the rows it is given."""
    from aif360.algorithms.postprocessing import EqOddsPostprocessing
    from aif360.datasets import BinaryLabelDataset

    table = pd.DataFrame({"s": rows["s"], "y": rows["y"]}).astype(float)
    truth = BinaryLabelDataset(df=table, label_names=["y"], protected_attribute_names=["s"])
    predicted = truth.copy()
    predicted.labels = (rows["z"] > 0).astype(float)[:, None]
    method = EqOddsPostprocessing([{"s": 0.0}], [{"s": 1.0}], seed=0)
    chosen = method.fit_predict(truth, predicted).labels[:, 0]
    y, s = rows["y"], rows["s"]
    rates = [[chosen[(y == label) & (s == group)].mean() for group in (0, 1)] for label in (0, 1)]
    return {
        "accuracy": float((chosen == y).mean()),
        "equalized_odds": float(sum(abs(a - b) for a, b in rates)),
    }


if __name__ == "__main__":
    given = np.load(sys.argv[1])
    found = {
        "fairret": fairret_gaps(given),
        "maxcorr": maxcorr_dependence(given),
        "aif360": aif360_odds(given),
    }
    print(json.dumps(found))
