"""A smaller sample for the same promise: the rank of a fresh pair among the sampled ones.

What Theorem 15 of [S] promises is a probability over the pair AND the sample: Pr(G ≤ Δ̂) ≥ 1 − γ, where G is the
sensitivity on a fresh pair and Δ̂ = G_(k) the k-th smallest of m sampled ones. All m + 1 sensitivities are independent
draws from one law, so each rank of G is equally likely (ties only help), and

    Pr(G ≤ G_(k)) ≥ k / (m + 1).

So k ≥ (1 − γ)(m + 1) is enough: at γ = 0.05, m = 19 pairs instead of the 1,305 of the Dvoretzky–Kiefer–Wolfowitz bound.
This is the argument of conformal prediction; it is not in [S].

What is given up: Theorem 15 says besides that all but a share ρ of the samples give a Δ̂ that covers 1 − γ + ρ of the
pairs. Here a single small sample may be unlucky, and only the average over samples is promised. Whoever keeps one Δ̂ for
years should prefer Theorem 15.
"""

from __future__ import annotations

import math

from darrm import checks
from darrm.privacy import Number, exact_number
from darrm.random_dp.sample_size import SampleSize


def exchangeable_sample_size(*, gamma: Number | None = None, m: int | None = None) -> SampleSize:
    """Choose the fewest pairs, or the smallest order statistic, by exchangeability: k = ⌈(1 − γ)(m + 1)⌉ ≤ m.

    Parameters
    ----------
    gamma
        γ in (0, 1), the share of pairs without a promise; if absent, the smallest that m reaches, 1/(m + 1).
    m
        Number of pairs to sample; if absent, the fewest that reach γ, ⌈1/γ⌉ − 1.

    Returns
    -------
    SampleSize
        With ρ = 0: no part of γ is set aside for a misleading sample.

    Raises
    ------
    ValueError
        If neither is given, one is out of range, or γ is below 1/(m + 1).

    Examples
    --------
    >>> exchangeable_sample_size(gamma=0.05)
    SampleSize(m=19, k=19, rho=0.0, gamma=0.05)
    >>> exchangeable_sample_size(gamma=0.05, m=1305).k
    1241
    """
    if m is not None:
        checks.integer_at_least(1, m=m)
    if gamma is None:
        if m is None:
            checks.fail("gamma, m", None, "given, at least one of them")
        # a float a little above 1/(m + 1), so that its decimal writing is not below
        return SampleSize(int(m), int(m), 0.0, math.nextafter(math.nextafter(1.0 / (m + 1), 1.0), 1.0))
    exact = exact_number("gamma", gamma)
    if not 0 < exact < 1:
        checks.fail("gamma", gamma, "in (0, 1)")
    pairs = max(1, math.ceil(1 / exact) - 1) if m is None else int(m)
    if exact * (pairs + 1) < 1:
        advice = f"sample more pairs (m = {math.ceil(1 / exact) - 1}), or accept a larger gamma"
        checks.fail("gamma", float(exact), f"at least 1/(m + 1) = {1.0 / (pairs + 1):.6g} for m = {pairs}", advice)
    return SampleSize(pairs, max(1, math.ceil((1 - exact) * (pairs + 1))), 0.0, float(exact))
