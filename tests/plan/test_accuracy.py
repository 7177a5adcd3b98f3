"""Accuracies against enumerations and closed forms; reference priors and regret; priors that are fitted to votes."""

from fractions import Fraction
from functools import partial
from itertools import product
from math import factorial
from pathlib import Path

import numpy as np
import pytest

from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.plan import Plan, plan
from darrm.plan.accuracy import Law, Measure, accuracy_of_majorities, guess_at_random
from darrm.plan.planner import find_mechanism
from darrm.plan.tables import Exponential, PermuteAndFlip
from darrm.priors import Dirichlet, Independent, Led, Point, Prior, RecordedVotes, Spread, TwoSided, reference_priors
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.votes import Votes
from experiments.pate.recorded import load_counts
from tests.planned import accuracy_of


class Doubled(Point):
    """A prior of one's own, whose weights are not those of its class."""

    def weights(self, K: int) -> np.ndarray:
        return 2.0 * super().weights(K)


LAWS: dict[str, Law] = {
    "exponential": partial(Exponential.law, 0.35),
    "permute-and-flip": partial(PermuteAndFlip.law, 0.35),
    "gnmax": lambda counts: winning_probabilities(DiscreteGaussian(0.7), counts),
    "lnmax": lambda counts: winning_probabilities(DiscreteLaplace(0.7), counts),
}


def enumerated(law_name: str, K: int, classes: int, prior: Prior) -> float:
    """The expectation over all (K + 1)^C histograms in their own order, without sorting or multiplicities."""
    rows = np.array([row for row in product(range(K + 1), repeat=classes) if sum(row) == K])
    weights = np.exp(prior.log_probabilities(rows))
    assert weights.sum() == pytest.approx(1.0)
    law = LAWS[law_name](rows)
    assert law.sum(axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-9)
    best = rows == rows.max(axis=1, keepdims=True)
    return float(weights @ (law * best).sum(axis=1))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("K", "classes"), [(8, 3), (5, 4), (7, 2)])
def test_the_sum_over_partitions_is_the_sum_over_histograms(name: str, K: int, classes: int) -> None:
    for prior in (Dirichlet(), Dirichlet(0.5)):
        found = accuracy_of(LAWS[name], K, classes, prior)
        assert found.standard_error == 0.0
        assert found.value == pytest.approx(enumerated(name, K, classes, prior), abs=1e-9)


def test_recorded_votes_are_all_looked_at() -> None:
    votes = Votes.from_counts([[3, 0, 1], [2, 2, 0], [2, 1, 1], [1, 2, 1]])
    found = accuracy_of(LAWS["exponential"], 4, 3, RecordedVotes("seen", votes))
    right = []
    for row in votes.counts.astype(float):
        weights = np.exp(0.35 * row)
        right.append(weights[row == row.max()].sum() / weights.sum())
    assert found.value == pytest.approx(np.mean(right), abs=1e-12)
    assert found.standard_error == 0.0


def test_drawn_histograms_agree_with_all_of_them_within_their_error() -> None:
    law, prior = LAWS["permute-and-flip"], Dirichlet(0.5)
    exact = accuracy_of(law, 20, 4, prior)
    drawn = accuracy_of(law, 20, 4, prior, draws=100)  # there are 108 partitions
    assert exact.standard_error == 0.0 < drawn.standard_error
    assert abs(drawn.value - exact.value) < 5 * drawn.standard_error
    assert drawn == accuracy_of(law, 20, 4, prior, draws=100)  # the same for everybody


def test_a_coin_has_more_than_its_share_where_classes_tie() -> None:
    # 10 histograms of 3 votes on 3 classes: one has a tie of three, none a tie of two
    assert accuracy_of(guess_at_random, 3, 3, Dirichlet()).value == pytest.approx((9 / 3 + 1) / 10)
    assert accuracy_of(guess_at_random, 5000, 150, Dirichlet()).value == pytest.approx(1 / 150, rel=0.1)


