"""How a command ends: one table of exit codes, and one line for every expected failure."""

from __future__ import annotations

import errno
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperCommand

from fairij.cli.display import RESULTS
from fairij.errors import CorruptEditError, FairIJError, FairIJWarning, InvalidInputError

DONE, FAILED, BAD_INPUT, TARGET_MISSED, CANNOT_WRITE, INTERRUPTED = 0, 1, 2, 3, 4, 130
EXIT_CODES = {
    DONE: "done",
    FAILED: "could not be done, for the reason given (a solver that failed, an edit for another "
    "model, data that could not be fetched)",
    BAD_INPUT: "wrong usage or unfit input (options, columns, tables, model files); nothing done",
    TARGET_MISSED: "done and written, but no edit reached the --target-gap",
    CANNOT_WRITE: "the output could not be written (full disk, read-only folder)",
    INTERRUPTED: "interrupted (Ctrl-C)",
}
EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."
FULL = {errno.ENOSPC, errno.EDQUOT}
CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}

# what the library calls the things that options stand for
SPOKEN = {
    "X": "the rows",
    "y": "the labels",
    "X_val": "the validation rows",
    "y_val": "the validation labels",
    "sensitive_features_val": "the validation groups",
    "sensitive_features": "the groups",
    "sample_weight": "--weights",
    "constraints": "--constraint",
    "validation": "--reuse",
    "random_state": "--seed",
    "budget": "--accuracy-budget",
    "gap": "--target-gap",
    "scales": "--scale",
}
SAME = {
    *("solver", "damping", "curvature", "search", "drop", "temperature", "loss", "parameters"),
    *("weight_decay", "batch_size", "memory_limit", "confidence", "validation_fraction"),
    *("holdout_fraction", "checkpoint", "slack", "max_k"),
}

errors = Console(stderr=True)


class Command(TyperCommand):
    """A command whose expected failures end in one line and an exit code of the table."""

    def invoke(self, ctx: Any) -> Any:
        results = RESULTS.set(sys.stdout)
        try:
            with guarded(), redirect_stdout(sys.stderr):
                return super().invoke(ctx)
        finally:
            RESULTS.reset(results)


def fail(message: str, code: int) -> NoReturn:
    errors.print(f"error: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def guarded() -> Iterator[None]:
    try:
        with _notes():
            yield
    except KeyboardInterrupt:
        fail("interrupted; nothing half-written is left.", INTERRUPTED)
    except (InvalidInputError, CorruptEditError) as error:
        fail(as_options(str(error)), BAD_INPUT)
    except FairIJError as error:
        fail(as_options(str(error)), FAILED)
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        fail(str(error), BAD_INPUT)
    except BrokenPipeError:
        raise  # whoever read the output has gone; typer ends quietly
    except OSError as error:
        _fail_on(error)
    except MemoryError:
        fail("there is not enough memory: give fewer rows, or lower --memory-limit.", FAILED)


def _fail_on(error: OSError) -> NoReturn:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in FULL:
        fail(f"the disk is full{where}: free some space and run again. Nothing is left behind.", 4)
    if error.errno in CLOSED:
        fail(f"the output may not be written{where}: {error.strerror}. Choose another --out.", 4)
    fail(str(error), FAILED)


@contextmanager
def _notes() -> Iterator[None]:
    """Show fairij's own warnings as notes on standard error; pass all others on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FairIJWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(w.message) for w in caught if _is_ours(w)):
                line = f"note: {as_options(text)}"
                errors.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
    for other in caught:
        if not _is_ours(other):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)


def as_options(message: str) -> str:
    """A message of the library in the words of the command line."""

    def spoken(found: re.Match[str]) -> str:
        return _spoken(found[1]) or found[0]

    def with_value(found: re.Match[str]) -> str:
        option = _spoken(found[1]) or ""
        return f"{option} {found[2]}" if option.startswith("--") else found[0]

    message = re.sub(r"(?<!\()`?\b(\w+)`?='(\w+)'", with_value, message)
    return re.sub(r"`(\w+)`", spoken, message)


def _spoken(name: str) -> str | None:
    return SPOKEN.get(name) or (f"--{name.replace('_', '-')}" if name in SAME else None)


def _is_ours(warning: warnings.WarningMessage) -> bool:
    return issubclass(warning.category, FairIJWarning)
