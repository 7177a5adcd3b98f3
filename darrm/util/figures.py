"""Pictures: colors, dashes and markers, labels at the ends of lines, placeholders, and saving.

The colors are those of Okabe and Ito, with a gray instead of the yellow that fades on white. No two of the first forty
styles share both color and dash, so a picture can be read in gray, too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from darrm.util.extras import require
from darrm.util.files import check_parent, replace_file

BLACK, ORANGE, SKY_BLUE, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
BLUE, VERMILION, PURPLE, GRAY = "#0072b2", "#d55e00", "#cc79a7", "#767676"
LIGHT_GRAY = "#d0d4da"  # for the background
COLORS = (VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK, GRAY)
_DASHES: tuple[object, ...] = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "h")
_MAX_MARKED_POINTS = 45  # points of a line; more markers would hide its dashes
_NAME_SIZE = 8  # points
_LINE_HEIGHT = 1.35 * _NAME_SIZE / 72.0  # inches
Figure = Any  # matplotlib ships no types
Axes = Any


@dataclass(frozen=True)
class Style:
    color: str
    dash: object
    marker: str
    width: float = 1.6  # points

    def line(self, points: int) -> dict[str, object]:
        """Return the arguments of ``axes.plot``."""
        arguments = {"color": self.color, "linestyle": self.dash, "linewidth": self.width}
        return {**arguments, "marker": self.marker if points <= _MAX_MARKED_POINTS else None, "markersize": 4.5}


def style(index: int, *, width: float = 1.6) -> Style:
    return Style(COLORS[index % len(COLORS)], _DASHES[index % len(_DASHES)], _MARKERS[index % len(_MARKERS)], width)


@contextmanager
def save_figure(
    path: Path, *, width: float = 8.0, height: float = 5.0, dpi: int = 150, private: bool = False
) -> Iterator[Figure]:
    """Yield a matplotlib figure and save it; sizes are in inches, the suffix is the format."""
    check_parent(path)
    figure = require("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    yield figure
    with replace_file(path, private=private) as temporary:
        figure.savefig(temporary, dpi=dpi)


def name_lines(axes: Axes) -> None:
    """Write each line's name at its right end; the limits must be final."""
    axes.autoscale_view()  # else the limits are found when it is drawn
    ends = []
    for line in axes.lines:
        x, y = (np.asarray(values, dtype=float) for values in line.get_data())
        finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if finite.size and not line.get_label().startswith("_"):
            ends.append((line, (float(x[finite[-1]]), float(y[finite[-1]]))))
    if not ends:
        return
    to_share = axes.transScale + axes.transLimits
    heights = [float(np.clip(to_share.transform(end)[1], 0.0, 1.0)) for _, end in ends]
    rows = axes.get_gridspec().nrows
    gap = _LINE_HEIGHT * rows / (0.8 * axes.figure.get_figheight())
    for (line, end), height in zip(ends, _separate(heights, gap), strict=True):
        axes.annotate(
            line.get_label(),
            end,
            (1.04, height),
            textcoords="axes fraction",
            fontsize=_NAME_SIZE,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.6, "shrinkA": 1, "shrinkB": 2},
        )


def say_instead(axes: Axes, words: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", wrap=True)


def _separate(heights: Sequence[float], gap: float) -> list[float]:
    order = sorted(range(len(heights)), key=heights.__getitem__)
    sorted_heights = [heights[index] for index in order]
    for index in range(1, len(sorted_heights)):
        sorted_heights[index] = max(sorted_heights[index], sorted_heights[index - 1] + gap)
    sorted_heights[-1] = min(sorted_heights[-1], max(1.0, gap * (len(sorted_heights) - 1)))
    for index in range(len(sorted_heights) - 2, -1, -1):
        sorted_heights[index] = min(sorted_heights[index], sorted_heights[index + 1] - gap)
    result = [0.0] * len(heights)
    for index, height in zip(order, sorted_heights, strict=True):
        result[index] = height
    return result
