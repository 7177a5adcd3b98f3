"""Curves as pictures that stand in a page: SVG text, nothing to load."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from darrm.system.figures import COLORS

_WIDTH, _HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 16, 48
_SMALLEST = 1e-12  # a logarithmic axis ends here
_TICKS = 5


def curve_svg(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str,
    up: str,
    logarithmic: bool,
    marked: tuple[float, float],
) -> str:
    """Draw lines through points (x, y) with names at their ends, and a circle at ``marked``."""
    heights = {name: [(x, _height(y, logarithmic=logarithmic)) for x, y in points] for name, points in series.items()}
    circle = (marked[0], _height(marked[1], logarithmic=logarithmic))
    all_points = [point for points in heights.values() for point in points] + [circle]
    right = max(x for x, _ in all_points) or 1.0
    low = min(y for _, y in all_points) if logarithmic else 0.0
    high = max(y for _, y in all_points)
    high = high if high > low else low + 1.0
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + inner_width * x / right, _TOP + inner_height * (high - y) / (high - low)

    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(up)} over {escape(across)}" font-family="sans-serif" font-size="12">'
    )
    parts = [head]
    for tick in _ticks(right):
        x, y = place(tick, low)
        parts.append(_line(x, y, x, _TOP, "#eee") + _text(x, y + 18, f"{tick:g}", "middle"))
    for tick in _ticks_up(low, high, logarithmic=logarithmic):
        x, y = place(0.0, tick)
        label = f"1e{tick:g}" if logarithmic else f"{tick:g}"
        parts.append(_line(x, y, _LEFT + inner_width, y, "#eee") + _text(x - 8, y + 4, label, "end"))
    left, bottom = place(0.0, low)
    parts.append(_line(left, bottom, _LEFT + inner_width, bottom, "#555") + _line(left, bottom, left, _TOP, "#555"))
    parts.append(_text(_LEFT + inner_width / 2, _HEIGHT - 8, across, "middle"))
    parts.append(_text(16, _TOP + inner_height / 2, up, "middle"))
    last = -math.inf
    ends = sorted(heights, key=lambda name: -heights[name][-1][1])
    for name in ends:
        color = COLORS[list(heights).index(name) % len(COLORS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in heights[name]))
        x, y = place(*heights[name][-1])
        last = max(y + 4, last + 14)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(_text(x + 8, last, name, "start", color))
    x, y = place(*circle)
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="#1c1c1c" stroke-width="2"/></svg>')
    return "".join(parts)


def _height(y: float, *, logarithmic: bool) -> float:
    return math.log10(max(y, _SMALLEST)) if logarithmic else y


def _ticks(most: float) -> list[float]:
    """Choose a few round numbers from 0 to ``most``.

    >>> _ticks(1.0), _ticks(37)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0, 10, 20, 30])
    """
    unit = 10.0 ** math.floor(math.log10(most / _TICKS))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor * (_TICKS + 1) > most)
    step = int(step) if step >= 1 else step
    return [round(step * count, 12) for count in range(int(most / step * (1 + 1e-9)) + 1)]


def _ticks_up(low: float, high: float, *, logarithmic: bool) -> list[float]:
    if not logarithmic:
        return _ticks(high)
    step = max(1, math.ceil((high - low) / _TICKS))
    return [float(power) for power in range(math.ceil(low), math.floor(high) + 1) if power % step == 0]


def _line(x: float, y: float, to_x: float, to_y: float, color: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, anchor: str, color: str = "#1c1c1c") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
