"""Private voters of any number of classes against brute force: their corners, all rows, costs, and the optimum."""

from fractions import Fraction
from itertools import combinations, permutations, product
from math import comb, exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from darrm import PrivacyParams, Problem, Voters, available_tables, certify, load_table, optimize_table
from darrm.loss.vote_counts import find_undominated
from darrm.numerics import Array
from darrm.optimize.plurality import _VoterOracle
from darrm.plurality import voter_corners
from darrm.plurality.accuracy_bound import VoterRow, find_worst_rows
from darrm.plurality.adaptive_voters import VotersInTurn
from darrm.plurality.baselines import excess_of_drawn, share_for_drawn
from darrm.plurality.partitions import histograms_of, list_partitions
from darrm.plurality.plurality_law import PluralityLaw, random_law, true_plurality
from darrm.plurality.proof import DRAWN, curve_of_answers, profile_of_answers
from darrm.priors import Dirichlet, compute_weights
from darrm.table.library import Setting
from darrm.verify.verdicts import exponential
from lp_models.options import SolveOptions
from lp_models.program import BlockProgram
from lp_models.row_generation import minimize_with_rows, start_at
from tests.optimality import optimality_of
from tests.plurality.support import any_law, list_corners, optimum_by_hand, pairs_of_laws, worst_by_hand, worst_in_turn

RATIO = exp(1.0)
PURE = [
    (Voters(4, PrivacyParams("0.3")), 3),
    (Voters(3, PrivacyParams("0.7")), 4),
    (Voters(4, PrivacyParams("0.3"), overlap=2), 3),
    (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.9"), PrivacyParams("0.9")]), 3),
    (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.5"), PrivacyParams("inf")]), 3),
    (Voters(5, PrivacyParams("0.3")), 2),
]
WITH_DELTA = [
    (Voters(2, PrivacyParams("0.6", "0.001")), 3),
    (Voters(2, PrivacyParams("0.6", "0.001"), overlap=1), 3),
    (Voters.of([PrivacyParams("0.2", "0.001"), PrivacyParams("0.5")]), 3),
    (Voters(3, PrivacyParams("0.4", "0.001")), 2),
]
SEEDS = st.integers(0, 2**32)


def state_problem(voters: Voters, classes: int, delta: str = "0.01") -> Problem:
    return Problem(voters, PrivacyParams("1", delta), classes)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.0), (0.5, 0.05), (1.2, 0.2)])
