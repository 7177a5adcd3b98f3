"""Students: their labels are paid for once, wait in the ledger until they are safe, and a fit goes on from them."""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from darrm import PrivacyLedger
from darrm.errors import BudgetExceededError, PlanError
from darrm.estimators import PATEClassifier, RefitWarning, ResumeWarning, save
from darrm.ledger.chain import LedgerDigest
from darrm.pate import ConfidentGNMax, GNMax
from darrm.plan import noisy
from darrm.votes import Votes
from tests.estimators.common import NOT_TRAINED, UNTEACHABLE, WORDS, X, pate, y


@pytest.mark.parametrize(
    ("aggregator", "most"),
    [
        ("confident", 10),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("best", 40), (ConfidentGNMax(5, 20, 20), 40))),
    ],
)
def test_a_student_is_paid_for_once(aggregator: Any, most: int) -> None:
    made = pate(epsilon=4, aggregator=aggregator)
    made.fit(X, y, X[:40])
    before = made.privacy_spent_.epsilon
    assert 0 < before <= 4
    assert len(made.predict(X)) == len(made.predict(X)) == 150
    assert made.privacy_spent_.epsilon == before
    assert made.report_.answered == np.sum(made.answers_ >= 0) <= most
    (said,) = re.findall(r"\(([0-9.]+), 1e-05\)-differential privacy", made.to_model_card())
    assert float(said) == 4  # the budget
    spent = r"Spent so far: \((\S+), 1e-05\), if the number of queries did not depend on the answers, by "
    (said,) = re.findall(spent, made.to_model_card())
    assert before <= float(said) <= before * (1 + 1e-5)
    assert "budget: (4, 0.00001), which all labels together keep to" in str(made.report_)
    assert LedgerDigest.from_text(made.report_.ledger_digest).number == 1
    assert f"`{made.report_.ledger_digest}`" in made.to_model_card()


def test_what_a_confident_run_costs_does_not_depend_on_how_many_it_answers() -> None:
    agreeing = pate().fit(X, y, X[:40])
    constant = pate()
    constant.fit(X, np.random.RandomState(0).permutation(y), X[:40])
    assert agreeing.privacy_spent_ == constant.privacy_spent_


def test_confident_labels_without_a_delta_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darrm.estimators.budget.largest_rate", lambda *_: 1 / 0)  # it would search for ever
    made = pate(delta=0)
    with pytest.raises(PlanError, match="pass delta, or aggregator='best'"):
        made.fit(X, y, X[:20])


def test_an_old_student_does_not_answer_for_new_labels() -> None:
    made = pate(epsilon=40).fit(X, y, X[::2])
    made.set_params(student=UNTEACHABLE)
    with (
        pytest.warns(RefitWarning),
        pytest.raises(ValueError, match=NOT_TRAINED),
    ):
        made.fit(X, np.array(["a", "b", "c"])[y], X[::2])
    assert made.privacy_spent_ == made.report_.spent  # the new labels are out
    for asked in (made.predict, made.predict_proba):
        with pytest.raises(NotFittedError):
            asked(X)
    with pytest.raises(NotFittedError):
        made.to_model_card()


@pytest.mark.slow
def test_public_inputs_that_are_sorted_by_class_are_asked_evenly() -> None:
    for aggregator in ("confident", "best"):
        made = pate(n_teachers=3, epsilon=200, max_answers=45)
        made.set_params(aggregator=aggregator).fit(X, y, X)
        assert made.report_.answered > 30
        assert min(count for _, count in made.report_.by_class) > 3
        answered = made.answers_ >= 0
        assert np.mean(made.answers_[answered] == y[answered]) > 0.9


def test_a_student_without_answers_is_a_constant_and_says_so() -> None:
    class Silent(ConfidentGNMax):
        def release(self, votes: Votes, *, rng: Any = None) -> Any:
            del rng
            return np.full(len(votes.counts), -1)

    silent = Silent(threshold=6, sigma_threshold=9.0, sigma_answer=40.0)
    made = pate(epsilon=300, aggregator=silent)
    with pytest.warns(UserWarning, match="no public input was answered"):
        made.fit(X, y, X[:20])
    assert made.predict(X).tolist() == [0] * 150


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "settings",
    [{}, {"aggregator": GNMax(25.0), "max_answers": 10}, {"aggregator": ConfidentGNMax(5, 20, 20)}],
    ids=["confident", "GNMax", "declines"],
)
def test_a_fit_whose_student_failed_goes_on_for_nothing(settings: Any, tmp_path: Path, monkeypatch: Any) -> None:
    failing = pate(student=UNTEACHABLE, ledger=tmp_path / "l", **settings)
    with pytest.raises(ValueError, match=NOT_TRAINED):
        failing.fit(X, y, X[::4])
    assert np.sum(failing.answers_ >= 0) == failing.report_.answered
    with pytest.raises(NotFittedError):
        failing.predict(X)
    spent = PrivacyLedger(tmp_path / "l").spent
    assert spent.epsilon > 0
    monkeypatch.setattr(PATEClassifier, "_train_teachers", lambda *_: 1 / 0)  # nobody is taught again
    with pytest.warns(ResumeWarning, match="nothing is paid"):
        # whatever the data are
        again = pate(ledger=tmp_path / "l", **settings, random_state=7).fit(X[::-1] + 1, y, X[::4])
    assert np.array_equal(again.answers_, failing.answers_)
    assert again.report_ == failing.report_
    assert len(again.predict(X)) == len(X)
    assert PrivacyLedger(tmp_path / "l").spent == spent == again.privacy_spent_


