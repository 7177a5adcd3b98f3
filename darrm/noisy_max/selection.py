"""The exponential mechanism and permute-and-flip: exact selection of a class by its votes, and the cost of the label.

A person who influences t voters changes the difference of two counts by up to 2t. With e_c = exp(−ε(max − n_c)/(2t))
both are (ε, 0)-private, for any number of classes:

* the exponential mechanism [MT07] answers c with probability e_c/Σe. It draws a class uniformly, keeps it with
  probability e_c, and repeats until one is kept;
* permute-and-flip [MS20] goes through the classes in random order and answers the first whose coin of probability e_c
  shows heads. It is at least as useful; its cost is that of pure ε, loose over many answers (``docs/sharp-edges.md``).

The exponents are rational, the coins those of [CKS20, Algorithm 1].

**Theorem (exponential mechanism, Rényi).** D_α of the label is at most its value for two classes, with
u = Pr[r = e^{−ε/2}] = (1/(1 − e^{−ε}) − (α − 1)/(e^{(α−1)ε} − 1))/α. *Proof.* A moved vote changes the weights of a and
b by e^{∓ε/2}: Pr[after] = Pr[before]·r/E r, with r one of e^{−ε/2}, 1 and e^{ε/2}, and exp((α − 1)·D_α) =
E[r^{1−α}]·(E r)^{α−1}. Moving the mass at r = 1 to the other two values at equal E r raises E[r^{1−α}], as it does for
every convex function: two classes are the worst. The logarithm is concave in u, with its maximum at the u above. ∎
The same holds for the hockey stick E[max(0, 1 − e^x·r/E r)], whose maximum over u is (1 − e^{(x − ε)/2})²/(1 − e^{−ε}).
t moves are one move with tε. (`tests/noisy_max/test_label_cost.py`)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from darrm.loss.amplification import amplify, amplify_pure, get_rate, subsampled_penalties
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.mechanisms import DRAWS_AT_ONCE, LabelMechanism, check_reached
from darrm.numerics import Array
from darrm.numerics.exact_sampling import UniformBelow, bernoulli_exp, uniform_below
from darrm.privacy import PrivacyParams, at_most, exact_number
from darrm.problem import Voters
from darrm.subsampling import Subsampling
from darrm.util import checks
from darrm.votes import Votes

_LARGEST_DENOMINATOR, _LARGEST_NUMERATOR = 2**54, 2**62  # beyond, coins use Python's integers
_LARGEST_EPSILON = 700
_TINY_EPSILON = 1e-150  # its square underflows: costs are those of pure ε
_PROFILE_POINTS = 100  # of a profile
_CELLS_PER_HALF = 2048  # of probabilities up to ½: the bound is within one percent
Coins = Callable[[NDArray[np.int64]], NDArray[np.bool_]]  # toss one coin of probability e_c for each lag in votes


def exponential_label_curve(epsilon: float, *, rate: float = 1.0) -> RenyiCurve:
    """Compute the Rényi curve of an (ε, 0)-private exponential mechanism whose votes move with probability ``rate``.

    At order 2, and for randomized response:

    >>> at_two = RenyiCurve.from_pure(1.0).orders == 2.0
    >>> [float(curve.values[at_two][0].round(4)) for curve in (exponential_label_curve(1.0), RenyiCurve.from_pure(1.0))]
    [0.2402, 0.7353]
    """
    checks.positive(epsilon=epsilon)
    if epsilon < _TINY_EPSILON:
        return RenyiCurve.from_pure(epsilon)
    if rate < 1.0:
        return _bound_subsampled_curve(epsilon, rate).minimum(RenyiCurve.from_pure(amplify_pure(epsilon, rate)))

    def value_at(orders: Array) -> Array:
        power = orders - 1.0
        with np.errstate(over="ignore"):
            u = np.clip((1.0 / -np.expm1(-epsilon) - power / np.expm1(power * epsilon)) / orders, 1e-300, 1.0)
        # E r over e^{ε/2} and E r^{1−α} over e^{(α−1)ε/2}
        log_sum = np.log(u + (1.0 - u) * np.exp(-power * epsilon))
        logs = power * np.log1p(u * np.expm1(-epsilon)) + log_sum + power * epsilon
        rounding = 2.0**-48 * (1.0 + power * epsilon)
        return np.asarray(np.minimum(np.maximum(logs, 0.0) + rounding, power * epsilon) / power)

    return RenyiCurve.of(value_at).minimum(RenyiCurve.from_pure(epsilon))


def _bound_subsampled_curve(epsilon: float, rate: float) -> RenyiCurve:
    """Bound the label of two classes, a with probability u losing a vote, at the worse end of each cell of u."""
    tails = np.geomspace(1e-6, 0.5, _CELLS_PER_HALF)
    u = np.concatenate([[0.0], tails, 1.0 - tails[-2::-1], [1.0]])
    with np.errstate(divide="ignore"):  # e^{−ε} may underflow
        rises = np.minimum(epsilon, -np.log1p(u * np.expm1(-epsilon)))  # log r of b
    falls = -np.log(u + (1.0 - u) * np.exp(epsilon))  # of a

    def value_at(orders: Array) -> Array:
        a = orders[:, None]
        of_a, of_b = (subsampled_penalties(log_ratio, a, rate) for log_ratio in (falls, rises))
        sides = [u[1:] * x[:, :-1] + (1.0 - u[:-1]) * y[:, 1:] for x, y in zip(of_a, of_b, strict=True)]
        with np.errstate(over="ignore"):
            worst = np.max(np.maximum(*sides), axis=1) * (1.0 + 1e-9) + 1e-15
        return np.asarray(np.log1p(worst) / (orders - 1.0))

    return RenyiCurve.of(value_at)


def exponential_label_profile(epsilon: float) -> PrivacyProfile:
    """Compute the privacy profile of an (ε, 0)-private exponential mechanism.

    At x = 0, and for randomized response:

    >>> round(exponential_label_profile(1.0).deltas[0], 4), round(float(np.tanh(0.5)), 4)
    (0.2449, 0.4621)
    """
    checks.positive(epsilon=epsilon)
    if epsilon < _TINY_EPSILON:
        return PrivacyProfile((0.0, epsilon), (epsilon, 0.0))  # above ε/4, the chord of a convex function
    grid = np.linspace(0.0, epsilon, _PROFILE_POINTS)
    deltas = np.expm1((grid - epsilon) / 2.0) ** 2 / -np.expm1(-epsilon) * (1.0 + 1e-12)
    return PrivacyProfile(tuple(grid.tolist()), tuple(np.minimum(deltas, 1.0).tolist()))


@dataclass(frozen=True)
class _Selection(LabelMechanism):
    epsilon: float  # ε in (0, 700], the pure privacy of one answer
    reached: int = 1  # t, how many votes one person may move
    proposes_again = False  # whether a class may be proposed twice

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        check_reached(self.reached)
        if self.epsilon > _LARGEST_EPSILON:
            checks.fail("epsilon", self.epsilon, f"at most {_LARGEST_EPSILON}", "the answers would not be private")

    @property
    def guarantee(self) -> PrivacyParams:
        return PrivacyParams(self.epsilon)

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        name, pure = f"{type(self).__name__}(epsilon={at_most(self.epsilon, 6)})", RenyiCurve.from_pure(self.epsilon)
        return PrivacyCost(name, self.guarantee, pure, count=queries, reached=self.reached)

    def _amplify(self, cost: PrivacyCost, _voters: Voters, _classes: int, sampling: Subsampling) -> PrivacyCost:
        return amplify(cost, sampling, None)

    def _draw_labels(self, votes: Votes, rng: np.random.Generator | None) -> NDArray[np.int64]:
        lags = votes.counts.max(axis=1, keepdims=True) - votes.counts
        below = uniform_below(rng)
        rate = exact_number("epsilon", self.epsilon) / (2 * self.reached)
        fits_in_words = rate.denominator <= _LARGEST_DENOMINATOR and rate.numerator * votes.voters < _LARGEST_NUMERATOR

        def toss_coins(gaps: NDArray[np.int64]) -> NDArray[np.bool_]:
            numerators = (gaps if fits_in_words else gaps.astype(object)) * rate.numerator
            return bernoulli_exp(numerators, np.full_like(numerators, rate.denominator), below)

        answers = np.empty(len(lags), dtype=np.int64)
        rows = max(1, DRAWS_AT_ONCE // lags.shape[1])
        for start in range(0, len(lags), rows):
            answers[start : start + rows] = self._select(lags[start : start + rows], toss_coins, below)
        return answers

    def _select(self, lags: NDArray[np.int64], coins: Coins, below: UniformBelow) -> NDArray[np.int64]:
        answers = np.empty(len(lags), dtype=np.int64)
        open_rows = np.arange(len(lags))
        order = np.tile(np.arange(lags.shape[1]), (len(lags), 1))  # shuffled one place at a time
        position = 0
        while open_rows.size:
            picks = position + below(np.full(open_rows.size, lags.shape[1] - position, dtype=np.int64))
            proposed = order[open_rows, picks]
            if not self.proposes_again:
                order[open_rows, picks] = order[open_rows, position]
                position += 1
            is_heads = coins(lags[open_rows, proposed])
            answers[open_rows[is_heads]] = proposed[is_heads]
            open_rows = open_rows[~is_heads]
        return answers


@dataclass(frozen=True)
class ExponentialMechanism(_Selection):
    """Release a class with probability proportional to e^{ε·votes/(2t)} [MT07].

    >>> aggregator = ExponentialMechanism(0.5)
    >>> aggregator.guarantee
    PrivacyParams(epsilon=0.5, delta=0)
    >>> aggregator.release(Votes.from_counts([[250, 0, 0], [0, 240, 10]])).tolist()
    [0, 1]
    """

    proposes_again = True

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        curve, profile = exponential_label_curve(self.epsilon), exponential_label_profile(self.epsilon)
        return replace(super().privacy_cost(queries), renyi=curve, profile=profile)

    def _amplify(self, cost: PrivacyCost, _voters: Voters, _classes: int, sampling: Subsampling) -> PrivacyCost:
        return amplify(cost, sampling, exponential_label_curve(self.epsilon, rate=get_rate(sampling)))


@dataclass(frozen=True)
class PermuteAndFlip(_Selection):
    """Release the first class, in random order, whose coin of probability e^{−ε·lag/(2t)} shows heads [MS20].

    >>> PermuteAndFlip(0.01, reached=2).privacy_cost(10)
    PrivacyCost(what='PermuteAndFlip(epsilon=0.01)', guarantee=PrivacyParams(epsilon=0.01, delta=0), renyi=…, count=10)
    """