def test_no_direction_has_a_private_pair_beyond_the_corners(classes: int, epsilon: float, delta: float) -> None:
    rows, limits = [], []
    for number in range(1, classes + 1):
        for labels in combinations(range(classes), number):
            p, q = np.zeros((2, 2 * classes))
            p[list(labels)], p[[classes + c for c in labels]] = 1.0, -exp(epsilon)
            q[list(labels)], q[[classes + c for c in labels]] = -exp(epsilon), 1.0
            rows += [p, q]
            limits += [delta, delta]
    matrix, equal = np.array(rows), np.kron(np.eye(2), np.ones(classes))
    points = np.array([np.concatenate(pair) for pair in list_corners(PrivacyParams(epsilon, delta), classes)])
    assert np.all(points @ matrix.T <= np.array(limits) + 1e-12)  # every corner is private
    for direction in np.random.default_rng(7).normal(size=(40, 2 * classes)):
        solution = linprog(-direction, matrix, limits, equal, [1.0, 1.0], bounds=[(0.0, 1.0)] * (2 * classes))
        assert abs(-solution.fun - np.max(points @ direction)) < 1e-9


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PURE), SEEDS, st.booleans())
def test_largest_excess_is_that_of_all_multisets(case: tuple[Voters, int], seed: int, falls: bool) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=falls), state_problem(voters, classes)
    bound, method = voter_corners.largest_excess(problem, law)
    exact = worst_by_hand(voters, law, RATIO)
    assert "whole" in method
    assert abs(float(bound) - exact) <= 1e-12
    in_floats = max(block.worst(problem) for block in voter_corners.row_blocks(problem, law.each, range(1, classes)))
    assert abs(max(0.0, in_floats) - exact) <= 1e-12
    assert max(0.0, in_floats) >= bound - Fraction(1, 2**100)  # floats are rounded to the safe side


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(WITH_DELTA), SEEDS, st.booleans())
def test_largest_excess_with_a_delta_is_above_and_near(case: tuple[Voters, int], seed: int, falls: bool) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=falls), state_problem(voters, classes)
    bound, _ = voter_corners.largest_excess(problem, law)
    exact = worst_by_hand(voters, law, RATIO)
    second_order = comb(voters.reached, 2) * voters.each.delta**2 * (1.0 + RATIO)
    assert exact - 1e-12 <= float(bound) <= exact + 1e-12 + second_order + (1e-3 if voters.per_voter else 0.0)
    worst = 0.0
    for block in voter_corners.row_blocks(problem, law.each, range(1, classes)):
        for _, row in find_worst_rows(block, block.costs(problem), -1.0, 3):  # rows of the problem, and attained
            assert VoterRow.from_list(row.to_list(), problem) == row
            before, after = row.coefficients(problem)
            worst = max(worst, float(before @ law.each - RATIO * (after @ law.each)))
    assert exact - 1e-12 - second_order <= worst <= exact + 1e-12


@pytest.mark.parametrize(("K", "classes", "answers"), [(3, 3, 1), (3, 4, 1), (2, 4, 2)])
def test_every_multiset_of_movers_is_one_of_the_ordered_ones_up_to_the_names_of_classes(
    K: int, classes: int, answers: int
) -> None:
    def list_multisets(ordered: int | None = None) -> set[tuple[tuple[int, int], ...]]:
        corners = voter_corners.CornerSet(Voters(K, PrivacyParams(1)), classes, answers)
        corners.ordered = corners.ordered if ordered is None else ordered
        return {
            tuple(sorted((t.first, t.second) for t, n in zip(corners.types, row, strict=True) for _ in range(n)))
            for level in corners.levels(np.zeros(histograms_of(K, classes).number))
            for row in level.movers.tolist()
        }

    multisets, complete = list_multisets(), list_multisets(ordered=0)
    assert multisets < complete
    for multiset in complete:
        names = ([*range(answers), *order] for order in permutations(range(answers, classes)))
        assert any(tuple(sorted((name[a], name[b]) for a, b in multiset)) in multisets for name in names)


LAWS = [any_law(*case, 3, falls=falls) for case in (PURE[0], PURE[1], PURE[5]) for falls in (False, True)]
# a vote for a class harms it in one of two places only: for (2, 1, 0) the class without votes has 1/3, that with one 0
LAWS += [true_plurality(4, 3), PluralityLaw.from_probabilities(3, 3, [1, 0, 2 / 3, 0, 1 / 3, 1 / 3])]


@pytest.mark.parametrize("law", LAWS, ids=range(len(LAWS)))
def test_movers_towards_the_answers_are_omitted_if_votes_for_the_answers_never_harm(law: PluralityLaw) -> None:
    counts, unit = histograms_of(law.K, law.classes).counts, np.eye(law.classes, dtype=int)
    problem = state_problem(Voters(law.K, PrivacyParams("0.5")), law.classes)
    for number in range(1, law.classes):
        sums = law.probabilities(counts)[:, :number].sum(axis=1)
        values = dict(zip(map(tuple, counts.tolist()), sums.tolist(), strict=True))
        never_harms = all(
            values[tuple((n - unit[b] + unit[a]).tolist())] >= values[tuple(n.tolist())]
            for n in counts
            for a, b in product(range(number), range(number, law.classes))
            if n[b]
        )
        block = next(voter_corners.row_blocks(problem, law.each, [number]))
        assert any(mover.second < number <= mover.first for mover in block.corners.types) != never_harms


