"""Privacy of the laws of `darrm.open_set.open_law`: rows of four counts, with the worst remaining strings.

Let one vote move from string a to string b, n_a falling to n_a − 1 and n_b growing to n_b + 1. With c = e^ε the law is
(ε, δ)-private if for all such pairs, x before and x' after, u and u' the probabilities of no answer,

    (1)  Σ_s (x_s − c x'_s)_+ + (u − c u')_+ ≤ δ.

**Theorem.** The largest left side over all histograms with given n_a, n_b and two largest other counts M ≥ S is the
larger of two sums over the strings s, for the worst choice of the rest, strings of at most S votes:

    (2)  Σ_s (x_s − c x'_s)_+           (3)  1 − c + Σ_s (c x'_s − x_s)_+.

*Proof.* u − c u' = 1 − c + Σ_s (c x'_s − x_s), and (3) is (2) plus this, as (−z)_+ = (z)_+ − z: so (1) is the larger of
(2) and (3). The gain of a string depends on its votes and on the largest other count only. With T = max(n_a, n_b) and
T' = max(n_a − 1, n_b + 1), that count is max(T, M) before and max(T', M) after for the rest and the string with S
votes, and max(T, S) and max(T', S) for the string with M; for a it is max(n_b, M) and max(n_b + 1, M), for b max(n_a,
M) and max(n_a − 1, M). So the worst rest is a knapsack: `darrm.open_set.open_law.largest_sums`. ∎

Rounding: at most K + 3 terms, together at most 1 + c, each with three roundings and one of the sum: less than
`ROUNDING`·(K + 8)·(1 + c). With c from below (1) only grows.

**Repair.** s·x has s times the sums of (2) and (3): s = min(1, δ/(2), (δ + c − 1)/Σ of (3)) makes it private.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from darrm.errors import CertificationError
from darrm.loss.certificate import Certificate
from darrm.majority.corners import enclose_exp, lower_float
from darrm.numerics import Array
from darrm.open_set.open_law import OpenLaw, largest_sums
from darrm.privacy import at_most
from darrm.problem import Problem, describe_classes
from darrm.util import checks

METHOD = "floating point with an a-priori error bound, over four counts and the dearest rest"
ROUNDING = 2.0**-51
_MIN_DELTA_RATIO = 100.0  # the smallest ratio of δ to the rounding error
_RATIO_LIMITS = (16.0, 2.0**16)  # an e^ε that is always used despite rounding, and the largest one for a solver
_MAX_ATTEMPTS = 6

Indices = NDArray[np.int64]
Coefficients = dict[tuple[int, int], float]  # of x(n, m)


class Move(NamedTuple):
    giver: int
    taker: int
    largest: int
    second: int
    is_without: bool  # (3), in which the probability of no answer differs, and not (2)


@dataclass(frozen=True, eq=False)
class _Group:
    """All (M, S) for one pair n_a, n_b, with the sums of (2), and of (3) without 1 − c."""

    giver: int
    taker: int
    largest: Indices
    second: Indices
    sums: tuple[Array, Array]

    def worst_moves(self) -> Iterator[tuple[Move, float]]:
        for is_without, sums in enumerate(self.sums):
            place = int(np.argmax(sums))
            move = Move(self.giver, self.taker, int(self.largest[place]), int(self.second[place]), bool(is_without))
            yield move, float(sums[place])


@dataclass(frozen=True, eq=False)
class OpenRows:
    """The rows of a proposal x, shape (K + 1, K + 1), for c = e^ε from below."""

    x: Array
    ratio: float

    @property
    def K(self) -> int:
        return len(self.x) - 1

    @cached_property
    def _padded(self) -> Array:
        return np.pad(self.x, (0, 2))

    def _compute_gains(self, n: Indices, m_before: Indices, m_after: Indices, n_after: Indices) -> tuple[Array, Array]:
        excess = self._padded[n, m_before] - self.ratio * self._padded[n_after, m_after]
        return np.maximum(excess, 0.0), np.maximum(-excess, 0.0)

    @cached_property
    def _rest_sums(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Gains of strings that keep their votes, and the largest sums, for (2) and (3): by m' − m + 1, m, n (, L)."""
        n, m, step = np.meshgrid(np.arange(self.K + 1), np.arange(self.K + 1), np.arange(3), indexing="ij")
        gains = self._compute_gains(n, m, np.maximum(m + step - 1, 0), n)
        first, second = (gain.transpose(2, 1, 0) for gain in gains)
        return (first, largest_sums(first, -math.inf)), (second, largest_sums(second, -math.inf))

    def groups(self) -> Iterator[_Group]:
        for giver in range(1, self.K + 1):
            for taker in range(self.K - giver + 1):
                votes = self.K - giver - taker
                largest, second = np.meshgrid(np.arange(votes + 1), np.arange(votes + 1), indexing="ij")
                mask = (second <= largest) & (largest + second <= votes)
                mask &= ((second > 0) | (largest == votes)) & ((largest > 0) | (votes == 0))
                largest, second = largest[mask], second[mask]
                m, step = self._find_largest_others(giver, taker, largest)
                rest_votes = votes - largest - second
                total = np.stack(
                    [gains[step, m, second] + best[step, m, second, rest_votes] for gains, best in self._rest_sums]
                )
                for place in self._list_movers(giver, taker, largest, second):
                    total += np.stack(self._compute_gains(*place))
                yield _Group(giver, taker, largest, second, (total[0], total[1]))

    @staticmethod
    def _find_largest_others(giver: int, taker: int, largest: Indices) -> tuple[Indices, Indices]:
        """Return the largest other count of a string of the rest before the move, and its growth plus 1."""
        largest_before = np.maximum(max(giver, taker), largest)
        return largest_before, np.maximum(max(giver - 1, taker + 1), largest) - largest_before + 1

    @staticmethod
    def _list_movers(giver: int, taker: int, largest: Indices, second: Indices) -> list[tuple[Indices, ...]]:
        """Return votes and largest other count before, then both after, of a, b and the largest other string."""
        top, top_after = max(giver, taker), max(giver - 1, taker + 1)
        ones = np.ones_like(largest)
        return [
            (giver * ones, np.maximum(taker, largest), np.maximum(taker + 1, largest), (giver - 1) * ones),
            (taker * ones, np.maximum(giver, largest), np.maximum(giver - 1, largest), (taker + 1) * ones),
            (largest, np.maximum(top, second), np.maximum(top_after, second), largest),
        ]

    def worst(self) -> tuple[float, float]:
        """Compute the largest sums of (2) and, without 1 − c, of (3)."""
        largest = [0.0, 0.0]
        for group in self.groups():
            for move, value in group.worst_moves():
                largest[move.is_without] = max(largest[move.is_without], value)
        return largest[0], largest[1]

    def coefficients(self, move: Move) -> Coefficients:
        """Return the row of a move with its worst rest: the coefficients of the sum in (2), or in (3) without 1 − c."""
        giver, taker, *others, is_without = move
        largest, second = (np.array([count]) for count in others)
        terms = [tuple(int(part[0]) for part in place) for place in self._list_movers(giver, taker, largest, second)]
        m, step = (int(part[0]) for part in self._find_largest_others(giver, taker, largest))
        remaining = self.K - giver - taker - int(largest[0]) - int(second[0])
        best = self._rest_sums[is_without][1][step, m]
        terms += [(n, m, m + step - 1, n) for n in [int(second[0]), *fill_votes(best, int(second[0]), remaining)]]
        row: Coefficients = {}
        sign = -1.0 if is_without else 1.0
        for n, m_before, m_after, n_after in terms:
            if sign * (self._padded[n, m_before] - self.ratio * self._padded[n_after, m_after]) > 0.0:
                for place, factor in (((n, m_before), sign), ((n_after, m_after), -sign * self.ratio)):
                    if place[0]:
                        row[place] = row.get(place, 0.0) + factor
        return row


