"""Quantiles are those of scipy.stats, to the bit."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2, norm, t

from fairij.fairness import quantiles

TAILS = np.array([0.0, 1e-300, 1e-12, 1e-3, 0.025, 0.3, 0.5, 0.9, 1.0])


def test_they_are_those_of_scipy() -> None:
    z = np.array([-40.0, -1.0, 0.0, 1.96, 40.0])
    np.testing.assert_array_equal(quantiles.normal_above(z), norm.sf(z))
    np.testing.assert_array_equal(quantiles.normal_quantile(TAILS), norm.isf(TAILS))
    tails, freedom = TAILS[1:-1], np.array([[1.0], [2.5], [9.0], [1e6]])
    np.testing.assert_array_equal(quantiles.t_quantile(tails, freedom), t.isf(tails, freedom))
    found = quantiles.chi_squared_quantile(tails, freedom)
    np.testing.assert_array_equal(found, chi2.isf(tails, freedom))
