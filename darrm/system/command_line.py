"""What every command line shares: one clear line on standard error and exit status 2 for bad input.

>>> parser = CommandLine(prog="example", description="An example.")
>>> _ = parser.add_argument("--K", type=int)
>>> run(lambda: parser.parse_args(["--L", "3"]) and 0)
2
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import NoReturn

from darrm.errors import DarrmError
from darrm.system.extras import require
from darrm.system.files import check_parent

USAGE_STATUS = 2
INTERRUPTED_STATUS = 130


class CommandLine(argparse.ArgumentParser):
    """An argument parser whose errors are `ValueError` with one line, and which never abbreviates flags."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument("--version", action="version", version=f"darrm {distribution_version('darrm')}")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise ValueError(f"{message}: see {self.prog} --help")


def add_outputs(parser: CommandLine, *, table: str, picture: str) -> None:
    """Add the flags of a command that makes a table: where it goes, a picture, and the report's format.

    ``table`` and ``picture`` end the help lines.
    """
    group = parser.add_argument_group("the output")
    group.add_argument("--output", type=Path, metavar="FILE.json", help=f"write {table}, with its proof")
    group.add_argument("--plot", type=Path, metavar="FILE.png", help=f"draw {picture} (needs matplotlib)")
    group.add_argument("--format", default="text", choices=("text", "json"), help="of the report (default text)")
    group.add_argument("--quiet", action="store_true", help="no text report and no progress line")


def check_outputs(options: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    for path in (options.output, options.plot):
        if path is not None:
            check_parent(path)
    if options.plot is not None:
        require("matplotlib")


class StatusLine:
    """One line on standard error, rewritten as work goes on, and wiped at the end."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.width = 0

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self.enabled:
            self.width = max(self.width, len(text))
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()

    def close(self) -> None:
        """Wipe the line."""
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()


def run(main: Callable[[], int]) -> int:
    """Call ``main`` and return its exit status; turn expected errors into one line and status 2."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader (head, less) has gone: point stdout elsewhere so that the interpreter's own flush is silent
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED_STATUS)
    except (ValueError, OSError, DarrmError) as error:
        return complain(str(error), USAGE_STATUS)
    return status


def complain(message: str, status: int) -> int:
    """Print one line on standard error and return ``status``."""
    line = " ".join(message.split())
    sys.stderr.write(f"error: {line}\n")
    return status
