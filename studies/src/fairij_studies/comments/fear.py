"""Does an edit fear the word? Heads on a part of the comments, with the probe of every model.

Half of the probe's templates take part in the edits with the identity constraint. The other half
is what the tables show.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairij import Constrained, FairIJ, Grid
from fairij.baselines.penalties import HGR, GapReg
from fairij.language import (
    BalancedAccuracyBudget,
    features,
    identity_constraint,
    identity_probe,
    load_tokenizer,
    over_represented,
    tokenise,
    train,
)
from fairij.language.batches import run_all
from fairij.language.probe_sentences import KINDS, TEMPLATES
from fairij_studies.comments.heads import (
    CONSTRAINTS,
    HEADS,
    KEPT_BYTES,
    RECIPES,
    STRENGTHS,
    Plain,
    facts,
    judged,
    training_arguments,
)
from fairij_studies.comments.prepared import ENCODER, MAX_LENGTH, PARTS, Part, comments, encoder

WORD = {"muslim": "muslim", "female": "woman", "lgbt": "gay"}  # of the probe
TAKEN = {kind: some[::2] for kind, some in TEMPLATES.items()}  # take part in edits
KEPT = {kind: some[1::2] for kind, some in TEMPLATES.items()}  # are only looked at
BUDGET = 0.01  # of balanced accuracy on validation comments
CONSTRAINED = Constrained()
SEEDS = range(1, 6)  # seed 0 was looked at while the constraint was made
POINTS, WORST, WORDS = 300, 500, 15  # of the curve, of the figure's mark, of the list of words


@dataclass(frozen=True)
class Scale:
    """What standardises vectors: the training comments' mean, and deviation."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def of(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = ((X - self.mean) / self.deviation).astype(np.float32)
        return found


@cache
def halves(folder: str) -> tuple[dict[str, NDArray[np.float32]], Scale]:
    """Return the vectors of each split, by the encoder in bfloat16, and their scale."""
    model = encoder(folder, ENCODER, "cpu", "bfloat16")
    kept = Path(folder) / "features"
    raw = {name: features(comments(folder)[name].tokens, model, cache=kept) for name in PARTS}
    deviation = raw["train"].std(0)
    scale = Scale(raw["train"].mean(0), np.where(deviation > 1e-6, deviation, np.inf))
    return {name: scale.of(X) for name, X in raw.items()}, scale


@cache
def reader(folder: str) -> Callable[[list[str]], torch.Tensor]:
    """Return what makes vectors of sentences, each of them only once."""
    known: dict[str, NDArray[np.float32]] = {}
    scale, tokenizer = halves(folder)[1], load_tokenizer(Path(folder) / ENCODER)

    def vectors(texts: list[str]) -> torch.Tensor:
        if fresh := [text for text in dict.fromkeys(texts) if text not in known]:
            tokens = tokenise(fresh, tokenizer, max_length=MAX_LENGTH)
            model = encoder(folder, ENCODER, "cpu", "bfloat16")
            known.update(zip(fresh, scale.of(features(tokens, model)), strict=True))
        return torch.from_numpy(np.stack([known[text] for text in texts]))

    return vectors


@lru_cache(maxsize=1)
def plain(folder: str, head: str, seed: int) -> Plain:
    rows = {name: torch.from_numpy(X) for name, X in halves(folder)[0].items()}
    fresh = HEADS[head](rows["train"].shape[1], seed=seed)
    start = time.perf_counter()
    given = training_arguments(comments(folder), rows)
    trained = train(fresh, recipe=RECIPES[head], seed=seed, **given)
    return Plain(fresh, rows, trained, time.perf_counter() - start)


def fear_unit(
    *, folder: str, head: str, seed: int, identity: str, search: Constrained = CONSTRAINED
) -> list[dict[str, Any]]:
    """Run every method on one head, one seed, one identity, and try the sentences on each."""
    parts, base = comments(folder), plain(folder, head, seed)
    read, word = reader(folder), WORD[identity]
    given: tuple[Any, ...] = parts, base.rows, identity
    found = []

    def record(model: Any, about: dict[str, Any]) -> None:
        found.append({**about, **tried(model, read, word), "rows": len(parts["train"].y)})

    for constraint in CONSTRAINTS:
        erm = facts("erm", constraint, base.seconds)
        record(base.trained.model, {**erm, **judged(base.trained.model, *given)})
        for kind in (GapReg, HGR):
            for strength in STRENGTHS:
                method = kind(constraint=constraint, strength=strength, seed=seed)
                start = time.perf_counter()
                again = train(
                    base.fresh,
                    recipe=RECIPES[head],
                    seed=seed,
                    penalty=method,
                    **training_arguments(parts, base.rows, identity),
                ).model
                about = facts(method.name, constraint, time.perf_counter() - start)
                record(again, {**about, "strength": strength, **judged(again, *given)})
        alone, both = (
            [constraint],
            [constraint, identity_constraint(word, prepare=read, templates=TAKEN)],
        )
        for rule, asked, how, all_groups in (
            ("grid", alone, {"search": Grid(points=20), "temperature": 3.0}, False),
            ("constrained", alone, {"search": search}, False),
            ("constrained, identity", both, {"search": search}, False),
            ("constrained, identity, all groups", both, {"search": search}, True),
        ):
            start = time.perf_counter()
            fair = fitted(base, asked, parts, identity, how, all_groups=all_groups)
            about = facts("fair-ij", constraint, time.perf_counter() - start)
            chosen = fair.candidates_.iloc[fair.chosen_]
            gaps = {"validation_gap": float(chosen["gap"]), "scale": float(chosen["scale"])}
            edited = fair.estimator_
            record(edited, {**about, "rule": rule, **gaps, **judged(edited, *given)})
    return found


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
        memory_limit=KEPT_BYTES["cpu"],
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


def tried(model: Any, read: Callable[[list[str]], torch.Tensor], word: str) -> dict[str, float]:
    """Return the shares of sentences called toxic: those that took part, and those kept apart."""

    def probabilities(texts: list[str]) -> Any:
        return torch.sigmoid(run_all(model, read(texts))).double().numpy()

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
    parts, base = comments(folder), plain(folder, head, seed)
    how = {"search": Grid(points=20), "temperature": 3.0}
    fair = fitted(base, ["demographic_parity"], parts, identity, how, all_groups=False)
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
