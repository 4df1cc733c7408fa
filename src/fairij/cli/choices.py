"""The names that options take. A test compares them with the library's own tables.

They are written down here because most of those tables load torch, which takes longer than all of
`--help`. The names of constraints are read when they are needed: their table loads numpy.
"""

from __future__ import annotations

from typing import Any

from fairij.errors import InvalidInputError

SOLVERS = ("cg", "exact", "woodbury", "neumann", "printed_woodfisher", "identity")
CURVATURES = ("ggn", "empirical_fisher", "hessian")
SEARCHES = ("grid", "all_positive", "sequential", "reweight", "path")
LOSSES = ("binary_cross_entropy", "softmax_cross_entropy", "squared_error")
CHOICES: dict[str, tuple[str, ...]] = {
    "solver": SOLVERS,
    "curvature": CURVATURES,
    "search": SEARCHES,
    "drop": ("fairness", "loss_aware"),
    "reuse": ("reuse", "split", "cross_fit"),
    "loss": ("auto", *LOSSES),
}


ALL_CONSTRAINTS = "{constraints}"  # stands for their names in a help text


def constraints() -> tuple[str, ...]:
    from fairij.fairness.rates import GAPS

    return tuple(GAPS)


def with_names(text: str) -> str:
    """A help text with the names of all constraints."""
    if ALL_CONSTRAINTS not in text:
        return text
    return text.replace(ALL_CONSTRAINTS, ", ".join(constraints()))


def check_choices(options: Any) -> None:
    """Raise unless each option that takes a name has a known one; the message lists them."""
    for name in ("constraint", *CHOICES):
        value = getattr(options, name, None)
        if value is None:
            continue
        known = CHOICES[name] if name in CHOICES else constraints()
        if value in known:
            continue
        from fairij.storage.tables import near_matches

        near = near_matches(value, known)
        raise InvalidInputError(
            f"--{name} must be one of {', '.join(known)}; got {value!r}."
            + (f" Did you mean {near[0]!r}?" if near else ""),
            parameter=name,
        )
