"""Options as frozen dataclasses: a command names the groups of options that it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from typer import Option

from fairij import solvers
from fairij.cli.config import as_asked, read_config, settings_toml
from fairij.errors import InvalidInputError
from fairij.method import search as searches

if TYPE_CHECKING:
    from fairij.fairness.decisions import TopShare
    from fairij.storage.model_files import ModelFile

USUAL = "demographic_parity"
CONSTRAINTS, LABEL_CONSTRAINTS = "{constraints}", "{constraints of labels}"  # see `with_names`


ShowRows = Annotated[
    int,
    Option(
        min=0,
        help="How many of the most harmful training rows the page lists. They are personal data. "
        "Without it, none.",
    ),
]
ShowColumn = Annotated[
    list[str] | None,
    "List this column of the rows too, although its values are long texts or tell rows apart; "
    "repeatable.",
]
OUTPUTS_HELP = "What a torch module returns: logits, probabilities, or auto to find out."
SCORE_HELP = (
    "Without --model: the column in which the scores of any model stand, chances from 0 to 1 of "
    "the positive label."
)
THRESHOLD_HELP = (
    "Accept rows whose chance of the positive label is at least this, as 0.3; or top=0.1, the "
    "tenth with the highest chances."
)


def threshold_of(text: str | None) -> float | TopShare | None:
    """The cut-off that --threshold names."""
    if text is None:
        return None
    from fairij.fairness.decisions import TopShare, check_threshold

    share = text.removeprefix("top=")
    try:
        value = float(share)
        check_threshold(value)
    except ValueError:
        raise InvalidInputError(
            "--threshold must be a chance above 0 and below 1, as 0.3, or a share to accept, as "
            f"top=0.1; got {text!r}.",
            parameter="threshold",
        ) from None
    return value if share == text else TopShare(value)


def _limit_memory(size: int | None) -> int | None:
    from fairij.data.memory import set_limit

    set_limit(size)
    return size


MaxMemory = Annotated[
    int | None,
    Option(
        min=1,
        help="Bytes of memory that one file may take once it is read; a small file may unpack to a "
        "very large one. Default: half of the free memory. Never taken from a settings file.",
        callback=_limit_memory,
    ),
]


@dataclass(frozen=True)
class ModelOptions:
    """How to open model files. This can run code, so it comes from the command line only."""

    model_class: Annotated[
        str | None,
        "The class of torch parameters: package.module:Net, installed or in this folder, or "
        "net.py:Net. Its code is run. Options of this box are never taken from a settings file.",
    ] = None
    model_args: Annotated[
        str | None, """The arguments of its constructor as JSON, as in '{"inputs": 4}'."""
    ] = None
    trust: Annotated[
        list[str] | None,
        "A type that a skops file may hold, beyond the known safe ones; repeatable.",
    ] = None
    trust_pickle: Annotated[
        bool,
        "Open pickle, joblib and exported torch files. They run code that they carry.",
    ] = False
    base_model: Annotated[
        Path | None, "The folder of the Hugging Face model that an adapter (peft) changes."
    ] = None
    max_memory: MaxMemory = None

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
        about = (self.trust_pickle, trusted, self.model_class, arguments, self.base_model)
        return load_model(path, Opening(*about))


@dataclass(frozen=True)
class ColumnOptions:
    """What the columns of a table are for."""

    label: Annotated[str, "The column of true labels."]
    sensitive: Annotated[
        list[str], "A column of groups. Repeat it to take every combination as a group."
    ]
    features: Annotated[
        list[str] | None,
        "A feature column; repeatable. Default: the columns that the model knows by name, else all "
        "other columns.",
    ] = None
    sensitive_as_features: Annotated[
        bool, "Also take the sensitive columns as features, if the model knows no names."
    ] = False
    weights: Annotated[
        str | None,
        "The column of row weights. In `audit` and `compare` they weigh the measured rows, in "
        "`influence` and `mitigate` the training rows only.",
    ] = None
    positive: Annotated[str | None, "The label that counts as 1; all others count as 0."] = None
    pos_label: Annotated[
        str | None,
        "The favourable one of two labels: all rates are about it. Default: the one that counts "
        "as 1.",
    ] = None
    classes: Annotated[
        list[str] | None,
        "The labels in the order of the model's outputs, the negative of two first; repeat it. "
        "It also confirms an order that the table speaks against.",
    ] = None
    control: Annotated[
        list[str] | None,
        "Compare groups only among rows that are alike in this column (a stratum); repeatable.",
    ] = None
    marginals: Annotated[
        bool,
        "Of several sensitive columns: compare the groups of each column, not of combinations.",
    ] = False
    missing_groups: Annotated[
        str, "error; or ignore: rows without a group take no part in gaps."
    ] = "error"
    group_chances: Annotated[
        bool,
        "The sensitive columns are chances from 0 to 1, one column for each group.",
    ] = False
    text: Annotated[str | None, "The column of text, for a Hugging Face model."] = None
    score: Annotated[str | None, SCORE_HELP] = None

    def __post_init__(self) -> None:
        check_choices(self)
        if self.label in self.sensitive:
            raise InvalidInputError(
                f"--sensitive must be a column of groups, but {self.label!r} is the --label: "
                "groups by the true label have nothing to compare. Name another column.",
                parameter="sensitive",
            )
        if self.group_chances and self.marginals:
            raise InvalidInputError(
                "--marginals is for columns of groups, and --group-chances says that each column "
                "is one group: leave one of the two out."
            )


@dataclass(frozen=True)
class TableOptions:
    """One table."""

    table: Annotated[Path, "CSV, Parquet, Arrow (Feather) or DuckDB file."]
    query: Annotated[str | None, "SQL that selects the rows of a DuckDB file."] = None


@dataclass(frozen=True)
class MeasureOptions:
    """How a model is measured on a table."""

    loss: Annotated[str, "squared_error for regression; else auto."] = "auto"
    outputs: Annotated[str, OUTPUTS_HELP] = "auto"
    confidence: Annotated[float, "Level of the intervals."] = 0.95
    random_state: Annotated[int, Option(min=0, help="Seed of every random choice.")] = 0
    threshold: Annotated[str | None, THRESHOLD_HELP] = None

    def __post_init__(self) -> None:
        check_choices(self)

    def cut(self) -> float | TopShare | None:
        return threshold_of(self.threshold)


@dataclass(frozen=True)
class FitTables:
    """The tables that an edit is made from."""

    train: Annotated[Path, "The rows that the model was trained on."]
    validation: Annotated[
        Path | None,
        "Rows to measure the gap on and to choose the edit by. Default: some of the training rows.",
    ] = None
    train_query: Annotated[str | None, "SQL, if --train is a DuckDB file."] = None
    validation_query: Annotated[str | None, "SQL, if --validation is a DuckDB file."] = None
    validation_weights: Annotated[
        str | None,
        "The column of what each validation and test row counts in all that is measured.",
    ] = None
    identifier: Annotated[
        str | None, "A column of --train that names its rows; it is carried into influence.csv."
    ] = None
    stream: Annotated[
        bool,
        "Read the features of --train in chunks, for more rows than memory holds. Parquet and "
        "Arrow files only.",
    ] = False


@dataclass(frozen=True)
class PageOptions:
    """What the report page of a run shows."""

    test: Annotated[Path | None, "Rows that play no part in the edit, to measure it on."] = None
    test_query: Annotated[str | None, "SQL, if --test is a DuckDB file."] = None
    title: Annotated[str, "Title of the report page."] = "Fairness report"
    show_rows: ShowRows = 0
    show_column: ShowColumn = None
    probe: Annotated[
        Path | None,
        "Own sentences for the identity probe, in a table with the columns kind and text. Without "
        "it a model of texts is tried with fairij's sentences.",
    ] = None
    model_card: Annotated[
        bool,
        "Also write README.md, a model card in Markdown with the metadata that model registries "
        "read.",
    ] = False
    predict_refit: Annotated[
        list[str] | None,
        "Predict what training again would do without the rows that the edit drops (chosen), or "
        "without this number of the most harmful rows; repeatable.",
    ] = None


@dataclass(frozen=True)
class SentenceOptions:
    """Sentences that take part in the edit of a model that reads text."""

    identity: Annotated[
        list[str] | None,
        "Of a model that reads text: its scores of sentences about this identity (as muslim) must "
        "become those of the same sentences about others; repeatable. They take part in the edit "
        "next to --constraints: half of fairij's sentences. The page tries the other half.",
    ] = None
    compared_with: Annotated[
        list[str] | None,
        "With --identity: compare with this identity; repeatable. Take some that the model does "
        "not fear. Default: all others that are known.",
    ] = None

    def __post_init__(self) -> None:
        if self.compared_with and not self.identity:
            raise InvalidInputError(
                "--compared-with must go with --identity, which says whose sentences are compared: "
                "give both, or leave it out."
            )


@dataclass(frozen=True)
class EditOptions:
    """Settings of `FairIJ`, by the same names."""

    constraints: Annotated[
        list[str] | None,
        f"The gap to lower (default: {USUAL}); repeat it to lower several together. One of "
        f"{CONSTRAINTS}.",
    ] = None
    budget: Annotated[
        list[str] | None,
        "Change a number of the default choice, the lowest gap that costs little; repeatable. As "
        "in auc=0.02 (the most AUC to lose), accuracy=none, target=0.05 or confidence=0: the "
        "settings of fairij.Budget.",
    ] = None
    accuracy_budget: Annotated[
        float | None,
        "Choose the lowest gap that costs at most this much accuracy, whatever else it costs; 0.01 "
        "is one point. Exit code 3 if it is missed.",
    ] = None
    target_gap: Annotated[
        float | None,
        "Choose the best accuracy whose gap is at most this; exit code 3 if it is missed.",
    ] = None
    target_ratio: Annotated[
        float | None,
        "Choose the best accuracy whose ratio is at least this, as in 0.8 (four-fifths rule), with "
        "--constraints demographic_parity_ratio or another ratio; exit code 3 if it is missed.",
    ] = None
    slack: Annotated[
        float | None,
        "Choose the best accuracy whose gap is within this of the lowest, whatever it costs; 0 is "
        "the paper's rule.",
    ] = None
    solver: Annotated[str, f"One of {', '.join(solvers.NAMES)}."] = "cg"
    damping: Annotated[
        list[str] | None,
        "Added to the curvature (default: 0.01), or auto. Repeat it to try several.",
    ] = None
    curvature: Annotated[str, "One of ggn, empirical_fisher, hessian."] = "ggn"
    search: Annotated[str, f"Which edits to try: {', '.join(searches.NAMES)}."] = "auto"
    max_k: Annotated[
        int | None, "Most rows to drop (grid and sequential search; grid without --search)."
    ] = None
    scale: Annotated[
        list[float] | None, "Multiply the edit by this; repeatable. Default: that of the search."
    ] = None
    drop: Annotated[str, "fairness, or loss_aware: only rows that also raise the loss."] = (
        "fairness"
    )
    validation_use: Annotated[
        str, "How validation rows serve gradient and choice: auto, reuse, split or cross_fit."
    ] = "auto"
    validation_fraction: Annotated[
        float, "Fraction of training rows to validate on, without --validation."
    ] = 0.3
    holdout_fraction: Annotated[float, "Fraction of validation rows that the edit never sees."] = (
        0.0
    )
    temperature: Annotated[
        float | None, "Sharpness of the soft score. Default: 3 for a black box, else 1."
    ] = None
    loss: Annotated[
        str,
        "The training loss: auto, binary_cross_entropy, softmax_cross_entropy, "
        "binary_brier_score, softmax_brier_score, squared_error, poisson_deviance, "
        "tweedie_deviance, gamma_deviance.",
    ] = "auto"
    outputs: Annotated[str, OUTPUTS_HELP] = "auto"
    weight_decay: Annotated[
        float, "The L2 penalty of training, if the model does not record it."
    ] = 0.0
    parameters: Annotated[
        list[str] | None, "Which torch parameters may change: all, names or patterns; repeatable."
    ] = None
    batch_size: Annotated[int | None, "Rows per batch (torch)."] = None
    memory_limit: Annotated[int, "Bytes to keep between passes."] = 2**28
    black_box: Annotated[
        bool,
        "Leave the model as it is, and edit a correction of its scores. So any scikit-learn "
        "classifier can be taken; scores in a column and ONNX files always are.",
    ] = False
    correction: Annotated[
        str, "Of a black box: linear in the columns, or trees (a few small ones)."
    ] = "linear"
    confidence: Annotated[float, "Level of the intervals."] = 0.95
    random_state: Annotated[int, Option(min=0, help="Seed of every random choice.")] = 0
    threshold: Annotated[str | None, THRESHOLD_HELP] = None

    def __post_init__(self) -> None:
        check_choices(self)

    def cut(self) -> float | TopShare | None:
        return threshold_of(self.threshold)

    @property
    def gap(self) -> str:
        """The constraints by name, as results call them."""
        return " and ".join(self.constraints or (USUAL,))


ModelPath = Annotated[Path, "The model file, or a Hugging Face folder."]
MaybeModel = Annotated[
    Path | None,
    "The model file, or a Hugging Face folder. Without it, name a column of scores by --score.",
]
Config = Annotated[
    Path | None,
    Option(
        help="TOML file with any of these options as keys; the command line wins.",
        callback=read_config,
        is_eager=True,
    ),
]
DataHome = Annotated[Path | None, "The folder of data files."]
Json = Annotated[bool, Option("--json", help="Print the result as JSON, and nothing else.")]
Force = Annotated[bool, "Replace what an earlier run wrote there."]


@dataclass(frozen=True, kw_only=True)
class InfluenceOptions:
    """The options of `influence`."""

    tables: FitTables
    columns: ColumnOptions
    opening: ModelOptions
    edit: EditOptions
    model: MaybeModel = None
    out: Annotated[Path, "New .csv or .parquet file, one line per row."]
    as_json: Json = False
    force: Force = False
    config: Config = None

    def groups(self) -> tuple[Any, ...]:
        return (self.opening, self.tables, self.columns, self.edit)

    def files(self) -> dict[str, Path | None]:
        tables = self.tables
        return {"model": self.model, "train": tables.train, "validation": tables.validation}

    def settings(self, command: str) -> str:
        """The options that decide the result as TOML, with the hashes of the files."""
        given = as_asked({"model": self.model}, *self.groups())
        return settings_toml(command, given, self.files())


@dataclass(frozen=True, kw_only=True)
class MitigateOptions(InfluenceOptions):
    """The options of `mitigate`."""

    out: Annotated[Path, "New folder for the results."]
    page: PageOptions
    sentences: SentenceOptions
    checkpoint: Annotated[
        Path | None, "Folder of checkpoints. The same run continues where it stopped."
    ] = None

    def groups(self) -> tuple[Any, ...]:
        return (self.page, self.sentences, *super().groups())

    def files(self) -> dict[str, Path | None]:
        return {**super().files(), "test": self.page.test}


@dataclass(frozen=True)
class MoveOptions:
    """The options of `undo`."""

    model: ModelPath
    edit: Annotated[Path, "The edit, as `mitigate` wrote it."]
    out: Annotated[Path, "New model file, in the same format."]
    opening: ModelOptions
    as_json: Json = False
    force: Force = False
    config: Config = None


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """The options of `apply`."""

    model: MaybeModel = None
    edit: Annotated[Path, "The edit, or the correction of a black box, as `mitigate` wrote it."]
    out: Annotated[Path, "New model file, in the same format; with --table, the new table."]
    opening: ModelOptions
    table: Annotated[
        Path | None,
        "Write this table with the scores of the edited model, instead of the edited model.",
    ] = None
    threshold: Annotated[
        float | None,
        "With --table: the chance from which a row is predicted to have the model's second label. "
        "Default: that of the edit, else 0.5.",
    ] = None
    score: Annotated[str | None, SCORE_HELP] = None
    features: Annotated[
        list[str] | None, "A feature column of the table, if the model knows none; repeatable."
    ] = None
    as_json: Json = False
    force: Force = False
    config: Config = None


def constraints(*, of_labels: bool = False) -> tuple[str, ...]:
    """The names of all constraints, or of those for classification."""
    from fairij.fairness.rates import GAPS, UNCOUNTED

    counted = tuple(name for name, gap in GAPS.items() if gap.is_classification or not of_labels)
    return (*counted, *UNCOUNTED)


def with_names(text: str) -> str:
    """A help text with the names of constraints. They are read late, as their table loads numpy."""
    for mark, of_labels in ((CONSTRAINTS, False), (LABEL_CONSTRAINTS, True)):
        if mark in text:
            text = text.replace(mark, ", ".join(constraints(of_labels=of_labels)))
    return text


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Raise unless a name is known; the message lists all of them."""
    if value in known:
        return
    from fairij.storage.tables import near_matches

    near = near_matches(value, known)
    raise InvalidInputError(
        f"--{option} must be one of {', '.join(known)}; got {value!r}."
        + (f" Did you mean {near[0]!r}?" if near else ""),
        parameter=option,
    )


def choices() -> dict[str, tuple[str, ...]]:
    """The names that options take, from the library's own tables."""
    from fairij.method.curvature import CURVATURES
    from fairij.method.preparation import Drop, ValidationUse
    from fairij.models.doubts import OUTPUTS
    from fairij.models.losses import LOSSES

    return {
        "constraints": constraints(),
        "solver": tuple(solvers.NAMES),
        "curvature": tuple(CURVATURES),
        "search": tuple(searches.NAMES),
        "drop": get_args(Drop),
        "validation_use": get_args(ValidationUse),
        "loss": ("auto", *LOSSES),
        "outputs": OUTPUTS,
        "correction": ("linear", "trees"),
        "missing_groups": ("error", "ignore"),
    }


def check_choices(options: Any) -> None:
    """Raise unless each option that takes a name has a known one."""
    from fairij.fairness.names import read_as

    for name, known in choices().items():
        given = vars(options).get(name)
        for value in given if isinstance(given, list) else [given]:
            # a constraint may have the name that other libraries use
            if value is not None and not (name == "constraints" and read_as(value)):
                check_choice(name.replace("_", "-"), value, known)
