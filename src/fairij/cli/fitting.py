"""`FairIJ` from options and tables, for `mitigate`, and the work of `influence`."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from fairij.cli.black_boxes import opened_to_edit
from fairij.cli.config import note_changed, shortened
from fairij.cli.console import tell
from fairij.cli.measure import model_speaks
from fairij.cli.options import (
    USUAL,
    ColumnOptions,
    EditOptions,
    FitTables,
    InfluenceOptions,
    PageOptions,
    SentenceOptions,
)
from fairij.cli.outputs import check_file, check_inputs_apart, whole_file
from fairij.cli.rows import Part, check_every_group, read_part
from fairij.cli.sentences import ask_for
from fairij.data.rows import rank
from fairij.errors import FairIJWarning, InvalidInputError, SeenRowsWarning
from fairij.method.rules import AccuracyBudget, LowestGap, TargetGap, TargetRatio
from fairij.method.search import SEARCHES
from fairij.method.search.base import Search
from fairij.method.search.dropping import Grid
from fairij.method.selection import BUDGETED, Budget, Selection
from fairij.mitigator import FairIJ
from fairij.models.labels import positive_label
from fairij.scale.sharding import shared_out, start
from fairij.storage.model_files import ModelFile
from fairij.storage.tables import table_kind, write_table

# options that are parameters of `FairIJ` as they are
SAME = (
    *("solver", "curvature", "drop", "validation_fraction", "holdout_fraction"),
    *("loss", "outputs", "weight_decay", "memory_limit", "confidence", "validation_use"),
    "random_state",
)
ID = "id"  # the column of what names a row
MOST_DIGITS = 18  # of a number of rows
QUICK = Grid(k=(1,), scales=(1.0,))  # scores need no search


@dataclass(frozen=True)
class Fitted:
    """A fitted mitigator and its rows."""

    mitigator: FairIJ
    train: Part
    validation: Part | None  # None: split off the training rows


def fit(
    file: ModelFile,
    asked: InfluenceOptions,
    *,
    refits: tuple[str, ...] = (),
    sentences: SentenceOptions | None = None,
    **settings: Any,
) -> Fitted:
    """Fit on the tables that were asked for; ``settings`` win over the options."""
    counts = [refit_count(text) for text in refits]
    start()  # under torchrun, processes share the training rows and the first one writes
    mitigator = make_mitigator(file.model, asked.edit)
    mitigator.set_params(**settings)
    tables, columns = asked.tables, asked.columns
    train = read_train(tables, columns, file)
    if sentences is not None:
        ask_for(mitigator, sentences, file, train)
    mitigator.set_params(
        classes=train.classes,
        pos_label=train.pos_label,
        missing_groups=columns.missing_groups,
        marginals=columns.marginals,
    )
    X, y, weight, groups = shared_out(train.X, train.y, train.weight, train.groups)
    given: dict[str, Any] = {"sensitive_features": groups}
    if train.grouping is not None:
        given["sensitive_features"] = train.grouping.given(groups)
    validation = None
    if tables.validation is None:
        _check_needs_validation(tables, columns)
        warnings.warn(
            "No --validation was given, so some of the training rows are used instead. The "
            "model was trained on them: it does better there than elsewhere, and gaps there "
            "mislead. Rows that it was not trained on are better.",
            FairIJWarning,
            stacklevel=2,
        )
    else:
        path, query = tables.validation, tables.validation_query
        weights = tables.validation_weights
        how: dict[str, Any] = {"with_weights": False, "measured_by": weights}
        others = (tables.identifier,)
        validation = read_part(path, query, columns, file, **how, not_features=others)
        check_every_group(train, validation)
        given = {
            "X_val": validation.X,
            "y_val": validation.y,
            "sensitive_features_val": validation.compared,
            "sample_weight_val": validation.weight,
        }
    with model_speaks(), _naming(train), warnings.catch_warnings():
        if tables.validation is None:
            warnings.simplefilter("ignore", SeenRowsWarning)  # said above
        mitigator.fit(X, y, sample_weight=weight, **given)
        _predict_refits(mitigator, counts)
    if rank() > 0:
        raise typer.Exit
    _name_classes(mitigator, train)
    return Fitted(mitigator, train, validation)


def _check_needs_validation(tables: FitTables, columns: ColumnOptions) -> None:
    """Raise if an option was given that only rows of --validation can keep to."""
    given = {"--validation-weights": tables.validation_weights, "--control": columns.control}
    for option, value in given.items():
        if value:
            raise InvalidInputError(
                f"{option} must go with --validation, whose rows it is about: name a table of "
                "validation rows, or leave it out."
            )


@contextmanager
def _naming(train: Part) -> Iterator[None]:
    """Errors about the order of labels say which words 0 and 1 stand for."""
    try:
        yield
    except InvalidInputError as error:
        if error.parameter != "classes" or train.names is None:
            raise
        negative, positive = train.names
        raise InvalidInputError(
            f"{error} Here 0 stands for {negative!r}, and 1 for {positive!r}. Most often the cure "
            f"is --positive {negative}, if the model was trained to call {negative!r} 1.",
            parameter="classes",
        ) from None


def refit_count(text: str) -> int | None:
    """A number of rows, or None for those that the edit drops."""
    if text == "chosen":
        return None
    if text.isdecimal() and len(text) <= MOST_DIGITS and int(text) > 0:
        return int(text)
    raise InvalidInputError(
        f"--predict-refit must be a number of rows of at least 1, or chosen; got {shortened(text)}."
    )


def _predict_refits(mitigator: FairIJ, counts: list[int | None]) -> None:
    dropped = len(mitigator.dropped_)
    if None in counts and not dropped:
        warnings.warn(
            "The chosen edit drops no row, so --predict-refit chosen has nothing to predict. Give "
            "a number of rows.",
            FairIJWarning,
            stacklevel=3,
        )
    asked = sorted({count or dropped for count in counts} - {0})
    if asked:
        mitigator.predict_refit(asked)


def read_train(tables: FitTables, columns: ColumnOptions, file: ModelFile) -> Part:
    return read_part(
        tables.train,
        tables.train_query,
        columns,
        file,
        with_groups=tables.validation is None,
        stream=tables.stream,
        identifier=tables.identifier,
        not_features=(tables.validation_weights,),
    )


def read_test(
    tables: FitTables, page: PageOptions, columns: ColumnOptions, file: ModelFile
) -> Part:
    """The test rows, which count as the validation rows do."""
    assert page.test is not None
    weights = tables.validation_weights
    how: dict[str, Any] = {"with_weights": False, "measured_by": weights}
    others = (tables.identifier,)
    return read_part(page.test, page.test_query, columns, file, **how, not_features=others)


def _name_classes(mitigator: FairIJ, train: Part) -> None:
    """Name the classes as the table does, if they were given as 0 and 1."""
    mitigator.classes_ = train.named(mitigator.classes_)
    label = positive_label(mitigator.classes_, mitigator.decisions_[0])
    for name in ("before_", "after_", "holdout_before_", "holdout_after_"):
        audit = getattr(mitigator, name)
        if audit is not None:
            setattr(mitigator, name, dataclasses.replace(audit, positive_label=label))


def make_mitigator(model: Any, edit: EditOptions) -> FairIJ:
    """A `FairIJ` with these settings, not yet fitted."""
    same = {name: getattr(edit, name) for name in SAME}
    return FairIJ(
        model,
        constraints=_constraints(edit.constraints),
        damping=_damping(edit.damping),
        search=_search(edit),
        selection=_selection(edit),
        parameters=_parameters(edit.parameters),
        batch_size=edit.batch_size or "auto",
        threshold=edit.cut(),
        temperature="auto" if edit.temperature is None else edit.temperature,
        **same,
    )


def _constraints(given: list[str] | None) -> Any:
    named = given or [USUAL]
    return named[0] if len(named) == 1 else named


def _damping(given: list[str] | None) -> Any:
    if not given:
        return 1e-2
    if given == ["auto"]:
        return "auto"
    try:
        return tuple(float(value) for value in given)
    except ValueError:
        raise InvalidInputError(
            f"--damping must be a positive number or auto; got {', '.join(given)}."
        ) from None


def _parameters(given: list[str] | None) -> Any:
    if not given:
        return "trainable"
    return given[0] if given in (["all"], ["trainable"]) else given


def _search(edit: EditOptions) -> Search:
    asked = {"scales": edit.scale and tuple(edit.scale), "max_k": edit.max_k}
    settings = {name: value for name, value in asked.items() if value is not None}
    # who says how many rows to drop, or how hard, wants rows to be dropped
    kind: Any = SEARCHES["grid" if settings and edit.search == "auto" else edit.search]
    known = {field.name for field in dataclasses.fields(kind)}
    for name, option in (("scales", "--scale"), ("max_k", "--max-k")):
        if name in settings and name not in known:
            raise InvalidInputError(
                f"{option} has no meaning with --search {edit.search}; leave one of the two out."
            )
    search: Search = kind(**settings)
    return search


def _selection(edit: EditOptions) -> Selection:
    rules: dict[str, Selection] = {}
    if edit.budget:
        rules["--budget"] = Budget(**dict(map(_limit, edit.budget)))
    if edit.accuracy_budget is not None:
        rules["--accuracy-budget"] = AccuracyBudget(edit.accuracy_budget)
    if edit.target_gap is not None:
        rules["--target-gap"] = TargetGap(edit.target_gap)
    if edit.target_ratio is not None:
        rules["--target-ratio"] = TargetRatio(edit.target_ratio)
    if edit.slack is not None:
        rules["--slack"] = LowestGap(slack=edit.slack)
    if len(rules) > 1:
        raise InvalidInputError(
            f"An edit is chosen by one rule; got {' and '.join(rules)}: leave one out."
        )
    return next(iter(rules.values()), Budget())


def _limit(text: str) -> tuple[str, Any]:
    """One setting of `Budget`, as NAME=NUMBER or NAME=none."""
    name, _, value = text.partition("=")
    name = name.strip().replace("-", "_")
    known = [field.name for field in dataclasses.fields(Budget)]
    if name not in known:
        raise InvalidInputError(
            f"--budget must be NAME=NUMBER with a name of {', '.join(known)}; got {text!r}."
        )
    if value.strip() == "none" and name in BUDGETED:
        return name, None
    if name == "prefer":
        return name, value.strip()
    try:
        return name, float(value)
    except ValueError:
        raise InvalidInputError(
            f"--budget must be NAME=NUMBER, as in auc=0.02, or none for no limit; got {text!r}."
        ) from None


def scores_frame(mitigator: FairIJ, identifier: NDArray[Any] | None = None) -> pd.DataFrame:
    """One line per training row: its influence and its rank; NaN for rows split off."""
    scores = pd.Series(mitigator.influence_)
    ranks = scores.rank(ascending=False, method="first").astype("Int64")
    frame = pd.DataFrame({"row": np.arange(len(scores)), "influence": scores, "rank": ranks})
    if identifier is not None:
        frame.insert(1, ID, identifier)
    if mitigator.joint_influence_ is not None:
        frame["joint_influence"] = mitigator.joint_influence_
    if mitigator.loss_influence_ is not None:
        frame["loss_influence"] = mitigator.loss_influence_
    return frame


def write_scores(asked: InfluenceOptions) -> None:
    """The work of `fairij influence`: write the scores, and the settings next to them."""
    out, force = asked.out, asked.force
    if table_kind(out) not in ("csv", "parquet"):
        raise InvalidInputError(f"--out must end in .csv or .parquet, got {out}.")
    settings_file = out.with_name(f"{out.name.split('.')[0]}.settings.toml")
    for target in (out, settings_file):
        check_file(target, force=force)
        check_inputs_apart(target, asked.files())
    file = opened_to_edit(asked)
    note_changed(asked.config, asked.files())
    fitted = fit(file, asked, search=QUICK)
    mitigator = fitted.mitigator
    frame = scores_frame(mitigator, fitted.train.identifier)
    with whole_file(out, force=force) as target, whole_file(settings_file, force=force) as noted:
        write_table(frame, target)
        noted.write_text(asked.settings("influence"), encoding="utf-8")
    found: dict[str, Any] = {
        "out": str(out),
        "settings": str(settings_file),
        "rows": len(frame),
        "positive": int((mitigator.influence_ > 0).sum()),
        "constraint": asked.edit.gap,
        "gap": float(mitigator.candidates_["gap"].iloc[0]),
        "worst_rows": frame.nsmallest(10, "rank")["row"].tolist(),
        "diagnostics": mitigator.diagnostics_,
    }
    tell(
        found,
        f"Wrote the scores of {found['rows']} rows to {out}. To first order, dropping any one of "
        f"{found['positive']} of them would lower the smooth "
        f"{asked.edit.gap.replace('_', ' ')} gap. The gap is {found['gap']:.4f} on "
        "validation rows. The worst rows: "
        f"{', '.join(map(str, found['worst_rows']))}.",
        as_json=asked.as_json,
    )