def test_no_row_lets_more_voters_change_than_the_overlap() -> None:
    problem = state_problem(Voters(3, PrivacyParams("0.5", "0.1"), overlap=1), 3, "0.2")
    for block in voter_corners.row_blocks(problem, true_plurality(3, 3).each, [1, 2]):
        for unit in np.eye(block.upper.shape[1]):
            for _, row in find_worst_rows(block, np.tile(unit, (len(block.upper), 1)), 0.5, len(block.upper)):
                assert VoterRow.from_list(row.to_list(), problem) == row


def test_largest_excess_pays_for_two_voters_that_fail_at_once() -> None:
    """With a large Δ terms of the second order matter: the law of the only winner, in both directions."""
    voters = Voters(2, PrivacyParams("0.6", "0.2"))
    for law in (true_plurality(2, 3), any_law(voters, 3, 2, falls=True)):
        bound, _ = voter_corners.largest_excess(state_problem(voters, 3, "0.3"), law)
        assert worst_by_hand(voters, law, RATIO) - 1e-12 <= float(bound)


def test_two_answers_together_may_cost_more_than_one() -> None:
    """The plurality of four votes reveals more about which two classes are behind it than about which one."""
    voters, law = Voters(4, PrivacyParams(1)), true_plurality(4, 4)
    problem = state_problem(voters, 4)
    single, both = (max(x.worst(problem) for x in voter_corners.row_blocks(problem, law.each, [n])) for n in (1, 2))
    assert both > single + 0.03
    bound, _ = voter_corners.largest_excess(problem, law)
    assert abs(float(bound) - worst_by_hand(voters, law, RATIO)) < 1e-12


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "3"])
def test_whole_number_weights_are_rounded_to_the_larger_cost(epsilon: str) -> None:
    each = PrivacyParams(epsilon, "1/3")
    weights = voter_corners.Weights(Voters(2, each), 128)
    growth = exponential(each.exact_epsilon)  # within 1e-80
    exact, unit = growth.upper / (1 + growth.upper), 1 << 128
    assert exact <= Fraction(weights.shares[0][0], unit) <= exact + Fraction(8, unit)
    assert sum(weights.shares[0]) == unit
    assert weights.no_failure + 2 * weights.one_failure[0] + weights.failures == unit
    assert weights.no_failure * 9 <= 4 * unit
    assert weights.failures * 9 >= unit


@pytest.mark.parametrize(("delta", "is_searchable"), [("0", True), ("1e-5", False)])
def test_voters_with_a_delta_have_a_smaller_limit_of_rows(delta: str, is_searchable: bool) -> None:
    assert voter_corners.is_searchable(Voters(25, PrivacyParams("0.1", delta)), 3) == is_searchable


def test_number_of_rows_counts_the_averages() -> None:
    for voters, classes in PURE:
        corners = voter_corners.CornerSet(voters, classes, 1)
        corners.ordered = 0  # the names of classes count
        levels = corners.levels(np.zeros(histograms_of(voters.K, classes).number))
        assert sum(level.before.size for level in levels) == voter_corners.number_of_rows(voters, classes)


