"""Students: their labels are debited once, wait in the ledger until the student is safe, and serve a resumed fit."""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from darrm import PrivacyLedger
from darrm.errors import BudgetExceededError
from darrm.estimators import PATEClassifier, RefitWarning, ResumeWarning, make_private_pipeline, save
from darrm.ledger.chain import LedgerDigest
from darrm.pate import ConfidentGNMax, GNMax
from darrm.plan import noisy
from darrm.votes import Votes
from tests.estimators.support import NOT_TRAINED, PUBLIC, UNTEACHABLE, WORDS, X, make_pate, y

PEOPLE = np.arange(len(X)) // 3


@pytest.mark.parametrize(
    ("aggregator", "most_answers"),
    [
        ("confident", 10),
        pytest.param("best", 40, marks=pytest.mark.slow),
        pytest.param(ConfidentGNMax(5, 20, 20), 40, marks=pytest.mark.slow),
    ],
)
def test_a_student_is_debited_once_and_its_report_and_card_give_the_cost(aggregator: Any, most_answers: int) -> None:
    pate = make_pate(aggregator=aggregator).fit(X, y, X[:40])
    spent = pate.privacy_spent_
    assert 0 < spent.epsilon <= 4
    assert len(pate.predict(X)) == len(pate.predict(X)) == 150
    assert pate.privacy_spent_ == spent
    assert pate.report_.answered == np.sum(pate.answers_ >= 0) <= most_answers
    assert "budget: (4, 0.00001)" in str(pate.report_)
    assert LedgerDigest.from_text(pate.report_.ledger_digest).number == 1
    card = pate.to_model_card()
    assert "(4, 1e-05)-differential privacy" in card
    assert f"`{pate.report_.ledger_digest}`" in card
    (stated,) = re.findall(r"Spent so far: \((\S+), 1e-05\), if the number of queries did not depend", card)
    assert spent.epsilon <= float(stated) <= spent.epsilon * (1 + 1e-5)


def test_the_cost_of_a_confident_run_does_not_depend_on_the_votes() -> None:
    labels = np.random.RandomState(0).permutation(y)  # of low consensus
    assert make_pate().fit(X, y, X[:40]).privacy_spent_ == make_pate().fit(X, labels, X[:40]).privacy_spent_


def test_an_old_student_does_not_answer_for_new_labels() -> None:
    pate = make_pate(epsilon=40).fit(X, y, X[::2])
    pate.set_params(student=UNTEACHABLE)
    with pytest.warns(RefitWarning), pytest.raises(ValueError, match=NOT_TRAINED):
        pate.fit(X, WORDS, X[::2])
    assert pate.privacy_spent_ == pate.report_.spent  # the new labels are released
    for ask in (pate.predict, pate.predict_proba, lambda _: pate.to_model_card()):
        with pytest.raises(NotFittedError):
            ask(X)


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", ["confident", "best"])
def test_public_inputs_that_are_sorted_by_class_are_sampled_evenly(aggregator: str) -> None:
    pate = make_pate(n_teachers=3, epsilon=200, max_answers=45, aggregator=aggregator).fit(X, y, X)
    assert pate.report_.answered > 30
    assert min(count for _, count in pate.report_.by_class) > 3
    answered = pate.answers_ >= 0
    assert np.mean(pate.answers_[answered] == y[answered]) > 0.9


def test_a_student_without_answers_is_a_constant_and_warns() -> None:
    class Silent(ConfidentGNMax):
        def release(self, votes: Votes, *, rng: Any = None) -> Any:
            del rng
            return np.full(len(votes.counts), -1)

    silent = Silent(threshold=6, sigma_threshold=9.0, sigma_answer=40.0)
    pate = make_pate(epsilon=300, aggregator=silent)
    with pytest.warns(UserWarning, match="no public input was answered"):
        pate.fit(X, y, X[:20])
    assert pate.predict(X).tolist() == [0] * 150


