"""`fairij demo`: train, edit and measure a model on Adult."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairij.cli.console import print_json, say, show, table_of
from fairij.cli.errors import BAD_INPUT, errors, fail
from fairij.cli.options import Config, Force, Json

EXAMPLES = ("fairij demo", "fairij demo --out my-demo --constraint equal_opportunity")
CONSTRAINTS = (
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "equalized_odds_balanced",
)


def demo(
    out: Annotated[
        Path, typer.Option(help="New folder for the page, plots, summary and edit.")
    ] = Path("fairij-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of training.")] = 0,
    constraint: Annotated[
        str, typer.Option(help=f"The gap to lower: {', '.join(CONSTRAINTS)}.")
    ] = "demographic_parity",
    data_home: Annotated[Path | None, typer.Option(help="The folder of data files.")] = None,
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Train the paper's network on Adult, edit it, and show before and after on the test set."""
    if constraint not in CONSTRAINTS:
        known = ", ".join(CONSTRAINTS)
        fail(f"--constraint must be one of {known}; got {constraint!r}.", BAD_INPUT)
    check_folder(out, force=force)
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from fairij.cli.demonstration import run_demo, write_demo

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=errors, transient=True, disable=not errors.is_terminal
    ) as progress:
        task = progress.add_task("training the network on Adult", total=100)
        result = run_demo(
            seed=seed,
            constraint=constraint,
            data_home=data_home,
            on_epoch=lambda done, total: progress.update(task, completed=done, total=total),
        )
    check_folder(out, force=force)
    write_demo(result, out)
    if as_json:
        print_json({**result.summary(), "out": out})
        return
    frame = result.table()
    table = table_of("UCI Adult, official test set", ["", *frame.columns], numbers=frame.columns)
    for row in frame.itertuples():
        table.add_row(*map(str, row))
    show(table)
    say(result.answer())
    say("Training took {train:.1f} s, the edit {mitigate:.1f} s.".format(**result.seconds))
    say(f"The page is {out / 'report.html'}")


def check_folder(out: Path, *, force: bool) -> None:
    """Raise unless the demo may write here. Only the folder of an earlier demo is replaced.

    A folder of `mitigate` has settings next to its summary; a folder of the demo has none.
    """
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"--out must be a folder, but {out} is a file.")
    if not out.exists() or not any(out.iterdir()):
        return
    if not force:
        raise FileExistsError(
            f"{out} exists and is not empty; pass --force to replace it, or name a new folder by "
            "--out."
        )
    if not (out / "summary.json").is_file() or (out / "settings.toml").exists():
        raise FileExistsError(
            f"{out} was not written by this command, so --force will not replace it; name a new "
            "folder."
        )
