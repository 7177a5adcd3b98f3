"""Private voters of any number of classes against brute force: their corners, all rows, costs, and the optimum."""

import copy
import json
from fractions import Fraction
from itertools import combinations, permutations, product
from math import comb, exp
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from darrm import PrivacyParams, Problem, Table, Voters, Votes, available_tables, certify, load_table, optimize_table
from darrm.errors import TableError
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
from darrm.table.release import Release, describe_cost
from darrm.verify.verdicts import exponential
from lp_models.options import SolveOptions
from lp_models.program import BlockProgram
from lp_models.row_generation import minimize_with_rows, start_at

Corner = tuple[Array, Array]


def corners_of(each: PrivacyParams, classes: int) -> list[Corner]:
    """All corners (a, b, u, v) of theorem 1, written down."""
    hi = exp(each.epsilon) / (1.0 + exp(each.epsilon)) if each.is_private else 1.0
    unit, delta = np.eye(classes), each.delta
    results = {}
    for a, b, u, v in product(range(classes), repeat=4):
        p = (1 - delta) * (hi * unit[a] + (1 - hi) * unit[b]) + delta * unit[u]
        q = (1 - delta) * ((1 - hi) * unit[a] + hi * unit[b]) + delta * unit[v]
        results[(*p.round(12), *q.round(12))] = (p, q)
    return list(results.values())


def with_one_more(laws: Array, said: Array) -> Array:
    """The laws of the histogram, in cells of C digits to the base K + 1, when a voter is added to each.

    The voters' laws have the shape (n, C) or (C,), those of histograms (n, cells).
    """
    classes = said.shape[-1]
    base = round(laws.shape[-1] ** (1.0 / classes))
    grown = np.zeros_like(laws)
    for label in range(classes):
        step = base ** (classes - 1 - label)
        grown[:, step:] += said[..., label, None] * laws[:, :-step]
    return grown


def nobody(K: int, classes: int, number: int = 1) -> Array:
    return np.repeat(np.eye(1, (K + 1) ** classes), number, axis=0)


def cells_of(K: int, classes: int) -> np.ndarray:
    return histograms_of(K, classes).counts @ (K + 1) ** np.arange(classes)[::-1]


def pairs_of_laws(voters: Voters, classes: int) -> tuple[Array, Array]:
    """The laws of the histogram on both sides for every multiset of corners in which at most t voters change."""
    before = after = nobody(voters.K, classes)
    changed = np.zeros(1, dtype=int)
    for count, each in voters.groups:
        corners = corners_of(each, classes)
        changes = [not np.allclose(p, q) for p, q in corners]
        last = np.zeros(len(changed), dtype=int)  # a multiset is a row that never goes back
        for _ in range(count):
            kept = [
                np.flatnonzero((last <= index) & (changed + changes[index] <= voters.reached))
                for index in range(len(corners))
            ]
            before, after = (
                np.concatenate(
                    [with_one_more(laws[rows], corner[side]) for rows, corner in zip(kept, corners, strict=True)]
                )
                for side, laws in enumerate((before, after))
            )
            changed = np.concatenate([changed[rows] + more for rows, more in zip(kept, changes, strict=True)])
            last = np.repeat(np.arange(len(corners)), [len(rows) for rows in kept])
    cells = cells_of(voters.K, classes)
    return before[:, cells], after[:, cells]


def worst_by_hand(voters: Voters, law: PluralityLaw, ratio: float) -> float:
    answers = law.probabilities(histograms_of(law.K, law.classes).counts)
    p, q = pairs_of_laws(voters, law.classes)
    return float(np.maximum(0.0, p @ answers - ratio * (q @ answers)).sum(axis=1).max())