def test_rows_that_are_held_out_as_public_inputs_train_no_teacher() -> None:
    rows: list[int] = []

    class Noted(DummyClassifier):  # type: ignore[misc]  # scikit-learn ships no types
        def fit(self, inputs: Any, labels: Any) -> Any:
            rows.append(len(inputs))
            return super().fit(inputs, labels)

    pate = make_pate(Noted(), aggregator=GNMax(25.0), max_answers=10, public_share=0.4)
    pate.fit(X, y, groups=PEOPLE)
    held_out = pate.report_.inputs
    assert 30 < held_out < 90
    assert held_out % 3 == 0  # whole people
    assert 0 < sum(rows) <= 150 - held_out
    assert f"The inputs of {held_out} rows that were held out" in pate.to_model_card()


def test_a_fitted_student_holds_neither_teachers_nor_votes() -> None:
    pate = make_pate(GaussianNB()).fit(X, y, X[:40])
    assert not hasattr(pate, "teachers_")
    assert b"GaussianNB" not in pickle.dumps({name: value for name, value in vars(pate).items() if name != "teacher"})


def test_steps_of_a_student_learn_from_its_public_inputs() -> None:
    pate = make_pate(GaussianNB(), LogisticRegression(), epsilon=300)
    pipeline = make_private_pipeline(StandardScaler(), pate).fit(X, y, X[::2])
    assert np.allclose(pipeline.student_[0].mean_, X[::2][pipeline.answers_ >= 0].mean(axis=0))
    assert isinstance(pate.teacher, GaussianNB)  # the estimator of the caller is unchanged
    assert make_private_pipeline(StandardScaler(), pate.set_params(student=None)).student is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "settings",
    [{}, {"aggregator": GNMax(25.0), "max_answers": 10}, {"aggregator": ConfidentGNMax(5, 20, 20)}],
    ids=["confident", "GNMax", "abstains"],
)
def test_a_fit_whose_student_failed_resumes_without_a_charge(settings: Any, tmp_path: Path, monkeypatch: Any) -> None:
    failing = make_pate(student=UNTEACHABLE, ledger=tmp_path / "ledger", **settings)
    with pytest.raises(ValueError, match=NOT_TRAINED):
        failing.fit(X, y, PUBLIC)
    assert np.sum(failing.answers_ >= 0) == failing.report_.answered
    with pytest.raises(NotFittedError):
        failing.predict(X)
    spent = PrivacyLedger(tmp_path / "ledger").spent
    assert spent.epsilon > 0
    monkeypatch.setattr(PATEClassifier, "_train_teachers", lambda *_: 1 / 0)
    resumed = make_pate(ledger=tmp_path / "ledger", **settings, random_state=7)
    with pytest.warns(ResumeWarning, match="nothing is paid"):
        resumed.fit(X[::-1] + 1, y, PUBLIC)  # the private data do not matter
    assert np.array_equal(resumed.answers_, failing.answers_)
    assert resumed.report_ == failing.report_
    assert len(resumed.predict(X)) == len(X)
    assert PrivacyLedger(tmp_path / "ledger").spent == spent == resumed.privacy_spent_


def test_a_fit_does_not_resume_with_other_public_inputs(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"aggregator": GNMax(25.0), "max_answers": 10, "ledger": tmp_path / "ledger"}
    with pytest.raises(ValueError, match=NOT_TRAINED):
        make_pate(student=UNTEACHABLE, **settings).fit(X, y, PUBLIC)
    make_pate(**settings).fit(X, y, PUBLIC + 1e-9)  # without a `ResumeWarning`, which would be an error here
    assert len(PrivacyLedger(tmp_path / "ledger").entries()) == 2


def name_stream(public: Any = X, sigma: float = 25.0, **facts: Any) -> str:
    """Return the name of the stream of a fit with these public facts."""
    pate = make_pate()
    defaults = {"classes_": np.unique(y), "_grouped": False, "_named": False, "_unseeded": False, "_held": 0}
    for name, value in (defaults | facts).items():
        setattr(pate, name, value)
    return str(pate._name_stream(GNMax(sigma), public))


