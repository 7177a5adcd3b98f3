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
# nothing up to some number of ones, then a step, then a ramp of some votes
MONOTONE = [
    Fraction(0) if ones < 126 else Fraction(155, 1000) + Fraction(92, 10_000) * min(max(ones - 131, 0), 25)
    for ones in range(101, 202)
]
SMALLEST = [
    Fraction(0) if ones < 32 else Fraction(367, 1000) + Fraction(199, 10_000) * min(max(ones - 34, 0), 9)
    for ones in range(26, 52)
]
MONOTONE_TIMES, MONOTONE_RATIO = 8, Fraction(101, 100)
TENTH = exponential(Fraction(1, 10))


def list_chances(half: Sequence[Fraction]) -> list[Fraction]:
    """List how often the label is 1 at each number of ones, from γ(l) for l > K/2, K odd."""
    return [(1 - value) / 2 for value in reversed(half)] + [(1 + value) / 2 for value in half]


def compute_laws(half: Sequence[Fraction], models: Iterable[Model], r: Fraction) -> tuple[Law, Law]:
    """Compute the laws of all labels on the two data sets."""
    chances, laws = list_chances(half), []
    for high in (r / (r + 1), 1 / (r + 1)):
        counts: Law = {}
        for first, second in models:
            before = counts or {(0,) * len(first): Fraction(1)}
            counts = {}
            for ones, weight in before.items():
                for answers, share in ((first, high), (second, 1 - high)):
                    total = tuple(map(sum, zip(ones, answers, strict=True)))
                    counts[total] = counts.get(total, Fraction(0)) + weight * share
        law = dict.fromkeys(product((0, 1), repeat=len(next(iter(counts)))), Fraction(0))
        for ones, weight in counts.items():
            for labels in law:
                factors = (chances[s] if label else 1 - chances[s] for s, label in zip(ones, labels, strict=True))
                law[labels] += weight * math.prod(factors)
        laws.append(law)
    return laws[0], laws[1]


def compute_ratio(half: Sequence[Fraction], models: Iterable[Model], r: Fraction) -> Fraction:
    """Compute e to the loss of the labels of these models, in both directions."""
    first, second = compute_laws(half, models, r)
    return max(max(first[y] / second[y], second[y] / first[y]) for y in first if first[y])


def compute_worst_ratio(half: Sequence[Fraction], r: Fraction, questions: int) -> Fraction:
    """Compute e to the worst loss over every multiset of models."""
    answers = list(product((0, 1), repeat=questions))
    models = list(product(answers, answers))
    return max(compute_ratio(half, chosen, r) for chosen in combinations_with_replacement(models, 2 * len(half) - 1))


def compute_ratio_of_bits(half: Sequence[Fraction], r: Fraction, times: int) -> Fraction:
    """Compute the worst ratio of Pr[all labels are 1] where one-bit models are asked the same question.

    Where n models give their bit and s of the others say 1, it is that of E[h(s + Bin(n, hi))^Q] to lo, over all s and
    n, by Pascal's triangle in integers. For one question and a monotone γ no other models are worse.
    """
    num, den = r.numerator, r.denominator  # hi = num / (num + den)
    scale = math.lcm(*(value.denominator for value in half))
    up = down = [int(value * scale * 2) ** times for value in list_chances(half)]
    worst = (0, 1)
    while len(up) > 1:
        up = [den * low + num * high for low, high in pairwise(up)]
        down = [num * low + den * high for low, high in pairwise(down)]
        for pair in zip(up, down, strict=True):
            if pair[0] * worst[1] > worst[0] * pair[1]:
                worst = pair
    return Fraction(*worst)


def compute_loss(ratio: Fraction) -> float:
    return float(mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator))


def report_epsilon(K: int, each: PrivacyParams, query: float, queries: int, delta: float = 0.0) -> float:
    """Account for models whose charge is as small as the exact cost of a question."""
    cost = PrivacyCost("a question", guarantee=PrivacyParams(query, 0), count=queries)
    return PrivacyAccountant(Voters(K, each, models=True), costs=[cost]).spent(delta).epsilon


def test_nothing_is_worse_for_three_voters_and_two_questions() -> None:
    two = compute_worst_ratio(THREE, TENTH, 2)
    assert compute_worst_ratio(THREE, TENTH, 1) == TENTH
    assert two == compute_ratio(THREE, THREE_MODELS, TENTH) == (9 * TENTH**3 + 1) / (9 + TENTH**3) > TENTH**2
    assert f"{compute_loss(two):.4f}" == "0.2394"
    assert report_epsilon(3, PrivacyParams("0.1"), 0.1, 2) >= compute_loss(two)


