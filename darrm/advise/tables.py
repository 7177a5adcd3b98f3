"""What advice writes to a file: plain data, a table of commas, or one in LaTeX, as the file's name ends."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

from darrm.advise.advice import Advice
from darrm.advise.report import json_report
from darrm.errors import checks
from darrm.plan.option import settings_in_words
from darrm.system.command_line import numbered
from darrm.system.files import write_text

_LATEX = str.maketrans({letter: f"\\{letter}" for letter in "&%$#_{}"} | {"ε": r"$\varepsilon$", "σ": r"$\sigma$"})


def rows_of(advice: Advice) -> list[dict[str, str | float]]:
    """List the options, the best first: their share of right labels, ε of all queries, bound and parameters."""
    return [
        {
            "mechanism": option.name,
            "share right": option.right,
            **{name: share.value for name, share in option.columns.items()},
            **({"accuracy": option.accuracy(advice.prior)} if advice.workload.has_noise_function else {}),
            **({} if option.answered is None else {"answered": option.answered}),
            "epsilon": option.cost.epsilon,
            "bound": option.cost.name,
            "parameters": settings_in_words(option.settings),
            "only compared": option.only_compared,
        }
        for option in advice.options
    ]


def csv_of(advice: Advice) -> str:
    """Write a line a mechanism, with all digits."""
    text, rows = io.StringIO(), rows_of(advice)
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def latex_of(advice: Advice) -> str:
    """Write a table for the package booktabs, with the budget in a comment."""
    rows = [{name: _cell(value) for name, value in row.items() if name != "only compared"} for row in rows_of(advice)]
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    head, *body = (" & ".join(cell.translate(_LATEX) for cell in line) + r" \\" for line in lines)
    asked = numbered(advice.workload.queries, "query", "queries")
    about = f"% {asked} within {advice.workload.total}, {advice.workload.voters}"
    begin = rf"\begin{{tabular}}{{l{'r' * (len(lines[0]) - 3)}ll}}"
    return "\n".join([about, begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"


_FORMATS: dict[str, Callable[[Advice], str]] = {
    ".json": lambda advice: json.dumps(json_report(advice), indent=1, ensure_ascii=False) + "\n",
    ".csv": csv_of,
    ".tex": latex_of,
}


def check_format(path: Path | None) -> None:
    """Refuse a file of another kind, before the work.

    >>> check_format(Path("advice.xlsx"))
    Traceback (most recent call last):
    ...
    ValueError: --output must be a file whose name ends in .json, .csv or .tex, got 'advice.xlsx'
    """
    if path is not None and path.suffix.lower() not in _FORMATS:
        checks.fail("--output", str(path), "a file whose name ends in .json, .csv or .tex")


def write_advice(path: Path, advice: Advice) -> None:
    """Write advice to a file, as its name ends."""
    write_text(path, _FORMATS[path.suffix.lower()](advice))
