"""Comments labelled for toxicity: the paper's tables on language models."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from fairij.language.training import TrainingRecipe
from fairij_studies.comments.cost import agreement_unit, cost_unit
from fairij_studies.comments.fear import FEAR, FEAR_OF_ALL, WORKS, curve_unit, fear_unit
from fairij_studies.comments.fear import SEEDS as OTHER_SEEDS
from fairij_studies.comments.fear_models import LORA, TRIED
from fairij_studies.comments.heads import STRENGTHS, both_gaps_unit, head_unit
from fairij_studies.comments.prepared import COMMENTS, ENCODER, make_up, mentions_unit, prepare
from fairij_studies.comments.settings import CHOSEN_ON, SETTINGS, TRIED_ON_NC, settings_unit
from fairij_studies.comments.settings import TRIED as SETTINGS_TRIED
from fairij_studies.comments.t5 import SMALL_T5, pretraining_unit, real_size_unit
from fairij_studies.comments.tables import IDENTITIES, N_SEEDS
from fairij_studies.comments.triggers import RECIPE, regularised_trigger_unit, trigger_unit
from fairij_studies.driver import Scalar, Study, Unit

HEADS = ("LC", "NC")
TOKENS = (4, 8, 10)
SEEDS = range(N_SEEDS)
TINY = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
# trained to its best validation loss, to measure the cost
LONGER = replace(RECIPE, epochs=12, patience=3)
QUICK = TrainingRecipe(learning_rate=1e-2, batch_size=64, epochs=3, patience=2)


def make_study(
    *,
    prepared: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Study:
    """Return the study. ``prepared`` is a folder made by `prepare`. It is made if it is missing."""
    given = None if prepared is None else Path(prepared)
    return Study("comments", partial(study_units, given, data_home, path), draw)


def study_units(
    prepared: Path | None,
    data_home: str | os.PathLike[str] | None,
    path: str | os.PathLike[str] | None,
    quick: bool,
) -> list[Unit]:
    """Return all units. The quick form has made-up comments and small random encoders."""
    if quick:
        folder = prepared or Path(tempfile.mkdtemp(prefix="fairij-comments-"))
        if not (folder / COMMENTS).exists():
            make_up(folder)
        return quick_units(str(folder))
    folder = prepared or Path("build") / "comments"
    if not (folder / COMMENTS).exists():
        prepare(folder, data_home=data_home, path=path)
    return whole_units(str(folder))


def whole_units(folder: str) -> list[Unit]:
    """Return the units: first the paper's identity, then the others, then the penalties."""
    first, others = IDENTITIES[:1], IDENTITIES[1:]
    runs = [(n, seed) for seed in SEEDS for n in TOKENS]
    return [
        mentions(folder),
        pretraining(folder),
        *(  # units of a seed are together: they share its plain training
            make(folder, kind, s, i)
            for kind in HEADS
            for s in SEEDS
            for i in IDENTITIES
            for make in (head, both_gaps)
        ),
        *(fear(folder, kind, s, first[0]) for kind in HEADS for s in OTHER_SEEDS),
        *(  # edits first
            fear_part(folder, kind, s, first[0], work)
            for work in WORKS
            for kind in TRIED[len(HEADS) :]
            for s in OTHER_SEEDS
        ),
        *(
            settings(folder, kind, s, first[0])
            for kind in HEADS
            for s in (*CHOSEN_ON, *OTHER_SEEDS)
        ),
        *(fear(folder, kind, s, first[0], FEAR_OF_ALL) for kind in HEADS for s in OTHER_SEEDS),
        curve(folder, "LC", OTHER_SEEDS[0], first[0]),
        *(triggers(folder, SMALL_T5, n, seed, first) for n, seed in runs),
        *(triggers(folder, ENCODER, n, seed, first) for n, seed in runs),
        *(triggers(folder, ENCODER, n, seed, others) for n, seed in runs),
        *costs(folder),
        *(
            regularised_triggers(folder, n, seed, strength)
            for strength in STRENGTHS
            for n, seed in runs
        ),
    ]


def mentions(folder: str) -> Unit:
    return Unit({"encoder": "none", "model": "mentions"}, mentions_unit, {"folder": folder})


def pretraining(folder: str) -> Unit:
    return Unit(
        {"encoder": SMALL_T5, "model": "pre-training"},
        pretraining_unit,
        {"folder": folder, "seed": 0, "epochs": 3},
        20,
    )


def head(folder: str, kind: str, seed: int, identity: str) -> Unit:
    return Unit(
        {"encoder": ENCODER, "model": kind, "seed": seed, "identity": identity},
        head_unit,
        {"folder": folder, "head": kind, "seed": seed, "identity": identity},
        8 if kind == "NC" else 2,
    )


def both_gaps(folder: str, kind: str, seed: int, identity: str) -> Unit:
    plain = head(folder, kind, seed, identity)
    return Unit({**plain.key, "surrogate": "both gaps"}, both_gaps_unit, plain.arguments)


def fear(folder: str, kind: str, seed: int, identity: str, asked: str = FEAR) -> Unit:
    """Return the unit that tries sentences on every model. Run `FEAR` on a part of the comments."""
    plain = head(folder, kind, seed, identity)
    return Unit({**plain.key, "asked": asked}, fear_unit, plain.arguments, 5)


