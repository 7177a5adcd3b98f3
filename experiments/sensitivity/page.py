"""What a reproduced figure of [S] consists of, as JSON and as the section of the documentation written from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from darrm.system.files import write_text

ROWS_SHOWN = 16  # of a long table; the JSON has all of them

HEAD = """# Sensitivity sampling

Figures 2 to 7 of Rubinstein and Aldà, *Pain-Free Random Differential Privacy with Sensitivity Sampling* (ICML 2017).
This page is written by `python -m experiments.sensitivity --all --output docs/reproduction`; every number comes from
the JSON files beside the pictures. The noise of these experiments is pseudo-random, so that they can be repeated.
"""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what was measured, and whether the measurement bears it out."""

    statement: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class FigureData:
    """One figure: its settings, a table of numbers, and the claims that were checked on them.

    Attributes
    ----------
    figure, title
        The figure's number in the paper, and what it shows.
    settings
        Everything that was chosen, by name.
    columns, rows
        The table; None stands for "not reached".
    claims, notes
        Statements checked, and remarks such as departures from the paper.
    quick
        Whether this was a shortened run.
    """

    figure: int
    title: str
    settings: dict[str, Any]
    columns: tuple[str, ...]
    rows: list[list[float | None]]
    claims: list[Claim]
    notes: list[str]
    quick: bool = False

    def column(self, name: str, where: dict[str, float] | None = None) -> list[float | None]:
        """Take one column, of the rows with the given values in other columns.

        Examples
        --------
        >>> data = FigureData(2, "t", {}, ("m", "k"), [[1, 5], [2, 6]], [], [])
        >>> data.column("k", {"m": 2})
        [6]
        """
        chosen = [(self.columns.index(key), value) for key, value in (where or {}).items()]
        place = self.columns.index(name)
        return [row[place] for row in self.rows if all(row[index] == value for index, value in chosen)]


def write_json(path: Path, data: FigureData) -> None:
    """Write a figure's data."""
    write_text(path, json.dumps(asdict(data), indent=1) + "\n")


def read_json(path: Path) -> FigureData:
    """Read a figure's data back."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    claims = [Claim(**claim) for claim in fields.pop("claims")]
    return FigureData(**{**fields, "columns": tuple(fields["columns"])}, claims=claims)


def write_page(path: Path, folder: str, figures: Sequence[FigureData]) -> None:
    """Write the documentation's section from the figures' data; pictures lie in ``folder`` beside it."""
    write_text(path, "\n".join([HEAD, *(section(data, folder) for data in figures)]))


def section(data: FigureData, folder: str) -> str:
    """Write one figure as markdown.

    Examples
    --------
    >>> data = FigureData(2, "Effort", {"m": 3}, ("a", "b"), [[0.5, None]], [Claim("s", "1", holds=True)], [])
    >>> print(section(data, "x"))
    ## Figure 2: Effort
    <BLANKLINE>
    ![Figure 2](x/figure2.png)
    <BLANKLINE>
    Settings: m = 3.
    <BLANKLINE>
    | claim | measured | holds |
    |---|---|---|
    | s | 1 | yes |
    <BLANKLINE>
    | a | b |
    |---|---|
    | 0.5 | – |
    <BLANKLINE>
    """
    lines = [
        f"## Figure {data.figure}: {data.title}",
        "",
        f"![Figure {data.figure}]({folder}/figure{data.figure}.png)",
        "",
    ]
    if data.quick:
        lines += ["*A shortened run (`--quick`): the numbers below are not those of the paper's set-up.*", ""]
    lines += ["Settings: " + ", ".join(f"{name} = {value}" for name, value in data.settings.items()) + ".", ""]
    lines += [line for note in data.notes for line in (note, "")]
    lines += ["| claim | measured | holds |", "|---|---|---|"]
    lines += [f"| {claim.statement} | {claim.measured} | {'yes' if claim.holds else 'no'} |" for claim in data.claims]
    lines += ["", "| " + " | ".join(data.columns) + " |", "|" + "---|" * len(data.columns)]
    step = max(1, -(-len(data.rows) // ROWS_SHOWN))
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in data.rows[::step]]
    return "\n".join([*lines, ""])


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
