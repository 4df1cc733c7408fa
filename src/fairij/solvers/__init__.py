"""Ways to solve ``(H + damping I) x = b``; a new one is one file and one line in `NAMES`.

Names are loaded when they are first used, so that the command line can list solvers quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairij import load_later

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from fairij.solvers.base import Inverse, InverseDefaults, Solution, Solver, SolverDefaults
    from fairij.solvers.conjugate_gradient import ConjugateGradient
    from fairij.solvers.exact import Exact
    from fairij.solvers.identity import Identity
    from fairij.solvers.neumann import Neumann
    from fairij.solvers.printed_woodfisher import PrintedWoodFisher
    from fairij.solvers.shared import SharedConjugateGradient
    from fairij.solvers.woodbury import Woodbury

    SOLVERS: dict[str, type[Solver]]

# the module and the class of each solver; `SOLVERS` has the classes themselves
NAMES = {
    "cg": "conjugate_gradient.ConjugateGradient",
    "exact": "exact.Exact",
    "woodbury": "woodbury.Woodbury",
    "neumann": "neumann.Neumann",
    "printed_woodfisher": "printed_woodfisher.PrintedWoodFisher",
    "identity": "identity.Identity",
}
_OTHERS = {
    "base": "Inverse InverseDefaults Solution Solver SolverDefaults",
    "shared": "SharedConjugateGradient",
}

__all__ = [
    "NAMES",
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
__getattr__ = load_later(__name__, _OTHERS, SOLVERS=NAMES)
