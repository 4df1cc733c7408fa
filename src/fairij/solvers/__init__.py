"""Ways to solve ``(H + damping I) x = b``; a new one is one file and one line here."""

from __future__ import annotations

from fairij.errors import InvalidInputError
from fairij.solvers.base import Inverse, Solution, Solver
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


def get_solver(solver: str | Solver) -> Solver:
    """Look a solver up by name, with its default settings; a solver object is returned as it is."""
    if not isinstance(solver, str):
        return solver
    if solver not in SOLVERS:
        raise InvalidInputError(
            f"`solver` must be one of {sorted(SOLVERS)} or a solver object, got {solver!r}."
        )
    return SOLVERS[solver]()


__all__ = [
    "SOLVERS",
    "ConjugateGradient",
    "Exact",
    "Identity",
    "Inverse",
    "Neumann",
    "PrintedWoodFisher",
    "SharedConjugateGradient",
    "Solution",
    "Solver",
    "Woodbury",
    "get_solver",
]
