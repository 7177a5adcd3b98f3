"""The style of pictures: what distinguishes methods, and names that stay readable."""

from itertools import combinations, pairwise
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from darrm.util.figures import COLORS, name_lines, save_figure, say_instead, style


@pytest.mark.parametrize(("first", "second"), list(combinations(COLORS, 2)))
def test_colors_differ_without_red_and_green(first: str, second: str) -> None:
    # a protanope and a deuteranope see green-plus-red against blue, and brightness
    seen = [(0.5 * (red + green), blue) for red, green, blue in map(to_rgb, (first, second))]
    assert max(abs(one - other) for one, other in zip(*seen, strict=True)) > 0.07


def test_forty_styles_differ_by_dash_and_marker_and_by_color_and_dash() -> None:
    styles = [style(place) for place in range(40)]
    assert len({(str(look.dash), look.marker) for look in styles}) == 40
    assert len({(look.color, str(look.dash)) for look in styles}) == 40
    assert style(0).line(3)["marker"] == "o"
    assert style(0).line(1000)["marker"] is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_names_are_at_the_ends_of_their_lines_and_apart(tmp_path: Path, scale: str) -> None:
    ends = {"a": 1.0, "b": 1.0, "c": 0.99, "d": 0.01, "e": 0.012}
    with save_figure(tmp_path / "picture.png", height=4.0) as figure:
        axes = figure.add_subplot()
        for name, end in ends.items():
            axes.plot([0, 1, 2], [0.5, end, float("nan")], label=name)
        axes.plot([0, 1], [0.1, 0.1])  # without a name
        axes.set(yscale=scale)
        name_lines(axes)
        figure.draw_without_rendering()
        boxes = {text.get_text(): Text.get_window_extent(text) for text in axes.texts}  # without its arrow
    assert boxes.keys() == ends.keys()
    ordered = sorted(boxes, key=lambda name: boxes[name].y0)
    assert sorted(ordered, key=ends.__getitem__) == ordered
    assert all(boxes[below].y1 <= boxes[above].y0 + 1.0 for below, above in pairwise(ordered))
    assert {text.xy for text in axes.texts} == {(1.0, end) for end in ends.values()}


def test_a_text_replaces_a_panel(tmp_path: Path) -> None:
    with save_figure(tmp_path / "picture.png") as figure:
        axes = figure.add_subplot()
        say_instead(axes, "nothing was answered")
    assert [text.get_text() for text in axes.texts] == ["nothing was answered"]
    assert not axes.axison
