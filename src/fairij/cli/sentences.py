"""Sentences on the command line: those that take part in an edit, and those that try the model.

Half of fairij's sentences serve the edit. The page then tries the other half, because sentences
that took part say little about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.cli.options import PageOptions, SentenceOptions, check_choice
from fairij.cli.rows import Part
from fairij.errors import InvalidInputError
from fairij.language.probe_sentences import IDENTITIES, IN_EDITS, ON_PAGES
from fairij.language.probes import ProbeChange
from fairij.language.swapping import identity_constraint, sentences
from fairij.mitigator import FairIJ
from fairij.report.probe import probed
from fairij.storage.model_files import ModelFile
from fairij.storage.tables import read_table, require_columns


def check_sentences(page: PageOptions, asked: SentenceOptions) -> None:
    """Refuse identities, and sentences of the user's own, that cannot be used, before the work."""
    if page.probe is not None:
        sentences(templates=read_templates(page.probe))
    known = [one.name for one in IDENTITIES]
    for option, names in (("identity", asked.identity), ("compared-with", asked.compared_with)):
        for name in names or []:
            check_choice(option, name, known)
    protected = set(asked.identity or [])
    if twice := sorted(protected & set(asked.compared_with or [])):
        raise InvalidInputError(
            f"--compared-with must name other identities than --identity; got {twice[0]!r} in both."
        )
    if protected == set(known):
        raise InvalidInputError(
            "--identity must leave an identity to compare with, but names all that are known."
        )


def ask_for(mitigator: FairIJ, asked: SentenceOptions, file: ModelFile, train: Part) -> None:
    """Add the constraint of --identity to those of a mitigator, if the rows are texts."""
    if asked.identity and not train.is_text:
        raise InvalidInputError(
            f"--identity must go with a model that reads text, and {', '.join(asked.identity)} was "
            "given for a model that takes columns: leave it out.",
            parameter="identity",
        )
    add_constraint(mitigator, asked, file)


def add_constraint(mitigator: FairIJ, asked: SentenceOptions, file: ModelFile) -> None:
    """Add the constraint of --identity to those of a mitigator, if it was given."""
    if not asked.identity:
        return
    others = asked.compared_with
    one = identity_constraint(
        asked.identity,
        identities=None if others is None else [*asked.identity, *others],
        templates=IN_EDITS,
        prepare=lambda texts: file.prepare(pd.DataFrame({"text": texts})),
    )
    named: Any = mitigator.constraints
    before = [named] if isinstance(named, str) else list(named)
    mitigator.set_params(constraints=[*before, one])


def probe_of(
    fitted: FairIJ,
    file: ModelFile,
    train: Part,
    test: Part | None,
    page: PageOptions,
    asked: SentenceOptions,
) -> ProbeChange | None:
    """The identity probe of a model that reads text; None of other models."""
    if not train.is_text:
        if page.probe is not None:
            raise InvalidInputError(
                f"--probe must go with a model that reads text, and {page.probe} was given for a "
                "model that takes columns: leave it out."
            )
        return None
    tables = [(part.features, part.groups) for part in (test, train) if part is not None]
    own: Mapping[str, Sequence[str]] | None = ON_PAGES if asked.identity else None
    if page.probe is not None:
        own = read_templates(page.probe)
    return probed(fitted, tables, own, lambda texts: file.prepare(pd.DataFrame({"text": texts})))


def read_templates(path: Path) -> dict[str, list[str]]:
    """Sentences by kind, from a table with these two columns."""
    table = read_table(path, columns=("kind", "text"), text_columns=("kind", "text"))
    require_columns(list(table.columns), ["kind", "text"], where=str(path))
    return {str(kind): some["text"].tolist() for kind, some in table.groupby("kind", sort=False)}
