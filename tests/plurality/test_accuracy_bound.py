"""No private release is more accurate than the bounds: linear programs over all releases, and the closed form."""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, permutations, product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from darrm import PrivacyParams, Problem, Voters, optimize_table
from darrm.majority.closed_form import best_for_non_private_voters
from darrm.plurality.accuracy_bound import accuracy_at_most, multipliers_from_json, right_at_most, upper_bound
from darrm.priors import Dirichlet
from darrm.problem import Workload
from tests.optimality import optimality_of

NON_PRIVATE = PrivacyParams("inf")
Histogram = tuple[int, ...]


def histograms(K: int, classes: int) -> list[Histogram]:
    return [n for n in product(range(K + 1), repeat=classes) if sum(n) == K]


def moved(first: Histogram, second: Histogram) -> int:
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) // 2


def best_release(
    inputs: Sequence[Any], are_neighbors: Callable[[Any, Any], bool], reward: np.ndarray, target: PrivacyParams
) -> float:
    """Compute the largest Σ reward·h over all private h, by the definition: Σ_a max(0, h_a(n) − c·h_a(n')) ≤ δ."""
    answers, size = reward.shape[1], reward.size
    pairs = [(i, j) for i, n in enumerate(inputs) for j, m in enumerate(inputs) if i != j and are_neighbors(n, m)]
    entries: list[tuple[int, int, float]] = []  # row, column, value
    bounds: list[float] = []
    for k, (i, j) in enumerate(pairs):
        excesses = range(size + k * answers, size + (k + 1) * answers)
        for a, excess in enumerate(excesses):
            row = len(bounds)
            entries += [
                (row, i * answers + a, 1.0),
                (row, j * answers + a, -np.exp(target.epsilon)),
                (row, excess, -1.0),
            ]
            bounds.append(0.0)
        entries += [(len(bounds), excess, 1.0) for excess in excesses]
        bounds.append(target.delta)
    total = size + len(pairs) * answers
    rows, columns, values = zip(*entries, strict=True)
    upper = coo_matrix((values, (rows, columns)), shape=(len(bounds), total))
    ones = coo_matrix((np.ones(size), (np.arange(size) // answers, np.arange(size))), shape=(len(inputs), total))
    cost = np.concatenate([-reward.ravel(), np.zeros(total - size)])
    solution = linprog(cost, A_ub=upper, b_ub=bounds, A_eq=ones, b_eq=np.ones(len(inputs)), method="highs")
    return float(-solution.fun)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "classes", "target", "reached"),
    [
        (6, 3, PrivacyParams("0.5", "0.01"), 1),
        (6, 3, PrivacyParams(1), 1),
        (5, 3, PrivacyParams("0.3", "0.05"), 2),
        (4, 4, PrivacyParams("0.7", "1e-3"), 1),
        (7, 2, PrivacyParams("0.4", "0.02"), 1),
        (7, 2, PrivacyParams("0.4", "0.02"), 3),
    ],
    ids=str,
)
def test_no_release_is_more_accurate_on_any_histogram(
    K: int, classes: int, target: PrivacyParams, reached: int
) -> None:
    inputs = histograms(K, classes)
    kinds = [kind for kind in combinations_with_replacement(range(K + 1), classes) if sum(kind) == K]
    bounds = right_at_most(kinds, target, reached=reached)
    for kind, bound in zip(kinds, bounds, strict=True):
        reward = np.zeros((len(inputs), classes))
        copies = set(permutations(kind))
        for copy in copies:
            reward[inputs.index(copy), np.array(copy) == max(copy)] = 1.0 / len(copies)
        accuracy = best_release(inputs, lambda n, m: moved(n, m) <= reached, reward, target)
        assert accuracy - 1e-9 <= bound < accuracy + (1e-9 if classes == 2 and reached == 1 else 0.12)


@pytest.mark.parametrize("target", [PrivacyParams("0.2", "1e-4"), PrivacyParams(2), PrivacyParams("1e-3", "1e-3")])
def test_the_bound_for_two_classes_is_the_closed_form(target: PrivacyParams) -> None:
    best = best_for_non_private_voters(Problem(Voters(41, NON_PRIVATE, overlap=1), target))
    counts = np.array([[votes, 41 - votes] for votes in range(21, 42)])
    assert right_at_most(counts, target) == pytest.approx((1.0 + best.half) / 2.0, abs=1e-10)


def test_the_bound_is_just_above_the_optimum() -> None:
    """30 voters, three classes, every histogram equally likely: 0.8903 is attained (the linear program)."""
    workload = Workload(Voters(30, NON_PRIVATE, overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)
    assert 0.8903 < accuracy_at_most(workload, np.array(histograms(30, 3))) < 0.8990


@pytest.mark.parametrize("target", [PrivacyParams("0.8"), PrivacyParams("0.2", "0.01"), PrivacyParams("1.5", "0.001")])
@pytest.mark.parametrize(("K", "classes"), [(2, 2), (3, 2), (1, 3)])
def test_no_release_of_two_queries_is_more_accurate(K: int, classes: int, target: PrivacyParams) -> None:
    single = histograms(K, classes)
    inputs, answers = list(product(single, repeat=2)), list(product(range(classes), repeat=2))
    reward = [
        [np.mean([n[label] == max(n) for n, label in zip(pair, answer, strict=True)]) for answer in answers]
        for pair in inputs
    ]
    accuracy = best_release(
        inputs,
        lambda first, second: all(moved(n, m) <= 1 for n, m in zip(first, second, strict=True)),
        np.array(reward) / len(inputs),
        target,
    )
    workload = Workload(Voters(K, NON_PRIVATE, overlap=1), 2, target, classes)
    assert accuracy <= accuracy_at_most(workload, np.array(single)) + 1e-9


def test_many_queries_lower_the_bound_to_random_guessing() -> None:
    """Two people can change the answer of every query, so many answers are little better than a guess."""
    workload = Workload(Voters(11, NON_PRIVATE, overlap=1), 10**6, PrivacyParams(1, "1e-9"), 3)
    assert 1 / 3 < accuracy_at_most(workload, np.array([[5, 3, 3]])) < 1 / 3 + 2e-3
    assert accuracy_at_most(workload, np.array([[4, 4, 3]])) > 2 / 3 - 1e-3


def test_accuracy_is_weighted_by_the_prior() -> None:
    counts = np.array([[9, 1], [5, 5]])
    workload = Workload(Voters(10, NON_PRIVATE, overlap=1), 1, PrivacyParams(1), 2)
    first, second = right_at_most(counts, workload.total)
    assert second == 1.0
    assert accuracy_at_most(workload, counts, [0.25, 0.75]) == pytest.approx(0.25 * first + 0.75)


PRIVATE_VOTERS = Workload(Voters(7, PrivacyParams(1)), 1, PrivacyParams(1))


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (lambda: right_at_most([3, 4], PrivacyParams(1)), "shape"),
        (lambda: right_at_most([[7]], PrivacyParams(1)), "shape"),
        (lambda: right_at_most([[3.0, 4.0]], PrivacyParams(1)), "whole numbers"),
        (lambda: right_at_most([[3, 4]], PrivacyParams(1), reached=0), "reached must be"),
        (lambda: right_at_most([[3, 4]], PrivacyParams(0, "0.1")), "epsilon"),
        (lambda: accuracy_at_most(PRIVATE_VOTERS, np.array([[3, 4]])), r"voters\.each"),
    ],
)
def test_accuracy_bounds_refuse_arguments_out_of_range(bound: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound()


NON_PRIVATE_PAIR = [0, [1, 1, 0], [0.5, 0.0, 0.25]]
PRIVATE_ROW = [0.5, 1, [[1, 0, 0, 1, 0, 0], [1, 0, 2, 2, 2, 2]]]


@pytest.mark.parametrize(
    ("each", "entry", "changes", "message"),
    [
        *(
            (PrivacyParams("inf"), NON_PRIVATE_PAIR, *case)
            for case in [
                ({0: 1}, "neighbors of a partition"),
                ({1: [1, 0, 1]}, "neighbors of a partition"),
                ({0: False}, "whole numbers"),
                ({1: [1.0, 1, 0]}, "whole numbers"),
                ({2: [0.5, 0.0]}, "a number for each term"),
                ({2: [0.5, -0.1, 0.0]}, "multiplier"),
                ({2: [0.5, float("nan"), 0.0]}, "multiplier"),
            ]
        ),
        *(
            (PrivacyParams("0.5"), PRIVATE_ROW, *case)
            for case in [
                ({0: -0.5}, "multiplier"),
                ({0: float("inf")}, "multiplier"),
                ({1: 3}, "answers"),
            ]
        ),
    ],
)
def test_multipliers_of_another_problem_are_refused(
    each: PrivacyParams, entry: list[Any], changes: dict[int, Any], message: str
) -> None:
    problem = Problem(Voters(2, each, overlap=1), PrivacyParams("0.5"), 3)
    (multiplier,) = multipliers_from_json([entry], problem)
    assert multiplier.to_list() == entry
    with pytest.raises(ValueError, match=message):
        multipliers_from_json([[changes.get(place, value) for place, value in enumerate(entry)]], problem)
    for data in ({"multipliers": entry}, [entry] * 10_001):
        with pytest.raises(ValueError, match="a list of at most"):
            multipliers_from_json(data, problem)


@pytest.mark.parametrize("delta", ["0.05", "0.3"])
def test_the_multipliers_of_an_optimum_bound_it_where_delta_is_large(delta: str) -> None:
    problem = Problem(Voters(4, NON_PRIVATE, overlap=1), PrivacyParams("0.5", delta), 3)
    optimality = optimality_of(optimize_table(problem, prior=Dirichlet()))
    assert optimality.multipliers
    assert upper_bound(problem, Dirichlet(), optimality.multipliers) == pytest.approx(optimality.value, abs=1e-7)
    useless = [multiplier._replace(weights=[9.0] * len(multiplier.weights)) for multiplier in optimality.multipliers]
    assert upper_bound(problem, Dirichlet(), useless) == 1.0
