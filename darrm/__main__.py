"""The command ``darrm``: a group that imports each command when it is named.

``darrm NAME`` and ``python -m darrm.NAME`` run the same program, the ``__main__`` of the package that does its work.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

import click
from click.shell_completion import shell_complete

from darrm.commands.command import Group, run_command
from darrm.commands.command_line import run

COMMANDS = {
    "optimize": "the best private noise function for a majority, with its proof",
    "plan": "the most accurate release of many votes within one budget",
    "release": "private labels for a file of votes, paid for from a ledger",
    "ledger": "make a ledger, move it, make a key that signs it",
    "account": "what a ledger has spent, or what queries with a table will cost",
    "serve": "one budget for clients on a network, who ask and vote over HTTP",
    "verify": "recompute what tables, ledgers and labels claim, for an auditor",
    "pate": "the privacy cost of a PATE run, and how to publish it",
    "show": "identify a table, plan, ledger, receipt or file of votes",
}
ABOUT = "Private majority votes: optimal noise, proven private, released exactly and accounted for."
EXAMPLES = """\
`darrm help COMMAND` explains a command, `darrm version` prints the version.
`python -m darrm.COMMAND` and `darrm COMMAND` run the same program.

Completion in a shell (bash, zsh or fish):
  eval "$(_DARRM_COMPLETE=bash_source darrm)"
"""
_COMPLETE = "_DARRM_COMPLETE"


class LazyGroup(Group):
    """A group whose commands are imported when they are used, not when they are listed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; `help COMMAND` and `version` are the options of these names."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click passes it)
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click passes it)
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"darrm.{cmd_name}.__main__")
        command = getattr(module, cmd_name, None)
        return command if isinstance(command, click.Command) else _wrap_program(cmd_name, module.main)

    def summary(self, ctx: click.Context, name: str) -> str:  # noqa: ARG002 (as above)
        """Say in a line what a command does, without importing it."""
        return COMMANDS[name]


def _wrap_program(name: str, start: Callable[[Sequence[str]], int]) -> click.Command:
    """Return a command that passes its words on to a program that parses them itself."""

    @click.command(
        name, add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def run_program(words: Sequence[str]) -> int:
        return start(list(words))

    return run_program


darrm = LazyGroup("darrm", help=ABOUT, examples=EXAMPLES)


def main(arguments: Sequence[str] | None = None) -> int:
    """List the commands, or run the one that is named; a shell asks for completions in a variable."""
    if arguments is None and (request := os.environ.get(_COMPLETE)):
        return run(lambda: shell_complete(darrm, {}, "darrm", _COMPLETE, request))
    return run_command(darrm, arguments)


if __name__ == "__main__":
    sys.exit(main())
