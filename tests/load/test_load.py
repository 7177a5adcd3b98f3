"""The pages of the server: they are what their data say, the chain of a long ledger is the ledger's, and the simulation
obeys the laws that hold for whatever queues."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from darrm import PrivacyLedger
from tests.load import long_ledger, scale
from tests.load.simulation import Costs, Simulation

DOCS = Path(__file__).parents[2] / "docs"
COSTS = Costs(request=1e-3, keep=1e-4, settle=1e-4, debit=0.008, question=1e-4, wait=0.002, sync=0.004)


def test_the_links_of_a_long_ledger_are_those_that_it_would_have_written(tmp_path: Path) -> None:
    long_ledger.build(tmp_path / "l", 40)
    ledger = PrivacyLedger(tmp_path / "l")
    ledger.check()
    assert ledger.debit(long_ledger.QUERY) == 41
    ledger.check()


def test_one_client_waits_for_the_sum_of_the_steps() -> None:
    far = replace(COSTS, network=0.015)
    each = 2 * far.network + far.request + 2 * far.sync + far.keep + far.settle + far.debit + far.question + far.wait
    result = Simulation(far, clients=1).run(20.0)
    assert result["p50_milliseconds"] == pytest.approx(1000 * each)
    assert result["answers_a_second"] == pytest.approx(1 / each, rel=0.01)


@pytest.mark.parametrize("clients", [2, 32, 1000])
def test_little_s_law_and_the_bounds_of_each_part_hold(clients: int) -> None:
    simulation = Simulation(COSTS, clients=clients)
    result = simulation.run(20.0)
    assert result["answers_a_second"] * sum(simulation.taken) / len(simulation.taken) == pytest.approx(clients, rel=0.1)
    # requests and the desk compute in one interpreter
    assert result["answers_a_second"] <= 1 / (COSTS.request + COSTS.keep + COSTS.question + COSTS.settle)
    assert max(result[part] for part in ("interpreter", "desk", "ledger")) == pytest.approx(1.0, abs=0.02)


def test_chance_arrivals_are_answered_and_servers_share_the_ledgers_turns() -> None:
    assert Simulation(COSTS, rate=100.0).run(10.0)["answers_a_second"] == pytest.approx(100.0, rel=0.1)
    cap = 256 / (COSTS.wait + COSTS.debit + 256 * COSTS.question)
    for servers in (4, 8):
        # of quick requests, with which no debit has to share its interpreter for long
        several = Simulation(replace(COSTS, request=2e-5), servers=servers, clients=512).run(4.0)["answers_a_second"]
        assert several <= cap * 1.01
    assert several >= 0.9 * cap


def test_what_regions_lose_is_that_of_binomial_shares() -> None:
    two = next(scale.regions())
    exact = 0.5 * float(Fraction(math.comb(scale.BUDGET, scale.BUDGET // 2), 2**scale.BUDGET))  # E|X − B/2| / B
    assert two["equal_even"] == pytest.approx(exact, rel=0.2)
    assert two["split"] < two["whole"]