def fill_votes(best: Array, cap: int, remaining: int) -> list[int]:
    """Return the votes of the strings behind a largest sum of `largest_sums`."""
    strings = []
    while remaining:
        while best[cap - 1, remaining] == best[cap, remaining]:
            cap -= 1
        strings.append(cap)
        remaining -= cap
    return strings


def ratio_below(problem: Problem) -> float:
    """Return e^ε of the target, rounded down, or less if rounding would exceed δ: a smaller ε is stronger."""
    ratio = problem.target.delta / (_MIN_DELTA_RATIO * bound_rounding(problem.voters.K, 0.0))
    smallest, largest = _RATIO_LIMITS
    return min(max(smallest, min(largest, ratio)), lower_float(enclose_exp(problem.target.exact_epsilon).ball))


def bound_rounding(K: int, ratio: float) -> float:
    """Bound the rounding error of a sum."""
    return ROUNDING * (K + 8) * (1.0 + ratio)


def prove(problem: Problem, law: OpenLaw, scale: float = 1.0) -> Certificate:
    """Prove that a law is private; `CertificationError` if it is not.

    ``worst_cost`` of the certificate bounds the left side of (1), ``budget`` is δ and ``rows`` counts (n_a, n_b, M, S).
    """
    check_law(problem, law)
    return _build_certificate(problem, law.K, OpenRows(law.each, ratio_below(problem)).worst(), scale)


