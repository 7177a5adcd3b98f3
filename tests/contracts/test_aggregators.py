"""The contract of every aggregator: to test a new one, add it to `CASES`."""

from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.aggregator import Aggregator
from darrm.errors import BudgetExceededError
from darrm.ledger.ledger import PrivacyLedger
from darrm.majority import baselines
from darrm.noisy_max.mechanisms import AsymmetricMax
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics.integer_noise import AsymmetricNoise
from darrm.optimize.plurality import optimize_plurality
from darrm.pate import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, NoisyMaximum
from darrm.pate.confident import ScoredGNMax
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.release import release_debited
from darrm.table.release import Release
from darrm.table.table import certify
from darrm.votes import ABSTAIN, Votes

PROBLEM = Problem.from_allowance(Voters(5, PrivacyParams("0.3", "1e-4")), 2)
TWO = Votes.from_labels(np.tile([[1, 1, 1, 0, 0], [0, 1, 0, 0, 1]], (20, 1)), classes=2)
THREE = Votes.from_counts(np.tile([[4, 3, 3], [2, 6, 2]], (20, 1)))
SCORES = np.tile([[0.5, 0.3, 0.2], [0.05, 0.05, 0.9]], (20, 1))
MATRIX = np.array([[1, 0, 1, 1, 0]])

# refused by every aggregator
REFUSED: dict[str, Any] = {
    "nothing": None,
    "a word": "votes",
    "a number": 5,
    "one row": np.zeros(5),
    "a cube": np.zeros((2, 5, 1)),
    "NaN": np.full((2, 5), np.nan),
    "words": np.full((2, 5), "1"),
    "abstentions": np.array([[0, 1, 0, ABSTAIN, 1]]),
    "ragged rows": [[0, 1, 1, 0, 1], [0, 1]],
    "halves": np.full((2, 5), 0.5),
    "a third class": np.full((1, 5), 2),
}
RESERVED = {
    f"a class called {name!r}": Votes.from_counts([[1, 2]], classes=(name, 1))
    for name in (ABSTAIN, -1.0, np.float32(-1), "-1", " -1.0")
}
AMBIGUOUS = {"an array": MATRIX, "a list": MATRIX.tolist(), "counts without a name": [[7, 3]]}
MISREAD = {"labels of five voters": MATRIX, "counts as a matrix": [[7, 3, 0]], "three columns": [[1, 2, 0]]}


@dataclass(frozen=True)
class Case:
    aggregator: Aggregator
    votes: Votes
    refused: dict[str, Any]

    @property
    def refusals(self) -> dict[str, Any]:
        return {**REFUSED, **self.refused}


