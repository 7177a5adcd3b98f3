"""What the queries of a workload cost together, and the largest parameter whose queries stay within the budget."""

from collections.abc import Callable

from darrm.account.accountant import PrivacyAccountant
from darrm.errors import PlanError
from darrm.losses.charges import Charge
from darrm.probability.bisection import last_allowed
from darrm.problem import Workload

BISECTIONS = 30
LARGEST_PARAMETER = 4.0  # times the total ε: with δ > 0 one query may have more than ε


def account_of(workload: Workload, query: Charge) -> PrivacyAccountant:
    """Charge one account with all queries of a workload, given the charge of one.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(5, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2))
    >>> account_of(work, Charge("one", guarantee=PrivacyParams("0.1"))).admits(work.total)
    True
    """
    return PrivacyAccountant(charges=[query.repeated(workload.queries)])


def largest_within(workload: Workload, charge: Callable[[float], Charge]) -> float:
    """Bisect for the largest parameter whose Q charges the accountant admits, or raise `PlanError`."""

    def admitted(parameter: float) -> bool:
        return account_of(workload, charge(parameter)).admits(workload.total)

    most = LARGEST_PARAMETER * workload.total.epsilon
    largest = last_allowed(admitted, 0.0, most, steps=BISECTIONS)
    if largest == 0.0:
        raise PlanError(f"no parameter above {most * 0.5**BISECTIONS:.3g} composes within {workload.total}")
    return largest
