"""How a command ends: exit codes, and one line for every expected failure."""

from __future__ import annotations

import errno
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import NoReturn

import typer
from rich.console import Console

from fairij.cli.options import EditOptions
from fairij.cli.signals import Ended, ending_cleanly
from fairij.errors import (
    CorruptEditError,
    FairIJError,
    FairIJWarning,
    InvalidInputError,
    printable,
)

DONE, FAILED, BAD_INPUT, TARGET_MISSED, CANNOT_WRITE, LIMIT_BROKEN = range(6)
INTERRUPTED = 130
HUNG_UP, TERMINATED = 129, 143
EXIT_CODES = {
    DONE: "done",
    FAILED: "failed, for the reason given (a solver that failed, an edit for another model, data "
    "that could not be fetched)",
    BAD_INPUT: "wrong options or bad input (columns, tables, model files); nothing done",
    TARGET_MISSED: "done and written, but a target (--target-gap, --target-ratio) or a budget that "
    "was given (--accuracy-budget, --budget) is missed, on the --test rows, or (of a gap) on the "
    "validation rows",
    CANNOT_WRITE: "the output could not be written (full disk, read-only folder)",
    LIMIT_BROKEN: "done and written, but a --max-gap or --min-ratio of `audit` is not kept, or "
    "could not be measured",
    HUNG_UP: "ended by SIGHUP (the terminal was closed)",
    INTERRUPTED: "interrupted (Ctrl-C)",
    TERMINATED: "ended by SIGTERM",
}
EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."
FULL = {errno.ENOSPC, errno.EDQUOT}
CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}

# how the command line calls the parameters of the library
SPOKEN = {
    "X": "the rows",
    "y": "the labels",
    "X_val": "the validation rows",
    "y_val": "the validation labels",
    "sensitive_features_val": "the validation groups",
    "sensitive_features": "the groups",
    "sample_weight": "--weights",
    "budget": "--accuracy-budget",
    "gap": "--target-gap",
    "scales": "--scale",
    "classes": "--classes",
    "templates": "--probe",
    "max_gap": "--max-gap",
    "min_ratio": "--min-ratio",
    "min_rows": "--min-rows",
    "attributes": "--explore",
    "control_features_val": "--control",
    "control_features": "--control",
    "control_features_test": "--control",
    "sample_weight_val": "--validation-weights",
    "missing_groups": "--missing-groups",
    "marginals": "--marginals",
    "pos_label": "--pos-label",
}
SAME = {"checkpoint", *(field.name for field in fields(EditOptions))}

errors = Console(stderr=True)


def fail(message: str, code: int) -> NoReturn:
    text = f"error: {printable(message)}"
    with suppress(OSError, SystemExit):  # the terminal may be gone, for which rich would exit
        errors.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def guarded() -> Iterator[None]:
    try:
        with ending_cleanly(), _notes():
            yield
    except Ended as signal:
        fail(f"ended by {signal.name}; nothing half-written is left.", signal.code)
    except KeyboardInterrupt:
        fail("interrupted; nothing half-written is left.", INTERRUPTED)
    except (InvalidInputError, CorruptEditError) as error:
        fail(as_options(str(error), getattr(error, "parameter", None)), BAD_INPUT)
    except FairIJError as error:
        fail(as_options(str(error)), FAILED)
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        fail(str(error), BAD_INPUT)
    except BrokenPipeError:
        raise  # the reader of the output has gone; typer ends quietly
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
                line = printable(f"note: {as_options(text)}")
                errors.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
    for other in caught:
        if not _is_ours(other):
            said: Warning | str = other.message
            if (safe := printable(str(said))) != str(said):
                said = safe
            warnings.warn_explicit(said, other.category, other.filename, other.lineno)


def as_options(message: str, parameter: str | None = None) -> str:
    """A message of the library with options in place of its parameters.

    ``parameter`` is the one that the message is about; it is put first if the text lacks it.
    """

    def with_value(found: re.Match[str]) -> str:  # loss='squared_error' as --loss squared_error
        option = option_of(found[1]) or ""
        return f"{option} {found[2]}" if option.startswith("--") else found[0]

    text = re.sub(r"(?<!\()`?\b(\w+)`?='(\w+)'", with_value, message)
    text = re.sub(r"`(\w+)`", lambda found: option_of(found[1]) or found[0], text)
    option = option_of(parameter or "")
    return text if option is None or option in text else f"{option}: {text}"


def option_of(parameter: str) -> str | None:
    """The option, or the words, for a parameter of the library; None if there is none."""
    same = f"--{parameter.replace('_', '-')}" if parameter in SAME else None
    return SPOKEN.get(parameter, same)


def _is_ours(warning: warnings.WarningMessage) -> bool:
    return issubclass(warning.category, FairIJWarning)
