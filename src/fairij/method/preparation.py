"""Settings and rows, checked and made ready for the engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.checks import (
    Data,
    dampings,
    has_method,
    held_out,
    looked_up,
    number_between,
    one_of,
    whole_number,
)
from fairij.data.rows import Columns, is_streamed, speaking_of
from fairij.errors import InvalidInputError, Notice
from fairij.fairness.constraints import CONSTRAINTS, Constraint, check_sizes
from fairij.fairness.decisions import OWN, Decided, Decision, Threshold, check_threshold
from fairij.fairness.joint import constraint_of
from fairij.fairness.missing import without_group
from fairij.fairness.names import said
from fairij.fairness.viewed import viewed
from fairij.fairness.views import collapsed
from fairij.method.curvature import CURVATURES
from fairij.method.exchanged import exchanged_notices
from fairij.method.fairness_rows import GroupedRows
from fairij.method.objective import Objective, as_tensor, normalised_weights
from fairij.method.rules import RULES
from fairij.method.search import SEARCHES
from fairij.method.search.base import Search, SearchDefaults
from fairij.method.selection import BUDGETED, OF_NUMBERS, Selection, SelectionDefaults
from fairij.method.weighing import weighing_notices
from fairij.models.base import HELD_BACK, Editable, Held
from fairij.models.doubts import check_are_logits, doubts
from fairij.models.labels import (
    Labels,
    check_runs,
    class_words,
    decision_of,
    encode_labels,
    known_classes,
)
from fairij.models.losses import LOSSES, Loss, get_loss
from fairij.solvers import SOLVERS
from fairij.solvers.base import Solver, SolverDefaults

OWN_CUT_OFF = (
    "Decisions are measured at the cut-off that you gave. `estimator_` is a model of your own type "
    "and goes on predicting at its own cut-off, 0.5: predict with `FairIJ.predict`, which uses "
    "`threshold_`, or compare the probabilities of `estimator_` with `threshold_`."
)
Drop = Literal["fairness", "loss_aware"]
ValidationUse = Literal["auto", "reuse", "split", "cross_fit"]


# by parameter: the registry, the protocol, its defaults, and what else may be given
LOOKUPS: dict[str, tuple[Mapping[str, Any], type, type, str]] = {
    "search": (SEARCHES, Search, SearchDefaults, "a search object, as in Grid(max_k=500)"),
    "selection": (RULES, Selection, SelectionDefaults, "a rule of choice, as in Budget(auc=0.02)"),
    "solver": (SOLVERS, Solver, SolverDefaults, "a solver object, as in Woodbury(rows=500)"),
}


@dataclass(frozen=True)
class Settings:
    """The parameters of `FairIJ` as objects, each looked up and checked once."""

    constraint: Constraint
    asked_constraint: Any  # as the user gave it
    solver: Solver
    curvature: str
    dampings: tuple[float, ...] | Literal["auto"]
    search: Search
    selection: Selection
    drop: Drop
    validation_use: ValidationUse
    split: tuple[float, int]  # the share of rows to split off for validation, and the seed
    holdout_fraction: float
    temperature: float  # infinite: not settled yet
    loss: str | Loss
    classes: Any  # the labels in the order of the outputs; None: as the model says
    weight_decay: float
    confidence: float
    seed: int
    verbose: bool | Literal["auto"]
    threshold: Threshold = None
    pos_label: Any = None  # the favourable label; None: the second of two
    decision: Decision = OWN  # of the two, once the model's classes are known

    def suited_to(self, editable: Editable) -> Settings:
        """The settings with what this family of models has by default."""
        if math.isfinite(self.temperature):
            return self
        return dataclasses.replace(self, temperature=editable.temperature)

    def for_model(self, prepared: Prepared) -> Settings:
        """The settings with a constraint on the decisions and groups that were asked for."""
        constraint = Decided.by(prepared.decision, prepared.constraint)
        return dataclasses.replace(self, constraint=constraint, decision=prepared.decision)


def check_settings(asked: Mapping[str, Any], seed: int) -> Settings:
    """Look up and check the parameters of `FairIJ`, by name."""
    search, solver = get_search(asked["search"]), get_solver(asked["solver"])
    drop = one_of("drop", asked["drop"], get_args(Drop))
    if drop == "loss_aware" and not search.row_by_row:
        raise InvalidInputError(
            "`drop`='loss_aware' must have a search that goes row by row, but "
            f"search={search.name!r} does not choose rows: use 'reweight', or a search that drops "
            "rows."
        )
    verbose = one_of("verbose", asked["verbose"], (True, False, "auto"))
    constraint, rule = constraint_of(asked["constraints"]), get_selection(asked["selection"])
    if rule.of_ratio and not constraint.is_ratio:
        ratios = [name for name, known in CONSTRAINTS.items() if known.is_ratio]
        raise InvalidInputError(
            f"`constraints` must compare groups by a ratio, as {rule!r} asks for one: one of "
            f"{ratios}; got {constraint.name!r}."
        )
    return Settings(
        constraint=constraint,
        asked_constraint=asked["constraints"],
        solver=solver.seeded(seed) if isinstance(asked["solver"], str) else solver,
        curvature=one_of("curvature", asked["curvature"], sorted(CURVATURES)),
        dampings=dampings(asked["damping"]),
        search=search,
        selection=rule,
        drop=drop,
        validation_use=_validation_use(asked["validation_use"], constraint),
        split=(asked["validation_fraction"], seed),  # checked if rows are split off
        holdout_fraction=number_between(
            "holdout_fraction", asked["holdout_fraction"], 0, 1, including_low=True
        ),
        temperature=_temperature(asked["temperature"]),
        loss=_loss(asked["loss"]),
        classes=asked["classes"],
        weight_decay=number_between("weight_decay", asked["weight_decay"], 0, including_low=True),
        confidence=number_between("confidence", asked["confidence"], 0, 1),
        seed=seed,
        verbose="auto" if isinstance(verbose, str) else bool(verbose),
        threshold=check_threshold(asked["threshold"]),
        pos_label=asked["pos_label"],
    )


def _validation_use(asked: Any, constraint: Constraint) -> ValidationUse:
    """How validation rows serve; "auto" judges a worst group on rows that the edit did not see.

    Training has made mistakes rare already. What an edit still gains on the rows of its gradient
    is mostly those rows learned by heart.
    """
    found: ValidationUse = one_of("validation_use", asked, get_args(ValidationUse))
    if found != "auto":
        return found
    return "reuse" if constraint.is_zero_if_equal else "split"


def _temperature(asked: Any) -> float:
    """Infinite until the model is known, for "auto"."""
    if isinstance(asked, str) and asked == "auto":
        return math.inf
    return number_between("temperature", asked, 0)


def check_seed(random_state: Any) -> int:
    """The seed that is given, or a random one for None."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return whole_number("random_state", random_state, 0, otherwise=" or None")


