"""The options of `audit` and `compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fairij.cli.options import (
    ColumnOptions,
    Config,
    Force,
    Json,
    MaybeModel,
    MeasureOptions,
    ModelOptions,
    TableOptions,
)


@dataclass(frozen=True)
class PredictionOptions:
    """Columns that hold what a model said, in place of the model."""

    prediction: Annotated[
        str | None,
        "Without --model: the column of predicted labels (numbers, with --loss squared_error).",
    ] = None


@dataclass(frozen=True)
class AuditPageOptions:
    """The page of an audit, and what it looks for."""

    page: Annotated[Path | None, "Write an HTML page about the audit here."] = None
    title: Annotated[str, "Title of the page."] = "Fairness audit"
    explore: Annotated[
        list[str] | None,
        "A further column: groups that differ are searched in its values too, and where up to "
        "three columns meet; repeatable.",
    ] = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.explore or ()))

    def files(self) -> dict[str, Path]:
        """The files to write, by their options."""
        return {} if self.page is None else {"page": self.page}


@dataclass(frozen=True)
class GateOptions:
    """Limits that an audit must keep, and files that say what came of them."""

    max_gap: Annotated[
        list[str] | None,
        "Exit code 5 if a gap is above this, as in equal_opportunity=0.05; repeatable. A number "
        "alone is about demographic_parity.",
    ] = None
    min_ratio: Annotated[
        list[str] | None,
        "Exit code 5 if the lowest rate of any group, divided by the highest, is below this, as in "
        "0.8 (four-fifths rule, of selection rates) or equal_opportunity=0.9; repeatable.",
    ] = None
    certain: Annotated[
        bool, "A limit is broken only if the whole interval is beyond it (see --confidence)."
    ] = False
    min_rows: Annotated[
        int,
        Option(
            min=1,
            help="A limit is not kept if a group has fewer rows than this that its rates are taken "
            "over.",
        ),
    ] = 30
    require_group: Annotated[
        list[str] | None, "A group that must have rows, else exit code 5; repeatable."
    ] = None
    junit: Annotated[Path | None, "Write the outcome as JUnit XML here."] = None
    markdown: Annotated[Path | None, "Write it as Markdown here, for a pull request."] = None
    sarif: Annotated[Path | None, "Write it as SARIF here, for code scanning."] = None

    @property
    def limits(self) -> list[str]:
        return [*(self.max_gap or ()), *(self.min_ratio or ())]

    def files(self) -> dict[str, Path]:
        """The files to write, by their options."""
        known = {"junit": self.junit, "markdown": self.markdown, "sarif": self.sarif}
        return {name: path for name, path in known.items() if path is not None}

    def others(self) -> dict[str, Any]:
        """What only a gate has use for, by its options."""
        return {"certain": self.certain, "require-group": self.require_group, **self.files()}


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `compare`."""

    table: TableOptions
    columns: ColumnOptions
    opening: ModelOptions
    how: MeasureOptions
    as_json: Json = False
    config: Config = None


@dataclass(frozen=True, kw_only=True)
class AuditOptions(CompareOptions):
    """The options of `audit`."""

    model: MaybeModel = None
    predictions: PredictionOptions
    page: AuditPageOptions
    gate: GateOptions
    force: Force = False
