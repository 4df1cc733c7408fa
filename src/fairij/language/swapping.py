"""Sentences with an identity swapped: a table of them, and the constraint that scores ignore it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from fairij.errors import InvalidInputError
from fairij.fairness.counterfactual import Counterfactual
from fairij.language.probe_sentences import IDENTITIES, KINDS, TEMPLATES, Identity
from fairij.language.texts import texts_of

Templates = Mapping[str, Sequence[str]]
Asked = Sequence[str | Identity] | None
FEWEST = 2  # identities that can be swapped
PLACES = ("{one}", "{many}", "{One}", "{Many}")


def sentences(
    identities: Asked = None, templates: Templates | Sequence[str] | None = None
) -> pd.DataFrame:
    """Each template with each identity: kind, template (a number), identity, text.

    Parameters are those of `identity_probe`.
    """
    chosen = _identities(identities)
    lines = [
        (kind, place, one.name, one.put_into(template))
        for kind, some in _templates(templates, chosen).items()
        for place, template in enumerate(some)
        for one in chosen
    ]
    return pd.DataFrame(lines, columns=["kind", "template", "identity", "text"])


def identity_constraint(
    protected: str | Sequence[str] | None = None,
    *,
    identities: Asked = None,
    templates: Templates | Sequence[str] | None = None,
    prepare: Callable[[list[str]], Any] | None = None,
    name: str = "identity",
) -> Counterfactual:
    """The constraint that scores of sentences do not depend on the identity in them.

    Parameters
    ----------
    protected : str or sequence of str, default=None
        The identities to compare with all others. None: every identity with every other one.
    identities, templates : default=None
        As in `identity_probe`. Templates may be your own texts, without labels: see `swappable`.
    prepare : callable, default=None
        Makes rows as the model takes them of a list of texts. None: the model takes texts.
    name : str, default="identity"
        The name in results.

    Examples
    --------
    >>> from fairij.language import identity_constraint
    >>> identity_constraint("muslim")
    Counterfactual(protected='muslim', name='identity')

    To be given as ``FairIJ(constraints=["equalized_odds", identity_constraint("muslim")])``.
    """
    table = sentences(identities, templates)
    texts = table["text"].tolist()
    return Counterfactual(
        texts if prepare is None else prepare(texts),
        table["identity"].to_numpy(),
        (table["kind"] + " " + table["template"].astype(str)).to_numpy(),
        kinds=table["kind"].to_numpy(),
        protected=protected,
        name=name,
    )


def swappable(texts: Any, identities: Asked = None) -> list[str]:
    """Those of your texts that name an identity, with a place in its stead: to be ``templates``.

    A text names an identity if it holds "a Muslim" or "Muslims", with or without a capital letter.

    Examples
    --------
    >>> from fairij.language import swappable
    >>> swappable(["My neighbour is a Muslim.", "It rains."])
    ['My neighbour is {one}.']
    """
    chosen = _identities(identities)
    found = [_template(text, chosen) for text in texts_of("texts", texts)]
    named = [template for template in found if template is not None]
    if not named:
        forms = ", ".join(f"{one.one!r} or {one.many!r}" for one in chosen[:FEWEST])
        raise InvalidInputError(
            f"`texts` must name an identity in at least one text, as in {forms}; none of the "
            f"{len(found)} texts does. Give texts that do, or your own `Identity(name, one, many)`."
        )
    return named


def _identities(asked: Sequence[str | Identity] | None) -> tuple[Identity, ...]:
    known = {identity.name: identity for identity in IDENTITIES}
    if asked is None:
        return IDENTITIES
    if isinstance(asked, str) or len(list(asked)) < FEWEST:
        raise InvalidInputError(
            f"`identities` must be at least two names, so that they can be swapped; got {asked!r}. "
            f"Known are {', '.join(known)}; for others give `Identity(name, one, many)`."
        )
    strange = [one for one in asked if not isinstance(one, Identity) and one not in known]
    if strange:
        raise InvalidInputError(
            f"`identities` must be among {', '.join(known)}, or `Identity(name, one, many)`; got "
            f"{strange[0]!r}."
        )
    found = tuple(one if isinstance(one, Identity) else known[one] for one in asked)
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"`identities` must have different names, got {names}.")
    return found


def _templates(asked: Any, identities: Sequence[Identity]) -> dict[str, tuple[str, ...]]:
    if asked is None:
        return TEMPLATES
    by_kind = asked if isinstance(asked, Mapping) else {"neutral": asked}
    strange = [kind for kind in by_kind if kind not in KINDS]
    if strange or not by_kind:
        raise InvalidInputError(
            f"`templates` must be sentences by kind, of {', '.join(KINDS)}; got "
            f"{strange[0] if strange else 'none'!r}."
        )
    return {
        kind: tuple(_asked(text, identities) for text in texts_of(f"templates[{kind!r}]", some))
        for kind, some in by_kind.items()
    }


def _asked(text: str, identities: Sequence[Identity]) -> str:
    found = _template(text, identities)
    if found is None:
        names = ", ".join(repr(identity.one) for identity in identities)
        raise InvalidInputError(
            "`templates` must name the place of the identity as {one} or {many}, or hold one of "
            f"{names} (or its plural); got {text[:80]!r}."
        )
    return found


def _template(text: str, identities: Sequence[Identity]) -> str | None:
    """The sentence with a place for an identity: the one that it has, or that of a name in it."""
    if any(place in text for place in PLACES):
        return text
    for identity in identities:
        for words, place in ((identity.one, "one"), (identity.many, "many")):
            for form, slot in ((words, place), (_begins(words), place.capitalize())):
                swapped = re.sub(rf"\b{re.escape(form)}\b", f"{{{slot}}}", text)
                if swapped != text:
                    return swapped
    return None


def _begins(words: str) -> str:
    return words[:1].upper() + words[1:]
