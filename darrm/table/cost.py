"""The privacy cost of queries with a proven table."""

from functools import lru_cache

import numpy as np

from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, classes_in_words, is_open
from darrm.table.evidence import costs_of_non_private, is_cheap, kind_of
from darrm.table.sample import sample_of
from darrm.table.table import Table
from darrm.util import checks


def charge_of(
    table: Table, queries: int = 1, *, voters: Voters | None = None, exact: bool | None = None
) -> PrivacyCost:
    """Describe the privacy cost of queries with a table, for any data.

    For private models it holds the cost of one query, and the cost of every query for non-private voters: the
    accountant bounds several queries with both.

    Parameters
    ----------
    table
        The proven law.
    queries
        At least 1.
    voters
        Other voters than the table's, with the same guarantees and overlap or smaller ones, or declared models.
    exact
        Add the exact privacy profile of the table and its Rényi curve: the accountant's bounds on many queries shrink
        by about a third. None adds them for a law on histograms, for a γ up to K = 301, and for more voters if γ is
        monotone or the overlap small; else they take longer to compute than most releases.

    Raises
    ------
    ValueError
        If the table is not proved for such voters.

    Examples
    --------
    >>> from darrm import Problem, NoiseFunction, PrivacyParams, Voters, certify
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> charge_of(certify(problem, NoiseFunction(3, [0.2, 0.6])), 20)
    PrivacyCost(what='DaRRM over 3 voters', guarantee=PrivacyParams(epsilon=0.1, delta=0), renyi=…, profile=…, count=20)
    >>> from darrm.plurality.plurality_law import random_law
    >>> problem = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1), classes=3)
    >>> charge_of(certify(problem, random_law(2, 3)), 20)
    PrivacyCost(what='plurality of 2 voters, 3 classes, a person reaching at most 1', guarantee=PrivacyParams(epsilon=1,
    \
delta=0), renyi=…, profile=…, count=20)
    """
    proved = table.problem.voters
    voters = proved if voters is None else voters
    if not proved.cover(voters):
        checks.fail("voters", str(voters), f"as private as those of the table, with no larger overlap: {proved}")
    reach = "" if voters.overlap is None else f", a person reaching at most {voters.overlap}"
    wanted = is_cheap(table.problem, table.law) if exact is None else exact
    return PrivacyCost(
        f"{_name(table, voters.K)}{reach}",
        guarantee=table.problem.target,
        renyi=table.renyi if wanted else None,
        profile=table.profile if wanted else None,
        count=queries,
        voters=voters,
        for_plain_voters=_for_plain_voters(table, voters) if voters.are_private_models else (),
        sample=sample_of(table) if voters.are_private_models else None,
        table=table.digest,
    )


def _name(table: Table, voters: int | str) -> str:
    classes = table.problem.classes
    return kind_of(table.law).name.format(
        voters, classes_in_words(classes) if is_open(classes) else f"{classes} classes"
    )


def _for_plain_voters(table: Table, voters: Voters) -> tuple[PrivacyCost, ...]:
    charges = (_plain_charge(table, overlap) for overlap in sorted({1, voters.reached}))
    return tuple(charge for charge in charges if charge is not None)


@lru_cache(maxsize=64)  # of immutable tables: every cost of one needs it
def _plain_charge(table: Table, overlap: int) -> PrivacyCost | None:
    K, (profile, renyi) = table.problem.voters.K, costs_of_non_private(table.law, overlap)
    if profile is None:
        return None
    epsilons, deltas = profile.arrays()
    # (ε, δ) is the corner of the profile that carries most of the privacy loss, or the pure ε if it is finite
    corner = -1
    if deltas[-1] > 0.0 and epsilons.size > 2:
        # an outcome of loss ε has the probability e^ε·(change of slope in e^ε) [ZDW22, Proposition 8]
        slopes = np.append(np.diff(deltas) / np.diff(np.exp(epsilons)), 0.0)
        corner = 1 + int(np.argmax(np.exp(epsilons[1:]) * np.diff(slopes)))
    params = None
    if deltas[corner] < 1.0:
        params = PrivacyParams(float(np.nextafter(epsilons[corner], np.inf)), float(deltas[corner]))
    voters = Voters(K, PrivacyParams("inf"), overlap=overlap)
    what = _name(table, f"{K} plain")
    return PrivacyCost(what, params, renyi, profile, voters=voters, table=table.digest)
