"""Products by oneDNN are those of torch; without it torch makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fairij.models.torch import matmul

ROWS = 900


@pytest.fixture(params=["onednn", "torch"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(matmul, "_onednn", lambda: None)
    elif matmul._onednn() is None:
        pytest.skip("this CPU or this torch has no such products")
    monkeypatch.setattr(matmul, "_pays", lambda: True)
    monkeypatch.setattr(matmul, "WORTH", 1)
    return str(request.param)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0]), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer(library: str, dtype: torch.dtype, bias: bool) -> None:
    x, weight, shift = drawn(ROWS, 37, dtype=dtype), drawn(21, 37, dtype=dtype), drawn(21)
    shift = shift.to(dtype) if bias else None
    expected = x.double() @ weight.double().T + (0 if shift is None else shift.double())
    for rows in (x, x.T.contiguous().T, torch.cat([x, x], 1)[:, :37]):  # laid out in other ways
        before = rows.clone()
        torch.testing.assert_close(
            matmul.linear(rows, weight, shift).double(), expected, rtol=1e-4, atol=1e-4
        )
        assert torch.equal(rows, before)
    several = matmul.linear(x.view(30, 30, 37), weight, shift)  # places in rows
    torch.testing.assert_close(several.view(ROWS, 21).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_a_scratch_is_used_again_and_gives_the_same(library: str, bias: bool) -> None:
    scratch = matmul.Scratch()
    for rows, out in ((ROWS, 21), (ROWS // 2, 9), (2 * ROWS, 21)):  # it shrinks and grows
        x, weight = drawn(rows, 37), drawn(out, 37)
        shift = drawn(out) if bias else None
        expected = torch.nn.functional.linear(x, weight, shift)
        torch.testing.assert_close(matmul.linear(x, weight, shift, scratch), expected)
    small = scratch.like(x, 3, 2)
    assert small.shape == (3, 2)
    assert small.data_ptr() == scratch.like(x, 5).data_ptr()
    assert scratch.like(x.double(), 4).dtype == torch.float64


def test_a_scratch_keeps_no_large_room() -> None:
    scratch, x = matmul.Scratch(), torch.empty(1)
    first = scratch.like(x, matmul.MOST + 1)
    assert first.data_ptr() != scratch.like(x, matmul.MOST + 1).data_ptr()


@pytest.mark.parametrize(
    ("maker", "family", "expected"),
    [("GenuineIntel", "6", False), ("AuthenticAMD", "25", False), ("AuthenticAMD", "26", True)],
)
def test_which_cpus_gain(
    maker: str, family: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "cpuinfo"
    about.write_text(f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: {family}\n\n")
    monkeypatch.setattr(matmul, "CPU", about)
    assert matmul._pays.__wrapped__() is expected
    monkeypatch.setattr(matmul, "CPU", tmp_path / "none")
    assert matmul._pays.__wrapped__() is True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_of_outer_products(library: str, dtype: torch.dtype) -> None:
    left, right = drawn(ROWS, 21, dtype=dtype), drawn(ROWS, 37, dtype=dtype)
    expected = left.double().T @ right.double()
    found = matmul.gathered(left, right)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)
    assert torch.equal(found, matmul.gathered(left, right))


def test_only_large_float32_products_on_a_cpu_go_elsewhere() -> None:
    enough = -(-matmul.WORTH // 64)
    assert matmul._suits(torch.empty(enough, 8), 8)
    assert not matmul._suits(torch.empty(enough - 1, 8), 8)
    assert not matmul._suits(torch.empty(enough, 8).double(), 8)
    assert not matmul._suits(torch.empty(enough, 2, 4), 8)
    assert not matmul._suits(torch.empty(enough, 8, device="meta"), 8)
