"""Tails and quantiles of the normal, t and chi-squared distributions.

They are those of ``scipy.stats`` to the bit, without its checks of arguments, which take longer
than the work itself: an audit asks for hundreds of them.
"""

from __future__ import annotations

from typing import Any

from scipy.special import chdtri, ndtr, ndtri, stdtrit


def normal_above(z: Any) -> Any:
    """The chance of a standard normal above ``z``."""
    return ndtr(-z)


def normal_quantile(tail: Any) -> Any:
    """The value that a standard normal exceeds with chance ``tail``."""
    return -ndtri(tail)


def t_quantile(tail: Any, freedom: Any) -> Any:
    """The value that Student's t with so many degrees of freedom exceeds with chance ``tail``."""
    return -stdtrit(freedom, tail)


def chi_squared_quantile(tail: Any, freedom: Any) -> Any:
    """The value that chi-squared with so many degrees of freedom exceeds with chance ``tail``."""
    return chdtri(freedom, tail)
