"""The audits: bounds that fail as seldom as they say, laws that the releases have, planted bugs that are refuted."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.noisy_max.cost_given_votes import label_costs
from darrm.numerics.binomial import binomial_pmf
from darrm.pate import GNMax, LNMax
from darrm.verify.attack import Intervals
from darrm.votes import Votes
from experiments.audits import noisy_maxima, poisoned
from experiments.audits.canaries import p_value, refuted_epsilon

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "audits" / "audits.json"


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "printed"),
    # [SNJ23, Appendix D and Section 7], the second truncated after three digits
    [(1_000, 100, 75, 1e-4, 0.673), (100_000, 1_510, 1_439, 1e-5, 2.675)],
)
def test_the_numbers_of_the_paper(canaries: int, guesses: int, right: int, delta: float, printed: float) -> None:
    assert refuted_epsilon(canaries, guesses, right, delta, 0.95) == pytest.approx(printed, abs=1e-3)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
@pytest.mark.parametrize(
    ("canaries", "epsilon", "delta"), [(40, 0.5, 0.0), (40, 2.0, 0.0), (60, 1.0, 1e-3), (30, 0.0, 0.02)]
)
def test_private_mechanisms_are_refuted_as_seldom_as_stated(
    canaries: int, epsilon: float, delta: float, confidence: float
) -> None:
    """Exact laws of the right guesses of three (ε, δ)-private mechanisms, each the worst in its way."""
    q = 1.0 / (1.0 + math.exp(-epsilon))
    shows_each = binomial_pmf(canaries, delta + (1.0 - delta) * q)  # randomized response that fails bit by bit
    shows_all = (1.0 - delta) * binomial_pmf(canaries, q)  # or fails for all bits at once
    shows_all[-1] += delta
    refuted = np.array(
        [p_value(canaries, canaries, right, epsilon, delta) <= 1 - confidence for right in range(canaries + 1)]
    )
    for law in (shows_each, shows_all):
        assert law[refuted].sum() <= 1.0 - confidence + 1e-12
    if delta == 0.0:
        assert shows_each[refuted].sum() > 0.2 * (1.0 - confidence)  # exact but for the lattice


def test_the_refuted_epsilon_of_randomized_response_comes_near_the_truth() -> None:
    right = round(10_000 / (1.0 + math.exp(-1.0)))
    assert 0.9 < refuted_epsilon(10_000, 10_000, right, 0.0, 0.999) < 1.0
    assert refuted_epsilon(100, 100, 50, 0.0, 0.999) == 0.0


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", noisy_maxima.MECHANISMS, ids=repr)
@pytest.mark.parametrize("ones", [30, 45, 50, 51, 62])
def test_the_release_has_the_law_that_is_computed(mechanism: Any, ones: int) -> None:
    draws = 4_000
    seen = noisy_maxima.answers(mechanism, ones, draws, np.random.default_rng(ones))
    bounds = Intervals.of_counts([seen, seen], draws, 1e-6 / 100)  # a false alarm in 1e-6 of all seeds
    law = noisy_maxima.label_law(mechanism, np.array([100 - ones, ones]))
    assert sum(seen) == draws
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all((bounds.lower[0] <= law) & (law <= bounds.upper[0]))


def test_a_divergence_is_its_sum() -> None:
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.1, 0.6, 0.3])
    ways = [math.log(float(np.sum(a**3.0 * b**-2.0))) / 2.0 for a, b in ((p, q), (q, p))]
    assert ways[0] < ways[1]
    assert noisy_maxima.both_ways(p, q, 3.0) == pytest.approx(ways[1])
    assert noisy_maxima.both_ways(q, p, 3.0) == pytest.approx(ways[1])


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mechanism",
    [pytest.param(one, marks=[pytest.mark.slow] * isinstance(one, LNMax)) for one in noisy_maxima.MECHANISMS],
    ids=repr,
)
def test_an_audit_lies_below_the_truth_and_that_below_the_charge(mechanism: Any) -> None:
    for row in noisy_maxima.audit(mechanism, 4_000, 0.999999, np.random.default_rng(3)):
        assert row.refuted <= row.exact <= row.charged


def test_noise_that_is_too_small_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = GNMax(5.0)
    answers = noisy_maxima.answers
    planted = lambda mechanism, *rest: answers(GNMax(mechanism.sigma / 2), *rest)  # noqa: E731 (the bug)
    monkeypatch.setattr(noisy_maxima, "answers", planted)
    first = noisy_maxima.audit(honest, 20_000, 0.999999, np.random.default_rng(3))[0]
    assert first.refuted > first.charged


class TestCanaries:
    """One small training; the false-alarm rate of the honest one is 1e-6."""

    @staticmethod
    def refuted(*, clipped: bool) -> Any:
        torch_users = pytest.importorskip("experiments.audits.canaries")
        recipe = torch_users.PrivateSGD(learning_rate=0.5, steps=20, sampling_rate=0.5, noise=10.0)
        return torch_users.one_run(recipe, 600, 0.999999, clipped=clipped, seed=1)

    def test_an_honest_training_stands(self) -> None:
        run = self.refuted(clipped=True)
        assert run.refuted < run.claimed
        assert run.right > 0.53 * run.guesses  # the canaries are seen

    def test_a_training_without_clipping_is_refuted(self) -> None:
        run = self.refuted(clipped=False)
        assert run.refuted > run.claimed

    def test_clipping_taken_out_of_the_code_is_refuted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        training = pytest.importorskip("darrm.training.training")

        def unclipped(gradients: Any, mask: Any, clip: float) -> Any:  # noqa: ARG001 (that is the bug)
            return {
                name: (value * mask.view(*mask.shape, *[1] * (value.ndim - 2))).sum(1)
                for name, value in gradients.items()
            }

        monkeypatch.setattr(training, "clipped_sums", unclipped)
        run = self.refuted(clipped=True)
        assert run.refuted > run.claimed


def test_the_adversary_knows_the_law_of_the_label_and_finds_the_costly_query() -> None:
    for counts in ([26, 24], [0, 7, 19, 1, 1, 0, 0, 0, 22, 0]):
        law = poisoned.label_law(np.array(counts))
        labels = poisoned.MECHANISM.release(
            Votes.of_counts(np.tile(counts, (20_000, 1)), 50), rng=np.random.default_rng(0)
        )
        assert np.bincount(labels, minlength=len(counts)) / 20_000 == pytest.approx(law, abs=0.02)
    (two, ten) = json.loads(DATA.read_text())["poisoned"]
    for row in (two, ten):
        before, after = np.array(row["said"]), np.array(row["poisoned_votes"])
        assert np.abs(after - before).sum() == 2  # one vote of one teacher
        costs = label_costs(poisoned.MECHANISM.law, [before], [2.0])
        assert row["exact"] == pytest.approx(float(costs.both[0, 0]), rel=1e-6)
        pair = float(noisy_maxima.both_ways(poisoned.label_law(before), poisoned.label_law(after), 2.0))
        assert row["poisoned"] < pair < 1.03 * row["exact"]


def test_what_the_labels_refute_lies_below_the_divergence_of_the_pair() -> None:
    before, after = np.array([26, 24]), np.array([25, 25])
    found = poisoned.refuted(before, after, 30_000, 0.999, np.random.default_rng(1))
    pair = float(noisy_maxima.both_ways(poisoned.label_law(before), poisoned.label_law(after), 2.0))
    assert 0.3 * pair < found < pair


def test_a_divergence_is_bounded_at_the_nearest_points_of_the_intervals() -> None:
    bounds = Intervals(np.array([[0.3, 0.1], [0.1, 0.5]]), np.array([[0.4, 0.2], [0.2, 0.7]]))
    grid = [np.linspace(low, high, 41) for low, high in ((0.3, 0.4), (0.1, 0.2), (0.1, 0.2), (0.5, 0.7))]
    for order in (1.5, 8.0):
        least = []
        for ends in ((grid[0], grid[2]), (grid[1], grid[3])):
            P, Q = (np.stack([side, 1.0 - side]) for side in np.meshgrid(*ends))
            both = [np.log(np.sum(p**order * q ** (1.0 - order), axis=0)) / (order - 1.0) for p, q in ((P, Q), (Q, P))]
            least.append(max(one.min() for one in both))
        assert noisy_maxima.renyi_below(bounds, order) == pytest.approx(max(least), rel=1e-12)
    assert noisy_maxima.renyi_below(Intervals(np.array([[0.1], [0.2]]), np.array([[0.3], [0.4]])), 2.0) == 0.0
