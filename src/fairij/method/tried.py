"""Both models tried on the same rows: an audit of each, and what changed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairij.fairness import Audit, audit, audit_regression
from fairij.fairness.decisions import Decision
from fairij.fairness.groups import MissingGroups, encode_groups
from fairij.fairness.paired import Paired, paired, paired_numbers
from fairij.fairness.views import collapsed
from fairij.models.labels import decision_words, positive_label
from fairij.models.losses import Loss


@dataclass(frozen=True)
class Reader:
    """How outputs of a model become labels, values and chances."""

    loss: Loss
    classes: NDArray[Any]
    confidence: float
    seed: int
    missing_groups: MissingGroups = "error"

    @property
    def few(self) -> bool:
        """Whether there are two classes: then the favourable one is 1 whatever its name."""
        return len(self.classes) == 2

    def truth(self, y: Tensor, decision: Decision) -> NDArray[Any]:
        """True labels as audits take them, of class numbers; in regression the values."""
        found: NDArray[Any] = decision.truth(y).cpu().numpy()
        return self._named(found)

    def predicted(self, z: Tensor, decision: Decision, weight: Tensor | None) -> NDArray[Any]:
        """Predictions in the same form."""
        return self._named(self.loss.predict(decision.outputs(z, weight)).cpu().numpy())

    def chances(self, z: Tensor, decision: Decision) -> NDArray[np.float64]:
        """The chance of the favourable one of two labels, (N,); of more labels, (N, C)."""
        found = decision.chance(z) if self.few else self.loss.scores(z)
        chances: NDArray[np.float64] = found.detach().double().cpu().numpy()
        return chances

    def audit(
        self, truth: Any, predicted: Any, groups: Any, decision: Decision, chances: Any = None
    ) -> Audit:
        """Metrics with intervals."""
        take: Any = audit if self.loss.is_classification else audit_regression
        named: dict[str, Any] = {"missing_groups": self.missing_groups}
        if self.loss.is_classification:
            named["class_names"] = decision_words(self.classes, decision)
        if self.few:
            named["scores"] = chances
        found: Audit = take(
            truth,
            predicted,
            sensitive_features=groups,
            confidence=self.confidence,
            random_state=self.seed,
            **named,
        )
        return dataclasses.replace(found, positive_label=positive_label(self.classes, decision))

    def tried(
        self,
        outputs: tuple[Tensor, Tensor],
        y: Tensor,
        groups: Any,
        decisions: tuple[Decision, Decision],
        weight: Tensor | None = None,
    ) -> tuple[Audit, Audit, Paired]:
        """Audits before and after, and the changes. Both decisions favour the same label."""
        truth, is_class = self.truth(y, decisions[0]), self.loss.is_classification
        both = list(zip(outputs, decisions, strict=True))
        before, after = (self.predicted(z, decision, weight) for z, decision in both)
        old, new = (self.chances(z, one) if is_class else None for z, one in both)
        groups = encode_groups(groups, expected_rows=len(truth), missing=self.missing_groups)
        first = self.audit(truth, before, groups, decisions[0], old)
        last = self.audit(truth, after, groups, decisions[1], new)
        how: dict[str, Any] = {"sensitive_features": collapsed(groups)}
        if old is None or new is None:
            return first, last, paired_numbers(truth, (before, after), (first, last), **how)
        codes = decisions[0].truth(y).cpu().numpy().astype(np.int64)
        changes = paired(
            truth, (before, after), (first, last), chances=(old, new), codes=codes, **how
        )
        return first, last, changes

    def _named(self, found: NDArray[Any]) -> NDArray[Any]:
        several = self.loss.is_classification and not self.few and len(self.classes)
        return self.classes[found.astype(int)] if several else found
