from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("dp_accounting")

from darrm.privacy import PrivacyParams
from darrm.training.calibration import privacy_of
from darrm.training.recipes import PrivateSGD, recipe_from
from experiments.pate import dpsgd
from experiments.pate.settings import STUDIES
from experiments.teachers import Machine

DIGITS = STUDIES["digits"]


@pytest.mark.slow
def test_dpsgd_spends_its_budget_and_hardly_more_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1, "cpu", progress=False, folder=tmp_path)
    budget = PrivacyParams(8, 1e-5)
    found = dpsgd.dpsgd_accuracy(DIGITS, budget, machine, quick=True)
    assert 0.95 * budget.epsilon < found["epsilon"] <= budget.epsilon
    assert found["delta"] == budget.delta
    recipe = recipe_from(found["training"])
    assert isinstance(recipe, PrivateSGD)
    assert privacy_of(recipe, budget.delta).epsilon == found["epsilon"]  # of the very training
    assert recipe.expected_batch(1437) == pytest.approx(128, abs=0.5)
    assert found["accuracy"] > 0.3  # a tenth by chance
    strict = dpsgd.dpsgd_accuracy(DIGITS, PrivacyParams(0.01, 1e-5), machine, quick=True)
    assert strict["accuracy"] < found["accuracy"] - 0.1

    def trained(*_: object, **__: object) -> None:
        raise RuntimeError("trained")

    monkeypatch.setattr("experiments.teachers.train_teachers", trained)
    assert dpsgd.dpsgd_accuracy(DIGITS, budget, machine, quick=True) == found
    monkeypatch.setitem(dpsgd.SETTINGS, "digits", replace(dpsgd.SETTINGS["digits"], learning_rate=0.1))
    with pytest.raises(RuntimeError, match="trained"):  # another rate is another training
        dpsgd.dpsgd_accuracy(DIGITS, budget, machine, quick=True)
