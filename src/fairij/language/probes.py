"""Does a classifier fear a word? Sentences that differ in an identity alone, before and after.

A gap over few mentions can be closed by calling every mention toxic. The validation rows do not
show that, sentences that are clearly harmless do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.checks import number_between
from fairij.errors import InvalidInputError
from fairij.fairness.groups import Groups
from fairij.language.probe_sentences import HARMLESS, IDENTITIES, Identity
from fairij.language.swapping import Templates, sentences
from fairij.language.texts import texts_of
from fairij.models.registry import adapt

Scorer = Callable[[list[str]], Any]
WORD = re.compile(r"[^\W\d_]+")
MENTIONS = 0.2  # of a group's texts that name an identity, for it to be the identity of the group
TIMES = 4.0  # as often as in the texts of the other groups
NOTICED = 0.05  # growth of the mean score of harmless sentences, above which the verdict is amber


@dataclass(frozen=True)
class IdentityProbe:
    """What a model says of sentences that differ in the identity alone.

    ``sentences`` has one line per sentence: kind, template (a number), identity, score, positive.

    Examples
    --------
    >>> from fairij.language import identity_probe
    >>> probe = identity_probe(classifier, identities=["muslim", "christian"])
    >>> sorted(probe.sentences["identity"].unique())
    ['christian', 'muslim']
    """

    sentences: pd.DataFrame
    threshold: float

    @cached_property
    def rates(self) -> pd.DataFrame:
        """The share called positive, by identity and kind."""
        return self._by("positive")

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The mean score, by identity and kind."""
        return self._by("score")

    @cached_property
    def flips(self) -> pd.Series[float]:
        """By kind, the share of templates whose label depends on the identity."""
        called = self.sentences.groupby(["kind", "template"], sort=False)["positive"]
        differs = (called.max() != called.min()).astype(float)
        return differs.groupby(level="kind", sort=False).mean().rename("flips")

    @cached_property
    def spread(self) -> pd.Series[float]:
        """By kind, the highest less the lowest score of a template, in the mean of templates."""
        of_template = self.sentences.groupby(["kind", "template"], sort=False)["score"]
        width = of_template.max() - of_template.min()
        return width.groupby(level="kind", sort=False).mean().rename("spread")

    def since(
        self, before: IdentityProbe, *, protected: Sequence[str] | None = None
    ) -> ProbeChange:
        """What changed since the same sentences were tried on another model.

        Parameters
        ----------
        before : IdentityProbe
            The same sentences, as an earlier model takes them.
        protected : sequence of str, default=None
            The identities that the edit was meant to protect. None for all of them.
        """
        same = ["kind", "template", "identity"]
        if not before.sentences[same].equals(self.sentences[same]):
            raise InvalidInputError(
                "`before` must be a probe of the same sentences: give both the same identities and "
                "templates."
            )
        known = list(self.rates.index)
        strange = [name for name in protected or () if name not in known]
        if strange:
            raise InvalidInputError(
                f"`protected` must be identities of the probe, {known}, got {strange[0]!r}."
            )
        return ProbeChange(before, self, tuple(known if protected is None else protected))

    def _by(self, column: str) -> pd.DataFrame:
        table = self.sentences.pivot_table(
            index="identity", columns="kind", values=column, aggfunc="mean", sort=False
        )
        return table.astype(float)


