"""Which family a model belongs to, and what is said of one that belongs to none."""

from __future__ import annotations

import pytest
import torch

from fairij.errors import InvalidInputError
from fairij.models import EditableDefaults, adapt


def test_an_unknown_kind_of_model_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"recognises 'object'.*torch.nn.Module.*Editable"):
        adapt(object())


class Started(EditableDefaults):
    """An adapter that someone has begun to write."""

    theta = torch.zeros(2)

    def outputs(self, X: torch.Tensor, theta: torch.Tensor | None = None) -> torch.Tensor:
        return X @ self.theta


def test_an_adapter_that_lacks_members_is_told_which() -> None:
    lacks = "parameter_names, linearize, evaluator, edited, frame_fingerprint"
    with pytest.raises(InvalidInputError, match=f"'Started' must have .* but lacks {lacks}"):
        adapt(Started())
    bare = type("Bare", (), {"theta": torch.zeros(2)})()
    with pytest.raises(InvalidInputError, match=r"row_weights.*Inherit `fairij.models.EditableD"):
        adapt(bare)
