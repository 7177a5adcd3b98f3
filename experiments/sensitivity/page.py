"""What a reproduced figure of [S] consists of, as JSON and in the documentation written from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.pages import Claim, Row, claims_table, filled, read_json, table

ROWS_SHOWN = 16  # of a long table; the JSON has all of them


@dataclass(frozen=True)
class FigureData:
    """One figure: its settings, a table of numbers, and the claims that were checked on them."""

    figure: int  # its number in the paper
    title: str
    settings: Row  # everything that was chosen, by name
    columns: tuple[str, ...]
    rows: Sequence[Sequence[float | None]]  # None: not reached
    claims: list[Claim]
    quick: bool = False  # whether this was a shortened run

    def column(self, name: str, first: float | None = None) -> list[float]:
        """Take one column, all of it or of the rows with this first value; what was not reached is NaN.

        >>> FigureData(2, "t", {}, ("m", "k"), [[1, 5], [2, 6], [2, None]], []).column("k", 2)
        [6, nan]
        """
        place = self.columns.index(name)
        values = [row[place] for row in self.rows if first is None or row[0] == first]
        return [math.nan if value is None else value for value in values]


def read_figure(path: Path) -> FigureData:
    """Read a figure's data back; older runs wrote notes as well, which stand in the template."""
    fields = read_json(path)
    fields.pop("notes", None)
    claims = [Claim(**claim) for claim in fields.pop("claims")]
    return FigureData(**{**fields, "columns": tuple(fields["columns"])}, claims=claims)


def page(folder: Path) -> str:
    """Fill the page from the JSON files of its folder."""
    figures = [read_figure(path) for path in sorted(folder.glob("figure*.json"))]
    if not figures:
        raise ValueError(f"{folder} holds no results: run some figures first")
    return filled("sensitivity", {"figures": list(map(_section, figures))})


def _section(data: FigureData) -> Row:
    """Sum up one figure; of a long table every so many rows are shown."""
    step = max(1, -(-len(data.rows) // ROWS_SHOWN))
    return {
        f"is_{data.figure}": True,
        **vars(data),
        "settings": ", ".join(f"{name} = {value}" for name, value in data.settings.items()),
        "claims": claims_table(data.claims),
        "table": table(data.columns, [map(_cell, row) for row in data.rows[::step]]),
    }


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
