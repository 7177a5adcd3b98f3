"""Many processes debit at once, and processes die at random moments."""

import itertools
import subprocess
import sys
import textwrap
from pathlib import Path

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

# one process forks 50 children one after another; each releases labels two at a time and is killed at a random moment
KILLER = """
    import os, random, signal, sys, time
    from darrm import Problem, NoiseFunction, PrivacyParams, Voters, Votes, certify
    from darrm.ledger import PrivacyLedger
    from darrm.table.release import Release
    from darrm.release import release_debited
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.05", "1e-8")), 1)
    aggregator = Release(certify(problem, NoiseFunction(3, [0.3, 1.0])))
    aggregator.privacy_cost()  # compute the profile once, not in every child
    votes = Votes.of_labels([[1, 1, 0], [0, 0, 0]])
    ledger = PrivacyLedger(sys.argv[1])
    generator = random.Random(int(sys.argv[2]))
    seen = 0
    for kill in range(50):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            while True:
                labels = release_debited(aggregator, votes, ledger=ledger)
                os.write(writing, bytes(labels.tolist()))  # the labels leave
        os.close(writing)
        for label in range(generator.randrange(5)):
            seen += len(os.read(reading, 1))
        time.sleep(generator.uniform(0.0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as labels:
            seen += len(labels.read())
        debited = PrivacyLedger(sys.argv[1]).accountant().queries
        print(seen, debited)
"""


def processes(path: Path, count: int, debits: int) -> list[int]:
    script = textwrap.dedent(WORKER)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(debits), f"process {number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    results = [process.communicate() for process in running]
    assert all(process.returncode == 0 for process in running), [errors for _, errors in results]
    return [int(output) for output, _ in results]


def ledger_for(path: Path, queries: int) -> None:
    """A budget that admits exactly so many queries by the optimal composition."""
    PrivacyLedger.create(path, PrivacyParams(compose_optimal(PARAMS, queries, DELTA).epsilon, DELTA))


@pytest.mark.parametrize(
    ("several", "debits", "fit"), [(3, 30, 40), pytest.param(8, 500, 1000, marks=pytest.mark.slow)]
)
def test_processes_share_what_the_budget_admits(several: int, debits: int, fit: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger_for(path, fit)
    assert sum(processes(path, several, debits)) == fit
    ledger = PrivacyLedger(path)
    assert ledger.accountant().queries == len(ledger.entries()) == fit
    assert ledger.queries_that_fit(PrivacyCost("q", guarantee=PARAMS)) == 0


@pytest.mark.slow
def test_fifty_kills_lose_no_debit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    PrivacyLedger.create(path, PrivacyParams(100, DELTA))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLER), str(path), "7"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(rows) == 50
    # never more labels seen than debited, and what was debited never comes back
    assert all(seen <= debited for seen, debited in rows)
    assert all(earlier[1] <= later[1] for earlier, later in itertools.pairwise(rows))
    # at most one debit, of two queries, without its labels a kill
    assert rows[-1][1] - rows[-1][0] <= 100
    assert rows[-1][0] > 50
    assert 2 * len(PrivacyLedger(path).entries()) == rows[-1][1]
