"""What a reproduced figure of [S] consists of, as JSON and as the section of the documentation written from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.pages import Claim, claims_table, picture, read_json, table

ROWS_SHOWN = 16  # of a long table; the JSON has all of them

HEAD = """# Sensitivity sampling

Figures 2 to 7 of Rubinstein and Aldà, *Pain-Free Random Differential Privacy with Sensitivity Sampling* (ICML 2017).
This page is written by `python -m experiments.sensitivity --all --output docs/reproduction`; every number comes from
the JSON files beside the pictures. The noise of these experiments is pseudo-random, so that they can be repeated."""


@dataclass(frozen=True)
class FigureData:
    """One figure: its settings, a table of numbers, and the claims that were checked on them."""

    figure: int  # its number in the paper
    title: str
    settings: dict[str, Any]  # everything that was chosen, by name
    columns: tuple[str, ...]
    rows: Sequence[Sequence[float | None]]  # None: not reached
    claims: list[Claim]
    notes: list[str]  # such as departures from the paper
    quick: bool = False  # whether this was a shortened run

    def column(self, name: str, first: float | None = None) -> list[float]:
        """Take one column, all of it or of the rows with this first value; what was not reached is NaN.

        >>> FigureData(2, "t", {}, ("m", "k"), [[1, 5], [2, 6], [2, None]], [], []).column("k", 2)
        [6, nan]
        """
        place = self.columns.index(name)
        values = [row[place] for row in self.rows if first is None or row[0] == first]
        return [math.nan if value is None else value for value in values]


CAPTIONS = {
    2: "How many pairs have to be sampled for a share γ of pairs without a promise; both axes logarithmic",
    3: "Which order statistic of m sampled sensitivities is taken, as a share of m: 1 is the largest",
    4: "The sensitivity that is sampled, mean and deviation of repeated runs, and the true one, dashed",
    5: "The sensitivity that is sampled and the bound that holds for all data; both axes logarithmic",
    6: "How often the classifier errs with noise to the bound and to the sampled sensitivity; dashed without noise",
    7: "How far the density is off with noise to each bound and to the sampled sensitivity; dashed without noise",
}


def read_figure(path: Path) -> FigureData:
    """Read a figure's data back."""
    fields = read_json(path)
    claims = [Claim(**claim) for claim in fields.pop("claims")]
    return FigureData(**{**fields, "columns": tuple(fields["columns"])}, claims=claims)


def page(folder: Path) -> str:
    """Write the page from the JSON files of its folder."""
    figures = [read_figure(path) for path in sorted(folder.glob("figure*.json"))]
    if not figures:
        raise ValueError(f"{folder} holds no results: run some figures first")
    return "\n\n".join([HEAD, *map(section, figures)]) + "\n"


def section(data: FigureData) -> str:
    """Write one figure as Markdown.

    >>> data = FigureData(2, "Effort", {"m": 3}, ("a", "b"), [[0.5, None]], [Claim("s", "1", holds=True)], [])
    >>> print(section(data))
    ## Figure 2: Effort
    <BLANKLINE>
    ![Figure 2](sensitivity/figure2.png)
    <BLANKLINE>
    *Figure 2.* How many pairs have to be sampled for a share γ of pairs without a promise; both axes logarithmic.
    <BLANKLINE>
    Settings: m = 3.
    <BLANKLINE>
    | claim | holds | measured |
    |---|---|---|
    | s | yes | 1 |
    <BLANKLINE>
    | a | b |
    |---|---|
    | 0.5 | – |
    """
    step = max(1, -(-len(data.rows) // ROWS_SHOWN))
    parts = [
        f"## Figure {data.figure}: {data.title}",
        picture(f"sensitivity/figure{data.figure}.png", f"Figure {data.figure}", f"{CAPTIONS[data.figure]}."),
        "*A shortened run (`--quick`): the numbers below are not those of the paper's set-up.*" if data.quick else "",
        "Settings: " + ", ".join(f"{name} = {value}" for name, value in data.settings.items()) + ".",
        *data.notes,
        claims_table(data.claims),
        table(data.columns, [map(_cell, row) for row in data.rows[::step]]),
    ]
    return "\n\n".join(part for part in parts if part)


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
