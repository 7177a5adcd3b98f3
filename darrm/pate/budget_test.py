"""A private test that a run is within a budget: the largest chance of passing such that test and run are private.

A run R is to be released only if its votes make it cheap. A public function of the votes bounds its cost, on the scale
of votes: a *level* v in 0 … V, which the data of one person change by at most 1, with costs C_0 ≤ … ≤ C_V such that

    D_α(R(D) ‖ R(D′)) ≤ C_v and D_α(R(D′) ‖ R(D)) ≤ C_v    for every neighbor D′ of a D of level v.

The test is a coin: with chance p_v the run is released, otherwise nothing, or another run P that is private for any
votes. Both outcomes are distinguishable, and nothing further is released. Let δ_v(x) and δ_P(x) bound the
hockey-stick divergences at e^x of R at cost C_v, and of P; of nothing δ_P(x) = max(0, 1 − e^x).

**Theorem.** The whole is (ε, δ)-private if for all levels v, w that differ by at most 1, with u = min(v, w),

    p_v·δ_u(ε + log(p_w/p_v)) + (1 − p_v)·δ_P(ε + log((1 − p_w)/(1 − p_v))) ≤ δ.

*Proof.* Let D and D′ be neighbors of levels v and w. Passing and failing are disjoint events, so the hockey-stick
divergence is the sum of sup_S p_v·R(S) − e^ε·p_w·R′(S) = p_v·H(R ‖ R′) at e^ε·p_w/p_v and of the same for P and 1 − p.
One of D and D′ has level u, and C_u bounds both directions of the pair. ∎ (`tests/pate/test_tested.py`)

Conversely, if R attains δ_u at some pair of such levels and P attains δ_P, the condition is necessary, as the events
are disjoint. All votes must be fixed before the coin: no vote may depend on the release.

This is generalized propose-test-release [RZW23] without noise and margin. There the level gets Gaussian noise, which
is paid as if it were released, and a margin for a neighbor that fails; a coin reveals one bit. From the top level
down, each chance is the largest that the one above admits, so chances grow by e^{ε − cost} or more for each vote: for
small p, δ_u only has to be δ/p.

δ_u(x) = min over λ ≤ α of e^{(λ − 1)(C_u − x)}·(1 − 1/λ)^{λ − 1}/λ [CKS20, Proposition 12], for every real x, since D_λ
grows with λ. Chances are floats, hence exact fractions, and the condition is checked for these with room for rounding.
"""

import math

import numpy as np
from numpy.typing import NDArray

from darrm.loss.renyi import RenyiCurve
from darrm.numerics import Array
from darrm.privacy import PrivacyParams

_ORDERS = 48  # whose least bound is used
_LEAST_PART = 0.02  # of α − 1: the smallest order
_ROOM = 1e-9  # relative, of δ
_CANDIDATES, _ROUNDS = 64, 3  # chances in one round of a search, and the number of rounds
_LARGEST_LOGIT = 40.0


class BudgetTest:
    """The condition of the theorem for one order α, one budget, and the curve of the other run, if any."""

    def __init__(self, order: float, budget: PrivacyParams, otherwise: RenyiCurve | None = None) -> None:
        self.epsilon, self.delta = budget.epsilon, budget.delta * (1.0 - _ROOM)
        orders = 1.0 + (order - 1.0) * np.geomspace(_LEAST_PART, 1.0, _ORDERS)
        self._run = orders - 1.0, _constants(orders)
        self._otherwise = None
        if otherwise is not None:
            less = otherwise.orders - 1.0
            self._otherwise = less, less * otherwise.values + _constants(otherwise.orders)

    def holds(self, before: Array | float, after: Array | float, cost: float) -> NDArray[np.bool_]:
        """Return whether the condition holds for chances of two levels, elementwise, at the cost of the lower level."""
        p, q = np.broadcast_arrays(np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64))
        less, constants = self._run
        with np.errstate(divide="ignore", invalid="ignore"):
            passes = np.where(p > 0.0, self.epsilon + np.log(q) - np.log(p), np.inf)
            fails = np.where(p < 1.0, self.epsilon + np.log1p(-q) - np.log1p(-p), np.inf)
        total = p * _least(less, less * cost + constants, passes)
        if self._otherwise is None:
            total += (1.0 - p) * -np.expm1(np.minimum(fails, 0.0))
        else:
            total += (1.0 - p) * _least(*self._otherwise, fails)
        return np.asarray(total <= self.delta)

    def all_hold(self, chances: Array, costs: Array) -> bool:
        """Check the condition for all levels, in both directions: the proof of a stored test."""
        rising = np.all(np.diff(costs) >= 0.0) and costs.size == chances.size
        levels = zip(chances, np.append(chances[1:], chances[-1:]), costs, strict=True)
        return bool(rising) and all(self._holds_for_pair(np.array([p]), q, cost)[0] for p, q, cost in levels)

    def chances(self, costs: Array) -> Array:
        """Find the largest chances of the levels, the last first: (V + 1,) costs → (V + 1,) chances."""
        chances = np.zeros(costs.size)
        above = self._largest(0.0, float(costs[-1]), top=True)
        for level in range(costs.size - 1, -1, -1):
            above = self._largest(above, float(costs[level]))
            chances[level] = above
            if above == 1.0:
                chances[:level] = 1.0
                break
        return chances

    def _holds_for_pair(self, chances: Array, above: float, cost: float) -> NDArray[np.bool_]:
        return self.holds(chances, above, cost) & self.holds(above, chances, cost) & self.holds(chances, chances, cost)

    def _largest(self, above: float, cost: float, *, top: bool = False) -> float:
        low, high = _logit(above), _LARGEST_LOGIT
        best = above
        for _ in range(_ROUNDS):
            logits = np.linspace(low, high, _CANDIDATES)
            tried = np.append(1.0 / (1.0 + np.exp(-logits)), 1.0 if high == _LARGEST_LOGIT else [])
            fits = self.holds(tried, tried, cost) if top else self._holds_for_pair(tried, above, cost)
            if not fits.any():
                return best
            last = int(np.flatnonzero(fits)[-1])
            best = max(best, float(tried[last]))
            if last + 1 >= min(tried.size, _CANDIDATES):
                return best
            low, high = float(logits[last]), float(logits[last + 1])
        return best


def _logit(chance: float) -> float:
    if chance <= 0.0:
        return -_LARGEST_LOGIT
    return min(math.log(chance) - math.log1p(-chance), _LARGEST_LOGIT) if chance < 1.0 else _LARGEST_LOGIT


def _constants(orders: Array) -> Array:
    return np.asarray((orders - 1.0) * np.log1p(-1.0 / orders) - np.log(orders))


def _least(less: Array, constants: Array, x: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        logs = np.min(constants - less * x[..., None], axis=-1)
    return np.asarray(np.exp(np.minimum(np.nan_to_num(logs, nan=-np.inf), 0.0)))
