"""Green, amber and red: what a check is, and the worst of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["green", "amber", "red"]
ORDER: tuple[Verdict, ...] = ("green", "amber", "red")
MEANING = {"green": "sound", "amber": "read with care", "red": "serious concern"}


@dataclass(frozen=True)
class Check:
    """One question, its verdict, and the reason in words."""

    name: str
    verdict: Verdict
    text: str
    reason: str = ""  # the verdict in one sentence; empty: the whole text

    @property
    def meaning(self) -> str:
        return MEANING[self.verdict]

    def ending(self, green: str, amber: str, red: str) -> Check:
        """The check with a last sentence that depends on the verdict."""
        last = (green, amber, red)[ORDER.index(self.verdict)]
        return Check(self.name, self.verdict, f"{self.text} {last}", last)


def worst(found: list[Check]) -> Verdict:
    return max((check.verdict for check in found), key=ORDER.index)


def deciding(found: list[Check]) -> list[Check]:
    """The checks that gave the worst verdict; none if all is green."""
    verdict = worst(found)
    return [check for check in found if check.verdict == verdict != "green"]


def noted(found: list[Check], said: list[str]) -> list[Check]:
    """All checks that are not green, the worst first, without those that were ``said`` already."""
    bad = [check for check in found if check.verdict != "green"]
    new = [check for check in bad if not any(text in check.text for text in said)]
    return sorted(new, key=lambda check: -ORDER.index(check.verdict))


def reasons(found: list[Check]) -> str:
    """Why the worst verdict was given; empty if all is green."""
    return " ".join(f"{check.name} {check.reason or check.text}" for check in deciding(found))


def level_of(value: float, amber: float, red: float) -> Verdict:
    return "green" if value <= amber else "amber" if value <= red else "red"
