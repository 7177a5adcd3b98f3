"""Costs of single questions do not add up for trained models: counterexamples in exact fractions.

Nothing here but the accountant under test shares code with the package. By the theorem that any pure ε-private model is
a post-processing of one randomized-response bit, a model is a pair of answer vectors: the first is given with
probability hi = r/(1 + r) on one data set and lo = 1/(1 + r) on the other, r = e^ε.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path

import mpmath
import pytest

from darrm import PrivacyAccountant, PrivacyParams, Problem, Voters, optimize_table
from darrm.loss.composition import compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from tests.oracle import exponential, signed_values

Answers = tuple[int, ...]
Model = tuple[Answers, Answers]
Law = dict[Answers, Fraction]

PAGE = Path(__file__).parents[2] / "docs" / "trained-models.md"
THREE = [Fraction(1), Fraction(1, 3)]  # γ(2), γ(3)
THREE_MODELS: list[Model] = [((1, 1), (0, 0)), ((0, 1), (0, 0)), ((1, 0), (0, 0))]  # (b1, b1), (0, b2), (b3, 0)
FIVE, FIVE_TIMES = [Fraction(0), Fraction(0), Fraction(5, 100)], 100
NINE, NINE_TIMES = [*[Fraction(0)] * 4, Fraction(5, 100)], 150
# nothing up to some number of ones, then a step, then a ramp of so many votes
MONOTONE = [
    Fraction(0) if ones < 126 else Fraction(155, 1000) + Fraction(92, 10_000) * min(max(ones - 131, 0), 25)
    for ones in range(101, 202)
]
SMALLEST = [
    Fraction(0) if ones < 32 else Fraction(367, 1000) + Fraction(199, 10_000) * min(max(ones - 34, 0), 9)
    for ones in range(26, 52)
]
MONOTONE_TIMES, MONOTONE_RATIO = 8, Fraction(101, 100)


def truths(half: Iterable[Fraction]) -> list[Fraction]:
    """h(s): how often the label is 1 at s ones; γ(l) for l > K/2, K odd."""
    top = list(half)
    return [(1 - value) / 2 for value in reversed(top)] + [(1 + value) / 2 for value in top]


def laws(half: Sequence[Fraction], models: Iterable[Model], r: Fraction) -> tuple[Law, Law]:
    """The laws of all labels on the two data sets."""
    h, found = truths(half), []
    for first in (r / (r + 1), 1 / (r + 1)):
        counts: Law = {}
        for given, other in models:
            before = counts or {(0,) * len(given): Fraction(1)}
            counts = {}
            for ones, weight in before.items():
                for answers, share in ((given, first), (other, 1 - first)):
                    key = tuple(map(sum, zip(ones, answers, strict=True)))
                    counts[key] = counts.get(key, Fraction(0)) + weight * share
        questions = len(next(iter(counts)))
        found.append(
            {
                labels: sum(
                    (
                        weight * math.prod(h[s] if label else 1 - h[s] for s, label in zip(ones, labels, strict=True))
                        for ones, weight in counts.items()
                    ),
                    start=Fraction(0),
                )
                for labels in product((0, 1), repeat=questions)
            }
        )
    return found[0], found[1]


def largest_ratio(half: Sequence[Fraction], models: Iterable[Model], r: Fraction) -> Fraction:
    """e to the loss of the labels of these models, in both directions; some label has probability 0 on both or none."""
    one, two = laws(half, models, r)
    return max(max(one[y] / two[y], two[y] / one[y]) for y in one if one[y])


def worst_of(half: Sequence[Fraction], r: Fraction, questions: int) -> Fraction:
    """e to the worst loss over every multiset of models: 4^Q·4^Q pairs of answer vectors each."""
    vectors = list(product((0, 1), repeat=questions))
    voters = 2 * len(half) - 1
    return max(
        largest_ratio(half, models, r)
        for models in combinations_with_replacement(list(product(vectors, vectors)), voters)
    )


def same_question(half: Sequence[Fraction], r: Fraction, times: int) -> Fraction:
    """The worst Pr[all labels 1] ratio where one-bit models are asked the same question.

    Where n models say their bit and s of the others say 1: E[h(s + Bin(n, hi))^Q] against lo, over all s and n, by
    Pascal's triangle in integers. For one question and a monotone γ no other models are worse.
    """
    num, den = r.numerator, r.denominator  # hi = num / (num + den)
    scale = math.lcm(*(value.denominator for value in half))
    up = down = [int(value * scale * 2) ** times for value in truths(half)]
    worst = (0, 1)
    while len(up) > 1:
        up = [den * low + num * high for low, high in pairwise(up)]
        down = [num * low + den * high for low, high in pairwise(down)]
        for pair in zip(up, down, strict=True):
            if pair[0] * worst[1] > worst[0] * pair[1]:
                worst = pair
    return Fraction(*worst)


def loss(ratio: Fraction) -> float:
    return float(mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator))


def reported(K: int, each: PrivacyParams, query: float, queries: int, delta: float = 0.0) -> float:
    """What an account of models says: the caller's charge is as small as the exact cost of a question."""
    cost = PrivacyCost("a question", guarantee=PrivacyParams(query, 0), count=queries)
    return PrivacyAccountant(Voters(K, each, models=True), costs=[cost]).spent(delta).epsilon


@pytest.mark.parametrize("r", [Fraction(11, 10), exponential(Fraction(1, 10)), Fraction(3)])
def test_three_models_lose_more_than_two_questions_cost(r: Fraction) -> None:
    two = largest_ratio(THREE, THREE_MODELS, r)
    assert two == (9 * r**3 + 1) / (9 + r**3)
    if r < 2:
        assert worst_of(THREE, r, 1) == r
        assert two > r**2


