"""What every command line shares: one clear line on standard error and exit status 2 for bad input.

>>> parser = CommandLine(prog="example", description="An example.", renamed={"--voters-count": "--K"})
>>> _ = parser.add_argument("--K", type=int)
>>> run(lambda: parser.parse_args(["--L", "3"]) and 0)
2
"""

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_CEILING, Context, Decimal
from difflib import get_close_matches
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from darrm.errors import DarrmError, checks
from darrm.system.extras import require
from darrm.system.files import check_parent, is_same_file

USAGE_STATUS = 2
INTERRUPTED_STATUS = 130
_FLAG = re.compile(r"(--|[-–—])[A-Za-z][-\w]*")
# control characters but line breaks, and those that turn the direction of writing
_OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_MOST_CHARACTERS = 1000  # of a line on standard error: what was typed, or what a file holds, may be long


class CommandLine(argparse.ArgumentParser):
    """An argument parser whose errors are `ValueError` with one line, and which never abbreviates flags.

    ``renamed`` names what old flags are called now: using one says so.
    """

    def __init__(
        self, *, prog: str, description: str, epilog: str | None = None, renamed: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.renamed = dict(renamed or {})
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")  # a value, also -1,1 and -1e-5, as in Python 3.14
        self.add_argument("--version", action="version", version=f"darrm {distribution_version('darrm')}")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse the old names of flags, and those that are none, before the others are read."""
        for word in sys.argv[1:] if args is None else args:
            flag = word.partition("=")[0]
            if flag in self.renamed:
                raise ValueError(f"{flag} is now {self.renamed[flag]}: see {self.prog} --help")
            if _FLAG.fullmatch(flag) and flag not in self._option_string_actions:
                raise ValueError(f"there is no flag {flag}{nearest(flag, self._option_string_actions)}: {self._help}")
        options, surplus = super().parse_known_args(args, namespace)
        if surplus:
            raise ValueError(
                f"{surplus[0]!r} is one word too many: a value follows its flag, one word each: {self._help}"
            )
        return options, surplus

    @property
    def _help(self) -> str:
        return f"see {self.prog} --help"

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise ValueError(f"{message}: {self._help}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return, in parentheses, the known words that were probably meant; or nothing.

    >>> nearest("--eps", ["--epsilon", "--each-delta"]), nearest("--k", ["--K", "--m"]), nearest("--xyz", ["--K"])
    (' (did you mean --epsilon?)', ' (did you mean --K?)', '')
    """
    names = {name: name.strip("-").lower() for name in known}
    key = word.strip("-–—").lower()  # a word processor makes dashes of hyphens
    meant = [name for name, small in names.items() if small == key]
    meant = meant or [name for name, small in names.items() if len(key) > 1 and small.startswith(key)]
    meant = meant or [
        name for name, small in names.items() if small in get_close_matches(key, names.values(), cutoff=0.75)
    ]
    return f" (did you mean {' or '.join(meant)}?)" if meant else ""


def add_jobs(parser: CommandLine, jobs: Mapping[str, str], build: Callable[[str], CommandLine]) -> CommandLine:
    """Add a sub-command for each job of a door, by its name and what it does; ``build`` describes its command line."""
    added = parser.add_subparsers(metavar="JOB", parser_class=argparse.ArgumentParser)
    for name, what in jobs.items():
        one = build(name)
        added.add_parser(name, parents=[one], add_help=False, help=what, formatter_class=one.formatter_class)
    return parser


def add_outputs(
    parser: argparse.ArgumentParser, *, made: str | None = None, picture: str | None = None, absent: bool = False
) -> None:
    """Add the flags of what comes out: the file that is made, a picture, and what is printed.

    ``made`` and ``picture`` end the help lines; None leaves the flag out. ``absent`` adds that of what does not apply.
    """
    group = parser.add_argument_group("the output")
    if made is not None:
        group.add_argument("--output", type=Path, metavar="FILE", help=f"write {made}")
    if picture is not None:
        group.add_argument("--plot", type=Path, metavar="FILE.png", help=f"draw {picture} (needs matplotlib)")
    group.add_argument("--format", default="text", choices=("text", "json"), help="what is printed (default text)")
    if absent:
        group.add_argument("--all", action="store_true", help="say of everything that does not apply why, too")
    group.add_argument("--quiet", action="store_true", help="no text report and no progress line")


def check_outputs(options: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it, or would destroy another file of the command.

    >>> check_outputs(argparse.Namespace(table=Path("t.json"), output=Path("./t.json")))
    Traceback (most recent call last):
    ...
    ValueError: --output must be a file of its own, got 't.json': it would overwrite table; name another file
    """
    files = {name: path for name, path in vars(options).items() if isinstance(path, Path)}
    for name in ("output", "plot", "exact"):
        path = files.pop(name, None)
        if path is None:
            continue
        check_parent(path)
        for other, taken in files.items():
            if is_same_file(path, taken):
                advice = f"it would overwrite {other}; name another file"
                checks.fail(f"--{name}", str(path), "a file of its own", advice)
    if getattr(options, "plot", None) is not None:
        formats = require("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
        if options.plot.suffix.lower().removeprefix(".") not in formats:
            checks.fail("--plot", str(options.plot), "a file whose name ends in .png, .pdf or .svg")


def print_report(options: argparse.Namespace, *, text: Callable[[], str], document: Callable[[], object]) -> None:
    """Print a report as ``--format`` and ``--quiet`` ask for: a person's text, or plain data as JSON."""
    if options.format == "json":
        sys.stdout.write(harmless(json.dumps(document(), indent=1, ensure_ascii=False)) + "\n")
    elif not options.quiet:
        sys.stdout.write(harmless(text()))


def harmless(text: str) -> str:
    r"""Spell out what a terminal would obey, not show: a file may hold it, and nobody looked at it.

    Escapes are those of JSON, so that plain data stay the same data.

    >>> harmless("paid\x1b[2J\n") == "paid" + chr(92) + "u001b[2J\n"
    True
    """
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def run(main: Callable[[], int]) -> int:
    """Call ``main`` and return its exit status; turn expected errors into one line and status 2, warnings into one."""
    if sys.stdout is None:  # a shell's >&-
        return complain("standard output is closed: send it to a file, or to /dev/null", USAGE_STATUS)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]  # the rest of its arguments is not shown
            status = main()
            sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has gone
        _settle_output()
        return 0
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED_STATUS)
    except MemoryError:
        return complain("out of memory: ask for less at once", USAGE_STATUS)
    except (ValueError, OSError, DarrmError, UserWarning) as error:
        _settle_output()
        return complain(_about_file(error) if isinstance(error, OSError) else str(error), USAGE_STATUS)
    return status


