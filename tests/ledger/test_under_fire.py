"""Many processes debit at once; processes that die at random moments are in tests/release/test_kills.py."""

import subprocess
import sys
import textwrap

import pytest

from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.composition import compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from darrm.privacy import PrivacyParams

PARAMS = PrivacyParams("0.05", "1e-8")
DELTA = 1e-3

WORKER = """
    import sys
    from darrm.loss.privacy_cost import PrivacyCost
    from darrm.ledger.ledger import PrivacyLedger
    from darrm.errors import BudgetExceededError
    from darrm.privacy import PrivacyParams
    query = PrivacyCost("q", guarantee=PrivacyParams("0.05", "1e-8"))
    ledger = PrivacyLedger(sys.argv[1])
    done = 0
    for _ in range(int(sys.argv[2])):
        try:
            ledger.debit(query, note=sys.argv[3])
            done += 1
        except BudgetExceededError:
            pass
    print(done)
"""


def processes(place: str, count: int, debits: int) -> list[int]:
    script = textwrap.dedent(WORKER)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, place, str(debits), f"process {number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    results = [process.communicate() for process in running]
    assert all(process.returncode == 0 for process in running), [errors for _, errors in results]
    return [int(output) for output, _ in results]


def ledger_for(place: str, queries: int) -> None:
    """A budget that admits exactly so many queries by the optimal composition."""
    PrivacyLedger.create(place, PrivacyParams(compose_optimal(PARAMS, queries, DELTA).epsilon, DELTA))


@pytest.mark.parametrize(("several", "debits", "fit"), [(3, 30, 40), pytest.param(8, 200, 400, marks=pytest.mark.slow)])
def test_processes_share_what_the_budget_admits(several: int, debits: int, fit: int, place: str) -> None:
    ledger_for(place, fit)
    assert sum(processes(place, several, debits)) == fit
    ledger = PrivacyLedger(place)
    assert ledger.accountant().queries == len(ledger.entries()) == fit
    assert ledger.queries_that_fit(PrivacyCost("q", guarantee=PARAMS)) == 0
