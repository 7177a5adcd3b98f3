"""Command line: the best private noise function for a majority, with its proof.

python -m darrm.optimize --K 11 --m 3
"""

import argparse
import sys
from collections.abc import Sequence

from darrm.errors import checks
from darrm.laws import priors
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.plurality_report import PluralityReport
from darrm.optimize.question import SOLVERS
from darrm.optimize.report import GammaReport, Report, fitted
from darrm.optimize.rounding import least_error
from darrm.problem import Problem, Voters, is_law_a_gamma
from darrm.proof.loops import advice
from darrm.proof.optimality import OBJECTIVES, SHAPES
from darrm.proof.table import Table
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.flags import (
    add_classes,
    add_prior,
    add_voters,
    integer,
    number_of_classes,
    privacy_pair,
    real,
    voters_of,
)
from darrm.system.progress import status_line
from lp_models.options import SolveOptions

DESCRIPTION = """\
Find the noise function γ with which the majority of K private voters is released as truthfully as its privacy
target allows, prove that it is private, and compare it with subsampling and randomized response. For more classes
find the best private plurality, with its proof."""

EPILOG = """\
examples:
  python -m darrm.optimize --K 11 --m 3 --output table.json --plot gamma.png
  python -m darrm.optimize --K 101 --m 10 --prior common --shape monotone
  python -m darrm.optimize --K 250 --voters plain --target 0.5,1e-6 --overlap 1
  python -m darrm.optimize --epsilon 0.02,0.05,0.1,0.1,0.5 --each-delta 1e-6 --target 0.5,1e-4
  python -m darrm.optimize --K 7 --epsilon 0.1 --classes 5 --m 3
  python -m darrm.optimize --K 30 --classes 3 --voters plain --target 0.5,1e-5 --overlap 1

The free optimum often rises and falls near the tie: privacy limits averages of γ, and a γ that switches between
1 and 0 has the same average as one that rises gently. Choose --shape monotone where every l must make sense by
itself; it costs a few per cent of expected error."""

# flags about γ, which more than two classes do not have, beside those that `optimize_table` refuses
_ABOUT_GAMMA = ("plot", "all", "missing")


