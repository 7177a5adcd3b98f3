"""The best private plurality against definitions: every histogram, no symmetry, fractions; and the known values."""

import itertools
import math
from fractions import Fraction

import highspy
import numpy as np
import pytest

from darrm.errors import CertificationError
from darrm.majority.closed_form import best_for_non_private_voters
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

NOT_PRIVATE = PrivacyParams("inf")


def problem_of(K: int, classes: int, epsilon: str = "0.5", delta: str = "1e-5", overlap: int = 1) -> Problem:
    return Problem(Voters(K, NOT_PRIVATE, overlap=overlap), PrivacyParams(epsilon, delta), classes)


def all_histograms(K: int, classes: int) -> list[tuple[int, ...]]:
    return [n for n in itertools.product(range(K + 1), repeat=classes) if sum(n) == K]


def are_neighbors(first: tuple[int, ...], second: tuple[int, ...], reached: int) -> bool:
    return 0 < sum(abs(a - b) for a, b in zip(first, second, strict=True)) <= 2 * reached


def exact_divergence(law: PluralityLaw, ratio: Fraction, reached: int) -> Fraction:
    """The largest Σ_c (h_c − ratio·h'_c)_+ over all neighboring histograms, from the law's own whole numbers."""
    partitions = law.partitions

    def answers(counts: tuple[int, ...]) -> list[Fraction]:
        place = partitions.places[tuple(sorted(counts, reverse=True))]
        groups = [partitions.groups[place, votes] for votes in counts]
        return [Fraction(int(law.weights[g]), ONE * int(partitions.sizes[g])) for g in groups]

    found = {counts: answers(counts) for counts in all_histograms(law.K, law.classes)}
    assert all(sum(h) == 1 for h in found.values())
    return max(
        sum((max(Fraction(0), p - ratio * q) for p, q in zip(found[n], found[other], strict=True)), Fraction(0))
        for n in found
        for other in found
        if are_neighbors(n, other, reached)
    )


def unsymmetric_optimum(K: int, classes: int, epsilon: float, delta: float, reached: int) -> float:
    """One variable for each class of each histogram and a slack for each class of each pair; nothing is symmetric."""
    histograms = all_histograms(K, classes)
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
    ],
)
def test_the_optimum_is_that_of_all_mechanisms_on_histograms(
    K: int, classes: int, epsilon: str, delta: str, reached: int
) -> None:
    problem = problem_of(K, classes, epsilon, delta, reached)
    table = optimize_plurality(problem)
    expected = unsymmetric_optimum(K, classes, float(epsilon), float(delta), reached)
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
def test_known_values(K: int, classes: int, share: float) -> None:
    table = optimize_plurality(problem_of(K, classes))
    assert table.accuracy == pytest.approx(share, abs=5e-5)
    assert table.optimality is not None
    assert table.optimality.gap < 1e-9


