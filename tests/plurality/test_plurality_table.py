"""Plurality tables on disk: loaded as they were saved, and refused by the name of the field that is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.errors import TableError
from darrm.optimize.plurality import optimize_plurality
from darrm.plurality.plurality_law import random_law
from darrm.priors import Dirichlet, Prior
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.table import Table, certify
from darrm.util.files import compute_checksum
from tests.doors import validated
from tests.table.test_mutated_tables import change_bytes, change_digit

PROBLEM = Problem(Voters(5, PrivacyParams("inf"), overlap=1), PrivacyParams("1/3", "1e-3"), 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_plurality(PROBLEM, prior=Dirichlet(0.7))


def signed(data: dict[str, Any]) -> dict[str, Any]:
    """The same with a checksum that fits, as a forger would write it."""
    return {**data, "checksum": compute_checksum({"problem": data["problem"], "weights": data["weights"]})}


def test_a_law_that_was_not_optimized(tmp_path: Path) -> None:
    table = certify(PROBLEM, random_law(5, 3))
    table.save(tmp_path / "t.json")
    validated(tmp_path / "t.json", "plurality_table")
    assert Table.load(tmp_path / "t.json").accuracy is None


class Recorded(Prior):
    """A prior of a user's own."""

    text = "votes of last year"

    def log_probabilities(self, counts: Any) -> Any:
        return Dirichlet(2.0).log_probabilities(counts)

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Any:
        return Dirichlet(2.0).sample(K, classes, count, rng=rng)


@pytest.mark.parametrize(("prior", "claimed"), [(Dirichlet(0.7), False), (Recorded(), True)])
def test_saved_and_loaded_and_proved_again_if_the_prior_is_known(prior: Prior, claimed: bool, tmp_path: Path) -> None:
    table = optimize_plurality(PROBLEM, prior=prior)
    assert table.optimality is not None
    assert not table.optimality.claimed
    table.save(tmp_path / "t.json")
    validated(tmp_path / "t.json", "plurality_table")
    loaded = Table.load(tmp_path / "t.json")
    assert loaded.to_json() == table.to_json()
    assert (loaded.digest, loaded.certificate, loaded.accuracy) == (
        table.digest,
        table.certificate,
        table.accuracy,
    )
    assert loaded.optimality is not None
    assert loaded.optimality.claimed == claimed


def changed(path: tuple[Any, ...], value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(data: dict[str, Any]) -> dict[str, Any]:
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        return data

    return change


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("gamma", changed(("format",), "darrm gamma table")),
        ("version", changed(("version",), 2)),
        ("version", changed(("version",), True)),
        ("optimality", changed(("problem", "each", "epsilon"), "0.1")),
        ("problem", changed(("problem", "classes"), 1)),
        ("problem", changed(("problem", "target", "delta"), 0.5)),
        ("weights", changed(("problem", "classes"), 4)),
        ("weights", changed(("problem", "K"), 10**6)),
        ("weights", changed(("problem", "target", "delta"), "1e-4")),
        ("weights", changed(("problem", "target", "epsilon"), "0.3")),
        ("weights", changed(("problem", "overlap"), 2)),
        ("weights", changed(("weights", 0, 0), 2**53)),
        ("weights", changed(("weights", 0), [2**53, 0])),
        ("weights", changed(("weights", 0), [2**54, -(2**53)])),
        ("weights", changed(("weights", 0), [2.0**53, 0.0])),
        ("weights", changed(("weights", 0), [2**52])),
        ("weights", changed(("weights",), [[1]])),
        ("certificate", changed(("certificate", "scale"), -0.5)),
        ("optimality", changed(("optimality", "value"), 0.9)),
        ("optimality", changed(("optimality", "bound"), 0.7)),
        ("optimality", changed(("optimality", "status"), "perfect")),
        ("optimality", changed(("optimality", "prior", "concentration"), "0.8")),
        ("optimality", changed(("optimality", "multipliers", 0, 0), 1000)),
        ("optimality", changed(("optimality", "multipliers", 0, 2, 0), -1.0)),
        ("optimality", changed(("optimality", "multipliers", 0, 2, 0), 0.5)),
        ("optimality", changed(("optimality", "multipliers", 0, 1), [0, 0, 5])),
        ("optimality", changed(("optimality", "multipliers"), [])),
    ],
)
def test_a_damaged_file_is_refused_by_its_field_whatever_its_checksum_says(
    table: Table, field: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    data = json.loads(json.dumps(table.to_json()))
    with pytest.raises(TableError) as caught:
        Table.from_json(signed(change(data)))
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_a_changed_number_needs_a_new_checksum(table: Table) -> None:
    data = table.to_json()
    data["weights"][0][0] -= 1
    data["weights"][0][1] += 1
    with pytest.raises(TableError, match="checksum does not match"):
        Table.from_json(data)
    with pytest.raises(TableError, match=r"'darrm gamma table'.* 'darrm plurality table'"):
        Table.from_json({"format": "another"})


def test_any_change_is_refused_or_harmless(table: Table) -> None:
    text = json.dumps(table.to_json())
    rng = np.random.default_rng(11)
    refused = 0
    for _ in range(300):
        changed_text = (change_bytes if rng.random() < 0.5 else change_digit)(rng, text)
        try:
            data = json.loads(changed_text)
        except (ValueError, RecursionError):
            continue
        try:
            loaded = Table.from_json(data)
        except TableError:
            refused += 1
        else:
            assert loaded.digest == table.digest
    assert refused > 50
