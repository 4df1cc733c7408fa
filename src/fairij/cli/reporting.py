"""The work of `fairij report`: read a folder and the tables that it names, and write the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fairij.cli.config import HASHES, NEVER_FROM_FILE, changed_files, fits, read_toml, shortened
from fairij.cli.fitting import make_mitigator, read_train
from fairij.cli.folder import read_result, write_page
from fairij.cli.options import ColumnOptions, EditOptions, FitTables, ModelOptions, PageOptions
from fairij.cli.outputs import MARK, PAGE, check_target
from fairij.cli.rows import read_part
from fairij.errors import InvalidInputError

GROUPS = (ModelOptions, ColumnOptions, FitTables, EditOptions, PageOptions)
OWN = {"model": Path, HASHES: dict[str, str]}
KINDS: dict[Any, str] = {
    Path: "a path",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list[str]: "a list of texts",
    list[float]: "a list of numbers",
}


def write_again(
    folder: Path,
    out: Path | None,
    *,
    title: str | None,
    show_text: bool,
    trust_pickle: bool,
    force: bool,
) -> Path:
    """Write the page of a folder, and return its path."""
    settings, target = _settings(folder), out or folder / PAGE
    check_target(target, force=force)
    with _as_said_in(folder / MARK):
        opening = dataclasses.replace(_of(ModelOptions, settings), trust_pickle=trust_pickle)
        columns, tables = _of(ColumnOptions, settings), _of(FitTables, settings)
        page = _of(PageOptions, settings)
        page = dataclasses.replace(
            page, title=title or page.title, show_text=show_text or page.show_text
        )
        file = opening.open(Path(settings["model"]))
        unfitted = make_mitigator(file.model, _of(EditOptions, settings))
    fitted = read_result(folder, unfitted)
    _check_unchanged(folder, settings)
    with _as_said_in(folder / MARK):
        train, test = read_train(tables, columns, file), None
        if page.test is not None:
            test = read_part(page.test, page.test_query, columns, file, with_weights=False)
    if len(train) != len(fitted.influence_):
        raise InvalidInputError(
            f"{tables.train} must be the training table of that run, of {len(fitted.influence_)} "
            f"rows; it has {len(train)} now."
        )
    with _as_said_in(folder / MARK):
        write_page(fitted, target, train=train, test=test, page=page, overwrite=force)
    return target


def _settings(folder: Path) -> dict[str, Any]:
    """The settings of a folder, checked: no key is unknown and none is missing."""
    mark = folder / MARK
    try:
        settings = read_toml(mark)
    except (OSError, InvalidInputError) as error:
        raise InvalidInputError(
            f"{folder} must be a folder as `fairij mitigate` writes it, with {MARK}: {error}"
        ) from None
    missing = [key for key in ("model", "train", "label", "sensitive") if key not in settings]
    if missing:
        raise InvalidInputError(
            f"{mark} must say {missing[0]!r}, but does not: add it as `fairij mitigate` had it."
        )
    known = OWN | {name: kind for group in GROUPS for name, kind in get_type_hints(group).items()}
    for key, value in settings.items():
        if key not in known or key in NEVER_FROM_FILE:
            raise InvalidInputError(f"{mark} has the key {key!r}, which no run writes: delete it.")
        if not fits(value, known[key]):
            raise InvalidInputError(
                f"{mark} must set {key!r} to {_spoken(known[key])}, got {shortened(value)}: write "
                "it as `fairij mitigate` had it."
            )
    return settings


def _spoken(kind: Any) -> str:
    """A type in words."""
    return next(KINDS[one] for one in (kind, *get_args(kind)) if one in KINDS)


@contextmanager
def _as_said_in(settings: Path) -> Iterator[None]:
    """Let errors name the file that the values come from."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{settings} cannot be followed: {error}") from None


def _check_unchanged(folder: Path, settings: dict[str, Any]) -> None:
    """Raise if a table has changed since the run. Tables behind queries are not checked."""
    names = [n for n in ("train", "test") if n in settings and f"{n}_query" not in settings]
    for name in changed_files(settings, {name: Path(settings[name]) for name in names}):
        raise InvalidInputError(
            f"{settings[name]} must be the table of that run, but it has changed since, and the "
            "page would show rows that were not used: put the old file back, or run `fairij "
            f"mitigate --config {folder / MARK}` again."
        )


def _of(kind: Any, settings: dict[str, Any]) -> Any:
    """An options object from its own settings."""
    names = {field.name for field in dataclasses.fields(kind)}
    given = {key: value for key, value in settings.items() if key in names}
    for key in ("train", "validation", "test"):
        if key in given:
            given[key] = Path(given[key])
    return kind(**given)
