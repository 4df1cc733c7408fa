"""Options as frozen dataclasses: a command names the groups of options that it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairij.cli.choices import ALL_CONSTRAINTS, CURVATURES, LOSSES, SEARCHES, SOLVERS, check_choices
from fairij.cli.config import read_config
from fairij.errors import InvalidInputError

if TYPE_CHECKING:
    from fairij.storage.model_files import ModelFile

Option = typer.Option


def _in_model(text: str, *names: str) -> Any:
    return Option(*names, help=text, rich_help_panel="The model")


def _in_columns(text: str, *names: str) -> Any:
    return Option(*names, help=text, rich_help_panel="Columns")


def _in_edit(text: str, **more: Any) -> Any:
    return Option(help=text, rich_help_panel="The edit", **more)


@dataclass(frozen=True)
class ModelOptions:
    """How to open model files."""

    model_class: Annotated[
        str | None,
        _in_model(
            "The class of torch parameters: package.module:Net, installed or in this folder, or "
            "net.py:Net."
        ),
    ] = None
    model_args: Annotated[
        str | None,
        _in_model("""The arguments of its constructor as JSON, as in '{"inputs": 4}'."""),
    ] = None
    trust: Annotated[
        list[str] | None,
        _in_model("A type that a skops file may hold, beyond the known safe ones; repeatable."),
    ] = None
    trust_pickle: Annotated[
        bool,
        _in_model(
            "Open pickle, joblib and exported torch files. They run code that they carry. Never "
            "taken from a settings file.",
            "--trust-pickle",
        ),
    ] = False

    def open(self, path: Path) -> ModelFile:
        """The model at this path."""
        from fairij.storage.model_files import Opening, load_model

        try:
            arguments = json.loads(self.model_args or "{}")
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"--model-args must be JSON: {error}.") from None
        if not isinstance(arguments, dict):
            raise InvalidInputError(
                f"""--model-args must be a JSON object, as in '{{"inputs": 4}}'; got {arguments}."""
            )
        trusted = tuple(self.trust or ())
        return load_model(path, Opening(self.trust_pickle, trusted, self.model_class, arguments))


@dataclass(frozen=True)
class ColumnOptions:
    """What the columns of a table are for."""

    label: Annotated[str, _in_columns("The column of true labels.")]
    sensitive: Annotated[
        list[str],
        _in_columns("A column of groups. Repeat it to take every combination as a group."),
    ]
    features: Annotated[
        list[str] | None,
        _in_columns(
            "A feature column; repeatable. Default: the columns that the model knows by name, "
            "else all other columns."
        ),
    ] = None
    sensitive_as_features: Annotated[
        bool,
        _in_columns(
            "Also take the sensitive columns as features, if the model knows no names.",
            "--sensitive-as-features",
        ),
    ] = False
    weights: Annotated[
        str | None,
        _in_columns(
            "The column of row weights. In `audit` and `compare` they weigh the measured rows, in "
            "`influence` and `mitigate` the training rows only."
        ),
    ] = None
    positive: Annotated[
        str | None, _in_columns("The label that counts as 1; all others count as 0.")
    ] = None
    text: Annotated[str | None, _in_columns("The column of text, for a Hugging Face model.")] = None


@dataclass(frozen=True)
class TableOptions:
    """One table."""

    table: Annotated[Path, Option(help="CSV, Parquet, Arrow (Feather) or DuckDB file.")]
    query: Annotated[str | None, Option(help="SQL that selects the rows of a DuckDB file.")] = None


@dataclass(frozen=True)
class MeasureOptions:
    """How a model is measured on a table."""

    loss: Annotated[str, Option(help="squared_error for regression; else auto.")] = "auto"
    confidence: Annotated[float, Option(help="Level of the intervals.")] = 0.95
    seed: Annotated[int, Option(min=0, help="Seed of the bootstrap.")] = 0

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class FitTables:
    """The tables that an edit is made from."""

    train: Annotated[Path, Option(help="The rows that the model was trained on.")]
    validation: Annotated[
        Path | None,
        Option(
            help="Rows to measure the gap on and to choose the edit by. Default: some of the "
            "training rows."
        ),
    ] = None
    train_query: Annotated[str | None, Option(help="SQL, if --train is a DuckDB file.")] = None
    validation_query: Annotated[
        str | None, Option(help="SQL, if --validation is a DuckDB file.")
    ] = None
    stream: Annotated[
        bool,
        Option(
            "--stream",
            help="Read the features of --train in chunks, for more rows than memory holds. "
            "Parquet and Arrow files only.",
        ),
    ] = False

    def files(self) -> dict[str, Path | None]:
        return {"train": self.train, "validation": self.validation}


@dataclass(frozen=True)
class PageOptions:
    """What the report page of a run shows."""

    test: Annotated[
        Path | None, Option(help="Rows that play no part in the edit, to measure it on.")
    ] = None
    test_query: Annotated[str | None, Option(help="SQL, if --test is a DuckDB file.")] = None
    title: Annotated[str, Option(help="Title of the report page.")] = "Fairness report"
    show_text: Annotated[
        bool,
        Option(
            "--show-text",
            help="Show the worst training texts on the page. Without it, only their lengths.",
        ),
    ] = False


@dataclass(frozen=True)
class EditOptions:
    """Settings of `FairIJ`, by the same names."""

    constraint: Annotated[str, _in_edit(f"The gap to lower: {ALL_CONSTRAINTS}.")] = (
        "demographic_parity"
    )
    accuracy_budget: Annotated[
        float | None,
        _in_edit("Choose the lowest gap that costs at most this much accuracy; 0.01 is one point."),
    ] = None
    target_gap: Annotated[
        float | None,
        _in_edit(
            "Choose the best accuracy whose gap is at most this; exit code 3 if there is none."
        ),
    ] = None
    slack: Annotated[
        float | None,
        _in_edit("Choose the best accuracy whose gap is within this of the lowest (default: 0)."),
    ] = None
    solver: Annotated[str, _in_edit(f"One of {', '.join(SOLVERS)}.")] = "cg"
    damping: Annotated[
        list[str] | None,
        _in_edit("Added to the curvature (default: 0.01), or auto. Repeat it to try several."),
    ] = None
    curvature: Annotated[str, _in_edit(f"One of {', '.join(CURVATURES)}.")] = "ggn"
    search: Annotated[str, _in_edit(f"Which edits to try: {', '.join(SEARCHES)}.")] = "grid"
    max_k: Annotated[int | None, _in_edit("Most rows to drop (grid and sequential search).")] = None
    scale: Annotated[
        list[float] | None,
        _in_edit("Multiply the edit by this; repeatable. Default: that of the search."),
    ] = None
    drop: Annotated[
        str, _in_edit("fairness, or loss_aware: only rows that also raise the loss.")
    ] = "fairness"
    reuse: Annotated[
        str,
        _in_edit("How validation rows serve gradient and choice: reuse, split or cross_fit."),
    ] = "reuse"
    validation_fraction: Annotated[
        float, _in_edit("Fraction of training rows to validate on, without --validation.")
    ] = 0.3
    holdout_fraction: Annotated[
        float, _in_edit("Fraction of validation rows that the edit never sees.")
    ] = 0.0
    temperature: Annotated[float, _in_edit("Sharpness of the soft score.")] = 1.0
    loss: Annotated[str, _in_edit(f"The training loss: auto, {', '.join(LOSSES)}.")] = "auto"
    weight_decay: Annotated[
        float, _in_edit("The L2 penalty of training, if the model does not record it.")
    ] = 0.0
    parameters: Annotated[
        list[str] | None,
        _in_edit("Which torch parameters may change: all, names or patterns; repeatable."),
    ] = None
    batch_size: Annotated[int | None, _in_edit("Rows per batch (torch).")] = None
    memory_limit: Annotated[int, _in_edit("Bytes to keep between passes.")] = 2**28
    confidence: Annotated[float, _in_edit("Level of the intervals.")] = 0.95
    seed: Annotated[int, _in_edit("Seed of every random choice.", min=0)] = 0

    def __post_init__(self) -> None:
        check_choices(self)


ModelPath = Annotated[Path, Option(help="The model file, or a Hugging Face folder.")]

Config = Annotated[
    Path | None,
    Option(
        help="TOML file with any of these options as keys; the command line wins.",
        callback=read_config,
        is_eager=True,
    ),
]
Json = Annotated[bool, Option("--json", help="Print the result as JSON, and nothing else.")]
Force = Annotated[bool, Option("--force", help="Replace what an earlier run wrote there.")]
