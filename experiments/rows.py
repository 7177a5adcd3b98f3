"""List every table, figure, algorithm and theorem of the three papers, with its place here and our numbers.

    python -m experiments rows --recompute

The rows are in docs/reproduction/rows/page.md.j2. The template names a number by its path in the data of another page,

    {{ number("FOLDER/FILE.step.step")|f(format) }}      in docs/reproduction/FOLDER/FILE.json

A step is a key, an index into a list, ``key=value,…`` for the first entry of a list with these values, or, as the last
step, ``mean`` of a list. OUTPUT/rows/rows.json collects all numbers.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import pages

NAME, DATA = "rows", "rows.json"
_NUMBER = re.compile(r'number\("([^"]+)"\)')


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(NAME, __doc__).parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    if not options.page:
        pages.write_json(folder / DATA, collect_numbers(pages.TEMPLATES))
    return pages.write_page(folder, fill_page(folder))


def read_template() -> str:
    return (pages.TEMPLATES / NAME / "page.md.j2").read_text(encoding="utf-8")


def collect_numbers(folder: Path) -> pages.Row:
    """Look up every number of the template in the JSON files of the other pages."""
    return {name: _look_up(name, folder) for name in sorted(set(_NUMBER.findall(read_template())))}


def fill_page(folder: Path) -> str:
    return pages.fill_template(NAME, {"number": pages.read_json(folder / DATA).__getitem__})


def _look_up(name: str, folder: Path) -> Any:  # noqa: ANN401 (plain data)
    file, _, path = name.partition(".")
    value = pages.read_json(folder / f"{file}.json")
    for step in path.split("."):
        try:
            value = _take_step(value, step)
        except (KeyError, IndexError, ValueError, StopIteration) as error:
            raise ValueError(f"{name}: {file}.json has no {step!r} there") from error
    return value


def _take_step(value: Any, step: str) -> Any:  # noqa: ANN401 (plain data)
    if not isinstance(value, list):
        return value[step]
    if step == "mean":
        return sum(value) / len(value)
    if "=" not in step:
        return value[int(step)]
    expected = dict(condition.split("=", 1) for condition in step.split(","))
    return next(row for row in value if all(str(row.get(key)) == text for key, text in expected.items()))
