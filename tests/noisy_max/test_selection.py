import math
from fractions import Fraction

import numpy as np
import pytest

from darrm.noisy_max import selection
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.privacy import PrivacyParams
from darrm.votes import Votes
from tests.noisy_max.oracles import selection_law
from tests.numerics.support import Script, enumerate_law

Mechanism = ExponentialMechanism | PermuteAndFlip
MECHANISMS = [
    ExponentialMechanism(0.7),
    ExponentialMechanism(2.0, reached=2),
    PermuteAndFlip(0.7),
    PermuteAndFlip(2.0, reached=2),
]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("counts", [[3, 1], [2, 2, 1], [0, 3, 1, 3]], ids=str)
def test_the_law_is_exact(mechanism: Mechanism, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    # tests/numerics proves the coins; here each is a branch of exactly its probability
    def draw(script: Script) -> int:
        monkeypatch.setattr(selection, "uniform_below", lambda _: script.below)
        monkeypatch.setattr(selection, "bernoulli_exp", script.coins)
        return int(mechanism.release(Votes.from_counts([counts]))[0])

    law, error = enumerate_law(draw, 1e-6)
    assert error < 1e-3
    for c, probability in enumerate(selection_law(mechanism, counts)):
        assert law[c] == pytest.approx(probability, abs=error + 1e-12)


@pytest.mark.parametrize("epsilon", ["0.5", "0.123456789012345", "1e-25"])
def test_coins_are_exact_beyond_64_bits(epsilon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exponents: set[Fraction] = set()

    def toss(numerators: np.ndarray, denominators: np.ndarray, _below: object) -> np.ndarray:
        exponents.update(map(Fraction, numerators.tolist(), denominators.tolist()))
        return np.ones(numerators.size, dtype=bool)

    monkeypatch.setattr(selection, "bernoulli_exp", toss)
    PermuteAndFlip(float(epsilon), reached=2).release(Votes.from_counts([[10**9, 0]] * 100))
    assert exponents == {Fraction(0), 10**9 * Fraction(epsilon) / 4}


@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlip])
@pytest.mark.parametrize("reached", [1, 2])
def test_an_answer_is_private_for_its_epsilon_and_nearly_attains_it(kind: type[Mechanism], reached: int) -> None:
    mechanism, worst = kind(0.9, reached), 0.0
    for ones in range(10):
        for moved in range(max(0, ones - reached), min(9, ones + reached) + 1):
            for extra in (0, 4):  # votes for a third class
                p, q = (selection_law(mechanism, [votes, 9 - votes, extra]) for votes in (ones, moved))
                worst = max(worst, float(np.max(np.log(p / q))))
    assert (0.8 if kind is PermuteAndFlip else 0.5) < worst <= 0.9 + 1e-12
    cost = mechanism.privacy_cost()
    assert (cost.reached, cost.guarantee) == (reached, PrivacyParams(0.9))


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "draws"),
    # the last one tosses its coins in unbounded whole numbers
    [*((mechanism, 60_000) for mechanism in MECHANISMS), (PermuteAndFlip(0.7123456789012347), 3000)],
    ids=str,
)
def test_many_queries_at_once_follow_the_law(mechanism: Mechanism, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "DRAWS_AT_ONCE", 2 * draws)  # several blocks
    rows = [[6, 4, 2], [1, 5, 6]]
    labels = mechanism.release(Votes.from_counts(np.tile(rows, (draws, 1))), rng=np.random.default_rng(6))
    for row, counts in enumerate(rows):
        shares = np.bincount(labels[row::2], minlength=3) / draws
        law = selection_law(mechanism, counts)
        # every cell within six standard errors: false alarms below 1e-6 after all cells
        assert np.all(np.abs(shares - law) < 6 * np.sqrt(law * (1 - law) / draws))


@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlip])
def test_refusals(kind: type[Mechanism]) -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf, 701.0):
        with pytest.raises(ValueError, match="epsilon must be"):
            kind(epsilon)
    for reached in (0, 1.5, True):
        with pytest.raises(ValueError, match="reached must be"):
            kind(1.0, reached)  # type: ignore[arg-type]
