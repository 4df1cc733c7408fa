"""Load transformers when it is needed, and say what to install if it is missing."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from fairij.errors import InvalidInputError


@cache
def load_transformers() -> Any:
    """The library; a torchvision that was built for another torch is hidden from it."""
    try:
        checks: Any = import_module("transformers.utils.import_utils")
    except ImportError as error:
        raise InvalidInputError(
            "Language models need the package transformers: install fairij[transformers]."
        ) from error
    try:
        import_module("torchvision")
    except ImportError:
        pass  # transformers sees this by itself
    except RuntimeError:  # its operators are missing, and transformers could not import it
        known = checks._is_package_available

        def is_available(name: str, *args: Any, **options: Any) -> Any:
            return (False, "N/A") if name == "torchvision" else known(name, *args, **options)

        checks._is_package_available = is_available
        for check in (checks.is_torchvision_available, checks.is_torchvision_v2_available):
            getattr(check, "cache_clear", lambda: None)()
    return import_module("transformers")
