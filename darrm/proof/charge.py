"""What queries with a proven table cost."""

from functools import lru_cache

import numpy as np

from darrm.errors import checks
from darrm.losses.charges import Charge
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, classes_in_words, is_open
from darrm.proof.sample import sample_of
from darrm.proof.table import Table


def charge_of(table: Table, queries: int = 1, *, voters: Voters | None = None, exact: bool | None = None) -> Charge:
    """Describe what ``queries`` queries with a table cost, whatever the data.

    A charge about private models says what one query costs, and what every query costs for plain voters: the accountant
    knows what follows for several.

    Parameters
    ----------
    table
        The proven law.
    queries
        How many, at least 1.
    voters
        Who votes, where it is not the voters of the table word for word: as private as those and reached as little, or
        declared models.
    exact
        Add the exact privacy profile of the table, and its Rényi curve: the accountant's bounds on many queries shrink
        by a third or so. None does so for a law on histograms, for a γ up to K = 301, and for more voters where γ is
        monotone or a person reaches few of them; beyond, it takes longer to compute than most releases.

    Raises
    ------
    ValueError
        If the table is not proved for such voters.

    Examples
    --------
    >>> from darrm import Problem, NoiseFunction, PrivacyParams, Voters, certify
    >>> problem = Problem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> charge_of(certify(problem, NoiseFunction(3, [0.2, 0.6])), 20)
    Charge(what='DaRRM over 3 voters', guarantee=PrivacyParams(epsilon=0.1, delta=0), renyi=…, profile=…, count=20)
    >>> from darrm.laws.plurality_law import random_law
    >>> problem = Problem(Voters(2, PrivacyParams("inf"), overlap=1), PrivacyParams(1), classes=3)
    >>> charge_of(certify(problem, random_law(2, 3)), 20)
    Charge(what='plurality of 2 voters, 3 classes, a person reaching at most 1', guarantee=PrivacyParams(epsilon=1, \
delta=0), renyi=…, profile=…, count=20)
    """
    proved = table.problem.voters
    voters = proved if voters is None else voters
    if not proved.cover(voters):
        checks.fail("voters", str(voters), f"as private as those of the table, and reached as little: {proved}")
    reach = "" if voters.overlap is None else f", a person reaching at most {voters.overlap}"
    wanted = table.evidence.is_cheap(table.problem, table.law) if exact is None else exact
    return Charge(
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
    return table.evidence.name.format(voters, classes_in_words(classes) if is_open(classes) else f"{classes} classes")


def _for_plain_voters(table: Table, voters: Voters) -> tuple[Charge, ...]:
    charges = (_plain_charge(table, overlap) for overlap in sorted({1, voters.reached}))
    return tuple(charge for charge in charges if charge is not None)


@lru_cache(maxsize=64)  # tables do not change, and every charge of one asks again
def _plain_charge(table: Table, overlap: int) -> Charge | None:
    K, (profile, renyi) = table.problem.voters.K, table.evidence.of_plain(table.law, overlap)
    if profile is None:
        return None
    epsilons, deltas = profile.arrays()
    # (ε, δ) is the corner of the profile that carries most of the privacy loss, or the pure ε where that is finite
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
    return Charge(what, params, renyi, profile, voters=voters, table=table.digest)
