"""The units of work of the tabular study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairij_studies.driver import Scalar, Unit
from fairij_studies.tabular.config import QUICK, REPORTED_SEEDS, WHOLE, Effort, Table
from fairij_studies.tabular.methods import COMPARED, EDITED, FAIR_IJ, Sweeps
from fairij_studies.tabular.refits import REFIT_SEEDS, influence_records, refit_records
from fairij_studies.tabular.runs import (
    base_records,
    baseline_records,
    editing_records,
    fair_ij_records,
    further_on_edit_records,
    further_records,
)
from fairij_studies.tabular.trial import CONSTRAINTS

PARITY = "demographic_parity"


def study_units(
    table: Table, quick: bool, *, beyond: Mapping[str, Sweeps] | None = None
) -> list[Unit]:
    """Return all units. Those of a seed are together, so that they share its base model.

    ``beyond`` has strengths by method that only this table needs, to reach small gaps.
    """
    effort = QUICK if quick else WHOLE
    seeds = REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS
    return [unit for seed in seeds for unit in _units_of_seed(table, effort, seed, beyond or {})]


def _units_of_seed(
    table: Table, effort: Effort, seed: int, beyond: Mapping[str, Sweeps]
) -> list[Unit]:
    def unit(
        work: str,
        function: Callable[..., Sequence[dict[str, Any]]],
        cost: float,
        constraint: str | None = None,
        **arguments: Any,
    ) -> Unit:
        key: dict[str, Scalar] = {"seed": seed, "work": work, "constraint": constraint}
        if "k" in arguments:
            key["k"] = arguments["k"]
        if constraint is not None:
            arguments["constraint"] = constraint
        return Unit(
            key, function, {"table": table, "effort": effort, "seed": seed, **arguments}, cost
        )

    units = [unit("ERM", base_records, 10)]
    for constraint in CONSTRAINTS:
        for method in COMPARED.values():
            cost = 75 if method.trains else 18 if method.frozen_features else 1
            units.append(unit(method.label, baseline_records, cost, constraint, label=method.label))
            for name, sweeps in (
                ("further", method.further),
                ("beyond", beyond.get(method.label, {})),
            ):
                if constraint in sweeps and effort is WHOLE:
                    given: dict[str, Any] = {
                        "label": method.label,
                        "strengths": sweeps[constraint],
                    }
                    work = f"{method.label}, {name}"
                    units.append(unit(work, further_records, 40, constraint, **given))
        units.append(unit(FAIR_IJ, fair_ij_records, 35, constraint))
        if effort is WHOLE:
            units.append(unit("on the edit, further", further_on_edit_records, 10, constraint))
        for form in EDITED.values():
            if form.label != FAIR_IJ and constraint in form.surrogates:
                units.append(unit(form.label, editing_records, 5, constraint, label=form.label))
    units.append(unit("influence", influence_records, 2, PARITY))
    if seed in REFIT_SEEDS:
        units += [unit("refit", refit_records, 12, PARITY, k=k) for k in (0, *effort.dropped)]
    return units
