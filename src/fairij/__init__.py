"""Make a model that you already have fair, without training it again."""

from fairij import datasets, fairness
from fairij._version import __version__
from fairij.curvature import CURVATURES
from fairij.distributed import Shard
from fairij.edits import Edit
from fairij.fairness import CONSTRAINTS, Audit, Constraint, audit
from fairij.losses import LOSSES
from fairij.mitigator import FairIJ
from fairij.models import Editable, adapt
from fairij.models.sources import ArraySource, ArrowSource, LoaderSource
from fairij.scores import stream_influence
from fairij.search import AllPositive, Grid, Sequential
from fairij.selection import AccuracyBudget, LowestGap, TargetGap, pareto_front
from fairij.soft import Path, Reweight
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
