"""Curvature operators against dense float64 references and against curvlinops."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from fairij.errors import InvalidInputError
from fairij.method.curvature import CURVATURES, dense, largest_eigenvalue, make_curvature
from reference import Case, make_case


@pytest.mark.parametrize("name", sorted(CURVATURES))
def test_products_and_dense_form_equal_the_reference(case: Case, name: str) -> None:
    expected = getattr(case, name)()
    curvature = make_curvature(name, case.objective(batch_size=16))
    product = torch.stack([curvature.product(e) for e in torch.eye(len(expected)).double()], 1)
    assert torch.allclose(product, expected, atol=1e-11)
    assert torch.allclose(dense(curvature, chunk_bytes=4096), expected, atol=1e-11)


@pytest.mark.parametrize("name", ["ggn", "empirical_fisher"])
def test_root_rows_average_to_the_curvature(case: Case, name: str) -> None:
    curvature = make_curvature(name, case.objective())
    rows = curvature.root_rows(torch.arange(len(case.X)))
    expected = getattr(case, name)() - case.l2 * torch.eye(len(case.theta)).double()
    assert torch.allclose(rows.T @ rows / len(case.X), expected, atol=1e-11)


def test_restricting_to_all_rows_changes_nothing(case: Case) -> None:
    curvature = make_curvature("hessian", case.objective())
    same = curvature.restrict(torch.arange(len(case.X)))
    v = torch.ones(len(case.theta)).double()
    assert torch.allclose(curvature.product(v), same.product(v), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "peer"), [("ggn", "GGN"), ("empirical_fisher", "EF"), ("hessian", "Hessian")]
)
@pytest.mark.parametrize("kind", ["mlp", "softmax", "regression"])
def test_equal_to_curvlinops(kind: str, name: str, peer: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import curvlinops
    case = make_case(kind)
    loss, y = {
        "mlp": (nn.BCEWithLogitsLoss(), case.y[:, None]),
        "softmax": (nn.CrossEntropyLoss(), case.y.long()),
        "regression": (nn.MSELoss(), case.y[:, None]),
    }[kind]
    scale = 0.5 if kind == "regression" else 1.0  # ours is half the squared error
    if kind == "regression" and name == "empirical_fisher":
        scale = 0.25
    operator = getattr(curvlinops, f"{peer}LinearOperator")(
        case.module, loss, list(case.module.parameters()), [(case.X, y)]
    )
    theirs = operator @ torch.eye(len(case.theta)).double()
    ours = dense(make_curvature(name, case.objective()))
    assert torch.allclose(ours, scale * theirs, atol=1e-10)


def test_largest_eigenvalue(case: Case) -> None:
    curvature = make_curvature("ggn", case.objective())
    expected = torch.linalg.eigvalsh(case.ggn())[-1]
    found = largest_eigenvalue(curvature, steps=200)
    assert found == pytest.approx(float(expected), rel=1e-3)
    assert found <= float(expected) * (1 + 1e-9)


def test_the_hessian_has_no_rows_to_sample() -> None:
    with pytest.raises(InvalidInputError, match="may be indefinite; use curvature='ggn'"):
        make_curvature("hessian", make_case("mlp").objective()).root_rows(torch.arange(2))


def test_an_unknown_curvature_names_the_known_ones() -> None:
    with pytest.raises(
        InvalidInputError, match=r"\['empirical_fisher', 'ggn', 'hessian'\].*'kfac'"
    ):
        make_curvature("kfac", make_case("mlp").objective())
