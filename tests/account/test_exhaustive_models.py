"""What an account of models reports against the exact loss of all labels, over all strategies of one-bit models."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import charge_of
from darrm.table.table import certify

CASES = [  # ε of each model, how many a person reaches, questions
    (["1"], 1, 1),
    (["0.5"] * 2, 2, 2),
    (["0.2", "1"], 2, 2),
    (["0.5"] * 2, 2, 3),
    (["0.2", "1"], 1, 3),
    (["0.5"] * 3, 1, 2),
    (["0.5"] * 3, 2, 2),
    (["0.5"] * 3, 3, 2),
    (["0.1", "0.3", "1.5"], 3, 2),
    (["0.1", "0.3", "1.5"], 1, 2),
    (["1"] * 3, 1, 3),
    (["0.2"] * 4, 1, 2),
    (["1"] * 4, 2, 2),
    (["0.2", "0.2", "0.2", "2"], 2, 2),
    (["0.2", "0.2", "0.2", "2"], 3, 2),
    (["0.3"] * 4, 4, 2),
]


def ones_of(reached: int, fixed: int, questions: int) -> Iterator[Array]:
    """The ones of each question, (strategies, bits of the reached models, questions)."""
    answers = np.array(list(itertools.product((0, 1), repeat=questions)))
    pairs = np.array(list(itertools.product(answers, repeat=2)))  # what a model says where its bit is 0, and where 1
    bits = list(itertools.product((0, 1), repeat=reached))
    chosen = np.array(list(itertools.product(range(len(pairs)), repeat=reached)))
    moved = np.stack([sum(pairs[chosen[:, i], bit[i]] for i in range(reached)) for bit in bits], axis=1)
    for others in itertools.combinations_with_replacement(answers, fixed):
        yield moved + np.sum(others, axis=0, dtype=int)


def exact_loss(one: Array, own: Sequence[float], fixed: int, questions: int) -> float:
    """The worst loss of all labels, each 1 with probability one[s] at s ones, over every strategy of these models."""
    bits = np.array(list(itertools.product((0, 1), repeat=len(own))))
    high = 1.0 / (1.0 + np.exp(-np.asarray(own)))
    weights = [np.prod(np.where(bits == 1, p, 1.0 - p), axis=1) for p in (high, 1.0 - high)]
    worst = 0.0
    for ones in ones_of(len(own), fixed, questions):
        told = one[ones]
        for labels in itertools.product((0, 1), repeat=questions):
            chances = np.prod(np.where(np.array(labels) == 1, told, 1.0 - told), axis=2)
            before, after = chances @ weights[0], chances @ weights[1]
            seen = before > 0.0
            worst = max(worst, float(np.abs(np.log(before[seen] / after[seen])).max(initial=0.0)))
    return worst


def ratios(own: Sequence[str], reached: int, questions: int) -> list[float]:
    """Reported over exact, for three release functions: constant, rising and any."""
    K = len(own)
    voters = Voters.of([PrivacyParams(epsilon) for epsilon in own], overlap=reached, models=True)
    length, result = K - K // 2, []
    drawn = np.random.default_rng(32).uniform(0.1, 0.9, length)
    for half in (np.full(length, 0.5), np.linspace(0.2, 0.8, length), drawn):
        table = certify(Problem.from_allowance(voters, reached), NoiseFunction(K, half))
        one = 0.5 * (1.0 + table.gamma.signed)
        reported = PrivacyAccountant(charges=[charge_of(table, questions)]).spent(0.0).epsilon
        persons = set(itertools.combinations(map(float, own), reached))
        result.append(reported / max(exact_loss(one, person, K - reached, questions) for person in persons))
    return result


@pytest.mark.slow
def test_no_strategy_of_models_loses_more_than_is_reported() -> None:
    """Never less than the truth, and the truth where a person reaches one model."""
    one: list[float] = []
    several: list[float] = []
    for own, reached, questions in CASES:
        (one if reached == 1 else several).extend(ratios(own, reached, questions))
    assert min(one + several) >= 1.0 - 1e-9  # the enumeration is in floats
    assert max(one) <= 1.0 + 1e-5
    assert np.median(several) < 1.5
