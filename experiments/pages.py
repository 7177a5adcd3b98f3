"""Write the pages under docs/reproduction: claims, tables, templates, files and options of all experiments.

An experiment NAME keeps its numbers in OUTPUT/NAME/*.json, with its pictures in the same folder. It fills the page
OUTPUT/NAME.md from this JSON alone, so that a test can write the page again and compare. The text of a page is its
template, docs/reproduction/NAME/page.template: Markdown with

    {name.of.value:format}    a value. `?` after the name allows a missing value; missing values and None become –. A
                              list becomes its formatted entries with commas. A bool becomes yes or **no**, or one of
                              {name:one|other}. {{ and }} are braces
    @each name … @end         repeats the lines for every entry of a list; names refer to the entry first, then to the
                              outer data; {it} is the entry
    @if name … @end           keeps the lines if the value exists and is not empty; @unless does the opposite
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darrm.util.files import write_text
from experiments.command_line import CommandLine

Row = dict[str, Any]  # plain data
TEMPLATES = Path(__file__).parents[1] / "docs" / "reproduction"
_DIRECTIVE = re.compile(r"@(each|if|unless|end)(?: (.+))?")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}:]+)(?::([^{}]*))?\}")


@dataclass(frozen=True)
class Claim:
    """A statement, the measurement, and whether the measurement supports the statement."""

    statement: str
    measured: str
    holds: bool


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table.

    >>> print(table(["m", "error"], [[1, "0.13"], [3, "–"]]))
    | m | error |
    |---|---|
    | 1 | 0.13 |
    | 3 | – |
    """
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def claims_table(claims: Iterable[Claim]) -> str:
    """Write claims as a Markdown table, with those that fail in bold."""
    rows = [(claim.statement, "yes" if claim.holds else "**no**", claim.measured) for claim in claims]
    return table(["claim", "holds", "measured"], rows)


def filled(name: str, *data: object, template: str = "page") -> str:
    """Fill a template of the experiment ``name``; the first of the ``data`` that has a value supplies it."""
    text = (TEMPLATES / name / f"{template}.template").read_text(encoding="utf-8")
    return fill(text, *data).rstrip("\n") + "\n"


def fill(template: str, *data: object) -> str:
    r"""Fill a template; the module docstring describes the syntax.

    >>> text = "{who}:\n@each runs\n- {seconds:.2f} s, {passed:quiet|loud}{note?}\n@end\n@if who\n{sizes:,}\n@end"
    >>> print(fill(text, {"who": "A", "sizes": [1000, 2], "runs": [{"seconds": 0.25, "passed": True}]}))
    A:
    - 0.25 s, quiet–
    1,000, 2
    """
    return "\n".join(_filled_lines(template.split("\n"), data))


def _filled_lines(lines: Sequence[str], data: tuple[object, ...]) -> Iterator[str]:
    """Fill lines, and omit or repeat their blocks."""
    place = 0
    while place < len(lines):
        directive = _DIRECTIVE.fullmatch(lines[place])
        if directive is None:
            yield _PLACEHOLDER.sub(lambda match: _written(match, data), lines[place])
            place += 1
            continue
        kind, name = directive.groups()
        end = _end_of_block(lines, place)
        value, block = _looked_up(name if kind == "each" else f"{name}?", data), lines[place + 1 : end]
        if kind == "each":
            for entry in value:
                yield from _filled_lines(block, (entry, {"it": entry}, *data))
        elif bool(value) == (kind == "if"):
            yield from _filled_lines(block, data)
        place = end + 1


def _end_of_block(lines: Sequence[str], start: int) -> int:
    """Return the line of the @end that closes the block at ``start``."""
    depth = 0
    for place in range(start, len(lines)):
        directive = _DIRECTIVE.fullmatch(lines[place])
        if directive is not None:
            depth += -1 if directive[1] == "end" else 1
            if depth == 0:
                return place
    raise ValueError(f"a template's line {lines[start]!r} must be closed by @end")


def _looked_up(name: str, data: tuple[object, ...]) -> Any:  # noqa: ANN401 (plain data)
    """Look up a dotted name in the first of the data that has it."""
    path = name.removesuffix("?").split(".")
    for scope in data:
        value, is_there = _step(scope, path[0])
        for part in path[1:]:
            value, is_there = _step(value, part) if is_there else (None, False)
        if is_there:
            return value
    if not name.endswith("?"):
        raise ValueError(f"a template asks for {name!r}, which the data lack")
    return None


def _step(value: object, part: str) -> tuple[Any, bool]:
    """Return an entry of a mapping or list, or an attribute, and whether it exists."""
    if isinstance(value, Mapping):
        return value.get(part), part in value
    if isinstance(value, Sequence) and part.lstrip("-").isdigit():
        return value[int(part)], True
    return getattr(value, part, None), hasattr(value, part)


