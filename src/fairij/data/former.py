"""Former names of parameters: they still work, and lead to a warning that names the new one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from fairij.errors import FairIJWarning, InvalidInputError

Kind = TypeVar("Kind", bound=type)


def renamed(**names: str) -> Callable[[Kind], Kind]:
    """Let an estimator also take these former names, given as ``former="name"``."""

    def also(kind: Kind) -> Kind:
        for method in ("__init__", "set_params"):
            setattr(kind, method, _in_new_names(getattr(kind, method), names))
        return kind

    return also


def _in_new_names(method: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    @wraps(method)  # so that scikit-learn sees the parameters themselves
    def called(self: Any, *args: Any, **given: Any) -> Any:
        for former in names.keys() & given.keys():
            name = names[former]
            if name in given:
                raise InvalidInputError(
                    f"`{name}` must be given once, but `{former}` is its former name: leave "
                    f"`{former}` out."
                )
            warnings.warn(
                f"`{former}` is called `{name}` now; the former name still works.",
                FairIJWarning,
                stacklevel=2,
            )
            given[name] = given.pop(former)
        return method(self, *args, **given)

    return called