def optimum_by_hand(problem: Problem, weights: Array) -> float:
    """The largest accuracy, every row written down for every set of answers."""
    K, C = problem.voters.K, problem.classes
    partitions, counts = list_partitions(K, C), histograms_of(K, C).counts
    groups, size = partitions.find_groups(counts), partitions.sizes.size
    ratio, rows = exp(problem.target.epsilon), []
    for p, q in zip(*pairs_of_laws(problem.voters, C), strict=True):
        for number in range(1, C) if problem.target.delta else [1]:
            rows += [
                sum(np.bincount(groups[:, c], p - ratio * q, minlength=size) for c in chosen)
                for chosen in combinations(range(C), number)
            ]
    gains = np.zeros(size)
    gains[partitions.starts] = weights * partitions.sizes[partitions.starts]
    equal = np.zeros((len(partitions.parts), size))
    equal[partitions.blocks, np.arange(size)] = partitions.sizes
    matrix = np.unique(np.array(rows).round(13), axis=0)
    solved = linprog(-gains, matrix, np.full(len(matrix), problem.target.delta), equal, np.ones(len(equal)))
    return float(-solved.fun)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.0), (0.5, 0.05), (1.2, 0.2)])
def test_no_direction_has_a_private_pair_beyond_the_corners(classes: int, epsilon: float, delta: float) -> None:
    ratio, rows, limits = exp(epsilon), [], []
    for number in range(1, classes + 1):
        for chosen in combinations(range(classes), number):
            p, q = np.zeros((2, 2 * classes))
            p[list(chosen)], p[[classes + c for c in chosen]] = 1.0, -ratio
            q[list(chosen)], q[[classes + c for c in chosen]] = -ratio, 1.0
            rows += [p, q]
            limits += [delta, delta]
    matrix, equal = np.array(rows), np.kron(np.eye(2), np.ones(classes))
    points = np.array([np.concatenate(pair) for pair in corners_of(PrivacyParams(epsilon, delta), classes)])
    assert np.all(points @ matrix.T <= np.array(limits) + 1e-12)  # every corner is private
    rng = np.random.default_rng(7)
    for direction in rng.normal(size=(40, 2 * classes)):
        solved = linprog(-direction, matrix, limits, equal, [1.0, 1.0], bounds=[(0.0, 1.0)] * (2 * classes))
        assert abs(-solved.fun - np.max(points @ direction)) < 1e-9  # and none is beyond


PRIVATE = [
    (Voters(4, PrivacyParams("0.3")), 3),
    (Voters(3, PrivacyParams("0.7")), 4),
    (Voters(4, PrivacyParams("0.3"), overlap=2), 3),
    (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.9"), PrivacyParams("0.9")]), 3),
    (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.5"), PrivacyParams("inf")]), 3),
    (Voters(5, PrivacyParams("0.3")), 2),
]
MORE = [
    (Voters(2, PrivacyParams("0.6", "0.001")), 3),
    (Voters(2, PrivacyParams("0.6", "0.001"), overlap=1), 3),
    (Voters.of([PrivacyParams("0.2", "0.001"), PrivacyParams("0.5")]), 3),
    (Voters(3, PrivacyParams("0.4", "0.001")), 2),
]


def any_law(voters: Voters, classes: int, seed: int, *, falls: bool) -> PluralityLaw:
    """A random law, in which more votes never harm a class unless it falls."""
    rng, partitions = np.random.default_rng(seed), list_partitions(voters.K, classes)
    each = np.exp(rng.normal() * partitions.votes) if falls else np.exp(abs(rng.normal()) * partitions.votes)
    if falls:
        each = each * rng.random(partitions.sizes.size)
    each /= np.add.reduceat(each * partitions.sizes, partitions.starts)[partitions.blocks]
    return PluralityLaw.from_probabilities(voters.K, classes, each)


def problem_of(voters: Voters, classes: int, delta: str = "0.01") -> Problem:
    return Problem(voters, PrivacyParams("1", delta), classes)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PRIVATE), st.integers(0, 2**32), st.booleans())