MECHANISM = InteractiveGNMax(2, sigma_threshold=2.0, sigma_answer=1.0, confidence=0.8)
CASES = {
    "DaRRM": Case(
        Release(certify(PROBLEM, baselines.double_subsampling(PROBLEM))),
        TWO,
        {
            "four voters": Votes.from_labels([[0, 1, 0, 1]], classes=2),
            "a matrix of four voters": [[0, 1, 0, 1]],
            "counts of ten voters": Votes.from_counts([[7, 3]]),
            "three classes": Votes.from_labels([[0, 1, 2, 1, 0]], classes=3),
        },
    ),
    "Plurality": Case(
        Release(optimize_plurality(Problem(Voters(10, PrivacyParams("inf"), 1), PrivacyParams(1, "1e-4"), 3))),
        THREE,
        {
            **MISREAD,
            "nine voters": Votes.from_counts([[4, 3, 2]]),
            "two classes": Votes.from_counts([[4, 6]]),
            "four classes": Votes.from_counts([[4, 3, 3, 0]]),
        },
    ),
    "GNMax": Case(GNMax(3.0), THREE, AMBIGUOUS),
    "LNMax": Case(LNMax(0.3), THREE, AMBIGUOUS),
    "NoisyMaximum": Case(
        NoisyMaximum(GNMax(3.0), Voters(10, PrivacyParams("inf"), overlap=1), 3),
        THREE,
        {**MISREAD, "eleven voters": Votes.from_counts([[5, 3, 3]]), "two classes": Votes.from_counts([[5, 5]])},
    ),
    "ExponentialMechanism": Case(ExponentialMechanism(0.6), THREE, AMBIGUOUS),
    "AsymmetricMax": Case(AsymmetricMax(AsymmetricNoise(3.0, 6.0, 3.0, 2.0), reached=2), THREE, AMBIGUOUS),
    "PermuteAndFlip": Case(PermuteAndFlip(0.6, reached=2), THREE, AMBIGUOUS),
    "ConfidentGNMax": Case(ConfidentGNMax(5, 3.0, 2.0), THREE, {**AMBIGUOUS, **RESERVED}),
    "InteractiveGNMax": Case(
        MECHANISM.with_scores(SCORES), THREE, {**AMBIGUOUS, **RESERVED, "votes without scores": THREE[:3]}
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


class TestEveryAggregator:
    def test_its_cost_counts_queries_and_carries_the_guarantee(self, case: Case) -> None:
        assert isinstance(case.aggregator, Aggregator)
        cost = case.aggregator.privacy_cost(7)
        assert cost.count == 7
        assert cost == case.aggregator.privacy_cost().repeat(7)
        assert case.aggregator.guarantee in (cost.guarantee, cost.renyi)
        assert not cost.data_dependent
        with pytest.raises(ValueError, match="count"):
            case.aggregator.privacy_cost(0)
        accountant = PrivacyAccountant(costs=[cost])
        accountant.add(case.aggregator.privacy_cost(3))
        assert accountant.spent(0.01).queries == 10
        assert PrivacyAccountant(costs=[cost]).spent(0.01).epsilon <= accountant.spent(0.01).epsilon < np.inf

    def test_it_returns_a_class_for_each_query(self, case: Case) -> None:
        counts = case.votes.counts.copy()
        labels = case.aggregator.release(case.votes)
        assert labels.shape == (case.votes.queries,)
        assert labels.dtype == np.int64
        assert set(labels.tolist()) <= {ABSTAIN, *case.votes.classes}
        assert len(set(labels.tolist())) > 1
        assert np.array_equal(case.votes.counts, counts)
        names = ("cat", "dog", "fox")[: len(case.votes.classes)]
        named = case.aggregator.release(Votes.from_counts(case.votes.counts, classes=names))
        assert set(named.tolist()) <= {str(ABSTAIN), *names}
        assert len(set(named.tolist())) > 1

    def test_only_a_generator_repeats_labels(self, case: Case) -> None:
        first, second = (case.aggregator.release(case.votes, rng=np.random.default_rng(3)) for _ in range(2))
        assert first.tolist() == second.tolist()
        # eight times forty noisy answers agree by chance with a probability below 1e-20
        assert len({tuple(case.aggregator.release(case.votes).tolist()) for _ in range(8)}) > 1

    @pytest.mark.parametrize("queries", [1, 40])
    def test_a_debited_release_pays_for_every_query(self, case: Case, queries: int) -> None:
        scored = isinstance(case.aggregator, ScoredGNMax)
        aggregator = MECHANISM.with_scores(SCORES[:queries]) if scored else case.aggregator
        ledger = PrivacyLedger.create(":memory:", PrivacyParams(1000, "0.1"))
        assert release_debited(aggregator, case.votes[:queries], ledger=ledger, note="all").shape == (queries,)
        assert [(entry.count, entry.note) for entry in ledger.entries()] == [(queries, "all")]
        assert ledger.spent.queries == queries

    def test_a_refused_budget_debits_nothing(self, case: Case) -> None:
        ledger = PrivacyLedger.create(":memory:", PrivacyParams("1e-6", "1e-9"))
        with pytest.raises(BudgetExceededError, match="nothing was debited"):
            release_debited(case.aggregator, case.votes, ledger=ledger)
        assert ledger.entries() == ()

    def test_no_label_without_a_debit(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        ledger = PrivacyLedger.create(":memory:", PrivacyParams(1000, "0.1"))
        monkeypatch.setattr(PrivacyLedger, "debit", Mock(side_effect=OSError("the disk is gone")))
        with pytest.raises(OSError, match="the disk is gone"):
            release_debited(case.aggregator, case.votes, ledger=ledger)


REFUSALS = [(name, kind) for name, case in CASES.items() for kind in case.refusals]


@pytest.mark.parametrize(("name", "kind"), REFUSALS)
def test_other_input_is_refused_in_one_line_and_costs_nothing(name: str, kind: str) -> None:
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(1000, "0.1"))
    with pytest.raises(ValueError, match=r"must (be|hold)|every voter") as caught:
        release_debited(CASES[name].aggregator, CASES[name].refusals[kind], ledger=ledger)
    assert "\n" not in str(caught.value)
    if kind in AMBIGUOUS:
        assert "use Votes.from_labels(labels, classes) or Votes.from_counts(counts)" in str(caught.value)
    if kind in RESERVED:
        assert "other than -1" in str(caught.value)
    assert ledger.entries() == ()


@pytest.mark.parametrize("name", CASES)
def test_missing_votes_become_coins_or_are_refused(name: str) -> None:
    # counts that do not sum to K would have another guarantee
    case, has_coins = CASES[name], name in {"DaRRM", "Plurality", "NoisyMaximum"}
    K, C = (case.votes.voters, len(case.votes.classes)) if has_coins else (10, 2)
    labels = np.array([[np.nan, *[1.0] * (K - 2), np.nan]])
    votes = Votes.from_labels(labels, C, missing="coin")
    if has_coins:
        assert case.aggregator.release(votes).shape == (1,)
    else:
        with pytest.raises(ValueError, match=r"votes must be complete, got 2 missing: .*votes.impute_missing\(\)"):
            case.aggregator.release(votes)


def test_the_empty_batch_is_free() -> None:
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(1000, "0.1"))
    for name, case in CASES.items():
        empty = MECHANISM.with_scores(SCORES[:0]) if name == "InteractiveGNMax" else case.aggregator
        assert release_debited(empty, case.votes[:0], ledger=ledger).shape == (0,)
    assert ledger.entries() == ()


def test_a_mechanism_without_its_scores_is_no_aggregator() -> None:
    assert not isinstance(MECHANISM, Aggregator)
