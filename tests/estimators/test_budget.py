"""The ledger is the authority: debits before labels, and no second budget by a copy, a refit or another ledger."""

import copy
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from darrm import PrivacyLedger, PrivacyParams, Voters
from darrm.account.accountant import Spent
from darrm.errors import BudgetExceededError, DeliveryError, LedgerError, PlanError
from darrm.estimators import (
    PrivateModelsVotingClassifier,
    PrivateVotingClassifier,
    RefitWarning,
    SelectionWarning,
    card,
    load,
    save,
)
from darrm.estimators.budget import LimitedConfident
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.pate import ConfidentGNMax, GNMax, InteractiveGNMax
from darrm.pate.analysis import PrivateFigureWarning
from darrm.pate.tested import TestedRun
from darrm.release.delivery import StreamDestination
from darrm.votes import Votes
from tests.estimators.common import WORDS, X, models, pate, vote, y


@pytest.mark.slow
def test_answers_are_given_up_to_the_last_one_and_then_refused_for_nothing() -> None:
    fitted = vote(aggregator="best").fit(X, y)
    assert (fitted.queries_left_, fitted.privacy_spent_.epsilon) == (50, 0.0)
    assert set(fitted.predict(X[:45])) <= {0, 1, 2}
    spent = fitted.privacy_spent_.epsilon
    assert 0 < spent <= 3
    with pytest.raises(BudgetExceededError, match="6 answers were asked for, and 5 of 50 are left") as refused:
        fitted.predict(X[:6])
    assert refused.value.queries_that_fit == 5
    assert (fitted.queries_left_, fitted.privacy_spent_.epsilon) == (5, spent)
    fitted.predict(X[:5])
    assert fitted.queries_left_ == 0
    assert fitted.privacy_spent_.epsilon <= 3


def test_what_fails_before_the_votes_pays_nothing() -> None:
    fitted = vote().fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict([[np.nan] * 4])
    with pytest.raises(ValueError, match="features"):
        fitted.predict(X[:3, :2])
    assert fitted.queries_left_ == 50


@pytest.mark.slow
def test_a_teacher_that_cannot_answer_tells_nothing_about_its_votes() -> None:
    class Halves(DecisionTreeClassifier):  # type: ignore[misc]  # scikit-learn ships no types
        def predict(self, inputs: Any) -> Any:
            return super().predict(inputs) / 2 + 0.1

    regressors = PrivateVotingClassifier(Halves(), 6, epsilon=3, max_queries=50, random_state=0).fit(X, y)
    encoder = make_pipeline(OneHotEncoder(), DecisionTreeClassifier())
    encoders = PrivateVotingClassifier(encoder, 6, epsilon=3, max_queries=50, random_state=0)
    for fitted, inputs in (
        (regressors, X[:5]),
        (encoders.fit(X, y), np.full((1, 4), 77.5)),  # a category that no teacher knows
    ):
        with pytest.raises(ValueError, match="a teacher cannot answer") as told:
            fitted.predict(inputs)
        assert not re.search(r"\d", str(told.value))
        assert fitted.queries_left_ == 50


def test_labels_leave_after_their_debit(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = vote().fit(X, y)
    order = []

    def debit(_self: PrivacyLedger, cost: Any, **_rest: Any) -> None:
        order.append(("debit", cost.count))
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "debit", debit)
    with pytest.raises(KeyboardInterrupt):
        order.append(("labels", len(fitted.predict(X[:7]))))
    assert order == [("debit", 7)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])  # noqa: S301
def test_a_copy_spends_the_same_budget(copied: Any, tmp_path: Path) -> None:
    for fitted in (vote().fit(X, y), vote(ledger=tmp_path / "ledger.sqlite").fit(X, y)):
        twin = copied(fitted)
        twin.predict(X[:30])
        assert (fitted.queries_left_, twin.queries_left_) == (20, 20)
        with pytest.raises(BudgetExceededError):
            fitted.predict(X[:21])
        assert copied(twin).queries_left_ == 20


