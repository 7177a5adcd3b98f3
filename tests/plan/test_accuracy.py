"""Accuracies against enumerations of all histograms in fractions, and the reference priors of a ranking."""

from fractions import Fraction
from functools import partial
from itertools import permutations, product
from math import factorial
from pathlib import Path

import numpy as np
import pytest

from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.plan import find_mechanism, plan
from darrm.plan.accuracy import Law, Measure, accuracy_of_majorities, guess_at_random
from darrm.plan.tables import Exponential, PermuteAndFlip
from darrm.priors import Dirichlet, Independent, Led, Point, Prior, RecordedVotes, Spread, TwoSided, reference_priors
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.votes import Votes
from experiments.pate.recorded import load_counts
from tests.planned import PLAIN, accuracy_of, find_mechanisms

LAWS: dict[str, Law] = {
    "exponential": partial(Exponential.law, 0.35),
    "permute-and-flip": partial(PermuteAndFlip.law, 0.35),
    "gnmax": lambda counts: winning_probabilities(DiscreteGaussian(0.7), counts),
    "lnmax": lambda counts: winning_probabilities(DiscreteLaplace(0.7), counts),
}


def list_histograms(K: int, classes: int) -> list[tuple[int, ...]]:
    return [row for row in product(range(K + 1), repeat=classes) if sum(row) == K]


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("K", "classes"), [(8, 3), (5, 4), (7, 2)])
@pytest.mark.parametrize("prior", [Dirichlet(), Dirichlet(0.5)], ids=str)
def test_the_accuracy_is_the_expectation_over_all_histograms(name: str, K: int, classes: int, prior: Prior) -> None:
    rows = np.array(list_histograms(K, classes))
    weights, law = np.exp(prior.log_probabilities(rows)), LAWS[name](rows)
    assert weights.sum() == pytest.approx(1.0)
    assert law.sum(axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-9)
    leaders = rows == rows.max(axis=1, keepdims=True)
    accuracy = accuracy_of(LAWS[name], K, classes, prior)
    assert accuracy.standard_error == 0.0
    assert accuracy.value == pytest.approx(float(weights @ (law * leaders).sum(axis=1)), abs=1e-9)


def test_the_accuracy_under_recorded_votes_is_their_mean() -> None:
    votes = Votes.from_counts([[3, 0, 1], [2, 2, 0], [2, 1, 1], [1, 2, 1]])
    accuracy = accuracy_of(LAWS["exponential"], 4, 3, RecordedVotes("seen", votes))
    weights = np.exp(0.35 * votes.counts)
    leaders = votes.counts == votes.counts.max(axis=1, keepdims=True)
    exact = (weights * leaders).sum(axis=1) / weights.sum(axis=1)
    assert accuracy.value == pytest.approx(exact.mean(), abs=1e-12)
    assert accuracy.standard_error == 0.0


KEPT = Path(__file__).parents[2] / "docs" / "reproduction"


def read_public_votes(name: str, kind: str) -> Votes:
    """Read public votes of ten classes that the reproduction keeps."""
    if name == "digits":
        return load_counts(KEPT / "pate" / "digits-counts.npz")[0].votes
    with np.load(KEPT / "tested" / f"{name}-votes.npz") as arrays:
        return Votes.from_labels(arrays[kind][0], classes=10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "kind"),
    [("digits", ""), *((name, kind) for name in ("mnist", "fashion-mnist") for kind in ("plain", "private"))],
)
def test_a_prior_fitted_to_half_of_the_votes_predicts_the_accuracy_on_the_others(name: str, kind: str) -> None:
    votes = read_public_votes(name, kind)
    order = np.random.default_rng(0).permutation(votes.queries)
    fitted, other = (votes[np.sort(order[half::2])] for half in (0, 1))
    prior, (counts, times) = Led.fit(fitted), np.unique(-np.sort(-other.counts, axis=1), axis=0, return_counts=True)
    for share in (0.1, 0.2, 0.3, 0.5, 1.0):  # of the voters: the standard deviation of the noise
        law = partial(winning_probabilities, DiscreteGaussian(share * votes.voters))
        correct = np.where(counts == counts[:, :1], law(counts), 0.0).sum(axis=1)
        predicted = accuracy_of(law, votes.voters, 10, prior, draws=1024)
        assert predicted.value == pytest.approx(float(correct @ times) / other.queries, abs=0.03), share


def test_drawn_histograms_agree_with_all_within_their_error() -> None:
    law, prior = LAWS["permute-and-flip"], Dirichlet(0.5)
    exact, sampled = accuracy_of(law, 20, 4, prior), accuracy_of(law, 20, 4, prior, draws=100)  # of 108 partitions
    assert exact.standard_error == 0.0 < sampled.standard_error
    assert abs(sampled.value - exact.value) < 5 * sampled.standard_error
    assert sampled == accuracy_of(law, 20, 4, prior, draws=100)  # the seed is public


def test_random_guessing_gains_by_ties() -> None:
    # of 10 histograms of 3 votes on 3 classes one has a tie of three, none a tie of two
    assert accuracy_of(guess_at_random, 3, 3, Dirichlet()).value == pytest.approx((9 / 3 + 1) / 10)
    assert accuracy_of(guess_at_random, 5000, 150, Dirichlet()).value == pytest.approx(1 / 150, rel=0.1)


class Doubled(Point):
    """A custom prior, whose weights are not those of its class."""

    def weights(self, K: int) -> np.ndarray:
        return 2.0 * super().weights(K)


