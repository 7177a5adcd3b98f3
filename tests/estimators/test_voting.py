"""Votes: the ledger is debited before labels are released, and private models without noise are debited once."""

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from darrm import PrivacyLedger, PrivacyParams, Voters
from darrm.errors import BudgetExceededError, DeliveryError, LedgerError
from darrm.estimators import PrivateVotingClassifier, RefitWarning, SelectionWarning, load, save
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.pate import GNMax
from darrm.pate.analysis import PrivateFigureWarning
from darrm.release.delivery import StreamDestination
from darrm.votes import Votes
from tests.estimators.support import MAKERS, WORDS, X, make_models, make_vote, y


@pytest.mark.parametrize("aggregator", [GNMax(25.0), pytest.param("best", marks=pytest.mark.slow)])
def test_predict_answers_up_to_the_last_query_and_refuses_more_without_a_charge(aggregator: Any) -> None:
    vote = make_vote(aggregator=aggregator).fit(X, y)
    assert (vote.queries_left_, vote.privacy_spent_.epsilon) == (50, 0.0)
    assert set(vote.predict(X[:45])) <= {0, 1, 2}
    spent = vote.privacy_spent_
    assert 0 < spent.epsilon <= 3
    with pytest.raises(BudgetExceededError, match="6 answers were asked for, and 5 of 50 are left") as refusal:
        vote.predict(X[:6])
    assert refusal.value.queries_that_fit == 5
    assert (vote.queries_left_, vote.privacy_spent_) == (5, spent)
    vote.predict(X[:5])
    assert vote.queries_left_ == 0
    assert vote.privacy_spent_.epsilon <= 3


class Halves(DecisionTreeClassifier):  # type: ignore[misc]  # scikit-learn ships no types
    """A teacher that answers by no class."""

    def predict(self, inputs: Any) -> Any:
        return super().predict(inputs) / 2 + 0.1


ENCODER = make_pipeline(OneHotEncoder(), DecisionTreeClassifier())


@pytest.mark.parametrize(
    ("teacher", "inputs", "message"),
    [
        (None, [[np.nan] * 4], "NaN"),
        (None, X[:3, :2], "features"),
        (None, X[0], "Reshape your data"),
        (Halves(), X[:5], "a teacher cannot answer"),
        (ENCODER, np.full((1, 4), 77.5), "a teacher cannot answer"),  # a category that no teacher knows
    ],
)
def test_predict_that_fails_before_the_votes_costs_nothing(teacher: Any, inputs: Any, message: str) -> None:
    vote = make_vote(teacher).fit(X, y)
    with pytest.raises(ValueError, match=message) as refusal:
        vote.predict(inputs)
    assert "\n" not in str(refusal.value)
    assert message != "a teacher cannot answer" or not re.search(r"\d", str(refusal.value))  # votes are private
    assert vote.queries_left_ == 50


def test_labels_leave_only_after_their_debit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    vote = make_vote().fit(X, y)
    monkeypatch.setattr(PrivacyLedger, "debit", refuse)
    with pytest.raises(KeyboardInterrupt):
        vote.predict(X[:7])
    monkeypatch.undo()
    monkeypatch.setattr(StreamDestination, "hand_over", refuse)
    with pytest.raises((KeyboardInterrupt, DeliveryError)):
        vote.predict(X[:5])
    assert vote.queries_left_ == 45
    assert set(vote.ledger_.kept_labels(1)) <= {0, 1, 2}


@pytest.mark.slow
def test_a_grid_search_and_cross_validation_warn_and_run() -> None:
    vote = make_vote(n_teachers=3, epsilon=30)
    search = GridSearchCV(vote, {"estimator__n_neighbors": [1, 2]}, cv=3)
    with pytest.warns(SelectionWarning):
        search.fit(X, y)
    assert search.best_estimator_.queries_left_ == 50
    assert cross_val_predict(vote, X, y, cv=3).shape == (150,)


def test_estimators_without_scikit_learn_name_the_package() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import darrm.estimators"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    message = "ValueError: this needs the package sklearn, which is not installed: pip install 'darrm[sklearn]'"
    assert process.stderr.splitlines()[-1] == message


