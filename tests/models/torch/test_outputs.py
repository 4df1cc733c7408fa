"""What a module returns: alone, first in a tuple, or refused with the line to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairij.errors import InvalidInputError
from fairij.models import TorchEditable

ROWS = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))


class Returning(nn.Module):
    """Returns its logit and inner values in some form."""

    def __init__(self, form: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inner, self.last, self.form = nn.Linear(3, 4), nn.Linear(4, 1), form

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.inner(x))
        z = self.last(h)
        return {
            "alone": z,
            "first": (z, h),
            "with the rows": (z, x),
            "inner values first": (h, z),
            "inner values first, flat": (h, z[:, 0]),
            "rows first": (x, z),
            "loss first": (z.mean(), z),
            "list": [z, h],
            "dict": {"logits": z},
            "nothing": (),
        }[self.form]


@pytest.mark.parametrize("form", ["first", "with the rows"])
def test_a_logit_that_is_first_in_a_tuple_is_taken(form: str) -> None:
    expected = TorchEditable(Returning("alone")).outputs(ROWS)
    assert torch.equal(TorchEditable(Returning(form)).outputs(ROWS), expected)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("inner values first", r"of shapes \(32, 4\), \(32, 1\).*returns the logits alone"),
        ("inner values first, flat", r"of shapes \(32, 4\), \(32,\)"),
        ("rows first", r"of shapes \(32, 3\), \(32, 1\)"),
        ("loss first", r"got shape \(\).*first in a tuple.*returns the logits alone"),
        ("list", "got list"),
        ("dict", "got dict"),
        ("nothing", "got NoneType"),
    ],
)
def test_other_forms_are_refused(form: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        TorchEditable(Returning(form), batch_size=64).outputs(ROWS)


def test_several_outputs_first_are_taken() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(self.inner(x))
            return self.last(h), h

    module = Several()
    assert torch.equal(TorchEditable(module).outputs(ROWS), module(ROWS)[0])
