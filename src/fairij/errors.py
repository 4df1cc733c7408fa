"""Errors and warnings. Every message says what is required, what was found, and the cure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# what steers a terminal or turns the direction of text, and halves of characters
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, encoding: str = "utf-8") -> str:
    """Text that is safe to show: what could steer a terminal is escaped, such as U+001B."""
    safe = STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return safe.encode(encoding, "backslashreplace").decode(encoding)


class FairIJError(Exception):
    """Base of all errors that fairij raises on purpose. Names from data are shown safely."""

    def __init__(self, *said: Any) -> None:
        super().__init__(*(printable(part) if isinstance(part, str) else part for part in said))


class InvalidInputError(FairIJError, ValueError):
    """Data, labels, groups or settings do not meet a stated requirement.

    Parameters
    ----------
    message : str
        The requirement, the value found, and the cure.
    parameter : str, default=None
        The parameter that is wrong. By default the name in back quotes that the message starts
        with, if there is one: "`damping` must be positive" is about ``damping``.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None) -> None:
        super().__init__(message)
        first = message.split("`", 2)
        named = first[1] if len(first) == 3 and not first[0] and first[1].isidentifier() else None
        self.parameter = parameter or named


class SolverError(FairIJError, ArithmeticError):
    """The linear system ``(H + damping I) x = b`` could not be solved."""


class NegativeCurvatureError(SolverError):
    """The system is not positive definite: some ``d`` has ``d^T (H + damping I) d <= 0``."""


class NotConvergedError(SolverError):
    """An iterative solver used all its steps before it reached its tolerance."""


class WrongModelError(FairIJError, ValueError):
    """An edit was applied to a model that it was not made for."""


class CorruptEditError(FairIJError, ValueError):
    """A file does not hold a valid edit."""


class CheckpointError(FairIJError, ValueError):
    """A checkpoint belongs to another run, is damaged, or cannot be written."""


class ProcessError(FairIJError):
    """Another process of a shared run failed, or can no longer be reached."""


class FairIJWarning(UserWarning):
    """Base of all warnings that fairij gives. Names from data are shown safely."""

    def __init__(self, *said: Any) -> None:
        super().__init__(*(printable(part) if isinstance(part, str) else part for part in said))


class NotStationaryWarning(FairIJWarning):
    """The model is not at a minimum of its training loss, so influence is approximate."""


class SmallGroupWarning(FairIJWarning):
    """A group has few validation rows, so its rates are uncertain."""


class SeenRowsWarning(FairIJWarning):
    """Validation or test rows that the model, or the edit, may have seen."""


class NothingToDropWarning(FairIJWarning):
    """No training row has positive influence on the gap; the model is returned unchanged."""


@dataclass(frozen=True)
class Notice:
    """Something that the user should know, returned as a value; `fit` warns of it once."""

    text: str
    category: type[FairIJWarning] = FairIJWarning
