"""The front door: ``python -m darrm`` lists the commands, ``python -m darrm optimize …`` starts one of them.

Each command is the ``__main__`` of the package that does its work, so ``python -m darrm.optimize`` is the same program.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version

from darrm.system.command_line import complain, nearest, run

DOORS = {
    "optimize": "the best private noise function for a majority, with its proof",
    "plan": "the best release of many majority votes within one budget",
    "advise": "which aggregator to use: every option at one budget, ranked",
    "release": "private labels for a file of votes, paid for from a ledger",
    "account": "what a ledger has spent, or what queries with a table will cost",
    "verify": "what an auditor runs: a table, its ledger and its labels, claim by claim",
    "pate": "the privacy cost of a PATE run, and how to publish it",
}
HELP = "\n".join(
    [
        "usage: darrm COMMAND [--help | …]",
        "",
        "Private majority votes: optimal noise, proven private, released exactly and accounted for.",
        "",
        *(f"  {name:<10}{what}" for name, what in DOORS.items()),
        "",
        "darrm COMMAND --help says more; python -m darrm.COMMAND starts the same program.",
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
    if words[0] not in DOORS:
        hint = nearest(words[0], DOORS)
        return complain(f"there is no command {words[0]!r}{hint}: choose from {', '.join(DOORS)}", 2)
    door: Callable[[Sequence[str]], int] = import_module(f"darrm.{words[0]}.__main__").main
    return door(words[1:])


if __name__ == "__main__":
    sys.exit(main())
