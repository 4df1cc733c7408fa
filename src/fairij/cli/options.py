"""Options as frozen dataclasses: a command names the groups of options that it takes."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from fairij.cli.config import read_config
from fairij.errors import InvalidInputError
from fairij.fairness import CONSTRAINTS
from fairij.method.curvature import CURVATURES
from fairij.method.losses import LOSSES
from fairij.method.search.dropping import SEARCHES
from fairij.method.types import Drop, Reuse
from fairij.solvers import SOLVERS
from fairij.storage.model_files import ModelFile, Opening, load_model
from fairij.storage.tables import near_matches

Option = typer.Option
ABOUT_MODEL, ABOUT_COLUMNS, ABOUT_EDIT = "The model", "Columns", "The edit"
CHOICES: dict[str, Collection[str]] = {
    "constraint": CONSTRAINTS,
    "solver": SOLVERS,
    "curvature": CURVATURES,
    "search": SEARCHES,
    "drop": get_args(Drop),
    "reuse": get_args(Reuse),
    "loss": ("auto", *LOSSES),
}


def check_choices(options: Any) -> None:
    """Raise unless options that name one thing of several do so; the message lists the names."""
    for name, known in CHOICES.items():
        value = getattr(options, name, None)
        if value is not None and value not in known:
            near = near_matches(value, list(known))
            raise InvalidInputError(
                f"--{name} must be one of {', '.join(known)}; got {value!r}."
                + (f" Did you mean {near[0]!r}?" if near else "")
            )


@dataclass(frozen=True)
class ModelOptions:
    """How to open model files."""

    model_class: Annotated[
        str | None,
        Option(
            help="The class that torch parameters belong to: package.module:Net, installed or in "
            "this folder, or net.py:Net.",
            rich_help_panel=ABOUT_MODEL,
        ),
    ] = None
    model_args: Annotated[
        str | None,
        Option(
            help="""Its constructor's arguments as JSON, as in '{"inputs": 4}'.""",
            rich_help_panel=ABOUT_MODEL,
        ),
    ] = None
    trust: Annotated[
        list[str] | None,
        Option(
            help="A type that a skops file may hold, beyond those known to be safe; repeatable.",
            rich_help_panel=ABOUT_MODEL,
        ),
    ] = None
    trust_pickle: Annotated[
        bool,
        Option(
            "--trust-pickle",
            help="Open pickle, joblib and exported torch files, which run code that they carry. "
            "Never taken from a settings file.",
            rich_help_panel=ABOUT_MODEL,
        ),
    ] = False

    def open(self, path: Path) -> ModelFile:
        """The model at this path."""
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

    label: Annotated[str, Option(help="The column of true labels.", rich_help_panel=ABOUT_COLUMNS)]
    sensitive: Annotated[
        list[str],
        Option(
            help="A column of groups; repeat it for the groups where several columns meet.",
            rich_help_panel=ABOUT_COLUMNS,
        ),
    ]
    features: Annotated[
        list[str] | None,
        Option(
            help="A feature column; repeatable. Default: those that the model knows by name; if it "
            "knows none, all other columns.",
            rich_help_panel=ABOUT_COLUMNS,
        ),
    ] = None
    sensitive_as_features: Annotated[
        bool,
        Option(
            "--sensitive-as-features",
            help="Sensitive columns are features too, for a model that knows no names; without "
            "this they are not.",
            rich_help_panel=ABOUT_COLUMNS,
        ),
    ] = False
    weights: Annotated[
        str | None,
        Option(
            help="The column of row weights: in `audit` and `compare` of the rows measured, in "
            "`influence` and `mitigate` of the training rows alone, as the model's training had "
            "them.",
            rich_help_panel=ABOUT_COLUMNS,
        ),
    ] = None
    positive: Annotated[
        str | None,
        Option(
            help="The label that counts as 1; all others count as 0.",
            rich_help_panel=ABOUT_COLUMNS,
        ),
    ] = None
    text: Annotated[
        str | None,
        Option(help="The column of text, for a Hugging Face model.", rich_help_panel=ABOUT_COLUMNS),
    ] = None


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
    seed: Annotated[int, Option(min=0, help="Of the bootstrap.")] = 0

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class FitTables:
    """The tables that an edit is made from."""

    train: Annotated[Path, Option(help="The rows that the model was trained on.")]
    validation: Annotated[
        Path | None,
        Option(
            help="Rows to measure the gap on and to choose the edit by. Default: a share of the "
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
            help="Read the features of --train, a Parquet or Arrow file, in chunks: for more rows "
            "than memory holds. Without it every table is read whole.",
        ),
    ] = False

    def files(self) -> dict[str, Path | None]:
        return {"train": self.train, "validation": self.validation}