def test_the_worst_row_is_that_of_all_multisets(case: tuple[Voters, int], seed: int, falls: bool) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=falls), problem_of(voters, classes)
    bound, method = voter_corners.largest_excess(problem, law)
    by_hand = worst_by_hand(voters, law, exp(1.0))
    assert "whole" in method
    assert by_hand - 1e-12 <= float(bound) <= by_hand + 1e-12
    in_floats = max(block.worst(problem) for block in voter_corners.row_blocks(problem, law.each, range(1, classes)))
    assert by_hand - 1e-12 <= max(0.0, in_floats) <= by_hand + 1e-12


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(MORE), st.integers(0, 2**32), st.booleans())
def test_with_a_delta_the_bound_is_above_and_near(case: tuple[Voters, int], seed: int, falls: bool) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=falls), problem_of(voters, classes)
    bound, _ = voter_corners.largest_excess(problem, law)
    by_hand = worst_by_hand(voters, law, exp(1.0))
    second_order = comb(voters.reached, 2) * voters.each.delta**2 * (1.0 + exp(1.0))
    assert by_hand - 1e-12 <= float(bound) <= by_hand + 1e-12 + second_order + (1e-3 if voters.per_voter else 0.0)
    broken = [
        row
        for block in voter_corners.row_blocks(problem, law.each, range(1, classes))
        for _, row in find_worst_rows(block, block.costs(problem), -1.0, 3)
    ]
    for row in broken:  # and rows are attained, and those of the problem
        assert VoterRow.from_list(row.to_list(), problem) == row
        before, after = row.coefficients(problem)
        assert before @ law.each - exp(1.0) * (after @ law.each) <= by_hand + 1e-12


@pytest.mark.parametrize(("K", "classes", "answers"), [(3, 3, 1), (3, 4, 1), (2, 4, 2)])
def test_of_multisets_that_differ_by_names_of_classes_one_is_looked_at(K: int, classes: int, answers: int) -> None:
    def multisets(*, by_name: bool) -> set[tuple[tuple[int, int], ...]]:
        corners = voter_corners.CornerSet(Voters(K, PrivacyParams(1)), classes, answers)
        corners.ordered = 0 if by_name else corners.ordered
        values = np.zeros(histograms_of(K, classes).number)
        return {
            tuple(sorted((t.first, t.second) for t, n in zip(corners.types, row, strict=True) for _ in range(n)))
            for level in corners.levels(values)
            for row in level.movers.tolist()
        }

    few, others = multisets(by_name=False), range(answers, classes)
    every = multisets(by_name=True)
    assert few < every
    for chosen in every:
        names = ([*range(answers), *order] for order in permutations(others))
        assert any(tuple(sorted((name[a], name[b]) for a, b in chosen)) in few for name in names)


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "3"])
def test_whole_numbers_are_rounded_to_the_side_that_promises_less(epsilon: str) -> None:
    each = PrivacyParams(epsilon, "1/3")
    numbers = voter_corners.Weights(Voters(2, each), 128)
    growth = exponential(each.exact_epsilon)  # within 1e-80
    exact, unit = growth.upper / (1 + growth.upper), 1 << 128
    assert exact <= Fraction(numbers.shares[0][0], unit) <= exact + Fraction(8, unit)
    assert sum(numbers.shares[0]) == unit
    assert numbers.no_failure + 2 * numbers.one_failure[0] + numbers.failures == unit
    assert numbers.no_failure * 9 <= 4 * unit  # what is left of it is said by two
    assert numbers.failures * 9 >= unit


def test_no_row_lets_more_voters_change_than_are_reached() -> None:
    voters = Voters(3, PrivacyParams("0.5", "0.1"), overlap=1)
    problem, law = problem_of(voters, 3, "0.2"), true_plurality(3, 3)
    for block in voter_corners.row_blocks(problem, law.each, [1, 2]):
        for place in range(block.upper.shape[1]):
            costs = np.zeros_like(block.upper)
            costs[:, place] = 1.0
            for _, row in find_worst_rows(block, costs, 0.5, len(costs)):
                assert VoterRow.from_list(row.to_list(), problem) == row


def test_what_two_voters_say_at_once_is_paid_for() -> None:
    """With a large Δ terms of the second order matter: the law of the only winner, in both directions."""
    voters = Voters(2, PrivacyParams("0.6", "0.2"))
    for law in (true_plurality(2, 3), any_law(voters, 3, 2, falls=True)):
        problem = problem_of(voters, 3, "0.3")
        bound, _ = voter_corners.largest_excess(problem, law)
        assert worst_by_hand(voters, law, exp(1.0)) - 1e-12 <= float(bound)