@pytest.mark.parametrize(
    ("voters", "classes", "target"),
    [
        (Voters(3, PrivacyParams("0.5")), 3, PrivacyParams("0.8", "0.01")),
        (Voters(3, PrivacyParams("0.5"), overlap=2), 4, PrivacyParams("0.8")),
        (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.9")]), 3, PrivacyParams("0.7", "0.001")),
        (Voters.of([PrivacyParams(e) for e in ("0.2", "0.3", "inf")]), 3, PrivacyParams("0.7", "0.01")),
        (Voters(2, PrivacyParams("0.3", "1e-5")), 3, PrivacyParams("0.4", "2e-5")),
    ],
    ids=str,
)
def test_optimum_is_that_of_every_row_written_down(voters: Voters, classes: int, target: PrivacyParams) -> None:
    problem = Problem(voters, target, classes)
    optimality = optimality_of(optimize_table(problem))
    exact = optimum_by_hand(problem, list_partitions(voters.K, classes).probabilities(Dirichlet()))
    assert abs(optimality.value - exact) < 1e-8
    assert optimality.bound >= exact - 1e-9


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    ("K", "classes", "epsilon", "target", "accuracy"),
    [
        (5, 3, "0.2", "0.2", 0.74286),
        (5, 3, "0.2", "0.6", 1.0),
        (5, 4, "0.2", "0.6", 1.0),
        (7, 3, "0.1", "0.3", 0.97385),
        (11, 3, "0.1", "0.2", 0.85278),
        (11, 3, "0.1", "0.1", 0.69067),
        (11, 3, "0.1", "0.3", 0.93991),
    ],
)
def test_optimum_has_the_reference_accuracy(K: int, classes: int, epsilon: str, target: str, accuracy: float) -> None:
    problem = Problem(Voters(K, PrivacyParams(epsilon)), PrivacyParams(target), classes)
    optimality = optimality_of(optimize_table(problem))
    assert abs(optimality.value - accuracy) < 5e-6
    assert optimality.gap < 1e-9


def least_error_for_any_classes(problem: Problem, weights: Array) -> float:
    """Minimize ½ Σ w (1 − γ) = Σ w (1 − h), for the probability h = (1 + γ)/2 of the majority."""
    K, partitions = problem.voters.K, list_partitions(problem.voters.K, 2)
    gains = np.zeros(partitions.sizes.size)
    for weight, votes in zip(weights, range(problem.voters.first_majority, K + 1), strict=True):
        gains[partitions.groups[partitions.places[votes, K - votes], votes]] = weight
    program = BlockProgram(gains, partitions.sizes.astype(float), partitions.blocks)
    result = minimize_with_rows(program, _VoterOracle(problem), SolveOptions(), start=start_at(random_law(K, 2).each))
    return float(weights.sum() - result.value)


FREE = [setting for setting in available_tables() if setting.shape == "free" and setting.K <= 21]


@pytest.mark.parametrize(
    "setting",
    # steps of 58 meet every Δ: there are three for each ε
    [pytest.param(each, marks=[] if n % 58 == 0 else [pytest.mark.slow]) for n, each in enumerate(FREE)],
    ids=str,
)
def test_program_for_any_classes_has_the_optimum_of_two(setting: Setting) -> None:
    table = load_table(setting.problem, shape=setting.shape)
    optimality = optimality_of(table)
    error = least_error_for_any_classes(setting.problem, compute_weights(optimality.prior, setting.K))
    ratio = exp(setting.problem.target.epsilon)  # a random answer has (e^ε − 1)/2 to spare
    second_order = comb(setting.K, 2) * setting.each.delta**2 * 2.0 * (1.0 + ratio) / (ratio - 1.0)
    tolerance = 1e-8 + 1e-6 * optimality.value
    # a γ is at least 0; a law of any classes may return the minority where few are ahead
    gain = 1e-3 if table.gamma.half.min() < 1e-6 else tolerance
    assert -gain <= error - optimality.value <= tolerance + second_order


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(PURE + WITH_DELTA), SEEDS)
def test_profile_is_the_worst_divergence_at_every_epsilon(case: tuple[Voters, int], seed: int) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=True), state_problem(voters, classes)
    profile = profile_of_answers(problem, law)
    assert profile is not None
    for epsilon in (0.0, 0.1, 0.4, 0.9, 2.0):
        exact = worst_by_hand(voters, law, exp(epsilon))
        # corners that are nearly one are kept as one; Δ is 0.001
        excess = 1e-9 + 1e-4 * exact if case in PURE else 1e-3 if voters.per_voter else 1e-4
        assert exact - 1e-12 <= profile.delta_at(epsilon) <= exact + excess


