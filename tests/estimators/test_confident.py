"""What a confident run costs, enumerated: no pair of neighboring votes is told apart better than it charges for."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from darrm.estimators.budget import LimitedConfident
from darrm.pate import ConfidentGNMax
from darrm.votes import Votes

NOISE = np.arange(-40, 41)


def law(ones: tuple[int, ...], voters: int, run: LimitedConfident) -> dict[tuple[int, ...], float]:
    """Enumerate the law of all answers to queries about two classes, from the noise's definition."""
    check, answer = (
        np.exp(-(NOISE**2) / (2.0 * sigma**2))
        for sigma in (run.aggregator.sigma_threshold, run.aggregator.sigma_answer)
    )
    check, both = check / check.sum(), np.outer(answer, answer) / answer.sum() ** 2
    lead = NOISE[:, None] - NOISE[None, :]
    outcomes: dict[tuple[int, ...], float] = {}
    for bits in itertools.product((False, True), repeat=len(ones)):
        chosen = [query for query, passed in enumerate(bits) if passed][: run.answers]
        told = 1.0
        for votes, passed in zip(ones, bits, strict=True):
            over = max(votes, voters - votes) + NOISE >= run.aggregator.threshold
            told *= float(check[over == passed].sum())
        for labels in itertools.product((0, 1), repeat=len(chosen)):
            found, answers = told, [-1] * len(ones)
            for query, label in zip(chosen, labels, strict=True):
                ahead = (2 * ones[query] - voters + lead) * (1 if label else -1)
                found *= float(both[ahead > 0].sum() + both[ahead == 0].sum() / 2.0)
                answers[query] = label
            outcomes[tuple(answers)] = outcomes.get(tuple(answers), 0.0) + found
    return outcomes


def worst_share(voters: int, run: LimitedConfident) -> float:
    """Return the largest Rényi divergence of neighbors, as a share of what is charged."""
    curve: Any = run.privacy_cost().renyi
    laws = {ones: law(ones, voters, run) for ones in itertools.product(range(voters + 1), repeat=run.queries)}
    worst = 0.0
    for (ones, one), (others, other) in itertools.product(laws.items(), repeat=2):
        if max(abs(a - b) for a, b in zip(ones, others, strict=True)) > 1:
            continue
        for order, charged in zip(curve.orders, curve.values, strict=True):
            if 1.4 < order < 6.0:
                moment = sum(chance**order * other[answers] ** (1.0 - order) for answers, chance in one.items())
                worst = max(worst, math.log(moment) / (order - 1.0) / charged)
    return worst


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("voters", "queries", "answers"), [(2, 2, 1), (4, 3, 1), (3, 3, 2)])
def test_no_neighbors_are_told_apart_better_than_is_charged(voters: int, queries: int, answers: int) -> None:
    run = LimitedConfident(ConfidentGNMax(0.8 * voters, 1.0, 1.0), queries, answers)
    share = worst_share(voters, run)
    assert 0.25 < share <= 1.0  # a charge for one check, or for no answer, would be passed


def test_all_checks_and_as_many_answers_as_are_given_are_charged() -> None:
    run = LimitedConfident(ConfidentGNMax(5.0, 1.0, 2.0), queries=7, answers=3)
    agreed = Votes.from_counts([[100, 0]] * 7)  # every check passes
    assert run.release(agreed).tolist() == [0, 0, 0, -1, -1, -1, -1]
    check, answer = run.aggregator.check.guarantee, run.aggregator.answer.guarantee
    for order in (2.0, 5.0, 20.0):
        parts = 7 * check.bound_at(order) + 3 * answer.bound_at(order)
        assert run.guarantee.bound_at(order) == pytest.approx(parts, rel=1e-9)