def test_nothing_is_worse_for_three_voters_and_two_questions() -> None:
    r = exponential(Fraction(1, 10))
    worst = worst_of(THREE, r, 2)
    assert worst == largest_ratio(THREE, THREE_MODELS, r)
    assert f"{loss(worst):.4f}" == "0.2394"
    assert reported(3, PrivacyParams("0.1"), 0.1, 2) >= loss(worst)


def test_the_optimum_and_the_optimal_bound_fail_too() -> None:
    each, r = PrivacyParams(2), exponential(Fraction(2))
    table = optimize_table(Problem.from_allowance(Voters(3, each), 1))
    half = signed_values(3, table.gamma.half)[2:]
    assert worst_of(half, r, 1) <= r
    assert largest_ratio(half, THREE_MODELS, r) > r**2
    assert f"{loss(largest_ratio(half, THREE_MODELS, r)):.4f}" == "4.1203"
    summed = compose_optimal(each, 2, delta=0.03).epsilon
    factor = exponential(Fraction(summed))
    one, two = laws(half, THREE_MODELS, r)
    failing = sum(max(Fraction(0), one[y] - factor * two[y]) for y in one)
    assert (f"{summed:.4f}", f"{float(failing):.4f}") == ("3.9606", "0.1009")
    assert failing > Fraction(3, 100)
    allowed = exponential(Fraction(reported(3, each, 2.0, 2, 0.03)))
    assert sum(max(Fraction(0), one[y] - allowed * two[y]) for y in one) <= Fraction(3, 100)


@pytest.mark.parametrize(
    ("half", "epsilon", "times", "more"),
    [(FIVE, "1", FIVE_TIMES, Fraction(142, 100)), (NINE, "0.3", NINE_TIMES, Fraction(172, 100))],
)
def test_a_monotone_shape_that_costs_less_than_a_voter(
    half: list[Fraction], epsilon: str, times: int, more: Fraction
) -> None:
    r, voters = exponential(Fraction(epsilon)), 2 * len(half) - 1
    one = worst_of(half, r, 1)
    assert one == same_question(half, r, 1)
    assert one < r
    total = same_question(half, r, times)
    assert loss(total) > float(more) * times * loss(one)
    assert total <= r**voters
    assert reported(voters, PrivacyParams(epsilon), loss(one), times) >= loss(total)


@pytest.mark.parametrize(
    ("half", "r", "times", "moving", "more"),
    [
        (MONOTONE, MONOTONE_RATIO, MONOTONE_TIMES, 140, 1.0049),
        (SMALLEST, Fraction(16487, 10_000), 2, 36, 1.00012),  # about e^(1/2)
    ],
)
def test_a_monotone_shape_that_costs_more_than_a_voter(
    half: list[Fraction], r: Fraction, times: int, moving: int, more: float
) -> None:
    assert all(0 <= low <= high <= 1 for low, high in pairwise(half))
    one, total = same_question(half, r, 1), same_question(half, r, times)
    assert one > r
    assert total > one**times
    assert loss(total) > more * times * loss(one)
    assert total <= r ** len(truths(half))
    # by the models that do it: so many say their bit, the others 0
    powers = [value**times for value in truths(half)]
    up, down = (
        sum(
            math.comb(moving, ones) * r ** (ones if towards else moving - ones) * powers[ones]
            for ones in range(moving + 1)
        )
        for towards in (True, False)
    )
    assert up / down == total


def test_the_table_that_is_made_by_default_fails() -> None:
    table = optimize_table(Problem.from_allowance(Voters(51, PrivacyParams("0.1")), 1))
    r = exponential(Fraction(1, 10))
    total = same_question(signed_values(51, table.gamma.half)[26:], r, 10)
    assert exponential(Fraction(113, 100)) < total < exponential(Fraction(114, 100))
    assert reported(51, PrivacyParams("0.1"), 0.1, 10) >= loss(total)


@pytest.mark.parametrize("times", [2, 3])
def test_the_same_question_is_the_triangles(times: int) -> None:
    half, r = [Fraction(1, 5), Fraction(3, 5)], Fraction(5, 4)
    moving: Model = ((1,) * times, (0,) * times)
    still = [((value,) * times, (value,) * times) for value in (0, 1)]
    expected = max(
        one[labels] / two[labels]
        for models in combinations_with_replacement([moving, *still], 3)
        for one, two in [laws(half, models, r)]
        for labels in [(1,) * times]
    )
    assert same_question(half, r, times) == expected


def test_the_figures_of_the_page() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    r = exponential(Fraction(1, 10))
    ratio = (9 * r**3 + 1) / (9 + r**3)
    five = exponential(Fraction(1))
    one, total = same_question(FIVE, five, 1), same_question(FIVE, five, FIVE_TIMES)
    dear, dear_total = (same_question(MONOTONE, MONOTONE_RATIO, times) for times in (1, MONOTONE_TIMES))
    both_ends = 2 * mpmath.atanh(mpmath.tanh(0.5) ** 2)
    for figure in (
        f"{float(ratio):.4f}, a loss of {loss(ratio):.4f}",
        f"costs {loss(one):.4f}",
        f"loses {loss(total):.3f}, where the sum is {FIVE_TIMES * loss(one):.3f}",
        f"costs {loss(dear):.5f}, {loss(dear) / loss(MONOTONE_RATIO):.3f} times what one voter does",
        "loses 1.13, where the sum is 1",
        f"loses {loss(dear_total):.5f}, where the sum is {MONOTONE_TIMES * loss(dear):.5f}",
        f"give {float(both_ends):.3f}",
        f"the smallest known counterexample has {2 * len(SMALLEST) - 1} voters",
    ):
        assert figure in text, figure