@pytest.mark.parametrize(("K", "overlap"), [(2, 2), (3, 1)])
def test_profile_keeps_at_every_epsilon_what_a_failure_reveals(K: int, overlap: int) -> None:
    """With probability Δ a voter votes for a class that is impossible on the neighboring data."""
    voters, law = Voters(K, PrivacyParams("0.6", "0.2"), overlap), true_plurality(K, 3)
    profile = profile_of_answers(state_problem(voters, 3, "0.9"), law)
    assert profile is not None
    for epsilon in (0.5, 2.0, 30.0):
        exact = worst_by_hand(voters, law, exp(epsilon))
        assert 0.1 < exact <= profile.delta_at(epsilon) * (1.0 + 1e-12)
        assert profile.delta_at(epsilon) <= exact + 1e-9 + comb(overlap, 2) * 0.2**2 * (1.0 + exp(min(epsilon, 2.0)))


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(PURE), SEEDS)
def test_curve_is_the_worst_renyi_divergence(case: tuple[Voters, int], seed: int) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=True), state_problem(voters, classes)
    curve = curve_of_answers(problem, law)
    assert curve is not None
    answers = law.probabilities(histograms_of(law.K, classes).counts)
    p, q = (laws @ answers for laws in pairs_of_laws(voters, classes))
    for order in (2.0, 8.0):
        exact = np.max(np.log(np.sum(p**order * q ** (1.0 - order), axis=1)) / (order - 1.0))
        assert abs(curve.values[np.flatnonzero(curve.orders == order)[0]] - exact) < 1e-9 * (1.0 + exact)
    assert curve_of_answers(state_problem(*WITH_DELTA[0]), any_law(*WITH_DELTA[0], 1, falls=False)) is None


def test_only_lines_that_are_never_the_highest_are_dominated() -> None:
    slopes = np.linspace(0.0, 1.0, 200)
    assert len(find_undominated(np.sqrt(slopes), slopes)) == 200  # each is the highest somewhere
    p, q = np.random.default_rng(4).random((2, 400))
    front = find_undominated(p, q)
    assert len(front) < 40
    for ratio in np.exp(np.linspace(0.0, 6.0, 50)):
        assert np.max(p[front] - ratio * q[front]) == np.max(p - ratio * q)


@pytest.mark.slow
def test_a_law_that_needs_much_noise_is_certified() -> None:
    """Mixed with the share that floats need, its cost may still exceed the budget by a rounding."""
    problem = Problem(Voters(7, PrivacyParams("0.1")), PrivacyParams("0.2"), 5)
    table = certify(problem, true_plurality(7, 5))
    scale = table.certificate.scale
    assert 0.5 < scale < 1.0
    assert table.certificate.worst_cost == 0.0
    assert certify(problem, table.plurality.mix(1e-3)).certificate.scale == 1.0
    assert certify(problem, true_plurality(7, 5).mix(0.9 * (1.0 - scale))).certificate.scale < 1.0


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("each", "m"), [(PrivacyParams("0.4"), 1), (PrivacyParams("0.4"), 3), (PrivacyParams("0.4", "0.01"), 1)]
)
@pytest.mark.parametrize("random", [0.3, 0.0])
def test_excess_of_drawn_bounds_the_plurality_of_a_sample(each: PrivacyParams, m: int, random: float) -> None:
    voters = Voters(3 if each.delta else 4, each)
    problem = Problem.from_allowance(voters, m, classes=3)
    law = true_plurality(voters.K, 3, m).mix(random)
    bound = excess_of_drawn(problem, law)
    assert bound is not None
    exact = worst_by_hand(voters, law, exp(problem.target.epsilon))
    assert exact - 1e-12 <= float(bound) <= problem.target.delta + 1e-12
    assert share_for_drawn(problem, law.each) < 1e-10  # type: ignore[operator]
    # no bound for a sample above the allowance, for another law, or for voters that differ
    if m < 3:
        assert excess_of_drawn(problem, true_plurality(voters.K, 3)) is None
    assert excess_of_drawn(problem, any_law(voters, 3, 1, falls=True)) is None
    differing = Problem(Voters.of([each, PrivacyParams("0.1")]), problem.target, 3)
    assert excess_of_drawn(differing, true_plurality(2, 3, 1)) is None