@pytest.mark.parametrize("way", ["acknowledged", "saved"])
def test_labels_leave_when_the_student_is_saved_or_they_are_acknowledged(way: str, tmp_path: Path) -> None:
    fitted = pate(ledger=tmp_path / "l").fit(X, y, X[::4])
    first = fitted.answers_
    fitted.predict(X)
    ledger = PrivacyLedger(tmp_path / "l")
    assert len(ledger.undelivered()) == 1  # that it answers does not say that it outlives the process
    fitted.acknowledge() if way == "acknowledged" else save(fitted, tmp_path / "s")
    assert ledger.undelivered() == ()
    with pytest.raises(BudgetExceededError):
        fitted.fit(X, y, X[::4])
    assert fitted.answers_ is first


def test_a_copy_of_a_student_may_say_that_it_is_safe(tmp_path: Path) -> None:
    fitted = pate(ledger=tmp_path / "l").fit(X, y, X[::4])  # in a worker, say, that sends it back
    sent = pickle.dumps(fitted)
    pickle.loads(sent).acknowledge()  # noqa: S301 (as in the line above)
    assert PrivacyLedger(tmp_path / "l").undelivered() == ()
    (tmp_path / "l").rename(tmp_path / "elsewhere")
    save(pickle.loads(sent), tmp_path / "student")  # noqa: S301 (where there is no ledger)


PEOPLE = np.arange(len(X)) // 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "labels", "public", "groups"),
    [
        ({}, y, X[::4] + 1e-9, None),
        ({}, y, X[4::4], None),
        ({}, WORDS, X[::4], None),
        ({"classes": [0, 1, 2, 3]}, y, X[::4], None),
        ({"n_teachers": 7}, y, X[::4], None),
        ({"max_answers": 8}, y, X[::4], None),
        # of another card: among the teachers of the labels every row was a person, the classes were read, the key known
        ({}, y, X[::4], PEOPLE),
        ({"classes": [0, 1, 2]}, y, X[::4], None),
        ({"random_state": None}, y, X[::4], None),
    ],
)
def test_labels_are_for_the_same_public_facts_only(
    settings: Any, labels: Any, public: Any, groups: Any, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=NOT_TRAINED):
        pate(student=UNTEACHABLE, ledger=tmp_path / "l").fit(X, y, X[::4])
    with pytest.raises((BudgetExceededError, ValueError), match=r"budget|ledger must be one of"):
        pate(ledger=tmp_path / "l", **settings).fit(X, labels, public, groups)
    assert len(PrivacyLedger(tmp_path / "l").entries()) == 1


def test_the_name_of_a_fit_is_of_public_facts_and_tells_public_inputs_apart() -> None:
    run, estimator = GNMax(25.0), pate()
    estimator.classes_, estimator._held = np.unique(y), 0
    estimator._store_facts(None)
    sparse, objects = csr_array(X), np.array([["a", 1], ["b", 2]], dtype=object)
    kinds = [X, X[:-1], X.T, X.astype(np.float32), sparse, sparse[:-1], objects, objects[::-1]]
    names = [estimator._name_stream(run, public) for public in kinds]
    assert len(set(names)) == len(kinds)
    assert names == [estimator._name_stream(run, public.copy()) for public in kinds]
    estimator._held = len(X)  # which no guarantee covers
    assert estimator._name_stream(run, X) != names[0]


@pytest.mark.slow
def test_two_fits_at_once_pay_once(tmp_path: Path, monkeypatch: Any) -> None:
    first, second = pate(ledger=tmp_path / "l", epsilon=50), pate(ledger=tmp_path / "l", epsilon=50)
    counts = PATEClassifier._count_votes

    def later(self: Any, *arguments: Any) -> Any:
        if self is first:
            second.fit(X, y, X[::4])
        return counts(self, *arguments)

    monkeypatch.setattr(PATEClassifier, "_count_votes", later)
    with pytest.raises(ValueError, match="nothing was debited"):
        first.fit(X, y, X[::4])
    assert len(PrivacyLedger(tmp_path / "l").entries()) == 1
    with pytest.warns(ResumeWarning):
        assert np.array_equal(first.fit(X, y, X[::4]).answers_, second.answers_)


@pytest.mark.slow
def test_labels_leave_after_a_test_where_teachers_are_said_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, less in (("_ORDER_FACTORS", (1.0,)), ("_MAX_HISTOGRAMS", 128), ("_FINAL_STEPS", 2)):
        monkeypatch.setattr(noisy, name, less)
    X, y = make_classification(3000, 6, n_informative=4, n_redundant=0, class_sep=3.0, flip_y=0.0, random_state=1)
    made = PATEClassifier(
        LogisticRegression(),
        n_teachers=60,
        epsilon=2.0,
        aggregator="best",
        accounting="tested",
        votes_look_like="dirichlet:0.001",
        random_state=0,
    )
    made.fit(X[:2500], y[:2500], X[2500:2530])
    assert made.privacy_spent_.epsilon == 2.0
    assert made.report_.answered == 30  # by one noise or by the other
    assert "a tested run of GNMax" in made.report_.mechanism
    for settings, words in (
        ({"votes_look_like": None}, "votes_look_like"),
        ({"accounting": "exact"}, "accounting"),
        ({"aggregator": "worst"}, "aggregator"),
    ):
        with pytest.raises(ValueError, match=words):
            clone(made).set_params(**settings).fit(X[:2500], y[:2500], X[2500:2530])
