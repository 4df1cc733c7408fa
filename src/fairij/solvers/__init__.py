"""Ways to solve ``(H + damping I) x = b``; a new one is one file and one line here."""

from __future__ import annotations

from fairij.solvers.base import Inverse, InverseDefaults, Solution, Solver, SolverDefaults
from fairij.solvers.conjugate_gradient import ConjugateGradient
from fairij.solvers.exact import Exact
from fairij.solvers.identity import Identity
from fairij.solvers.neumann import Neumann
from fairij.solvers.printed_woodfisher import PrintedWoodFisher
from fairij.solvers.shared import SharedConjugateGradient
from fairij.solvers.woodbury import Woodbury

SOLVERS: dict[str, type[Solver]] = {
    "cg": ConjugateGradient,
    "exact": Exact,
    "woodbury": Woodbury,
    "neumann": Neumann,
    "printed_woodfisher": PrintedWoodFisher,
    "identity": Identity,
}


__all__ = [
    "SOLVERS",
    "ConjugateGradient",
    "Exact",
    "Identity",
    "Inverse",
    "InverseDefaults",
    "Neumann",
    "PrintedWoodFisher",
    "SharedConjugateGradient",
    "Solution",
    "Solver",
    "SolverDefaults",
    "Woodbury",
]
