"""`fairij report`: the page of a `mitigate` folder, made again."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from fairij.cli.config import changed_files
from fairij.cli.fitting import make_mitigator, read_train
from fairij.cli.folder import PAGE, read_result
from fairij.cli.options import ColumnOptions, EditOptions, FitTables, Force, Json, ModelOptions
from fairij.cli.outputs import MARK, check_target
from fairij.cli.pages import write_page
from fairij.cli.rows import read_part
from fairij.cli.show import print_json, say
from fairij.errors import InvalidInputError

EXAMPLES = ('fairij report result --out for-the-board.html --title "Loans, 2026"',)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `mitigate` wrote.")],
    out: Annotated[
        Path | None, typer.Option(help="The new page. Default: report.html in the folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Another title for the page.")] = None,
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
    opening = dataclasses.replace(_of(ModelOptions, settings), trust_pickle=trust_pickle)
    columns, tables = _of(ColumnOptions, settings), _of(FitTables, settings)
    file = opening.open(Path(settings["model"]))
    fitted = read_result(folder, make_mitigator(file.model, _of(EditOptions, settings)))
    _check_unchanged(folder, settings)
    train = read_train(tables, columns, file)
    test = None
    if "test" in settings:
        query = settings.get("test_query")
        test = read_part(Path(settings["test"]), query, columns, file, with_weights=False)
    if len(train) != len(fitted.influence_):
        raise InvalidInputError(
            f"{tables.train} must be the training table of that run, of {len(fitted.influence_)} "
            f"rows; it has {len(train)} now."
        )
    write_page(
        fitted,
        target,
        train=train,
        test=test,
        title=title or str(settings.get("title", "Fairness report")),
        overwrite=force,
    )
    if as_json:
        print_json({"out": str(target)})
    else:
        say(f"The page is {target}")


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{folder} must be a folder as `fairij mitigate` writes it, with {MARK}: {error}."
        ) from None
    missing = [key for key in ("model", "train", "label", "sensitive") if key not in settings]
    if missing:
        raise InvalidInputError(f"{folder / MARK} must say {missing[0]!r}, but does not.")
    return settings


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
