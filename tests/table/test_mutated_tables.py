"""Files that were tampered with: refused with one line, or true by exact arithmetic; nothing else."""

import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Table, certify, optimize_table, priors
from darrm.errors import TableError
from darrm.problem import Voters
from darrm.util.files import compute_checksum
from tests.oracle import exact_budget, exact_least_error, exact_worst_cost

Mutation = Callable[[np.random.Generator, str], str]

# what stands in no table, and what stands in other places of one
JUNK: tuple[str, ...] = (
    *("null", "true", "false", "0", "1", "-1", "2", "0.5", "1e-5", "1e400", "-1e-400", "NaN", "Infinity", "-Infinity"),
    *("[]", "{}", "[[]]", "[0]", '[["x"]]', '{"a": 1}', '""', '"x"', '"0.5"', '"inf"', '"1/3"', '"1/0"', '"1e-5"'),
    *('"\\ud800"', '"\\u0000"', '"1e999999999"', '"0.00001E999700001"', "9" * 400, "9" * 5000, f'"{"9" * 5000}"'),
    *('"free"', '"monotone"', '"optimal"', '"common"', '"point:0.9"', "[" * 2000 + "]" * 2000),
)
CHARACTERS = '0123456789eE+-./"[]{},: \\unx\x00é\ud800'


def texts() -> list[str]:
    """Small tables of every kind, as their files."""
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


def change_bytes(rng: np.random.Generator, text: str) -> str:
    """Replace, insert, delete or repeat a few characters."""
    start = int(rng.integers(len(text)))
    stop = start + int(rng.integers(4))
    middle = "".join(rng.choice(list(CHARACTERS), rng.integers(3)))
    kept = text[start:stop] * int(rng.integers(3))
    return text[:start] + kept + middle + text[stop:]


def change_digit(rng: np.random.Generator, text: str) -> str:
    """Replace one digit, mostly by another."""
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    place = int(rng.choice(digits))
    return text[:place] + str(rng.choice(list("0123456789012345678901234567890123456789eE.-"))) + text[place + 1 :]


def change_value(rng: np.random.Generator, text: str) -> str:
    """Put another value, of the file or of `JUNK`, in the place of one, or delete it."""
    data = json.loads(text)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    walk(data)
    node, key = places[rng.integers(len(places))]
    kind = rng.integers(10)
    if kind == 0:
        del node[key]
        return json.dumps(data)
    if kind < 4:
        other, place = places[rng.integers(len(places))]
        node[key] = json.loads(json.dumps(other[place]))
        return json.dumps(data)
    node[key] = "THE JUNK"
    return json.dumps(data).replace('"THE JUNK"', str(rng.choice(JUNK)))


def forged(text: str) -> str:
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
    """Whether γ is private, and its optimality what the object says, in exact arithmetic."""
    true = exact_worst_cost(table.problem, table.gamma.half) <= exact_budget(table.problem)
    optimality = table.optimality
    if optimality is not None and not optimality.claimed:
        weights = tuple(priors.compute_weights(optimality.prior, table.gamma.K).tolist())
        half = table.gamma.half.tolist()
        value = sum((Fraction(w) * (1 - Fraction(x)) for w, x in zip(weights, half, strict=True)), Fraction(0)) / 2
        true &= abs(value - Fraction(optimality.value)) <= Fraction(1, 10**14)
        true &= optimality.bound <= least_error(table.problem, weights, optimality.shape)
        true &= optimality.shape == "free" or table.gamma.is_monotone
    return bool(true)


def mutate(count: int, path: Path, seed: int) -> dict[str, int]:
    """Load so many mutated files; count what became of them."""
    rng = np.random.default_rng(seed)
    originals = texts()
    mutations: tuple[Mutation, ...] = (change_bytes, change_digit, change_value)
    found = {"refused": 0, "true": 0}
    for number in range(count):
        text = mutations[number % 3](rng, originals[rng.integers(len(originals))])
        text = forged(text) if rng.integers(2) else text
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        table, refusal = None, ""
        try:
            table = Table.load(path)
        except TableError as error:
            refusal = str(error)
        assert len(refusal) < 500, refusal
        assert table is None or is_true(table), text
        found["refused" if table is None else "true"] += 1
    return found


def test_a_hundred_mutated_tables(tmp_path: Path) -> None:
    found = mutate(100, tmp_path / "table.json", 1)
    assert min(found.values()) >= 10


@pytest.mark.slow
def test_twenty_thousand_mutated_tables(tmp_path: Path) -> None:
    found = mutate(20_000, tmp_path / "table.json", 2)
    assert sum(found.values()) == 20_000
    assert min(found.values()) >= 2_000
