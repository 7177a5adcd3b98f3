"""Labels for predictions of models that are trained already: plan, draw, pay, in one call."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from darrm.account.accountant import Spent
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.sqlite import MEMORY, is_url
from darrm.open_set.open_law import to_votes
from darrm.plan.planner import plan
from darrm.plan.report import Plan
from darrm.priors import Prior
from darrm.privacy import Number, PrivacyPair, PrivacyParams
from darrm.problem import OPEN, Voters, Workload, is_open
from darrm.release.delivery import release_debited
from darrm.util import checks
from darrm.votes import Labels, Votes
from darrm.votes.vote_arrays import class_names


@dataclass(frozen=True, eq=False)
class ReleasedLabels:
    """Released labels, their cost, and their plan."""

    labels: Labels  # (Q,) names of classes
    spent: Spent  # by all answers that the ledger holds
    plan: Plan
    ledger: PrivacyLedger

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"ReleasedLabels({len(self):,} by {self.plan.best.slug})"

    def __str__(self) -> str:
        count = f"{len(self):,} {'label' if len(self) == 1 else 'labels'}"
        return f"{count} by {self.plan.best.name}\nspent: {self.spent}\nbudget: {self.ledger.budget}"


def release(  # noqa: PLR0913 (options of voters, plan and ledger)
    predictions: Votes | ArrayLike,
    *,
    budget: PrivacyPair,
    classes: int | Sequence[object] = 2,
    epsilon: Number | None = None,
    each_delta: Number = 0,
    non_private: bool = False,
    overlap: int | None = None,
    models: bool = True,
    queries: int | None = None,
    prior: Prior | str | None = None,
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
) -> ReleasedLabels:
    """Release what most models predict, within a privacy budget.

    Parameters
    ----------
    predictions
        `Votes`, or a (Q, K) array of Q queries and K models.
    budget
        (ε, δ) of all answers together.
    classes
        Their public number or names, or ``"open"``; they are not taken from the predictions.
    epsilon, each_delta
        The guarantee of each model's training.
    non_private
        Whether the models guarantee nothing themselves.
    overlap
        How many models the data of one person can influence, 1 for disjoint shards; needed for non-private models.
    models
        False: each voter draws fresh randomness for each query, so that the guarantees of its answers add up.
    queries
        How many answers all calls with the same ledger ask for; by default Q.
    prior
        A public prior of the votes; by default as for `darrm.plan.plan`.
    ledger
        The ledger that is debited, or the name of its file, which is created with this budget if it is missing. None:
        the budget covers this call only.

    `ValueError` if the privacy of the models is not stated, or an argument is out of range. `PlanError` if no release
    stays within the budget, or the models need no noise. `BudgetExceededError` if the ledger does not admit Q answers:
    nothing is debited.

    >>> answers = release([[1, 1, 1, 0, 1]] * 3, budget=(2, 1e-5), non_private=True, overlap=1)
    >>> len(answers.labels), answers.spent.queries, answers.spent.epsilon <= 2
    (3, 3, True)
    """
    class_count = OPEN if is_open(classes) else len(class_names(classes))
    votes = predictions
    if not isinstance(votes, Votes):
        votes = to_votes(votes, class_count) if isinstance(classes, int | str) else Votes.from_labels(votes, classes)
    voters = _build_voters(votes.voters, epsilon, each_delta, overlap, non_private=non_private, models=models)
    total = PrivacyParams.of(budget, "budget")
    paying_ledger = _open_ledger(ledger, total)
    all_queries = votes.queries if queries is None else queries
    checks.integer_at_least(max(1, votes.queries), queries=all_queries, advice="at least the predictions")
    ranking = plan(Workload(voters, all_queries, total, class_count), prior=prior)
    labels = release_debited(ranking.aggregator, votes, ledger=paying_ledger, note="darrm.release")
    return ReleasedLabels(labels, paying_ledger.spent, ranking, paying_ledger)


def _build_voters(
    K: int, epsilon: Number | None, each_delta: Number, overlap: int | None, *, non_private: bool, models: bool
) -> Voters:
    if epsilon is not None and non_private:
        checks.fail(
            "epsilon", epsilon, "left out for non-private models", "pass epsilon= or non_private=True, not both"
        )
    if epsilon is None and not non_private:
        advice = "pass epsilon=, the guarantee of each model's training, or non_private=True"
        checks.fail("epsilon", epsilon, "stated, unless the models are non-private", advice)
    if epsilon is not None:
        return Voters(K, (epsilon, each_delta), overlap, models=models)
    if overlap is None:
        advice = "pass the number of models that one person's data can influence, 1 for disjoint shards"
        checks.fail("overlap", overlap, "stated for non-private models", advice)
    return Voters.non_private(K, overlap)


def _open_ledger(ledger: PrivacyLedger | str | os.PathLike[str] | None, budget: PrivacyParams) -> PrivacyLedger:
    if ledger is None:
        return PrivacyLedger.create(MEMORY, budget)
    if not isinstance(ledger, PrivacyLedger):
        if not is_url(ledger) and not Path(ledger).exists():
            return PrivacyLedger.create(ledger, budget)
        ledger = PrivacyLedger(ledger)
    if ledger.budget != budget:
        checks.fail("budget", str(budget), f"that of the ledger, {ledger.budget}", "name another ledger")
    return ledger