def test_two_answers_together_may_tell_more_than_one() -> None:
    """The plurality of four votes tells more of which two classes are behind it than of which one."""
    voters, law = Voters(4, PrivacyParams(1)), true_plurality(4, 4)
    problem = problem_of(voters, 4)
    alone, both = (max(x.worst(problem) for x in voter_corners.row_blocks(problem, law.each, [n])) for n in (1, 2))
    assert both > alone + 0.03
    bound, _ = voter_corners.largest_excess(problem, law)
    assert abs(float(bound) - worst_by_hand(voters, law, exp(1.0))) < 1e-12


def test_many_voters_in_turn_lose_nothing_to_rounding() -> None:
    for K, epsilon, delta in ((40, "1", "0"), (30, "2", "1e-6")):
        problem = Problem(Voters(K, PrivacyParams(epsilon, delta)), PrivacyParams(3, "1e-4"), 3)
        worst, _ = VotersInTurn(problem, 1).worst(random_law(K, 3).each)
        assert abs(worst - (1.0 - exp(3.0)) / 3.0) < 1e-9


def test_numbers_on_which_a_law_is_averaged_are_counted() -> None:
    for voters, classes in PRIVATE:
        problem = problem_of(voters, classes)
        corners = voter_corners.CornerSet(voters, classes, 1)
        corners.ordered = 0  # the names of classes told apart
        values = np.zeros(histograms_of(voters.K, classes).number)
        assert sum(level.before.size for level in corners.levels(values)) == voter_corners.number_of_rows(
            problem.voters, classes
        )


@pytest.mark.parametrize(
    ("K", "classes", "epsilon", "target", "share"),
    [
        (5, 3, "0.2", "0.2", 0.74286),
        (5, 3, "0.2", "0.6", 1.0),
        (7, 3, "0.1", "0.3", 0.97385),
        (5, 4, "0.2", "0.6", 1.0),
        (11, 3, "0.1", "0.2", 0.85278),
        pytest.param(11, 3, "0.1", "0.1", 0.69067, marks=pytest.mark.slow),
        pytest.param(11, 3, "0.1", "0.3", 0.93991, marks=pytest.mark.slow),
    ],
)
def test_the_optimum_is_that_of_the_full_program(K: int, classes: int, epsilon: str, target: str, share: float) -> None:
    table = optimize_table(Problem(Voters(K, PrivacyParams(epsilon)), PrivacyParams(target), classes))
    assert table.optimality is not None
    assert abs(table.optimality.value - share) < 5e-6
    assert table.optimality.gap < 1e-9


@pytest.mark.parametrize(
    ("voters", "classes", "target"),
    [
        (Voters(3, PrivacyParams("0.5")), 3, PrivacyParams("0.8", "0.01")),
        (Voters(3, PrivacyParams("0.5"), overlap=2), 4, PrivacyParams("0.8")),
        (Voters.of([PrivacyParams("0.2"), PrivacyParams("0.9")]), 3, PrivacyParams("0.7", "0.001")),
        (
            Voters.of([PrivacyParams("0.2"), PrivacyParams("0.3"), PrivacyParams("inf")]),
            3,
            PrivacyParams("0.7", "0.01"),
        ),
        (Voters(2, PrivacyParams("0.3", "1e-5")), 3, PrivacyParams("0.4", "2e-5")),
    ],
)
def test_the_optimum_is_that_of_every_row_written_down(voters: Voters, classes: int, target: PrivacyParams) -> None:
    problem = Problem(voters, target, classes)
    table = optimize_table(problem)
    by_hand = optimum_by_hand(problem, list_partitions(voters.K, classes).probabilities(Dirichlet()))
    assert table.optimality is not None
    assert abs(table.optimality.value - by_hand) < 1e-8
    assert table.optimality.bound >= by_hand - 1e-9


def error_by_the_program_for_any_classes(problem: Problem, weights: Array) -> float:
    """Minimize ½ Σ w (1 − γ) = Σ w (1 − h), for the probability h = (1 + γ)/2 of the majority."""
    partitions = list_partitions(problem.voters.K, 2)
    gains = np.zeros(partitions.sizes.size)
    for weight, votes in zip(weights, range(problem.voters.first_majority, problem.voters.K + 1), strict=True):
        gains[partitions.groups[partitions.places[votes, problem.voters.K - votes], votes]] = weight
    program = BlockProgram(gains, partitions.sizes.astype(float), partitions.blocks)
    start = random_law(problem.voters.K, 2).each
    result = minimize_with_rows(program, _VoterOracle(problem), SolveOptions(), start=start_at(start))
    return float(weights.sum() - result.value)