def _build_certificate(problem: Problem, K: int, sums: tuple[float, float], scale: float) -> Certificate:
    excess, deficit = sums
    ratio = ratio_below(problem)
    margin = bound_rounding(K, ratio) if excess > 0.0 or deficit > 0.0 else 0.0  # without answers nothing is rounded
    worst = max(0.0, excess, deficit + 1.0 - ratio) + margin
    budget = float(np.nextafter(problem.target.delta, 0.0))
    if worst > budget:
        text = f"at epsilon = {problem.target.epsilon:g} neighbors differ by {at_most(worst, 6)}, delta is {budget:.6g}"
        raise CertificationError(
            f"{text}: call certify, which lowers the probability of answers", worst_cost=worst, budget=budget
        )
    return Certificate(worst, budget, number_of_rows(K), METHOD, scale)


def number_of_rows(K: int) -> int:
    """Count (n_a, n_b, M, S): s pairs with n_a + n_b = s, and M and S, if any, of the other K − s votes."""
    others = [1] + [1 + sum(votes - 2 * second + 1 for second in range(1, votes // 2 + 1)) for votes in range(1, K)]
    return sum(moving * others[K - moving] for moving in range(1, K + 1))


def scale_and_prove(problem: Problem, law: OpenLaw) -> tuple[OpenLaw, Certificate]:
    """Scale the probabilities of answers down until the proof holds, and prove the result."""
    check_law(problem, law)
    ratio = ratio_below(problem)
    sums = OpenRows(law.each, ratio).worst()
    try:
        return law, _build_certificate(problem, law.K, sums, 1.0)
    except CertificationError as error:
        failure = error
    for attempt in range(_MAX_ATTEMPTS):  # scaled laws are rounded to weights, too
        share = share_allowed(*sums, problem, 2.0 * 4.0**attempt * bound_rounding(law.K, ratio))
        scaled = law.scale_by(share)
        try:
            return scaled, prove(problem, scaled, scale=share)
        except CertificationError as error:
            failure = error
    raise failure


def share_allowed(excess: float, deficit: float, problem: Problem, margin: float = 0.0) -> float:
    """Compute the share of a law that the sums of (2) and (3) allow."""
    delta, ratio = problem.target.delta - margin, ratio_below(problem)
    return max(0.0, min(1.0, delta / max(excess, 1e-300), (delta + ratio - 1.0) / max(deficit, 1e-300)))


def check_law(problem: Problem, law: OpenLaw) -> None:
    check_voters(problem)
    if (law.K, law.classes) != (problem.voters.K, problem.classes):
        answers = checks.Text(f"{law.K} open answers")
        checks.fail("law", answers, f"about {problem.voters.K} votes, {describe_classes(problem.classes)}")


def check_voters(problem: Problem) -> None:
    if problem.voters.reached != 1:
        advice = "larger overlaps have proofs for laws on all partitions only, up to K = 16 at overlap 2"
        checks.fail("the overlap of open answers of many voters", problem.voters.reached, "1", advice)
