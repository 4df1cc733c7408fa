"""What commands print: results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fairij.errors import STEERING, printable

if TYPE_CHECKING:
    from fairij.fairness import Audit
    from fairij.fairness.subgroups import Subgroups

# Standard output, while a command runs. What libraries print meanwhile goes to standard error.
RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)
NOT_DEFINED = "not defined"
MOST_SUBGROUPS = 10  # on the screen
MOST_GROUPS, MOST_RATES = 6, 4  # of many groups the lowest, and as many of the highest
WIDE = 200  # columns of text where there is no screen, as in a file


def show(*things: Any) -> None:
    """Print tables. They fit the screen; in a file they are wide."""
    console = Console(file=RESULTS.get())
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=RESULTS.get(), width=WIDE)
    for thing in things:
        console.print(Printable(thing))


class Printable:
    """A table with what a terminal cannot show, or should not obey, escaped."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in console.render(self.inner, options):
            text = printable(part.text, console.encoding)
            yield part if part.control else Segment(text, part.style)


def say(text: str) -> None:
    """Print a sentence."""
    console = Console(file=RESULTS.get())
    safe = printable(text, console.encoding)
    console.print(safe, highlight=False, markup=False, soft_wrap=True)


def print_json(result: Mapping[str, Any]) -> None:
    """Print a result. In JSON every character can be written as an escape."""
    text = json.dumps(plain(result), indent=2, ensure_ascii=False)
    text = STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    try:
        text.encode(Console(file=RESULTS.get()).encoding)
    except UnicodeEncodeError:
        text = json.dumps(plain(result), indent=2)
    typer.echo(text, file=RESULTS.get())