def differs_from_the_stored_table(setting: Setting) -> bool:
    table = load_table(setting.problem, shape=setting.shape)
    assert table.optimality is not None
    weights = compute_weights(table.optimality.prior, setting.K)
    error = error_by_the_program_for_any_classes(setting.problem, weights)
    ratio = exp(setting.problem.target.epsilon)  # a random answer has (e^ε − 1)/2 to spare
    second_order = comb(setting.K, 2) * setting.each.delta**2 * 2.0 * (1.0 + ratio) / (ratio - 1.0)
    more = error - table.optimality.value
    # a γ is at least 0; a law of any classes may tell the minority where few are ahead
    least = 1e-3 if table.gamma.half.min() < 1e-6 else 1e-8 + 1e-6 * table.optimality.value
    return not -least <= more <= 1e-8 + 1e-6 * table.optimality.value + second_order


FREE = [setting for setting in available_tables() if setting.shape == "free" and setting.K <= 21]


@pytest.mark.parametrize(
    "setting",
    [pytest.param(each, marks=[] if n % (len(FREE) // 12) == 0 else [pytest.mark.slow]) for n, each in enumerate(FREE)],
    ids=str,
)
def test_two_classes_come_out_of_the_same_program(setting: Setting) -> None:
    assert not differs_from_the_stored_table(setting)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(PRIVATE + MORE), st.integers(0, 2**32))
def test_the_profile_is_the_worst_divergence_at_every_epsilon(case: tuple[Voters, int], seed: int) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=True), problem_of(voters, classes)
    profile = profile_of_answers(problem, law)
    assert profile is not None
    loose = 1e-3 if voters.per_voter is not None else 1e-4  # of Δ = 0.001
    for epsilon in (0.0, 0.1, 0.4, 0.9, 2.0):
        by_hand, bound = worst_by_hand(voters, law, exp(epsilon)), profile.delta_at(epsilon)
        assert by_hand - 1e-12 <= bound
        if case in PRIVATE:
            assert bound <= by_hand + 1e-9 + 1e-4 * by_hand  # corners that are nearly one are kept as one
        else:
            assert bound <= by_hand + loose


def test_lines_that_are_left_out_are_never_the_highest() -> None:
    slopes = np.linspace(0.0, 1.0, 200)
    assert len(find_undominated(np.sqrt(slopes), slopes)) == 200  # each is the highest somewhere
    p, q = np.random.default_rng(4).random((2, 400))
    kept = find_undominated(p, q)
    assert len(kept) < 40
    for ratio in np.exp(np.linspace(0.0, 6.0, 50)):
        assert np.max(p[kept] - ratio * q[kept]) == np.max(p - ratio * q)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(PRIVATE), st.integers(0, 2**32))
def test_the_curve_is_the_worst_renyi_divergence(case: tuple[Voters, int], seed: int) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=True), problem_of(voters, classes)
    curve = curve_of_answers(problem, law)
    assert curve is not None
    answers = law.probabilities(histograms_of(law.K, classes).counts)
    p, q = (laws @ answers for laws in pairs_of_laws(voters, classes))
    for order in (2.0, 8.0):
        by_hand = np.max(np.log(np.sum(p**order * q ** (1.0 - order), axis=1)) / (order - 1.0))
        assert abs(curve.values[np.flatnonzero(curve.orders == order)[0]] - by_hand) < 1e-9 * (1.0 + by_hand)
    assert curve_of_answers(problem_of(*MORE[0]), any_law(*MORE[0], 1, falls=False)) is None


