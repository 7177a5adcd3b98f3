"""Load tests measure processes, chain long ledgers as the library does, and simulate the laws of queues."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from darrm import PrivacyLedger
from darrm.votes import Votes
from experiments.pages import read_claims, read_json
from tests.load import releases, scale, serve
from tests.load.commands import COMMANDS, run_once
from tests.load.measuring import Usage
from tests.load.simulation import Costs, Simulation

DOCS = Path(__file__).parents[2] / "docs"
COSTS = Costs(request=1e-3, keep=1e-4, settle=1e-4, debit=0.008, question=1e-4, wait=0.002, sync=0.004)


def test_a_long_ledger_has_the_entry_hashes_that_the_library_writes(tmp_path: Path) -> None:
    serve.build(tmp_path / "l", 40)
    ledger = PrivacyLedger(tmp_path / "l")
    ledger.check()
    assert ledger.debit(serve.QUERY) == 41
    ledger.check()


def test_one_client_waits_for_the_sum_of_the_steps() -> None:
    far = replace(COSTS, network=0.015)
    sum_of_steps = (
        2 * far.network + far.request + 2 * far.sync + far.keep + far.settle + far.debit + far.question + far.wait
    )
    result = Simulation(far, clients=1).run(20.0)
    assert result["p50_milliseconds"] == pytest.approx(1000 * sum_of_steps)
    assert result["answers_a_second"] == pytest.approx(1 / sum_of_steps, rel=0.01)


@pytest.mark.parametrize("clients", [2, 32, 1000])
def test_a_simulation_keeps_littles_law_and_the_bounds_of_its_parts(clients: int) -> None:
    simulation = Simulation(COSTS, clients=clients)
    result = simulation.run(20.0)
    assert result["answers_a_second"] * sum(simulation.times) / len(simulation.times) == pytest.approx(clients, rel=0.1)
    # requests and the desk compute in one interpreter
    assert result["answers_a_second"] <= 1 / (COSTS.request + COSTS.keep + COSTS.question + COSTS.settle)
    assert max(result[part] for part in ("interpreter", "desk", "ledger")) == pytest.approx(1.0, abs=0.02)


def test_random_arrivals_are_answered_and_servers_share_the_ledger() -> None:
    assert Simulation(COSTS, rate=100.0).run(10.0)["answers_a_second"] == pytest.approx(100.0, rel=0.1)
    cap = 256 / (COSTS.wait + COSTS.debit + 256 * COSTS.question)
    for servers in (4, 8):
        # with quick requests a debit hardly shares its interpreter
        rate = Simulation(replace(COSTS, request=2e-5), servers=servers, clients=512).run(4.0)["answers_a_second"]
        assert rate <= cap * 1.01
    assert rate >= 0.9 * cap


def test_the_loss_of_two_regions_is_that_of_binomial_shares() -> None:
    two = next(scale.regions())
    exact = 0.5 * float(Fraction(math.comb(scale.BUDGET, scale.BUDGET // 2), 2**scale.BUDGET))  # E|X − B/2| / B
    assert two["equal_even"] == pytest.approx(exact, rel=0.2)
    assert two["split"] < two["whole"]


@pytest.mark.slow
def test_a_run_measures_time_work_and_memory(tmp_path: Path) -> None:
    """Run one process that sleeps, one that computes, and one that takes memory."""
    commands = (
        "-c 'import time; time.sleep(0.3)'",
        "-c 'import time\nwhile time.process_time() < 0.3: pass'",
        "-c 'x = bytearray(200 * 2**20)'",
    )
    idle, busy, large = (run_once(command, tmp_path) for command in commands)
    assert idle.seconds >= 0.3 <= busy.cpu_seconds
    assert idle.cpu_seconds < 0.3  # sleeping takes no processor time
    assert large.megabytes >= 200.0 > idle.megabytes  # of the process, not of its parent


def test_a_command_that_fails_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ended with status 3"):
        run_once("-c 'raise SystemExit(3)'", tmp_path)


def test_runs_are_summarized_by_medians() -> None:
    runs = [Usage(1.0, 3.0, 50.0), Usage(2.0, 1.0, 70.0), Usage(9.0, 2.0, 60.0)]
    assert Usage.median(runs) == Usage(2.0, 2.0, 60.0)
    assert len({command.typed for command in COMMANDS}) == len(COMMANDS)  # keys of the data of the page


def test_every_file_holds_the_same_votes(tmp_path: Path) -> None:
    ones = []
    for name in ("digits.csv", "words.csv", "int64.npy", "bytes.npy"):
        releases.write_votes(tmp_path / name, 300)
        classes: Any = releases.WORDS if name == "words.csv" else 2
        ones.append(Votes.read(tmp_path / name, voters=releases.K, classes=classes).ones.tolist())
    assert ones == [ones[0]] * 4
    assert 0.6 < sum(ones[0]) / (300 * releases.K) < 0.9


def test_the_claim_of_a_billion_labels_a_day_needs_the_simulation_to_reach_it() -> None:
    data = read_json(DOCS / "reproduction" / "scale" / "scale.json")
    _, (statement, holds, _), _ = read_claims(scale.page(data))
    assert statement.startswith("10⁹ labels a day")
    assert holds
    slow = [row | {"answers_a_second": 1e9 / 86_400 - 1.0} for row in data["simulated"]]
    _, (_, holds, _), _ = read_claims(scale.page(data | {"simulated": slow}))
    assert not holds
