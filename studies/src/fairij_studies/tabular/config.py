"""What the study runs: the data, the seeds, and the effort of each method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fairij.datasets import Splits

# Settings of Fair-IJ were chosen on seeds 0 to 19, not on these.
REPORTED_SEEDS = tuple(range(20, 30))
LATER = (
    "A first run of these seeds showed where the sweeps ended. Then every method that trains was "
    "given the same number of further strengths."
)


@dataclass(frozen=True)
class Effort:
    """How much work to do: the paper's training, or a short form of it.

    Parameters
    ----------
    epochs : int
        Epochs of the base model, of the baselines that train, and of real refits.
    tuning_epochs : int
        Epochs of fine-tuning an edited model.
    rows : int or None
        Largest number of rows in each part. None keeps all rows.
    settings : int or None
        Number of settings of each method's sweep, with both ends. None runs all of them.
    dropped : tuple of int
        Numbers of rows to leave out in real refits.
    """

    epochs: int
    tuning_epochs: int
    rows: int | None
    settings: int | None
    dropped: tuple[int, ...]

    def thinned(self, sweep: tuple[float, ...]) -> tuple[float, ...]:
        """Return a sweep, shortened to `settings` values with both ends."""
        if self.settings is None or len(sweep) <= self.settings:
            return sweep
        last = len(sweep) - 1
        places = sorted({round(i * last / (self.settings - 1)) for i in range(self.settings)})
        return tuple(sweep[place] for place in places)


WHOLE = Effort(100, 5, None, None, (50, 100, 200, 500, 1000, 1500, 2000))
QUICK = Effort(4, 1, 1500, 2, (50, 200))


class Rows(Protocol):
    """A source of rows. Equal sources must compare equal, so that workers load them once."""

    def splits(self, seed: int) -> Splits: ...

    def source(self) -> str:
        """Return the names of the files with the first digits of their SHA-256."""
        ...


@dataclass(frozen=True)
class Table:
    """One data set of the study.

    Parameters
    ----------
    title : str
        Its name in records and texts.
    rows : Rows
        The source of its rows.
    cache : str
        The folder of the base models.
    """

    title: str
    rows: Rows
    cache: str


@dataclass(frozen=True)
class Story:
    """What the README says about a data set in addition to the records.

    Parameters
    ----------
    name : str
        The name of the study.
    heading : str
        The heading of its page.
    about : mapping of str to str
        A description of the data, by the title in the records.
    paper_gaps : tuple of float
        The paper's demographic parity gap before and after the edit.
    settings : str
        How the settings were fixed.
    arguments : mapping of str to str, default={}
        Arguments of the command that repeats the study, by the title in the records.
    """

    name: str
    heading: str
    about: Mapping[str, str]
    paper_gaps: tuple[float, float]
    settings: str
    arguments: Mapping[str, str] = field(default_factory=dict)
