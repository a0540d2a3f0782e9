"""Probabilities from counts: life tables with censoring, smoothing, and intervals of Wilson."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cer_gpu.arrays import Int64

Floats = npt.NDArray[np.float64]

NORMAL_95, NORMAL_99 = 1.959963984540054, 2.5758293035489004
"""Quantiles of the normal distribution for intervals of 95% and 99%."""


def ended_within(seen: Int64, cut: Int64) -> Floats:
    """Return the fraction of cases that ended within each edge, by a life table (Kaplan-Meier over bins).

    A case that was cut within a bin counts half in it, as in Cutler and Ederer's life table: on average it was watched
    for half of the bin.

    Parameters
    ----------
    seen, cut : int64, shape (rows, bins + 1)

    Returns
    -------
    float64, shape (rows, bins)
        0 where no case remains.
    """
    at_risk = np.flip(np.cumsum(np.flip(seen + cut, 1), 1), 1)[:, :-1] - cut[:, :-1] / 2
    hazard = np.divide(seen[:, :-1], at_risk, out=np.zeros(at_risk.shape), where=at_risk > 0)
    ended: Floats = 1 - np.cumprod(1 - np.minimum(hazard, 1), axis=1)
    return ended


def observed_within(seen: Int64, cut: Int64) -> Int64:
    """Return the number of cases whose outcome within each edge is known; shape (rows, bins)."""
    n_observed: Int64 = (seen + cut).sum(1, keepdims=True) - np.cumsum(cut, 1)[:, :-1]
    return n_observed


def smoothed(own: Floats, n_observed: Any, parent: Floats, weight: float) -> Floats:
    """Return fractions smoothed towards a parent's, which count as `weight` cases; they never fall between edges."""
    drawn = (own * n_observed + weight * parent) / (n_observed + weight)
    rising: Floats = np.maximum.accumulate(drawn, axis=-1)
    return rising


def wilson(fraction: Any, n: Any, quantile: float = NORMAL_95) -> tuple[Floats, Floats]:
    """Return the bounds of Wilson's interval for a fraction of n cases; 0 and 1 where there is no case."""
    fraction, n = np.asarray(fraction, np.float64), np.asarray(n, np.float64)
    spread = quantile * quantile / np.maximum(n, 1e-300)
    centre = (fraction + spread / 2) / (1 + spread)
    with np.errstate(over="ignore", invalid="ignore"):
        half = np.sqrt(fraction * (1 - fraction) * spread + spread * spread / 4) / (1 + spread)
    some = n > 0
    low = np.where(some, np.maximum(centre - half, 0.0), 0.0)
    return low, np.where(some, np.minimum(centre + half, 1.0), 1.0)


def divergence(fraction: Floats, parent: Floats, n_observed: Any) -> Floats:
    """Return twice the logarithm of the likelihood ratio of fractions against those of a parent."""
    with np.errstate(divide="ignore", invalid="ignore"):
        won = np.where(fraction > 0, fraction * np.log(fraction / parent), 0.0)
        lost = np.where(fraction < 1, (1 - fraction) * np.log((1 - fraction) / (1 - parent)), 0.0)
    ratio: Floats = 2 * n_observed * (won + lost)
    return ratio


def quartiles(ended: Floats, edges: Int64) -> Floats:
    """Return the waiting times after which a quarter, half and three quarters have ended; NaN where fewer do.

    Between two edges, ends are assumed to be spread evenly.

    Parameters
    ----------
    ended : float64, shape (rows, bins)
        Rising fractions.
    edges : int64, shape (bins,)
    """
    values = np.full((len(ended), 3), np.nan)
    at = np.concatenate([[0.0], edges.astype(np.float64)])
    for row, fractions in enumerate(ended):
        level = np.concatenate([[0.0], fractions])
        for i, part in enumerate((0.25, 0.5, 0.75)):
            if level[-1] >= part:
                k = int(np.searchsorted(level, part))
                rise = level[k] - level[k - 1]
                values[row, i] = at[k - 1] + (at[k] - at[k - 1]) * (part - level[k - 1]) / rise
    return values