def _about_file(error: OSError) -> str:
    if error.filename is None:
        return str(error)
    return f"{str(error.filename)!r}: {error.strerror}: check its name, its folder and their permissions"


def complain(message: str, status: int, kind: str = "error") -> int:
    """Print one line on standard error and return ``status``."""
    line = harmless(" ".join(message.split()))
    line = line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"{kind}: {line}\n")
    return status


def _show_warning(message: Warning | str, *_: object) -> None:
    complain(str(message), 0, "warning")


def _settle_output() -> None:
    """Point an output that takes nothing more elsewhere, so that the interpreter's own flush is silent."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def numbered(count: int, one: str, many: str) -> str:
    """Write a number with the words for one, or for many.

    >>> numbered(1, "query is", "queries are"), numbered(2000, "query is", "queries are")
    ('1 query is', '2,000 queries are')
    """
    return f"{count:,} {one if count == 1 else many}"


def rounded_up(number: float | Decimal, digits: int) -> Decimal:
    """Round a number up to so many digits, as one that was proved or is needed is shown.

    >>> [str(rounded_up(number, 2)) for number in (0.000721, 3.398, 12.1)], f"{rounded_up(1234.0, 2):f}"
    (['0.00073', '3.4', '13'], '1300')
    """
    return Decimal(number).normalize(Context(prec=digits, rounding=ROUND_CEILING))


def spread(count: int, most: int) -> list[int]:
    """Choose at most so many of the places 0 … count − 1 to show, evenly, the first and the last among them.

    >>> spread(5, 8), spread(100, 4)
    ([0, 1, 2, 3, 4], [0, 33, 66, 99])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def absences(absent: Sequence[tuple[str, str]], *, everything: bool) -> list[str]:
    """Write why what is absent from a table does not apply, line by line; unless asked for, how many there are.

    >>> absences([("LNMax", "delta is 0"), ("GNMax", "delta is 0")], everything=False)
    ['  2 more do not apply: --all says why']
    """
    if everything or not absent:
        return [f"  {name} does not apply: {reason}" for name, reason in absent]
    return [f"  {len(absent)} more {'does' if len(absent) == 1 else 'do'} not apply: --all says why"]


def level_table(
    levels: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]], *, width: int, most: int, elsewhere: str
) -> str:
    """Tabulate functions of l in at most so many lines; ``elsewhere`` names what shows all."""
    chosen = spread(len(levels), most)
    lines = [f"{'l':>8}" + "".join(f"{name:>{width}}" for name in columns)]
    lines += [f"{levels[i]:>8}" + "".join(f"{values[i]:>{width}.4f}" for values in columns.values()) for i in chosen]
    if len(chosen) < len(levels):
        lines.append(f"  ({len(chosen)} of {len(levels)} lines shown; {elsewhere} has all)")
    return "\n".join(lines)