@pytest.mark.slow
def test_a_copy_in_another_process_has_a_file_s_budget_or_none(tmp_path: Path) -> None:
    code = (
        "import pickle, sys; vote, X = pickle.load(open(sys.argv[1], 'rb'))\n"
        "try: vote.predict(X[:30]); print('paid', vote.queries_left_)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    found = []
    fits = [vote().fit(X, y), vote(ledger=tmp_path / "ledger.sqlite").fit(X, y)]
    for number, fitted in enumerate(fits):
        path = tmp_path / f"{number}.pickle"
        path.write_bytes(pickle.dumps((fitted, X)))
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        found.append(done.stdout)
    assert found[0].startswith("LedgerError")
    assert "memory of the process" in found[0]
    assert found[1].split() == ["paid", "20"]
    assert [fitted.queries_left_ for fitted in fits] == [50, 20]


@pytest.mark.parametrize(("place", "complaint"), [("an older copy", "older copy"), ("a new one", "another ledger")])
def test_another_ledger_in_its_place_is_no_second_budget(place: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    fitted = vote(ledger=path).fit(X, y)
    old = path.read_bytes()
    fitted.predict(X[:30])
    stored = pickle.dumps(fitted)
    path.unlink()
    if place == "an older copy":
        path.write_bytes(old)
    else:
        vote(ledger=path).fit(X, y).predict(X[:40])  # more answers than the old one saw
    with pytest.raises(LedgerError, match=complaint):
        pickle.loads(stored).predict(X[:5])  # noqa: S301 (written above)


def test_a_clone_shares_nothing_but_a_named_file(tmp_path: Path) -> None:
    fitted = vote().fit(X, y)
    fitted.predict(X[:40])
    assert clone(fitted).fit(X, y).queries_left_ == 50
    named = vote(ledger=tmp_path / "ledger.sqlite").fit(X, y)
    named.predict(X[:40])
    assert clone(named).fit(X, y).queries_left_ == 10


def test_a_second_fit_says_that_budgets_add_up(tmp_path: Path) -> None:
    fitted = vote().fit(X, y).fit(X, y)  # nothing was answered in between
    fitted.set_params(ledger=tmp_path / "first").fit(X, y).predict(X[:3])
    (tmp_path / "link").symlink_to(tmp_path / "first")
    fitted.set_params(ledger=tmp_path / "link").fit(X, y)  # the same budget, by another name
    for other in (tmp_path / "second", None, None):
        with pytest.warns(RefitWarning, match=r"released something.*both budgets add up"):
            fitted.set_params(ledger=other).fit(X, y)
        fitted.predict(X[:3])
        if other is not None:
            other.unlink()  # what was released was released


@pytest.mark.slow
def test_a_file_keeps_one_budget_over_all_fits(tmp_path: Path) -> None:
    fitted = vote(ledger=tmp_path / "ledger.sqlite").fit(X, y)
    fitted.predict(X[:30])
    assert fitted.fit(X, y).queries_left_ == 20
    for settings, complaint in (
        ({"epsilon": 4}, r"\(epsilon, delta\) must be \(3, 1e-05\)"),
        ({"aggregator": GNMax(26.0)}, "ledger must be one of"),
        ({"ledger": ":memory:"}, "the path of a file"),
        ({"ledger": fitted.ledger_}, "say ledger.path"),
    ):
        with pytest.raises(ValueError, match=complaint):
            vote(**{"ledger": tmp_path / "ledger.sqlite", **settings}).fit(X, y)


@pytest.mark.slow
def test_another_s_budget_is_the_limit_where_it_is_smaller(tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(3, 1e-5), composition="planned")
    fitted = vote(ledger=ledger.path).fit(X, y)
    ledger.debit(GNMax(6.0).privacy_cost(10))
    left = fitted.queries_left_
    assert 0 < left < 50
    with pytest.raises(BudgetExceededError):
        fitted.predict(X[: int(left) + 1])
    assert len(fitted.predict(X[: int(left)])) == left


def test_votes_are_marked_private_and_sum_to_the_teachers() -> None:
    fitted = vote().fit(X, y)
    with pytest.warns(PrivateFigureWarning, match="private data"):
        votes = fitted.votes(X[:9])
    assert votes.counts.shape == (9, 3)
    assert set(votes.counts.sum(axis=1)) == {6}
    assert fitted.queries_left_ == 50


def test_a_score_is_paid_for_and_warns() -> None:
    fitted = vote().fit(X, y)
    with pytest.warns(SelectionWarning, match="score pays for 10 answers"):
        fitted.score(X[:10], y[:10])
    assert fitted.queries_left_ == 40
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(X[:10], y[:9])
    assert fitted.queries_left_ == 40


@pytest.mark.slow
def test_a_grid_search_and_cross_validation_run_on_public_data() -> None:
    search = GridSearchCV(vote(n_teachers=3, epsilon=30), {"estimator__n_neighbors": [1, 2]}, cv=3)
    with pytest.warns(SelectionWarning):
        search.fit(X, y)
    assert search.best_estimator_.queries_left_ == 50
    assert cross_val_predict(vote(n_teachers=3, epsilon=30), X, y, cv=3).shape == (150,)


def test_own_aggregators_pay_what_they_charge() -> None:
    fitted = vote(aggregator=GNMax(25.0)).fit(X, y)
    fitted.predict(X[:50])
    assert fitted.ledger_.accountant().costs[0].what == "GNMax(sigma=25)"
    with pytest.raises(PlanError, match="do not fit"):
        vote(aggregator=GNMax(1.0)).fit(X, y)
    for word_or_class in ("bets", GNMax):
        with pytest.raises(ValueError, match="'best', or an aggregator"):
            vote(aggregator=word_or_class).fit(X, y)
    run = TestedRun(NoisyMaximum(GNMax(9.0), Voters(6, PrivacyParams("inf"), 1), 3), 50, PrivacyParams(3, 1e-5), 4.0)
    # that a query was declined would be said by an error, and so for nothing
    for may_decline in (ConfidentGNMax(6, 3, 3), LimitedConfident(ConfidentGNMax(6, 9, 9), 50, 9), run):
        with pytest.raises(ValueError, match="a PATEClassifier declines"):
            vote(epsilon=30, aggregator=may_decline).fit(X, y)
    scored = InteractiveGNMax(6, 9.0, 9.0, 0.9).with_scores(np.full((len(X), 3), 1 / 3))
    with pytest.raises(ValueError, match="scores are for queries in order"):
        pate(aggregator=scored).fit(X, y, X)

    class NoClass(GNMax):
        def release(self, votes: Votes, *, rng: Any = None) -> Any:
            return super().release(votes, rng=rng) - 3

    with pytest.raises(ValueError, match="one that answers every query"):
        vote(aggregator=NoClass(25.0)).fit(X, y).predict(X[:9])


def test_private_models_pay_once_and_answer_for_ever() -> None:
    private = models(max_queries=3).fit(X, y)
    assert private.plan_.aggregator is None
    assert private.queries_left_ == np.inf
    assert np.array_equal(private.predict(X), private.predict(X))
    assert private.privacy_spent_.epsilon <= 1
    assert "no noise" in private.plan_.name
    with pytest.warns(RefitWarning):
        private.fit(X, y)


def test_private_models_are_debited_where_the_ledger_has_other_charges(tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(3), composition="planned")
    private = models(epsilon=3, delta=0, ledger=ledger.path)
    private.fit(X, y).fit(X, y)
    assert ledger.spent.epsilon == 2
    private.fit(X, y)
    before = private.teachers_
    with pytest.raises(BudgetExceededError):
        private.fit(X, y)
    assert private.teachers_ is before


@pytest.mark.slow
def test_models_that_promise_too_little_get_noise_and_never_share_a_ledger(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epsilon_each": 2, "epsilon": 1, "max_queries": 20, "ledger": tmp_path / "ledger"}
    first = models(**settings).fit(X, y)
    second = models(**settings).fit(X, y)  # nothing was paid yet
    first.predict(X[:10])
    copy.deepcopy(first).predict(X[:5])  # the same models
    with pytest.raises(LedgerError, match="other models paid from it"):
        second.predict(X[:5])
    assert first.queries_left_ == 5
    first.predict(X[:5])
    assert first.privacy_spent_.bound == "joint bound"
    assert 0.9 < first.privacy_spent_.epsilon <= 1
    with pytest.raises(ValueError, match="retrained models"):
        first.fit(X, y)


def test_a_promise_is_read_from_the_estimator_or_asked_for() -> None:
    class Private(LogisticRegression):  # type: ignore[misc]  # scikit-learn ships no types
        def __init__(self, epsilon: Any = 0.5, delta: float = 0.0) -> None:
            super().__init__(max_iter=2000)
            self.epsilon, self.delta = epsilon, delta

    models = PrivateModelsVotingClassifier(Private(), 2, random_state=0).fit(X, y)
    assert models.plan_.workload.voters.each == PrivacyParams(0.5)
    with pytest.raises(ValueError, match="pass epsilon_each="):
        PrivateModelsVotingClassifier(LogisticRegression(), 2).fit(X, y)
    for of_a_loss_or_a_solver in (SGDClassifier(), make_pipeline(StandardScaler(), MLPClassifier())):
        with pytest.raises(ValueError, match="pass epsilon_each="):
            PrivateModelsVotingClassifier(of_a_loss_or_a_solver, 2).fit(X, y)
    with pytest.raises(ValueError, match=r"epsilon_each must be at least 0\.5"):
        PrivateModelsVotingClassifier(Private(), 2, epsilon_each=0.1).fit(X, y)
    people = np.arange(len(X)) // 2
    with pytest.raises(ValueError, match="all rows of a person"):
        PrivateModelsVotingClassifier(Private(), 2).fit(X, y, people)
    grouped = PrivateModelsVotingClassifier(Private(), 2, epsilon_each="1").fit(X, y, people)
    assert grouped.plan_.workload.voters.each == PrivacyParams(1)
    with pytest.raises(ValueError, match=r"delta_each must be a number where groups are given"):  # that of one row
        PrivateModelsVotingClassifier(Private(delta=1e-6), 2, epsilon_each=1).fit(X, y, people)
    # a committee fits its part ten times, and a scaler in front has no noise
    for whole in (BaggingClassifier(Private()), make_pipeline(StandardScaler(), Private())):
        with pytest.raises(ValueError, match="pass the guarantee of one fit of the whole estimator"):
            PrivateModelsVotingClassifier(whole, 2).fit(X, y)
    with pytest.raises(ValueError, match="the estimator's epsilon must be a finite number"):
        PrivateModelsVotingClassifier(Private("auto"), 2, epsilon_each=1).fit(X, y)
    with pytest.warns(UserWarning, match="predictable noise hides nothing"):
        PrivateModelsVotingClassifier(DecisionTreeClassifier(random_state=0), 2, epsilon_each=1).fit(X, y)


def test_labels_that_were_paid_for_and_not_handed_over_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = vote().fit(X, y)
    monkeypatch.setattr(StreamDestination, "hand_over", lambda *_: 1 / 0)
    with pytest.raises(DeliveryError, match="the budget is spent"):
        fitted.predict(X[:5])
    assert fitted.queries_left_ == 45
    assert set(fitted.ledger_.kept_labels(1)) <= {0, 1, 2}


def test_a_fit_that_fails_leaves_the_old_one_with_its_budget() -> None:
    fitted = vote().fit(X, y)
    fitted.predict(X[:30])
    with pytest.raises(ValueError, match="n_teachers"):
        fitted.fit(X[:5, :2], ["a", "b", "a", "b", "a"])
    assert set(fitted.predict(X[:20])) <= {0, 1, 2}
    assert fitted.queries_left_ == 0


@pytest.mark.parametrize("labels", [y, WORDS, WORDS.astype(object)], ids=["numbers", "text", "objects"])
def test_labels_of_a_vote_wait_until_the_next_ones_or_until_they_are_acknowledged(labels: Any, tmp_path: Path) -> None:
    made = vote(ledger=tmp_path / "l", random_state=None)
    made.fit(X, labels)
    ledger = PrivacyLedger(tmp_path / "l")
    for number in (1, 2):
        answers = made.predict(X[:9])
        assert [entry.number for entry in ledger.undelivered()] == [number]
        assert ledger.kept_labels(number).tolist() == answers.tolist()
        assert answers.dtype == labels.dtype
    made.acknowledge()
    assert ledger.undelivered() == ()


def test_each_thread_and_process_drops_its_own_labels_only(tmp_path: Path) -> None:
    made = vote(ledger=tmp_path / "l", random_state=None)
    made.fit(X, y).predict(X[:3])
    other = threading.Thread(target=lambda: [made.predict(X[:4]), made.predict(X[:5])])
    other.start()
    other.join()
    assert [entry.count for entry in PrivacyLedger(tmp_path / "l").undelivered()] == [3, 5]


def test_without_scikit_learn_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "try: import darrm.estimators\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = "this needs the package sklearn, which is not installed: pip install 'darrm[sklearn]'"
    assert done.stdout.strip() == expected


@pytest.mark.parametrize("failure_probability", [None, 0.5])
def test_a_card_says_whether_its_total_is_a_guarantee_and_never_less_than_was_spent(
    failure_probability: float | None,
) -> None:
    line = card.describe_spent(Spent(1.04357031, 1e-5, "simple", "sums", (), 3, failure_probability))
    assert line.startswith("Spent so far: (1.04358, ")
    assert ("It does not depend on the data." in line) is (failure_probability is None)
    assert ("No guarantee: it holds published estimates" in line) is (failure_probability is not None)


def noise(overlap: int) -> NoisyMaximum:
    return NoisyMaximum(GNMax(25.0 * overlap, reached=overlap), Voters(15, PrivacyParams("inf"), overlap), 3)


def fitted() -> list[Any]:
    return [GaussianNB(var_smoothing=1e-3).fit(X[n::15], WORDS[n::15]) for n in range(15)]


def test_models_that_are_fitted_already_vote() -> None:
    given = fitted()
    made = PrivateVotingClassifier.from_fitted(iter(given), overlap=1, epsilon=300, max_queries=150)
    assert all(teacher is model for teacher, model in zip(made.teachers_, given, strict=True))
    assert np.mean(made.predict(X) == WORDS) > 0.85
    assert made.queries_left_ == 0
    with pytest.raises(BudgetExceededError):
        made.predict(X[:1])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("overlap", [2, 1, 15])
def test_the_guarantee_is_about_the_overlap(overlap: int) -> None:
    settings: dict[str, Any] = {"epsilon": 20, "max_queries": 5, "aggregator": noise(overlap)}
    made = PrivateVotingClassifier.from_fitted(fitted(), overlap=overlap, **settings)
    assert made.plan_.workload.voters.reached == overlap
    made.predict(X[:5])
    assert 0 < made.privacy_spent_.epsilon <= 20
    card = made.to_model_card()
    assert f"influence at most {overlap} of the 15 models" in card
    assert "shard" not in card
    assert "Every row" not in card
    with pytest.warns(RefitWarning):
        made.set_params(aggregator=noise(1)).fit(X, WORDS)  # trains teachers on shards
    assert made.plan_.workload.voters.reached == 1
    assert "influence at most" not in made.to_model_card()


def test_copies_and_files_keep_the_budget_and_the_overlap(tmp_path: Path) -> None:
    pytest.importorskip("skops")
    ledger = str(tmp_path / "ledger.sqlite")
    settings: dict[str, Any] = {"epsilon": 20, "max_queries": 9, "aggregator": noise(2), "ledger": ledger}
    made = PrivateVotingClassifier.from_fitted(fitted(), overlap=2, **settings)
    made.predict(X[:3])
    copy.deepcopy(made).predict(X[:3])
    save(made, tmp_path / "vote.skops")
    again = load(tmp_path / "vote.skops", ledger=ledger)
    assert again.queries_left_ == made.queries_left_ == 3
    assert again.to_model_card() == made.to_model_card()


def test_the_list_of_classes_is_public() -> None:
    missing = [*fitted(), GaussianNB().fit(X[:100], WORDS[:100])]
    with pytest.raises(ValueError, match="classes must be given, because the models know different ones"):
        PrivateVotingClassifier.from_fitted(missing, overlap=1)
    made = PrivateVotingClassifier.from_fitted(missing, overlap=1, epsilon=300, classes=sorted(set(WORDS)))
    assert set(made.predict(X[:5])) <= set(WORDS)


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