def test_a_fit_that_fails_leaves_the_old_fit_with_its_budget() -> None:
    vote = make_vote().fit(X, y)
    vote.predict(X[:30])
    with pytest.raises(ValueError, match="n_teachers"):
        vote.fit(X[:5, :2], ["a", "b", "a", "b", "a"])
    assert set(vote.predict(X[:20])) <= {0, 1, 2}
    assert vote.queries_left_ == 0


def test_an_aggregator_costs_what_it_charges_and_must_answer_by_a_class() -> None:
    class NoClass(GNMax):
        def release(self, votes: Votes, *, rng: Any = None) -> Any:
            return super().release(votes, rng=rng) - 3

    vote = make_vote().fit(X, y)
    vote.predict(X[:50])
    assert vote.ledger_.accountant().costs[0].what == "GNMax(sigma=25)"
    with pytest.raises(ValueError, match="one that answers every query"):
        make_vote(aggregator=NoClass(25.0)).fit(X, y).predict(X[:9])


def test_score_is_debited_and_warns() -> None:
    vote = make_vote().fit(X, y)
    with pytest.warns(SelectionWarning, match="score pays for 10 answers"):
        vote.score(X[:10], y[:10])
    assert vote.queries_left_ == 40
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        vote.score(X[:10], y[:9])
    assert vote.queries_left_ == 40


@pytest.mark.parametrize("kind", ["vote", "models"])
def test_a_vote_has_no_probabilities(kind: str) -> None:
    with pytest.raises(AttributeError, match="shares of noisy votes are no probabilities"):
        MAKERS[kind]().predict_proba(X)
    assert not hasattr(MAKERS[kind](), "predict_proba")


def test_votes_are_marked_as_private() -> None:
    vote = make_vote().fit(X, y)
    with pytest.warns(PrivateFigureWarning, match="private data"):
        votes = vote.votes(X[:9])
    assert set(votes.counts.sum(axis=1)) == {6}
    assert vote.queries_left_ == 50


@pytest.mark.parametrize("convert", [np.asarray, csr_array])
def test_private_models_answer_by_the_plurality_without_noise_for_one_charge(convert: Any) -> None:
    models = make_models(max_queries=3).fit(convert(X[::2]), WORDS[::2])
    inputs = convert(X[1::2])
    assert models.plan_.aggregator is None
    assert "no noise" in models.plan_.name
    assert models.queries_left_ == np.inf
    assert models.expected_accuracy() == pytest.approx(1)
    answers = models.predict(inputs)
    counts = np.sum([model.predict(inputs)[:, None] == models.classes_ for model in models.teachers_], axis=0)
    assert np.array_equal(models.votes(inputs).counts, counts)
    chosen = np.searchsorted(models.classes_, answers)
    assert np.array_equal(counts[np.arange(len(counts)), chosen], counts.max(axis=1))
    assert np.mean(answers == WORDS[1::2]) > 0.55
    assert models.privacy_spent_.epsilon <= 1
    with pytest.warns(RefitWarning):
        models.fit(X, y)


def test_private_models_are_debited_on_a_ledger_with_other_charges(tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(3), composition="planned")
    models = make_models(epsilon=3, delta=0, ledger=ledger.path)
    models.fit(X, y).fit(X, y)
    assert ledger.spent.epsilon == 2
    models.fit(X, y)
    teachers = models.teachers_
    with pytest.raises(BudgetExceededError):
        models.fit(X, y)
    assert models.teachers_ is teachers


