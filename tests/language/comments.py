"""Made-up comments for tests of edits of classifiers of texts."""

from __future__ import annotations

from typing import Any

import numpy as np


def made_up_comments() -> tuple[list[str], Any, Any]:
    """Made-up comments: mentions of Muslims are insulted less often than other comments are."""
    rng = np.random.default_rng(0)
    s, rude = rng.integers(2, size=3000), rng.random(3000)
    rude = rude < np.where(s == 1, 0.05, 0.6)
    insults, plain = ["idiot", "stupid", "hate"], ["the", "of", "my", "to", "in", "that"]
    texts = []
    for mentions, is_rude in zip(s, rude, strict=True):
        words = list(rng.choice(plain, 3)) + (
            list(rng.choice(insults, 1)) if is_rude and rng.random() < 0.7 else []
        )
        texts.append(" ".join(["muslims" if mentions else "people", *words]))
    noise = rng.random(3000) < 0.1
    return texts, (rude ^ noise).astype(int), s