def test_excess_of_drawn_pays_for_the_distance_to_the_plurality_of_a_sample() -> None:
    """The distance is Σ over classes: a bump of each of the two or three classes of a group counts for all."""
    problem = Problem.from_allowance(Voters(4, PrivacyParams("0.4", "1e-6")), 1, classes=3)
    law = true_plurality(4, 3, 1)
    share, ratio = share_for_drawn(problem, law.each), exp(problem.target.epsilon)
    assert share is not None
    for group in np.flatnonzero(law.partitions.sizes > 1):
        bump = np.eye(law.each.size)[group] / law.partitions.sizes[group]
        assert share_for_drawn(problem, law.each + 1.1e-12 * bump) is None
        larger = share_for_drawn(problem, law.each + 0.9e-12 * bump)
        assert larger is not None
        assert larger - share >= 0.89e-12 * (1.0 + ratio) * 3 / (ratio - 1.0)


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("random", [0.0, 0.125])
def test_a_drawn_voter_that_fails_makes_the_answer_fail(K: int, random: float) -> None:
    """One drawn voter of (1, 0.1) exceeds e by 0.1, for any number of voters; a random class costs (1 − e)/3."""
    problem = Problem(Voters(K, PrivacyParams(1, "0.1")), PrivacyParams(1, "0.2"), 3)
    law = true_plurality(K, 3, 1).mix(random)
    excess, exact = excess_of_drawn(problem, law), 0.1 * (1.0 - random) - random * (RATIO - 1.0) / 3.0
    assert excess is not None
    assert exact - 2.0**-50 <= excess <= exact + 1e-9
    if K == 1:
        assert worst_by_hand(problem.voters, law, RATIO) == pytest.approx(exact, abs=1e-12)


def test_the_plurality_of_a_sample_is_proved_for_many_voters() -> None:
    problem = Problem.from_allowance(Voters(15, PrivacyParams("0.1", "1e-5")), 2, classes=10)
    table = certify(problem, true_plurality(15, 10, 2))
    assert table.certificate.method == DRAWN
    assert table.certificate.scale > 1.0 - 1e-9
    assert certify(problem, table.law).certificate.scale == 1.0


PROBLEM = Problem(Voters(2, PrivacyParams("0.5"), overlap=1), PrivacyParams("0.5"), 3)
MAY_FAIL = Problem(Voters(2, PrivacyParams("0.5", "0.01"), overlap=1), PrivacyParams("0.5", "0.01"), 3)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param([0, [[2, 0, 0, 0, 0, 0]]], id="no answer"),
        pytest.param([1, [[2, 0, 0, -1, 0, 0]]], id="no class"),
        pytest.param([1, [[1, 0, 0, 1, 0, 0], [1, 1, 2, 2, 2, 2]]], id="a second group"),
        pytest.param([3, [[2, 0, 0, 0, 0, 0]]], id="all answers"),
        pytest.param([1, [[2, 0, 0, 1, 0, 0]]], id="both are influenced"),
        pytest.param([1, [[1, 0, 0, 1, 0, 0]]], id="one voter is missing"),
        pytest.param([1, [[2, 0, 0, 3, 0, 0]]], id="a fourth class"),
    ],
)
def test_a_row_of_another_problem_is_refused(row: list[object]) -> None:
    assert VoterRow.from_list([1, [[1, 0, 0, 1, 0, 0], [1, 0, 2, 2, 2, 2]]], PROBLEM).answers == 1
    with pytest.raises(ValueError, match="must be"):
        VoterRow.from_list(row, PROBLEM)


