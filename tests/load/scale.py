"""Beyond one machine: many clients, voters and labels a day, and the loss of a budget split by regions.

    python -m tests.load.scale --recompute

Reads the data of `tests.load.serve` and `tests.load.partitions`, and writes OUTPUT/scale/ and OUTPUT/scale.md.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm import PrivacyLedger, PrivacyParams
from darrm.commands.command_line import run
from darrm.loss.privacy_cost import PrivacyCost
from darrm.serve.worker import MOST_TOGETHER
from darrm.util.figures import save_figure, style
from experiments import pages
from experiments.pages import Row
from tests.load.simulation import Costs, Simulation

NAME = "scale"
DAY = 86_400.0
LABELS_A_DAY, VOTERS, CLIENTS = 10**9, 10**6, 1000
NETWORKS = {"one machine": 0.0, "one building": 0.25e-3, "one continent": 15e-3}  # seconds one way, assumed
STATEMENTS = 33  # of a debit in PostgreSQL, with its beginning and its end
SERVERS = (1, 2, 4, 8, 16)
REGIONS = (2, 5, 10, 50)
BUDGET = 100_000  # questions that regions share
SEED, REPEATS = 11, 200
STORES = ("SQLite", "PostgreSQL")


def read_row(figure: str, store: str) -> Row:
    stores = pages.read_json(pages.TEMPLATES / "serve" / f"{figure}.json")["stores"]
    return next(row for row in stores if row["store"] == store)


def read_costs(store: str, network: float = 0.0) -> Costs:
    row, fast = read_row("costs", store), read_row("speed", store)
    per_question = {
        name: (row[name][1] - row[name][0]) / 255e3 for name in ("draw", "debit_processor", "keep", "settle")
    }
    batches = row["debit_processor"][0] / 1e3 * fast["debits"] / fast["paid"]
    other_costs = sum(per_question.values()) + batches
    return Costs(
        request=max(fast["processor_milliseconds"] / 1e3 - other_costs, 1e-5),
        keep=max(per_question["keep"] + per_question["draw"], 0.0),
        settle=max(per_question["settle"], 0.0),
        debit=row["debit_processor"][0] / 1e3,
        question=max(per_question["debit_processor"], 0.0),
        wait=max(row["debit"][0] - row["debit_processor"][0], 0.0) / 1e3,
        sync=row["sync"] / 1e3,
        network=network,
    )


def simulated() -> Iterator[Row]:
    for store in STORES:
        for where, network in NETWORKS.items():
            for clients in (32, CLIENTS) if where == "one building" else (32,):
                result = Simulation(read_costs(store, network), clients=clients).run(20.0)
                yield {"kind": "clients", "store": store, "where": where, "clients": clients, **result}
    for store, together, servers in product(STORES, (1, 64), SERVERS):
        costs = read_costs(store, NETWORKS["one building"])
        result = Simulation(costs, servers=servers, clients=256 // min(together, 8), together=together).run(6.0)
        yield {"kind": "servers", "store": store, "servers": servers, "together": together, **result}
    for share in (0.2, 0.5, 0.8, 0.95):
        costs = read_costs("PostgreSQL", NETWORKS["one building"])
        full = Simulation(costs, clients=256).run(6.0)["answers_a_second"]
        result = Simulation(costs, rate=share * full).run(20.0)
        yield {"kind": "load", "store": "PostgreSQL", "share": share, **result}


def regions() -> Iterator[Row]:
    """Split a budget: the unused rest of one region while another refuses, and the cost of splitting (ε, δ)."""
    dice = np.random.default_rng(SEED)
    cost, total = PrivacyCost("majority of 11", guarantee=PrivacyParams("0.01", 0)), ("3", "1e-5")
    whole = PrivacyLedger.create(":memory:", PrivacyParams(*total)).queries_that_fit(cost)
    for number in REGIONS:
        weights = {"equal": np.ones(number), "unequal": 1.0 / np.arange(1, number + 1)}
        lost = {}
        for name, weight in weights.items():
            asked = dice.multinomial(BUDGET, weight / weight.sum(), REPEATS)
            shares: tuple[tuple[str, NDArray[np.float64]], ...] = (("even", np.ones(number)), ("right", weight))
            for kind, share in shares:
                limits = np.floor(BUDGET * share / share.sum())
                lost[f"{name}_{kind}"] = float(np.maximum(asked - limits, 0).sum(axis=1).mean() / BUDGET)
        part = PrivacyParams(3 / number, 1e-5 / number)
        fit = PrivacyLedger.create(":memory:", part).queries_that_fit(cost)
        formula = math.sqrt(number / (2 * math.pi * BUDGET)) * math.sqrt(1 - 1 / number)
        yield {
            "regions": number,
            **lost,
            "formula": formula,
            "whole": whole,
            "split": number * fit,
            "composition": 1 - number * fit / whole,
        }


def arithmetic() -> Row:
    parquet = pages.read_json(pages.TEMPLATES / "partitions" / "throughput.json")
    votes_of = [read_row("costs", store)["vote"] for store in STORES]
    vote = max((many - one) / 255e3 for one, many in votes_of)
    request = read_costs("PostgreSQL").request
    alone = next(row for row in parquet["measured"] if row["workers"] == 0)
    votes = parquet["rows"] * parquet["voters"]
    days = LABELS_A_DAY * alone["processor_seconds"] / votes / DAY  # for each voter
    return {
        "rate": LABELS_A_DAY / DAY,
        "vote_milliseconds": 1e3 * (vote + request),
        "question_minutes": VOTERS * (vote + request) / 60,
        "questions_a_day": DAY / (VOTERS * (vote + request)),
        "voters": parquet["voters"],
        "statements": STATEMENTS,
        "far_seconds": STATEMENTS * 2 * NETWORKS["one continent"],
        "far_rate": MOST_TOGETHER / (STATEMENTS * 2 * NETWORKS["one continent"]),
        "labels_alone": days * parquet["voters"],
        "labels_of_1000": days * 1000,
    }


def draw(folder: Path, data: Row) -> None:
    target = data["arithmetic"]["rate"]
    with save_figure(folder / "scale.png", width=7.0, height=4.2) as figure:
        axes = figure.subplots()
        for place, (store, together) in enumerate(product(STORES, (1, 64))):
            rows = [row for row in data["simulated"] if (row["store"], row.get("together")) == (store, together)]
            points = [(row["servers"], row["answers_a_second"]) for row in rows]
            name = f"{store}, {together} question{'s' * (together > 1)} a request"
            axes.plot(*zip(*points, strict=True), label=name, **style(place).line(len(points)))
        axes.axhline(target, color="black", linewidth=0.8)
        axes.annotate("10⁹ labels a day", (SERVERS[0], target), xytext=(0, 3), textcoords="offset points")
        axes.set(xscale="log", yscale="log", xlabel="servers on one ledger", ylabel="answers a second")
        axes.set_xticks(SERVERS, [str(number) for number in SERVERS])
        axes.legend(frameon=False, fontsize=8)


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(NAME, __doc__, module="tests.load.scale").parse_args(arguments)

    def computed() -> Row:
        return {"simulated": list(simulated()), "regions": list(regions()), "arithmetic": arithmetic()}

    return pages.run_measurement(options, f"{NAME}/scale.json", computed, page, draw)


def page(data: Row) -> str:
    """Fill the page, and compare the simulation with the measurements and the aims."""
    simulated = data["simulated"]
    for row in simulated:
        busy = {name: row[name] for name in ("ledger", "interpreter", "desk")}  # a desk is busy while its debit is
        row["first"] = max(busy, key=lambda name: busy[name])
    kinds: Row = {kind: [row for row in simulated if row["kind"] == kind] for kind in ("clients", "servers", "load")}
    ratios = {
        row["store"]: row["answers_a_second"] / read_row("speed", row["store"])["answers_a_second"]
        for row in kinds["clients"]
        if row["where"] == "one machine"
    }
    best = max(row["answers_a_second"] for row in kinds["servers"])
    alike = [row["equal_even"] / row["formula"] for row in data["regions"]]
    facts = {
        "ratios": ", ".join(f"{store} {ratio:.2f} times" for store, ratio in ratios.items()),
        "is_near": all(2 / 3 <= ratio <= 4 / 3 for ratio in ratios.values()),
        "best": best,
        "is_enough": best >= data["arithmetic"]["rate"],
        "alike": ", ".join(f"{ratio:.3f}" for ratio in alike),
        "is_alike": all(0.9 <= ratio <= 1.1 for ratio in alike),
        "budget": BUDGET,
    }
    return pages.fill_template(NAME, facts, kinds, data)


if __name__ == "__main__":
    sys.exit(run(main))