def test_a_table_is_saved_proved_again_and_drawn_from(tmp_path: Path) -> None:
    problem = Problem(Voters(4, PrivacyParams("0.5")), PrivacyParams("0.7"), 3)
    table = optimize_table(problem)
    table.save(tmp_path / "table.json")
    loaded = Table.load(tmp_path / "table.json")
    assert (loaded.digest, loaded.problem, loaded.accuracy) == (table.digest, problem, table.accuracy)
    assert str(loaded.optimality) == str(table.optimality)
    document = json.loads((tmp_path / "table.json").read_text())
    weaker = copy.deepcopy(document)
    weaker["problem"]["each"]["epsilon"] = "0.6"
    with pytest.raises(TableError):
        Table.from_json(weaker)
    changed = copy.deepcopy(document)
    changed["optimality"]["multipliers"][0][2][0][1] = 1  # a kind of voters that there is none of
    with pytest.raises(TableError, match="optimality"):
        Table.from_json(changed)
    labels = Release(table).release(Votes.from_labels([[0, 0, 0, 0]] * 2000, 3), rng=np.random.default_rng(1))
    expected = table.plurality.probabilities([[4, 0, 0]])[0, 0]
    assert abs(np.mean(labels == 0) - expected) < 6.0 * np.sqrt(expected * (1 - expected) / 2000)
    cost = describe_cost(table)
    assert cost.profile is not None
    assert cost.profile.epsilons[-1] <= 0.7 + 1e-9
    models = describe_cost(table, voters=Voters(4, PrivacyParams("0.5"), models=True))
    assert models.for_non_private_voters


