"""What the experiments share: the claims, tables, templates, files and flags of the pages under docs/reproduction.

An experiment NAME keeps its numbers in OUTPUT/NAME/*.json and its pictures beside them, and fills the page
OUTPUT/NAME.md from that JSON and from nothing else, so that a test can write it again and compare. What a page says
stands in its template, docs/reproduction/NAME/page.template: Markdown with

    {name.of.value:format}    a value; `?` after the name where it may be missing, which is written – as None is.
                              A list is its entries so formatted, with commas; a bool is yes or **no**, or one of
                              {name:one|other}; {{ and }} are braces
    @each name … @end         the lines between for every entry of a list, whose own values come before those outside;
                              {it} is the entry
    @if name … @end           the lines between where there is such a value, and it is not empty; @unless the other way
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darrm.system.command_line import CommandLine
from darrm.system.files import write_text

Row = dict[str, Any]  # plain data
TEMPLATES = Path(__file__).parents[1] / "docs" / "reproduction"
_DIRECTIVE = re.compile(r"@(each|if|unless|end)(?: (.+))?")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}:]+)(?::([^{}]*))?\}")


@dataclass(frozen=True)
class Claim:
    """A statement, what was measured, and whether the measurement bears it out."""

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
    """Fill a template of the experiment ``name``; a value is looked for in one of the ``data`` after the other."""
    text = (TEMPLATES / name / f"{template}.template").read_text(encoding="utf-8")
    return fill(text, *data).rstrip("\n") + "\n"


def fill(template: str, *data: object) -> str:
    r"""Fill a template, see above.

    >>> text = "{who}:\n@each runs\n- {seconds:.2f} s, {passed:quiet|loud}{note?}\n@end\n@if who\n{sizes:,}\n@end"
    >>> print(fill(text, {"who": "A", "sizes": [1000, 2], "runs": [{"seconds": 0.25, "passed": True}]}))
    A:
    - 0.25 s, quiet–
    1,000, 2
    """
    return "\n".join(_filled_lines(template.split("\n"), data))


def _filled_lines(lines: Sequence[str], data: tuple[object, ...]) -> Iterator[str]:
    """Fill lines, blocks of which may be left out or repeated."""
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
    """Find the @end of the block that starts here."""
    depth = 0
    for place in range(start, len(lines)):
        directive = _DIRECTIVE.fullmatch(lines[place])
        if directive is not None:
            depth += -1 if directive[1] == "end" else 1
            if depth == 0:
                return place
    raise ValueError(f"a template's line {lines[start]!r} must be closed by @end")


def _looked_up(name: str, data: tuple[object, ...]) -> Any:  # noqa: ANN401 (plain data)
    """Look a dotted name up in the first of the data that has its first part."""
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
    """Return an entry of a mapping or list, or an attribute, and whether it is there."""
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
    """Write a value in a format; see above."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return (form or "yes|**no**").split("|")[not value]
    if isinstance(value, list | tuple):
        return ", ".join(_formatted(entry, form) for entry in value)
    return format(value, form)


def deposited(folder: Path, ending: str) -> list[Path]:
    """Return the files of a folder that results are counted again from; `ValueError` where there are none."""
    paths = sorted(folder.glob(f"*{ending}"))
    if not paths:
        raise ValueError(f"{str(folder)!r} holds no *{ending} to count again from: say --output docs/reproduction")
    return paths


def write_json(path: Path, data: object) -> None:
    """Write plain data as the JSON that is committed."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (plain data)
    """Read what `write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def differences(again: object, stored: object, where: str = "", tolerance: float = 1e-9) -> list[str]:
    """List where plain data differ from those stored, of which they may be a part; numbers by more than a share.

    A list may be the beginning of the one stored.

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

    ``module`` is the experiment's module where it is not called as its page is; ``quick`` says what a shortened run
    does; with ``figures`` the user has to say which of them to compute.
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
    """List the figures asked for, in their order; none with ``--page``."""
    return [figure for figure in figures if options.all or figure in (options.figure or ())]


def data_folder(options: argparse.Namespace, name: str) -> Path:
    """Return OUTPUT/NAME, where the JSON files and pictures lie; make it where something is computed."""
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
    """Compute what was asked for, each into its JSON file; ``shown`` writes the page and draws all that lie there."""
    folder, (page, draw) = data_folder(options, name), shown
    for figure in chosen_figures(options, figures):
        write_json(folder / f"{figure}.json", result_of(figure))
    text = page(folder)
    if not options.page:
        draw(folder)
    return finish(folder, text)


def finish(folder: Path, text: str, claims: Iterable[Claim] = ()) -> int:
    """Print one line a claim, write the page OUTPUT/NAME.md beside the folder OUTPUT/NAME of its data, and return 0."""
    for claim in claims:
        print(f"{'holds' if claim.holds else 'FAILS'}: {claim.statement} [{claim.measured}]")
    path = folder.with_name(f"{folder.name}.md")
    write_text(path, text)
    print(f"wrote {path}")
    return 0