def test_the_optimal_composition_of_the_optimum_fails_for_models() -> None:
    each, r = PrivacyParams(2), exponential(Fraction(2))
    table = optimize_table(Problem.from_allowance(Voters(3, each), 1))
    half = signed_values(3, table.gamma.half)[2:]
    assert compute_worst_ratio(half, r, 1) <= r
    assert compute_ratio(half, THREE_MODELS, r) > r**2
    first, second = compute_laws(half, THREE_MODELS, r)

    def compute_delta(epsilon: float) -> Fraction:
        factor = exponential(Fraction(epsilon))
        return sum((max(Fraction(0), first[y] - factor * second[y]) for y in first), Fraction(0))

    composed = compose_optimal(each, 2, delta=0.03).epsilon
    assert (f"{composed:.4f}", f"{float(compute_delta(composed)):.4f}") == ("3.9606", "0.1009")
    assert compute_delta(report_epsilon(3, each, 2.0, 2, 0.03)) <= Fraction(3, 100)


@pytest.mark.parametrize(
    ("half", "r", "times", "factor"),
    [
        (FIVE, exponential(Fraction(1)), FIVE_TIMES, 1.42),
        (MONOTONE, MONOTONE_RATIO, MONOTONE_TIMES, 1.0049),
        (SMALLEST, Fraction(16487, 10_000), 2, 1.00012),  # about e^(1/2)
    ],
    ids=["five", "monotone", "smallest"],
)
def test_a_monotone_shape_loses_more_than_the_sum(half: list[Fraction], r: Fraction, times: int, factor: float) -> None:
    assert all(0 <= low <= high <= 1 for low, high in pairwise(half))
    one, total = compute_ratio_of_bits(half, r, 1), compute_ratio_of_bits(half, r, times)
    assert (one < r) == (half is FIVE)
    assert compute_loss(total) > factor * times * compute_loss(one)
    assert total <= r ** len(list_chances(half))
    each = PrivacyParams(Fraction(compute_loss(r)) * (1 + Fraction(1, 10**12)))
    assert report_epsilon(2 * len(half) - 1, each, compute_loss(one), times) >= compute_loss(total)


def test_the_default_table_loses_more_than_the_sum() -> None:
    table = optimize_table(Problem.from_allowance(Voters(51, PrivacyParams("0.1")), 1))
    total = compute_ratio_of_bits(signed_values(51, table.gamma.half)[26:], TENTH, 10)
    assert exponential(Fraction(113, 100)) < total < exponential(Fraction(114, 100))
    assert report_epsilon(51, PrivacyParams("0.1"), 0.1, 10) >= compute_loss(total)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_oracle_of_one_bit_models_is_the_enumeration(times: int) -> None:
    half, r = [Fraction(1, 5), Fraction(3, 5)], Fraction(5, 4)
    moving: Model = ((1,) * times, (0,) * times)
    still = [((value,) * times, (value,) * times) for value in (0, 1)]
    laws = [compute_laws(half, models, r) for models in combinations_with_replacement([moving, *still], 3)]
    expected = max(first[moving[0]] / second[moving[0]] for first, second in laws)
    assert compute_ratio_of_bits(half, r, times) == expected
    assert times > 1 or expected == compute_worst_ratio(half, r, 1)


def test_the_page_has_these_figures() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    two = compute_ratio(THREE, THREE_MODELS, TENTH)
    five, five_total = (
        compute_loss(compute_ratio_of_bits(FIVE, exponential(Fraction(1)), times)) for times in (1, FIVE_TIMES)
    )
    monotone, monotone_total = (
        compute_loss(compute_ratio_of_bits(MONOTONE, MONOTONE_RATIO, times)) for times in (1, MONOTONE_TIMES)
    )
    for figure in (
        f"{float(two):.4f}, a loss of {compute_loss(two):.4f}",
        f"costs {five:.4f}",
        f"loses {five_total:.3f}, where the sum is {FIVE_TIMES * five:.3f}",
        f"costs {monotone:.5f}, {monotone / compute_loss(MONOTONE_RATIO):.3f} times what one voter does",
        "loses 1.13, where the sum is 1",
        f"loses {monotone_total:.5f}, where the sum is {MONOTONE_TIMES * monotone:.5f}",
        f"give {2 * math.atanh(math.tanh(0.5) ** 2):.3f}",
        f"the smallest known counterexample has {2 * len(SMALLEST) - 1} voters",
    ):
        assert figure in text, figure