@pytest.mark.parametrize("K", [7, 10])
def test_two_classes_are_the_closed_form(K: int) -> None:
    voters, target = Voters(K, NOT_PRIVATE, overlap=1), PrivacyParams("0.5", "1e-3")
    half = best_for_non_private_voters(Problem(voters, target)).half
    law = optimize_plurality(Problem(voters, target, 2)).plurality
    counts = [[most, K - most] for most in range(K // 2 + 1, K + 1)]
    assert law.probabilities(counts)[:, 0] == pytest.approx(0.5 + 0.5 * half, abs=1e-9)


@pytest.mark.parametrize(
    ("K", "classes", "order", "budget", "share"), [(30, 3, 8.0, 0.08, 0.7576), (16, 4, 8.0, 0.08, 0.5299)]
)
def test_known_values_under_a_renyi_budget(K: int, classes: int, order: float, budget: float, share: float) -> None:
    optimum = optimize_plurality_under_renyi(Voters(K, NOT_PRIVATE, overlap=1), classes, Dirichlet(), order, budget)
    assert optimum.value == pytest.approx(share, abs=5e-5)
    assert optimum.value <= optimum.bound + 1e-9 <= optimum.value + 2e-5
    curve = curve_of_law(optimum.law, 1)
    assert curve.values[curve.orders == order] == pytest.approx(budget, abs=1e-9)
    assert optimum.law.each.min() >= SMALLEST_PROBABILITY * (1 - 1e-3)


@pytest.mark.parametrize("reached", [1, 2])
def test_curve_and_profile_by_the_definition(reached: int) -> None:
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
    histograms = np.array(all_histograms(4, 3))
    h = law.probabilities(histograms)
    curve = curve_of_law(law, reached)
    place = int(np.flatnonzero(curve.orders == 8.0)[0])
    divergences = [
        math.log(float(np.sum(h[i] ** 8.0 * h[j] ** -7.0))) / 7.0
        for i, j in itertools.permutations(range(len(h)), 2)
        if are_neighbors(tuple(histograms[i]), tuple(histograms[j]), reached)
    ]
    assert max(divergences) <= curve.values[place] <= max(divergences) * (1.0 + 1e-9)


def test_a_law_that_is_not_private_is_refused_and_repaired() -> None:
    problem = problem_of(4, 3, "0.5", "1e-3")
    best = optimize_plurality(problem).plurality
    weights = best.weights.copy()
    weights[0] += 2**40  # an eight-thousandth more for unanimity, taken from the others
    weights[1] -= 2**40
    planted = PluralityLaw(4, 3, weights)
    with pytest.raises(CertificationError, match="neighbors differ by"):
        prove(problem, planted)
    repaired = certify(problem, planted)
    assert repaired.certificate.scale < 1.0
    assert exact_divergence(repaired.plurality, Fraction(math.exp(0.5)), 1) <= Fraction("1e-3") + Fraction(1, 10**15)
    # no more than needed: half of it would not do
    half = planted.mix(0.5 * (1.0 - repaired.certificate.scale))
    with pytest.raises(CertificationError):
        prove(problem, half)


@pytest.mark.parametrize("target", [("1e-6", "0"), ("1e-12", "1e-4"), ("1e-17", "1e-4"), ("1e-300", "1e-4")])
def test_a_law_is_repaired_for_targets_that_allow_next_to_nothing(target: tuple[str, str]) -> None:
    problem = Problem(Voters(5, NOT_PRIVATE, overlap=1), PrivacyParams(*target), 3)
    sizes = list_partitions(5, 3).sizes
    leader = np.zeros(sizes.size)
    leader[list_partitions(5, 3).starts] = 1.0 / sizes[list_partitions(5, 3).starts]
    repaired = certify(problem, PluralityLaw.from_probabilities(5, 3, leader))
    assert exact_divergence(repaired.plurality, 1 + problem.target.exact_epsilon, 1) <= problem.target.exact_delta
    # of what the budget allows little is given away
    assert repaired.certificate.worst_cost >= 0.9 * problem.target.delta


def test_a_share_of_one_is_not_exceeded_by_rounding() -> None:
    table = optimize_plurality(problem_of(2, 2, "1", "0.999999"))
    assert table.accuracy == pytest.approx(1.0)


def test_any_multipliers_bound_and_none_lies_below_the_optimum() -> None:
    problem = problem_of(5, 3, "0.5", "0.01")
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


def test_a_prior_of_few_histograms_leaves_the_others_well_answered() -> None:
    seen = RecordedVotes("seen", Votes.from_counts([[6, 0, 0], [4, 2, 0]]))
    table = optimize_plurality(problem_of(6, 3, "0.8", "1e-3"), prior=seen)
    assert table.optimality is not None
    assert table.optimality.gap < 1e-7
    unseen = table.plurality.probabilities([[5, 1, 0], [3, 2, 1], [2, 2, 2]])
    assert unseen[0, 0] > 0.7
    assert unseen[1, 0] > unseen[1, 1] > unseen[1, 2]


class OfOneValue(Prior):
    """No law: it says the same of every histogram."""

    text = "of one value"

    def __init__(self, value: float) -> None:
        self.value = value

    def log_probabilities(self, counts: np.ndarray) -> np.ndarray:
        return np.full(len(counts), self.value)

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> np.ndarray:
        return Dirichlet().sample(K, classes, count, rng=rng)


@pytest.mark.parametrize("value", [math.nan, -math.inf, 0.0, -800.0])
def test_a_prior_that_is_no_law_is_refused_before_the_solver_sees_it(value: float) -> None:
    with pytest.raises(ValueError, match="the sum of the prior's probabilities of histograms must be 1"):
        optimize_plurality(problem_of(4, 3), prior=OfOneValue(value))


def test_what_is_no_prior_is_refused() -> None:
    with pytest.raises(ValueError, match="the prior must be spread, dirichlet"):
        optimize_plurality(problem_of(4, 3), prior="uniform")
    with pytest.raises(ValueError, match=r"prior must be a darrm\.priors\.Prior"):
        optimize_plurality(problem_of(4, 3), prior=0.5)  # type: ignore[arg-type]


def test_too_large_a_problem_is_refused_before_the_work() -> None:
    with pytest.raises(ValueError, match="partitions of 250 votes into 10 classes"):
        optimize_plurality(problem_of(250, 10))
    with pytest.raises(ValueError, match="C = 10 to K = 22 are solved"):
        optimize_plurality(problem_of(25, 10))
