"""A private classifier keeps only what it released."""

from collections.abc import Callable
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


def draw_two_clouds(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.permutation(np.arange(count) % 2)
    return rng.normal(size=(count, 2)) * 0.3 + 2.0 * labels[:, np.newaxis] - 1.0, labels


X, Y = DATA = draw_two_clouds(np.random.default_rng(1), RECORDS)


def sample_sensitivity(function: ParametersOf) -> SampledSensitivity:
    sampler = SensitivitySampler(function, draw_two_clouds, "l1", distribution="two clouds")
    return sampler.estimate(RECORDS, gamma=0.1, rule="exchangeability", seed=3)


@pytest.fixture(scope="module")
def sensitivity() -> SampledSensitivity:
    return sample_sensitivity(ParametersOf(ESTIMATOR))


@pytest.fixture
def voter(sensitivity: SampledSensitivity) -> PrivateClassifier:
    return PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), sensitivity)


@pytest.mark.parametrize("estimator", [ESTIMATOR, LinearSVC(C=0.1, random_state=0).fit(X, Y)], ids=["new", "fitted"])
def test_it_predicts_from_released_parameters_only(estimator: LinearSVC, sensitivity: SampledSensitivity) -> None:
    voter = PrivateClassifier(estimator, Laplace(PRIVACY), sensitivity).fit(X, Y, rng=np.random.default_rng(2))
    exact = ParametersOf(ESTIMATOR)(DATA)
    noisy = Laplace(PRIVACY).release(exact, sensitivity.value, rng=np.random.default_rng(2))
    query = np.random.default_rng(3).normal(size=(50, 2))
    assert (voter.predict(query) == (query @ noisy[:2] + noisy[2] > 0)).all()
    assert voter.vote(query).tolist() == voter.predict(query).tolist()
    assert set(voter.vote(query)) == {0, 1}
    kept = {name for name in vars(voter.released) if name.endswith("_") and not name.startswith("_")}
    assert kept == {"coef_", "intercept_", "classes_", "n_features_in_"}
    assert not np.isin(exact, np.concatenate([voter.released.coef_.ravel(), voter.released.intercept_])).any()
    assert not hasattr(ESTIMATOR, "coef_")


def test_it_has_a_guarantee_after_its_only_fit(voter: PrivateClassifier) -> None:
    for use in (lambda: voter.guarantee, lambda: voter.predict([[0.0, 0.0]])):
        with pytest.raises(ValueError, match="call fit"):
            use()
    guarantee = voter.fit(X, Y).guarantee
    assert guarantee.on_covered_pairs == PRIVACY
    assert (guarantee.gamma, guarantee.records) == (0.1, RECORDS)
    assert "operating system" in guarantee.noise
    with pytest.raises(ValueError, match="make a new voter"):
        voter.fit(X, Y)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (X[1:], Y[1:], "number of records must be 60"),
        (X, Y[1:], "shapes"),
        (X[:, 0], Y, "shapes"),
        (X, Y + 1, "among the classes"),
        (X, np.array([1, "a"] * (RECORDS // 2), dtype=object), "among the classes"),
        (X[:, :1], Y, "parameters' shape"),
    ],
)
def test_a_fit_refuses(voter: PrivateClassifier, features: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        voter.fit(features, labels)


@pytest.mark.parametrize("classes", [(1, 0), ("a", 1), (None, 1), {0, 1}, 2])
def test_classes_must_be_two_in_order(classes: Any, sensitivity: SampledSensitivity) -> None:
    with pytest.raises(ValueError, match="two classes"):
        PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), sensitivity, classes=classes)


def test_the_mechanism_must_need_the_norm_of_the_sensitivity(sensitivity: SampledSensitivity) -> None:
    with pytest.raises(ValueError, match="norm must be 'l2'"):
        PrivateClassifier(ESTIMATOR, Gaussian(PrivacyParams(1, 1e-5)), sensitivity)


@pytest.mark.parametrize(
    ("estimator", "attributes"),
    [(LogisticRegression(), ("coef_", "intercept_")), (GaussianNB(), ("theta_", "var_", "class_prior_"))],
)
def test_other_estimators(estimator: object, attributes: tuple[str, ...]) -> None:
    sensitivity = sample_sensitivity(ParametersOf(estimator, attributes))
    voter = PrivateClassifier(estimator, Laplace(PrivacyParams(1000)), sensitivity, attributes=attributes)
    voter.fit(X, Y, rng=np.random.default_rng(1))
    assert np.mean(voter.predict(X) == Y) > 0.9


class Means:
    """A classifier without get_params."""

    def fit(self, features: np.ndarray, labels: np.ndarray) -> "Means":
        first, second = (features[labels == label].mean(axis=0) for label in (0, 1))
        self.coef_, self.intercept_ = np.array([second - first]), np.array([0.0])
        return self


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FrozenEstimator(LinearSVC(C=0.1).fit(X, Y)), "estimator must be unfitted, got a fitted"),
        (lambda: Means().fit(X, Y), "estimator must be unfitted, got a fitted"),
        (GaussianNB, "attributes must be"),
    ],
)
def test_estimators_that_cannot_be_copied_or_read_are_refused(make: Callable[[], object], message: str) -> None:
    assert ParametersOf(Means())(DATA).shape == (3,)
    with pytest.raises(ValueError, match=message):
        ParametersOf(make())(DATA)


def test_a_voter_without_noise_warns(sensitivity: SampledSensitivity) -> None:
    with pytest.warns(UserWarning, match="no noise is added"):
        PrivateClassifier(ESTIMATOR, Laplace(PRIVACY), replace(sensitivity, value=0.0)).fit(X, Y)
