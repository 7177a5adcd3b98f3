"""What an estimator paid for is in the ledger until it is safe elsewhere: a fit goes on from it and pays nothing."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from darrm import PrivacyLedger
from darrm.errors import BudgetExceededError
from darrm.estimators import PATEClassifier, PrivateVotingClassifier, ResumeWarning, save
from darrm.pate import ConfidentGNMax, GNMax

X, y = load_iris(return_X_y=True)
UNTEACHABLE = LogisticRegression(class_weight={99: 1.0})  # it takes no labels but this
WORDS = np.array(["a", "b", "c"])[y]


def pate(ledger: Path, **settings: Any) -> PATEClassifier:
    chosen = {"n_teachers": 6, "epsilon": 4, "random_state": 0, "ledger": ledger, **settings}
    return PATEClassifier(KNeighborsClassifier(1), **chosen)


@pytest.mark.parametrize("labels", [y, WORDS, WORDS.astype(object)], ids=["numbers", "text", "objects"])
def test_labels_of_a_vote_wait_until_the_next_ones_or_until_they_are_acknowledged(labels: Any, tmp_path: Path) -> None:
    vote = PrivateVotingClassifier(KNeighborsClassifier(1), 6, epsilon=3, max_queries=50, ledger=tmp_path / "l")
    vote.fit(X, labels)
    ledger = PrivacyLedger(tmp_path / "l")
    for number in (1, 2):
        answers = vote.predict(X[:9])
        assert [entry.number for entry in ledger.undelivered()] == [number]
        assert ledger.kept_labels(number).tolist() == answers.tolist()
        assert answers.dtype == labels.dtype
    vote.acknowledge()
    assert ledger.undelivered() == ()


def test_each_thread_and_process_drops_its_own_labels_only(tmp_path: Path) -> None:
    import threading

    vote = PrivateVotingClassifier(KNeighborsClassifier(1), 6, epsilon=3, max_queries=50, ledger=tmp_path / "l")
    vote.fit(X, y).predict(X[:3])
    other = threading.Thread(target=lambda: [vote.predict(X[:4]), vote.predict(X[:5])])
    other.start()
    other.join()
    assert [entry.count for entry in PrivacyLedger(tmp_path / "l").undelivered()] == [3, 5]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"aggregator": GNMax(25.0), "max_answers": 10},
        {"aggregator": ConfidentGNMax(5, 20, 20)},
    ],
    ids=["confident", "GNMax", "declines"],
)
def test_a_fit_whose_student_failed_goes_on_for_nothing(settings: Any, tmp_path: Path, monkeypatch: Any) -> None:
    failing = pate(tmp_path / "l", student=UNTEACHABLE, **settings)
    with pytest.raises(ValueError, match=r"student could not be trained .*class_weight"):
        failing.fit(X, y, X[::4])
    spent = PrivacyLedger(tmp_path / "l").spent
    assert spent.epsilon > 0
    monkeypatch.setattr(PATEClassifier, "_teach", lambda *_: 1 / 0)  # nobody is taught again
    with pytest.warns(ResumeWarning, match="nothing is paid"):
        again = pate(tmp_path / "l", random_state=7, **settings).fit(X[::-1] + 1, y, X[::4])  # whatever the data are
    assert np.array_equal(again.answers_, failing.answers_)
    assert again.report_ == failing.report_
    assert len(again.predict(X)) == len(X)
    assert PrivacyLedger(tmp_path / "l").spent == spent == again.privacy_spent_


def test_labels_leave_when_the_student_is_saved_or_they_are_acknowledged(tmp_path: Path) -> None:
    for name, leave in (("a", lambda fitted: fitted.acknowledge()), ("b", lambda fitted: save(fitted, tmp_path / "s"))):
        fitted = pate(tmp_path / name).fit(X, y, X[::4])
        fitted.predict(X)
        ledger = PrivacyLedger(tmp_path / name)
        assert len(ledger.undelivered()) == 1  # that it answers does not say that it outlives the process
        leave(fitted)
        assert ledger.undelivered() == ()
        with pytest.raises(BudgetExceededError):
            fitted.fit(X, y, X[::4])


def test_a_copy_of_a_student_may_say_that_it_is_safe(tmp_path: Path) -> None:
    fitted = pate(tmp_path / "l").fit(X, y, X[::4])  # in a worker, say, that sends it back
    sent = pickle.dumps(fitted)
    pickle.loads(sent).acknowledge()  # noqa: S301 (as in the line above)
    assert PrivacyLedger(tmp_path / "l").undelivered() == ()
    (tmp_path / "l").rename(tmp_path / "elsewhere")
    save(pickle.loads(sent), tmp_path / "student")  # noqa: S301 (where there is no ledger)


@pytest.mark.slow
def test_labels_are_for_the_same_public_inputs_classes_and_cost_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"student could not be trained .*class_weight"):
        pate(tmp_path / "l", student=UNTEACHABLE).fit(X, y, X[::4])
    for settings, labels, public in (
        ({}, y, X[::4] + 1e-9),
        ({}, y, X[4::4]),
        ({}, WORDS, X[::4]),
        ({"classes": [0, 1, 2, 3]}, y, X[::4]),
        ({"n_teachers": 7}, y, X[::4]),
        ({"max_answers": 8}, y, X[::4]),
    ):
        with pytest.raises((BudgetExceededError, ValueError), match=r"budget|ledger must be one of"):
            pate(tmp_path / "l", **settings).fit(X, labels, public)
    assert len(PrivacyLedger(tmp_path / "l").entries()) == 1


def test_labels_are_for_a_fit_of_which_the_card_says_the_same(tmp_path: Path) -> None:
    failing, people = pate(tmp_path / "l", student=UNTEACHABLE), np.arange(len(X)) // 10
    with pytest.raises(ValueError, match=r"student could not be trained .*class_weight"):
        failing.fit(X, y, X[::4])
    # these labels are of teachers among whom every row was a person, the classes were read and the key is known
    for settings, groups in (({}, people), ({"classes": [0, 1, 2]}, None), ({"random_state": None}, None)):
        with pytest.raises(BudgetExceededError):
            pate(tmp_path / "l", **settings).fit(X, y, X[::4], groups)


def test_the_name_of_a_fit_is_of_public_facts_and_tells_public_inputs_apart() -> None:
    run, estimator = GNMax(25.0), pate(Path("l"))
    estimator.classes_, estimator._held = np.unique(y), 0
    estimator._remember(None)
    sparse, objects = csr_array(X), np.array([["a", 1], ["b", 2]], dtype=object)
    kinds = [X, X[:-1], X.T, X.astype(np.float32), sparse, sparse[:-1], objects, objects[::-1]]
    names = [estimator._name(run, public) for public in kinds]
    assert len(set(names)) == len(kinds)
    assert names == [estimator._name(run, public.copy()) for public in kinds]
    estimator._held = len(X)  # which no guarantee covers
    assert estimator._name(run, X) != names[0]


@pytest.mark.slow
def test_two_fits_at_once_pay_once(tmp_path: Path, monkeypatch: Any) -> None:
    first, second = pate(tmp_path / "l", epsilon=50), pate(tmp_path / "l", epsilon=50)
    counts = PATEClassifier._counts

    def later(self: Any, *arguments: Any) -> Any:
        if self is first:
            second.fit(X, y, X[::4])
        return counts(self, *arguments)

    monkeypatch.setattr(PATEClassifier, "_counts", later)
    with pytest.raises(ValueError, match="nothing was debited"):
        first.fit(X, y, X[::4])
    assert len(PrivacyLedger(tmp_path / "l").entries()) == 1
    with pytest.warns(ResumeWarning):
        assert np.array_equal(first.fit(X, y, X[::4]).answers_, second.answers_)