def _written(match: re.Match[str], data: tuple[object, ...]) -> str:
    """Write the value that a placeholder names."""
    if match[1] is None:
        return match[0][0]
    return _formatted(_looked_up(match[1], data), match[2] or "")


def _formatted(value: object, form: str) -> str:
    """Write a value in a format; the module docstring describes formats."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return (form or "yes|**no**").split("|")[not value]
    if isinstance(value, list | tuple):
        return ", ".join(_formatted(entry, form) for entry in value)
    return format(value, form)


def deposited(folder: Path, ending: str) -> list[Path]:
    """Return the raw files of a folder, to compute the results again; `ValueError` if there are none."""
    paths = sorted(folder.glob(f"*{ending}"))
    if not paths:
        raise ValueError(f"{str(folder)!r} holds no *{ending} to count again from: say --output docs/reproduction")
    return paths


def write_json(path: Path, data: object) -> None:
    """Write plain data as JSON, in the format of the committed files."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (plain data)
    """Read a file of `write_json`."""
    return json.loads(path.read_text(encoding="utf-8"))


def differences(again: object, stored: object, where: str = "", tolerance: float = 1e-9) -> list[str]:
    """List the differences between plain data and stored data; numbers may differ by a relative tolerance.

    The data may be a part of the stored data: fewer keys, or the beginning of a list.

    >>> differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.5], "b": 1})
    ['.a.1: 2.0 is stored as 2.5']
    """
    if isinstance(again, Mapping) and isinstance(stored, Mapping):
        pairs = [(key, value, stored.get(key)) for key, value in again.items()]
    elif isinstance(again, list | tuple) and isinstance(stored, list) and len(again) <= len(stored):
        pairs = [(str(place), *pair) for place, pair in enumerate(zip(again, stored, strict=False))]
    elif isinstance(again, int | float) and isinstance(stored, int | float):
        alike = math.isclose(again, stored, rel_tol=tolerance)
        return [] if alike else [f"{where}: {again} is stored as {stored}"]
    else:
        return [] if again == stored else [f"{where}: {again} is stored as {stored}"]
    return [line for key, one, other in pairs for line in differences(one, other, f"{where}.{key}", tolerance)]


def command_line(
    name: str,
    description: str,
    *,
    module: str | None = None,
    quick: str | None = None,
    figures: Sequence[str] | None = None,
) -> CommandLine:
    """Make the command line of an experiment that writes a page.

    ``module`` is the name of the module if it differs from the page's. ``quick`` is the help text of ``--quick``. With
    ``figures`` the user must choose the figures to compute.
    """
    parser = CommandLine(prog=f"python -m experiments.{module or name}", description=description)
    what: argparse._ActionsContainer = parser
    if figures is not None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--figure", choices=figures, action="append", help="what to compute; repeatable")
        what.add_argument("--all", action="store_true", help="all of them")
    what.add_argument("--page", action="store_true", help="run nothing: write the page again from the JSON files")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help=f"for the page FOLDER/{name}.md and its data FOLDER/{name}/ (default results)",
    )
    return parser


def chosen_figures(options: argparse.Namespace, figures: Iterable[str]) -> list[str]:
    """Return the chosen figures in their order; none with ``--page``."""
    return [figure for figure in figures if options.all or figure in (options.figure or ())]


def data_folder(options: argparse.Namespace, name: str) -> Path:
    """Return OUTPUT/NAME, the folder of the JSON files and pictures; create it unless ``--page`` or a recomputation."""
    folder = Path(options.output / name)
    if not options.page and not getattr(options, "recompute", False):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_figures(
    options: argparse.Namespace,
    name: str,
    figures: Iterable[str],
    result_of: Callable[[str], Any],
    shown: tuple[Callable[[Path], str], Callable[[Path], None]],
) -> int:
    """Compute the chosen figures, each into a JSON file; ``shown`` writes the page and draws all stored figures."""
    folder, (page, draw) = data_folder(options, name), shown
    for figure in chosen_figures(options, figures):
        write_json(folder / f"{figure}.json", result_of(figure))
    text = page(folder)
    if not options.page:
        draw(folder)
    return finish(folder, text)


def finish(folder: Path, text: str, claims: Iterable[Claim] = ()) -> int:
    """Print one line per claim, write the page OUTPUT/NAME.md next to the data folder OUTPUT/NAME, and return 0."""
    for claim in claims:
        print(f"{'holds' if claim.holds else 'FAILS'}: {claim.statement} [{claim.measured}]")
    path = folder.with_name(f"{folder.name}.md")
    write_text(path, text)
    print(f"wrote {path}")
    return 0
