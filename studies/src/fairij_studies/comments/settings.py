"""Settings of an edit for equalized odds, judged where it can be told: on training comments.

The group of training comments takes no part in an edit, unless its name says so. So these comments
stand in for test comments: they mention the group twice as often, and settings are chosen by them,
on seeds that the tables do not report.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from fairij import Constrained, Grid
from fairij.language import identity_constraint
from fairij.language.batches import run_all
from fairij_studies.comments.fear import TAKEN, WORD, fitted, tried
from fairij_studies.comments.fear_models import parts_for, plain, reader
from fairij_studies.comments.heads import judged
from fairij_studies.comments.measured import measured
from fairij_studies.comments.t5 import device_name

SETTINGS = "settings for EO"
CONSTRAINT = "equalized_odds"
CHOSEN_ON = range(11, 14)  # seeds on which settings are chosen


@dataclass(frozen=True)
class Setting:
    """Arguments of `FairIJ`, and what takes part in the edit."""

    arguments: dict[str, Any] = field(default_factory=dict)
    constraint: str = CONSTRAINT
    sentences: bool = False
    groups: bool = False  # of training comments


def constrained(**how: Any) -> dict[str, Any]:
    return {"search": Constrained(**how)}


CROSS = {"validation_use": "cross_fit"}
DROPPED = {"search": Grid(points=20), "temperature": 3.0}
TRIED: dict[str, Setting] = {
    "constrained": Setting(constrained()),
    "constrained, cross-fitted": Setting({**constrained(), **CROSS}),
    "chances": Setting(constrained(chances=True)),
    "chances, cross-fitted": Setting({**constrained(chances=True), **CROSS}),
    "chances, validation loss": Setting(constrained(chances=True, loss_on="validation")),
    "damping 0.1": Setting(constrained(damping=1e-1)),
    "damping 1": Setting(constrained(damping=1.0)),
    "chances, damping 0.1": Setting(constrained(chances=True, damping=1e-1)),
    "validation loss": Setting(constrained(loss_on="validation")),
    "sentences": Setting(constrained(), sentences=True),
    "chances, sentences": Setting(constrained(chances=True), sentences=True),
    "rows dropped, both gaps": Setting(DROPPED, constraint="equalized_odds_balanced"),
    "rows dropped, both gaps, cross-fitted": Setting(
        {**DROPPED, **CROSS}, constraint="equalized_odds_balanced"
    ),
    "groups of training comments": Setting(constrained(), groups=True),
}


# on a network of several layers an edit takes longer, so fewer are tried
TRIED_ON_NC = (
    *("constrained", "chances", "damping 0.1", "damping 1", "sentences"),
    *("rows dropped, both gaps", "rows dropped, both gaps, cross-fitted"),
    "groups of training comments",
)


def settings_unit(
    *, folder: str, head: str, seed: int, identity: str, names: tuple[str, ...] = tuple(TRIED)
) -> list[dict[str, Any]]:
    """Edit one model by each setting."""
    parts, base = parts_for(folder, head, identity), plain(folder, head, seed, identity)
    read, word = reader(folder, head), WORD[identity]
    mentioned, y = parts["train"].mentions[identity].to_numpy(), parts["train"].y
    found = []

    def record(model: Any, about: dict[str, Any]) -> None:
        z = run_all(model, base.rows["train"]).cpu().numpy()
        apart = measured(z, y, mentioned, prefix="training_")
        figures = {**judged(model, parts, base.rows, identity), **tried(model, read, word)}
        where = {"rows": len(y), "device": device_name(), "constraint": CONSTRAINT}
        found.append({**where, **about, **apart, **figures})

    record(base.trained.model, {"method": "erm", "seconds": base.seconds})
    for name in names:
        setting, start = TRIED[name], time.perf_counter()
        asked: list[Any] = [setting.constraint]
        if setting.sentences:
            asked.append(identity_constraint(word, prepare=read, templates=TAKEN))
        fair = fitted(base, asked, parts, identity, setting.arguments, all_groups=setting.groups)
        chosen = fair.candidates_.iloc[fair.chosen_]
        about = {"method": "fair-ij", "rule": name, "seconds": time.perf_counter() - start}
        gaps = {"validation_gap": float(chosen["gap"]), "scale": float(chosen["scale"])}
        record(fair.estimator_, {**about, **gaps})
    return found
