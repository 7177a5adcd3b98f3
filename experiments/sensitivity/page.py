"""Write the JSON, the page and the pictures of the reproduced figures of [S]."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from darrm.util.figures import BLACK, Axes, name_lines, save_figure, style
from experiments.pages import Claim, Row, fill_template, format_table, read_results, set_log_ticks

ROWS_SHOWN = 6  # in a table of the page; the JSON has all rows


@dataclass(frozen=True)
class FigureData:
    """One figure: its settings, its table, and the claims about it."""

    figure: int  # its number in the paper
    title: str
    settings: Row  # name: value
    columns: tuple[str, ...]
    rows: Sequence[Sequence[float | None]]  # None: m is too small for γ
    claims: list[Claim]
    quick: bool = False  # whether this was a shortened run

    def column(self, name: str, first: float | None = None) -> list[float]:
        """Return a column, of all rows or of those with this first value; missing values are NaN.

        >>> FigureData(2, "t", {}, ("m", "k"), [[1, 5], [2, 6], [2, None]], []).column("k", 2)
        [6, nan]
        """
        place = self.columns.index(name)
        values = [row[place] for row in self.rows if first is None or row[0] == first]
        return [math.nan if value is None else value for value in values]


def read_figure(fields: Row) -> FigureData:
    """Read a figure's data; ignore the notes of older runs."""
    claims = [Claim(**claim) for claim in fields["claims"]]
    fields = {name: value for name, value in fields.items() if name not in {"notes", "claims"}}
    return FigureData(**{**fields, "columns": tuple(fields["columns"])}, claims=claims)


def fill_page(folder: Path) -> str:
    figures = read_results(folder, [f"figure{number}" for number in DRAWINGS]).values()
    return fill_template("sensitivity", {"figures": [_summarize_figure(read_figure(data)) for data in figures]})


def _summarize_figure(data: FigureData) -> Row:
    """Summarize one figure, with about `ROWS_SHOWN` rows of its table."""
    step = max(1, -(-len(data.rows) // ROWS_SHOWN))
    return {
        **vars(data),
        "settings": ", ".join(f"{name} = {value}" for name, value in data.settings.items()),
        "table": format_table(data.columns, [map(_format_cell, row) for row in data.rows[::step]]),
    }


def _format_cell(value: float | None) -> str:
    if value is None:
        return "–"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def save_picture(path: Path, data: FigureData) -> None:
    with save_figure(path, width=7.5, height=4.8) as figure:
        axes = figure.add_subplot()
        DRAWINGS[data.figure](axes, data)
        axes.grid(visible=True, which="major", alpha=0.3)
        if data.figure in (4, 5, 9):
            least_gamma = 0.99 * min(data.column("gamma"))
            set_log_ticks(axes, [gamma for gamma in (0.02, 0.05, 0.1, 0.2, 0.5) if gamma >= least_gamma])
        if data.figure in (3, 5, 9):
            name_lines(axes)
        else:  # the lines end at the same point
            axes.legend(fontsize=9)


def _draw_effort(axes: Axes, data: FigureData) -> None:
    gammas = data.column("gamma")
    axes.plot(gammas, data.column("m"), label="least m (Theorem 15)", **style(0).line(len(gammas)))
    bounds = (data.column("lower bound"), data.column("upper bound"))
    axes.fill_between(gammas, *bounds, alpha=0.25, color=style(0).color, label="bounds on it (Corollary 16)")
    rank = data.column("m by exchangeability")
    axes.plot(gammas, rank, label="by exchangeability (not in the paper)", **style(1).line(len(gammas)))
    axes.set(xscale="log", yscale="log", xlabel="γ, share of pairs without a promise", ylabel="m, sampled pairs")


def _draw_index(axes: Axes, data: FigureData) -> None:
    for place, m in enumerate(dict.fromkeys(data.column("m"))):
        gammas = data.column("gamma", m)
        axes.plot(gammas, data.column("k/m", m), label=f"m = {m:,}", **style(place).line(len(gammas)))
    axes.set(xlabel="γ, share of pairs without a promise", ylabel="k/m, rank of the order statistic")


def _draw_mean(axes: Axes, data: FigureData) -> None:
    sizes = list(dict.fromkeys(data.column("m")))
    for place, m in enumerate(sizes):
        gammas, sampled, deviations = (
            data.column(name, m) for name in ("gamma", "sampled (mean)", "sampled (deviation)")
        )
        line = style(place).line(len(sampled))
        axes.plot(gammas, sampled, label=f"m = {m:,}", **line)
        axes.errorbar(gammas, sampled, yerr=deviations, label="_", capsize=2, **line)
    exact = [data.column(name, sizes[0]) for name in ("gamma", "analytical")]
    axes.plot(*exact, color=BLACK, linestyle="--", label="analytical, log(1/γ)/n")
    axes.set(xlabel="γ, share of pairs without a promise", ylabel="sensitivity of the mean")


def _draw_sensitivity(axes: Axes, data: FigureData) -> None:
    for index, dimension in enumerate(dict.fromkeys(data.column("d"))):
        gammas = data.column("gamma", dimension)
        for name, line in (("sampled", "o-"), ("global bound", "--")):
            line_style = {"color": style(index).color, "markersize": 3, "label": f"{name}, d = {dimension}"}
            axes.plot(gammas, data.column(name, dimension), line, **line_style)
    axes.set(yscale="log", xlabel="γ, share of pairs without a promise", ylabel="L1 sensitivity")


def _draw_over_epsilon(axes: Axes, data: FigureData, label: str, scale: str) -> None:
    epsilons = data.column("epsilon")
    for place, name in enumerate(data.columns[1:-1]):
        label_text = name.replace("gamma", "γ")
        axes.plot(epsilons, data.column(name), label=label_text, **style(place).line(len(epsilons)))
    axes.plot(epsilons, data.column(data.columns[-1]), color=BLACK, linestyle="--", label=data.columns[-1])
    axes.set(xscale="log", yscale=scale, xlabel="ε", ylabel=label)


DRAWINGS: dict[int, Callable[[Axes, FigureData], None]] = {
    2: _draw_effort,
    3: _draw_index,
    4: _draw_mean,
    5: _draw_sensitivity,
    6: partial(_draw_over_epsilon, label="misclassified share of test records", scale="linear"),
    7: partial(_draw_over_epsilon, label="largest error of the density", scale="log"),
    9: _draw_sensitivity,
}
