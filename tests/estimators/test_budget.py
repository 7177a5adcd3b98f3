"""The ledger is the authority on a budget that all copies share, and Confident-GNMax has a cost for any votes."""

import copy
import gc
import itertools
import math
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone

from darrm import PrivacyLedger, PrivacyParams
from darrm.errors import BudgetExceededError, LedgerError
from darrm.estimators import RefitWarning
from darrm.estimators.budget import LimitedConfident
from darrm.pate import ConfidentGNMax, GNMax
from darrm.votes import Votes
from tests.estimators.support import WORDS, X, make_vote, y

NOISE = np.arange(-40, 41)


def copy_by_pickle(estimator: Any) -> Any:
    return pickle.loads(pickle.dumps(estimator))  # noqa: S301 (written here)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("make_copy", [copy_by_pickle, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("file", ["ledger.sqlite", None])
def test_a_copy_spends_the_same_budget(make_copy: Any, file: str | None, tmp_path: Path) -> None:
    vote = make_vote(ledger=file and tmp_path / file).fit(X, y)
    twin = make_copy(vote)
    twin.predict(X[:30])
    assert (vote.queries_left_, twin.queries_left_) == (20, 20)
    with pytest.raises(BudgetExceededError):
        vote.predict(X[:21])
    assert make_copy(twin).queries_left_ == 20


def test_a_copy_without_the_process_of_a_ledger_in_memory_releases_nothing() -> None:
    pickled = pickle.dumps(make_vote().fit(X, y))
    gc.collect()  # the ledger ends with the estimator, as with its process
    with pytest.raises(LedgerError, match="memory of the process"):
        pickle.loads(pickled).predict(X[:30])  # noqa: S301 (written above)


