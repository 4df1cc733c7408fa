"""The work of `report`: write the page of a folder of `mitigate` again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fairij.cli.black_boxes import laid_out, opened
from fairij.cli.config import (
    FORMER,
    HASHES,
    NEVER_FROM_FILE,
    changed_files,
    fits,
    read_toml,
    shortened,
)
from fairij.cli.contents import add_to_contents, is_listed_and_changed
from fairij.cli.fitting import make_mitigator, read_test, read_train
from fairij.cli.folder import page_holds, read_result, write_page
from fairij.cli.former import renamed_keys
from fairij.cli.naming import about_of
from fairij.cli.options import (
    ColumnOptions,
    EditOptions,
    FitTables,
    ModelOptions,
    PageOptions,
    SentenceOptions,
)
from fairij.cli.outputs import MARK, PAGE, check_file, whole_file
from fairij.cli.sentences import add_constraint, probe_of
from fairij.cli.trust import RUNS_CODE, notes_of, require_given
from fairij.errors import InvalidInputError
from fairij.models.registry import is_black_box

GROUPS = (ModelOptions, ColumnOptions, FitTables, EditOptions, SentenceOptions, PageOptions)
OWN = FORMER | {"model": Path, HASHES: dict[str, str]}
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
    folder: Path, out: Path | None, opening: ModelOptions, shown: Mapping[str, Any], *, force: bool
) -> Path:
    """Write the page of a folder, and return its path; ``shown`` wins over the folder's options."""
    settings, target = _settings(folder, opening), out or folder / PAGE
    check_file(target, force=force)
    if target.is_file() and is_listed_and_changed(target.parent, target):
        raise FileExistsError(
            f"{target} has changed since fairij wrote it, so --force will not replace it: move it "
            "away, or name another --out."
        )
    with _as_said_in(folder / MARK):
        columns, tables = _of(ColumnOptions, settings), _of(FitTables, settings)
        wanted = {name: value for name, value in shown.items() if value is not None}
        page = dataclasses.replace(_of(PageOptions, settings), **wanted)
        edit, model = _of(EditOptions, settings), settings.get("model")
        sentences = _of(SentenceOptions, settings)
        how = {"black_box": edit.black_box, "correction": edit.correction}
        file = opened(opening, Path(model) if model else None, columns.score, **how)
        given = laid_out(file.model, folder) if is_black_box(file.model) else file.model
        unfitted = make_mitigator(given, edit)
        add_constraint(unfitted, sentences, file)
    fitted = read_result(folder, unfitted)
    _check_unchanged(folder, settings)
    with _as_said_in(folder / MARK):
        train, test = read_train(tables, columns, file), None
        if page.test is not None:
            test = read_test(tables, page, columns, file)
    if len(train) != len(fitted.influence_):
        raise InvalidInputError(
            f"{tables.train} must be the training table of that run, of {len(fitted.influence_)} "
            f"rows; it has {len(train)} now."
        )
    with whole_file(target, force=force) as written, _as_said_in(folder / MARK), _fitting(folder):
        probe = probe_of(fitted, file, train, test, page, sentences)
        about = about_of(Path(model) if model else None, file, tables, page, columns)
        write_page(fitted, written, train=train, test=test, page=page, probe=probe, about=about)
    add_to_contents(folder, target, page_holds(page))
    return target


def _settings(folder: Path, opening: ModelOptions) -> dict[str, Any]:
    """The settings of a folder, checked: no key is unknown and none is missing.

    What can lead to running code is only noted there, and has to be in ``opening``.
    """
    mark = folder / MARK
    try:
        if mark.exists() and not mark.is_file():
            raise InvalidInputError("it is not a file")
        settings = renamed_keys(read_toml(mark))
    except (OSError, InvalidInputError) as error:
        raise InvalidInputError(
            f"{folder} must be a folder as `fairij mitigate` writes it, with {MARK}: {error}"
        ) from None
    known_by = "score" if "score" in settings else "model"
    missing = [key for key in (known_by, "train", "label", "sensitive") if key not in settings]
    if missing:
        raise InvalidInputError(
            f"{mark} must say {missing[0]!r}, but does not: add it as `fairij mitigate` had it."
        )
    if isinstance(settings.get("constraints"), str):  # as earlier versions wrote it
        settings["constraints"] = [settings["constraints"]]
    known = OWN | {name: kind for group in GROUPS for name, kind in get_type_hints(group).items()}
    for key, value in settings.items():
        if key not in known or key in NEVER_FROM_FILE:
            raise InvalidInputError(f"{mark} has the key {key!r}, which no run writes: delete it.")
        if key not in RUNS_CODE and not fits(value, known[key]):
            raise InvalidInputError(
                f"{mark} must set {key!r} to {_spoken(known[key])}, got {shortened(value)}: write "
                "it as `fairij mitigate` had it."
            )
    require_given(notes_of(settings, mark), dataclasses.asdict(opening), mark)
    return {key: value for key, value in settings.items() if key not in RUNS_CODE}


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


@contextmanager
def _fitting(folder: Path) -> Iterator[None]:
    """Say so if the figures of a folder, which somebody may have written, make no page."""
    try:
        yield
    except InvalidInputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InvalidInputError(
            f"no page can be made of the figures in {folder}: {type(error).__name__}, {error}. "
            "Run `fairij mitigate` again."
        ) from error


def _check_unchanged(folder: Path, settings: dict[str, Any]) -> None:
    """Raise if a table has changed since the run. Tables behind queries are not checked."""
    names = [n for n in ("train", "test") if n in settings and f"{n}_query" not in settings]
    unknown = [name for name in names if name not in settings.get(HASHES, {})]
    if unknown:
        raise InvalidInputError(
            f"{folder / MARK} must have the hash of --{unknown[0]} in [{HASHES}], as every run "
            "writes it, but has none, so it may be another table: run `fairij mitigate --config "
            f"{folder / MARK}` again."
        )
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
    for key in ("train", "validation", "test", "probe"):
        if key in given:
            given[key] = Path(given[key])
    return kind(**given)
