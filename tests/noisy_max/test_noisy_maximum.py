"""A mechanism and its voters: in files, in accounts of models, and its refusals."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
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
from darrm.subsampling import Subsampling
from darrm.votes import Votes
from tests.doors import validated

NON_PRIVATE = Voters(50, PrivacyParams("inf"), overlap=2)
MODELS = Voters(50, PrivacyParams("0.5", "1e-6"), overlap=2, models=True)
MECHANISMS = (
    GNMax(4.000001, reached=2),
    LNMax(1 / 3, reached=3),
    ExponentialMechanism(0.3, reached=2),
    PermuteAndFlip(1e-5, reached=2),
    AsymmetricMax(AsymmetricNoise(4.1, 8.000001, 3.0, 1.25), reached=2),
)
GNMAX = {"kind": "GNMax", "sigma": "4.0", "reached": 2}
FIVE = NoisyMaximum(GNMax(4.0), Voters(5, PrivacyParams("inf"), overlap=1), 3)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("voters", [NON_PRIVATE, MODELS], ids=["non-private", "models"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_file_holds_the_same_aggregator(mechanism: Any, voters: Voters, tmp_path: Path) -> None:
    path, aggregator = tmp_path / "plan.json", NoisyMaximum(mechanism, voters, 3)
    save_release(path, aggregator)
    validated(path, "release")
    loaded = NoisyMaximum.load(path)
    assert loaded == load_release(path) == aggregator
    assert loaded.privacy_cost(5).to_text() == aggregator.privacy_cost(5).to_text()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "file"),
        ({"classes": 1}, "file"),
        ({"classes": 3.0}, "file"),
        ({"classes": "3"}, "file"),
        ({"more": 1}, "file"),
        ({"voters": {"K": 50}}, "file"),
        ({"voters": {"K": 50, "each": {"epsilon": "inf", "delta": "0"}}}, "file"),  # one person influences all 50
        ({"mechanism": {**GNMAX, "kind": "Magic"}}, "file"),
        ({"mechanism": {"kind": "GNMax", "gamma": "4.0", "reached": 2}}, "sigma"),
        ({"mechanism": {**GNMAX, "sigma": "-4.0"}}, "sigma"),
        ({"mechanism": {**GNMAX, "sigma": "nan"}}, "sigma"),
        ({"mechanism": {**GNMAX, "sigma": 4.0}}, "file"),
        ({"mechanism": {**GNMAX, "sigma": "4.00000000000000000001"}}, "file"),
        ({"mechanism": {**GNMAX, "reached": 1}}, "file"),
        ({"mechanism": {**GNMAX, "reached": True}}, "file"),
        ({"mechanism": {**GNMAX, "noise": "continuous"}}, "file"),
        ({"mechanism": ["GNMax"]}, "file"),
    ],
)
def test_a_changed_file_is_refused(change: dict[str, Any], field: str) -> None:
    data = NoisyMaximum(GNMax(4.0, reached=2), NON_PRIVATE, 3).to_json()
    with pytest.raises(TableError) as caught:
        NoisyMaximum.from_json({**data, **change})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "field"), [("[]", "format"), ('{"format": ["darrm release"]}', "format"), ("{", "file"), ("7", "format")]
)
def test_a_file_of_another_format_is_refused(text: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(TableError) as caught:
        load_release(path)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: save_release("file.json", GNMax(4.0)), "a Release, a NoisyMaximum or a TestedRun"),
        (lambda: NoisyMaximum(GNMax(4.0), NON_PRIVATE, 3), "mechanism.reached must be at least 2"),
        (lambda: NoisyMaximum(GNMax(4.0, "continuous", reached=2), NON_PRIVATE, 3), "continuous"),
        (lambda: NoisyMaximum("GNMax", NON_PRIVATE, 3), "mechanism must be one of"),  # type: ignore[arg-type]
        (lambda: FIVE.release(Votes.from_counts([[6, 0, 0]])), "of K = 5 voters"),
        (lambda: FIVE.release(Votes.from_counts([[5, 0]])), "about C = 3 classes"),
        (lambda: FIVE.release(np.array([[5, 0, 0]])), "Votes"),
        # a threshold of 1 hides no string
        (lambda: NoisyMaximum(GNMax(3.0, reached=2), NON_PRIVATE, OPEN, 1).guarantee, "threshold must be larger"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize(("reached", "classes"), [(1, 2), (2, 2), (1, 3), (2, 3)])
def test_resampled_votes_have_a_curve_for_one_vote_or_two_classes(scheme: str, reached: int, classes: int) -> None:
    voters = Voters(9, PrivacyParams("inf"), reached, sampled=Subsampling(Fraction(1, 10), scheme, records=reached))
    cost = NoisyMaximum(GNMax(2.0, reached=reached), voters, classes).privacy_cost()
    assert (cost.renyi is not None) == (scheme == "poisson" and (reached == 1 or classes == 2))
    assert cost.profile is not None


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_nobody_influences_more_voters_than_the_most(mechanism: Any) -> None:
    with pytest.raises(ValueError, match="reached must be an integer of at most 1000000"):
        replace(mechanism, reached=10**6 + 1)


@pytest.mark.parametrize(
    "mechanism",
    [PermuteAndFlip(0.08, reached=2), pytest.param(ExponentialMechanism(0.05, reached=2), marks=pytest.mark.slow)],
)
def test_answers_of_models_cost_the_joint_bound_of_model_and_release(mechanism: Any) -> None:
    """Costs of models do not add up: their total follows from the plain release and the models."""
    plain, models = (NoisyMaximum(mechanism, voters, 3).privacy_cost(40) for voters in (NON_PRIVATE, MODELS))
    alone = PrivacyAccountant(NON_PRIVATE, [plain]).spent(1e-5)
    joint = PrivacyAccountant(MODELS, [models]).spent(1e-5)
    assert {bound.name for bound in joint.bounds} <= set(MODELS_BOUNDS)
    assert joint.epsilon < alone.epsilon
    assert PrivacyAccountant(costs=[models]).spent(1e-5).epsilon == joint.epsilon  # the cost names its voters
    assert PrivacyAccountant(MODELS, [plain]).spent(1e-5).epsilon == joint.epsilon
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(5, "1e-5"))
    for costs in ([models], [models, models]):
        ledger.debit(models)
        total = PrivacyAccountant(MODELS, costs).spent(1e-5).epsilon
        assert ledger.spent.epsilon == pytest.approx(total, rel=1e-9)
