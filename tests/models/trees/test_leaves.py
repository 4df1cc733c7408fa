"""The Jacobian of leaves, bundled or not, against a dense one-hot matrix."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from fairij.models import adapt
from fairij.models.trees.leaves import GRAM_ROWS, MOST_SUMS, LeafJacobian, bundled


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
    jacobian = LeafJacobian.of(leaves.T, sizes, outputs, weights, classes, dtype)
    assert (len(jacobian.table) < len(sizes)) == (rows == 400)
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


@pytest.mark.parametrize("block", [7, GRAM_ROWS])
@pytest.mark.parametrize("classes", [1, 3])
def test_the_gram_matrix_equals_the_product_of_dense_rows(
    classes: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairij.models.trees.leaves.GRAM_ROWS", block)
    rng = np.random.default_rng(classes)
    sizes = rng.integers(1, 6, 5 * classes)
    outputs = rng.permutation(np.arange(5 * classes) % classes)
    weights = rng.uniform(0.5, 2, len(sizes))
    leaves = rng.integers(0, sizes, (40, len(sizes)))
    middle = rng.normal(size=(40, classes, classes))
    middle = torch.from_numpy(middle + middle.transpose(0, 2, 1))
    J = dense(leaves, sizes, outputs, weights, classes)
    found = LeafJacobian.of(leaves.T, sizes, outputs, weights, classes, torch.float32).gram(middle)
    assert torch.allclose(found, torch.einsum("ncd,nce,nef->df", J, middle, J), atol=1e-12)


def alike(rng: np.random.Generator, trees: int, rows: int, size: int) -> np.ndarray:
    """Leaves (T, N) of trees that part the rows nearly alike, as boosted ones do."""
    first = rng.integers(0, size, rows)
    changed = rng.random((trees, rows)) < 0.02
    return np.where(changed, (first + 1) % size, first).astype(np.uint8)


@pytest.mark.parametrize("rows", [100, 20_000])
def test_bundles_hold_trees_of_one_output_and_the_combinations_that_occur(rows: int) -> None:
    rng = np.random.default_rng(0)
    sizes, outputs = np.array([31] * 20 + [2] * 4), np.arange(24) % 2
    leaves = np.concatenate([alike(rng, 20, rows, 31), alike(rng, 4, rows, 2)])
    starts = np.cumsum(sizes) - sizes
    bundles = bundled(leaves, sizes, outputs)
    first = [[int(leaves[0]) for leaves in bundle.members] for bundle in bundles]
    trees = [[int(np.searchsorted(starts, leaf, "right")) - 1 for leaf in some] for some in first]
    assert sorted(tree for some in trees for tree in some) == list(range(24))
    for some, bundle in zip(trees, bundles, strict=True):
        assert set(outputs[some]) == {bundle.output}
        combinations = torch.stack(bundle.members, 1).numpy() - starts[some]
        assert np.array_equal(combinations[bundle.codes.numpy()], leaves[some].T)
        if len(some) > 1:
            assert len(combinations) <= min(MOST_SUMS, rows // (4 * len(some)))
            assert len(torch.unique(bundle.codes)) == len(combinations)
    assert len(bundles) < 24
    if rows == 20_000:  # 31^4 combinations could be, few are
        assert max(len(some) for some in trees) >= 4


@pytest.mark.parametrize("frame", [False, True])
def test_leaves_are_looked_up_for_some_rows_at_a_time(
    frame: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    data = pd.DataFrame(X, columns=list("uvw")) if frame else X
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=3).fit(data, X[:, 0])
    whole = adapt(model).outputs(data)
    monkeypatch.setattr("fairij.models.trees.ensemble.LOOKED_UP", 7)
    assert torch.equal(adapt(model).outputs(data), whole)
    assert np.allclose(whole.numpy(), model.predict(data))