def check_batches(batch_size: Any, memory_limit: Any) -> tuple[int | str, int]:
    if not (isinstance(batch_size, str) and batch_size == "auto"):
        batch_size = whole_number("batch_size", batch_size, 1, otherwise=" or 'auto'")
    return batch_size, whole_number("memory_limit", memory_limit, 0)


def _loss(asked: Any) -> str | Loss:
    if isinstance(asked, str) and asked == "auto":
        return asked
    allowed = f"one of {sorted(LOSSES)}, 'auto' or a loss object"
    loss: Loss = has_method("loss", get_loss(asked), "slope", allowed)
    return loss


def _looked_up(name: str, asked: Any) -> Any:
    registry, protocol, defaults, example = LOOKUPS[name]
    return looked_up(name, asked, registry, protocol, defaults, example)


get_search: Callable[[Any], Search] = partial(_looked_up, "search")
get_selection: Callable[[Any], Selection] = partial(_looked_up, "selection")
get_solver: Callable[[Any], Solver] = partial(_looked_up, "solver")


@dataclass(frozen=True)
class Prepared:
    """Everything that the engine works on."""

    labels: Labels
    objective: Objective
    validation: GroupedRows
    training: GroupedRows | None  # if groups of training rows are known
    held: GroupedRows | None  # validation rows that the engine must not see
    caveats: tuple[str, ...]  # what the edit does not keep, or cannot know
    notices: list[Notice]
    decision: Decision
    constraint: Constraint  # on the groups, or on all their views