def fear_part(folder: str, kind: str, seed: int, identity: str, work: str) -> Unit:
    """Return the unit of one of `WORKS` on a model that runs the whole encoder."""
    whole = fear(folder, kind, seed, identity)
    return Unit({**whole.key, "work": work}, fear_unit, {**whole.arguments, "works": (work,)}, 5)


def settings(folder: str, kind: str, seed: int, identity: str) -> Unit:
    """Return the unit that edits for equalized odds in many ways. Run it on a part, as `FEAR`."""
    plain = head(folder, kind, seed, identity)
    names = TRIED_ON_NC if kind == "NC" else tuple(SETTINGS_TRIED)
    return Unit(
        {**plain.key, "asked": SETTINGS}, settings_unit, {**plain.arguments, "names": names}, 5
    )


def curve(folder: str, kind: str, seed: int, identity: str) -> Unit:
    plain = head(folder, kind, seed, identity)
    return Unit({**plain.key, "asked": "which comments"}, curve_unit, plain.arguments, 2)


def triggers(folder: str, name: str, n: int, seed: int, identities: tuple[str, ...]) -> Unit:
    key: dict[str, Scalar] = {"encoder": name, "model": f"TT={n}", "seed": seed}
    return Unit(
        key if identities == IDENTITIES[:1] else {**key, "identities": ", ".join(identities)},
        trigger_unit,
        {"folder": folder, "name": name, "n_tokens": n, "seed": seed, "identities": identities},
        10,
    )


def regularised_triggers(folder: str, n: int, seed: int, strength: float) -> Unit:
    chosen: dict[str, Scalar] = {"identity": IDENTITIES[0], "strength": strength}
    return Unit(
        {"encoder": ENCODER, "model": f"TT={n}", "seed": seed, **chosen},
        regularised_trigger_unit,
        {"folder": folder, "name": ENCODER, "n_tokens": n, "seed": seed, **chosen},
        10,
    )


def costs(folder: str) -> list[Unit]:
    """Return the units of times and agreement. Run each alone on its machine."""
    named = {"folder": folder, "name": ENCODER, "n_tokens": 10, "identity": IDENTITIES[0]}
    return [
        Unit(
            {"encoder": ENCODER, "model": "cost of TT=10"},
            cost_unit,
            {**named, "recipe": LONGER},
            10,
        ),
        Unit(
            {"encoder": ENCODER, "model": "agreement of TT=10"},
            agreement_unit,
            {**named, "train_rows": 6000, "validation_rows": 3000},
            30,
        ),
        Unit(
            {"encoder": "T5-base, random weights", "model": "cost of TT=10"},
            real_size_unit,
            {"folder": folder, "n_tokens": 10, "rows": 8192},
            10,
        ),
    ]


def quick_units(folder: str) -> list[Unit]:
    """Return one unit of each kind."""
    first = IDENTITIES[0]
    named = {"folder": folder, "name": ENCODER, "n_tokens": 4, "identity": first, "recipe": QUICK}
    small = {"folder": folder, "n_tokens": 4, "seed": 0, "recipe": QUICK}
    return [
        mentions(folder),
        Unit(
            {"encoder": SMALL_T5, "model": "pre-training"},
            pretraining_unit,
            {"folder": folder, "seed": 0, "epochs": 1, "sizes": TINY},
        ),
        *(
            Unit(
                {"encoder": ENCODER, "model": kind, "seed": 0, "identity": first},
                head_unit,
                {"folder": folder, "head": kind, "seed": 0, "identity": first, "dampings": (1e-2,)},
            )
            for kind in ("LC", "NC")
        ),
        both_gaps(folder, "LC", 0, first),
        fear(folder, "LC", 1, first),
        *(fear_part(folder, LORA, 1, first, work) for work in WORKS),
        curve(folder, "LC", 1, first),
        settings(folder, "LC", 1, first),
        *(
            Unit(
                {"encoder": name, "model": "TT=4", "seed": 0},
                trigger_unit,
                {**small, "name": name, "identities": (first,)},
            )
            for name in (ENCODER, SMALL_T5)
        ),
        Unit(
            {"encoder": ENCODER, "model": "TT=4", "seed": 0, "identity": first, "strength": 1.0},
            regularised_trigger_unit,
            {**small, "name": ENCODER, "identity": first, "strength": 1.0},
        ),
        Unit({"encoder": ENCODER, "model": "cost of TT=4"}, cost_unit, named),
        Unit(
            {"encoder": ENCODER, "model": "agreement of TT=4"},
            agreement_unit,
            {**named, "train_rows": 300, "validation_rows": 200, "threads": 1},
        ),
        Unit(
            {"encoder": "T5, random weights", "model": "cost of TT=4"},
            real_size_unit,
            {"folder": folder, "n_tokens": 4, "rows": 128, "sizes": TINY},
        ),
    ]


def draw(records: pd.DataFrame, folder: Path) -> None:
    from fairij_studies.comments.readme import draw as drawn  # needs the drawing packages

    drawn(records, folder)