def build_parser() -> CommandLine:
    """Describe the command line."""
    gone = {
        "--exact": "gone (a table proves its own optimum to within --gap)",
        "--total": "a flag of python -m darrm.plan, for many queries: here it is --target EPS,DELTA of one",
    }
    parser = CommandLine(prog="python -m darrm.optimize", description=DESCRIPTION, epilog=EPILOG, renamed=gone)
    add_voters(parser)
    release = parser.add_argument_group("what is released")
    release.add_argument("--m", metavar="REAL", help="privacy allowance of private voters, 1 <= m <= K (default 3)")
    release.add_argument("--delta", metavar="REAL", help="δ of the release (default 1 - (1 - Δ)^m)")
    release.add_argument(
        "--target", metavar="EPS,DELTA", help="what the release must satisfy, instead of --m and --delta"
    )
    add_classes(release, "the answers a voter chooses from, or how many (default 2)", "2")
    release.add_argument(
        "--missing", metavar="INT", help="also say what becomes of the labels where up to so many votes are missing"
    )
    add_prior(parser, default="depends on --objective; with more classes dirichlet")
    search = parser.add_argument_group("the search")
    search.add_argument(
        "--objective",
        default="linear",
        choices=OBJECTIVES,
        help="linear (default; the paper's surrogate), or expected-error: with its absolute value, over draws of the "
        "prior, which may then lie on both sides of 1/2",
    )
    search.add_argument(
        "--draws", metavar="INT", help="draws fitted by --objective expected-error (default 20000, fewer for large K)"
    )
    search.add_argument(
        "--shape",
        choices=SHAPES,
        help="free (default), or monotone: more votes, more truth (default, and the only one, where voters differ)",
    )
    search.add_argument(
        "--solver", default="production", choices=SOLVERS, help="reference writes every row down, in cvxpy"
    )
    search.add_argument(
        "--time-limit",
        default="inf",
        metavar="SECONDS",
        help="stop the search with the best γ so far (default inf); its proof comes on top",
    )
    search.add_argument(
        "--gap", default="1e-9", metavar="RELATIVE", help="relative optimality gap to reach (default 1e-9)"
    )
    add_outputs(parser, made="the table, with its proof", picture="γ over l", absent=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, optimize, print or save."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    check_outputs(options)
    classes, voters = number_of_classes(options.classes), voters_of(options)
    for flag in () if is_law_a_gamma(classes) else _ABOUT_GAMMA:
        if getattr(options, flag) != parser.get_default(flag):
            raise ValueError(f"--{flag} is about two classes: leave it out with --classes {classes}")
    problem = _problem(options, fitted(voters, classes, quiet=options.quiet), classes)
    prior = priors.parsed(options.prior, classes)
    if options.draws is not None and options.objective == "linear":
        raise ValueError("--draws is about --objective expected-error: the linear objective needs none")
    missing = _numbers_missing(options, voters.K)
    with status_line(quiet=options.quiet) as line:
        table = optimize_table(
            problem,
            prior=prior,
            shape=options.shape,
            objective=options.objective,
            solver=options.solver,
            draws=None if options.draws is None else integer("--draws", options.draws, 2),
            options=SolveOptions(gap=real("--gap", options.gap), time_limit=real("--time-limit", options.time_limit)),
            report=lambda now: line.show(f"round {now.rounds}: {now.rows} rows, gap {abs(now.value - now.bound):.2e}"),
        )
        if problem.has_noise_function:
            report: Report = GammaReport.of(table, missing, line.show)
        else:
            report = PluralityReport(table)
    if not options.quiet and problem.has_noise_function:
        _write_notes(table, voters)
    if options.output is not None:
        table.save(options.output)
    if options.plot is not None and isinstance(report, GammaReport):
        report.plot(options.plot)
    print_report(
        options,
        text=lambda: report.text(options.output, everything=options.all),
        document=lambda: report.document(options.output),
    )
    return 0


def _write_notes(table: Table, voters: Voters) -> None:
    if (line_to_add := advice()) is not None:
        sys.stderr.write(f"note: {line_to_add}\n")
    optimality = table.optimality
    if table.problem.voters == voters or optimality is None or not optimality.prior.has_closed_form:
        return
    least = least_error(voters, table, optimality.prior)
    most = optimality.value - least
    if 0.0 < most < optimality.value:
        figures = f"{optimality.value:.4g} was found, and no monotone γ for the true ones is below {least:.4g}"
        sys.stderr.write(f"note: rounding costs at most {most:.2g} of the expected error: {figures}\n")


def _numbers_missing(options: argparse.Namespace, K: int) -> range:
    if options.missing is None:
        return range(0)
    most = integer("--missing", options.missing, 1)
    if most >= K:
        checks.fail("--missing", most, f"below K = {K}", "without a vote there is no majority")
    return range(most + 1)


def _problem(options: argparse.Namespace, voters: Voters, classes: int) -> Problem:
    allowance = [flag for flag in ("m", "delta") if getattr(options, flag) is not None]
    if options.target is not None:
        if allowance:
            raise ValueError(f"--{allowance[0]} and --target both say what the release must satisfy: give one of them")
        return Problem(voters, privacy_pair("--target", options.target, "0.5,1e-5"), classes)
    if not voters.each.is_private:
        who = "--voters plain needs" if voters.are_plain else "voters of whom some are not private need"
        raise ValueError(f"{who} --target EPS,DELTA: an allowance --m is about private voters")
    return Problem.from_allowance(voters, "3" if options.m is None else options.m, options.delta, classes)


if __name__ == "__main__":
    sys.exit(run(main))
