"""The cost of one answer: its profile and its Rényi divergences against every corner and exact arithmetic."""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.majority import costs
from darrm.majority.costs import RenyiRows, divergence, privacy_profile, reflect, renyi_curve, renyi_divergences
from darrm.majority.noise_function import NoiseFunction
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.oracle import all_multisets, laws_of_ones, lowest_partner, signed_floats

EACH = (PrivacyParams("inf"), PrivacyParams("0.5"), PrivacyParams("0.3", "0.05"), PrivacyParams("2", "0.01"))
ORDERS = (1.01, 1.5, 2.0, 8.0, 40.0)


def answer_laws(gamma: NoiseFunction, p: np.ndarray, p_prime: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute Pr[output 1] under p and under p'."""
    h = 0.5 * (1.0 + signed_floats(gamma.K, gamma.half))
    return laws_of_ones(p) @ h, laws_of_ones(p_prime) @ h


def worst_delta(voters: Voters, gamma: NoiseFunction, epsilon: float) -> float:
    """Compute the largest Pr_p[o] − e^ε Pr_{p'}[o] over all corners and both outputs o."""
    first, second = answer_laws(gamma, *all_multisets(voters))
    ones = first - math.exp(epsilon) * second
    zeros = (1.0 - first) - math.exp(epsilon) * (1.0 - second)
    return float(max(0.0, ones.max(), zeros.max()))


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("each", [PrivacyParams("inf"), *(PrivacyParams("0.4", d) for d in ("0", "1e-3", "0.05"))])
def test_divergence_is_the_worst_of_all_corners(K: int, each: PrivacyParams) -> None:
    voters = Voters(K, each, overlap=None if each.is_private else 1)
    size = K - K // 2
    for half in (np.ones(size), np.linspace(0.2, 0.9, size), np.random.default_rng(K).uniform(size=size)):
        gamma = NoiseFunction(K, half)
        for epsilon in ("0", "0.05", "0.3", "0.4", "0.9", "3"):
            exact = worst_delta(voters, gamma, float(epsilon))
            bound = divergence(voters, gamma, Fraction(epsilon))
            assert exact * (1.0 - 1e-12) - 1e-15 <= bound <= exact + 1e-12


def test_profile_is_the_divergence_up_to_twice_the_targets_epsilon() -> None:
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1", "1e-3")), 2)
    gamma = NoiseFunction(5, [0.6, 0.9, 1.0])
    profile = privacy_profile(problem, gamma, points=9)
    assert profile.epsilons == pytest.approx(np.linspace(0.0, 0.4, 9))
    for epsilon, bound in zip(np.linspace(0.0, 0.4, 9), profile.deltas, strict=True):
        exact = worst_delta(problem.voters, gamma, epsilon)
        assert exact <= bound <= exact + 1.1e-12


def monotone(K: int, rng: np.random.Generator, *, top: float = 1.0) -> NoiseFunction:
    return NoiseFunction(K, np.minimum(np.sort(rng.random(K - K // 2)) * 1.3, top))


def bernoulli_divergence(order: float, p: float, q: float) -> mpmath.mpf:
    """Compute the Rényi divergence by its definition, with 0^a·0^{1−a} = 0 and 40 digits."""
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for x, y in ((p, q), (1 - mpmath.mpf(p), 1 - mpmath.mpf(q))):
            if x <= 0:
                continue
            if y <= 0:
                return mpmath.inf
            total += mpmath.mpf(x) ** order * mpmath.mpf(y) ** (1 - order)
        return max(mpmath.mpf(0), mpmath.log(total) / (order - 1))


def worst_divergence(voters: Voters, gamma: NoiseFunction, order: float) -> float:
    first, second = answer_laws(gamma, *all_multisets(voters))
    pairs = {(round(float(p), 15), round(float(q), 15)) for p, q in zip(first, second, strict=True)}
    divergences = (bernoulli_divergence(order, *pair) for p, q in pairs for pair in ((p, q), (q, p)))
    return float(max(divergences))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("each", EACH, ids=str)
@pytest.mark.parametrize("K", [1, 2, 3, *(pytest.param(K, marks=pytest.mark.slow) for K in (4, 5))])
def test_renyi_divergence_is_the_worst_of_all_corners_for_every_overlap(K: int, each: PrivacyParams) -> None:
    gamma = monotone(K, np.random.default_rng(K), top=0.999)
    for overlap in range(1, K + 1):
        voters = Voters(K, each, overlap)
        for order, bound in zip(ORDERS, renyi_divergences(voters, gamma, ORDERS), strict=True):
            exact = worst_divergence(voters, gamma, order)
            assert exact * (1 - 1e-9) <= bound <= exact * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize("each", EACH, ids=str)
@pytest.mark.parametrize(("K", "overlap"), [(5, 2), (30, None), (41, 3)])
def test_rows_are_ruled_out_only_below_the_worst_divergence(
    K: int, overlap: int | None, each: PrivacyParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    voters = Voters(K, each, overlap if each.is_private else 1)
    rng = np.random.default_rng(K)
    gammas = [monotone(K, rng, top=0.999), NoiseFunction(K, np.linspace(0.0, 0.9, K - K // 2) ** 3)]
    for gamma in gammas:
        divergences = []
        for batch in (1, 10**9):
            monkeypatch.setattr(costs, "_ROWS_PER_BATCH", batch)
            divergences.append(renyi_divergences(voters, gamma, ORDERS).tolist())
        assert divergences[0] == divergences[1]


@pytest.mark.parametrize("each", EACH[1:], ids=str)
@pytest.mark.parametrize(("K", "overlap"), [(2, 1), (3, 2), (4, 4), (5, 3)])
def test_no_point_between_the_corners_has_a_larger_renyi_divergence(K: int, overlap: int, each: PrivacyParams) -> None:
    rng = np.random.default_rng(7)
    gamma = monotone(K, rng)
    bounds = renyi_divergences(Voters(K, each, overlap), gamma, ORDERS)
    p = rng.choice([0.0, 1.0, rng.random(), 0.5], (3_000, K)) * rng.random((3_000, K)).round(1)
    low, high = lowest_partner(p, each), 1.0 - lowest_partner(1.0 - p, each)
    p_prime = low + (high - low) * rng.choice([0.0, 1.0, rng.random()], p.shape)
    p_prime[:, overlap:] = p[:, overlap:]
    P, Q = answer_laws(gamma, p, p_prime)
    inside = (P > 1e-9) & (P < 1 - 1e-9) & (Q > 1e-9) & (Q < 1 - 1e-9)
    P, Q = P[inside], Q[inside]
    for order, bound in zip(ORDERS, bounds, strict=True):
        total = P**order * Q ** (1 - order) + (1 - P) ** order * (1 - Q) ** (1 - order)
        assert np.max(np.log(total)) / (order - 1) <= bound + 1e-12


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("each", [EACH[0], EACH[2], EACH[1], EACH[3]], ids=str)
@pytest.mark.parametrize("half", [[1.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.2, 0.3, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
def test_certain_answers_have_an_exact_or_infinite_divergence(each: PrivacyParams, half: list[float]) -> None:
    gamma = NoiseFunction(5, half)
    for overlap in (1, 2, 5):
        voters = Voters(5, each, overlap)
        for order, bound in zip((1.5, 3.0), renyi_divergences(voters, gamma, (1.5, 3.0)), strict=True):
            exact = worst_divergence(voters, gamma, order)
            assert bound == exact if math.isinf(exact) else exact - 1e-12 <= bound <= exact * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize(("K", "each", "overlap"), [(301, PrivacyParams("0.1", "1e-5"), None), (200, EACH[1], 7)])
def test_relative_error_covers_the_rounding_for_many_voters(K: int, each: PrivacyParams, overlap: int | None) -> None:
    voters = Voters(K, each, overlap)
    gamma = NoiseFunction(K, np.minimum((2 * np.arange(K // 2 + 1, K + 1) - K) / 60.0, 1.0 - 2.0**-36))
    rows, order = RenyiRows(voters), 12.0
    bound = renyi_divergences(voters, gamma, [order])[0]
    h = 0.5 * (1.0 + gamma.signed)
    for j, level in enumerate(rows.levels(gamma.half)):
        if j not in (1, 3, voters.reached):
            continue
        exponent = order * np.log(level.ones) - (order - 1) * np.log(reflect(level.zeros))
        frozen, place = np.unravel_index(int(np.argmax(exponent)), exponent.shape)
        with mpmath.workdps(60):
            hi = mpmath.mpf(rows.family.corners.ball_hi.mid().str(40, radius=False))
            moved = int(voters.reached - j - place) if each.delta else 0
            weights = mpmath.matrix(1, K + 1)
            for ups, up_weight in binomial_law(j, hi, j):
                for moves, weight in binomial_law(moved, mpmath.mpf(str(each.delta)), 12):
                    weights[0, int(frozen + place) + ups + moves] += up_weight * weight
            P = mpmath.fsum(weights[0, s] * mpmath.mpf(h[s]) for s in range(K + 1))
            not_P = mpmath.fsum(weights[0, s] * (1 - mpmath.mpf(h[s])) for s in range(K + 1))
            for exact, computed in ((P, level.ones[frozen, place]), (not_P, level.zeros[frozen, place])):
                assert abs(exact / mpmath.mpf(computed) - 1) <= rows.relative_error()
        q = float(reflect(level.zeros)[frozen, place])
        assert float(bernoulli_divergence(order, float(P), q)) <= bound


def binomial_law(n: int, p: mpmath.mpf, last: int) -> list[tuple[int, mpmath.mpf]]:
    return [(i, mpmath.binomial(n, i) * p**i * (1 - p) ** (n - i)) for i in range(min(n, last) + 1)]


@given(st.integers(1, 7), st.sampled_from(EACH), st.data())
def test_renyi_sums_are_convex_and_fall_with_scaling(K: int, each: PrivacyParams, data: st.DataObject) -> None:
    voters = Voters(K, each, data.draw(st.integers(1, K)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    share = data.draw(st.floats(0.0, 1.0))
    first, second = monotone(K, rng, top=0.99), monotone(K, rng, top=0.99)
    between = NoiseFunction(K, share * first.half + (1.0 - share) * second.half)
    for order in (1.5, 4.0, 30.0):
        E_first, E_second, E_between, E_scaled = (
            math.exp((order - 1) * renyi_divergences(voters, gamma, [order])[0])
            for gamma in (first, second, between, first.scale_by(share))
        )
        assert E_between <= (share * E_first + (1 - share) * E_second) * (1 + 1e-9)
        assert E_scaled <= (1 - share + share * E_first) * (1 + 1e-9)


@given(st.floats(1e-12, 40.0), st.integers(2, 30))
def test_renyi_curve_rounds_up_to_ten_digits(scale: float, K: int) -> None:
    voters = Voters(K, PrivacyParams("inf"), 1)
    gamma = NoiseFunction(K, np.minimum(np.arange(1, K - K // 2 + 1) * scale / 100.0, 0.99))
    orders = np.array([1.5, 2.0, 30.0])
    exact, curve = renyi_divergences(voters, gamma, orders), renyi_curve(voters, gamma, orders).values
    assert np.all((exact <= curve) & (curve <= exact * (1 + 1.1e-9)))
    assert [float(f"{value:.10g}") for value in curve] == pytest.approx(curve.tolist(), rel=1e-14)


THREE = Problem(Voters(3, PrivacyParams("0.5")), PrivacyParams("0.5"))
HALVES = NoiseFunction(3, [0.5, 0.5])


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: renyi_divergences(THREE.voters, NoiseFunction(3, [1.0, 0.5]), [2.0]), "only a monotone γ"),
        (lambda: renyi_divergences(THREE.voters, NoiseFunction(5, [0.1, 0.2, 0.3]), [2.0]), r"gamma\.K .* K = 3"),
        (lambda: renyi_divergences(THREE.voters, HALVES, [1.0]), "orders must be finite and above 1"),
        (lambda: renyi_divergences(THREE.voters, HALVES, [np.inf]), "orders must be finite and above 1"),
        (lambda: privacy_profile(THREE, HALVES, points=8), "points must be odd"),
        (lambda: privacy_profile(THREE, HALVES, points=1), "points"),
        (lambda: privacy_profile(THREE, NoiseFunction(5, [0.5, 0.5, 0.5]), points=9), r"gamma\.K"),
    ],
)
def test_costs_refuse_arguments_out_of_range(compute: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute()


@pytest.mark.parametrize("epsilon", ["30", "36", "40", "600"])
def test_renyi_divergence_is_infinite_where_floats_lose_the_smaller_probability(epsilon: str) -> None:
    # 1 − hi is about 1e-16 at 36 and 0 at 40, and its rounding is a large part of it
    voters = Voters(11, PrivacyParams(epsilon))
    assert np.isinf(renyi_divergences(voters, NoiseFunction(11, np.full(6, 0.5)), [2.0])[0])


def test_renyi_divergence_stays_a_bound_at_enormous_orders_and_tiny_probabilities() -> None:
    voters = Voters(1, PrivacyParams(1))
    assert renyi_divergences(voters, NoiseFunction(1, [1.0]), [1e6])[0] == pytest.approx(1.0, abs=1e-5)
    assert renyi_divergences(voters, NoiseFunction(1, [1.0]), [1.7e308])[0] >= 1.0
    # probabilities below every float: γ = 1 except near the tie of a thousand voters
    voters = Voters(1001, PrivacyParams("3"))
    half = np.ones(501)
    half[:3] = 0.5
    bound, smaller = (
        renyi_divergences(voters, NoiseFunction(1001, values), [2.0])[0] for values in (half, half * (1 - 1e-9))
    )
    assert bound >= smaller