def test_two_classes_agree_with_the_general_sum() -> None:
    for K in (7, 8):
        truth = np.linspace(0.6, 1.0, K - K // 2)

        def law(counts: np.ndarray, K: int = K, truth: np.ndarray = truth) -> np.ndarray:
            first = counts.max(axis=1)
            told = np.where(2 * first == K, 0.5, truth[np.maximum(first - K // 2 - 1, 0)])
            return np.column_stack([told, 1.0 - told])

        share = accuracy_of_majorities(truth, K, Dirichlet())
        assert share is not None
        assert share.value == pytest.approx(accuracy_of(law, K, 2, Dirichlet()).value, abs=1e-12)


def test_priors_of_two_classes_by_enumeration() -> None:
    truth, K = np.array([0.7, 0.8, 1.0]), 5
    for prior, p in ((Point(0.8), 0.8), (Point(0.1), 0.1), (Independent(0.5, 1.0), 0.75), (TwoSided(0.7, 1.0), 0.5)):
        expected = 0.0
        for votes in product((0, 1), repeat=K):
            ones = sum(votes)
            expected += p**ones * (1 - p) ** (K - ones) * truth[max(ones, K - ones) - 3]
        share = accuracy_of_majorities(truth, K, prior)
        assert share is not None
        assert share.value == pytest.approx(expected, abs=1e-12)
    assert accuracy_of_majorities(truth, K, Doubled(0.8)) is None  # its draws are not those of its class


def test_permute_and_flip_of_many_classes_is_a_law() -> None:
    rows = np.array([[50, *[0] * 999], [1] * 50 + [0] * 950, [10] * 5 + [0] * 995])
    for epsilon in (0.01, 1.0, 30.0):
        law = PermuteAndFlip.law(epsilon / 2.0, rows)
        assert law.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-10)


PLAIN = PrivacyParams("inf")
WORK = Workload(Voters(6, PLAIN, overlap=1), 5, PrivacyParams(2, "1e-5"), 3)
FEW = [find_mechanism(name) for name in ("gnmax", "exponential", "permute-and-flip")]


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(WORK, mechanisms=FEW)


def chances(K: int, concentrations: list[Fraction]) -> dict[tuple[int, ...], Fraction]:
    """Compute Polya's urn, histogram by histogram, in fractions: the mean of Dirichlet's laws."""
    mean: dict[tuple[int, ...], Fraction] = {}
    for a in concentrations:
        for row in product(range(K + 1), repeat=3):
            if sum(row) != K:
                continue
            chance, before = Fraction(factorial(K)), 0
            for n in row:
                for one in range(n):
                    chance *= (a + one) / (3 * a + before)
                    before += 1
                chance /= factorial(n)
            mean[row] = mean.get(row, Fraction(0)) + chance / len(concentrations)
    return mean


def test_columns_are_polyas_urns_and_their_mean_is_what_decides(found: Plan) -> None:
    three = {"low": Fraction(1), "medium": Fraction(1, 3), "high": Fraction(1, 30)}
    assert found.prior == Spread()
    assert found.rows[0].regret == min(option.regret or 0.0 for option in found.rows)
    for option in found.rows:
        assert option.law is not None
        shares = {}
        for name, asked in [*((name, [a]) for name, a in three.items()), ("all", list(three.values()))]:
            law = chances(6, asked)
            rows = np.array(list(law))
            right = (option.law(-np.sort(-rows, axis=1)) * (-np.sort(-rows, axis=1) == rows.max(axis=1)[:, None])).sum(
                1
            )
            shares[name] = float(right @ np.array(list(law.values()), dtype=float))
        assert option.accuracy == pytest.approx(shares.pop("all"), abs=1e-12)
        assert {name: column.value for name, column in option.consensus.items()} == pytest.approx(shares, abs=1e-12)


def test_drawn_columns_are_samples_of_their_own() -> None:
    work = Workload(Voters(60, PLAIN, overlap=1), 50, PrivacyParams(2, "1e-5"), 8)
    best = plan(work, mechanisms=[find_mechanism("exponential")]).best
    assert best.law is not None
    for name, prior in reference_priors(8).items():
        column, alone = best.consensus[name], accuracy_of(best.law, 60, 8, prior)
        assert 0.0 < column.standard_error < 0.02
        assert abs(column.value - alone.value) < 5.0 * np.hypot(column.standard_error, alone.standard_error)
    assert best.accuracy == pytest.approx(np.mean([column.value for column in best.consensus.values()]), abs=1e-4)


def test_two_classes_have_reference_priors_too() -> None:
    work = Workload(Voters(5, PLAIN, overlap=1), 1, PrivacyParams(1))
    assert Measure(work, None).prior == Spread()
    assert Measure(work, None).is_regret
    columns = Measure(work, None).consensus(lambda counts: np.eye(2)[np.zeros(len(counts), dtype=int)])
    assert [share.value for share in columns.values()] == pytest.approx([1.0] * 3, abs=1e-12)


KEPT = Path(__file__).parents[2] / "docs" / "reproduction"
DRAWS = 1024
POINTS = 0.03


def public_votes(name: str, kind: str) -> Votes:
    if name == "digits":
        return load_counts(KEPT / "pate" / "digits-counts.npz")[0].votes
    with np.load(KEPT / "tested" / f"{name}-votes.npz") as kept:
        return Votes.from_labels(kept[kind][0], classes=10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "kind"),
    [("digits", ""), *((name, kind) for name in ("mnist", "fashion-mnist") for kind in ("plain", "private"))],
)
def test_the_share_is_predicted_within_three_points(name: str, kind: str) -> None:
    votes = public_votes(name, kind)
    drawn = np.random.default_rng(0).permutation(votes.queries)
    fitted, other = (votes[np.sort(drawn[half::2])] for half in (0, 1))
    prior = Led.fit(fitted)
    counts, times = np.unique(-np.sort(-other.counts, axis=1), axis=0, return_counts=True)
    for share in (0.1, 0.2, 0.3, 0.5, 1.0):  # of the voters: the standard deviation of the noise
        noise = DiscreteGaussian(share * votes.voters)
        right = np.where(counts == counts[:, :1], winning_probabilities(noise, counts), 0.0).sum(axis=1)
        realized = float(right @ times) / other.queries
        law = lambda rows, noise=noise: winning_probabilities(noise, rows)  # noqa: E731
        predicted = accuracy_of(law, votes.voters, 10, prior, draws=DRAWS)
        assert predicted.value == pytest.approx(realized, abs=POINTS), share
