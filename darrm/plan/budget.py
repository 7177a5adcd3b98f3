"""The cost of all queries of a workload.

The answers of private *models* to several queries share the randomness of their training, so their costs do not add
up. Such a workload is planned as one of non-private voters, whose queries do add up, within the larger budget that
the joint bound leaves for the release (`darrm.loss.joint_bound`).
"""

from dataclasses import replace
from fractions import Fraction

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import models_bound
from darrm.loss.joint_bound import release_within
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload

MARGIN = Fraction(1, 250_000)  # of ε remains for the rounding of reports


def account_of(workload: Workload, query: PrivacyCost) -> PrivacyAccountant:
    """Make an account of all queries of a workload, given the cost of one.

    >>> from darrm import PrivacyParams, Voters
    >>> work = Workload(Voters(5, PrivacyParams("inf"), overlap=1), 20, PrivacyParams(2))
    >>> account_of(work, PrivacyCost("one", guarantee=PrivacyParams("0.1"))).admits(work.total)
    True
    """
    return PrivacyAccountant(workload.voters, [query.repeated(workload.queries)])


def counted(workload: Workload, *, one_by_one: bool = False) -> Workload:
    """Return the workload whose queries add up: that of non-private voters for several answers of private models.

    Their budget is what both ends leave for the release, for a person who reaches as many plain voters as models, or
    with ``one_by_one`` one; the total itself where the models are private enough for any release.

    >>> from darrm import PrivacyParams, Voters
    >>> models = Voters(11, PrivacyParams(1), overlap=1, models=True)
    >>> release = counted(Workload(models, 100, PrivacyParams("0.5", "1e-5")))
    >>> release.voters.each.is_private, round(release.total.epsilon, 2), round(release.total.delta, 6)
    (False, 1.18, 3.5e-05)
    """
    voters = workload.voters
    if workload.queries == 1 or not voters.are_private_models:
        return workload
    plain = Voters(voters.K, PrivacyParams("inf"), 1 if one_by_one else voters.overlap)
    whole = PrivacyParams(workload.total.exact_epsilon * (1 - MARGIN), workload.total.exact_delta)
    total = release_within(voters, whole, one_by_one=one_by_one) or workload.total
    return replace(workload, voters=plain, total=total)


def releases_of(workload: Workload) -> list[Workload]:
    """List the workloads to calibrate a table for: `counted`, and for overlapping models also one model at a time."""
    release = counted(workload)
    if release == workload or workload.voters.reached == 1:
        return [release]
    return [release, counted(workload, one_by_one=True)]


def needs_no_noise(workload: Workload) -> bool:
    """Return whether the models of one person stay within the budget, and so any number of answers.

    >>> from darrm import PrivacyParams, Voters
    >>> models = Voters(11, PrivacyParams("0.1"), overlap=1, models=True)
    >>> [needs_no_noise(Workload(models, queries, PrivacyParams("0.1"))) for queries in (1, 100)]
    [False, True]
    """
    if workload.queries == 1 or not workload.voters.are_private_models:
        return False
    cap = models_bound(workload.voters, workload.total.delta)
    return cap is not None and cap.epsilon <= workload.total.epsilon
