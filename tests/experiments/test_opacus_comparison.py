"""The comparison with Opacus: its stored ε are those of today."""

from pathlib import Path

import pytest

pytest.importorskip("opacus")

from experiments import opacus_comparison
from experiments.pages import read_json

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "opacus" / "opacus.json"


@pytest.mark.filterwarnings("ignore")  # Opacus warns about its own grid of orders
def test_the_stored_epsilons_are_those_of_today() -> None:
    stored = read_json(DATA)["accounts"]
    today = [opacus_comparison.account(*training) for training in opacus_comparison.TRAININGS[:2]]
    for then, now in zip(stored, today, strict=False):
        assert now == pytest.approx(then, rel=1e-3)