def _in_edit(text: str) -> Any:
    return Option(help=text, rich_help_panel=ABOUT_EDIT)


@dataclass(frozen=True)
class EditOptions:
    """Settings of `FairIJ`, by its own names."""

    constraint: Annotated[str, _in_edit(f"What to make small: {', '.join(CONSTRAINTS)}.")] = (
        "demographic_parity"
    )
    accuracy_budget: Annotated[
        float | None,
        _in_edit("Lowest gap that costs at most this much accuracy; 0.01 is one point."),
    ] = None
    target_gap: Annotated[
        float | None,
        _in_edit("Best accuracy with a gap of at most this; exit code 3 if none has."),
    ] = None
    slack: Annotated[
        float | None,
        _in_edit("Best accuracy among gaps within this distance of the lowest (default rule: 0)."),
    ] = None
    solver: Annotated[str, _in_edit(f"One of {', '.join(SOLVERS)}.")] = "cg"
    damping: Annotated[
        list[str] | None,
        _in_edit("Added to the curvature (default 0.01), or auto; repeat it to try several."),
    ] = None
    curvature: Annotated[str, _in_edit(f"One of {', '.join(CURVATURES)}.")] = "ggn"
    search: Annotated[str, _in_edit(f"Edits to try: {', '.join(SEARCHES)}.")] = "grid"
    max_k: Annotated[int | None, _in_edit("Most rows to drop (grid and sequential search).")] = None
    scale: Annotated[
        list[float] | None,
        _in_edit("Multiplier of the edit; repeatable. Default: those of the search."),
    ] = None
    drop: Annotated[
        str, _in_edit("fairness, or loss_aware: only rows that also raise the loss.")
    ] = "fairness"
    reuse: Annotated[
        str, _in_edit("Validation rows for gradient and choice: reuse, split or cross_fit.")
    ] = "reuse"
    validation_fraction: Annotated[
        float, _in_edit("Share of the training rows to validate on, if no --validation.")
    ] = 0.3
    holdout_fraction: Annotated[
        float, _in_edit("Share of the validation rows kept away from gradient and choice.")
    ] = 0.0
    temperature: Annotated[float, _in_edit("Sharpness of the soft score.")] = 1.0
    loss: Annotated[str, _in_edit(f"The loss of training: auto, {', '.join(LOSSES)}.")] = "auto"
    weight_decay: Annotated[
        float, _in_edit("The L2 term of training that the model does not tell.")
    ] = 0.0
    parameters: Annotated[
        list[str] | None,
        _in_edit("Which torch parameters may change: all, names or patterns; repeatable."),
    ] = None
    batch_size: Annotated[int | None, _in_edit("Rows at a time (torch).")] = None
    memory_limit: Annotated[
        int,
        _in_edit("Bytes kept between passes: graphs (torch); of streamed rows, rows or leaves."),
    ] = 2**28
    confidence: Annotated[float, _in_edit("Level of the intervals.")] = 0.95
    seed: Annotated[
        int, Option(min=0, help="Of every random choice.", rich_help_panel=ABOUT_EDIT)
    ] = 0

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
