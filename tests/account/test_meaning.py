"""What (ε, δ) means for a person: no event of any pair of laws exceeds it, and the worst pair attains it."""

from itertools import chain, combinations
from math import exp

import numpy as np
import pytest

from darrm.account.meaning import belief_after, explain_guarantee, power_of_test


def test_no_event_exceeds_the_power_and_the_belief() -> None:
    rng = np.random.default_rng(11)
    for _ in range(60):
        first, second = rng.dirichlet(np.full(5, 0.7), 2)
        epsilon = float(rng.uniform(0.0, 2.0))
        deltas = [float(np.maximum(0.0, a - exp(epsilon) * b).sum()) for a, b in ((first, second), (second, first))]
        for event in map(list, chain.from_iterable(combinations(range(5), size) for size in range(1, 6))):
            hit, level = float(first[event].sum()), float(second[event].sum())
            assert hit <= power_of_test(epsilon, max(deltas), level) + 1e-12
            prior, least_level = float(rng.uniform()), float(rng.uniform(0.0, level)) + 1e-9
            belief = prior * hit / (prior * hit + (1.0 - prior) * level)
            assert belief <= belief_after(epsilon, max(deltas), prior, least_level) + 1e-9


def test_the_worst_pair_of_laws_attains_power_and_belief() -> None:
    epsilon, delta = 0.7, 0.02
    rest = (1.0 - delta) / (1.0 + exp(epsilon))
    first, second = (delta, rest * exp(epsilon), rest), (0.0, rest, rest * exp(epsilon))
    hit, level = first[0] + first[1], second[1]
    assert hit == pytest.approx(power_of_test(epsilon, delta, level), abs=1e-15)
    belief = 0.3 * hit / (0.3 * hit + 0.7 * level)
    assert belief_after(epsilon, delta, [0.0, 0.3, 1.0], level) == pytest.approx([0.0, belief, 1.0], abs=1e-15)


def test_an_event_of_probability_zero_reveals_all_only_with_a_delta() -> None:
    assert belief_after(1.0, 0.0, [0.0, 0.5, 1.0], 0.0) == pytest.approx([0.0, exp(1) / (1 + exp(1)), 1.0])
    assert belief_after(1.0, 0.1, [0.0, 0.5, 1.0], 0.0).tolist() == [0.0, 1.0, 1.0]


def test_a_sentence_explains_the_guarantee() -> None:
    first, second, third = (
        explain_guarantee("all labels", epsilon, delta, present=present)
        for epsilon, delta, present in ((2.0, 1e-5, False), (0.1, 0.0, True), (800.0, 0.5, True))
    )
    assert first.startswith("Any event of all labels is at most e^2 = 7.39 times as likely, plus 1e-05, as with other")
    assert first.endswith("; a test with 5 % false alarms has power 36.95 % at most")
    assert second.startswith("The odds of any belief about a person change by at most e^0.1 = 1.106 after all labels;")
    assert "more than 1e300 times as likely, plus 0.5, as without the data of this person; a test" in third
