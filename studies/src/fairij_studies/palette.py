"""How methods look in the figures of all studies, and where their labels go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Okabe and Ito's colours, which colour-blind readers can tell apart; shapes repeat the information
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK, GREY = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#B8A800", "#0072B2", "#D55E00", "#CC79A7",
    "#777777",
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """A method's colour and the shape of its points. ``heavy`` marks forms of Fair-IJ."""

    colour: str
    shape: str
    heavy: bool = False


LOOKS = {
    "ERM": Look(BLACK, "cross"),
    "GapReg": Look(RED, "square"),
    "FairMixup": Look(GREEN, "triangle-up"),
    "HGR": Look(PINK, "diamond"),
    "ExponentiatedGradient": Look(ORANGE, "triangle-down"),
    "FST": Look(YELLOW, "triangle-right"),
    "LinearPost": Look(GREY, "triangle-left"),
    "HPS": Look(BLACK, "circle"),
    "RelaxedThresholds": Look(BLACK, "square"),
    "Fair-IJ": Look(BLUE, "circle", heavy=True),
    "Fair-IJ reweight": Look(GREEN, "cross", heavy=True),
    "Fair-IJ path": Look(SKY, "diamond", heavy=True),
    "Fair-IJ balanced": Look(ORANGE, "square", heavy=True),
    "Fair-IJ path balanced": Look(PINK, "triangle-up", heavy=True),
    "Fair-IJ both gaps": Look(PINK, "triangle-up", heavy=True),
    "Fair-IJ expected": Look(RED, "diamond", heavy=True),
    "Fair-IJ cheapest first": Look(SKY, "circle", heavy=True),
    "Fair-IJ printed": Look(RED, "triangle-down"),
}


def look_of(method: str) -> Look:
    """Return a method's look. Its form on the edited model looks like the plain form."""
    return LOOKS.get(method) or LOOKS.get(method.removesuffix("-IJ")) or Look(GREY, "circle")


def spread_out(places: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Move places so that any two are ``apart`` from each other, within two bounds."""
    if not places:
        return []
    order = sorted(range(len(places)), key=lambda i: places[i])
    apart = min(apart, (high - low) / max(len(places) - 1, 1))
    moved = [places[i] for i in order]
    for _ in range(50):  # neighbours that are too close move apart
        for i in range(len(moved) - 1):
            overlap = max(apart - (moved[i + 1] - moved[i]), 0)
            moved[i] -= overlap / 2
            moved[i + 1] += overlap / 2
    for i in range(len(moved)):  # then enforce distances and bounds, from both ends
        moved[i] = max(moved[i], moved[i - 1] + apart if i else low)
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], moved[i + 1] - apart if i + 1 < len(moved) else high)
    result = [0.0] * len(places)
    for i, place in zip(order, moved, strict=True):
        result[i] = place
    return result
