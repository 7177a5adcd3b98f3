"""Write the pages under docs/reproduction: templates, files and options of all experiments.

An experiment NAME writes its numbers to OUTPUT/NAME/*.json, and its pictures to the same folder. It writes the page
OUTPUT/NAME.md from the JSON files alone, so a test can write the page again and compare. The text of a page is its
jinja2 template, docs/reproduction/NAME/page.md.j2. In a template,

    {{ name.of.value | f(".3f") }}    formats a value: None as –, a list with commas, a bool as yes or **no**

A claim is a row of a table with the header `CLAIMS`: a statement, whether the measurement supports it, and the
measurement.
"""

import argparse
import json
import math
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from darrm.util.figures import Axes
from darrm.util.files import write_text

Row = dict[str, Any]  # plain data
TEMPLATES = Path(__file__).parents[1] / "docs" / "reproduction"
CLAIMS = "| claim | holds | measured |"


@dataclass(frozen=True)
class Claim:
    """A claim whose text depends on the data; the templates have the other claims."""

    statement: str
    measured: str
    holds: bool


def format_table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table.

    >>> print(format_table(["m", "error"], [[1, "0.13"], [3, "–"]]))
    | m | error |
    |---|---|
    | 1 | 0.13 |
    | 3 | – |
    """
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def format_bold(numbers: Mapping[str, float], names: Sequence[str]) -> list[str]:
    """Write the cells of numbers by name, with the largest in bold.

    >>> format_bold({"a": 0.5, "b": 0.25}, ["a", "b", "c"])
    ['**0.5000**', '0.2500', '–']
    """
    bold_limit = max(numbers.values()) - 5e-5
    texts = {name: f"**{value:.4f}**" if value >= bold_limit else f"{value:.4f}" for name, value in numbers.items()}
    return [texts.get(name, "–") for name in names]


class _Missing(StrictUndefined):
    """A name that is missing in the data: false in a condition, an error elsewhere."""

    def __bool__(self) -> bool:  # type: ignore[override]  # the base class never returns
        return False


def format_value(value: object, form: str = "") -> object:
    """Write a value in a format; the module docstring describes missing values, lists and bools.

    >>> format_value([1000, None], ","), format_value(False), format_value(0.25, ".1%")
    ('1,000, –', '**no**', '25.0%')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, list | tuple):
        return ", ".join(str(format_value(entry, form)) for entry in value)
    return format(value, form) if form else value


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=select_autoescape(),  # HTML only; Markdown is not escaped
    undefined=_Missing,
    finalize=format_value,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["f"] = format_value


def fill_template(name: str, *data: Mapping[str, Any], template: str = "page") -> str:
    """Fill a template of the experiment ``name``; the first of the ``data`` with a name supplies it."""
    text = _ENVIRONMENT.get_template(f"{name}/{template}.md.j2").render(ChainMap(*map(dict, data)))
    return text.rstrip("\n") + "\n"


def set_log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Make the x-axis logarithmic, with these ticks, and draw a grid."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.xaxis.minorticks_off()
    axes.grid(alpha=0.3)


def write_json(path: Path, data: object) -> None:
    """Write plain data as JSON, in the format of the committed files."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (plain data)
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def list_differences(data: object, stored: object, where: str = "", tolerance: float = 1e-9) -> list[str]:
    """List the differences between plain data and stored data; numbers may differ by a relative tolerance.

    The data may have fewer keys, or shorter lists, than the stored data.

    >>> list_differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.5], "b": 1})
    ['.a.1: 2.0 is stored as 2.5']
    """
    if isinstance(data, Mapping) and isinstance(stored, Mapping):
        pairs = [(key, value, stored.get(key)) for key, value in data.items()]
    elif isinstance(data, list | tuple) and isinstance(stored, list) and len(data) <= len(stored):
        pairs = [(str(place), *pair) for place, pair in enumerate(zip(data, stored, strict=False))]
    elif isinstance(data, int | float) and isinstance(stored, int | float):
        is_close = math.isclose(data, stored, rel_tol=tolerance)
        return [] if is_close else [f"{where}: {data} is stored as {stored}"]
    else:
        return [] if data == stored else [f"{where}: {data} is stored as {stored}"]
    return [
        line for key, value, target in pairs for line in list_differences(value, target, f"{where}.{key}", tolerance)
    ]


def recompute(folder: Path, ending: str, compute: Callable[[Path, Row], Row]) -> int:
    """Compute every NAME.json again from its raw file, NAME + ``ending``; return 1 if a number differs.

    `ValueError` if the folder has no raw files.
    """
    paths, num_differences = sorted(folder.glob(f"*{ending}")), 0
    if not paths:
        raise ValueError(
            f"{str(folder)!r} holds no *{ending} to count again from: the folder docs/reproduction has them"
        )
    for path in paths:
        stored = read_json(folder / f"{path.name.removesuffix(ending)}.json")
        lines = list_differences(compute(path, stored), stored)
        num_differences += len(lines)
        print("\n".join([f"{path.stem}: {len(lines)} figures differ", *lines]))
    return int(num_differences > 0)


class CommandLine(argparse.ArgumentParser):
    """An argument parser without abbreviated options that raises `ValueError` for bad arguments.

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


