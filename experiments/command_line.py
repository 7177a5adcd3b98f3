"""The argument parser of the experiments."""

import argparse
from typing import NoReturn


class CommandLine(argparse.ArgumentParser):
    """An argument parser that accepts no abbreviated options and raises `ValueError` for bad arguments.

    `darrm.commands.command_line.run` prints the error as one line.
    """

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise `ValueError` instead of printing the usage and exiting."""
        raise ValueError(f"{message}: see {self.prog} --help")
