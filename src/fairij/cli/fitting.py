"""`FairIJ` from options and tables: shared by `influence` and `mitigate`."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from fairij.cli.measure import model_speaks
from fairij.cli.options import ColumnOptions, EditOptions, FitTables
from fairij.cli.rows import Part, check_every_group, read_part
from fairij.data.labels import positive_label
from fairij.data.processes import rank
from fairij.errors import FairIJWarning, InvalidInputError, SeenRowsWarning
from fairij.method.search import SEARCHES, Grid, Search
from fairij.method.selection import AccuracyBudget, LowestGap, Selection, TargetGap
from fairij.mitigator import FairIJ
from fairij.scale.sharding import shared_out, start
from fairij.storage.model_files import ModelFile

QUICK = Grid(k=(1,), scales=(1.0,))  # scores need no search


@dataclass(frozen=True)
class Fitted:
    """A fitted mitigator and its rows."""

    mitigator: FairIJ
    train: Part
    validation: Part | None  # None: split off the training rows


def fit(
    file: ModelFile,
    tables: FitTables,
    columns: ColumnOptions,
    edit: EditOptions,
    *,
    scores_only: bool = False,
    checkpoint: Path | None = None,
) -> Fitted:
    start()  # under torchrun, processes share the training rows and the first one writes
    mitigator = make_mitigator(file.model, edit).set_params(checkpoint=checkpoint)
    if scores_only:
        mitigator.set_params(search=QUICK)
    train = read_train(tables, columns, file)
    X, y, weight, groups = shared_out(train.X, train.y, train.weight, train.groups)
    if tables.validation is None:
        warnings.warn(
            "No --validation was given, so some of the training rows are used instead. The "
            "model was trained on them: it does better there than elsewhere, and gaps there "
            "mislead. Rows that it was not trained on are better.",
            FairIJWarning,
            stacklevel=2,
        )
        with model_speaks(), warnings.catch_warnings():
            warnings.simplefilter("ignore", SeenRowsWarning)  # said above
            mitigator.fit(X, y, sensitive_features=groups, sample_weight=weight)
        return _by_the_first(Fitted(mitigator, train, None))
    validation = read_part(
        tables.validation, tables.validation_query, columns, file, with_weights=False
    )
    check_every_group(train, validation)
    with model_speaks():
        mitigator.fit(
            X,
            y,
            X_val=validation.X,
            y_val=validation.y,
            sensitive_features_val=validation.groups,
            sample_weight=weight,
        )
    return _by_the_first(Fitted(mitigator, train, validation))


def read_train(tables: FitTables, columns: ColumnOptions, file: ModelFile) -> Part:
    return read_part(
        tables.train,
        tables.train_query,
        columns,
        file,
        with_groups=tables.validation is None,
        stream=tables.stream,
    )


def _by_the_first(fitted: Fitted) -> Fitted:
    if rank() > 0:
        raise typer.Exit
    _name_classes(fitted.mitigator, fitted.train)
    return fitted


def _name_classes(mitigator: FairIJ, train: Part) -> None:
    """Name the classes as the table does, if they were given as 0 and 1."""
    mitigator.classes_ = train.named(mitigator.classes_)
    label = positive_label(mitigator.classes_)
    for name in ("before_", "after_", "holdout_before_", "holdout_after_"):
        audit = getattr(mitigator, name)
        if audit is not None:
            setattr(mitigator, name, dataclasses.replace(audit, positive_label=label))


def make_mitigator(model: Any, edit: EditOptions) -> FairIJ:
    """A `FairIJ` with these settings, not yet fitted."""
    return FairIJ(
        model,
        constraints=edit.constraint,
        solver=edit.solver,
        damping=_damping(edit.damping),
        curvature=edit.curvature,
        search=_search(edit),
        selection=_selection(edit),
        drop=edit.drop,
        validation=edit.reuse,
        validation_fraction=edit.validation_fraction,
        holdout_fraction=edit.holdout_fraction,
        temperature=edit.temperature,
        loss=edit.loss,
        weight_decay=edit.weight_decay,
        parameters=_parameters(edit.parameters),
        batch_size=edit.batch_size or "auto",
        memory_limit=edit.memory_limit,
        confidence=edit.confidence,
        random_state=edit.seed,
    )


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
    kind: Any = SEARCHES[edit.search]
    asked = {"scales": edit.scale and tuple(edit.scale), "max_k": edit.max_k}
    settings = {name: value for name, value in asked.items() if value is not None}
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
    if edit.accuracy_budget is not None:
        rules["--accuracy-budget"] = AccuracyBudget(edit.accuracy_budget)
    if edit.target_gap is not None:
        rules["--target-gap"] = TargetGap(edit.target_gap)
    if edit.slack is not None:
        rules["--slack"] = LowestGap(slack=edit.slack)
    if len(rules) > 1:
        raise InvalidInputError(
            f"An edit is chosen by one rule; got {' and '.join(rules)}: leave one out."
        )
    return next(iter(rules.values()), LowestGap())


def scores_frame(mitigator: FairIJ) -> pd.DataFrame:
    """One line per training row: its influence and its rank; NaN for rows split off."""
    scores = pd.Series(mitigator.influence_)
    ranks = scores.rank(ascending=False, method="first").astype("Int64")
    frame = pd.DataFrame({"row": np.arange(len(scores)), "influence": scores, "rank": ranks})
    if mitigator.loss_influence_ is not None:
        frame["loss_influence"] = mitigator.loss_influence_
    return frame
