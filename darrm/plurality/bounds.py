"""Upper bounds on the accuracy of any private plurality.

Voters are not private themselves and a person moves at most t votes. Let h_a(n) be the probability of the answer a for
a histogram n. The mean of a private release over all renamings of the classes is private and right as often under a
prior that treats classes alike, so let h treat them alike as well.

**One query.** (ε, δ)-privacy of the event "the answer is a" and of its complement says for neighbors n, n', c = e^ε,

    (1) h_a(n') ≥ H(h_a(n)),        H(u) = max(0, (u − δ)/c, 1 − δ − c·(1 − u)),

and H does not fall when u grows. Let w be a class with the most votes and b one that has d votes less. Moving d votes
from w to b, t at a time, exchanges the two classes, and h_w of what results is h_b(n). So with m = ⌈d/t⌉ steps

    (2) h_b(n) ≥ H^m(h_w(n)).

**Theorem 1.** Let k classes of n have the most votes. Any (ε, δ)-private release that treats classes alike is right at
n with a probability u for which u + Σ_b H^m(b)(u/k) ≤ 1, the sum over all other classes. *Proof.* h_w(n) = u/k for
each of the k, by symmetry; (2) for all others, and the probabilities add up to 1. ∎ With two classes this is the closed
form of `darrm.majority.closed_form`, which is attained.

In closed form: let κ = δ/(c − 1) and x = 1 − u + κ. Taking the third part of H first i times and then the second gives

    (3) H^m(u) ≥ R_i = (1 + 2κ)·c^{i−m} − x·c^{2i−m} − κ        for every i = 0 … m,

and the best i is next to log_c((1 + 2κ)/(2x)). As (3) holds for each i, a wrongly rounded i costs nothing.

**Many queries.** All Q answers together are (ε, δ)-private, so each alone is, and theorem 1 holds for each. But few
people can change the winners of all questions at once:

**Theorem 2.** Let a release see the counts of Q questions, each drawn from a prior that treats classes alike. For every
m let δ_m = δ·(c^m − 1)/(c − 1) and μ_m = E[1/J], where J is the number of classes with at most m·t votes less than the
winner, and 1 where two classes have the most. The expected share s of right answers satisfies

    kl(s − δ_m ‖ μ_m) ≤ m·ε/Q        wherever s − δ_m ≥ μ_m, kl being the divergence of two bits.

*Proof.* Fix the histograms. In question q exchange the winner with a class drawn uniformly from those J_q,
independently for the questions. The votes of m people are enough: each moves t votes from the winner to the other
class, in every question. So whatever was drawn the law P of the answers has P(S) ≤ c^m·P_0(S) + δ_m for all S, where
P_0 is the law at the fixed histograms, and some law P' ≤ c^m·P_0 has total variation at most δ_m from P. Under P_0 the
answers do not depend on the draw: question q is right with probability at most 1/J_q, independently of the others. Let
X be the number of right answers. The joint laws of draw and answers have a divergence of at most m·ε, so for every
λ > 0, by Donsker and Varadhan,

    λ·E_{P'} X ≤ m·ε + Σ_q log(1 + (e^λ − 1)/J_q) ≤ m·ε + Q·log(1 + (e^λ − 1)·mean(1/J_q)),

the logarithm being concave; for the same reason μ_m may take the place of the mean once the histograms are drawn. The
smallest right side over λ, divided by λ·Q, is the largest s' with kl(s' ‖ μ_m) ≤ m·ε/Q, and s ≤ s' + δ_m. ∎ (The
exchanges only rename classes, in each question by itself, which changes no release's expected share under the prior.)

δ_m makes theorem 2 empty beyond log(1/δ)/ε people. There the truth is of the order of √Q/ε people, and no bound with
useful constants is known here: for large budgets and many voters the bounds are honest and loose.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darrm.numerics import Array
from darrm.numerics.bisection import bisect_safe
from darrm.privacy import PrivacyParams
from darrm.problem import Workload
from darrm.util import checks

_BISECTIONS = 36
_ROUNDING = 1e-12  # of one term of the sum of theorem 1, relative to 1 + κ: thousands of roundings


def right_at_most(counts: ArrayLike, target: PrivacyParams, *, reached: int = 1) -> Array:
    """Bound the probability that one private answer is a class with the most votes (theorem 1).

    (n, C) histograms; one person may move ``reached`` votes, and the (ε, δ) of the answer, ε > 0 → (n,),
    rounded up. Eleven to nothing, two classes: the optimum of `darrm.majority.closed_form`, and with a third class.

    >>> right_at_most([[11, 0], [6, 5]], PrivacyParams("0.2676", "0.0003")).round(3)
    array([0.887, 0.567])
    >>> right_at_most([[11, 0, 0]], PrivacyParams("0.2676", "0.0003")).round(3)
    array([0.839])
    """
    histograms = np.asarray(counts)
    checks.integer_at_least(1, reached=reached, advice="how many votes one person may move")
    if histograms.ndim != 2 or histograms.shape[1] < 2 or not np.issubdtype(histograms.dtype, np.integer):
        checks.fail("counts", histograms.shape, "whole numbers of shape (n, C) with C ≥ 2")
    if not target.exact_epsilon > 0:
        checks.fail("target.epsilon", target.epsilon, "positive")
    winner = histograms.max(axis=1, keepdims=True)
    steps = -((histograms - winner) // reached)  # ⌈d/t⌉
    leaders = np.sum(steps == 0, axis=1)
    low, high = leaders / histograms.shape[1], np.ones(len(histograms))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        others = np.where(steps > 0, _falls(middle / leaders, steps, target), 0.0)
        too_large = middle + np.sum(others, axis=1) > 1.0
        low, high = np.where(too_large, low, middle), np.where(too_large, middle, high)
    return high


def share_right_at_most(workload: Workload, counts: NDArray[np.int64], weights: ArrayLike | None = None) -> float:
    """Bound the expected share of right labels of any release of a workload (theorems 1 and 2).

    The voters of the workload are not private. ``counts`` are (n, C) histograms: all that a prior knows, with their
    probabilities in ``weights``, or a sample of it, with equal ones. For recorded votes the bound is about releases
    that treat classes alike.

    >>> from darrm.problem import Voters
    >>> voters = Voters(20, PrivacyParams("inf"), overlap=1)
    >>> close = np.array([[8, 6, 6], [9, 8, 3]])
    >>> [round(share_right_at_most(Workload(voters, Q, PrivacyParams(1, "1e-5"), 3), close), 3) for Q in (1, 1000)]
    [0.742, 0.388]
    """
    if not workload.voters.are_non_private:
        checks.fail("voters.each", str(workload.voters.each), 'PrivacyParams("inf")')
    each = np.full(len(counts), 1.0 / len(counts)) if weights is None else np.asarray(weights, dtype=np.float64)
    total, reached = workload.total, workload.voters.reached
    best = float(each @ right_at_most(counts, total, reached=reached))
    if workload.queries == 1:
        return best
    lost = counts.max(axis=1, keepdims=True) - counts
    alone = np.sum(lost == 0, axis=1) == 1
    for steps in range(1, -(-workload.voters.K // reached) + 1):
        failing = total.delta * math.expm1(steps * total.epsilon) / math.expm1(total.epsilon)
        if failing >= best or steps * total.epsilon / workload.queries >= math.log(counts.shape[1]):
            break
        close = np.sum(lost <= steps * reached, axis=1)
        blind = float(each @ np.where(alone, 1.0 / close, 1.0))
        best = min(best, failing + _largest_share(blind, steps * total.epsilon / workload.queries))
    return best


def _falls(share: Array, steps: NDArray[np.int64], target: PrivacyParams) -> Array:
    """Bound H^m(u) from below by (3), for u of shape (n,) and m of shape (n, C)."""
    epsilon = target.epsilon
    kappa = target.delta / math.expm1(epsilon)
    with np.errstate(divide="ignore"):
        log_x = np.log(1.0 - share + kappa)[:, None]
    turn = (math.log1p(2.0 * kappa) - math.log(2.0) - log_x) / epsilon
    best = np.zeros(steps.shape)
    for rounded in (np.floor(turn), np.ceil(turn)):
        first = np.clip(rounded, 0, steps)
        kept = (1.0 + 2.0 * kappa) * np.exp(epsilon * (first - steps))
        best = np.maximum(best, kept - np.exp(epsilon * (2.0 * first - steps) + log_x) - kappa)
    return np.maximum(0.0, best - _ROUNDING * (1.0 + kappa))


def _largest_share(blind: float, rate: float) -> float:
    def is_excluded(share: float) -> bool:
        off = (1.0 - share) * math.log((1.0 - share) / (1.0 - blind)) if share < 1.0 else 0.0
        return share * math.log(share / blind) + off > rate * (1.0 + _ROUNDING) + _ROUNDING

    if blind >= 1.0 or not is_excluded(1.0):
        return 1.0
    return bisect_safe(is_excluded, 1.0, blind)