def test_a_row_of_voters_that_may_fail_has_few_failures_that_change() -> None:
    two, one = [1, [[2, 0, 0, 0, 1, 2]]], [1, [[1, 0, 0, 0, 1, 2], [1, 0, 0, 0, 2, 2]]]
    for row, problem in ((two, PROBLEM), (one, PROBLEM), (one, MAY_FAIL)):  # without Δ no voter fails
        assert VoterRow.from_list(row, problem).to_list() == row
    with pytest.raises(ValueError, match="voters of a row who change"):
        VoterRow.from_list(two, MAY_FAIL)


def test_a_problem_with_too_many_multisets_is_refused() -> None:
    many = Voters.of([PrivacyParams(f"0.{n}") for n in range(10, 30)])
    with pytest.raises(ValueError, match=r"multisets of private voters.*at most"):
        optimize_table(Problem(many, PrivacyParams("0.3"), 5))


@settings(max_examples=8, deadline=None)
@given(st.sampled_from([PURE[0], PURE[1], PURE[5], WITH_DELTA[0], WITH_DELTA[3]]), SEEDS, st.booleans())
def test_voters_in_turn_are_worse_than_any_voters(case: tuple[Voters, int], seed: int, falls: bool) -> None:
    voters, classes = case
    problem = state_problem(voters, classes)
    law, other = any_law(voters, classes, seed, falls=falls), any_law(voters, classes, seed + 1, falls=True)
    worst = []
    for number in range(1, classes):
        in_turn = VotersInTurn(problem, number)
        bound, row = in_turn.worst(law.each)
        worst.append(bound)
        assert abs(bound - row @ law.each) < 1e-11  # attained, and linear in the law
        assert row @ other.each <= in_turn.worst(other.each)[0] + 1e-12
    assert max(0.0, *worst) >= worst_by_hand(voters, law, RATIO) - 1e-12


@pytest.mark.parametrize("answers", [1, 2])
def test_voters_in_turn_are_bounded_by_their_worst(answers: int) -> None:
    voters = Voters(3, PrivacyParams("0.5"))
    law = any_law(voters, 3, 5, falls=True)
    bound, _ = VotersInTurn(state_problem(voters, 3), answers).worst(law.each)
    assert abs(bound - worst_in_turn(voters, answers, law, RATIO)) < 1e-11


@pytest.mark.parametrize(("K", "epsilon", "delta"), [(40, "1", "0"), (30, "2", "1e-6")])
def test_many_voters_in_turn_lose_nothing_to_rounding(K: int, epsilon: str, delta: str) -> None:
    problem = Problem(Voters(K, PrivacyParams(epsilon, delta)), PrivacyParams(3, "1e-4"), 3)
    worst, _ = VotersInTurn(problem, 1).worst(random_law(K, 3).each)
    assert abs(worst - (1.0 - exp(3.0)) / 3.0) < 1e-9


@pytest.mark.parametrize("each", [PrivacyParams("0.2"), PrivacyParams("0.2", "1e-4")])
def test_voters_too_many_to_search_get_a_proved_law_and_a_bound(
    each: PrivacyParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(Voters(5, each), PrivacyParams("0.4", "1e-3"), 3)
    best = optimality_of(optimize_table(problem))
    monkeypatch.setattr(voter_corners, "is_searchable", lambda *_: False)
    table = optimize_table(problem)
    assert table.certificate.method == voter_corners.IN_TURN
    assert optimality_of(table).value <= best.bound
    assert best.value <= optimality_of(table).bound <= best.bound + 1e-3
    monkeypatch.undo()
    assert certify(problem, table.law).certificate.scale == 1.0
