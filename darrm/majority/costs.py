"""The cost of one answer of a noise function: its privacy profile, and its worst Rényi divergence between neighbors.

**Profile.** Pr[output 1] = (1 + E[g(L)])/2, so with c = e^ε and the privacy cost f of [D, Lemma 3.4]

    δ(ε) = max over corners of Pr_p[1] − c·Pr_{p'}[1] = max(0, (1 − c + max f(p, p'; γ))/2).

Output 0 gives the same: g is odd about K/2 and the set of corners is symmetric.

**Divergence.** With P = Pr_p[output 1] and Q = Pr_{p'}[output 1], D_α(Bern(P) ‖ Bern(Q)) = log E/(α − 1) and

    E(P, Q) = P^α Q^{1−α} + (1 − P)^α (1 − Q)^{1−α}.

E is jointly convex, as a sum of perspectives of x^α. For α > 1 it grows in P and falls in Q as long as P ≥ Q.

**Theorem (row reduction).** For a γ that does not fall away from the tie, sup D_α over all neighbors is the largest D_α
over the rows of `darrm.majority.dominating`. *Proof.* An untouched voter has p_i = p'_i = v, and P and Q are affine in
v. The convex function E of v is largest at v = 0 or 1. If P < Q, exchange the answers: (1 − p, 1 − p') is a pair of
neighbors too, g odd about K/2 maps P to 1 − P, and D_α stays. So let P ≥ Q. For every touched voter's (p_i, p'_i) the
chain (Δ, 0) – (hi, lo) – (1, 1 − Δ) has a point with no smaller p_i and no larger p'_i. γ is monotone, so moving there
raises P, lowers Q, and raises D_α. On each segment of the chain (P, Q) is affine and P ≥ Q, so E is largest at an end.
∎ `tests/majority/test_costs.py` tries every multiset of all corners and random points between them, for every overlap.

**Convexity and repair.** (P, Q) is affine in γ, so {γ : D_α ≤ ρ} is convex. γ = 0 has D_α = 0, so E(s·γ) ≤ (1 − s) +
s·E(γ) for s in [0, 1]: scaling γ down never raises a divergence, and some scale meets any ρ > 0.

**Voters that differ.** The proof moves one voter at a time, so it holds with the rows of `darrm.majority.groups`. Only
rows on the front of large P and small Q matter. P and Q are known to within e, so E is taken at (P + e, Q − e). If Q −
e is not positive, the bound is ∞.

**Accuracy.** P and 1 − P are averaged separately, from h and 1 − h. Q and 1 − Q are 1 − P and P of the reflected row.
All are sums of positive numbers, so errors are relative: a step multiplies by (1 ± 3u)(1 ± 2u/lo), u = 2⁻⁵³, because 1
− hi is known to u, and the short binomials add 4u for each voter. The result is rounded up by the total.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import DEFAULT_ORDERS, RenyiCurve, log_renyi_sums
from darrm.loss.vote_counts import find_undominated
from darrm.majority.corners import enclose_exp
from darrm.majority.dominating import TAIL, DominatingFamily
from darrm.majority.full_set import FullSet
from darrm.majority.groups import GroupSet
from darrm.majority.kernels import moved_zeros
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.numerics.binomial import smooth
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.problem import Problem, Voters
from darrm.util import checks

Number = TypeVar("Number", np.float64, np.bool_)

_UNIT = 2.0**-53  # relative error of one rounding
_SIGNIFICANT_DIGITS = 10
_MIN_ACCURATE = 1e-290  # below it numbers lose digits
_PRUNING_MARGIN = 1e-6  # for rounding in the bound that rules rows out
_MAX_RELATIVE_ERROR = 1e-3  # with a larger relative error the bound is ∞
_ROWS_PER_BATCH = 300  # the first rows, computed for all orders at once; bounds rule out most others
_ROWS_PER_STACK = 2**18  # of several levels: they take 16 MB
_DEFAULT_POINTS = 65
_DELTA_UNITS = 10**12  # bounds of δ are rounded up to a multiple of 1e-12, so that machines agree on them


@dataclass(frozen=True, eq=False)
class Level:
    """The rows with one number j of voters at (hi, lo), arrays of shape (windows, places).

    P and 1 − P of a row are 1 − Q and Q of the row reflected through the center, see `reflect`.
    """

    j: int
    ones: Array  # P under p
    zeros: Array  # 1 − P


class RenyiRows:
    def __init__(self, voters: Voters) -> None:
        self.voters = voters
        self.family = DominatingFamily(voters)

    def levels(self, half: Array, *, stride: int = 1) -> Iterator[Level]:
        """Yield the rows for j = 0 … t voters at (hi, lo); ``half`` is a monotone γ at l = ⌊K/2⌋+1 … K.

        With ``stride`` only those for its multiples and for t, which prove nothing.
        """
        K = self.voters.K
        lies = 0.5 * (1.0 - half)
        zeros = np.full(K + 1, 0.5)
        zeros[K // 2 + 1 :] = lies
        zeros[: half.size] = 1.0 - lies[::-1]
        stack = np.stack([zeros[::-1], zeros])
        for j in range(self.voters.reached + 1):
            if j % stride == 0 or j == self.voters.reached:
                windows = np.stack([self.family.windows(level) for level in stack])
                P, not_P = moved_zeros(self.family.delta_weights, windows)
                yield Level(j, P, not_P)
            stack = smooth(stack, self.family.corners.hi)

    def find_possible(self, half: Array, level: Level) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether P, and whether 1 − P, are positive in real arithmetic: arrays of the level's shape."""
        unaffected_ones, place = np.indices(level.ones.shape)
        low, high = (
            unaffected_ones + place,
            unaffected_ones + place + level.j,
        )  # the least and the largest number of ones
        if not self.voters.each.is_private:
            low = high
        elif self.family.terms:
            high = unaffected_ones + self.voters.reached
        can_lie = np.full(self.voters.K + 1, fill_value=True)  # whether l ones may give the answer 0
        can_lie[self.voters.K // 2 + 1 :] = half < 1.0
        return can_lie[::-1][high], can_lie[low]

    def relative_error(self) -> float:
        """Bound the relative error of every number of `levels`, except for short tails."""
        if not self.voters.each.is_private:
            return 4.0 * _UNIT  # hi = 1: nothing is averaged
        lo = 1.0 - self.family.corners.hi
        if lo < _UNIT / _MAX_RELATIVE_ERROR:
            return np.inf
        step = _UNIT * (3.0 + 2.0 / lo)
        steps = self.voters.reached * step + (4.0 * self.voters.K + 4.0 * self.family.terms + 8.0) * _UNIT
        return 1.01 * steps if steps < _MAX_RELATIVE_ERROR else np.inf


def reflect(level: NDArray[Number]) -> NDArray[Number]:
    """Turn 1 − P of all rows into Q, and P into 1 − Q."""
    return level[::-1, ::-1]


def renyi_divergences(voters: Voters, gamma: NoiseFunction, orders: ArrayLike) -> Array:
    """Bound the worst Rényi divergence between neighbors from above, for each order; ∞ if unknown.

    `ValueError` if γ is not monotone or the arguments do not fit together. Without noise one voter costs as much as
    randomized response:

    >>> from darrm import NoiseFunction, PrivacyParams, Voters
    >>> renyi_divergences(Voters(1, PrivacyParams(1)), NoiseFunction(1, [1.0]), [2.0]).round(6)
    array([0.735326])
    """
    if gamma.K != voters.K:
        checks.fail("gamma.K", gamma.K, f"the voters' K = {voters.K}")
    if not gamma.is_monotone:
        raise ValueError("only a monotone γ has its worst Rényi divergence in the dominating family")
    grid = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if not np.all((grid > 1.0) & np.isfinite(grid)):
        checks.fail("orders", grid.tolist(), "finite and above 1")
    if voters.per_voter is not None:
        return _bound_group_divergences(voters, gamma, grid)
    rows = RenyiRows(voters)
    error = rows.relative_error()
    if not np.isfinite(error):
        return np.full(grid.shape, np.inf)
    worst = np.zeros(grid.shape)
    tail = TAIL if rows.family.terms else 0.0
    levels = (_compute_logs(level, rows.find_possible(gamma.half, level), tail) for level in rows.levels(gamma.half))
    for logs in _stack_levels(levels):
        distances = np.maximum(_compute_distances(logs[0], logs[2]), _compute_distances(logs[1], logs[3]))
        order_by_distance = np.argsort(-distances, kind="stable")
        distances, ordered = distances[order_by_distance], logs[:, order_by_distance]
        batch = min(distances.size, _ROWS_PER_BATCH)
        worst = np.maximum(worst, _bound_divergence(grid[:, None], ordered[:, :batch], error))
        for index, order in enumerate(grid):
            # a row whose log likelihood ratios are at most r has D_α ≤ min(r, αr²/2), which rules most rows out
            limit = max(worst[index], np.sqrt(2.0 * worst[index] / order)) * (1.0 - _PRUNING_MARGIN)
            active = int(np.searchsorted(-distances, -limit, side="right"))
            if active > batch:
                worst[index] = max(
                    worst[index], float(_bound_divergence(np.array([order]), ordered[:, batch:active], error))
                )
    return np.nextafter(worst * (1.0 + 4.0 * _UNIT), np.inf)


def _compute_logs(level: Level, possible: tuple[NDArray[np.bool_], NDArray[np.bool_]], tail: float) -> Array:
    """Take logarithms of P and 1 − P, rounded up, and of Q and 1 − Q, rounded down: shape (4, rows)."""
    answers = ((level.ones, possible[0]), (level.zeros, possible[1]))
    logs = [np.where(positive, np.log(np.maximum(p + tail, _MIN_ACCURATE)), -np.inf).ravel() for p, positive in answers]
    for p, positive in reversed(answers):
        is_accurate = positive & (p >= _MIN_ACCURATE)  # numbers that have lost their digits count as impossible
        logs.append(reflect(np.where(is_accurate, np.log(np.maximum(p, _MIN_ACCURATE)), -np.inf)).ravel())
    return np.array(logs)


def _stack_levels(levels: Iterable[Array]) -> Iterator[Array]:
    pending: list[Array] = []
    rows = 0
    for level in levels:
        pending.append(level)
        rows += level.shape[1]
        if rows >= _ROWS_PER_STACK:
            yield np.concatenate(pending, axis=1)
            pending, rows = [], 0
    if pending:
        yield np.concatenate(pending, axis=1)


def renyi_curve(voters: Voters, gamma: NoiseFunction, orders: ArrayLike = DEFAULT_ORDERS) -> RenyiCurve:
    """Tabulate `renyi_divergences`, rounded up to ten significant digits.

    Machines whose logarithms differ in the last digit then agree, and a ledger recognizes equal costs.
    """

    def compute_rounded(grid: Array) -> Array:
        values = renyi_divergences(voters, gamma, grid)
        is_accurate = np.isfinite(values) & (values > _MIN_ACCURATE)
        unit = 10.0 ** (np.floor(np.log10(np.where(is_accurate, values, 1.0))) + 1.0 - _SIGNIFICANT_DIGITS)
        return np.where(is_accurate, np.ceil(values / unit) * unit * (1.0 + 4.0 * _UNIT), values)

    return RenyiCurve.of(compute_rounded, orders)


def _compute_distances(log_upper: Array, log_lower: Array) -> Array:
    is_impossible = log_upper == -np.inf
    return np.asarray(np.abs(np.where(is_impossible, 0.0, log_upper) - np.where(is_impossible, 0.0, log_lower)))


def _bound_divergence(order: Array, parts: Array, error: float) -> Array:
    """Bound max log(Σ exp(order·upper − (order − 1)·lower))/(order − 1) over the rows: (n, 1) orders → (n,)."""
    terms = []
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow at an enormous order becomes ∞
        for log_upper, log_lower in zip(parts[:2], parts[2:], strict=True):
            is_impossible = log_upper == -np.inf
            upper, lower = np.where(is_impossible, 0.0, log_upper), np.where(is_impossible, 0.0, log_lower)
            size = order * np.abs(upper) + (order - 1.0) * np.abs(lower)
            exponent = order * upper - (order - 1.0) * lower + 16.0 * _UNIT * (size + 1.0)
            terms.append(np.where(is_impossible, -np.inf, exponent))
        total = np.logaddexp(*terms) + (2.0 * order - 1.0) * error
    largest = np.max(total, axis=-1)
    return np.asarray(np.where(np.isnan(largest), np.inf, np.maximum(0.0, largest / (order[..., 0] - 1.0))))


def _bound_group_divergences(voters: Voters, gamma: NoiseFunction, orders: Array) -> Array:
    exp_epsilon = enclose_exp(Fraction(0))
    rows = GroupSet(voters, Fraction(0))
    first, second = rows.expectations(gamma.half)
    error_margin = 0.5 * rows.rounding(exp_epsilon) + 4.0 * _UNIT
    P, Q = np.minimum(0.5 * (1.0 + first) + error_margin, 1.0), np.maximum(0.5 * (1.0 + second) - error_margin, 0.0)
    front = find_undominated(P, Q)
    if Q[front[0]] == 0.0:
        return np.full(orders.shape, np.inf)
    with np.errstate(divide="ignore"):
        logs = np.log(np.stack([P[front], 1.0 - P[front], Q[front], 1.0 - Q[front]]))
    worst = log_renyi_sums(logs[:2].T, logs[2:].T, orders).max(axis=1)
    largest_log = float(np.max(-logs[np.isfinite(logs)], initial=1.0))
    error = 16.0 * _UNIT * (2.0 * orders + 1.0) * (1.0 + largest_log)
    return np.asarray(np.maximum((worst + error) / (orders - 1.0), 0.0))


def divergence(voters: Voters, gamma: NoiseFunction, epsilon: Fraction) -> float:
    """Bound the worst hockey-stick divergence between neighbors at one ε, rounded up."""
    if voters.sampled is None:
        return _bound_deltas(voters, gamma, [epsilon])[0]
    conditional_epsilon = voters.sampled.conditional_on_inclusion(PrivacyParams(epsilon)).exact_epsilon
    (delta,) = _bound_deltas(voters.conditional_on_inclusion, gamma, [conditional_epsilon])
    return min(1.0, float(voters.sampled.rate) * delta * (1.0 + 1e-12))


def _bound_deltas(voters: Voters, gamma: NoiseFunction, epsilons: Sequence[Fraction]) -> list[float]:
    exp_epsilons = [enclose_exp(epsilon) for epsilon in epsilons]
    if voters.per_voter is None:
        costs = [FullSet(voters, epsilon).maxima(gamma.half).worst for epsilon in epsilons]
    else:
        costs = GroupSet(voters, epsilons[0]).worst_at(gamma.half, exp_epsilons)
    # three rounded operations on numbers of at most 2·exp_epsilon + 1
    bounds = [
        0.5 * (1.0 - exp_epsilon.value + cost) + 8.0 * _UNIT * (1.0 + exp_epsilon.value)
        for exp_epsilon, cost in zip(exp_epsilons, costs, strict=True)
    ]
    return [min(1.0, max(0.0, bound)) for bound in bounds]


def privacy_profile(problem: Problem, gamma: NoiseFunction, *, points: int = _DEFAULT_POINTS) -> PrivacyProfile:
    """Tabulate the exact privacy profile on an even grid from 0 to twice the target's ε, rounded up to 1e-12.

    The number of points is odd and at least 3, so that the target's ε is one of them.
    """
    checks.integer_at_least(3, points=points)
    if points % 2 == 0:
        checks.fail("points", points, "odd", "one point is the target's epsilon")
    if gamma.K != problem.voters.K:
        checks.fail("gamma.K", gamma.K, f"the problem's K = {problem.voters.K}")
    top = min(2 * problem.target.exact_epsilon, Fraction(LARGEST_EXPONENT))
    grid = [top * Fraction(index, points - 1) for index in range(points)]
    bounds = np.array(_bound_deltas(problem.voters, gamma, grid))
    # the true profile never rises; rounding may
    deltas = np.minimum(1.0, np.ceil(np.maximum.accumulate(bounds[::-1])[::-1] * _DELTA_UNITS) / _DELTA_UNITS)
    # a float above the exact ε keeps its bound
    epsilons = [min(np.nextafter(float(e), np.inf), float(LARGEST_EXPONENT)) if e else 0.0 for e in grid]
    return PrivacyProfile(tuple(epsilons), tuple(deltas.tolist()))
