import math

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.noisy_max import selection
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.votes import Votes
from tests.noisy_max.oracles import selection_law
from tests.numerics.support import Script, enumerate_law

Mechanism = ExponentialMechanism | PermuteAndFlip
DRAWS = 60_000


AGGREGATORS = [
    ExponentialMechanism(0.7),
    ExponentialMechanism(2.0, reached=2),
    PermuteAndFlip(0.7),
    PermuteAndFlip(2.0, reached=2),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=str)
@pytest.mark.parametrize("counts", [[3, 1], [2, 2, 1], [0, 3, 1, 3]], ids=str)
def test_the_law_is_exact(aggregator: Mechanism, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    # the coins are proved by their own tests; here each is one branch of exactly its probability
    def draw(script: Script) -> int:
        monkeypatch.setattr(selection, "uniform_below", lambda _: script.below)
        monkeypatch.setattr(selection, "bernoulli_exp", script.coins)
        return int(aggregator.release(Votes.from_counts([counts]))[0])

    law, error = enumerate_law(draw, 1e-6)
    assert error < 1e-3
    for c, probability in enumerate(selection_law(aggregator, counts)):
        assert law[c] == pytest.approx(probability, abs=error + 1e-12)


@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlip])
@pytest.mark.parametrize("reached", [1, 2])
def test_the_privacy_of_an_answer_is_epsilon_and_not_less(kind: type[Mechanism], reached: int) -> None:
    aggregator = kind(0.9, reached)
    worst = 0.0
    for ones in range(10):
        for to in range(max(0, ones - reached), min(9, ones + reached) + 1):
            for extra in (0, 4):  # votes for a third class
                p, q = (selection_law(aggregator, [votes, 9 - votes, extra]) for votes in (ones, to))
                worst = max(worst, *(math.log(a / b) for a, b in zip(p, q, strict=True)))
    assert 0.5 < worst <= 0.9 + 1e-12
    if kind is PermuteAndFlip:
        assert worst > 0.8
    assert aggregator.privacy_cost().reached == reached
    assert PrivacyAccountant(costs=[aggregator.privacy_cost()]).spent(0.0).epsilon == pytest.approx(0.9)


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("aggregator", [*AGGREGATORS, PermuteAndFlip(0.7123456789012347)], ids=str)
def test_many_queries_at_once_follow_the_law(aggregator: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    # the last tosses its coins in unbounded whole numbers;
    # every cell within six standard errors: false alarms below 1e-6 after all cells; two blocks, and different rows
    draws = DRAWS if aggregator in AGGREGATORS else 3000
    monkeypatch.setattr(selection, "DRAWS_AT_ONCE", 2 * draws)
    rows = [[6, 4, 2], [1, 5, 6]]
    labels = aggregator.release(Votes.from_counts(np.tile(rows, (draws, 1))), rng=np.random.default_rng(6))
    for row, counts in enumerate(rows):
        found = np.bincount(labels[row::2], minlength=3) / draws
        true = selection_law(aggregator, counts)
        assert np.all(np.abs(found - true) < 6 * np.sqrt(true * (1 - true) / draws))


@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlip])
def test_numbers_out_of_range_are_refused(kind: type[Mechanism]) -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf, 701.0):
        with pytest.raises(ValueError, match="epsilon must be"):
            kind(epsilon)
    for reached in (0, 1.5, True):
        with pytest.raises(ValueError, match="reached must be"):
            kind(1.0, reached)  # type: ignore[arg-type]