@pytest.mark.parametrize(
    ("prior", "p"), [(Point(0.8), 0.8), (Point(0.1), 0.1), (Independent(0.5, 1.0), 0.75), (TwoSided(0.7, 1.0), 0.5)]
)
@pytest.mark.parametrize("K", [4, 5])
def test_the_accuracy_of_two_classes_is_the_expectation_over_all_votes(K: int, prior: Prior, p: float) -> None:
    curve, expected = np.linspace(0.7, 1.0, K - K // 2), 0.0
    for votes in product((0, 1), repeat=K):
        ones = sum(votes)
        majority = max(ones, K - ones)
        correct = 1.0 if 2 * majority == K else curve[majority - K // 2 - 1]  # at a tie both answers count
        expected += p**ones * (1 - p) ** (K - ones) * correct
    accuracy = accuracy_of_majorities(curve, K, prior)
    assert accuracy is not None
    assert accuracy.value == pytest.approx(expected, abs=1e-12)


def test_a_custom_prior_has_no_accuracy_for_two_classes() -> None:
    assert accuracy_of_majorities(np.array([0.7, 0.8, 1.0]), 5, Doubled(0.8)) is None


# laws


def test_the_law_of_permute_and_flip_is_the_mean_over_all_orders() -> None:
    epsilon, counts = 0.8, np.array([[5, 3, 3, 1], [4, 4, 2, 2]])
    for row, law in zip(counts, PermuteAndFlip.law(epsilon / 4.0, counts), strict=True):
        heads, expected = np.exp(-epsilon * (row.max() - row) / 4), np.zeros(4)
        for order in permutations(range(4)):
            tails = 1.0
            for place in order:
                expected[place] += tails * heads[place] / 24
                tails *= 1.0 - heads[place]
        assert law == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_permute_and_flip_of_many_classes_is_a_law(epsilon: float) -> None:
    rows = np.array([[50, *[0] * 999], [1] * 50 + [0] * 950, [10] * 5 + [0] * 995])
    assert PermuteAndFlip.law(epsilon / 2.0, rows).sum(axis=1) == pytest.approx(np.ones(3), abs=1e-10)


def test_a_curve_is_computed_for_a_leader_before_even_others() -> None:
    work = Workload(Voters(30, PLAIN, overlap=1), 12, PrivacyParams("3", "1e-5"), classes=4)
    rows = Measure(work, None).counts
    assert rows[:3].tolist() == [[9, 7, 7, 7], [10, 7, 7, 6], [11, 7, 6, 6]]
    assert rows[-1].tolist() == [30, 0, 0, 0]
    assert np.all(rows.sum(axis=1) == 30)
    row = plan(work, mechanisms=find_mechanisms("exponential")).best
    assert row.levels.tolist() == list(range(9, 31))
    assert np.all(np.diff(row.curve) > -1e-9)
    assert row.curve[-1] > row.accuracy


# reference priors


def compute_urn(K: int, concentrations: list[Fraction]) -> dict[tuple[int, ...], Fraction]:
    """Compute the mean law of Polya's urns of three classes, histogram by histogram."""
    mean: dict[tuple[int, ...], Fraction] = {}
    for a in concentrations:
        for row in list_histograms(K, 3):
            chance, balls = Fraction(factorial(K)), 0
            for count in row:
                for number in range(count):
                    chance *= (a + number) / (3 * a + balls)
                    balls += 1
                chance /= factorial(count)
            mean[row] = mean.get(row, Fraction(0)) + chance / len(concentrations)
    return mean


def test_the_columns_of_a_plan_are_polyas_urns_and_their_mean_ranks() -> None:
    references = {"low": Fraction(1), "medium": Fraction(1, 3), "high": Fraction(1, 30)}
    mechanisms = find_mechanisms("gnmax", "exponential", "permute-and-flip")
    result = plan(Workload(Voters(6, PLAIN, overlap=1), 5, PrivacyParams(2, "1e-5"), 3), mechanisms=mechanisms)
    assert result.prior == Spread()
    assert result.rows[0].regret == min(row.regret or 0.0 for row in result.rows)

    def compute_accuracy(law: Law, concentrations: list[Fraction]) -> float:
        urn = compute_urn(6, concentrations)
        counts = -np.sort(-np.array(list(urn)), axis=1)
        correct = (law(counts) * (counts == counts[:, :1])).sum(axis=1)
        return float(correct @ np.array(list(urn.values()), dtype=float))

    for row in result.rows:
        assert row.law is not None
        columns = {name: compute_accuracy(row.law, [a]) for name, a in references.items()}
        assert {name: column.value for name, column in row.consensus.items()} == pytest.approx(columns, abs=1e-12)
        assert row.accuracy == pytest.approx(compute_accuracy(row.law, list(references.values())), abs=1e-12)


def test_drawn_columns_are_samples_of_their_own() -> None:
    work = Workload(Voters(60, PLAIN, overlap=1), 50, PrivacyParams(2, "1e-5"), 8)
    best = plan(work, mechanisms=[find_mechanism("exponential")]).best
    assert best.law is not None
    for name, prior in reference_priors(8).items():
        column, alone = best.consensus[name], accuracy_of(best.law, 60, 8, prior)
        assert 0.0 < column.standard_error < 0.02
        assert abs(column.value - alone.value) < 5.0 * np.hypot(column.standard_error, alone.standard_error)
    assert best.accuracy == pytest.approx(np.mean([column.value for column in best.consensus.values()]), abs=1e-4)


def test_two_classes_are_ranked_by_regret_without_a_prior() -> None:
    measure = Measure(Workload(Voters(5, PLAIN, overlap=1), 1, PrivacyParams(1)), None)
    assert measure.prior == Spread()
    assert measure.is_regret
    columns = measure.consensus(lambda counts: np.eye(2)[np.zeros(len(counts), dtype=int)])
    assert [column.value for column in columns.values()] == pytest.approx([1.0] * 3, abs=1e-12)
