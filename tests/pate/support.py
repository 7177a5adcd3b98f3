"""Slow, obviously correct versions of the PATE modules, and votes to analyze."""

import functools
import math
import warnings
from typing import Any

import mpmath
import numpy as np
from numpy.typing import ArrayLike

from darrm.pate.analysis import Analysis, PateAggregator, analyze
from darrm.votes import Votes
from tests.noisy_max import oracles


def draw_votes(queries: int, classes: int, seed: int) -> np.ndarray:
    """Draw the counts of 250 voters who mostly agree: (Q, C)."""
    rng = np.random.default_rng(seed)
    shares = rng.beta(6.0, 1.2, size=queries)
    return np.array([rng.multinomial(250, [s, *[(1 - s) / (classes - 1)] * (classes - 1)]) for s in shares])


def analyze_quietly(counts: ArrayLike, aggregator: PateAggregator, delta: float = 1e-5, **options: Any) -> Analysis:
    """Analyze (Q, C) counts without the warning that the figure is private."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return analyze(Votes.from_counts(counts), aggregator, delta, **options)


def count_digits(log_q: float) -> int:
    """Compute the decimal digits with which eighty digits of q survive in 1 + q."""
    return 80 + math.ceil(-log_q / math.log(10.0))


@functools.cache
def theorem_6(log_q: float, sigma: float, order: float) -> mpmath.mpf:
    """[P, Theorem 6] letter by letter, with Propositions 8 and 10."""
    with mpmath.workdps(count_digits(log_q)):
        log_q, sigma, order = mpmath.mpf(log_q), mpmath.mpf(sigma), mpmath.mpf(order)
        independent = order / sigma**2
        q = mpmath.exp(log_q)
        mu_2 = sigma * mpmath.sqrt(mpmath.log(1 / q))
        mu_1 = mu_2 + 1
        if q > 0.5 or mu_1 < order or mu_2 <= 1:
            return independent
        epsilon_1, epsilon_2 = mu_1 / sigma**2, mu_2 / sigma**2
        if q > mpmath.exp((mu_2 - 1) * epsilon_2) / (mu_1 / (mu_1 - 1) * mu_2 / (mu_2 - 1)) ** mu_2:
            return independent
        a = (1 - q) / (1 - (q * mpmath.exp(epsilon_2)) ** ((mu_2 - 1) / mu_2))
        b = mpmath.exp(epsilon_1) / q ** (1 / (mu_1 - 1))
        bound = mpmath.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)
        return min(bound, independent)


@functools.cache
def lnmax_moments(log_q: float, gamma: float, order: float) -> mpmath.mpf:
    """[P17, Theorems 2 and 3] letter by letter, with moment l = order − 1 and the pure bound 2γ."""
    with mpmath.workdps(count_digits(log_q)):
        gamma, order = mpmath.mpf(gamma), mpmath.mpf(order)
        q, moment = mpmath.exp(mpmath.mpf(log_q)), order - 1
        best = min(2 * gamma**2 * moment * (moment + 1) / moment, 2 * gamma)
        if q < (mpmath.exp(2 * gamma) - 1) / (mpmath.exp(4 * gamma) - 1):
            ratio = (1 - q) / (1 - mpmath.exp(2 * gamma) * q)
            best = min(best, mpmath.log((1 - q) * ratio**moment + q * mpmath.exp(2 * gamma * moment)) / moment)
        return best


def list_histograms(voters: int, classes: int) -> np.ndarray:
    """List all vote counts of a number of voters."""
    return np.array(oracles.histograms(voters, classes))


def compute_distances(rows: np.ndarray) -> np.ndarray:
    """Count the votes that must change between any two rows."""
    return np.clip(rows[:, np.newaxis] - rows[np.newaxis], 0, None).sum(axis=2)
