"""The best private plurality against definitions: every histogram, no symmetry, fractions; and the known values."""

import itertools
import math
from fractions import Fraction
from typing import Any

import highspy
import numpy as np
import pytest

from darrm.errors import CertificationError
from darrm.optimize.plurality import SMALLEST_PROBABILITY, optimize_plurality, optimize_plurality_under_renyi
from darrm.plurality.accuracy_bound import PairMultipliers, upper_bound
from darrm.plurality.partitions import list_partitions
from darrm.plurality.plurality_law import ONE, PluralityLaw
from darrm.plurality.proof import curve_of_law, profile_of_law, prove
from darrm.priors import Dirichlet, Prior, RecordedVotes
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import certify
from darrm.votes import Votes

NON_PRIVATE = PrivacyParams("inf")


def state_problem(K: int, classes: int, epsilon: str = "0.5", delta: str = "1e-5", overlap: int = 1) -> Problem:
    return Problem(Voters(K, NON_PRIVATE, overlap=overlap), PrivacyParams(epsilon, delta), classes)


def list_histograms(K: int, classes: int) -> list[tuple[int, ...]]:
    return [n for n in itertools.product(range(K + 1), repeat=classes) if sum(n) == K]


def are_neighbors(first: tuple[int, ...], second: tuple[int, ...], reached: int) -> bool:
    return 0 < sum(abs(a - b) for a, b in zip(first, second, strict=True)) <= 2 * reached


def exact_divergence(law: PluralityLaw, ratio: Fraction, reached: int) -> Fraction:
    """Compute the largest Σ_c (h_c − ratio·h'_c)_+ over all neighboring histograms, from the law's weights."""
    partitions = law.partitions

    def answers(counts: tuple[int, ...]) -> list[Fraction]:
        place = partitions.places[tuple(sorted(counts, reverse=True))]
        groups = [partitions.groups[place, votes] for votes in counts]
        return [Fraction(int(law.weights[g]), ONE * int(partitions.sizes[g])) for g in groups]

    laws = {counts: answers(counts) for counts in list_histograms(law.K, law.classes)}
    assert all(sum(h) == 1 for h in laws.values())
    return max(
        sum((max(Fraction(0), p - ratio * q) for p, q in zip(laws[n], laws[other], strict=True)), Fraction(0))
        for n in laws
        for other in laws
        if are_neighbors(n, other, reached)
    )


def optimize_without_symmetry(K: int, classes: int, epsilon: float, delta: float, reached: int) -> float:
    """Solve with a variable for each class of each histogram and a slack for each class of each pair."""
    histograms = list_histograms(K, classes)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    tops = [[c for c in range(classes) if n[c] == max(n)] for n in histograms]
    h = [[highs.addVariable(0.0, 1.0) for _ in range(classes)] for _ in histograms]
    for row in h:
        highs.addConstr(sum(row[1:], row[0]) == 1.0)
    for i, j in itertools.permutations(range(len(histograms)), 2):
        if are_neighbors(histograms[i], histograms[j], reached):
            slacks = [highs.addVariable(0.0, 1.0) for _ in range(classes)]
            for c in range(classes):
                highs.addConstr(h[i][c] - math.exp(epsilon) * h[j][c] - slacks[c] <= 0.0)
            highs.addConstr(sum(slacks[1:], slacks[0]) <= delta)
    gains = [h[i][c] for i, top in enumerate(tops) for c in top]
    highs.maximize(sum(gains[1:], gains[0]))
    return float(highs.getInfo().objective_function_value) / len(histograms)


