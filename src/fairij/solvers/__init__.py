"""Ways to solve ``(H + damping I) x = b``; a new one is one file and one line in `NAMES`.

Names are loaded when they are first used, so that the command line can list solvers quickly.
"""

from typing import Literal

from fairij import load_later

# the names, for type checkers
SolverName = Literal[
    "cg", "exact", "woodbury", "neumann", "printed_woodfisher", "identity"
]  # fmt: skip

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
    "conjugate_gradient": "SharedConjugateGradient",
}
__getattr__ = load_later(__name__, _OTHERS, SOLVERS=NAMES)
