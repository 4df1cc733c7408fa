"""`fairij report`: the page of a `mitigate` folder, made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from fairij.cli.config import HASHES, NEVER_FROM_FILE, changed_files, fits, read_toml, shortened
from fairij.cli.display import print_json, say
from fairij.cli.fitting import make_mitigator, read_train
from fairij.cli.folder import PAGE, read_result
from fairij.cli.options import ColumnOptions, EditOptions, FitTables, Force, Json, ModelOptions
from fairij.cli.outputs import MARK, check_target
from fairij.cli.pages import write_page
from fairij.cli.rows import read_part
from fairij.errors import InvalidInputError

GROUPS = (ModelOptions, ColumnOptions, FitTables, EditOptions)
OWN = {
    "model": Path,
    "test": Path,
    "test_query": str,
    "title": str,
    "show_text": bool,
    HASHES: dict[str, str],
}
KINDS: dict[Any, str] = {
    Path: "a path",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list[str]: "a list of texts",
    list[float]: "a list of numbers",
}
EXAMPLES = ('fairij report result --out for-the-board.html --title "Loans, 2026"',)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `mitigate` wrote.")],
    out: Annotated[
        Path | None, typer.Option(help="The new page. Default: report.html in the folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Another title for the page.")] = None,
    show_text: Annotated[
        bool, typer.Option("--show-text", help="Show the worst training texts on the page.")
    ] = False,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="As for `mitigate`, if the model needs it.")
    ] = False,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Write the report page of an earlier run again, from its folder and the tables it names.

    Nothing is computed anew but what the page shows of the test rows.
    """
    target = out or folder / PAGE
    settings = _settings(folder)
    check_target(target, force=force)
    with _as_said_in(folder / MARK):
        opening = dataclasses.replace(_of(ModelOptions, settings), trust_pickle=trust_pickle)
        columns, tables = _of(ColumnOptions, settings), _of(FitTables, settings)
        file = opening.open(Path(settings["model"]))
        unfitted = make_mitigator(file.model, _of(EditOptions, settings))
    fitted = read_result(folder, unfitted)
    _check_unchanged(folder, settings)
    test = None
    with _as_said_in(folder / MARK):
        train = read_train(tables, columns, file)
        if "test" in settings:
            query = settings.get("test_query")
            test = read_part(Path(settings["test"]), query, columns, file, with_weights=False)
    if len(train) != len(fitted.influence_):
        raise InvalidInputError(
            f"{tables.train} must be the training table of that run, of {len(fitted.influence_)} "
            f"rows; it has {len(train)} now."
        )
    with _as_said_in(folder / MARK):
        write_page(
            fitted,
            target,
            train=train,
            test=test,
            show_text=show_text or bool(settings.get("show_text", False)),
            title=title or str(settings.get("title", "Fairness report")),
            overwrite=force,
        )
    if as_json:
        print_json({"out": str(target)})
    else:
        say(f"The page is {target}")


def _settings(folder: Path) -> dict[str, Any]:
    """What the folder says of its run: no key is unknown, none that is needed is missing."""
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
    """A type in words; what is left at None is not written."""
    return next(KINDS[one] for one in (kind, *get_args(kind)) if one in KINDS)


@contextmanager
def _as_said_in(settings: Path) -> Iterator[None]:
    """Let errors tell which file the values are from."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{settings} cannot be followed: {error}") from None


def _check_unchanged(folder: Path, settings: dict[str, Any]) -> None:
    """Raise where a table is not that of the run; other rows of a database may have changed."""
    names = [n for n in ("train", "test") if n in settings and f"{n}_query" not in settings]
    for name in changed_files(settings, {name: Path(settings[name]) for name in names}):
        raise InvalidInputError(
            f"{settings[name]} must be the table of that run, but it has changed since, and the "
            "page would show rows that were not used: put the old file back, or run `fairij "
            f"mitigate --config {folder / MARK}` anew."
        )


def _of(kind: Any, settings: dict[str, Any]) -> Any:
    """An options object from the settings that it knows."""
    names = {field.name for field in dataclasses.fields(kind)}
    given = {key: value for key, value in settings.items() if key in names}
    for key in ("train", "validation"):
        if key in given:
            given[key] = Path(given[key])
    return kind(**given)