@pytest.mark.parametrize(
    ("K", "classes", "epsilon", "delta", "reached"),
    [
        (1, 3, "1", "0", 1),
        (3, 3, "0.5", "0.01", 1),
        (4, 3, "0.4", "1e-3", 1),
        (3, 3, "0.5", "0.05", 2),
        (2, 4, "1", "0.1", 2),
        *((K, 2, "0.5", "1e-3", 1) for K in (7, 10)),
    ],
)
def test_optimum_is_that_of_all_mechanisms_on_histograms(
    K: int, classes: int, epsilon: str, delta: str, reached: int
) -> None:
    problem = state_problem(K, classes, epsilon, delta, reached)
    table = optimize_plurality(problem)
    expected = optimize_without_symmetry(K, classes, float(epsilon), float(delta), reached)
    assert table.accuracy == pytest.approx(expected, abs=1e-8)
    assert table.optimality is not None
    assert not table.optimality.claimed
    assert table.optimality.bound == pytest.approx(expected, abs=1e-8)
    # e^ε from below, by its Taylor series: the differences come out a hair too large, if anything
    ratio = sum((Fraction(epsilon) ** n / math.factorial(n) for n in range(40)), Fraction(0))
    exact = exact_divergence(table.plurality, ratio, reached)
    assert exact <= Fraction(delta) + Fraction(1, 10**30)
    assert float(exact) == pytest.approx(table.certificate.worst_cost, abs=1e-15)


@pytest.mark.parametrize(
    ("K", "classes", "share"), [(30, 3, 0.8903), (12, 5, 0.6048), (20, 3, 0.8424), (16, 4, 0.7294)]
)
def test_optimum_has_the_reference_accuracy(K: int, classes: int, share: float) -> None:
    table = optimize_plurality(state_problem(K, classes))
    assert table.accuracy == pytest.approx(share, abs=5e-5)
    assert table.optimality is not None
    assert table.optimality.gap < 1e-9


@pytest.mark.parametrize(
    ("K", "classes", "order", "budget", "share"), [(30, 3, 8.0, 0.08, 0.7576), (16, 4, 8.0, 0.08, 0.5299)]
)
def test_optimum_under_a_renyi_budget_has_the_reference_accuracy(
    K: int, classes: int, order: float, budget: float, share: float
) -> None:
    optimum = optimize_plurality_under_renyi(Voters(K, NON_PRIVATE, overlap=1), classes, Dirichlet(), order, budget)
    assert optimum.value == pytest.approx(share, abs=5e-5)
    assert optimum.value <= optimum.bound + 1e-9 <= optimum.value + 2e-5
    curve = curve_of_law(optimum.law, 1)
    assert curve.values[curve.orders == order] == pytest.approx(budget, abs=1e-9)
    assert optimum.law.each.min() >= SMALLEST_PROBABILITY * (1 - 1e-3)


