"""Say which aggregator to use, and how.

Every aggregator that applies is calibrated to one total budget and ranked by how often it is right, and the command for
the winner is printed.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from darrm.advise.advice import advise
from darrm.advise.other_way import QUANTITIES, affordable
from darrm.advise.report import json_report, text_report, wanted_report
from darrm.advise.sweep import Sweep, plot_sweep, sweep, sweep_json, sweep_text
from darrm.advise.tables import check_format, write_advice
from darrm.laws.priors import parsed
from darrm.optimize.report import fitted
from darrm.plan.families import FAMILIES, TESTED
from darrm.plan.report import plot_report
from darrm.plan.search import Plan
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.flags import add_prior, add_workload, prior_of, real, workload_of
from darrm.system.progress import interrupted_after, status_line

EPILOG = """\
examples:
  python -m darrm.advise --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5
  python -m darrm.advise --K 11 --epsilon 0.0892 --each-delta 1e-4 --overlap 1 --models --queries 100 --total 1,1e-4
  python -m darrm.advise --K 50 --voters plain --overlap 1 --classes 10 --queries 500 --total 2,1e-5

  python -m darrm.advise --K 250 --voters plain --overlap 1 --classes 10 --prior dirichlet:0.1 --total 2,1e-5 \\
    --right 0.9 --find queries

  python -m darrm.advise --K 250 --voters plain --overlap 1 --classes 10 --queries 500 --total 2,1e-5 \\
    --sweep 0.5,1,2,4,8 --plot sweep.png --output sweep.csv

A label is right if it is one of the classes with the most votes. Accuracy, for two classes, is one minus the expected
error under the prior: 1 for the majority itself. A coin has more than 1/2, because the error is a distance to the law
of the majority, which is half a coin itself where the voters are undecided."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.advise", description=str(__doc__), epilog=EPILOG)
    add_workload(parser)
    add_prior(parser, default="common; with more classes spread")
    other = parser.add_argument_group("the other way round")
    other.add_argument(
        "--right",
        metavar="SHARE",
        help="find how much affords this share of right labels, like 0.9, and advise on that; the search begins at "
        "what the other flags say",
    )
    other.add_argument(
        "--find",
        choices=tuple(QUANTITIES),
        help="with --right: the most queries (default), the fewest voters, or the least epsilon of the total",
    )
    other.add_argument(
        "--sweep",
        metavar="EPS,EPS,…",
        help="advise at each of these total epsilons instead of that of --total, side by side; --plot draws the curves",
    )
    made = "the options to FILE.json, a table of them to FILE.csv, or to FILE.tex for LaTeX's booktabs"
    add_outputs(parser, made=made, picture="the truth over l", absent=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, calibrate, rank, print."""
    options = build_parser().parse_args(arguments)
    if options.sweep is not None and options.right is not None:
        raise ValueError("--sweep goes through total epsilons, --right looks for what affords a share: say one of them")
    if options.find is not None and options.right is None:
        raise ValueError("--find says what is looked for with --right SHARE: say --right, too")
    check_outputs(options)
    check_format(options.output)
    workload = workload_of(options)
    workload = replace(workload, voters=fitted(workload.voters, workload.classes, quiet=options.quiet))
    limit = real("--time-limit", options.time_limit)
    with status_line(quiet=options.quiet) as line, interrupted_after(limit):
        families = None if options.votes_look_like is None else (*TESTED, *FAMILIES)
        prior = parsed(prior_of(options), workload.classes)
        if options.sweep is not None:
            epsilons = [text.strip() for text in options.sweep.split(",")]
            _write_sweep(
                options, sweep(workload, epsilons, prior=prior, families=families, report=line.show, stoppable=True)
            )
            return 0
        if options.right is not None:
            right, what = real("--right", options.right), options.find or "queries"
            workload = affordable(workload, right, what, prior=prior, report=line.show, stoppable=True)
        found = advise(workload, prior=prior, families=families, report=line.show, stoppable=True)
    if options.output is not None:
        write_advice(options.output, found)
    if options.plot is not None:
        plot_report(options.plot, Plan(found.workload, found.prior, found.options, ()))
    wanted = "" if options.right is None else wanted_report(workload, options.right, options.find or "queries")
    print_report(
        options, text=lambda: wanted + text_report(found, everything=options.all), document=lambda: json_report(found)
    )
    return 0


def _write_sweep(options: argparse.Namespace, found: Sweep) -> None:
    if options.output is not None:
        write_advice(options.output, found)
    if options.plot is not None:
        plot_sweep(options.plot, found)
    print_report(options, text=lambda: sweep_text(found), document=lambda: sweep_json(found))


if __name__ == "__main__":
    sys.exit(run(main))