def prepare(editable: Editable, data: Data, settings: Settings) -> Prepared:
    """Run the model on the rows; read labels and weights by what it knows of its training."""
    check_runs("X", editable, data.X)
    for elsewhere in settings.constraint.elsewhere:
        Columns.of(data.X).check("Counterfactual.X", elsewhere.X)
    model = editable.linearize(data.X)
    with speaking_of("X_val"):
        model_val = None
        if settings.validation_use == "reuse" and settings.holdout_fraction == 0:
            model_val = editable.linearize(data.X_val, keep=False)  # for gradient and choice
        z_val = editable.outputs(data.X_val) if model_val is None else model_val.outputs
    loss = settings.loss
    if isinstance(loss, str) and loss == "auto":
        loss = editable.loss_name or loss
    known = known_classes(editable, data.y, settings.classes)
    labels = encode_labels(model.outputs, z_val, data.y, data.y_val, loss, known)
    check_are_logits(editable, labels.loss, model.outputs, z_val)
    theta, rows = editable.theta, len(data.y)
    held_back = editable.held_back(data.given_y)
    weight = editable.row_weights(labels.train, data.weight)
    weight = _without(held_back, len(data.given_y), data.rows, weight)
    objective = Objective(
        model,
        labels.train,
        labels.loss,
        normalised_weights(weight, rows, theta),
        theta,
        _penalty(editable, rows, weight, settings.weight_decay),
    )
    caveats = (*editable.caveats, *((HELD_BACK,) if isinstance(held_back, str) else ()))
    decision = decision_of(labels, settings.threshold, settings.pos_label, model.outputs)
    decision = dataclasses.replace(decision, temperature=settings.temperature)
    confirmed = settings.classes is not None
    notices = [*doubts(labels, z_val, decision, confirmed=confirmed), *map(Notice, caveats)]
    if not decision.is_own:
        notices.append(Notice(OWN_CUT_OFF))
    notices += map(Notice, not_steered(settings))
    notices += map(Notice, without_group(data.groups))
    if not is_streamed(data.X) and data.weight is None and data.rows is None:
        notices += exchanged_notices(objective, z_val, labels.validation, model_val)
    notices += weighing_notices(objective, class_words(labels.classes))
    notices += [Notice(text) for text in [said(settings.asked_constraint)] if text]
    validation, held = GroupedRows(data.X_val, labels.validation, data.groups, model_val), None
    if settings.holdout_fraction != 0:
        away = held_out("holdout_fraction", settings.holdout_fraction, data.groups, settings.seed)
        held = validation.take(np.flatnonzero(away))
        kept = np.flatnonzero(~away)
        validation, z_val = validation.take(kept), z_val[torch.as_tensor(kept)]
        labels = dataclasses.replace(labels, validation=validation.y)
    check_measures(settings.selection, labels.loss)
    truth, ordered = decision.truth(validation.y), labels.classes[:: -1 if decision.flipped else 1]
    known_truth = truth.cpu().numpy()
    constraint, left_out = viewed(settings.constraint, validation.groups, known_truth, ordered)
    notices += left_out
    compared = (settings.constraint, known_truth, ordered, collapsed(validation.groups))
    predicted = None
    if len(labels.classes):
        weights = as_tensor(validation.groups.weight)
        predicted = labels.loss.predict(decision.outputs(z_val, weights)).cpu().numpy()
    notices += check_sizes(*compared, settings.selection.target, predicted)
    training = None
    if data.train_groups is not None:
        training = GroupedRows(data.X, labels.train, data.train_groups, model)
    parts = (labels, objective, validation, training, held, caveats, notices, decision)
    return Prepared(*parts, constraint)


def not_steered(settings: Settings) -> list[str]:
    """A sentence if the search makes its edits without a look at gaps on rows of their own."""
    names = [one.name for one in settings.constraint.elsewhere]
    if not names or settings.search.closes_other_rows:
        return []
    return [
        f"The search {settings.search.name!r} does not close the gap {names[0]!r}. Its edits are "
        "only judged by it. Use search='constrained', which closes all gaps together."
    ]


def check_measures(rule: Selection, loss: Loss) -> None:
    """Raise if the rule needs a measure that candidates do not have."""
    known = [name for name in BUDGETED if (name in OF_NUMBERS) != loss.is_classification]
    strange = [name for name in rule.needs if name in BUDGETED and name not in known]
    if strange:
        kind = "classification" if loss.is_classification else "regression"
        raise InvalidInputError(
            f"`selection` must look at measures of {kind}, which are {', '.join(known)}; got "
            f"{rule!r}, which needs {', '.join(strange)}."
        )


def _without(
    held: Held, given: int, rows: NDArray[np.int64] | None, weight: Tensor | None
) -> Tensor | None:
    """The weights with zero for rows that training did not see, if they are known.

    ``rows`` says which of the ``given`` rows the weights are of; None for all.
    """
    if held is None or isinstance(held, str):
        return weight
    kept = torch.ones(given, dtype=torch.float64)
    kept[torch.from_numpy(held)] = 0
    kept = kept if rows is None else kept[torch.from_numpy(rows)]
    return kept if weight is None else weight * kept.to(weight)


def _penalty(editable: Editable, rows: int, weight: Tensor | None, weight_decay: float) -> Tensor:
    """The model's own L2 term plus the user's ``weight_decay``, shape ``()`` or ``(D,)``."""
    theta = editable.theta
    given = torch.as_tensor(float(weight_decay), dtype=theta.dtype, device=theta.device)
    own = editable.l2(rows, rows if weight is None else float(weight.sum()))
    if own is not None and not bool(torch.isfinite(own.to(theta)).all()):
        raise InvalidInputError(
            f"`sample_weight` must not be so small that the model's penalty has no value next to "
            f"it: the weights sum to {float(rows if weight is None else weight.sum()):.3g}; give "
            "the weights that the model was fitted with."
        )
    return given if own is None else own.to(theta) + given