@pytest.mark.parametrize(("replacement", "message"), [("an older copy", "older copy"), ("a new one", "another ledger")])
def test_a_replaced_ledger_gives_no_second_budget(replacement: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    vote = make_vote(ledger=path).fit(X, y)
    content = path.read_bytes()
    vote.predict(X[:30])
    pickled = pickle.dumps(vote)
    path.unlink()
    if replacement == "an older copy":
        path.write_bytes(content)
    else:
        make_vote(ledger=path).fit(X, y).predict(X[:40])  # more answers than the first ledger has
    with pytest.raises(LedgerError, match=message):
        pickle.loads(pickled).predict(X[:5])  # noqa: S301 (written above)


def test_a_clone_shares_only_a_ledger_in_a_file(tmp_path: Path) -> None:
    for ledger, left in ((None, 50), (tmp_path / "ledger.sqlite", 10)):
        vote = make_vote(ledger=ledger).fit(X, y)
        vote.predict(X[:40])
        assert clone(vote).fit(X, y).queries_left_ == left


def test_a_refit_with_another_ledger_warns_that_budgets_add_up(tmp_path: Path) -> None:
    vote = make_vote().fit(X, y).fit(X, y)  # without an answer in between
    vote.set_params(ledger=tmp_path / "first").fit(X, y).predict(X[:3])
    (tmp_path / "link").symlink_to(tmp_path / "first")
    vote.set_params(ledger=tmp_path / "link").fit(X, y)  # the same budget by another name
    for other in (tmp_path / "second", None, None):
        with pytest.warns(RefitWarning, match="both budgets add up"):
            vote.set_params(ledger=other).fit(X, y)
        vote.predict(X[:3])
        if other is not None:
            other.unlink()  # its answers are released all the same


def test_a_file_keeps_one_budget_over_all_fits_with_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    vote = make_vote(ledger=path).fit(X, y)
    vote.predict(X[:30])
    assert vote.fit(X, y).queries_left_ == 20
    with pytest.raises(ValueError, match=r"\(epsilon, delta\) must be \(3, 1e-05\)"):
        make_vote(ledger=path, epsilon=4).fit(X, y)
    with pytest.raises(ValueError, match="ledger must be one of"):
        make_vote(ledger=path, aggregator=GNMax(26.0)).fit(X, y)


@pytest.mark.slow
def test_other_charges_on_the_ledger_reduce_the_remaining_queries(tmp_path: Path) -> None:
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", PrivacyParams(3, 1e-5), composition="planned")
    vote = make_vote(ledger=ledger.path).fit(X, y)
    ledger.debit(GNMax(6.0).privacy_cost(10))
    left = int(vote.queries_left_)
    assert 0 < left < 50
    with pytest.raises(BudgetExceededError):
        vote.predict(X[: left + 1])
    assert len(vote.predict(X[:left])) == left


@pytest.mark.parametrize("labels", [y, WORDS, WORDS.astype(object)], ids=["numbers", "text", "objects"])
def test_the_ledger_keeps_labels_until_the_next_ones_or_acknowledge(labels: Any, tmp_path: Path) -> None:
    vote = make_vote(ledger=tmp_path / "ledger", random_state=None).fit(X, labels)
    ledger = PrivacyLedger(tmp_path / "ledger")
    for number in (1, 2):
        answers = vote.predict(X[:9])
        assert [entry.number for entry in ledger.undelivered()] == [number]
        assert ledger.kept_labels(number).tolist() == answers.tolist()
        assert answers.dtype == labels.dtype
    vote.acknowledge()
    assert ledger.undelivered() == ()


def test_a_thread_drops_only_its_own_labels(tmp_path: Path) -> None:
    vote = make_vote(ledger=tmp_path / "ledger").fit(X, y)
    vote.predict(X[:3])
    thread = threading.Thread(target=lambda: [vote.predict(X[:4]), vote.predict(X[:5])])
    thread.start()
    thread.join()
    assert [entry.count for entry in PrivacyLedger(tmp_path / "ledger").undelivered()] == [3, 5]


def enumerate_law(ones: tuple[int, ...], voters: int, run: LimitedConfident) -> dict[tuple[int, ...], float]:
    """Enumerate the law of all answers to queries about two classes, from the definition of the noise."""
    check, answer = (
        np.exp(-(NOISE**2) / (2.0 * sigma**2))
        for sigma in (run.aggregator.sigma_threshold, run.aggregator.sigma_answer)
    )
    check, both = check / check.sum(), np.outer(answer, answer) / answer.sum() ** 2
    lead = NOISE[:, None] - NOISE[None, :]
    law: dict[tuple[int, ...], float] = {}
    for bits in itertools.product((False, True), repeat=len(ones)):
        answered = [query for query, passed in enumerate(bits) if passed][: run.answers]
        probability_of_checks = 1.0
        for votes, passed in zip(ones, bits, strict=True):
            is_over = max(votes, voters - votes) + NOISE >= run.aggregator.threshold
            probability_of_checks *= float(check[is_over == passed].sum())
        for labels in itertools.product((0, 1), repeat=len(answered)):
            probability, answers = probability_of_checks, [-1] * len(ones)
            for query, label in zip(answered, labels, strict=True):
                ahead = (2 * ones[query] - voters + lead) * (1 if label else -1)
                probability *= float(both[ahead > 0].sum() + both[ahead == 0].sum() / 2.0)
                answers[query] = label
            law[tuple(answers)] = law.get(tuple(answers), 0.0) + probability
    return law


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("voters", "queries", "answers"), [(2, 2, 1), (4, 3, 1), (3, 3, 2)])
def test_neighbors_diverge_by_no_more_than_a_confident_run_charges(voters: int, queries: int, answers: int) -> None:
    run = LimitedConfident(ConfidentGNMax(0.8 * voters, 1.0, 1.0), queries, answers)
    curve: Any = run.privacy_cost().renyi
    laws = {ones: enumerate_law(ones, voters, run) for ones in itertools.product(range(voters + 1), repeat=queries)}
    worst_share = 0.0
    for (ones, law), (others, other) in itertools.product(laws.items(), repeat=2):
        if max(abs(a - b) for a, b in zip(ones, others, strict=True)) > 1:
            continue
        for order, charge in zip(curve.orders, curve.values, strict=True):
            if 1.4 < order < 6.0:
                moment = sum(p**order * other[answer] ** (1.0 - order) for answer, p in law.items())
                worst_share = max(worst_share, math.log(moment) / (order - 1.0) / charge)
    assert 0.25 < worst_share <= 1.0  # a charge without the checks, or without the answers, would be exceeded


def test_a_confident_run_charges_all_checks_and_its_largest_number_of_answers() -> None:
    run = LimitedConfident(ConfidentGNMax(5.0, 1.0, 2.0), queries=7, answers=3)
    unanimous = Votes.from_counts([[100, 0]] * 7)
    assert run.release(unanimous).tolist() == [0, 0, 0, -1, -1, -1, -1]
    check, answer = run.aggregator.check.guarantee, run.aggregator.answer.guarantee
    for order in (2.0, 5.0, 20.0):
        charge = 7 * check.bound_at(order) + 3 * answer.bound_at(order)
        assert run.guarantee.bound_at(order) == pytest.approx(charge, rel=1e-9)
