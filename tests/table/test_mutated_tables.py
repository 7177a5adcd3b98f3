"""Files that were tampered with: refused with one line, or true by exact arithmetic; nothing else."""

import json
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Table, certify, optimize_table, priors
from darrm.errors import TableError
from darrm.problem import Voters
from darrm.util.files import compute_checksum
from tests.oracle import exact_budget, exact_least_error, exact_worst_cost
from tests.table.support import change_bytes, change_digit, change_value


def write_tables() -> list[str]:
    """Write small tables of every kind, as their files."""
    each = PrivacyParams("0.5", "0.001")
    free = Problem.from_allowance(Voters(3, each), "1.5")
    tables = [
        optimize_table(free),
        optimize_table(Problem.from_allowance(Voters(4, each, overlap=2), 2), shape="monotone"),
        optimize_table(Problem.from_allowance(Voters(4, PrivacyParams("1/3")), 2), prior=priors.Dirichlet()),
        optimize_table(free, prior="uniform", draws=20),
        optimize_table(Problem(Voters(4, PrivacyParams("inf"), overlap=1), PrivacyParams("0.2", "1e-4"))),
        certify(free, NoiseFunction(3, [0.2, 0.4])),
    ]
    return [json.dumps(table.to_json(), ensure_ascii=False) for table in tables]


def forge(text: str) -> str:
    """Give a changed file the checksum that it should have, if it can have one."""
    try:
        data = json.loads(text)
        data["checksum"] = compute_checksum({"problem": data["problem"], "gamma": data["gamma"]})
        return json.dumps(data, ensure_ascii=False)
    except (KeyError, TypeError, ValueError, RecursionError):
        return text


@cache
def least_error(problem: Problem, weights: tuple[float, ...], shape: str) -> Fraction:
    return exact_least_error(problem, weights, shape)


def is_true(table: Table) -> bool:
    """Whether γ is private, and its optimality as stated, in exact arithmetic."""
    if exact_worst_cost(table.problem, table.gamma.half) > exact_budget(table.problem):
        return False
    optimality = table.optimality
    if optimality is None or optimality.claimed:
        return True
    weights = tuple(priors.compute_weights(optimality.prior, table.gamma.K).tolist())
    pairs = zip(weights, table.gamma.half.tolist(), strict=True)
    value = sum((Fraction(w) * (1 - Fraction(x)) for w, x in pairs), Fraction(0)) / 2
    return bool(
        abs(value - Fraction(optimality.value)) <= Fraction(1, 10**14)
        and optimality.bound <= least_error(table.problem, weights, optimality.shape)
        and (optimality.shape == "free" or table.gamma.is_monotone)
    )


@pytest.mark.parametrize(
    ("count", "seed", "least"), [(100, 1, 10), pytest.param(20_000, 2, 2_000, marks=pytest.mark.slow)]
)
def test_a_mutated_table_is_refused_or_true(count: int, seed: int, least: int, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(seed), tmp_path / "table.json"
    originals, results = write_tables(), Counter[str]()
    for number in range(count):
        change = (change_bytes, change_digit, change_value)[number % 3]
        text = change(rng, originals[rng.integers(len(originals))])
        text = forge(text) if rng.integers(2) else text
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        message = ""
        try:
            table = Table.load(path)
        except TableError as error:
            message = str(error)
            results["refused"] += 1
        else:
            assert is_true(table), text
            results["true"] += 1
        assert len(message) < 500
    assert min(results["refused"], results["true"]) >= least
