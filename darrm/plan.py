"""Command line: find the best release of many majority votes within one budget.

python -m darrm.plan --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5 --output plan.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from darrm.commands import CommandLine, StatusLine, run
from darrm.extras import require
from darrm.files import check_parent
from darrm.gamma import priors
from darrm.plan_report import json_report, plot_report, text_report
from darrm.planning import plan
from darrm.workload_options import add_workload, workload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTION = """\
Find the release of many majority votes that stays within one total budget and tells the truth most often, prove it,
and say what the accountant will report for all of it."""

EPILOG = """\
examples:
  python -m darrm.plan --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5 --output plan.json
  python -m darrm.plan --K 11 --epsilon 0.1 --each-delta 1e-5 --queries 100 --total 4,1e-2 --plot plan.png

The table that is written is released from like any other, with python -m darrm.release."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.plan", description=DESCRIPTION, epilog=EPILOG)
    add_workload(parser)
    parser.add_argument(
        "--prior",
        default="common",
        metavar="PRIOR",
        help="what is publicly believed about the voters: common (one p for all, the default), uniform, "
        "uniform:LOW,HIGH or point:P",
    )
    output = parser.add_argument_group("the output")
    output.add_argument("--output", type=Path, metavar="FILE.json", help="write the winner's table, with its proof")
    output.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the truth over l (needs matplotlib)")
    output.add_argument("--format", default="text", choices=("text", "json"), help="of the report (default text)")
    output.add_argument("--quiet", action="store_true", help="no text report")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, plan, print or save."""
    options = build_parser().parse_args(arguments)
    for path in (options.output, options.plot):
        if path is not None:
            check_parent(path)
    if options.plot is not None:
        require("matplotlib")  # before the work, not after it
    work, prior = workload_of(options), priors.parse(options.prior)
    line = StatusLine(enabled=not options.quiet and sys.stderr.isatty())
    found = plan(work.K, work.each, work.overlap, work.queries, total=work.total, prior=prior, report=line.show)
    line.close()
    if options.output is not None:
        found.table.save(options.output)
    if options.plot is not None:
        plot_report(options.plot, found)
    if options.format == "json":
        sys.stdout.write(json.dumps(json_report(found, options.output), indent=1, ensure_ascii=False) + "\n")
    elif not options.quiet:
        sys.stdout.write(text_report(found, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