def tell(result: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result, as JSON or in a sentence."""
    if as_json:
        print_json(result)
    else:
        say(text)


def plain(value: Any) -> Any:
    """Convert a value to what JSON has: arrays become lists, NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy, which is not imported here
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def table_of(title: str, columns: Sequence[str], *, numbers: Collection[str] = ()) -> Table:
    """An empty table. Names from files and data are shown as they are, in full."""
    table = Table(title=Text(title), title_justify="left")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(Text(name), justify=justify, overflow="fold")
    return table


def audit_dict(audit: Audit) -> dict[str, Any]:
    columns = ["group", "rate", "value", "low", "high"]
    return {
        "metrics": audit.metrics.to_dict(orient="index"),
        "by_group": audit.by_group.to_dict(orient="index"),
        "group_intervals": [
            dict(zip(columns, row, strict=True))
            for row in audit.group_intervals.reset_index().itertuples(index=False)
        ],
        "confidence": audit.confidence,
        "positive_label": audit.positive_label,
        "ratios": audit.ratios.to_dict(orient="index"),
        "scores": audit.scores.to_dict(orient="index"),
        "group_scores": [
            dict(zip(["group", "measure", *columns[2:]], row, strict=True))
            for row in audit.group_scores.reset_index().itertuples(index=False)
        ],
        "more": audit.more.to_dict(orient="index"),
        "undefined": list(audit.undefined),
        "notes": list(audit.notes),
        "calibration": _lines(audit.calibration),
        "subgroups": _subgroups_dict(audit.subgroups),
        "views": [
            dict(zip(["view", "metric", *columns[2:]], row, strict=True))
            for row in audit.views.reset_index().itertuples(index=False)
        ],
    }


def _lines(frame: Any) -> list[dict[str, Any]] | None:
    return None if frame is None else list(frame.to_dict(orient="records"))


def _subgroups_dict(found: Subgroups | None) -> dict[str, Any] | None:
    if found is None:
        return None
    counts = {"groups": found.groups, "compared": found.compared}
    return {"found": _lines(found.found), **counts, "attributes": list(found.attributes)}


def positive_said(audit: Audit) -> str:
    """The label that counts as 1; empty for several classes and for regression."""
    return "" if audit.positive_label is None else f"Positive label: {audit.positive_label}."


def metrics_table(title: str, audits: Mapping[str, Audit]) -> Table:
    """One line per metric, one column per model; each value has its interval."""
    from fairij.report.wording import LABELS

    name = f"{title} ({_level(audits)} intervals)"
    table = table_of(name, ["metric", *audits], numbers=audits)
    first = next(iter(audits.values()))
    for metric in (*first.metrics.index, *first.scores.index):
        rows = [frame_with(audit, str(metric)).loc[metric] for audit in audits.values()]
        cells = [_cell(float(r["value"]), float(r["low"]), float(r["high"])) for r in rows]
        plain_name = str(metric).replace("_difference", "_gap").replace("_", " ")
        table.add_row(Text(LABELS.get(str(metric), plain_name)), *cells)
    return table


def frame_with(audit: Audit, metric: str) -> Any:
    """The table of an audit that has this metric."""
    return audit.metrics if metric in audit.metrics.index else audit.scores


def groups_table(title: str, audit: Audit) -> Table:
    """The number of rows of each group, and its rates with their intervals."""
    from fairij.report.wording import plain as in_words

    name = f"{title} ({_level({title: audit})} intervals)"
    table = table_of(name, ["group", "rows", "rate", "value"], numbers={"rows", "value"})
    intervals = audit.group_intervals
    for group, count in audit.by_group["count"].items():
        shown = (Text(str(group)), f"{count:.0f}")
        for frame in (intervals, audit.group_scores):
            if not len(frame):
                continue
            of_group = frame.xs(group, level="group")[["value", "low", "high"]]
            for rate, cells in zip(of_group.index, of_group.to_numpy().tolist(), strict=True):
                table.add_row(*shown, Text(in_words(rate)), _cell(*cells))
                shown = (Text(), "")
    return table


def show_views(audits: Mapping[str, Audit]) -> None:
    """The gaps of each stratum, or of each sensitive column, if they were asked for."""
    from fairij.report.audit_sections import views_table
    from fairij.report.wording import plain as in_words

    known = [audit.views for audit in audits.values() if len(audit.views)]
    if not known:
        return
    first = known[0]
    names = list(dict.fromkeys(first.index.get_level_values("view")))
    heads, _ = views_table(next(audit for audit in audits.values() if len(audit.views)))
    metrics = dict.fromkeys(first.index.get_level_values("metric"))
    shown = [metric for metric in metrics if in_words(metric) in heads]
    title = f"each stratum, or sensitive column ({_level(audits)} intervals)"
    table = table_of(title, ["in", "rows", "metric", *audits], numbers={"rows", *audits})
    for view in names:
        lead = (Text(str(view)), f"{first.loc[(view, 'count'), 'value']:.0f}")
        for metric in shown:
            cells = [
                _cell(*map(float, audit.views.loc[(view, metric)])) for audit in audits.values()
            ]
            table.add_row(*lead, Text(in_words(metric)), *cells)
            lead = (Text(), "")
    show(table)


def short_groups_table(title: str, audit: Audit) -> Table:
    """Of many groups the lowest and the highest, a line for each, without intervals.

    Groups of few rows are left out if there are enough others: they are at the ends by chance.
    """
    from fairij.fairness.missing import SMALL_CELL
    from fairij.report.wording import plain as in_words

    rates = [str(name) for name in audit.by_group if name != "count"]
    by = next((name for name in rates if not name.startswith("accuracy")), rates[0])
    large = audit.by_group[audit.by_group["count"] >= SMALL_CELL]
    enough = len(large) >= 2 * MOST_GROUPS
    ordered = (large if enough else audit.by_group).sort_values(by, kind="stable")
    ends = [*ordered.index[:MOST_GROUPS], *ordered.index[-MOST_GROUPS:]]
    shown = ordered.loc[list(dict.fromkeys(ends))]
    heads = [in_words(name) for name in rates[:MOST_RATES]]
    kind = f" of at least {SMALL_CELL} rows" if len(ordered) < len(audit.by_group) else ""
    name = f"{title}: the lowest and the highest {in_words(by)} of {len(ordered):,} groups{kind}"
    table = table_of(name, ["group", "rows", *heads], numbers={"rows", *heads})
    for place, (group, line) in enumerate(shown.iterrows()):
        if place == MOST_GROUPS:
            table.add_section()
        cells = [_cell(float(line[name]), math.nan, math.nan) for name in rates[:MOST_RATES]]
        table.add_row(Text(str(group)), f"{line['count']:.0f}", *cells)
    return table


def show_subgroups(found: Subgroups) -> None:
    """The groups that a search found, if it found any, and how much was compared."""
    from fairij.report.wording import plain as in_words

    numbers = ("here", "others", "rows", "p (corrected)")
    names = ["group", "rate", *numbers]
    table = table_of("groups that differ, also where attributes meet", names, numbers=numbers)
    for line in found.found.head(MOST_SUBGROUPS).itertuples(index=False):
        group, _, rate, value, others, _, rows, p = line
        sure = "< 0.0001" if p < 1e-4 else f"{p:.4f}"
        cells = (f"{value:.4f}", f"{others:.4f}", f"{rows:.0f}", sure)
        table.add_row(Text(str(group)), Text(in_words(rate)), *cells)
    if len(found.found):
        show(table)
    say(_searched(found))


def _searched(found: Subgroups) -> str:
    """How much was compared, and how much was found."""
    differ, more = len(found.found), len(found.found) - MOST_SUBGROUPS
    text = (
        f"{found.groups:,} groups were searched, of {' and '.join(found.attributes)}, and "
        f"{found.compared:,} rates compared; p-values are corrected for that (Holm). "
    )
    if not differ:
        return f"{text}None surely differs."
    return f"{text}{differ:,} differ." + (f" {more:,} of them are not shown." if more > 0 else "")


def show_audits(title: str, audits: Mapping[str, Audit]) -> None:
    """All metrics side by side, then the groups of each model, then the positive label."""
    show(metrics_table(title, audits))
    for name, audit in audits.items():
        title = name if len(audits) > 1 else "by group"
        if len(audit.by_group) > 2 * MOST_GROUPS:
            show(short_groups_table(title, audit))
            say("All groups, with intervals, are in --json, and on the page of an audit (--page).")
        else:
            show(groups_table(title, audit))
    show_views(audits)
    for text in dict.fromkeys(text for a in audits.values() for text in (*a.undefined, *a.notes)):
        say(text)
    positive = positive_said(next(iter(audits.values())))
    if positive:
        say(positive)


def _cell(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return NOT_DEFINED
    if math.isnan(low):
        return f"{value:.4f}"
    return f"{value:.4f} ({low:.3f}, {high:.3f})"


def _level(audits: Mapping[str, Audit]) -> str:
    return f"{next(iter(audits.values())).confidence:.0%}"
