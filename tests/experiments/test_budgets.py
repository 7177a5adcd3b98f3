"""The README's picture shows what `darrm plan --sweep` prints, and all of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

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


def test_the_lines_are_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []

    def keep(self: Figure, path: Path, **_: object) -> None:
        drawn.append(self)
        Path(path).write_bytes(b"")

    monkeypatch.setattr(Figure, "savefig", keep)
    budgets.save_budgets(tmp_path / "budgets.png", SAVED)
    (figure,) = drawn
    colors = {color: name for name, (color, _) in budgets.LINES.items()}
    for axis, panel in zip(figure.axes, SAVED, strict=True):
        shown = {colors[line.get_color()]: np.asarray(line.get_xydata()).tolist() for line in axis.get_lines()}
        expected: dict[str, list[list[float]]] = {}
        for point in panel["points"]:
            for name, right in point["right"].items():
                expected.setdefault(name, []).append([point["epsilon"], right])
        assert shown == {name: points for name, points in expected.items() if name in budgets.LINES}
        assert axis.get_ylabel() in {"share of right labels", ""}
    legend = figure.legends[0]
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[0] == "darrm"
    assert sorted(labels) == sorted(budgets.LINES)
    handles = [line.get_color() for line in legend.get_lines()]
    assert [colors[color] for color in handles] == labels
