"""Plurality tables on disk: loaded as they were saved, and refused by the name of the field that is wrong."""

import json
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.errors import TableError
from darrm.optimize.plurality import optimize_plurality
from darrm.plurality.plurality_law import ONE, PluralityLaw, random_law
from darrm.priors import Dirichlet, Prior
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release, describe_cost
from darrm.table.table import Table, certify
from darrm.util.files import compute_checksum
from darrm.votes import Votes
from tests.doors import validated
from tests.optimality import optimality_of
from tests.table.support import change_bytes, change_digit

PROBLEM = Problem(Voters(5, PrivacyParams("inf"), overlap=1), PrivacyParams("1/3", "1e-3"), 3)
PRIVATE_VOTERS = Problem(Voters(4, PrivacyParams("0.5")), PrivacyParams("0.7"), 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return optimize_plurality(PROBLEM, prior=Dirichlet(0.7))


class UserPrior(Prior):
    """A prior that a file cannot name."""

    text = "votes of last year"

    def log_probabilities(self, counts: Any) -> Any:
        return Dirichlet(2.0).log_probabilities(counts)

    def sample(self, K: int, classes: int, count: int, *, rng: np.random.Generator) -> Any:
        return Dirichlet(2.0).sample(K, classes, count, rng=rng)


@pytest.mark.parametrize("problem", [PROBLEM, PRIVATE_VOTERS], ids=["non-private", "private"])
@pytest.mark.parametrize(("prior", "claimed"), [(Dirichlet(0.7), False), (UserPrior(), True)])
def test_a_loaded_table_is_the_saved_one_proved_again_if_the_prior_is_known(
    problem: Problem, prior: Prior, claimed: bool, tmp_path: Path
) -> None:
    table = optimize_plurality(problem, prior=prior)
    assert not optimality_of(table).claimed
    table.save(tmp_path / "t.json")
    validated(tmp_path / "t.json", "plurality_table")
    loaded = Table.load(tmp_path / "t.json")
    assert loaded.to_json() == table.to_json()
    assert (loaded.digest, loaded.certificate, loaded.accuracy) == (table.digest, table.certificate, table.accuracy)
    assert optimality_of(loaded).claimed == claimed


def test_a_law_without_an_optimum_is_saved_without_an_accuracy(tmp_path: Path) -> None:
    table = certify(PROBLEM, random_law(5, 3))
    table.save(tmp_path / "t.json")
    validated(tmp_path / "t.json", "plurality_table")
    assert Table.load(tmp_path / "t.json").accuracy is None


@pytest.mark.statistical  # six standard deviations
def test_a_release_has_the_tables_law_and_guarantee() -> None:
    table = optimize_plurality(PRIVATE_VOTERS, prior=Dirichlet())
    labels = Release(table).release(Votes.from_labels([[0, 0, 0, 0]] * 2000, 3), rng=np.random.default_rng(1))
    expected = table.plurality.probabilities([[4, 0, 0]])[0, 0]
    assert abs(np.mean(labels == 0) - expected) < 6.0 * np.sqrt(expected * (1 - expected) / 2000)
    cost = describe_cost(table)
    assert cost.profile is not None
    assert cost.profile.epsilons[-1] <= 0.7 + 1e-9
    assert describe_cost(table, voters=Voters(4, PrivacyParams("0.5"), models=True)).for_non_private_voters


def forge(table: Table, keys: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Change one value of the file and write a checksum that fits."""
    data: dict[str, Any] = json.loads(json.dumps(table.to_json()))
    reduce(lambda inner, key: inner[key], keys[:-1], data)[keys[-1]] = value
    return {**data, "checksum": compute_checksum({"problem": data["problem"], "weights": data["weights"]})}


@pytest.mark.parametrize(
    ("field", "keys", "value"),
    [
        ("gamma", ("format",), "darrm gamma table"),
        ("version", ("version",), 2),
        ("version", ("version",), True),
        ("optimality", ("problem", "each", "epsilon"), "0.1"),
        ("problem", ("problem", "classes"), 1),
        ("problem", ("problem", "target", "delta"), 0.5),
        ("weights", ("problem", "classes"), 4),
        ("weights", ("problem", "K"), 10**6),
        ("weights", ("problem", "target", "delta"), "1e-4"),
        ("weights", ("problem", "target", "epsilon"), "0.3"),
        ("weights", ("problem", "overlap"), 2),
        ("weights", ("weights", 0, 0), 2**53),
        ("weights", ("weights", 0), [2**53, 0]),
        ("weights", ("weights", 0), [2**54, -(2**53)]),
        ("weights", ("weights", 0), [2.0**53, 0.0]),
        ("weights", ("weights", 0), [2**52]),
        ("weights", ("weights",), [[1]]),
        ("certificate", ("certificate", "scale"), -0.5),
        ("optimality", ("optimality", "value"), 0.9),
        ("optimality", ("optimality", "bound"), 0.7),
        ("optimality", ("optimality", "status"), "perfect"),
        ("optimality", ("optimality", "prior", "concentration"), "0.8"),
        ("optimality", ("optimality", "multipliers", 0, 0), 1000),
        ("optimality", ("optimality", "multipliers", 0, 2, 0), -1.0),
        ("optimality", ("optimality", "multipliers", 0, 2, 0), 0.5),
        ("optimality", ("optimality", "multipliers", 0, 1), [0, 0, 5]),
        ("optimality", ("optimality", "multipliers"), []),
    ],
)
def test_a_forged_file_is_refused_by_its_field(table: Table, field: str, keys: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(TableError) as caught:
        Table.from_json(forge(table, keys, value))
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        pytest.param(("problem", "each", "epsilon"), "0.6", id="weaker voters"),
        pytest.param(("optimality", "multipliers", 0, 2, 0, 1), 1, id="voters of a group that does not exist"),
    ],
)
def test_a_forged_file_of_private_voters_is_refused(keys: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(TableError):
        Table.from_json(forge(optimize_plurality(PRIVATE_VOTERS, prior=Dirichlet()), keys, value))


@pytest.mark.parametrize("changes", [{2: 1, 3: 1}, {2: -1}, {2: 2**54, 3: -(2**54)}])
def test_a_law_names_the_partition_of_wrong_weights(changes: dict[int, int]) -> None:
    weights = random_law(5, 3).weights.copy()
    weights[list(changes)] += list(changes.values())
    with pytest.raises(
        ValueError, match=r"the weights of partition \(4, 1, 0\) must be at least 0 with the sum 9007199254740992"
    ):
        PluralityLaw(5, 3, weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[ONE, 0]], "of 2 partitions"),
        ([[ONE, 0], [ONE], [0, 0, ONE]], "of 2 partitions"),
        ([[ONE, 0, 0], [ONE]], "weights of partition 0 must be 2 numbers"),
        ([[ONE, 0], (ONE, 0)], "weights of partition 1 must be 2 numbers"),
        ([[ONE, 0], [ONE + 1, -1]], "a weight of partition 1 must be"),
        ([[ONE, 0], [float(ONE), 0]], "a weight of partition 1 must be"),
    ],
)
def test_a_law_is_read_row_by_row(weights: Any, message: str) -> None:
    assert PluralityLaw.from_json(2, 3, [[ONE, 0], [ONE, 0]]).weights.tolist() == [ONE, 0, ONE, 0]
    with pytest.raises(ValueError, match=message):
        PluralityLaw.from_json(2, 3, weights)


def test_a_changed_number_does_not_match_the_checksum(table: Table) -> None:
    data = table.to_json()
    data["weights"][0][0] -= 1
    data["weights"][0][1] += 1
    with pytest.raises(TableError, match="checksum does not match"):
        Table.from_json(data)
    with pytest.raises(TableError, match=r"'darrm gamma table'.* 'darrm plurality table'"):
        Table.from_json({"format": "another"})


def test_any_change_is_refused_or_harmless(table: Table) -> None:
    text, rng = json.dumps(table.to_json()), np.random.default_rng(11)
    num_refused = 0
    for _ in range(300):
        changed = (change_bytes if rng.random() < 0.5 else change_digit)(rng, text)
        try:
            data = json.loads(changed)
        except (ValueError, RecursionError):
            continue
        try:
            loaded = Table.from_json(data)
        except TableError:
            num_refused += 1
        else:
            assert loaded.digest == table.digest
    assert num_refused > 50
