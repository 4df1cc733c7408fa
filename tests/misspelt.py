"""What a type checker must find: each line below has a misspelt value.

`make lint` reads this file. An error that is expected but not found is an error there. Nothing
here is run.
"""

from __future__ import annotations

from typing import Any

from fairij import BlackBox, Budget, ConjugateGradient, Constrained, FairIJ, Neumann, audit
from fairij.baselines import GapReg, RelaxedThresholds
from fairij.fairness import gate


def misspelt(model: Any, y: Any, s: Any, found: Any) -> None:
    FairIJ(model, constraints="demographic_party")  # type: ignore[arg-type]
    FairIJ(model, constraints=["equal_opportunity", "odds"])  # type: ignore[list-item]
    FairIJ(model, solver="conjugate")  # type: ignore[arg-type]
    FairIJ(model, search="gird")  # type: ignore[arg-type]
    FairIJ(model, selection="lowest")  # type: ignore[arg-type]
    FairIJ(model, damping="automatic")  # type: ignore[arg-type]
    FairIJ(model, curvature="gnn")  # type: ignore[arg-type]
    FairIJ(model, drop="loss")  # type: ignore[arg-type]
    FairIJ(model, validation_use="cross-fit")  # type: ignore[arg-type]
    FairIJ(model, loss="cross_entropy")  # type: ignore[arg-type]
    FairIJ(model, outputs="logit")  # type: ignore[arg-type]
    FairIJ(model, batch_size="all")  # type: ignore[arg-type]
    FairIJ(model, verbose="yes")  # type: ignore[arg-type]
    FairIJ(model, missing_groups="drop")  # type: ignore[arg-type]
    Budget(prefer="acuracy")  # type: ignore[arg-type]
    BlackBox(model, correction="tree")  # type: ignore[arg-type]
    Constrained(loss_on="test")  # type: ignore[arg-type]
    ConjugateGradient(on_failure="warn")  # type: ignore[arg-type]
    Neumann(scale="auto")  # type: ignore[arg-type]
    GapReg(constraint="equal_odds")  # type: ignore[arg-type]
    RelaxedThresholds(constraint="worst_case")  # type: ignore[arg-type]
    audit(y, y, sensitive_features=s, missing_groups="drop")  # type: ignore[arg-type]
    gate(found, max_gap={"equal_oportunity": 0.05})  # type: ignore[dict-item]


def spelt(model: Any, y: Any, s: Any, found: Any) -> None:
    """What must not be an error."""
    FairIJ(model, constraints="equal_opportunity", solver="cg", validation_use="cross_fit")
    FairIJ(model, constraints=["equal_opportunity", "accuracy_parity"], damping=(1e-2, 1e-1))
    Budget(prefer="accuracy")
    audit(y, y, sensitive_features=s, missing_groups="ignore")
    gate(found, max_gap={"equal_opportunity": 0.05}, min_ratio=0.8)
