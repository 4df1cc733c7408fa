"""Two moons: how well approximate inverses reproduce exact influence (Appendix C)."""

from __future__ import annotations

import os

from fairij_studies.driver import Study
from fairij_studies.two_moons.comparison import study_units
from fairij_studies.two_moons.page import draw


def make_study(**data_options: str | os.PathLike[str] | None) -> Study:
    """Return the study. It generates its data, so it ignores options that name data files."""
    return Study("two-moons", study_units, draw)