@pytest.mark.slow
def test_a_law_that_needs_much_noise_is_not_thrown_away() -> None:
    """Mixed with the share that floats need, it may still be above by a rounding."""
    problem = Problem(Voters(7, PrivacyParams("0.1")), PrivacyParams("0.2"), 5)
    table = certify(problem, true_plurality(7, 5))
    assert 0.5 < table.certificate.scale < 1.0
    assert table.certificate.worst_cost == 0.0
    slightly_less = table.plurality.mix(1e-3)
    assert certify(problem, slightly_less).certificate.scale == 1.0
    assert certify(problem, true_plurality(7, 5).mix(0.9 * (1.0 - table.certificate.scale))).certificate.scale < 1.0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("each", "m"), [(PrivacyParams("0.4"), 1), (PrivacyParams("0.4"), 3), (PrivacyParams("0.4", "0.01"), 1)]
)
@pytest.mark.parametrize("random", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
def test_voters_drawn_at_random_are_as_private_as_they_are_together(each: PrivacyParams, m: int, random: float) -> None:
    voters = Voters(3 if each.delta else 4, each)
    problem = Problem.from_allowance(voters, m, classes=3)
    law = true_plurality(voters.K, 3, m).mix(random)
    bound = excess_of_drawn(problem, law)
    assert bound is not None
    assert worst_by_hand(voters, law, exp(problem.target.epsilon)) - 1e-12 <= float(bound)
    assert float(bound) <= problem.target.delta + 1e-12
    assert share_for_drawn(problem, law.each) < 1e-10  # type: ignore[operator]
    plurality = true_plurality(voters.K, 3)
    if m < 3:
        assert excess_of_drawn(problem, plurality) is None  # looks at more voters than the target allows
    assert excess_of_drawn(problem, any_law(voters, 3, 1, falls=True)) is None
    assert (
        excess_of_drawn(Problem(Voters.of([each, PrivacyParams("0.1")]), problem.target, 3), true_plurality(2, 3, 1))
        is None
    )


def test_the_plurality_of_drawn_voters_is_proved_for_many() -> None:
    problem = Problem.from_allowance(Voters(15, PrivacyParams("0.1", "1e-5")), 2, classes=10)
    table = certify(problem, true_plurality(15, 10, 2))
    assert table.certificate.method == DRAWN
    assert table.certificate.scale > 1.0 - 1e-9
    assert certify(problem, table.law).certificate.scale == 1.0


def test_a_row_that_is_none_of_the_problem_is_refused() -> None:
    problem = Problem(Voters(2, PrivacyParams("0.5"), overlap=1), PrivacyParams("0.5"), 3)
    assert VoterRow.from_list([1, [[1, 0, 0, 1, 0, 0], [1, 0, 2, 2, 2, 2]]], problem).answers == 1
    for row in (
        [3, [[2, 0, 0, 0, 0, 0]]],  # all answers
        [1, [[2, 0, 0, 1, 0, 0]]],  # both are reached
        [1, [[1, 0, 0, 1, 0, 0]]],  # one voter is missing
        [1, [[2, 0, 0, 3, 0, 0]]],  # of three classes
    ):
        with pytest.raises(ValueError, match="must be"):
            VoterRow.from_list(row, problem)


def test_what_is_too_large_is_refused_before_the_work() -> None:
    many = Voters.of([PrivacyParams(f"0.{n}") for n in range(10, 30)])
    with pytest.raises(ValueError, match=r"multisets of private voters.*at most"):
        optimize_table(Problem(many, PrivacyParams("0.3"), 5))


@settings(max_examples=8, deadline=None)
@given(st.sampled_from([PRIVATE[0], PRIVATE[1], PRIVATE[5], MORE[0], MORE[3]]), st.integers(0, 2**32), st.booleans())
def test_voters_in_turn_are_worse_than_any_voters(case: tuple[Voters, int], seed: int, falls: bool) -> None:
    voters, classes = case
    law, problem = any_law(voters, classes, seed, falls=falls), problem_of(voters, classes)
    worst = []
    for number in range(1, classes):
        bound, row = VotersInTurn(problem, number).worst(law.each)
        assert abs(bound - row @ law.each) < 1e-11  # attained, and linear in the law
        worst.append(bound)
        other = any_law(voters, classes, seed + 1, falls=True)
        assert row @ other.each <= VotersInTurn(problem, number).worst(other.each)[0] + 1e-12
    assert max(0.0, *worst) >= worst_by_hand(voters, law, exp(1.0)) - 1e-12


def turn(voters: Voters, classes: int, answers: int, law: PluralityLaw, ratio: float) -> float:
    """Voters in turn, with memory of the order of votes and of both probabilities, for Δ = 0."""
    hi = exp(voters.each.epsilon) / (1.0 + exp(voters.each.epsilon))

    def worst(counts: tuple[int, ...], p: float, q: float) -> float:
        if sum(counts) == voters.K:
            return (p - ratio * q) * float(law.probabilities([counts])[0, :answers].sum())
        grown = [tuple(n + (c == label) for c, n in enumerate(counts)) for label in range(classes)]
        return max(
            worst(grown[a], hi * p, (1 - hi) * q) + worst(grown[b], (1 - hi) * p, hi * q)
            if a != b
            else worst(grown[a], p, q)
            for a, b in product(range(classes), repeat=2)
        )

    return worst((0,) * classes, 1.0, 1.0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("answers", [1, 2])
def test_the_bound_of_voters_in_turn_is_their_worst(answers: int) -> None:
    voters = Voters(3, PrivacyParams("0.5"))
    law, problem = any_law(voters, 3, 5, falls=True), problem_of(voters, 3)
    by_hand = turn(voters, 3, answers, law, exp(1.0))
    assert abs(VotersInTurn(problem, answers).worst(law.each)[0] - by_hand) < 1e-11


@pytest.mark.parametrize("each", [PrivacyParams("0.2"), PrivacyParams("0.2", "1e-4")])
def test_voters_too_many_to_look_at_get_a_proven_law_and_a_bound(
    each: PrivacyParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(Voters(5, each), PrivacyParams("0.4", "1e-3"), 3)
    best = optimize_table(problem).optimality
    monkeypatch.setattr(voter_corners, "is_searchable", lambda *_: False)
    table = optimize_table(problem)
    assert best is not None
    assert table.optimality is not None
    assert table.certificate.method == voter_corners.IN_TURN
    assert table.optimality.value <= best.bound
    assert best.value <= table.optimality.bound
    assert table.optimality.bound <= best.bound + 1e-3  # three classes are all there are
    monkeypatch.undo()
    voter_corners.largest_excess(problem, table.plurality)
    assert certify(problem, table.law).certificate.scale == 1.0


def test_a_voter_that_fails_makes_the_answer_fail() -> None:
    """One drawn voter of (1, 0.1) exceeds e by 0.1, however many there are to draw from."""
    for K in (1, 3):
        problem = Problem(Voters(K, PrivacyParams(1, "0.1")), PrivacyParams(1, "0.2"), 3)
        excess = excess_of_drawn(problem, true_plurality(K, 3, 1))
        assert excess is not None
        assert Fraction(1, 10) <= excess + Fraction(1, 2**50)
        assert excess <= Fraction(1, 10) + Fraction(1, 10**9)
