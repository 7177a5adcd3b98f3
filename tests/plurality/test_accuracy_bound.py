"""No private release is right more often than the bounds say: linear programs over all of them, the closed form."""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, permutations, product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from darrm import PrivacyParams, Problem, Voters, optimize_table
from darrm.majority.closed_form import best_for_non_private_voters
from darrm.plurality.accuracy_bound import accuracy_at_most, right_at_most, upper_bound
from darrm.priors import Dirichlet
from darrm.problem import Workload

PLAIN = PrivacyParams("inf")
Histogram = tuple[int, ...]


def histograms(K: int, classes: int) -> list[Histogram]:
    return [n for n in product(range(K + 1), repeat=classes) if sum(n) == K]


def moved(first: Histogram, second: Histogram) -> int:
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) // 2


def best_release(
    inputs: Sequence[Any], reach: Callable[[Any, Any], bool], reward: np.ndarray, target: PrivacyParams
) -> float:
    """The largest Σ reward·h over all private h, by the definition: Σ_a max(0, h_a(n) − c·h_a(n')) ≤ δ."""
    answers = reward.shape[1]
    pairs = [(i, j) for i in range(len(inputs)) for j in range(len(inputs)) if i != j and reach(inputs[i], inputs[j])]
    size = reward.size
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    bounds: list[float] = []
    for k, (i, j) in enumerate(pairs):
        for a in range(answers):
            excess = size + k * answers + a
            rows += [len(bounds)] * 3
            columns += [i * answers + a, j * answers + a, excess]
            values += [1.0, -np.exp(target.epsilon), -1.0]
            bounds.append(0.0)
        rows += [len(bounds)] * answers
        columns += range(size + k * answers, size + (k + 1) * answers)
        values += [1.0] * answers
        bounds.append(target.delta)
    total = size + len(pairs) * answers
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
def test_no_release_is_right_more_often(K: int, classes: int, target: PrivacyParams, reached: int) -> None:
    inputs = histograms(K, classes)
    shares, bounds = [], []
    for kind in combinations_with_replacement(range(K + 1), classes):
        if sum(kind) != K:
            continue
        reward = np.zeros((len(inputs), classes))
        copies = set(permutations(kind))
        for copy in copies:
            reward[inputs.index(copy), np.array(copy) == max(copy)] = 1.0 / len(copies)
        shares.append(best_release(inputs, lambda n, m: moved(n, m) <= reached, reward, target))
        bounds.append(float(right_at_most([kind], target, reached=reached)[0]))
    assert np.all(np.array(bounds) >= np.array(shares) - 1e-9)
    assert np.max(np.array(bounds) - np.array(shares)) < (1e-9 if classes == 2 and reached == 1 else 0.12)


@pytest.mark.parametrize("target", [PrivacyParams("0.2", "1e-4"), PrivacyParams(2), PrivacyParams("1e-3", "1e-3")])
def test_two_classes_are_the_closed_form(target: PrivacyParams) -> None:
    K = 41
    best = best_for_non_private_voters(Problem(Voters(K, PLAIN, overlap=1), target))
    counts = np.array([[votes, K - votes] for votes in range(21, 42)])
    assert right_at_most(counts, target) == pytest.approx((1.0 + best.half) / 2.0, abs=1e-10)


def test_the_share_of_the_optimum_is_just_below() -> None:
    """30 voters, three classes, every histogram equally likely: 0.8903 is attained (the linear program)."""
    counts = np.array(histograms(30, 3))
    work = Workload(Voters(30, PLAIN, overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)
    assert 0.8903 < accuracy_at_most(work, counts) < 0.8990


@pytest.mark.parametrize("target", [PrivacyParams("0.8"), PrivacyParams("0.2", "0.01"), PrivacyParams("1.5", "0.001")])
def test_no_release_of_two_questions_is_right_more_often(target: PrivacyParams) -> None:
    """All releases of two questions at once, every histogram equally likely."""
    for K, classes in ((2, 2), (3, 2), (1, 3)):
        single = histograms(K, classes)
        inputs = list(product(single, repeat=2))
        answers = list(product(range(classes), repeat=2))
        right = [
            [np.mean([n[a] == max(n) for n, a in zip(asked, said, strict=True)]) for said in answers]
            for asked in inputs
        ]
        share = best_release(
            inputs,
            lambda one, other: all(moved(n, m) <= 1 for n, m in zip(one, other, strict=True)),
            np.array(right) / len(inputs),
            target,
        )
        work = Workload(Voters(K, PLAIN, overlap=1), 2, target, classes)
        assert share <= accuracy_at_most(work, np.array(single)) + 1e-9


def test_many_questions_lower_the_bound_to_what_a_blind_release_has() -> None:
    """Two people decide every question of three classes, two apart: many answers are little better than a guess."""
    counts = np.array([[5, 3, 3]])
    work = Workload(Voters(11, PLAIN, overlap=1), 10**6, PrivacyParams(1, "1e-9"), 3)
    assert accuracy_at_most(work, counts) == pytest.approx(1 / 3, abs=2e-3)
    assert accuracy_at_most(work, counts) > 1 / 3
    tied = np.array([[4, 4, 3]])
    assert accuracy_at_most(work, tied) > 2 / 3 - 1e-3


def test_weights_are_the_priors() -> None:
    counts, work = np.array([[9, 1], [5, 5]]), Workload(Voters(10, PLAIN, overlap=1), 1, PrivacyParams(1), 2)
    first, second = right_at_most(counts, work.total)
    assert second == 1.0
    assert accuracy_at_most(work, counts, [0.25, 0.75]) == pytest.approx(0.25 * first + 0.75)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        right_at_most([3, 4], PrivacyParams(1))
    with pytest.raises(ValueError, match="epsilon"):
        right_at_most([[3, 4]], PrivacyParams(0, "0.1"))
    with pytest.raises(ValueError, match=r"voters\.each"):
        accuracy_at_most(Workload(Voters(7, PrivacyParams(1)), 1, PrivacyParams(1)), np.array([[3, 4]]))


@pytest.mark.parametrize("delta", ["0.05", "0.3"])
def test_the_multipliers_of_an_optimum_bound_it_where_delta_is_large(delta: str) -> None:
    problem = Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("0.5", delta), 3)
    optimality = optimize_table(problem, prior=Dirichlet()).optimality
    assert optimality is not None
    assert optimality.multipliers
    assert upper_bound(problem, Dirichlet(), optimality.multipliers) == pytest.approx(optimality.value, abs=1e-7)
