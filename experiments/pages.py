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

A claim is a row of a table with the head `CLAIMS`: a statement, whether the measurement supports it, the measurement.
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any, NoReturn

from darrm.util.files import write_text

Row = dict[str, Any]  # plain data
TEMPLATES = Path(__file__).parents[1] / "docs" / "reproduction"
CLAIMS = "| claim | holds | measured |"
_DIRECTIVE = re.compile(r"@(each|if|unless|end)(?: (.+))?")


@dataclass(frozen=True)
class Claim:
    """A statement whose text depends on the data; the others are in the templates."""

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


def in_bold(
    head: Sequence[str],
    rows: Iterable[tuple[Sequence[object], Mapping[str, float]]],
    names: Sequence[str],
    *,
    last: tuple[str, Sequence[str]] | None = None,
) -> str:
    """Tabulate numbers by name after some first cells, and before a last column, the largest of every row in bold.

    >>> print(in_bold(["m"], [([1], {"a": 0.5, "b": 0.25})], ["a", "b", "c"]))
    | m | a | b | c |
    |---|---|---|---|
    | 1 | **0.5000** | 0.2500 | – |
    """
    cells = []
    for first, numbers in rows:
        least = max(numbers.values()) - 5e-5
        written = {name: f"**{value:.4f}**" if value >= least else f"{value:.4f}" for name, value in numbers.items()}
        cells.append([*first, *(written.get(name, "–") for name in names)])
    if last is None:
        return table([*head, *names], cells)
    return table([*head, *names, last[0]], [[*row, cell] for row, cell in zip(cells, last[1], strict=True)])


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
            yield _Placeholders().vformat(lines[place], data, {})
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


class _Placeholders(Formatter):
    """Fill the placeholders of a line; the data are its arguments."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: object) -> tuple[Any, str]:
        del kwargs
        return _looked_up(field_name, tuple(args)), field_name

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401 (as in the base class)
        return _formatted(value, format_spec)


def _formatted(value: object, form: str) -> str:
    """Write a value in a format; the module docstring describes formats."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return (form or "yes|**no**").split("|")[not value]
    if isinstance(value, list | tuple):
        return ", ".join(_formatted(entry, form) for entry in value)
    return format(value, form)


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


def recompute(folder: Path, ending: str, compute: Callable[[Path, Row], Row]) -> int:
    """Compute every NAME.json again from the raw file beside it, NAME and an ending; return 1 if a number differs.

    `ValueError` if the folder has no raw files.
    """
    paths, wrong = sorted(folder.glob(f"*{ending}")), 0
    if not paths:
        raise ValueError(f"{str(folder)!r} holds no *{ending} to count again from: say --output docs/reproduction")
    for path in paths:
        stored = read_json(folder / f"{path.name.removesuffix(ending)}.json")
        found = differences(compute(path, stored), stored)
        wrong += len(found)
        print("\n".join([f"{path.stem}: {len(found)} figures differ", *found]))
    return int(wrong > 0)


class CommandLine(argparse.ArgumentParser):
    """An argument parser that accepts no abbreviated options and raises `ValueError` for bad arguments.

    `darrm.commands.command_line.run` prints the error as one line.
    """

    def __init__(self, module: str, description: str | None) -> None:
        super().__init__(
            prog=f"python -m {module}",
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise `ValueError` instead of printing the usage and exiting."""
        raise ValueError(f"{message}: see {self.prog} --help")


def command_line(
    name: str,
    description: str | None,
    *,
    module: str | None = None,
    quick: str | None = None,
    figures: Sequence[str] | None = None,
) -> CommandLine:
    """Make the command line of an experiment that writes the page ``name``.

    ``module`` is what ``python -m`` runs, by default ``experiments.NAME``. ``quick`` is the help text of ``--quick``.
    With ``figures`` the user must choose the figures to compute.
    """
    parser = CommandLine(module or f"experiments.{name}", description)
    what: argparse._ActionsContainer = parser
    if figures is not None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--figure", choices=figures, action="append", help="what to compute; repeatable")
        what.add_argument("--all", action="store_true", help="all of them")
    what.add_argument("--page", action="store_true", help="run nothing: write the page again from the JSON files")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    where = f"for the page FOLDER/{name}.md and its data FOLDER/{name}/ (default results)"
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="FOLDER", help=where)
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


def read_results(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Read NAME.json of every name that the folder has; `ValueError` if there is none."""
    paths = {name: folder / f"{name}.json" for name in names}
    results = {name: read_json(path) for name, path in paths.items() if path.is_file()}
    if not results:
        raise ValueError(f"{folder} holds no results: run it without --page first")
    return results


Draw = Callable[[Path, Any], None]  # the data folder and what its JSON files say


def run_figures(
    options: argparse.Namespace,
    name: str,
    figures: Iterable[str],
    measure: Callable[[str], Any],
    page: Callable[[dict[str, Any]], str],
    draw: Draw,
) -> int:
    """Compute the chosen figures, each into a JSON file; draw and write the page from all that are stored."""
    folder = data_folder(options, name)
    for figure in chosen_figures(options, figures):
        write_json(folder / f"{figure}.json", measure(figure))
    results = read_results(folder, figures)
    if not options.page:
        draw(folder, results)
    return finish(folder, page(results))


def run_whole(
    options: argparse.Namespace,
    path: str,
    measure: Callable[[], Any],
    page: Callable[[Any], str],
    draw: Draw | None = None,
) -> int:
    """Measure into the JSON file NAME/FILE.json and draw, or read it with ``--page``; write the page from it."""
    name, _, file = path.partition("/")
    folder = data_folder(options, name)
    if not options.page:
        write_json(folder / file, measure())
    data = read_json(folder / file)
    if draw is not None and not options.page:
        draw(folder, data)
    return finish(folder, page(data))


def claims_on(page: str) -> list[tuple[str, bool, str]]:
    r"""Read the claims on a page: the statement, whether it holds, and the measurement.

    >>> claims_on(f"{CLAIMS}\n|---|---|---|\n| 1 < 2 | yes | 1 |\n\n| a | b |")
    [('1 < 2', True, '1')]
    """
    tables = page.split(f"{CLAIMS}\n|---|---|---|\n")[1:]
    rows = [row.strip("| ").split(" | ") for table in tables for row in table.split("\n\n")[0].splitlines()]
    return [(statement, holds == "yes", " | ".join(measured)) for statement, holds, *measured in rows]


def finish(folder: Path, page: str) -> int:
    """Print one line per claim, write the page OUTPUT/NAME.md next to the data folder OUTPUT/NAME, and return 0."""
    for statement, holds, measured in claims_on(page):
        print(f"{'holds' if holds else 'FAILS'}: {statement} [{measured}]")
    path = folder.with_name(f"{folder.name}.md")
    write_text(path, page)
    print(f"wrote {path}")
    return 0
