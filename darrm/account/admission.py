"""Decide which debits a budget admits: bound an account with a reserve, then only compare smaller accounts."""

import math

from darrm.account.accountant import DELTA_RESERVE, PrivacyAccountant
from darrm.errors import BudgetExceededError
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams, at_least
from darrm.util import checks

MOST_QUERIES = 2**53  # in a cost and in a ledger: floats and SQLite's sums are inexact above this


class Admission:
    """The accounts that stay within a budget, under one of `COMPOSITIONS`.

    An account is private if a larger one of the same kinds is: dropping answers is post-processing, and the sums of the
    filter only shrink. `_admitted_account` is replaced as a whole: counts of two accounts never mix.
    """

    def __init__(self, budget: PrivacyParams, composition: str) -> None:
        self._budget, self._composition = budget, composition
        self._is_adaptive = composition in DELTA_RESERVE
        self._admitted_account = PrivacyAccountant()
        self._reserve, self._is_growing = 0, True

    def admits(self, account: PrivacyAccountant, cost: PrivacyCost, *, decide: bool = False) -> bool:
        """Return whether an account is known to admit a cost, by comparing counts.

        With ``decide`` it is bounded if unknown: `BudgetExceededError` if it does not fit. `ValueError` if the
        composition refuses the kind of the cost, or there are too many queries.
        """
        if self._is_second_kind(account, cost):
            raise ValueError(
                f"this ledger accounts for queries of one kind, {account.costs[0].what!r}, and "
                f"{cost.what!r} costs something else: keep to the first (a voter that left keeps an empty column, "
                "--missing coin), or make a ledger with --composition planned, or renyi for a stream, before the first "
                "answer (composition= in Python); another ledger is another budget of the same people, and both add up"
            )
        _check_count("the number of queries in a cost", cost.count)
        _check_count("the number of queries in a ledger", account.queries + cost.count)
        total = account.plus(cost)
        if total.is_part_of(self._admitted_account):
            return True
        if decide and not self._fits(total):
            raise self._make_refusal(account, cost)
        return decide

    def queries_that_fit(self, account: PrivacyAccountant, cost: PrivacyCost, *, most: int) -> int:
        if self._is_second_kind(account, cost):
            return 0
        most = min(most, MOST_QUERIES - account.queries)
        return account.queries_that_fit(cost, self._budget, most=most, adaptive=self._is_adaptive)

    def _is_second_kind(self, account: PrivacyAccountant, cost: PrivacyCost) -> bool:
        return self._composition == "one" and any(other.kind != cost.kind for other in account.costs)

    def make_room(self, account: PrivacyAccountant, cost: PrivacyCost) -> None:
        """Bound an account with a cost and a reserve, which doubles until it no longer fits.

        `BudgetExceededError` if the cost does not fit without a reserve.
        """
        total = account.plus(cost)
        if self._reserve:
            if self._fits(total.plus(cost.kind.repeat(self._reserve))):
                self._reserve *= 2 if self._is_growing else 1
                return
            self._reserve, self._is_growing = self._reserve // 2, False
        if not self._fits(total):
            raise self._make_refusal(account, cost)
        if self._is_growing:
            self._reserve = cost.count

    def _fits(self, account: PrivacyAccountant) -> bool:
        if not account.admits(self._budget, adaptive=self._is_adaptive):
            return False
        self._admitted_account = account
        return True

    def _make_refusal(self, account: PrivacyAccountant, cost: PrivacyCost) -> BudgetExceededError:
        budget, adaptive = self._budget, self._is_adaptive
        count = account.queries_that_fit(cost, budget, most=cost.count - 1, adaptive=adaptive)
        queries = f"{cost.count} {'query' if cost.count == 1 else 'queries'} of {cost.what}"
        remaining_epsilon = max(0.0, budget.epsilon - account.smallest_epsilon(budget.delta, adaptive=adaptive))
        remaining = f"epsilon {at_least(remaining_epsilon, 6)} of {budget.epsilon_text} at delta {budget.delta_text}"
        next_epsilon = account.plus(cost.kind).smallest_epsilon(budget.delta, adaptive=adaptive)
        reason = (
            "; one more would fail with more than that delta, whatever epsilon is" if math.isinf(next_epsilon) else ""
        )
        if math.isinf(next_epsilon) and self._composition == "renyi":
            advice = "it needs a Rényi curve, or delta 0, on a ledger of composition 'renyi'"
            reason = f"; {advice}: --composition adaptive takes any"
        if not account.plus(cost).composes:  # a ledger knows no voters, so no bound on models applies
            reason = (
                "; answers of trained models share the randomness of their training, and the bounds for several "
                "of them do not fit: plan further queries with --non-private"
            )
        return BudgetExceededError(
            f"the budget {budget} does not admit {queries}: {count} still {'fits' if count == 1 else 'fit'}, "
            f"{remaining} is left{reason}; nothing was debited",
            requested=queries,
            remaining=remaining,
            queries_that_fit=count,
        )


def _check_count(name: str, count: int) -> None:
    if count > MOST_QUERIES:
        checks.fail(name, count, f"at most 2**53 = {MOST_QUERIES}", "larger numbers are not counted exactly")
