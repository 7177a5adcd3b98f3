"""The README's picture shows what `darrm plan --sweep` prints, and all of it."""

from pathlib import Path
from typing import Any

import pytest

from experiments import pages
from experiments.aggregators import budgets

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction" / "aggregators"
SAVED: list[dict[str, Any]] = pages.read_json(FOLDER / "budgets.json")


def test_the_data_are_of_the_panels_and_every_name_is_drawn_somewhere() -> None:
    assert [panel["title"] for panel in SAVED] == [title for title, *_ in budgets.PANELS]
    for number, panel in enumerate(SAVED):
        budgeted = [float(epsilon) for epsilon in budgets.PANELS[number][2].split()]
        assert [point["epsilon"] for point in panel["points"]] == budgeted
    names = {name for panel in SAVED for point in panel["points"] for name in point["right"]}
    assert set(budgets.LINES) <= names


@pytest.mark.slow
@pytest.mark.parametrize(("panel", "point"), [(0, 2), (1, 2), (2, 4)])
def test_the_data_are_those_of_a_sweep(panel: int, point: int) -> None:
    saved = SAVED[panel]["points"][point]
    (again,) = budgets.points_of(panel, [budgets.PANELS[panel][2].split()[point]])
    assert again["right"] == pytest.approx(saved["right"], abs=1e-6)