def make_command_line(
    name: str,
    description: str | None,
    *,
    module: str | None = None,
    quick: str | None = None,
    figures: Sequence[str] | None = None,
) -> CommandLine:
    """Make the command line of an experiment that writes the page ``name``.

    ``module`` is the argument of ``python -m`` (default ``experiments NAME``), ``quick`` the help of ``--quick``, and
    ``figures`` are the values of ``--figure``.
    """
    parser = CommandLine(module or f"experiments {name}", description)
    parser.add_argument(
        "--recompute", dest="page", action="store_false", help="measure again; without it, the page alone is written"
    )
    if figures is not None:
        parser.add_argument("--figure", choices=figures, action="append", help="compute this one only; repeatable")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    output_help = f"for the page FOLDER/{name}.md and its data FOLDER/{name}/ (default docs/reproduction)"
    parser.add_argument("--output", type=Path, default=TEMPLATES, metavar="FOLDER", help=output_help)
    return parser


def select_figures(options: argparse.Namespace, figures: Iterable[str]) -> list[str]:
    """Return the figures to compute, in order: the selected ones, or all; none without ``--recompute``."""
    return [] if options.page else [figure for figure in figures if figure in (options.figure or figures)]


def prepare_folder(options: argparse.Namespace, name: str) -> Path:
    """Return OUTPUT/NAME, the folder of JSON files and pictures; create it for a measurement.

    `ValueError` if a short run would replace the published data.
    """
    folder = Path(options.output / name)
    if not options.page:
        if getattr(options, "quick", False) and folder.parent.resolve() == TEMPLATES:
            raise ValueError("a short run does not replace the data in docs/reproduction: choose --output FOLDER")
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def read_results(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Read the existing NAME.json files; `ValueError` if there are none."""
    paths = {name: folder / f"{name}.json" for name in names}
    results = {name: read_json(path) for name, path in paths.items() if path.is_file()}
    if not results:
        raise ValueError(f"{folder} holds no results: measure them with --recompute")
    return results


Draw = Callable[[Path, Any], None]  # the data folder, and the data of its JSON files


def run_figures(
    options: argparse.Namespace,
    name: str,
    figures: Iterable[str],
    measure: Callable[[str], Any],
    page: Callable[[dict[str, Any]], str],
    draw: Draw,
    earlier: Sequence[str] = (),
) -> int:
    """Compute the selected figures, each into a JSON file; draw, and write the page, from all stored figures.

    ``earlier`` names JSON files of an earlier version of the library; only the page uses them.
    """
    folder = prepare_folder(options, name)
    for figure in select_figures(options, figures):
        write_json(folder / f"{figure}.json", measure(figure))
    results = read_results(folder, figures)
    if not options.page:
        draw(folder, results)
    return write_page(folder, page(results | read_results(folder, [*figures, *earlier])))


def run_measurement(
    options: argparse.Namespace,
    path: str,
    measure: Callable[[], Any],
    page: Callable[[Any], str],
    draw: Draw | None = None,
) -> int:
    """With ``--recompute``, measure into ``path``, NAME/FILE.json, and draw; then write the page from the file."""
    name, _, file = path.partition("/")
    folder = prepare_folder(options, name)
    if not options.page:
        write_json(folder / file, measure())
    data = read_json(folder / file)
    if draw is not None and not options.page:
        draw(folder, data)
    return write_page(folder, page(data))


def read_claims(page: str) -> list[tuple[str, bool, str]]:
    r"""Read the claims on a page: the statement, whether it holds, and the measurement.

    >>> read_claims(f"{CLAIMS}\n|---|---|---|\n| 1 < 2 | yes | 1 |\n\n| a | b |")
    [('1 < 2', True, '1')]
    """
    tables = page.split(f"{CLAIMS}\n|---|---|---|\n")[1:]
    rows = [row.strip("| ").split(" | ") for table in tables for row in table.split("\n\n")[0].splitlines()]
    return [(statement, holds == "yes", " | ".join(measured)) for statement, holds, *measured in rows]


def write_page(folder: Path, page: str) -> int:
    """Print one line per claim, write the page OUTPUT/NAME.md next to the data folder OUTPUT/NAME, and return 0."""
    for statement, holds, measured in read_claims(page):
        print(f"{'holds' if holds else 'FAILS'}: {statement} [{measured}]")
    path = folder.with_name(f"{folder.name}.md")
    write_text(path, page)
    print(f"wrote {path}")
    return 0
