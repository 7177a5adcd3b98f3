"""Report the best tables for several privacy allowances, one row per allowance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from darrm.privacy import at_most
from darrm.table.table import Table

_HEADING = f"{'m':>6}{'ε':>10}{'δ':>12}{'accuracy':>10}{'error':>10}{'gap':>10}"
_NOTES = """\
accuracy: agreement with the noiseless majority or plurality, expected under the prior
error: the expected error of [D, Eq. 2], for two classes
gap: how much better another private mechanism can be, at most"""


@dataclass(frozen=True)
class Row:
    """The results of the best table for an allowance ``m``."""

    m: float
    epsilon: float
    delta: float
    accuracy: float | None
    expected_error: float | None
    gap: float | None

    @classmethod
    def of(cls, table: Table) -> Row:
        """Collect the results of a table."""
        problem, optimality = table.problem, table.optimality
        error = None if optimality is None or not problem.has_noise_function else optimality.value
        return cls(
            problem.m,
            problem.target.epsilon,
            problem.target.delta,
            table.share_right,
            error,
            None if optimality is None else optimality.gap,
        )

    def __str__(self) -> str:
        accuracy = "" if self.accuracy is None else f"{self.accuracy:.4f}"
        error = "" if self.expected_error is None else f"{self.expected_error:.4g}"
        gap = "" if self.gap is None else at_most(self.gap, 2)
        return f"{self.m:>6g}{self.epsilon:>10.4g}{self.delta:>12.4g}{accuracy:>10}{error:>10}{gap:>10}"


def rows_text(tables: Sequence[Table]) -> str:
    """Write the rows for a person."""
    prior = "" if tables[0].optimality is None else f"prior: {tables[0].optimality.prior}"
    return "\n".join(
        [str(tables[0].problem.voters), _HEADING, *(str(Row.of(table)) for table in tables), prior, _NOTES, ""]
    )


def rows_document(tables: Sequence[Table]) -> dict[str, Any]:
    """Write the rows as a JSON document; schema: `optimize_rows.json` in `darrm/schemas`."""
    return {
        "format": "darrm optimize rows",
        "version": 1,
        "voters": tables[0].problem.voters.to_json(),
        "rows": rows_data(tables),
    }


def rows_data(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return each row as a dictionary."""
    return [asdict(Row.of(table)) for table in tables]
