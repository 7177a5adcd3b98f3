"""What queries with a proven table cost."""

import math

from darrm.losses.charges import Charge
from darrm.proof.table import GammaTable

# exact descriptions of a table are computed for every charge up to so many voters, or so many rows of neighbors: those
# of 301 voters, and those of 1,001 where γ is monotone and has no other rows
_PROFILE_UP_TO = 301
_ROWS_UP_TO = math.comb(_PROFILE_UP_TO + 2, 2)
_MONOTONE_ROWS_UP_TO = math.comb(1001 + 2, 2)


def charge_of(table: GammaTable, queries: int = 1, *, exact: bool | None = None) -> Charge:
    """Describe what ``queries`` queries with a table cost, whatever the data.

    A table for private models is proved for one query: its charge says that it does not compose.

    Parameters
    ----------
    table
        The proven noise function.
    queries
        How many, at least 1.
    exact
        Add the exact privacy profile of the table, and its Rényi curve: the accountant's bounds on many queries shrink
        by a third or so. None does so up to K = 301, and for more voters where γ is monotone or a person reaches few
        of them; beyond, it takes longer to compute than most releases.

    Examples
    --------
    >>> from darrm import MajorityProblem, NoiseFunction, PrivacyParams, Voters, certify
    >>> problem = MajorityProblem.from_allowance(Voters(3, PrivacyParams(0.1)), 1)
    >>> charge_of(certify(problem, NoiseFunction(3, [0.2, 0.6])), 20)
    Charge(what='DaRRM over 3 voters', guarantee=PrivacyParams(epsilon=0.1, delta=0), renyi=…, profile=…, count=20)
    """
    voters = table.problem.voters
    reach = "" if voters.overlap is None else f", a person reaching at most {voters.overlap}"
    wanted = _is_cheap_to_describe(table) if exact is None else exact
    return Charge(
        f"DaRRM over {voters.K} voters{reach}",
        guarantee=table.problem.target,
        renyi=table.renyi if wanted else None,
        profile=table.profile if wanted else None,
        count=queries,
        composes=not voters.are_private_models,
        reached=voters.reached,
        table=table.digest,
    )


def _is_cheap_to_describe(table: GammaTable) -> bool:
    voters = table.problem.voters
    rows = (voters.K - voters.reached + 1) * math.comb(voters.reached + 2, 2)
    return voters.K <= _PROFILE_UP_TO or rows <= (_MONOTONE_ROWS_UP_TO if table.gamma.is_monotone else _ROWS_UP_TO)