@pytest.mark.slow
def test_private_models_above_the_budget_get_noise_and_a_ledger_of_their_own(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epsilon_each": 2, "epsilon": 1, "max_queries": 20, "ledger": tmp_path / "ledger"}
    first = make_models(**settings).fit(X, y)
    second = make_models(**settings).fit(X, y)  # the ledger is still empty
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


def test_the_guarantee_of_a_model_is_read_from_its_parameters_unless_stated() -> None:
    class Private(LogisticRegression):  # type: ignore[misc]
        def __init__(self, epsilon: Any = 0.5) -> None:
            super().__init__(max_iter=2000)
            self.epsilon = epsilon

    models = make_models(Private(), epsilon_each=None).fit(X, y)
    assert models.plan_.workload.voters.each == PrivacyParams(0.5)
    models = make_models(Private(), epsilon_each="1").fit(X, y, groups=np.arange(len(X)) // 2)
    assert models.plan_.workload.voters.each == PrivacyParams(1)
    with pytest.warns(UserWarning, match="predictable noise hides nothing"):
        make_models(DecisionTreeClassifier(random_state=0)).fit(X, y)


@pytest.mark.slow
def test_expected_accuracy_is_planned_without_data_and_without_a_charge(tmp_path: Path) -> None:
    vote = make_vote(GaussianNB(), n_teachers=60, aggregator="best", ledger=tmp_path / "ledger", classes=[2, 0, 1])
    accuracy = vote.expected_accuracy()
    assert not (tmp_path / "ledger").exists()
    assert 1 / 3 < accuracy < 1
    assert vote.set_params(classes=3).expected_accuracy() == accuracy
    vote.set_params(classes=None).fit(X, y)
    assert vote.expected_accuracy() == accuracy == vote.plan_.accuracy
    assert vote.privacy_spent_.epsilon == 0
    assert vote.set_params(epsilon=8).expected_accuracy() > accuracy


def make_noise(overlap: int) -> NoisyMaximum:
    return NoisyMaximum(GNMax(25.0 * overlap, reached=overlap), Voters(15, PrivacyParams("inf"), overlap), 3)


def fit_models() -> list[Any]:
    return [GaussianNB(var_smoothing=1e-3).fit(X[n::15], WORDS[n::15]) for n in range(15)]


def test_from_fitted_votes_with_the_given_models() -> None:
    models = fit_models()
    aggregator = NoisyMaximum(GNMax(2.0), Voters(15, PrivacyParams("inf"), 1), 3)
    settings: dict[str, Any] = {"epsilon": 300, "max_queries": 50, "aggregator": aggregator}
    vote = PrivateVotingClassifier.from_fitted(iter(models), overlap=1, **settings)
    assert all(teacher is model for teacher, model in zip(vote.teachers_, models, strict=True))
    assert np.mean(vote.predict(X[::3]) == WORDS[::3]) > 0.85
    with pytest.raises(BudgetExceededError):
        vote.predict(X[:1])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("overlap", [2, 1, 15])
def test_from_fitted_keeps_the_overlap_in_plan_card_copies_and_files(overlap: int, tmp_path: Path) -> None:
    pytest.importorskip("skops")
    ledger = str(tmp_path / "ledger.sqlite")
    settings: dict[str, Any] = {"epsilon": 20, "max_queries": 9, "aggregator": make_noise(overlap), "ledger": ledger}
    vote = PrivateVotingClassifier.from_fitted(fit_models(), overlap=overlap, **settings)
    assert vote.plan_.workload.voters.reached == overlap
    vote.predict(X[:3])
    assert 0 < vote.privacy_spent_.epsilon <= 20
    copy.deepcopy(vote).predict(X[:3])
    save(vote, tmp_path / "vote.skops")
    loaded = load(tmp_path / "vote.skops", ledger=ledger)
    assert loaded.queries_left_ == vote.queries_left_ == 3
    card = vote.to_model_card()
    assert loaded.to_model_card() == card
    assert f"influence at most {overlap} of the 15 models" in card
    assert "shard" not in card
    assert "Every row" not in card
    with pytest.warns(RefitWarning):
        vote.set_params(aggregator=make_noise(1), ledger=None).fit(X, WORDS)  # trains teachers on shards
    assert vote.plan_.workload.voters.reached == 1
    assert "influence at most" not in vote.to_model_card()


def test_from_fitted_takes_classes_that_some_models_do_not_know() -> None:
    models = [*fit_models(), GaussianNB().fit(X[:100], WORDS[:100])]
    settings: dict[str, Any] = {"max_queries": 5, "aggregator": GNMax(25.0)}
    vote = PrivateVotingClassifier.from_fitted(models, overlap=1, classes=["c", "a", "b"], **settings)
    assert set(vote.predict(X[:5])) <= set(WORDS)
