"""Make a model that you already have fair, without training it again."""

from fairij import datasets, fairness
from fairij._version import __version__
from fairij.data.sources import ArraySource, ArrowSource, LoaderSource
from fairij.fairness import CONSTRAINTS, Audit, Constraint, audit
from fairij.method.curvature import CURVATURES
from fairij.method.losses import LOSSES
from fairij.method.search.dropping import AllPositive, Grid, Sequential
from fairij.method.search.reweighting import Path, Reweight
from fairij.method.selection import AccuracyBudget, LowestGap, TargetGap, pareto_front
from fairij.mitigator import FairIJ
from fairij.models import Editable, adapt
from fairij.scale.sharding import Shard
from fairij.scale.streamed_scores import stream_influence
from fairij.solvers import (
    SOLVERS,
    ConjugateGradient,
    Exact,
    Identity,
    Neumann,
    PrintedWoodFisher,
    SharedConjugateGradient,
    Woodbury,
)
from fairij.storage.edits import Edit

__all__ = [
    "CONSTRAINTS",
    "CURVATURES",
    "LOSSES",
    "SOLVERS",
    "AccuracyBudget",
    "AllPositive",
    "ArraySource",
    "ArrowSource",
    "Audit",
    "ConjugateGradient",
    "Constraint",
    "Edit",
    "Editable",
    "Exact",
    "FairIJ",
    "Grid",
    "Identity",
    "LoaderSource",
    "LowestGap",
    "Neumann",
    "Path",
    "PrintedWoodFisher",
    "Reweight",
    "Sequential",
    "Shard",
    "SharedConjugateGradient",
    "TargetGap",
    "Woodbury",
    "__version__",
    "adapt",
    "audit",
    "datasets",
    "fairness",
    "pareto_front",
    "stream_influence",
]
