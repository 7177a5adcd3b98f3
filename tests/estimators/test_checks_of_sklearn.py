"""scikit-learn's own checks, on every estimator: without noise in the way all pass; with it, those that are named."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from darrm.estimators import (
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
)
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.votes import Votes

pytestmark = [
    pytest.mark.filterwarnings("ignore::darrm.estimators.RefitWarning", "ignore::darrm.estimators.SelectionWarning"),
    pytest.mark.filterwarnings("ignore:no X_public was given", "ignore:a grid search"),
]


@dataclass(frozen=True)
class Truth:
    """Tells the plurality: no release, but what the checks need to compare two calls of predict."""

    @property
    def guarantee(self) -> PrivacyParams:
        return PrivacyParams("1e-6")

    def charge(self, queries: int = 1) -> Charge:
        return Charge("the truth", guarantee=self.guarantee, count=queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Any:
        del rng
        return votes.labeled(votes.counts.argmax(axis=1))


def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=3)


ESTIMATORS = [
    PrivateVotingClassifier(tree(), 3, aggregator=Truth()),
    PATEClassifier(tree(), n_teachers=3, aggregator=Truth()),
    PATEClassifier(tree(), LogisticRegression(), n_teachers=3, aggregator=Truth()),
    PrivateModelsVotingClassifier(KNeighborsClassifier(1), 3, epsilon_each=1),
]


@parametrize_with_checks(ESTIMATORS[:1])  # type: ignore[untyped-decorator]  # scikit-learn ships no types
def test_every_check_passes(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(ESTIMATORS[1:])  # type: ignore[untyped-decorator]
def test_every_check_passes_of_the_others(estimator: Any, check: Any) -> None:
    check(estimator)


# what an estimator with real noise may fail, and why
NOISE = "two calls of predict on the same rows are two draws, each paid for"
NOISY = {
    "check_fit_idempotent": NOISE,
    "check_estimators_pickle": NOISE,
    "check_supervised_y_2d": NOISE,
    "check_classifier_data_not_an_array": NOISE,
    "check_classifiers_classes": NOISE,
    "check_readonly_memmap_input": NOISE,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        PrivateVotingClassifier(tree(), 3, epsilon=20, max_queries=400),
        PATEClassifier(tree(), n_teachers=3, epsilon=20),
        PrivateModelsVotingClassifier(KNeighborsClassifier(1), 3, epsilon_each=4, epsilon=2, max_queries=400),
    ],
    ids=lambda each: type(each).__name__,
)
def test_with_noise_all_pass_but_those_that_ask_twice(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("ignore", SkipTestWarning)
        found = check_estimator(estimator, expected_failed_checks=NOISY, on_fail=None)
    assert len(found) > 30
    assert {each["check_name"]: str(each["exception"])[:200] for each in found if each["status"] == "failed"} == {}
