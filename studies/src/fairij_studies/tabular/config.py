"""What is run: the data, the seeds, and how much work a method may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fairij.datasets import Splits

# Settings of Fair-IJ were chosen on seeds 0 to 19; these played no part in it.
REPORTED_SEEDS = tuple(range(20, 30))
LATER = (
    "Further strengths, as many for each method that trains, were added when a first run of these "
    "seeds had shown where the sweeps ended."
)


@dataclass(frozen=True)
class Effort:
    """How much of everything: the paper's training, or a short form of it.

    Parameters
    ----------
    epochs : of the base model, of the baselines that train, and of real refits
    tuning_epochs : of fine-tuning an edited model
    rows : at most so many of each part; None for all
    settings : of each method's sweep, from one end to the other; None for all of them
    dropped : the numbers of rows left out in real refits
    """

    epochs: int
    tuning_epochs: int
    rows: int | None
    settings: int | None
    dropped: tuple[int, ...]

    def thinned(self, sweep: tuple[float, ...]) -> tuple[float, ...]:
        """Both ends of a sweep where it is to be short."""
        if self.settings is None or len(sweep) <= self.settings:
            return sweep
        last = len(sweep) - 1
        places = sorted({round(i * last / (self.settings - 1)) for i in range(self.settings)})
        return tuple(sweep[place] for place in places)


WHOLE = Effort(100, 5, None, None, (50, 100, 200, 500, 1000, 1500, 2000))
QUICK = Effort(4, 1, 1500, 2, (50, 200))


class Rows(Protocol):
    """Where the rows come from; compared by value, so that workers can keep what they loaded."""

    def splits(self, seed: int) -> Splits: ...

    def source(self) -> str:
        """The files that are read, each with the beginning of its SHA-256."""
        ...


@dataclass(frozen=True)
class Table:
    """One data set of the study.

    Parameters
    ----------
    title : what it is called in records and texts
    rows : where its rows come from
    cache : folder of the base models
    """

    title: str
    rows: Rows
    cache: str


@dataclass(frozen=True)
class Story:
    """What the README says of a data set beside what is in the records.

    Parameters
    ----------
    name : of the study
    heading : of its page
    about : of the data, by the title that the records carry
    paper_gaps : the demographic parity gap in the paper, before and after
    settings : how they were fixed
    arguments : of the command that makes it again, by the title that the records carry
    """

    name: str
    heading: str
    about: Mapping[str, str]
    paper_gaps: tuple[float, float]
    settings: str
    arguments: Mapping[str, str] = field(default_factory=dict)
