"""The methods that are compared, and their sweeps. A method is one line of a table.

All methods that train the network have the same number of strengths. Strength 0 is the base model.
Sweeps were chosen by the gaps that they reach on validation rows of seed 3. Where the first
strengths did not reach small gaps, every method was given the same number of further ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairij import Path
from fairij.baselines import BASELINES, base
from fairij_studies.tabular.trial import CONSTRAINTS

Sweeps = dict[str, tuple[float, ...]]


def _every(*sweep: float) -> Sweeps:
    return dict.fromkeys(CONSTRAINTS, sweep)


TOLERANCES = _every(*base.TOLERANCES.sweep)


@dataclass(frozen=True)
class Compared:
    """A baseline as it is run here.

    Parameters
    ----------
    label : str
        Its name in records and figures.
    baseline : str
        Its name in `fairij.baselines.BASELINES`.
    sweeps : dict of str to tuple of float, default={}
        Values of its trade-off parameter by constraint. Empty if it has no trade-off.
    further : dict of str to tuple of float, default={}
        More values, which are units of their own.
    further_on_edit : dict of str to tuple of float, default={}
        More values for its form on the edited model.
    trains : bool, default=False
        Whether it trains the network for as many epochs as the base model.
    on_edit : str, default=None
        The name of its form on the edited model, if the study runs that form.
    frozen_features : bool, default=False
        Whether it learns a logistic regression on the base model's hidden layer.
    """

    label: str
    baseline: str
    sweeps: Sweeps = field(default_factory=dict)
    further: Sweeps = field(default_factory=dict)
    further_on_edit: Sweeps = field(default_factory=dict)
    trains: bool = False
    on_edit: str | None = None
    frozen_features: bool = False

    @property
    def face(self) -> Any:
        return BASELINES[self.baseline]

    @property
    def parameter(self) -> str | None:
        return None if self.face.trade_off is None else str(self.face.trade_off.parameter)


STRENGTHS: dict[str, Sweeps] = {
    "gapreg": {
        "demographic_parity": (0.1, 0.2, 0.35, 0.5),
        "equalized_odds": (0.2, 0.5, 1.0, 2.0),
        "equal_opportunity": (0.2, 0.5, 1.0, 2.0),
    },
    "fairmixup": {
        "demographic_parity": (0.1, 0.25, 0.5, 10.0),
        "equalized_odds": (0.25, 0.5, 1.0, 2.0),
        "equal_opportunity": (0.25, 0.5, 1.0, 2.0),
    },
    "hgr": {
        "demographic_parity": (0.5, 1.5, 5.0, 15.0),
        "equalized_odds": (0.5, 1.0, 2.0, 5.0),
        "equal_opportunity": (0.5, 1.0, 2.0, 5.0),
    },
}
FURTHER: dict[str, Sweeps] = {
    "gapreg": {
        "demographic_parity": (0.75, 1.5),
        "equalized_odds": (5.0, 10.0),
        "equal_opportunity": (5.0, 10.0),
    },
    "fairmixup": {
        "demographic_parity": (0.75, 1.5),
        "equalized_odds": (5.0, 10.0),
        "equal_opportunity": (5.0, 10.0),
    },
    "hgr": {
        "demographic_parity": (8.0, 30.0),
        "equalized_odds": (10.0, 25.0),
        "equal_opportunity": (10.0, 25.0),
    },
}
FURTHER_ON_EDIT: dict[str, Sweeps] = {
    "gapreg": {
        "demographic_parity": (2.0, 6.0),
        "equalized_odds": (6.0, 20.0),
        "equal_opportunity": (6.0, 20.0),
    },
    "fairmixup": {
        "demographic_parity": (2.0, 30.0),
        "equalized_odds": (10.0, 30.0),
        "equal_opportunity": (10.0, 30.0),
    },
    "hgr": {
        "demographic_parity": (40.0, 100.0),
        "equalized_odds": (15.0, 40.0),
        "equal_opportunity": (15.0, 40.0),
    },
}


def _training(label: str, baseline: str) -> Compared:
    return Compared(
        label,
        baseline,
        STRENGTHS[baseline],
        FURTHER[baseline],
        FURTHER_ON_EDIT[baseline],
        trains=True,
        on_edit=f"{label}-IJ",
    )


COMPARED: dict[str, Compared] = {
    method.label: method
    for method in (
        _training("GapReg", "gapreg"),
        _training("FairMixup", "fairmixup"),
        _training("HGR", "hgr"),
        Compared(
            "ExponentiatedGradient",
            "exponentiated_gradient",
            _every(0.5, 0.1, 0.03, 0.01, 0.001),
            frozen_features=True,
        ),
        Compared("FST", "fst", TOLERANCES, on_edit="FST-IJ"),
        Compared("LinearPost", "linear_post", TOLERANCES),
        Compared("HPS", "hps", on_edit="HPS-IJ"),
        Compared("RelaxedThresholds", "relaxed_thresholds", TOLERANCES),
    )
}


@dataclass(frozen=True)
class Edited:
    """A form of Fair-IJ: the settings of `FairIJ` for each constraint of the study.

    Parameters
    ----------
    label : str
        Its name in records and figures.
    surrogates : dict of str to str
        The constraint that `FairIJ` is given, by the constraint that is measured.
    settings : dict of str to object, default={}
        Other settings of `FairIJ`.
    keeps_moves : bool, default=False
        Whether the search keeps the parameter change of every candidate.
    """

    label: str
    surrogates: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    keeps_moves: bool = False


PLAIN = {name: name for name in CONSTRAINTS}
BALANCED = {"equalized_odds": "equalized_odds_balanced"}
FAIR_IJ = "Fair-IJ"
EDITED: dict[str, Edited] = {
    form.label: form
    for form in (
        Edited(FAIR_IJ, PLAIN),
        Edited("Fair-IJ balanced", BALANCED),
        Edited("Fair-IJ printed", PLAIN, {"solver": "printed_woodfisher", "dampings": (1e-2,)}),
        Edited(
            "Fair-IJ reweight",
            PLAIN | BALANCED,
            {"search": "reweight"},
            keeps_moves=True,
        ),
        Edited("Fair-IJ path", PLAIN, {"search": "path"}, keeps_moves=True),
        Edited("Fair-IJ path balanced", BALANCED, {"search": "path"}, keeps_moves=True),
        Edited(
            "Fair-IJ cheapest first",
            BALANCED,
            {"search": Path(cheapest_first=True)},
            keeps_moves=True,
        ),
    )
}