@pytest.mark.parametrize("reached", [1, 2])
def test_curve_and_profile_are_those_of_the_definition(reached: int) -> None:
    rng = np.random.default_rng(7)
    shares = rng.uniform(0.0, 1.0, list_partitions(4, 3).sizes.size)
    sizes, blocks = list_partitions(4, 3).sizes, list_partitions(4, 3).blocks
    law = PluralityLaw.from_probabilities(4, 3, shares / np.bincount(blocks, shares * sizes)[blocks])
    profile = profile_of_law(law, reached)
    assert profile is not None
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        exact = float(exact_divergence(law, Fraction(math.exp(epsilon)), reached))
        assert exact <= profile.delta_at(epsilon) <= exact + 1e-3 * (1.0 - exact)
    corner = profile.epsilons[len(profile.epsilons) // 2]
    assert profile.delta_at(corner) == pytest.approx(
        float(exact_divergence(law, Fraction(math.exp(corner)), reached)), abs=2e-12
    )
    histograms = np.array(list_histograms(4, 3))
    h = law.probabilities(histograms)
    curve = curve_of_law(law, reached)
    place = int(np.flatnonzero(curve.orders == 8.0)[0])
    divergences = [
        math.log(float(np.sum(h[i] ** 8.0 * h[j] ** -7.0))) / 7.0
        for i, j in itertools.permutations(range(len(h)), 2)
        if are_neighbors(tuple(histograms[i]), tuple(histograms[j]), reached)
    ]
    assert max(divergences) <= curve.values[place] <= max(divergences) * (1.0 + 1e-9)


def test_a_law_over_its_budget_is_refused_and_repaired() -> None:
    problem = state_problem(4, 3, "0.5", "1e-3")
    best = optimize_plurality(problem).plurality
    weights = best.weights.copy()
    weights[0] += 2**40  # an eight-thousandth more for unanimity, taken from the others
    weights[1] -= 2**40
    changed = PluralityLaw(4, 3, weights)
    with pytest.raises(CertificationError, match="neighbors differ by"):
        prove(problem, changed)
    repaired = certify(problem, changed)
    assert repaired.certificate.scale < 1.0
    assert exact_divergence(repaired.plurality, Fraction(math.exp(0.5)), 1) <= Fraction("1e-3") + Fraction(1, 10**15)
    # no more than needed: half of it would not do
    half = changed.mix(0.5 * (1.0 - repaired.certificate.scale))
    with pytest.raises(CertificationError):
        prove(problem, half)


@pytest.mark.parametrize("target", [("1e-6", "0"), ("1e-12", "1e-4"), ("1e-17", "1e-4"), ("1e-300", "1e-4")])
def test_a_law_is_repaired_for_tiny_targets(target: tuple[str, str]) -> None:
    problem = Problem(Voters(5, NON_PRIVATE, overlap=1), PrivacyParams(*target), 3)
    sizes = list_partitions(5, 3).sizes
    leader = np.zeros(sizes.size)
    leader[list_partitions(5, 3).starts] = 1.0 / sizes[list_partitions(5, 3).starts]
    repaired = certify(problem, PluralityLaw.from_probabilities(5, 3, leader))
    assert exact_divergence(repaired.plurality, 1 + problem.target.exact_epsilon, 1) <= problem.target.exact_delta
    # of what the budget allows little is given away
    assert repaired.certificate.worst_cost >= 0.9 * problem.target.delta


def test_accuracy_of_one_is_not_exceeded_by_rounding() -> None:
    table = optimize_plurality(state_problem(2, 2, "1", "0.999999"))
    assert table.accuracy == pytest.approx(1.0)


def test_any_multipliers_give_an_upper_bound() -> None:
    problem = state_problem(5, 3, "0.5", "0.01")
    table = optimize_plurality(problem)
    optimality = table.optimality
    assert optimality is not None
    assert optimality.multipliers
    rng = np.random.default_rng(3)
    for _ in range(20):
        noisy = [
            PairMultipliers(place, aligned, tuple(w * rng.uniform(0.5, 1.5) for w in weights))
            for place, aligned, weights in optimality.multipliers
        ]
        assert optimality.value < upper_bound(problem, Dirichlet(), noisy) <= 1.0
    assert upper_bound(problem, Dirichlet(), []) == pytest.approx(1.0, abs=1e-12)


def test_histograms_without_prior_probability_get_a_sensible_law() -> None:
    recorded = RecordedVotes("seen", Votes.from_counts([[6, 0, 0], [4, 2, 0]]))
    table = optimize_plurality(state_problem(6, 3, "0.8", "1e-3"), prior=recorded)
    assert table.optimality is not None
    assert table.optimality.gap < 1e-7
    unseen = table.plurality.probabilities([[5, 1, 0], [3, 2, 1], [2, 2, 2]])
    assert unseen[0, 0] > 0.7
    assert unseen[1, 0] > unseen[1, 1] > unseen[1, 2]


class ConstantPrior(Prior):
    """Not a law: the same log probability for every histogram."""

    text = "constant"

    def __init__(self, value: float) -> None:
        self.value = value

    def log_probabilities(self, counts: np.ndarray) -> np.ndarray:
        return np.full(len(counts), self.value)

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
        return Dirichlet().sample(K, classes, count, rng=rng)


@pytest.mark.parametrize(
    ("problem", "prior", "message"),
    [
        *(
            (state_problem(4, 3), ConstantPrior(value), "probabilities of histograms must be 1")
            for value in (math.nan, -math.inf, 0.0, -800.0)
        ),
        (state_problem(4, 3), "uniform", "the prior must be spread, dirichlet"),
        (state_problem(4, 3), 0.5, r"prior must be a darrm\.priors\.Prior"),
        (state_problem(250, 10), None, "partitions of 250 votes into 10 classes"),
        (state_problem(25, 10), None, "C = 10 to K = 22 are solved"),
    ],
)
def test_optimize_plurality_refuses_priors_and_sizes(problem: Problem, prior: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimize_plurality(problem, prior=prior)
