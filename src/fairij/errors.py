"""What can go wrong, by name; every message says what was required, what was found and the cure."""

from __future__ import annotations


class FairIJError(Exception):
    """Base of the errors that are fairij's own."""


class InvalidInputError(FairIJError, ValueError):
    """Data, labels, groups or settings do not meet a stated requirement."""


class SolverError(FairIJError, ArithmeticError):
    """The linear system ``(H + damping I) x = b`` could not be solved as asked."""


class NegativeCurvatureError(SolverError):
    """A direction with ``d^T (H + damping I) d <= 0`` was met: not positive definite."""


class NotConvergedError(SolverError):
    """An iterative solver used all its steps before it reached its tolerance."""


class WrongModelError(FairIJError, ValueError):
    """An edit was applied to a model that it was not made for."""


class CorruptEditError(FairIJError, ValueError):
    """A file does not hold a valid edit."""


class CheckpointError(FairIJError, ValueError):
    """A checkpoint is of another run, is damaged, or cannot be written."""


class ProcessError(FairIJError):
    """Another of the processes that share a run failed, or can no longer be reached."""


class FairIJWarning(UserWarning):
    """Base of the warnings that are fairij's own."""


class NotStationaryWarning(FairIJWarning):
    """The model is not at a minimum of its training loss, so "as if dropped" is approximate."""


class SmallGroupWarning(FairIJWarning):
    """A group has few validation rows, so its rates are uncertain."""


class SeenRowsWarning(FairIJWarning):
    """The validation rows were split off those that the model may have been trained on."""


class NothingToDropWarning(FairIJWarning):
    """No training point has positive influence on the gap; the model is returned unchanged."""
