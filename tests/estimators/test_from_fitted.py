"""A vote of models that are fitted already: no other teachers, one budget, and what is assumed stands on the card."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from darrm.errors import BudgetExceededError
from darrm.estimators import PrivateVotingClassifier, load, save

X, Y = load_iris(return_X_y=True)
WORDS = np.array(["setosa", "versicolor", "virginica"])[Y]
KINDS: dict[str, Callable[[], Any]] = {
    "trees": DecisionTreeClassifier,
    "naive Bayes": lambda: GaussianNB(var_smoothing=1e-3),
    "pipelines": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
}


def fitted(make: Callable[[], Any] = GaussianNB, y: Any = WORDS, count: int = 15) -> list[Any]:
    return [make().fit(X[n::count], y[n::count]) for n in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_models_that_were_given_vote(kind: str) -> None:
    models = fitted(KINDS[kind])
    vote = PrivateVotingClassifier.from_fitted(iter(models), overlap=1, epsilon=300, max_queries=150)
    assert all(teacher is model for teacher, model in zip(vote.teachers_, models, strict=True))
    assert np.mean(vote.predict(X) == WORDS) > 0.85
    assert vote.queries_left_ == 0
    with pytest.raises(BudgetExceededError):
        vote.predict(X[:1])


@pytest.mark.parametrize("overlap", [1, 2, 15])
def test_the_guarantee_is_about_the_overlap(overlap: int) -> None:
    vote = PrivateVotingClassifier.from_fitted(fitted(), overlap=overlap, epsilon=20, max_queries=5)
    assert vote.plan_.workload.voters.reached == overlap
    vote.predict(X[:5])
    assert 0 < vote.privacy_spent_.epsilon <= 20
    card = vote.to_model_card()
    assert f"influence at most {overlap} of the 15 models" in card
    assert "shard" not in card
    assert "Every row" not in card


def test_a_fit_trains_its_own_teachers_on_shards() -> None:
    vote = PrivateVotingClassifier.from_fitted(fitted(), overlap=2, epsilon=20, max_queries=5)
    own = clone(vote).fit(X, WORDS)
    assert own.plan_.workload.voters.reached == 1
    assert "influence at most" not in own.to_model_card()
    vote.fit(X, WORDS)
    assert vote.plan_.workload.voters.reached == 1
    assert "each trained on its own shard" in vote.to_model_card()


def test_copies_and_files_keep_the_budget_and_the_overlap(tmp_path: Path) -> None:
    pytest.importorskip("skops")
    ledger = str(tmp_path / "ledger.sqlite")
    vote = PrivateVotingClassifier.from_fitted(fitted(), overlap=2, epsilon=20, max_queries=9, ledger=ledger)
    vote.predict(X[:3])
    copy.deepcopy(vote).predict(X[:3])
    save(vote, tmp_path / "vote.skops")
    again = load(tmp_path / "vote.skops", ledger=ledger)
    assert again.queries_left_ == vote.queries_left_ == 3
    assert again.to_model_card() == vote.to_model_card()


def test_the_list_of_classes_is_public() -> None:
    missing = [*fitted(), GaussianNB().fit(X[:100], WORDS[:100])]
    with pytest.raises(ValueError, match="classes must be given, because the models know different ones"):
        PrivateVotingClassifier.from_fitted(missing, overlap=1)
    vote = PrivateVotingClassifier.from_fitted(missing, overlap=1, epsilon=300, classes=sorted(set(WORDS)))
    assert set(vote.predict(X[:5])) <= set(WORDS)


def test_what_is_no_list_of_fitted_models_is_refused() -> None:
    wrongs: Any = (
        ([], "at least one"),
        ([GaussianNB], "pass an object"),
        ([3], "fit and predict"),
    )
    for wrong, words in wrongs:
        with pytest.raises(ValueError, match=words):
            PrivateVotingClassifier.from_fitted(wrong, overlap=1)
    with pytest.raises(NotFittedError):
        PrivateVotingClassifier.from_fitted([GaussianNB()], overlap=1)
    with pytest.raises(ValueError, match="overlap must be an integer"):
        PrivateVotingClassifier.from_fitted(fitted(), overlap=0)
    with pytest.raises(ValueError, match=r"go to PrivateVotingClassifier\.from_fitted"):
        PrivateVotingClassifier(fitted()).fit(X, WORDS)
