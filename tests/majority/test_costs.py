"""The cost of one answer: its profile and its Rényi divergences against every corner and exact arithmetic."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.majority.costs import RenyiRows, divergence, privacy_profile, reflect, renyi_curve, renyi_divergences
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from tests.oracle import all_multisets, lowest_partner


def brute_force(problem: Problem, gamma: NoiseFunction, epsilon: float) -> float:
    """Largest Pr_p[o] − e^ε Pr_{p'}[o] over all corners and both outputs o."""
    p, p_prime = all_multisets(problem.voters)
    truth = (1.0 + gamma.signed) / 2.0
    first, second = poisson_binomial_pmf(p) @ truth, poisson_binomial_pmf(p_prime) @ truth
    ones = first - math.exp(epsilon) * second
    zeros = (1.0 - first) - math.exp(epsilon) * (1.0 - second)
    return float(max(0.0, ones.max(), zeros.max()))


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("delta", ["0", "1e-3", "0.05"])
def test_profile_is_the_worst_divergence(K: int, delta: str) -> None:
    problem = Problem.from_allowance(Voters(K, PrivacyParams("0.4", delta)), "1")
    generator = np.random.default_rng(K)
    size = K - K // 2
    for half in (np.ones(size), np.linspace(0.2, 0.9, size), generator.uniform(size=size)):
        gamma = NoiseFunction(K, half)
        for epsilon in ("0", "0.05", "0.3", "0.4", "0.9", "3"):
            exact = brute_force(problem, gamma, float(epsilon))
            bound = divergence(problem.voters, gamma, Fraction(epsilon))
            assert bound >= exact * (1.0 - 1e-12) - 1e-15
            assert bound == pytest.approx(exact, abs=1e-12)


def test_profile_of_the_problem() -> None:
    problem = Problem.from_allowance(Voters(5, PrivacyParams("0.1", "1e-3")), 2)
    gamma = NoiseFunction(5, [0.6, 0.9, 1.0])
    profile = privacy_profile(problem, gamma, points=9)
    assert profile.epsilons == pytest.approx(np.linspace(0.0, 0.4, 9))
    exact = [brute_force(problem, gamma, epsilon) for epsilon in np.linspace(0.0, 0.4, 9)]
    assert profile.deltas == pytest.approx(exact, abs=1.1e-12)
    assert all(bound >= true for bound, true in zip(profile.deltas, exact, strict=True))
    assert profile.deltas[0] > profile.deltas[3] > profile.deltas[5]


EACH = (PrivacyParams("inf"), PrivacyParams("0.5"), PrivacyParams("0.3", "0.05"), PrivacyParams("2", "0.01"))
ORDERS = (1.01, 1.5, 2.0, 8.0, 40.0)


def problem_of(K: int, each: PrivacyParams, overlap: int | None) -> Problem:
    return Problem(Voters(K, each, overlap=overlap), each if each.is_private else PrivacyParams(1))


def monotone(K: int, rng: np.random.Generator, *, top: float = 1.0) -> NoiseFunction:
    return NoiseFunction(K, np.minimum(np.sort(rng.random(K - K // 2)) * 1.3, top))


def definition(order: float, p: float, q: float) -> mpmath.mpf:
    """The definition, with 0^a·0^{1−a} = 0 and 40 digits."""
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for x, y in ((p, q), (1 - mpmath.mpf(p), 1 - mpmath.mpf(q))):
            if x <= 0:
                continue
            if y <= 0:
                return mpmath.inf
            total += mpmath.mpf(x) ** order * mpmath.mpf(y) ** (1 - order)
        return max(mpmath.mpf(0), mpmath.log(total) / (order - 1))


def worst_of(pairs: list[tuple[float, float]], order: float) -> float:
    return float(max(max(definition(order, p, q), definition(order, q, p)) for p, q in pairs))


def laws(gamma: NoiseFunction, p: np.ndarray, p_prime: np.ndarray) -> list[tuple[float, float]]:
    h = 0.5 * (1.0 + gamma.signed)
    pairs = zip(poisson_binomial_pmf(p) @ h, poisson_binomial_pmf(p_prime) @ h, strict=True)
    return sorted({(round(float(a), 15), round(float(b), 15)) for a, b in pairs})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("each", EACH, ids=str)
@pytest.mark.parametrize("K", [1, 2, 3, *(pytest.param(K, marks=pytest.mark.slow) for K in (4, 5))])
def test_every_multiset_of_every_corner_for_every_overlap(K: int, each: PrivacyParams) -> None:
    rng = np.random.default_rng(K)
    for overlap in range(1, K + 1):
        problem = problem_of(K, each, overlap)
        gamma = monotone(K, rng, top=0.999)
        pairs = laws(gamma, *all_multisets(problem.voters))
        result = renyi_divergences(problem.voters, gamma, ORDERS)
        for order, bound in zip(ORDERS, result, strict=True):
            truth = worst_of(pairs, order)
            assert truth * (1 - 1e-9) <= bound <= truth * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize("each", EACH[1:], ids=str)
@pytest.mark.parametrize(("K", "overlap"), [(2, 1), (3, 2), (4, 4), (5, 3)])
def test_no_point_between_the_corners_is_worse(K: int, overlap: int, each: PrivacyParams) -> None:
    rng = np.random.default_rng(7)
    problem = problem_of(K, each, overlap)
    gamma = monotone(K, rng)
    bounds = renyi_divergences(problem.voters, gamma, ORDERS)
    count = 3_000
    p = rng.choice([0.0, 1.0, rng.random(), 0.5], (count, K)) * rng.random((count, K)).round(1)
    low, high = lowest_partner(p, each), 1.0 - lowest_partner(1.0 - p, each)
    p_prime = low + (high - low) * rng.choice([0.0, 1.0, rng.random()], (count, K))
    p_prime[:, overlap:] = p[:, overlap:]
    h = 0.5 * (1.0 + gamma.signed)
    P, Q = poisson_binomial_pmf(p) @ h, poisson_binomial_pmf(p_prime) @ h
    inside = (P > 1e-9) & (P < 1 - 1e-9) & (Q > 1e-9) & (Q < 1 - 1e-9)
    P, Q = P[inside], Q[inside]
    for order, bound in zip(ORDERS, bounds, strict=True):
        total = P**order * Q ** (1 - order) + (1 - P) ** order * (1 - Q) ** (1 - order)
        assert np.max(np.log(total)) / (order - 1) <= bound + 1e-12


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "each", [EACH[0], EACH[2], *(pytest.param(EACH[n], marks=pytest.mark.slow) for n in (1, 3))], ids=str
)
@pytest.mark.parametrize(
    "half",
    [
        [1.0, 1.0, 1.0],
        [0.0, 0.0, 1.0],
        [0.2, 0.3, 1.0],
        *(pytest.param(half, marks=pytest.mark.slow) for half in ([0.0, 1.0, 1.0], [0.0, 0.0, 0.0])),
    ],
)
def test_certain_answers(each: PrivacyParams, half: list[float]) -> None:
    for overlap in (1, 2, 5):
        problem = problem_of(5, each, overlap)
        gamma = NoiseFunction(5, half)
        pairs = laws(gamma, *all_multisets(problem.voters))
        for order, bound in zip((1.5, 3.0), renyi_divergences(problem.voters, gamma, (1.5, 3.0)), strict=True):
            truth = worst_of(pairs, order)
            assert bound == truth if math.isinf(truth) else truth - 1e-12 <= bound <= truth * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize(("K", "each", "overlap"), [(301, PrivacyParams("0.1", "1e-5"), None), (200, EACH[1], 7)])
def test_the_rounding_is_covered_for_many_voters(K: int, each: PrivacyParams, overlap: int | None) -> None:
    problem = problem_of(K, each, overlap)
    levels = np.arange(K // 2 + 1, K + 1)
    gamma = NoiseFunction(K, np.minimum((2 * levels - K) / 60.0, 1.0 - 2.0**-36))
    rows = RenyiRows(problem.voters)
    order = 12.0
    bound = renyi_divergences(problem.voters, gamma, [order])[0]
    corners = rows.family.corners
    h = 0.5 * (1.0 + gamma.signed)
    for j, level in enumerate(rows.levels(gamma.half)):
        if j not in (1, 3, problem.voters.reached):
            continue
        exponent = order * np.log(level.ones) - (order - 1) * np.log(reflect(level.zeros))
        frozen, place = np.unravel_index(int(np.argmax(exponent)), exponent.shape)
        moved = problem.voters.reached - j - place if each.delta else 0
        with mpmath.workdps(60):
            hi, delta = mpmath.mpf(corners.ball_hi.mid().str(40, radius=False)), mpmath.mpf(str(each.delta))
            weights = mpmath.matrix(1, K + 1)
            certain = int(frozen + place)
            up = [mpmath.binomial(j, i) * hi**i * (1 - hi) ** (j - i) for i in range(j + 1)]
            near = [
                mpmath.binomial(moved, i) * delta**i * (1 - delta) ** (moved - i) for i in range(min(moved, 12) + 1)
            ]
            for i, a in enumerate(up):
                for k, b in enumerate(near):
                    weights[0, certain + i + k] += a * b
            P = mpmath.fsum(weights[0, s] * mpmath.mpf(h[s]) for s in range(K + 1))
            assert abs(P / mpmath.mpf(level.ones[frozen, place]) - 1) <= rows.relative_error()
            not_P = mpmath.fsum(weights[0, s] * (1 - mpmath.mpf(h[s])) for s in range(K + 1))
            assert abs(not_P / mpmath.mpf(level.zeros[frozen, place]) - 1) <= rows.relative_error()
        q = float(reflect(level.zeros)[frozen, place])
        assert float(definition(order, float(P), q)) <= bound


@given(st.integers(1, 7), st.sampled_from(EACH), st.data())
def test_convex_and_repaired_by_scaling(K: int, each: PrivacyParams, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(1, K))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    share = data.draw(st.floats(0.0, 1.0))
    problem = problem_of(K, each, overlap)
    first, second = monotone(K, rng, top=0.99), monotone(K, rng, top=0.99)
    between = NoiseFunction(K, share * first.half + (1.0 - share) * second.half)
    for order in (1.5, 4.0, 30.0):
        size = [
            math.exp((order - 1) * renyi_divergences(problem.voters, gamma, [order])[0])
            for gamma in (first, second, between)
        ]
        assert size[2] <= (share * size[0] + (1 - share) * size[1]) * (1 + 1e-9)
        scaled = math.exp((order - 1) * renyi_divergences(problem.voters, first.scale_by(share), [order])[0])
        assert scaled <= (1 - share + share * size[0]) * (1 + 1e-9)


@given(st.floats(1e-12, 40.0), st.integers(2, 30))
def test_the_curve_hides_the_last_digits_and_never_falls_below(scale: float, K: int) -> None:
    problem = problem_of(K, PrivacyParams("inf"), 1)
    gamma = NoiseFunction(K, np.minimum(np.arange(1, K - K // 2 + 1) * scale / 100.0, 0.99))
    orders = np.array([1.5, 2.0, 30.0])
    exact, curve = renyi_divergences(problem.voters, gamma, orders), renyi_curve(problem.voters, gamma, orders).values
    assert np.all(exact <= curve)
    assert np.all(curve <= exact * (1 + 1.1e-9))
    assert [float(f"{value:.10g}") for value in curve] == pytest.approx(curve.tolist(), rel=1e-14)


def test_what_is_refused() -> None:
    problem = problem_of(3, PrivacyParams("0.5"), None)
    with pytest.raises(ValueError, match="only a monotone γ"):
        renyi_divergences(problem.voters, NoiseFunction(3, [1.0, 0.5]), [2.0])
    with pytest.raises(ValueError, match=r"gamma\.K must be the voters' K = 3"):
        renyi_divergences(problem.voters, NoiseFunction(5, [0.1, 0.2, 0.3]), [2.0])
    for order in (1.0, np.inf):
        with pytest.raises(ValueError, match="orders must be finite and above 1"):
            renyi_divergences(problem.voters, NoiseFunction(3, [0.5, 0.5]), [order])
    for points, K, message in ((8, 3, "points must be odd"), (1, 3, "points"), (9, 5, r"gamma\.K")):
        with pytest.raises(ValueError, match=message):
            privacy_profile(problem, NoiseFunction(K, np.full(K - K // 2, 0.5)), points=points)


def test_large_problems_say_infinity_rather_than_too_little() -> None:
    # 1 − hi is about 1e-16 at 36 and 0 at 40, and its rounding is no small part of it
    for epsilon in ("30", "36", "40", "600"):
        problem = Problem.from_allowance(Voters(11, PrivacyParams(epsilon)), 1)
        assert np.isinf(renyi_divergences(problem.voters, NoiseFunction(11, np.full(6, 0.5)), [2.0])[0])
    problem = Problem.from_allowance(Voters(1, PrivacyParams(1)), 1)
    assert renyi_divergences(problem.voters, NoiseFunction(1, [1.0]), [1e6])[0] == pytest.approx(1.0, abs=1e-5)
    assert renyi_divergences(problem.voters, NoiseFunction(1, [1.0]), [1.7e308])[0] >= 1.0
    # probabilities below every float: γ = 1 for all but a tie-breaking few of a thousand voters
    problem = Problem.from_allowance(Voters(1001, PrivacyParams("3")), 1)
    half = np.ones(501)
    half[:3] = 0.5
    bound = renyi_divergences(problem.voters, NoiseFunction(1001, half), [2.0])[0]
    assert bound >= renyi_divergences(problem.voters, NoiseFunction(1001, half * (1 - 1e-9)), [2.0])[0]
