"""Find the best release of many majority votes within one total budget.

It tells the truth most often of what was found, it is proved, and the report says what the accountant will report for
all of it.
"""

import sys
from collections.abc import Sequence

from darrm.gamma import priors
from darrm.plan.report import json_report, plot_report, text_report
from darrm.plan.search import plan
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.flags import add_prior, add_workload, workload_of
from darrm.system.progress import status_line

EPILOG = """\
examples:
  python -m darrm.plan --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5 --output plan.json
  python -m darrm.plan --K 11 --epsilon 0.1 --each-delta 1e-5 --queries 100 --total 4,1e-2 --plot plan.png

The table that is written is released from like any other, with python -m darrm.release."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.plan", description=str(__doc__), epilog=EPILOG)
    add_workload(parser)
    add_prior(parser)
    add_outputs(parser, made="the winner's table, with its proof", picture="the truth over l")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, plan, print or save."""
    options = build_parser().parse_args(arguments)
    check_outputs(options)
    prior = priors.parse(options.prior)
    with status_line(quiet=options.quiet) as line:
        found = plan(workload_of(options), prior=prior, report=line.show)
    if options.output is not None:
        found.table.save(options.output)
    if options.plot is not None:
        plot_report(options.plot, found)
    print_report(
        options,
        text=lambda: text_report(found, options.output),
        document=lambda: json_report(found, options.output),
    )
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