@dataclass(frozen=True)
class ProbeChange:
    """A probe before and after an edit.

    Examples
    --------
    >>> from fairij.language import identity_probe
    >>> before = after = identity_probe(classifier)
    >>> after.since(before, protected=["muslim"]).protected
    ('muslim',)
    """

    before: IdentityProbe
    after: IdentityProbe
    protected: tuple[str, ...]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One line per identity and kind: shares and scores before and after."""
        parts = {
            f"{name}_{when}": probe.sentences.groupby(["identity", "kind"], sort=False)[column]
            for name, column in (("rates", "positive"), ("scores", "score"))
            for when, probe in (("before", self.before), ("after", self.after))
        }
        table = pd.DataFrame({name: part.mean() for name, part in parts.items()}).reset_index()
        table["protected"] = table["identity"].isin(self.protected)
        return table

    @cached_property
    def moved(self) -> pd.Series[float]:
        """By kind, the mean change of the score of sentences about protected identities."""
        own = self.table[self.table["protected"]]
        change = own["scores_after"] - own["scores_before"]
        return change.groupby(own["kind"], sort=False).mean().rename("moved")

    @cached_property
    def raised(self) -> pd.DataFrame:
        """Harmless sentences of protected identities that are called positive more often."""
        found = self.table[self.table["kind"].isin(HARMLESS) & self.table["protected"]]
        grown = (found["rates_after"] - found["rates_before"]).sort_values(ascending=False)
        return found.loc[grown.index[grown > 0]]

    @cached_property
    def nearer(self) -> pd.DataFrame:
        """Harmless sentences of protected identities whose mean score clearly grew."""
        found = self.table[self.table["kind"].isin(HARMLESS) & self.table["protected"]]
        return found[found["scores_after"] - found["scores_before"] > NOTICED]

    @property
    def verdict(self) -> Literal["green", "amber", "red"]:
        """Red if harmless sentences about a protected identity are called positive more often.

        Amber if only their scores grew.
        """
        if not self.raised.empty:
            return "red"
        return "green" if self.nearer.empty else "amber"

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        about = f"{len(self.before.sentences)} sentences that differ in the identity alone"
        if self.raised.empty:
            who = ", ".join(self.protected)
            but = "" if self.nearer.empty else " But their scores clearly grew."
            return (
                f"Of {about}, harmless ones about {who} are not called positive more often than "
                f"before.{but}"
            )
        one = self.raised.iloc[0]
        return (
            f"Of {about}, {one['kind']} ones about the identity {one['identity']!r} are called "
            f"positive more often than before: {one['rates_after']:.0%} instead of "
            f"{one['rates_before']:.0%}."
        )


def identity_probe(
    model: Any,
    *,
    identities: Sequence[str | Identity] | None = None,
    templates: Templates | Sequence[str] | None = None,
    threshold: float = 0.5,
    positive: int | None = None,
) -> IdentityProbe:
    """Try a classifier of texts with sentences that differ in the identity alone.

    Parameters
    ----------
    model : object
        A classifier that takes texts: `TextClassifier`, a pipeline of scikit-learn that begins with
        texts, a fitted `FairIJ` of one, or a function of a list of texts that returns the
        probability of the positive class.
    identities : sequence of str or Identity, default=None
        Names of `IDENTITIES`, or your own. None for all twelve.
    templates : mapping or sequence of str, default=None
        Your own sentences by kind ("neutral", "kind", "hostile", "quoted", "negated"), or a list of
        neutral ones, with ``{one}`` ("a Muslim") or ``{many}`` ("Muslims") in them. A sentence
        without these that names one of the identities is taken as it is, and the name is swapped.
        None for our own.
    threshold : float, default=0.5
        The probability above which a sentence is called positive.
    positive : int, default=None
        The place of the positive class among the outputs of a model with more than two.

    Returns
    -------
    IdentityProbe
        Shares, scores and flips.

    Examples
    --------
    >>> from fairij.language import identity_probe
    >>> def fears_the_word(texts):
    ...     return [0.9 if "Muslim" in text else 0.1 for text in texts]
    >>> probe = identity_probe(fears_the_word, identities=["muslim", "christian"])
    >>> probe.rates["kind"].to_dict()
    {'muslim': 1.0, 'christian': 0.0}
    """
    number_between("threshold", threshold, 0, 1)
    table = sentences(identities, templates)
    scores = _scores(model, table["text"].tolist(), positive)
    table["score"], table["positive"] = scores, scores > threshold
    return IdentityProbe(table, float(threshold))


def identities_of(texts: Any, groups: Groups) -> tuple[str, ...]:
    """The identities that texts of one group mention far more often than those of the others.

    Examples
    --------
    >>> from fairij.fairness.groups import encode_groups
    >>> from fairij.language import identities_of
    >>> texts = ["A Muslim wrote this.", "Rain again."] * 20
    >>> identities_of(texts, encode_groups(["muslim", "none"] * 20))
    ('muslim',)
    """
    listed = texts_of("texts", texts)
    words = [set(WORD.findall(text.lower())) for text in listed]
    found = []
    for identity in IDENTITIES:
        mentions = np.array([not some.isdisjoint(identity.words) for some in words])
        shares = np.array([mentions[groups.codes == code].mean() for code in _codes(groups)])
        rest = np.array([mentions[groups.codes != code].mean() for code in _codes(groups)])
        if ((shares >= MENTIONS) & (shares >= TIMES * rest)).any():
            found.append(identity.name)
    return tuple(found)


def _codes(groups: Groups) -> list[int]:
    return sorted(set(groups.codes.tolist()))


def _scores(model: Any, texts: list[str], positive: int | None) -> NDArray[np.float64]:
    """The probability of the positive class, ``(N,)``."""
    found = _probabilities(model, texts)
    if found.ndim == 2:
        place = 1 if found.shape[1] == 2 and positive is None else positive
        if place is None or not 0 <= place < found.shape[1]:
            raise InvalidInputError(
                f"`positive` must be the place of the positive class among the {found.shape[1]} "
                f"outputs, from 0 on; got {positive!r}."
            )
        found = found[:, place]
    if found.shape != (len(texts),) or not bool(((found >= 0) & (found <= 1)).all()):
        raise InvalidInputError(
            "`model` must give one probability per text, between 0 and 1; got an array of shape "
            f"{found.shape} from {found.min():g} to {found.max():g}."
        )
    return found


def _probabilities(model: Any, texts: list[str]) -> NDArray[np.float64]:
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(texts), dtype=np.float64)
    if callable(model) and not isinstance(model, torch.nn.Module):
        return np.asarray(model(texts), dtype=np.float64)
    return scored(model, texts)


def scored(model: Any, rows: Any) -> NDArray[np.float64]:
    """The probabilities of a classifier, ``(N,)`` or ``(N, C)``, on rows as it takes them."""
    with torch.no_grad():
        z = adapt(model).outputs(rows).double()
    p: Tensor = torch.sigmoid(z) if z.ndim == 1 else torch.softmax(z, -1)
    return p.cpu().numpy()
