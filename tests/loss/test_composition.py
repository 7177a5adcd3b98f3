"""Composition against brute force over all outcomes, fifty digits, and the printed tables of [D]."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.loss.composition import (
    LossDistribution,
    TooManyKindsError,
    compose_general,
    compose_optimal,
    compose_simple,
    general_epsilon,
    optimal_epsilon,
)
from darrm.loss.gaussian import gaussian_delta
from darrm.privacy import PrivacyParams

Groups = list[tuple[PrivacyParams, int]]

# [D, Tables 5, 2, 7 and 9]: (epsilon, delta) a query, then (epsilon, delta) after 20, 50 and 100 queries as printed
PRINTED = [
    ("0.0892", "0.0001", "1.704 2.837 4.202", "0.002 0.005 0.010"),
    ("0.0852", "0.0001", "1.620 2.695 3.988", "0.002 0.005 0.010"),
    ("0.2676", "0.0003", "5.352 9.901 15.044", "0.006 0.015 0.030"),
    ("0.2556", "0.0003", "5.112 9.382 14.219", "0.006 0.015 0.030"),
    ("0.4460", "0.0005", "8.920 18.428 28.926", "0.010 0.025 0.049"),
    ("0.4260", "0.0005", "8.520 17.398 27.223", "0.010 0.025 0.049"),
    ("0.6244", "0.0007", "12.488 28.392 45.683", "0.014 0.035 0.068"),
    ("0.5964", "0.0007", "11.928 26.738 42.873", "0.014 0.035 0.068"),
]


@pytest.mark.parametrize(("epsilon", "delta", "epsilons", "deltas"), PRINTED)
def test_general_reproduces_every_printed_digit(epsilon: str, delta: str, epsilons: str, deltas: str) -> None:
    totals = [compose_general(PrivacyParams(epsilon, delta), k, 1e-4) for k in (20, 50, 100)]
    assert " ".join(f"{total.epsilon:.3f}" for total in totals) == epsilons
    assert " ".join(f"{total.delta:.3f}" for total in totals) == deltas


def compute_delta_by_brute_force(groups: Groups, epsilon: float) -> mpmath.mpf:
    """Compute the divergence of randomized responses that fail with δ, over every tuple of outcomes."""
    pairs = []
    for params, count in groups:
        e, d = mpmath.mpf(params.epsilon), mpmath.mpf(params.delta)
        truth, lie = (1 - d) * mpmath.exp(e) / (1 + mpmath.exp(e)), (1 - d) / (1 + mpmath.exp(e))
        pairs += [[(d, mpmath.mpf(0)), (truth, lie), (lie, truth), (mpmath.mpf(0), d)]] * count
    total = mpmath.mpf(0)
    for outcome in itertools.product(*pairs):
        p = mpmath.fprod(first for first, _ in outcome)
        q = mpmath.fprod(second for _, second in outcome)
        total += max(mpmath.mpf(0), p - mpmath.exp(epsilon) * q)
    return total


GROUPS: list[Groups] = [
    [(PrivacyParams(0.3, 0.01), 1)],
    [(PrivacyParams(0.3, 0), 4)],
    [(PrivacyParams(0.3, 0.01), 5)],
    [(PrivacyParams(2.5, 0.001), 4)],
    [(PrivacyParams(0.3, 0.01), 2), (PrivacyParams(0.7, 0.002), 3)],
    [(PrivacyParams(0.3, 0.01), 2), (PrivacyParams(0.3, 0.01), 3)],
    [(PrivacyParams(1.0, 0), 2), (PrivacyParams(0.0, 0.002), 1), (PrivacyParams(0.25, 1e-5), 2)],
]


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("slack", [1e-9, 0.03, 0.9])
def test_general_is_the_least_of_three_closed_forms(groups: Groups, slack: float) -> None:
    with mpmath.workdps(50):
        each = [mpmath.mpf(params.epsilon) for params, count in groups for _ in range(count)]
        drift, squares = (
            mpmath.fsum(e * mpmath.expm1(e) / (mpmath.exp(e) + 1) for e in each),
            mpmath.fsum(each, squared=True),
        )
        factors = mpmath.log(mpmath.e + mpmath.sqrt(squares) / slack), mpmath.log(1 / mpmath.mpf(slack))
        exact = min(mpmath.fsum(each), *(drift + mpmath.sqrt(2 * squares * factor) for factor in factors))
        assert exact <= general_epsilon(groups, slack) <= exact * (1 + 1e-13)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("extra", [1e-6, 1e-3, 0.05])
def test_optimal_inverts_the_brute_force(groups: Groups, extra: float) -> None:
    delta = 1.0 - math.prod((1.0 - params.delta) ** count for params, count in groups) + extra
    with mpmath.workdps(50):
        epsilon = optimal_epsilon(groups, delta)
        assert compute_delta_by_brute_force(groups, epsilon) <= delta
        assert epsilon == 0.0 or compute_delta_by_brute_force(groups, epsilon - 1e-9) > delta


@pytest.mark.parametrize("groups", [GROUPS[1], [(PrivacyParams(0.7, 0), 3), (PrivacyParams(0.1, 0), 1)]])
@pytest.mark.parametrize("delta", [1e-18, 1e-40])
def test_optimal_counts_losses_next_to_epsilon(groups: Groups, delta: float) -> None:
    with mpmath.workdps(80):
        assert compute_delta_by_brute_force(groups, optimal_epsilon(groups, delta)) <= delta


@pytest.mark.parametrize("k", [1, 7, 100, 1000])
def test_optimal_is_exact_to_eight_digits(k: int) -> None:
    params, delta = PrivacyParams(0.2676, 1e-7), 1e-3
    epsilon = compose_optimal(params, k, delta).epsilon
    with mpmath.workdps(50):
        e, d = mpmath.mpf(params.epsilon), mpmath.mpf(params.delta)

        def compute_delta(total: float) -> mpmath.mpf:
            terms = (
                mpmath.binomial(k, n) * max(mpmath.mpf(0), mpmath.exp(n * e) - mpmath.exp(total + (k - n) * e))
                for n in range(k + 1)
            )
            return 1 - (1 - d) ** k * (1 - mpmath.fsum(terms) / (1 + mpmath.exp(e)) ** k)

        assert compute_delta(epsilon) <= delta
        assert compute_delta(epsilon * (1 - 1e-8)) > delta


def test_the_loss_of_a_hundred_thousand_queries_is_close_to_normal() -> None:
    epsilon, mean = compose_optimal(PrivacyParams(0.01, 0), 100_000, 1e-6).epsilon, 5.0  # kε²/2
    # the variance is 2·mean: the analytic Gaussian with σ = 1/√(2·mean)
    deltas = [gaussian_delta(epsilon + shift, math.sqrt(0.5 / mean), 1.0) for shift in (0.01, -0.01)]
    assert deltas[0] < 1e-6 < deltas[1]


@pytest.mark.parametrize("delta", [1e-12, 1e-100, 1e-300, 1e-320])
def test_a_tiny_delta_keeps_its_meaning(delta: float) -> None:
    k, params = 4000, PrivacyParams(1.0, 0)
    epsilon = compose_optimal(params, k, delta).epsilon
    losses = LossDistribution.from_groups([(1.0, k)])
    # up to the bound on rounding, which grows with the number of atoms that are summed
    assert losses.log_divergence(epsilon) <= math.log(delta) + 1e-9
    assert losses.log_divergence(epsilon - 1e-6) > math.log(delta)
    assert compose_optimal(params, k, delta * 8.0).epsilon < epsilon


def test_optimal_at_the_limits() -> None:
    pure = PrivacyParams(0.3, 0)
    assert 3 <= compose_optimal(pure, 10, 0.0).exact_epsilon <= 3 * (1 + Fraction(1, 10**15))
    assert compose_optimal(PrivacyParams(0.25, 0), 4, 0.0).epsilon == 1.0
    assert compose_optimal(PrivacyParams(0.3, 1e-5), 1, 1e-5).epsilon == pytest.approx(0.3, rel=1e-15)
    assert compose_optimal(PrivacyParams(0, 1e-5), 10, 1e-3).epsilon == 0.0
    assert compose_optimal(pure, 10, 0.999999).epsilon == 0.0
    # kδ leaves a little more than 1 − (1 − δ)^k
    assert 0.9999 < compose_optimal(PrivacyParams(0.1, 1e-5), 10, 1e-4).epsilon < 1.0


def test_simple_is_exact() -> None:
    total = compose_simple(PrivacyParams("0.1", "1e-5"), 7)
    assert (total.exact_epsilon, total.exact_delta) == (Fraction(7, 10), Fraction(7, 10**5))


QUERY = PrivacyParams(0.1, 1e-5)


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (lambda: compose_optimal(QUERY, 10, 5e-5), r"delta must be above .* allow a larger delta"),
        (lambda: compose_simple(PrivacyParams(0.1, 0.1), 10), "k must be below"),
        (lambda: compose_simple(QUERY, 0), "k must be an integer"),
        (lambda: compose_simple(QUERY, 2.5), "k must be an integer"),  # type: ignore[arg-type]
        (lambda: compose_general(QUERY, 0, 1e-4), "k must be an integer"),
        (lambda: compose_optimal(QUERY, 0, 0.1), "k must be an integer"),
        (lambda: compose_general(QUERY, 3, 0.0), "delta_prime"),
        (lambda: compose_general(QUERY, 3, 1.0), "delta_prime"),
        (lambda: compose_general(QUERY, 3, math.nan), "delta_prime"),
        (lambda: compose_optimal(QUERY, 3, 1.0), "delta"),
        (lambda: LossDistribution.from_groups([(0.1 * i, 10) for i in range(1, 9)]), "too many terms"),
    ],
)
def test_composition_refuses(compose: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        compose()
    assert isinstance(refusal.value, TooManyKindsError) == ("terms" in message)


@given(
    epsilon=st.floats(0.01, 2.0), each_delta=st.sampled_from([0.0, 1e-6, 1e-4]), k=st.integers(1, 300),
    slack=st.sampled_from([1e-9, 1e-4, 0.01]),
)  # fmt: skip
def test_optimal_is_at_most_general_and_general_at_most_simple(
    epsilon: float, each_delta: float, k: int, slack: float
) -> None:
    params = PrivacyParams(epsilon, each_delta)
    general = compose_general(params, k, slack)
    assert compose_optimal(params, k, general.delta).epsilon <= general.epsilon * (1.0 + 1e-12)
    assert general.epsilon <= k * params.epsilon * (1.0 + 1e-12)
