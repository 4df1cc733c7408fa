"""Make a model that you already have fair, without training it again.

Public names are loaded when they are first used, so that `import fairij` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairij._version import __version__

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from fairij import (
        baselines,
        datasets,
        errors,
        fairness,
        language,
        mlflow,
        models,
        report,
        solvers,
    )
    from fairij.black_box import BlackBox
    from fairij.data.arrow_source import ArrowSource
    from fairij.data.sources import ArraySource, LoaderSource
    from fairij.fairness import (
        CONSTRAINTS,
        Audit,
        Constraint,
        Counterfactual,
        GroupChances,
        TopShare,
        audit,
    )
    from fairij.method.curvature import CURVATURES
    from fairij.method.rules import AccuracyBudget, LowestGap, TargetGap, TargetRatio
    from fairij.method.search.auto import Auto
    from fairij.method.search.constrained import Constrained
    from fairij.method.search.dropping import AllPositive, Grid, Sequential
    from fairij.method.search.reweighting import Path, Reweight
    from fairij.method.selection import Budget, pareto_front
    from fairij.mitigator import FairIJ
    from fairij.models import Editable, adapt
    from fairij.models.losses import LOSSES
    from fairij.scale.sharding import Shard
    from fairij.scale.streamed_scores import stream_influence
    from fairij.solvers import SOLVERS
    from fairij.solvers.conjugate_gradient import ConjugateGradient, SharedConjugateGradient
    from fairij.solvers.exact import Exact
    from fairij.solvers.identity import Identity
    from fairij.solvers.neumann import Neumann
    from fairij.solvers.printed_woodfisher import PrintedWoodFisher
    from fairij.solvers.woodbury import Woodbury
    from fairij.storage.edits import Edit

_NAMES = {
    "black_box": "BlackBox",
    "data.arrow_source": "ArrowSource",
    "data.sources": "ArraySource LoaderSource",
    "fairness": "CONSTRAINTS Audit Constraint Counterfactual GroupChances TopShare audit",
    "method.curvature": "CURVATURES",
    "models.losses": "LOSSES",
    "method.search": "AllPositive Auto Constrained Grid Path Reweight Sequential",
    "method.rules": "AccuracyBudget LowestGap TargetGap TargetRatio",
    "method.selection": "Budget pareto_front",
    "mitigator": "FairIJ",
    "models": "Editable adapt",
    "scale.sharding": "Shard",
    "scale.streamed_scores": "stream_influence",
    "solvers": "SOLVERS ConjugateGradient Exact Identity Neumann PrintedWoodFisher "
    "SharedConjugateGradient Woodbury",
    "storage.edits": "Edit",
}
_ROOMS = {
    "baselines",
    "datasets",
    "errors",
    "fairness",
    "language",
    "mlflow",
    "models",
    "report",
    "solvers",
}

__all__ = [
    "CONSTRAINTS", "CURVATURES", "LOSSES", "SOLVERS", "AccuracyBudget", "AllPositive",
    "ArraySource", "ArrowSource", "Audit", "Auto", "BlackBox", "Budget",
    "ConjugateGradient", "Constrained",
    "Constraint", "Counterfactual", "Edit", "Editable", "Exact", "FairIJ", "Grid", "GroupChances",
    "Identity", "LoaderSource", "LowestGap", "Neumann", "Path", "PrintedWoodFisher", "Reweight",
    "Sequential", "Shard", "SharedConjugateGradient", "TargetGap", "TargetRatio", "TopShare",
    "Woodbury", "__version__", "adapt", "audit", "baselines", "datasets", "errors", "fairness",
    "language", "mlflow", "models", "pareto_front", "report", "solvers", "stream_influence",
]  # fmt: skip


def load_later(
    package: str, modules: Mapping[str, str], **tables: Mapping[str, str]
) -> Callable[[str], Any]:
    """A package's `__getattr__`: it loads a name when it is first used.

    ``modules`` has the names in each module of the package. A table has a "module.Name" for each
    key, and becomes a dictionary of what is there.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}
    for table in tables.values():
        places |= {name: module for module, name in (place.split(".") for place in table.values())}

    def load(name: str) -> Any:
        if name in tables:
            value: Any = {key: load(place.split(".")[1]) for key, place in tables[name].items()}
        elif name in places:
            value = getattr(import_module(f"{package}.{places[name]}"), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        vars(sys.modules[package])[name] = value  # found directly the next time
        return value

    return load


_load = load_later("fairij", _NAMES)


def __getattr__(name: str) -> Any:
    return import_module(f"fairij.{name}") if name in _ROOMS else _load(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
