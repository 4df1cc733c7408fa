"""What a page is about: files, columns and labels by the names that people know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class About:
    """Names of what was edited; empty where they are not known.

    Parameters
    ----------
    model, edited : str, default=""
        The file of the model, and that of the edited one.
    tables : mapping, default={}
        The files of the "training", "validation" and "test" rows.
    label : str, default=""
        The column of labels.
    groups : tuple of str, default=()
        The columns of groups.
    favourable_given : bool, default=False
        Whether the user said which label is the favourable one.
    """

    model: str = ""
    edited: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    groups: tuple[str, ...] = ()
    favourable_given: bool = False

    def with_names(self, y: Any, sensitive_features: Any) -> About:
        """Add the names that a series or a frame has."""
        label = self.label or _name(y)
        columns = getattr(sensitive_features, "columns", None)
        names = [_name(sensitive_features)] if columns is None else map(str, columns)
        groups = self.groups or tuple(name for name in names if name)
        return About(self.model, self.edited, self.tables, label, groups, self.favourable_given)


def _name(values: Any) -> str:
    name = getattr(values, "name", None)
    return name if isinstance(name, str) else ""
