"""Say which aggregator to use, and how.

Every aggregator that applies is calibrated to one total budget and ranked by how often it is right, and the command for
the winner is printed.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from darrm.advise.advice import advise
from darrm.advise.report import json_report, text_report
from darrm.laws.priors import parsed
from darrm.optimize.report import fitted
from darrm.plan.families import FAMILIES, TESTED
from darrm.system.command_line import CommandLine, add_outputs, print_report, run
from darrm.system.flags import add_prior, add_workload, prior_of, workload_of
from darrm.system.progress import status_line

EPILOG = """\
examples:
  python -m darrm.advise --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5
  python -m darrm.advise --K 11 --epsilon 0.0892 --each-delta 1e-4 --overlap 1 --models --queries 100 --total 1,1e-4
  python -m darrm.advise --K 50 --voters plain --overlap 1 --classes 10 --queries 500 --total 2,1e-5

A label is right if it is one of the classes with the most votes. Accuracy, for two classes, is one minus the expected
error under the prior: 1 for the majority itself. A coin has more than 1/2, because the error is a distance to the law
of the majority, which is half a coin itself where the voters are undecided."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.advise", description=str(__doc__), epilog=EPILOG)
    add_workload(parser)
    add_prior(parser, default="common; with more classes dirichlet, or dirichlet:0.1 for voters that agree more")
    add_outputs(parser, absent=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, calibrate, rank, print."""
    options = build_parser().parse_args(arguments)
    workload = workload_of(options)
    workload = replace(workload, voters=fitted(workload.voters, workload.classes, quiet=options.quiet))
    with status_line(quiet=options.quiet) as line:
        families = None if options.votes_look_like is None else (*TESTED, *FAMILIES)
        prior = parsed(prior_of(options), workload.classes)
        found = advise(workload, prior=prior, families=families, report=line.show)
    print_report(options, text=lambda: text_report(found, everything=options.all), document=lambda: json_report(found))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
