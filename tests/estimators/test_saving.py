"""Files of estimators: the budget goes on, nothing private is added, and unknown code is refused."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from darrm import PrivacyParams, Voters
from darrm.errors import BudgetExceededError, TableError
from darrm.estimators import (
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
    RefitWarning,
    load,
    save,
)
from darrm.pate import GNMax, NoisyMaximum

X, y = load_iris(return_X_y=True)


class Foreign(DummyClassifier):  # type: ignore[misc]  # scikit-learn ships no types
    """A teacher of a type that skops does not know."""


def vote(tmp_path: Path, **settings: Any) -> PrivateVotingClassifier:
    given = {"epsilon": 3, "max_queries": 50, "random_state": 0, "ledger": tmp_path / "ledger.sqlite", **settings}
    return PrivateVotingClassifier(settings.pop("estimator", DecisionTreeClassifier()), 6, **given).fit(X, y)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("labels", [y, np.array(["a", "b", "b"])[y]])
def test_a_loaded_vote_goes_on_with_the_budget(labels: Any, tmp_path: Path) -> None:
    fitted = vote(tmp_path).fit(X, labels)
    fitted.predict(X[:20])
    save(fitted, tmp_path / "vote.skops")
    fitted.predict(X[:10])
    loaded = load(tmp_path / "vote.skops")
    assert loaded.queries_left_ == 20
    loaded.predict(X[:20])
    with pytest.raises(BudgetExceededError):
        fitted.predict(X[:1])
    assert np.array_equal(loaded._counts(loaded.teachers_, X), fitted._counts(fitted.teachers_, X))
    assert loaded.to_model_card() == fitted.to_model_card()
    assert (loaded.get_params(deep=False)["max_queries"], loaded.n_features_in_) == (50, 4)
    assert np.array_equal(loaded.plan_.truth, fitted.plan_.truth)


def test_a_loaded_student_answers_as_it_did(tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), n_teachers=6, epsilon=9, random_state=0).fit(X, y, X[:90])
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    assert np.array_equal(loaded.predict_proba(X), pate.predict_proba(X))
    assert loaded.to_model_card() == pate.to_model_card()
    assert loaded.report_ == pate.report_
    loaded.acknowledge()
    with pytest.warns(RefitWarning, match="both budgets add up"):
        loaded.fit(X, y, X[:90])


def test_a_loaded_student_still_says_that_its_total_is_an_estimate(tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), n_teachers=6, epsilon=9, random_state=0).fit(X, y, X[:90])
    pate.report_ = replace(pate.report_, spent=replace(pate.report_.spent, understated=0.25))
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    assert "too small with probability up to 0.25" in loaded.to_model_card()
    assert loaded.to_model_card() == pate.to_model_card()


def test_a_ledger_in_a_database_keeps_its_name(tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), n_teachers=6, epsilon=9, random_state=0).fit(X, y, X[:90])
    pate.ledger = "postgresql://budget@db.example/ward7"
    save(pate, tmp_path / "student.skops")
    assert load(tmp_path / "student.skops").ledger == pate.ledger


@pytest.mark.parametrize("form", ["pickle", "skops"])
def test_a_teacher_that_was_fitted_before_is_not_in_the_student_s_file(form: str, tmp_path: Path) -> None:
    secret = X + 0.123456
    teacher = KNeighborsClassifier(1, algorithm="brute").fit(secret, y)  # holds every row
    pate = PATEClassifier(teacher, teacher, n_teachers=6, epsilon=9, random_state=0).fit(secret, y, X[:90])
    if form == "skops":
        save(pate, tmp_path / "student.skops")
        kept = load(tmp_path / "student.skops")
    else:
        kept = pickle.loads(pickle.dumps(pate))  # noqa: S301 (written here)
    assert np.array_equal(kept.predict(X), pate.predict(X))
    assert not hasattr(kept.teacher, "n_features_in_")
    assert not hasattr(kept.student, "n_features_in_")
    assert hasattr(teacher, "n_features_in_")  # the caller's own is left alone


def test_models_without_noise_are_saved_without_a_ledger(tmp_path: Path) -> None:
    models = PrivateModelsVotingClassifier(GaussianNB(), 5, epsilon_each=1).fit(X, y)
    save(models, tmp_path / "models.skops")
    loaded = load(tmp_path / "models.skops")
    assert np.array_equal(loaded.predict(X), models.predict(X))
    assert loaded.privacy_spent_ == models.privacy_spent_


def test_what_cannot_be_saved_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without its budget could spend it again"):
        save(vote(tmp_path, ledger=None), tmp_path / "vote.skops")
    with pytest.raises(ValueError, match="NoisyMaximum"):
        save(vote(tmp_path, aggregator=GNMax(25.0)), tmp_path / "vote.skops")
    assert not (tmp_path / "vote.skops").exists()
    with pytest.raises(ValueError, match="estimator must be one of"):
        save(LogisticRegression(), tmp_path / "vote.skops")
    untaught = PATEClassifier(GaussianNB(), LogisticRegression(C=-1), n_teachers=6, epsilon=9)
    with pytest.raises(ValueError, match="'C' parameter"):
        untaught.fit(X, y, X[:90])
    with pytest.raises(NotFittedError):  # its labels wait, or are in answers_
        save(untaught, tmp_path / "vote.skops")
    (tmp_path / "taken").touch()
    with pytest.raises(ValueError, match="never replaced"):
        save(PrivateModelsVotingClassifier(GaussianNB(), 5, epsilon_each=1).fit(X, y), tmp_path / "taken")


def test_unknown_types_are_named_and_refused(tmp_path: Path) -> None:
    models = PrivateModelsVotingClassifier(Foreign(), 2, epsilon_each=1).fit(X, y)
    save(models, tmp_path / "models.skops")
    with pytest.raises(ValueError, match=r"Foreign.*trusted="):
        load(tmp_path / "models.skops")
    name = f"{Foreign.__module__}.Foreign"
    assert type(load(tmp_path / "models.skops", trusted=[name]).teachers_[0]).__name__ == "Foreign"


def edited(tmp_path: Path, change: Any) -> Path:
    import skops.io

    fitted = vote(tmp_path)
    save(fitted, tmp_path / "vote.skops")
    document = skops.io.load(tmp_path / "vote.skops", trusted=["sklearn.tree._tree.Tree"])
    change(document)
    skops.io.dump(document, tmp_path / "edited.skops")
    return tmp_path / "edited.skops"


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(format="pickle"),
        lambda document: document.update(kind="Pipeline"),
        lambda document: document.pop("state"),
        lambda document: document["inputs"].update(predict=None),
        lambda document: document["state"].update(release=None),  # no noise, where noise is needed
        lambda document: document["state"]["workload"].update(queries=5000),  # more answers than fit into the budget
        lambda document: document["state"].update(release=document["state"]["release"].replace('"K": 6', '"K": 7')),
    ],
)
def test_an_edited_file_is_refused(change: Any, tmp_path: Path) -> None:
    with pytest.raises(TableError):
        load(edited(tmp_path, change))


def test_an_aggregator_of_ones_own_comes_back(tmp_path: Path) -> None:
    own = NoisyMaximum(GNMax(25.0), Voters(6, PrivacyParams("inf"), overlap=1), 3)
    fitted = vote(tmp_path, aggregator=own)
    fitted.predict(X[:20])
    save(fitted, tmp_path / "vote.skops")
    loaded = load(tmp_path / "vote.skops")
    assert loaded.get_params()["aggregator"] == own
    assert loaded.fit(X, y).queries_left_ == 30