def test_the_stream_of_a_fit_is_named_by_its_public_facts() -> None:
    sparse, objects = csr_array(X), np.array([["a", 1], ["b", 2]], dtype=object)
    inputs = [X, X[:-1], X.T, X.astype(np.float32), sparse, sparse[:-1], objects, objects[::-1]]
    changes: list[dict[str, Any]] = [
        *({"sigma": 26.0}, {"n_teachers": 7}, {"max_answers": 8}, {"classes_": np.unique(WORDS)}),
        # facts of the model card: the person of a row, the source of the classes, the key, and the rows held out
        *({"_grouped": True}, {"_named": True}, {"_unseeded": True}, {"_held": 9}),
    ]
    names = [*(name_stream(public) for public in inputs), *(name_stream(**change) for change in changes)]
    assert len(set(names)) == len(names)
    assert names[: len(inputs)] == [name_stream(public.copy()) for public in inputs]


@pytest.mark.parametrize("confirmation", ["acknowledge", "save", "acknowledge a copy"])
def test_labels_wait_in_the_ledger_until_the_student_is_saved_or_acknowledged(
    confirmation: str, tmp_path: Path
) -> None:
    pate = make_pate(ledger=tmp_path / "ledger").fit(X, y, PUBLIC)
    answers, ledger = pate.answers_, PrivacyLedger(tmp_path / "ledger")
    pate.predict(X)
    assert len(ledger.undelivered()) == 1  # an answer does not prove that the student outlives the process
    pickled = pickle.dumps(pate)  # as a worker sends it back
    if confirmation == "acknowledge":
        pate.acknowledge()
    elif confirmation == "save":
        save(pate, tmp_path / "student")
    else:
        pickle.loads(pickled).acknowledge()  # noqa: S301 (written above)
    assert ledger.undelivered() == ()
    with pytest.raises(BudgetExceededError):
        pate.fit(X, y, PUBLIC)
    assert pate.answers_ is answers
    (tmp_path / "ledger").rename(tmp_path / "elsewhere")
    save(pickle.loads(pickled), tmp_path / "copy")  # noqa: S301 (a copy needs no ledger)


@pytest.mark.slow
def test_of_two_fits_at_once_one_is_debited(tmp_path: Path, monkeypatch: Any) -> None:
    first, second = (make_pate(ledger=tmp_path / "ledger", epsilon=50) for _ in range(2))
    count_votes = PATEClassifier._count_votes

    def fit_second_before(self: Any, *arguments: Any) -> Any:
        if self is first:
            second.fit(X, y, PUBLIC)
        return count_votes(self, *arguments)

    monkeypatch.setattr(PATEClassifier, "_count_votes", fit_second_before)
    with pytest.raises(ValueError, match="nothing was debited"):
        first.fit(X, y, PUBLIC)
    assert len(PrivacyLedger(tmp_path / "ledger").entries()) == 1
    with pytest.warns(ResumeWarning):
        assert np.array_equal(first.fit(X, y, PUBLIC).answers_, second.answers_)


@pytest.mark.slow
def test_a_tested_run_labels_all_inputs_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_ORDER_FACTORS", (1.0,)), ("_MAX_HISTOGRAMS", 128), ("_FINAL_STEPS", 2)):
        monkeypatch.setattr(noisy, name, value)  # a faster plan
    inputs, labels = make_classification(
        3000, 6, n_informative=4, n_redundant=0, class_sep=3.0, flip_y=0.0, random_state=1
    )
    pate = make_pate(LogisticRegression(), n_teachers=60, epsilon=2.0, aggregator="best", accounting="tested")
    pate.set_params(votes_look_like="dirichlet:0.001").fit(inputs[:2500], labels[:2500], inputs[2500:2530])
    assert pate.privacy_spent_.epsilon == 2.0
    assert pate.report_.answered == 30  # with little noise, or after a failed test with more
    assert "a tested run of GNMax" in pate.report_.mechanism
