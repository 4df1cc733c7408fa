"""`fairij report`: the page of a `mitigate` folder, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairij.cli.console import print_json, say
from fairij.cli.options import Force, Json
from fairij.cli.outputs import PAGE

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

    Only the measurements on test rows are computed again.
    """
    from fairij.cli.reporting import write_again

    target = out or folder / PAGE
    write_again(
        folder, target, title=title, show_text=show_text, trust_pickle=trust_pickle, force=force
    )
    if as_json:
        print_json({"out": str(target)})
    else:
        say(f"The page is {target}")
