"""A mechanism and its voters: in files, in accounts of models, and what it refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import MODELS_BOUNDS
from darrm.aggregator import load_release, save_release
from darrm.errors import TableError
from darrm.ledger.ledger import PrivacyLedger
from darrm.numerics.integer_noise import AsymmetricNoise
from darrm.pate import AsymmetricMax, ExponentialMechanism, GNMax, LNMax, NoisyMaximum, PermuteAndFlip
from darrm.privacy import PrivacyParams
from darrm.problem import OPEN, Voters
from darrm.votes import Votes
from tests.doors import validated

PLAIN = Voters(50, PrivacyParams("inf"), overlap=2)
MODELS = Voters(50, PrivacyParams("0.5", "1e-6"), overlap=2, models=True)
EVERY = [
    NoisyMaximum(mechanism, voters, 3)
    for voters in (PLAIN, MODELS)
    for mechanism in (
        GNMax(4.000001, reached=2),
        LNMax(1 / 3, reached=3),
        ExponentialMechanism(0.3, reached=2),
        PermuteAndFlip(1e-5, reached=2),
        AsymmetricMax(AsymmetricNoise(4.1, 8.000001, 3.0, 1.25), reached=2),
    )
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("aggregator", EVERY, ids=str)
def test_a_file_is_the_same_aggregator(aggregator: NoisyMaximum, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_release(path, aggregator)
    validated(path, "release")
    found = load_release(path)
    assert found == aggregator
    assert (found.voters, found.classes) == (aggregator.voters, 3)
    assert found.privacy_cost(5).to_text() == aggregator.privacy_cost(5).to_text()
    assert NoisyMaximum.load(path) == aggregator


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "file"),
        ({"classes": 1}, "file"),
        ({"classes": 3.0}, "file"),
        ({"classes": "3"}, "file"),
        ({"more": 1}, "file"),
        ({"voters": {"K": 50}}, "file"),
        ({"voters": {"K": 50, "each": {"epsilon": "inf", "delta": "0"}}}, "file"),  # a person reaches all 50
        ({"mechanism": {"kind": "Magic", "sigma": "4.0", "reached": 2}}, "file"),
        ({"mechanism": {"kind": "GNMax", "gamma": "4.0", "reached": 2}}, "sigma"),
        ({"mechanism": {"kind": "GNMax", "sigma": "-4.0", "reached": 2}}, "sigma"),
        ({"mechanism": {"kind": "GNMax", "sigma": "nan", "reached": 2}}, "sigma"),
        ({"mechanism": {"kind": "GNMax", "sigma": 4.0, "reached": 2}}, "file"),
        ({"mechanism": {"kind": "GNMax", "sigma": "4.00000000000000000001", "reached": 2}}, "file"),
        ({"mechanism": {"kind": "GNMax", "sigma": "4.0", "reached": 1}}, "file"),
        ({"mechanism": {"kind": "GNMax", "sigma": "4.0", "reached": True}}, "file"),
        ({"mechanism": {"kind": "GNMax", "sigma": "4.0", "reached": 2, "noise": "continuous"}}, "file"),
        ({"mechanism": ["GNMax"]}, "file"),
    ],
)
def test_a_file_that_is_not_what_is_written_is_refused(change: dict[str, Any], field: str) -> None:
    data = {**NoisyMaximum(GNMax(4.0, reached=2), PLAIN, 3).to_json(), **change}
    with pytest.raises(TableError) as raised:
        NoisyMaximum.from_json(data)
    assert raised.value.field == field


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for text, field in (("[]", "format"), ('{"format": ["darrm release"]}', "format"), ("{", "file"), ("7", "format")):
        path.write_text(text)
        with pytest.raises(TableError) as raised:
            load_release(path)
        assert raised.value.field == field
    with pytest.raises(ValueError, match="a Release, a NoisyMaximum or a TestedRun"):
        save_release(path, GNMax(4.0))


def test_votes_of_others_are_refused() -> None:
    aggregator = NoisyMaximum(GNMax(4.0), Voters(5, PrivacyParams("inf"), overlap=1), 3)
    assert aggregator.release(Votes.from_counts([[5, 0, 0]], classes=("a", "b", "c")))[0] in {"a", "b", "c"}
    with pytest.raises(ValueError, match="of K = 5 voters"):
        aggregator.release(Votes.from_counts([[6, 0, 0]]))
    with pytest.raises(ValueError, match="about C = 3 classes"):
        aggregator.release(Votes.from_counts([[5, 0]]))
    with pytest.raises(ValueError, match="Votes"):
        aggregator.release(np.array([[5, 0, 0]]))


def test_what_is_private_for_fewer_moved_votes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mechanism.reached must be at least 2"):
        NoisyMaximum(GNMax(4.0), PLAIN, 3)
    with pytest.raises(ValueError, match="continuous"):
        NoisyMaximum(GNMax(4.0, "continuous", reached=2), PLAIN, 3)
    with pytest.raises(ValueError, match="mechanism must be one of"):
        NoisyMaximum("GNMax", PLAIN, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "mechanism",
    [PermuteAndFlip(0.08, reached=2), pytest.param(ExponentialMechanism(0.05, reached=2), marks=pytest.mark.slow)],
)
def test_answers_of_models_are_counted_by_both_ends(mechanism: Any) -> None:
    """Their costs do not add up: what they are told to cost follows from the plain release and the models."""
    plain = NoisyMaximum(mechanism, PLAIN, 3).privacy_cost(40)
    models = NoisyMaximum(mechanism, MODELS, 3).privacy_cost(40)
    alone = PrivacyAccountant(PLAIN, [plain]).spent(1e-5)
    both = PrivacyAccountant(MODELS, [models]).spent(1e-5)
    assert {bound.name for bound in both.bounds} <= set(MODELS_BOUNDS)
    assert both.epsilon < alone.epsilon
    assert PrivacyAccountant(costs=[models]).spent(1e-5).epsilon == both.epsilon  # the charge says whose it is
    assert PrivacyAccountant(MODELS, [plain]).spent(1e-5).epsilon == both.epsilon
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(5, "1e-5"))
    ledger.debit(models)
    assert ledger.spent.epsilon == pytest.approx(both.epsilon, rel=1e-9)
    ledger.debit(models)
    assert ledger.spent.epsilon == pytest.approx(
        PrivacyAccountant(MODELS, [models, models]).spent(1e-5).epsilon, rel=1e-9
    )


@pytest.mark.parametrize("aggregator", EVERY[:5], ids=str)
def test_nobody_reaches_more_voters_than_there_can_be(aggregator: NoisyMaximum) -> None:
    with pytest.raises(ValueError, match="reached must be an integer of at most 1000000"):
        replace(aggregator.mechanism, reached=10**6 + 1)


def test_a_threshold_that_keeps_nothing_back_has_no_guarantee() -> None:
    two = Voters(4, PrivacyParams("inf"), overlap=2)
    with pytest.raises(ValueError, match="threshold must be larger, got 1"):
        _ = NoisyMaximum(GNMax(3.0, reached=2), two, OPEN, 1).guarantee
