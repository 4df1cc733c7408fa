"""Does an edit fear the word? Models of a part of the comments, with the probe of each.

Half of the probe's templates take part in the edits with the identity constraint. The other half
is what the tables show.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairij import Constrained, FairIJ, Grid
from fairij.baselines.penalties import HGR, GapReg
from fairij.language import (
    BalancedAccuracyBudget,
    identity_constraint,
    identity_probe,
    load_tokenizer,
    over_represented,
    train,
)
from fairij.language.batches import TextRows, run_all
from fairij.language.probe_sentences import IN_EDITS, KINDS, ON_PAGES
from fairij_studies.comments.fear_models import parts_for, plain, reader, recipe_of
from fairij_studies.comments.heads import (
    CONSTRAINTS,
    HEADS,
    KEPT_BYTES,
    STRENGTHS,
    Plain,
    judged,
    training_arguments,
)
from fairij_studies.comments.prepared import ENCODER, Part, device
from fairij_studies.comments.t5 import device_name

FEAR = "fear of a word"  # on a part of the comments
FEAR_OF_ALL = f"{FEAR}, all comments"
WORD = {"muslim": "muslim", "female": "woman", "lgbt": "gay"}  # of the probe
TAKEN, KEPT = IN_EDITS, ON_PAGES  # sentences that take part in edits, and those only looked at
BUDGET = 0.01  # of balanced accuracy on validation comments
ROWS_DROPPED = {"search": Grid(points=20), "temperature": 3.0}
SEEDS = range(1, 6)  # seed 0 was looked at while the constraint was made
# of the models that run the whole encoder, each is a unit of its own
EDITS, OTHER_EDITS, TRAININGS = WORKS = ("edits", "other edits", "trainings")
POINTS, WORST, WORDS = 300, 500, 15  # of the curve, of the figure's mark, of the list of words


def fear_unit(
    *, folder: str, head: str, seed: int, identity: str, works: tuple[str, ...] = WORKS
) -> list[dict[str, Any]]:
    """Run every method on one model, one seed, one identity, and try the sentences on each."""
    parts, base = parts_for(folder, head, identity), plain(folder, head, seed, identity)
    read, word = reader(folder, head), WORD[identity]
    rows = {"rows": len(parts["train"].y), "device": device_name()}
    found = []

    def record(model: Any, constraint: str, about: dict[str, Any]) -> None:
        figures = {**judged(model, parts, base.rows, identity), **tried(model, read, word)}
        found.append({"constraint": constraint, **about, **figures, **rows})

    for constraint in CONSTRAINTS:
        if EDITS in works:
            record(base.trained.model, constraint, {"method": "erm", "seconds": base.seconds})
        if TRAININGS in works:
            for kind in (GapReg, HGR):
                for strength in STRENGTHS:
                    method = kind(constraint=constraint, strength=strength, seed=seed)
                    start = time.perf_counter()
                    given = training_arguments(parts, base.rows, identity)
                    recipe = recipe_of(head)
                    again = train(base.fresh, recipe=recipe, seed=seed, penalty=method, **given)
                    about = {"method": method.name, "seconds": time.perf_counter() - start}
                    record(again.model, constraint, {**about, "strength": strength})
        for rule, asked, how, all_groups in edits_for(constraint, word, read, head, works):
            start = time.perf_counter()
            fair = fitted(base, asked, parts, identity, how, all_groups=all_groups)
            about = {"method": "fair-ij", "seconds": time.perf_counter() - start, "rule": rule}
            chosen = fair.candidates_.iloc[fair.chosen_]
            gaps = {"validation_gap": float(chosen["gap"]), "scale": float(chosen["scale"])}
            mode = {"jvp_mode": str(fair.diagnostics_["jvp_mode"])}
            record(fair.estimator_, constraint, {**about, **gaps, **mode})
    return found


def edits_for(
    constraint: str,
    word: str,
    read: Callable[[list[str]], TextRows],
    head: str,
    works: tuple[str, ...],
) -> list[tuple[str, list[Any], dict[str, Any], bool]]:
    """Return the edits: name, constraints, settings, and whether training groups are known."""
    sentences = identity_constraint(word, prepare=read, templates=TAKEN)
    search = {"search": Constrained() if head in HEADS else Constrained().quicker}  # as by default
    edits: list[tuple[str, list[Any], dict[str, Any], bool]] = []
    if OTHER_EDITS in works:
        edits.append(("grid", [constraint], ROWS_DROPPED, False))
    if EDITS in works:
        edits.append(("constrained", [constraint], search, False))
        edits.append(("constrained, identity", [constraint, sentences], search, False))
    if OTHER_EDITS in works:
        asked = [constraint, sentences]
        edits.append(("constrained, identity, all groups", asked, search, True))
    return edits


def fitted(
    base: Plain,
    asked: list[Any],
    parts: dict[str, Part],
    identity: str,
    how: dict[str, Any],
    *,
    all_groups: bool,
) -> FairIJ:
    """Fit Fair-IJ; with ``all_groups`` it also knows which training comments mention whom."""
    groups = parts["train"].mentions[identity] if all_groups else None
    return FairIJ(
        base.trained.model,
        constraints=asked,
        selection=BalancedAccuracyBudget(BUDGET),
        memory_limit=KEPT_BYTES[device()],
        verbose=False,
        **how,
    ).fit(
        base.rows["train"],
        parts["train"].y,
        sensitive_features=groups,
        X_val=base.rows["val"],
        y_val=parts["val"].y,
        sensitive_features_val=parts["val"].mentions[identity],
    )


def tried(model: Any, read: Callable[[list[str]], TextRows], word: str) -> dict[str, float]:
    """Return the shares of sentences called toxic: those that took part, and those kept apart."""

    def probabilities(texts: list[str]) -> Any:
        return torch.sigmoid(run_all(model, read(texts))).double().cpu().numpy()

    found = {}
    for name, templates in (("kept", KEPT), ("taken", TAKEN)):
        probe = identity_probe(probabilities, templates=templates)
        for kind in KINDS:
            rates, scores = probe.rates[kind], probe.scores[kind]
            found[f"{name}_{kind}"] = float(rates[word])
            found[f"{name}_{kind}_others"] = float(rates.drop(word).mean())
            found[f"{name}_{kind}_score"] = float(scores[word])
            found[f"{name}_{kind}_flips"] = float(probe.flips[kind])
    return found


def curve_unit(*, folder: str, head: str, seed: int, identity: str) -> list[dict[str, Any]]:
    """Score the training comments as in the paper's first figure; the words of the worst ones."""
    parts, base = parts_for(folder, head, identity), plain(folder, head, seed, identity)
    asked = ["demographic_parity"]
    fair = fitted(base, asked, parts, identity, ROWS_DROPPED, all_groups=False)
    scores = np.sort(fair.influence_[fair.influence_ > 0])
    places = np.unique(
        np.concatenate([np.linspace(0, len(scores) - 1, POINTS), len(scores) - 1 - np.arange(60)])
    ).astype(int)
    places = np.unique(places[places >= 0])
    worst = np.argsort(-fair.influence_)[:WORST]
    tokenizer = load_tokenizer(Path(folder) / ENCODER)
    texts = tokenizer.batch_decode(list(parts["train"].tokens.input_ids), skip_special_tokens=True)
    words = over_represented(texts, worst, top=WORDS)
    named = {"method": "curve", "places": places.tolist(), "scores": scores[places].tolist()}
    gaps = {
        f"gap_{when}": judged(model, parts, base.rows, identity)["demographic_parity"]
        for when, model in (("before", base.trained.model), ("after", fair.estimator_))
    }
    return [
        {
            **named,
            **gaps,
            "positive": len(scores),
            "rows": len(parts["train"].y),
            "toxic_among_worst": float(parts["train"].y[worst].mean()),
            "mentioned_among_worst": float(parts["train"].mentions[identity].iloc[worst].mean()),
            "words": words["word"].tolist(),
            "lifts": words["lift"].tolist(),
        }
    ]
