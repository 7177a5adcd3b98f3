"""K private classifiers vote: the combined guarantee, and that it is about what is released."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from darrm.laws import baselines
from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem, Voters
from darrm.proof.table import GammaTable, certify
from darrm.random_dp.mechanisms import Gaussian, Laplace
from darrm.random_dp.private_classifier import ParametersOf, PrivateClassifier
from darrm.random_dp.sensitivity_sampler import SensitivitySampler
from darrm.release.private_classifiers import PrivateClassifierMajority

K = 3
RECORDS = 40
EACH = PrivacyParams(2)


class MeansDifference:
    """A linear classifier that bisects the class means, without scikit-learn."""

    classes_: np.ndarray

    def fit(self, X: np.ndarray, y: np.ndarray) -> MeansDifference:
        high, low = X[y == 1].mean(axis=0), X[y == 0].mean(axis=0)
        self.coef_ = np.array([high - low])
        self.intercept_ = np.array([-(high - low) @ (high + low) / 2])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.classes_[(X @ self.coef_[0] + self.intercept_[0] > 0).astype(int)])


ESTIMATOR = MeansDifference()


def two_clouds(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.permutation(np.arange(count) % 2)
    return rng.normal(size=(count, 1)) * 0.3 + 2.0 * labels[:, np.newaxis] - 1.0, labels


def make_voters(
    gammas: tuple[float, ...] = (0.1, 0.1, 0.1),
    *,
    privacy: PrivacyParams = EACH,
    records: tuple[int, ...] = (RECORDS,) * K,
    names: tuple[str, ...] = ("two clouds",) * K,
) -> list[PrivateClassifier]:
    voters = []
    for index, (gamma, count, name) in enumerate(zip(gammas, records, names, strict=True)):
        sampler = SensitivitySampler(ParametersOf(ESTIMATOR), two_clouds, "l1", distribution=name)
        found = sampler.estimate(count, gamma=gamma, rule="exchangeability", seed=index)
        voter = PrivateClassifier(ESTIMATOR, Laplace(privacy), found)
        voters.append(voter.fit(*two_clouds(np.random.default_rng(index), count), rng=np.random.default_rng(index)))
    return voters


def other_classes() -> PrivateClassifier:
    class Signed(MeansDifference):
        def fit(self, X: np.ndarray, y: np.ndarray) -> MeansDifference:
            return super().fit(X, (np.asarray(y) + 1) // 2)

    X, y = two_clouds(np.random.default_rng(0), RECORDS)
    sensitivity = make_voters()[0].sensitivity
    return PrivateClassifier(Signed(), Laplace(EACH), sensitivity, classes=(-1, 1)).fit(X, 2 * y - 1)


@pytest.fixture(scope="module")
def table() -> GammaTable:
    problem = MajorityProblem.from_allowance(Voters(K, EACH), 2)
    return certify(problem, baselines.double_subsampling(problem))


def test_on_the_same_records_the_gammas_add(table: GammaTable) -> None:
    majority = PrivateClassifierMajority(make_voters((0.1, 0.2, 0.05)), table)
    assert majority.guarantee.on_covered_pairs == table.problem.target == PrivacyParams(4)
    assert majority.guarantee.exact_gamma == Fraction("0.35")
    assert (majority.guarantee.records, majority.guarantee.distribution) == (RECORDS, "two clouds")
    assert not hasattr(majority.guarantee, "epsilon")
    many = majority.guarantee_for(1000)
    assert many.on_covered_pairs == PrivacyParams(6)  # K releases, whatever the number of queries
    assert many.exact_gamma == Fraction("0.35")
    assert majority.guarantee_for(1) == majority.guarantee


def test_on_disjoint_shards_only_one_voter_can_change(table: GammaTable) -> None:
    majority = PrivateClassifierMajority(make_voters((0.1, 0.2, 0.05), records=(40, 50, 60)), table, data="disjoint")
    assert majority.guarantee.exact_gamma == Fraction("0.2")
    assert majority.guarantee.records == 150
    assert majority.guarantee_for(9).on_covered_pairs == EACH


def test_the_answers_are_the_majoritys_through_the_table() -> None:
    problem = MajorityProblem.from_allowance(Voters(K, EACH), 1)
    table = certify(problem, baselines.subsampling(problem))
    assert table.gamma.full[1] < 0.5
    majority = PrivateClassifierMajority(make_voters(), table)
    query = np.array([[-1.0]] * 300 + [[0.05]] * 300)
    votes = majority.votes(query)
    assert votes.shape == (600, K)
    answers = majority.predict(query, rng=np.random.default_rng(0))
    assert set(answers) <= {0, 1}
    # votes on equal queries are equal; the table says how often the majority is told
    for rows in (slice(0, 300), slice(300, 600)):
        ones = int(votes[rows.start].sum())
        honest = (1 + table.gamma.full[ones]) / 2
        told = int(np.sum(answers[rows] == (2 * ones > K)))
        assert abs(told - 300 * honest) <= 6 * np.sqrt(300 * honest * (1 - honest)) + 1


def test_classes_are_given_back(table: GammaTable) -> None:
    class Shifted(MeansDifference):
        def fit(self, X: np.ndarray, y: np.ndarray) -> MeansDifference:
            return super().fit(X, np.asarray(y) // 7)

    def clouds(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = two_clouds(rng, count)
        return X, 7 * y

    found = SensitivitySampler(ParametersOf(Shifted()), clouds, "l1").estimate(RECORDS, gamma=0.2, seed=0)
    voters = [
        PrivateClassifier(Shifted(), Laplace(EACH), found, classes=(0, 7)).fit(
            *clouds(np.random.default_rng(0), RECORDS)
        )
        for _ in range(K)
    ]
    assert set(PrivateClassifierMajority(voters, table).predict([[-1.0], [1.0]] * 40)) == {0, 7}


def test_voters_that_do_not_fit_the_table(table: GammaTable) -> None:
    voters = make_voters()
    unfitted = PrivateClassifier(ESTIMATOR, Laplace(EACH), voters[0].sensitivity)
    weaker = make_voters(privacy=PrivacyParams("2.01"))
    with pytest.raises(ValueError, match=r"as many as the table's K = 3, got 2"):
        PrivateClassifierMajority(voters[:2], table)
    with pytest.raises(ValueError, match="call fit"):
        PrivateClassifierMajority([*voters[:2], unfitted], table)
    with pytest.raises(ValueError, match="voter 2 must be at least as private"):
        PrivateClassifierMajority([*voters[:2], weaker[2]], table)
    with pytest.raises(ValueError, match="same number of records and distribution"):
        PrivateClassifierMajority(make_voters(records=(40, 40, 41)), table)
    with pytest.raises(ValueError, match="distributions must be one and the same"):
        PrivateClassifierMajority(make_voters(names=("a", "a", "b")), table, data="disjoint")
    with pytest.raises(ValueError, match="classes of voter 2"):
        PrivateClassifierMajority([*voters[:2], other_classes()], table)
    with pytest.raises(ValueError, match="promises nothing"):
        PrivateClassifierMajority(make_voters((0.4, 0.4, 0.4)), table)
    with pytest.raises(ValueError, match="data must be one of"):
        PrivateClassifierMajority(voters, table, data="shards")


def test_delta_counts_too() -> None:
    loose, strict = (
        MajorityProblem.from_allowance(Voters(K, PrivacyParams(2, delta)), 2, delta=1e-4) for delta in (1e-5, 1e-6)
    )
    sampler = SensitivitySampler(ParametersOf(ESTIMATOR), two_clouds, "l2", distribution="two clouds")
    found = sampler.estimate(RECORDS, gamma=0.1, rule="exchangeability", seed=0)
    data = two_clouds(np.random.default_rng(0), RECORDS)
    voters = [PrivateClassifier(ESTIMATOR, Gaussian(PrivacyParams(2, 1e-5)), found).fit(*data) for _ in range(K)]
    tables = [certify(problem, baselines.randomized_response(problem)) for problem in (loose, strict)]
    majority = PrivateClassifierMajority(voters, tables[0])
    assert majority.guarantee.on_covered_pairs == PrivacyParams(4, 1e-4)
    assert majority.guarantee_for(2).on_covered_pairs == PrivacyParams(6, "3e-5")
    with pytest.raises(ValueError, match="voter 0 must be at least as private"):
        PrivateClassifierMajority(voters, tables[1])


def test_more_private_voters_are_welcome(table: GammaTable) -> None:
    majority = PrivateClassifierMajority(make_voters(privacy=PrivacyParams(1)), table)
    assert majority.guarantee.on_covered_pairs == PrivacyParams(4)
    assert majority.guarantee_for(2).on_covered_pairs == PrivacyParams(3)
