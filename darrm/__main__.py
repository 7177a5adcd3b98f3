"""The front door: ``python -m darrm`` lists the commands, ``python -m darrm optimize …`` starts one of them.

Each command is the ``__main__`` of the package that does its work, so ``python -m darrm.optimize`` is the same program.
What a shell completes, and the manual page, are made from the commands' own parsers.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from darrm.errors import checks
from darrm.system.command_line import complain, nearest, run
from darrm.system.extras import require

DOORS = {
    "optimize": "the best private noise function for a majority, with its proof",
    "plan": "the best release found for many majority votes within one budget",
    "advise": "which aggregator to use: every option at one budget, ranked",
    "release": "private labels for a file of votes, paid for from a ledger",
    "account": "what a ledger has spent, or what queries with a table will cost",
    "serve": "one budget for clients on a network, who ask and vote over HTTP",
    "verify": "what an auditor runs: a table, its ledger and its labels, claim by claim",
    "pate": "the privacy cost of a PATE run, and how to publish it",
}
ABOUT = "Private majority votes: optimal noise, proven private, released exactly and accounted for."
SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")
HELP = "\n".join(
    [
        "usage: darrm COMMAND [--help | …]",
        "",
        ABOUT,
        "",
        *(f"  {name:<10}{what}" for name, what in DOORS.items()),
        "",
        "darrm COMMAND --help says more; python -m darrm.COMMAND starts the same program.",
        f"darrm --print-completion SHELL prints what completes them in {', '.join(SHELLS)} (needs shtab).",
        "",
    ]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """List the commands, or start the one that is named; the import is inside, so that its interrupt is one line."""
    return run(lambda: start(arguments))


def start(arguments: Sequence[str] | None) -> int:
    """Do what `main` says, with the exceptions of the command that is named."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in {"-h", "--help"}:
        sys.stdout.write(HELP)
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"darrm {version('darrm')}\n")
        return 0
    if words[0] == "--print-completion":
        sys.stdout.write(completion(*words[1:2]) + "\n")
        return 0
    if words[0] not in DOORS:
        hint = nearest(words[0], DOORS)
        return complain(f"there is no command {words[0]!r}{hint}: choose from {', '.join(DOORS)}", 2)
    door: Callable[[Sequence[str]], int] = import_module(f"darrm.{words[0]}.__main__").main
    return door(words[1:])


def completion(shell: str = "") -> str:
    """Write the script that completes ``darrm`` in a shell: its commands, their flags, choices and files."""
    if shell not in SHELLS:
        checks.fail("--print-completion", shell, f"one of {', '.join(SHELLS)}", "put its output where your shell looks")
    shtab = require("shtab")
    return str(shtab.complete(build_parser(files=shtab.FILE), shell=shell))


def build_parser(files: object = None) -> argparse.ArgumentParser:
    """Put the parsers of all commands into one; ``files`` is what `shtab` completes arguments that are files with."""
    parser = argparse.ArgumentParser(prog="darrm", description=ABOUT)
    parser.add_argument("--version", action="version", version=f"darrm {version('darrm')}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, what in DOORS.items():
        door = import_module(f"darrm.{name}.__main__").build_parser()
        for action in actions_of(door):
            if action.type is Path:
                action.complete = files  # type: ignore[attr-defined]
        commands.add_parser(
            name,
            parents=[door],
            add_help=False,
            help=what,
            description=door.description,
            epilog=door.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    return parser


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """List the arguments of a command, and those of its jobs."""
    own = list(parser._actions)  # noqa: SLF001 (there is no other way to list them)
    jobs = [job for action in own if isinstance(action.choices, dict) for job in action.choices.values()]
    return own + [action for job in jobs for action in actions_of(job)]


if __name__ == "__main__":
    sys.exit(main())
