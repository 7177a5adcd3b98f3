"""A private classifier keeps nothing but what was released."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from darrm.privacy import PrivacyParams
from darrm.random_dp.mechanisms import Gaussian, Laplace
from darrm.random_dp.private_classifier import ParametersOf, PrivateClassifier
from darrm.random_dp.sensitivity_sampler import SampledSensitivity, SensitivitySampler

RECORDS = 60
PRIVACY = PrivacyParams(5)
ESTIMATOR = LinearSVC(C=0.1, random_state=0)


def two_clouds(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.permutation(np.arange(count) % 2)
    return rng.normal(size=(count, 2)) * 0.3 + 2.0 * labels[:, np.newaxis] - 1.0, labels


@pytest.fixture(scope="module")
def sensitivity() -> SampledSensitivity:
    sampler = SensitivitySampler(ParametersOf(ESTIMATOR), two_clouds, "l1", distribution="two clouds")
    return sampler.estimate(RECORDS, gamma=0.1, rule="exchangeability", seed=3)


def test_it_predicts_from_released_parameters_only(sensitivity: SampledSensitivity) -> None:
    X, y = two_clouds(np.random.default_rng(1), RECORDS)
    voter = PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), sensitivity).fit(X, y, rng=np.random.default_rng(2))
    exact = ParametersOf(ESTIMATOR)((X, y))
    noisy = Laplace(PRIVACY).release(exact, sensitivity.value, rng=np.random.default_rng(2))
    query = np.random.default_rng(3).normal(size=(50, 2))
    assert (voter.predict(query) == (query @ noisy[:2] + noisy[2] > 0)).all()
    assert set(voter.vote(query)) == {0, 1}
    kept = {name for name in vars(voter.released) if name.endswith("_") and not name.startswith("_")}
    assert kept == {"coef_", "intercept_", "classes_", "n_features_in_"}
    assert not np.isin(exact, np.concatenate([voter.released.coef_.ravel(), voter.released.intercept_])).any()
    assert not hasattr(ESTIMATOR, "coef_")


def test_its_guarantee(sensitivity: SampledSensitivity) -> None:
    voter = PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), sensitivity)
    with pytest.raises(ValueError, match="call fit"):
        _ = voter.guarantee
    with pytest.raises(ValueError, match="call fit"):
        voter.predict([[0.0, 0.0]])
    voter.fit(*two_clouds(np.random.default_rng(1), RECORDS))
    assert voter.guarantee.on_covered_pairs == PRIVACY
    assert (voter.guarantee.gamma, voter.guarantee.records) == (0.1, RECORDS)
    assert "operating system" in voter.guarantee.noise


def test_a_second_fit_would_be_a_second_release(sensitivity: SampledSensitivity) -> None:
    data = two_clouds(np.random.default_rng(1), RECORDS)
    voter = PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), sensitivity).fit(*data)
    with pytest.raises(ValueError, match="make a new voter"):
        voter.fit(*data)


def test_bad_data(sensitivity: SampledSensitivity) -> None:
    X, y = two_clouds(np.random.default_rng(1), RECORDS)
    voter = PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), sensitivity)
    for features, labels, words in (
        (X[1:], y[1:], "number of records must be 60"),
        (X, y[1:], "shapes"),
        (X[:, 0], y, "shapes"),
        (X, y + 1, "among the classes"),
        (X, np.array([1, "a"] * (RECORDS // 2), dtype=object), "among the classes"),
        (X[:, :1], y, "parameters' shape"),
    ):
        with pytest.raises(ValueError, match=words):
            voter.fit(features, labels)


def test_bad_constructions(sensitivity: SampledSensitivity) -> None:
    with pytest.raises(ValueError, match="norm must be 'l2'"):
        PrivateClassifier(ESTIMATOR, Gaussian(PrivacyParams(1, 1e-5)), sensitivity)
    wrong: list[Any] = [(1, 0), ("a", 1), (None, 1), {0, 1}, 2]
    for classes in wrong:
        with pytest.raises(ValueError, match="two classes"):
            PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), sensitivity, classes=classes)
    with pytest.raises(ValueError, match="attributes must be"):
        ParametersOf(GaussianNB())(two_clouds(np.random.default_rng(1), RECORDS))


@pytest.mark.parametrize(
    ("estimator", "attributes"),
    [(LogisticRegression(), ("coef_", "intercept_")), (GaussianNB(), ("theta_", "var_", "class_prior_"))],
)
def test_other_estimators(estimator: object, attributes: tuple[str, ...]) -> None:
    sampler = SensitivitySampler(ParametersOf(estimator, attributes), two_clouds, "l1", distribution="two clouds")
    found = sampler.estimate(RECORDS, gamma=0.2, rule="exchangeability", seed=3)
    voter = PrivateClassifier(estimator, Laplace(PrivacyParams(1000)), found, attributes=attributes)
    X, y = two_clouds(np.random.default_rng(1), RECORDS)
    voter.fit(X, y, rng=np.random.default_rng(1))
    assert np.mean(voter.predict(X) == y) > 0.9


class Means:
    """A classifier without get_params."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.coef_, self.intercept_ = np.array([X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0)]), np.array([0.0])


def test_what_an_earlier_fit_left_is_not_released(sensitivity: SampledSensitivity) -> None:
    X, y = two_clouds(np.random.default_rng(1), RECORDS)
    fitted = LinearSVC(C=0.1, random_state=0).fit(X, y)
    assert hasattr(fitted, "n_iter_")
    voter = PrivateClassifier(fitted, Laplace(PRIVACY), sensitivity).fit(X, y)
    kept = {name for name in vars(voter.released) if name.endswith("_")}
    assert kept == {"coef_", "intercept_", "classes_", "n_features_in_"}


def test_a_fitted_estimator_that_cannot_be_cloned_is_refused() -> None:
    data = two_clouds(np.random.default_rng(1), RECORDS)
    frozen = FrozenEstimator(LinearSVC(C=0.1).fit(*data))
    means = Means()
    assert ParametersOf(means)(data).shape == (3,)
    means.fit(*data)
    for estimator in (frozen, means):
        with pytest.raises(ValueError, match="estimator must be unfitted, got a fitted"):
            ParametersOf(estimator)(data)


def test_a_voter_without_noise_warns(sensitivity: SampledSensitivity) -> None:
    voter = PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), replace(sensitivity, value=0.0))
    with pytest.warns(UserWarning, match="no noise is added"):
        voter.fit(*two_clouds(np.random.default_rng(1), RECORDS))
