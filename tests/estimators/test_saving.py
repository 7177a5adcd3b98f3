"""Files of estimators: the budget goes on, nothing private is added, and unknown code is refused."""

import pickle
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
import skops.io
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from darrm import PrivacyParams, Voters
from darrm.errors import BudgetExceededError, LedgerError, TableError
from darrm.estimators import (
    PATEClassifier,
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
    RefitWarning,
    load,
    save,
)
from darrm.ledger.ledger import PrivacyLedger
from darrm.pate import GNMax, NoisyMaximum

X, y = load_iris(return_X_y=True)
UNTEACHABLE = LogisticRegression(class_weight={99: 1.0})  # it takes no labels but this


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
    loaded = load(tmp_path / "vote.skops", ledger=tmp_path / "ledger.sqlite")
    assert loaded.queries_left_ == 20
    loaded.predict(X[:20])
    with pytest.raises(BudgetExceededError):
        fitted.predict(X[:1])
    assert np.array_equal(loaded._counts(loaded.teachers_, X), fitted._counts(fitted.teachers_, X))
    assert loaded.to_model_card() == fitted.to_model_card()
    assert (loaded.get_params(deep=False)["max_queries"], loaded.n_features_in_) == (50, 4)
    assert np.array_equal(loaded.plan_.curve, fitted.plan_.curve)


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
    pate.report_ = replace(pate.report_, spent=replace(pate.report_.spent, failure_probability=0.25))
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    assert "too small with probability up to 0.25" in loaded.to_model_card()
    assert loaded.to_model_card() == pate.to_model_card()


def test_no_ledger_of_a_file_is_used(tmp_path: Path, monkeypatch: Any) -> None:
    fitted = vote(tmp_path)
    save(fitted, tmp_path / "vote.skops")
    with pytest.raises(LedgerError, match=r"ledger\.sqlite': it pays for the answers, and paths in a file"):
        load(tmp_path / "vote.skops")
    fitted._spending.path = "postgresql://budget:secret@db.example/ward7"
    save(fitted, tmp_path / "database.skops")
    assert b"secret" not in (tmp_path / "database.skops").read_bytes()
    with pytest.raises(LedgerError, match="ledger 'in a database': it pays"):
        load(tmp_path / "database.skops")
    hostile = edited(tmp_path / "b", lambda document: document["state"]["ledger"].update(path="postgresql://x@evil/y"))
    monkeypatch.setattr("darrm.ledger.ledger.PrivacyLedger.__init__", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(LedgerError, match="paths in a file are not used"):
        load(hostile)


def test_a_student_s_file_names_no_ledger(tmp_path: Path) -> None:
    pate = PATEClassifier(GaussianNB(), n_teachers=6, epsilon=9, random_state=0).fit(X, y, X[:90])
    pate.ledger = "postgresql://budget@db.example/ward7"
    save(pate, tmp_path / "student.skops")
    assert load(tmp_path / "student.skops").ledger is None
    named = load(tmp_path / "student.skops", ledger=tmp_path / "ledger")
    assert named.ledger == tmp_path / "ledger"
    with pytest.warns(RefitWarning, match="both budgets add up"):
        load(tmp_path / "student.skops").fit(X, y, X[:90])


def test_another_ledger_than_that_of_the_fit_is_refused(tmp_path: Path) -> None:
    save(vote(tmp_path), tmp_path / "vote.skops")
    PrivacyLedger.create(tmp_path / "other", PrivacyParams(3, "1e-5"))
    with pytest.raises(LedgerError, match="another ledger than the one that this estimator was fitted with"):
        load(tmp_path / "vote.skops", ledger=tmp_path / "other").predict(X[:1])


def test_paths_of_a_file_are_forgotten(tmp_path: Path) -> None:
    cached = make_pipeline(StandardScaler(), GaussianNB(), memory=str(tmp_path / "cache"))
    pate = PATEClassifier(cached, cached, n_teachers=6, epsilon=9, random_state=0).fit(X, y, X[:90])
    pate.set_params(votes_look_like=f"votes:{tmp_path / 'public.npy'}")
    save(pate, tmp_path / "student.skops")
    loaded = load(tmp_path / "student.skops")
    assert (loaded.teacher.memory, loaded.student.memory, loaded.student_.memory) == (None, None, None)
    assert loaded.votes_look_like is None
    models = PrivateModelsVotingClassifier(cached, 2, epsilon_each=1).fit(X, y)
    save(models, tmp_path / "models.skops")
    assert [model.memory for model in load(tmp_path / "models.skops").teachers_] == [None, None]
    belief = pate.set_params(votes_look_like="dirichlet:0.01")
    save(belief, tmp_path / "belief.skops")
    assert load(tmp_path / "belief.skops").votes_look_like == "dirichlet:0.01"


def test_files_are_of_their_owner_alone(tmp_path: Path) -> None:
    modes = []
    dump = skops.io.dump

    def watched(document: Any, path: Path) -> None:
        dump(document, path)
        modes.append(stat.S_IMODE(path.stat().st_mode))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skops.io, "dump", watched)
        save(vote(tmp_path), tmp_path / "vote.skops")
    assert [*modes, stat.S_IMODE((tmp_path / "vote.skops").stat().st_mode)] == [0o600, 0o600]


def test_what_no_file_holds_is_said_in_one_line(tmp_path: Path) -> None:
    models = PrivateModelsVotingClassifier(GaussianNB(), 2, epsilon_each=1).fit(X, y)
    models.teachers_[0].lines = (line for line in "ab")
    with pytest.raises(ValueError, match=r"cannot be kept in a file .*generator.*: remove generators"):
        save(models, tmp_path / "models.skops")
    assert list(tmp_path.iterdir()) == []


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
    with pytest.raises(ValueError, match="without its ledger could spend the budget again"):
        save(vote(tmp_path, ledger=None), tmp_path / "vote.skops")
    with pytest.raises(ValueError, match="NoisyMaximum"):
        save(vote(tmp_path, aggregator=GNMax(25.0)), tmp_path / "vote.skops")
    assert not (tmp_path / "vote.skops").exists()
    with pytest.raises(ValueError, match="estimator must be one of"):
        save(LogisticRegression(), tmp_path / "vote.skops")
    untaught = PATEClassifier(GaussianNB(), UNTEACHABLE, n_teachers=6, epsilon=9)
    with pytest.raises(ValueError, match=r"student could not be trained .*class_weight"):
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
    tmp_path.mkdir(exist_ok=True)
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
        load(edited(tmp_path, change), ledger=tmp_path / "ledger.sqlite")


def test_an_aggregator_of_ones_own_comes_back(tmp_path: Path) -> None:
    own = NoisyMaximum(GNMax(25.0), Voters(6, PrivacyParams("inf"), overlap=1), 3)
    fitted = vote(tmp_path, aggregator=own)
    fitted.predict(X[:20])
    save(fitted, tmp_path / "vote.skops")
    loaded = load(tmp_path / "vote.skops", ledger=tmp_path / "ledger.sqlite")
    assert loaded.get_params()["aggregator"] == own
    assert loaded.fit(X, y).queries_left_ == 30
