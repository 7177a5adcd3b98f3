"""What advice writes to a file: plain data, a table of commas, or one in LaTeX, as the file's name ends."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

from darrm.advise.advice import Advice
from darrm.advise.report import json_report
from darrm.advise.sweep import Sweep, sweep_json
from darrm.errors import checks
from darrm.plan.option import settings_in_words
from darrm.system.command_line import numbered
from darrm.system.files import write_text

_LATEX = str.maketrans({letter: f"\\{letter}" for letter in "&%$#_{}"} | {"ε": r"$\varepsilon$", "σ": r"$\sigma$"})


Row = dict[str, str | float]


def rows_of(advice: Advice | Sweep) -> list[Row]:
    """List the options, the best first: their share of right labels, ε of all queries, bound and parameters.

    Those of a sweep say the total, too, and stand one budget below the other.
    """
    if isinstance(advice, Sweep):
        each = [(str(one.workload.total.epsilon_text), row) for one in advice.advices for row in rows_of(one)]
        return [{"mechanism": row["mechanism"], "total epsilon": total, **row} for total, row in each]
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


def csv_of(advice: Advice | Sweep) -> str:
    """Write a line a mechanism, with all digits."""
    text, rows = io.StringIO(), rows_of(advice)
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def latex_of(advice: Advice | Sweep) -> str:
    """Write a table for the package booktabs, with the budget in a comment."""
    workload = (advice.advices[-1] if isinstance(advice, Sweep) else advice).workload
    rows = [{name: _cell(value) for name, value in row.items() if name != "only compared"} for row in rows_of(advice)]
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    head, *body = (" & ".join(cell.translate(_LATEX) for cell in line) + r" \\" for line in lines)
    asked = numbered(workload.queries, "query", "queries")
    budget = f"at delta = {workload.total.delta_text}" if isinstance(advice, Sweep) else f"within {workload.total}"
    about = f"% {asked} {budget}, {workload.voters}"
    begin = rf"\begin{{tabular}}{{l{'r' * (len(lines[0]) - 3)}ll}}"
    return "\n".join([about, begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"


def _json_of(advice: Advice | Sweep) -> str:
    document = sweep_json(advice) if isinstance(advice, Sweep) else json_report(advice)
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


_FORMATS: dict[str, Callable[[Advice | Sweep], str]] = {
    ".json": _json_of,
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


def write_advice(path: Path, advice: Advice | Sweep) -> None:
    """Write advice to a file, as its name ends."""
    write_text(path, _FORMATS[path.suffix.lower()](advice))
