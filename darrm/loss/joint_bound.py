"""The privacy of labels of private models: a joint bound of model privacy and release privacy.

The data of one person influence t models, trained independently, each (ε, Δ)-private, and many labels are released from
the answers of all models. Given everything that the person does not influence, the labels are a kernel κ: given the
values w of the t models they have the law κ_w. As for non-private voters, H_{e^y}(κ_w ‖ κ_w') ≤ h(y), where
H_c(P ‖ P') = sup_S P(S) − c·P'(S) and h is the profile of the whole release for a person who influences t non-private
voters.

**Theorem.** Let R = H_{e^x}(W ‖ W') for the laws W, W' of the t models on two neighboring data sets. The labels have

    H_{e^x}(P ‖ P') ≤ R·h(y),   e^y = 1 + (e^x − 1)/R,

and any upper bound of R may replace R. *Proof.* Put c = e^x and let r₊ − r₋ be the Hahn decomposition of W − c·W': the
masses are R and R + c − 1. So P(S) − c·P'(S) = ∫κ_w(S) (r₊ − r₋)(dw) = R·(A(S) − e^y·B(S)) with mixtures A and B of the
laws κ_w, and H is jointly convex: at most R·h(y). Written as sup R·(A(S) − B(S)) − (c − 1)·B(S), where a positive value
has A(S) > B(S), it does not fall as R grows. By convexity the bound survives averaging over the condition. ∎
(`tests/loss/test_joint_bound.py`)

R is at most the divergence of t randomized responses that reveal everything with probability Δ [KOV15, Theorem 3.3], of
the t largest ε and the t largest Δ if models differ. As h ≤ 1 and R ≤ 1, the joint bound never exceeds the bound of the
models (R) or of the release (h(x)).

**One model after another.** If the release has a bound only for overlap 1, exchange the t models one at a time: each
step is the theorem with t = 1, and t steps of (x, d) are (t·x, d·(1 + e^x + … + e^{(t−1)x})).

All rounding is safe: R up, y and the release's share of δ down.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from darrm.loss.composition import LossDistribution, TooManyKindsError
from darrm.numerics.bisection import bisect_safe
from darrm.privacy import LARGEST_EXPONENT, PrivacyParams
from darrm.problem import Voters
from darrm.util import checks

_ROUNDING = 1e-12  # relative: fewer than a hundred operations with 2^-53 each, and the rounding of ε and Δ
_MAX_ROUNDS = 40  # a dozen suffice if the release's ε' depends smoothly on δ'; otherwise bisection
_TOLERANCE = 1e-12  # relative, of the resulting ε


def models_delta(voters: Voters, count: int, epsilon: float) -> float:
    """Bound R = H_{e^epsilon} of the ``count`` least private models from above."""
    return _Models.of(voters, count).delta(epsilon)


@dataclass(frozen=True)
class _Models:
    total_epsilon: float  # the ε of all models together; ∞ for non-private models
    log_no_failure: float  # Σ log(1 − Δ_i)
    losses: LossDistribution | None  # None for non-private models

    @classmethod
    def of(cls, voters: Voters, count: int) -> "_Models":
        if not voters.each.is_private:
            return cls(math.inf, 0.0, None)
        groups = voters.largest(count)
        try:
            losses = LossDistribution.from_groups([(guarantee.epsilon, n) for guarantee, n in groups])
        except TooManyKindsError:  # replace all models by the least private one
            groups = [(voters.each, count)]
            losses = LossDistribution.from_groups([(voters.each.epsilon, count)])
        total_epsilon = math.fsum(n * guarantee.epsilon for guarantee, n in groups)
        return cls(total_epsilon, math.fsum(n * math.log1p(-guarantee.delta) for guarantee, n in groups), losses)

    def delta(self, epsilon: float) -> float:
        if self.losses is None:
            return 1.0
        log_divergence = self.losses.log_divergence(epsilon)
        if log_divergence >= 0.0:
            return 1.0
        return min(1.0, -math.expm1(self.log_no_failure + math.log1p(-math.exp(log_divergence))) * (1.0 + _ROUNDING))


def release_within(voters: Voters, target: PrivacyParams, *, one_by_one: bool = False) -> PrivacyParams | None:
    """Find the largest (ε', δ') of a release for non-private voters that makes all labels ``target``-private.

    (ε', δ') is for a person who influences as many voters as models, or one voter if ``one_by_one``. None if the
    influenced models satisfy ``target`` without noise.

    >>> models = Voters(11, PrivacyParams(1), overlap=1, models=True)
    >>> release = release_within(models, PrivacyParams("0.434"))
    >>> round(release.epsilon, 2), release.delta
    (1.0, 0.0)
    """
    steps = voters.reached if one_by_one else 1
    models = _Models.of(voters, voters.reached // steps)
    x = target.epsilon / steps
    if models_delta(voters, voters.reached, target.epsilon) <= target.delta:
        return None
    release_delta = min(_bound_release_delta(models, steps, x, target.delta), math.nextafter(1.0, 0.0))
    epsilon = min(_bound_release_epsilon(models, x), float(LARGEST_EXPONENT))
    return PrivacyParams(epsilon, release_delta if release_delta > math.ulp(0.0) * 2**60 else 0)


def smallest_whole(
    voters: Voters, delta: float, release_epsilon: Callable[[float], float], *, one_by_one: bool = False
) -> float:
    """Find nearly the smallest ε at which all labels are (ε, delta)-private; ∞ if the theorem gives no bound.

    ``delta`` is in [0, 1), and ``release_epsilon`` maps δ' to the ε' of the release for non-private voters, or ∞;
    ``one_by_one`` is as for `release_within`. Models with ε = 1 on disjoint shards, and a release with ε' = 1:

    >>> models = Voters(11, PrivacyParams(1), overlap=1, models=True)
    >>> round(smallest_whole(models, 0.0, lambda delta: 1.0), 3)
    0.434
    """
    checks.probability_below_one(delta=delta)
    steps = voters.reached if one_by_one else 1
    models = _Models.of(voters, voters.reached // steps)
    lower, upper, x = 0.0, math.inf, 0.0  # x of one step: the result is an accepted one
    max_width = math.inf  # a wider interval is bisected
    for _ in range(_MAX_ROUNDS):
        release_delta = _bound_release_delta(models, steps, x, delta)
        # every release has δ' < 1
        epsilon = 0.0 if release_delta >= 1.0 else release_epsilon(release_delta)
        if epsilon <= _bound_release_epsilon(models, x):
            upper, shift = min(upper, x), -0.5
        else:
            lower, shift = max(lower, x), 0.25
        width = upper - lower
        if math.isfinite(upper) and width <= _TOLERANCE * upper:
            break
        # the solution lies between x and the fixed point for this ε', close to the fixed point; a step just beyond it
        # bounds the solution from the other side
        x = _find_smallest_step(models, epsilon) * (1.0 + shift * _TOLERANCE)
        # above it R is constant: no larger x leaves more δ'
        if lower < models.total_epsilon < x:
            x = models.total_epsilon
        elif math.isinf(upper) and 0.0 < lower < x:  # slow progress from below: extrapolate
            x += 2.0 * (x - lower)
        elif not lower < x < upper or width > max_width:
            if math.isinf(upper):
                break
            x = 0.5 * (lower + upper)
        max_width = 0.5 * width
    return steps * upper * (1.0 + _ROUNDING)


def _bound_release_epsilon(models: _Models, x: float) -> float:
    """Compute y = log(1 + (e^x − 1)/R), rounded down; ∞ for R = 0."""
    divergence = models.delta(x)
    if x > LARGEST_EXPONENT or divergence == 0.0:
        return math.inf
    ratio = math.expm1(x) / divergence
    return math.inf if math.isinf(ratio) else math.log1p(ratio) * (1.0 - _ROUNDING)


def _bound_release_delta(models: _Models, steps: int, x: float, delta: float) -> float:
    """Compute d with R·d·(1 + e^x + … + e^{(steps−1)x}) = δ, rounded down; it may exceed 1."""
    divergence = models.delta(x)
    if steps > 1:
        exponent = (steps - 1) * x
        if exponent > LARGEST_EXPONENT:
            return 0.0
        delta /= math.fsum(math.exp(index * x) for index in range(steps))
    return delta / divergence * (1.0 - _ROUNDING) if divergence > 0.0 else float(delta > 0.0)


def _find_smallest_step(models: _Models, epsilon: float) -> float:
    """Find the smallest x whose y is at least ε', rounded up; ∞ for ε' = ∞."""
    # y ≥ x, because R ≤ 1
    upper = epsilon * (1.0 + 10.0 * _ROUNDING)
    if not 0.0 < upper <= LARGEST_EXPONENT:
        return upper if upper == 0.0 else math.inf

    def is_sufficient(x: float) -> bool:
        return _bound_release_epsilon(models, x) >= epsilon

    return bisect_safe(is_sufficient, upper, 0.0, tolerance=_ROUNDING)
