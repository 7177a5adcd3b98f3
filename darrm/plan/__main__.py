"""Find how to release many votes on two or more classes within one total budget.

It tells the truth most often of what was found, it is proved, and the report says what the accountant will report for
all of it.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from darrm.laws.priors import parsed
from darrm.optimize.report import fitted
from darrm.plan.families import FAMILIES, TESTED, named
from darrm.plan.report import json_report, plot_report, text_report
from darrm.plan.search import plan
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.flags import add_prior, add_workload, prior_of, real, workload_of
from darrm.system.progress import interrupted_after, status_line

EPILOG = """\
examples:
  python -m darrm.plan --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5 --output plan.json
  python -m darrm.plan --K 11 --epsilon 0.1 --each-delta 1e-5 --queries 100 --total 4,1e-2 --plot plan.png
  python -m darrm.plan --K 50 --voters plain --overlap 1 --classes 10 --queries 500 --total 2,1e-5 --output plan.json
  python -m darrm.plan --K 250 --voters plain --overlap 1 --classes 10 --queries 400 --total 2,1e-5 \\
    --votes-look-like PUBLIC.csv --output run.json

What is written is released from like any other, with python -m darrm.release."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.plan", description=str(__doc__), epilog=EPILOG)
    add_workload(parser)
    add_prior(parser, default="common; with more classes spread")
    parser.add_argument("--family", metavar="NAME", help="plan with one family only, like 'permute-and-flip'")
    made = "what releases the winner: a table with its proof, or a mechanism"
    add_outputs(parser, made=made, picture="the truth over l", absent=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, plan, print or save."""
    options = build_parser().parse_args(arguments)
    check_outputs(options)
    workload = workload_of(options)
    workload = replace(workload, voters=fitted(workload.voters, workload.classes, quiet=options.quiet))
    prior = parsed(prior_of(options), workload.classes)
    families = None if options.family is None else [named(options.family)]
    if options.votes_look_like is not None and families is None:
        families = [*TESTED, *(family for family in FAMILIES if family.planned)]
    limit = real("--time-limit", options.time_limit)
    with status_line(quiet=options.quiet) as line, interrupted_after(limit):
        found = plan(workload, prior=prior, families=families, report=line.show, stoppable=True)
    if options.output is not None:
        found.save(options.output)
    if options.plot is not None:
        plot_report(options.plot, found)
    print_report(
        options,
        text=lambda: text_report(found, options.output, everything=options.all),
        document=lambda: json_report(found, options.output),
    )
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
