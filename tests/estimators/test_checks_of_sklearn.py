"""scikit-learn's own checks, on every estimator: without noise all pass; with it all but those that are named."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from darrm.estimators import (
    EXPECTED_FAILED_CHECKS,
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
)
from darrm.loss.privacy_cost import PrivacyCost
from darrm.pate import GNMax
from darrm.privacy import PrivacyParams
from darrm.votes import Votes
from tests.exhaustive import EXHAUSTIVE

pytestmark = [
    pytest.mark.filterwarnings("ignore::darrm.estimators.RefitWarning", "ignore::darrm.estimators.SelectionWarning"),
    pytest.mark.filterwarnings("ignore:a grid search", "ignore:no public input was answered"),
]


@dataclass(frozen=True)
class Truth:
    """Tells the plurality: no release, but what the checks need to compare two calls of predict."""

    @property
    def guarantee(self) -> PrivacyParams:
        return PrivacyParams("1e-6")

    def privacy_cost(self, queries: int = 1) -> PrivacyCost:
        return PrivacyCost("the truth", guarantee=self.guarantee, count=queries)

    def release(self, votes: Votes, *, rng: np.random.Generator | None = None) -> Any:
        del rng
        return votes.name_labels(votes.counts.argmax(axis=1))


def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=3)


# planning in each of fifty fits takes minutes
STUDENT_SETTINGS: dict[str, Any] = {"aggregator": "best"} if EXHAUSTIVE else {"epsilon": 500, "aggregator": GNMax(4.0)}
ESTIMATORS = [
    PrivateVotingClassifier(tree(), 3, aggregator=Truth()),
    PATEClassifier(tree(), n_teachers=3, aggregator=Truth(), public_share=0.5),
    PATEClassifier(tree(), LogisticRegression(), n_teachers=3, aggregator=Truth(), public_share=0.5),
    PrivateModelsVotingClassifier(KNeighborsClassifier(1), 3, epsilon_each=1),
]


@pytest.mark.quick_cases(6)
@parametrize_with_checks(ESTIMATORS[:1])  # type: ignore[untyped-decorator]  # scikit-learn ships no types
def test_every_check_passes(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(ESTIMATORS[1:])  # type: ignore[untyped-decorator]
def test_every_check_passes_of_the_others(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        PrivateVotingClassifier(tree(), 3, epsilon=20, max_queries=400),
        PrivateVotingClassifier(tree(), 3),
        PATEClassifier(tree(), n_teachers=3, public_share=0.5),
        PATEClassifier(tree(), LogisticRegression(), n_teachers=3, public_share=0.5, **STUDENT_SETTINGS),
        PrivateModelsVotingClassifier(KNeighborsClassifier(1), 3, epsilon_each=4, epsilon=2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_with_noise_all_pass_but_those_that_are_named(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = check_estimator(estimator, expected_failed_checks=EXPECTED_FAILED_CHECKS)  # raises where another fails
    by_name = {each["check_name"]: each["status"] for each in done}
    assert sum(status == "passed" for status in by_name.values()) > 40
    assert by_name.keys() >= EXPECTED_FAILED_CHECKS.keys()  # no name of a check that there is not
    assert by_name["check_fit_idempotent"] == "xfail"  # there is noise
