"""The Jacobian of leaves, bundled or not, against a dense one-hot matrix."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from fairij.models.leaves import MOST_SUMS, Layout, LeafJacobian, bundled


def dense(
    leaves: np.ndarray, sizes: np.ndarray, outputs: np.ndarray, weights: np.ndarray, classes: int
) -> Tensor:
    J = np.zeros((len(leaves), classes, sizes.sum()))
    starts = np.cumsum(sizes) - sizes
    for n, row in enumerate(leaves):
        for tree, leaf in enumerate(row):
            J[n, outputs[tree], starts[tree] + leaf] = weights[tree]
    return torch.from_numpy(J)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rows", [3, 400])
@pytest.mark.parametrize("seed", range(6))
def test_products_equal_the_dense_jacobian(seed: int, rows: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(seed)
    classes = 1 + seed % 3
    sizes = rng.integers(1, 6, 4 * classes)
    outputs = rng.permutation(np.arange(4 * classes) % classes)
    weights = rng.uniform(0.5, 2, len(sizes))
    leaves = rng.integers(0, sizes, (rows, len(sizes)))
    layout = Layout.of(sizes, outputs, weights, classes, rows)
    assert (len(layout.bundles) < len(sizes)) == (rows == 400)
    jacobian = LeafJacobian(layout.table(leaves), layout, dtype)
    J = dense(leaves, sizes, outputs, weights, classes)
    near = {"atol": 1e-12 if dtype == torch.float64 else 1e-5, "rtol": 1e-5}
    r = torch.from_numpy(rng.normal(size=J.shape[-1])).to(dtype)
    u = torch.from_numpy(rng.normal(size=(rows, classes))).to(dtype)
    forward, back = J @ r.double(), torch.einsum("ncd,nc->d", J, u.double())
    shape = (rows,) if classes == 1 else (rows, classes)
    product = jacobian.times(r)
    assert product.shape == shape
    assert product.dtype == dtype
    assert torch.allclose(product.double().view(rows, -1), forward, **near)
    transposed = jacobian.transposed_times(u.view(shape))
    assert transposed.dtype == dtype
    assert torch.allclose(transposed.double(), back, **near)
    index = torch.tensor([2, 0])
    assert torch.allclose(jacobian.rows(index).double(), J[index], **near)
    some = jacobian.take(index)
    assert torch.allclose(some.times(r).double().view(2, -1), forward[index], **near)


def test_bundles_hold_trees_of_one_output_and_few_combinations() -> None:
    sizes = np.array([31] * 100 + [2] * 20)
    outputs = np.arange(120) % 2
    for rows in (100, 10_000, 10_000_000):
        bundles = bundled(sizes, outputs, rows)
        assert sorted(tree for trees in bundles for tree in trees) == list(range(120))
        assert all(len(set(outputs[trees])) == 1 for trees in bundles)
        together = [trees for trees in bundles if len(trees) > 1]
        assert all(np.prod(sizes[trees]) <= min(MOST_SUMS, rows) for trees in together)
    assert len(bundles) <= 40  # threes of 31 leaves


def test_libraries_are_imported_only_for_their_own_models() -> None:
    code = (
        "import sys, fairij; from sklearn.linear_model import LinearRegression as L;"
        "fairij.models.adapt(L().fit([[0.0], [1.0]], [0.0, 1.0]));"
        "print(sorted({'lightgbm', 'xgboost'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
