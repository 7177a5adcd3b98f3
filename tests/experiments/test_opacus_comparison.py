"""The comparison with Opacus: its stored ε are computed again."""

from pathlib import Path

import pytest

pytest.importorskip("opacus")

from experiments.opacus_comparison import TRAININGS, account
from experiments.pages import read_json

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "opacus" / "opacus.json"


@pytest.mark.filterwarnings("ignore")  # Opacus warns about its own grid of orders
@pytest.mark.parametrize("place", [0, 1])
def test_a_stored_epsilon_is_computed_again(place: int) -> None:
    assert account(*TRAININGS[place]) == pytest.approx(read_json(DATA)["accounts"][place], rel=1e-3)
