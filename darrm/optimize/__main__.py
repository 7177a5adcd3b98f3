"""Command line: the best private noise function for a majority, with its proof.

python -m darrm.optimize --K 11 --m 3
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from darrm.gamma import priors
from darrm.optimize.comparison import compare
from darrm.optimize.optimizer import OBJECTIVES, SHAPES, SOLVERS, optimize_gamma
from darrm.optimize.report import json_report, plot_report, text_report
from darrm.privacy import PrivacyParams
from darrm.problem import MajorityProblem, Voters
from darrm.system.command_line import CommandLine, StatusLine, add_outputs, check_outputs, run
from darrm.system.flags import integer, privacy_pair, real
from lp_models.options import Progress, SolveOptions

DESCRIPTION = """\
Find the noise function γ with which the majority of K private voters is released as truthfully as its privacy
target allows, prove that it is private, and compare it with subsampling and randomised response."""

EPILOG = """\
examples:
  python -m darrm.optimize --K 11 --m 3 --output table.json --plot gamma.png
  python -m darrm.optimize --K 101 --m 10 --prior common --shape monotone
  python -m darrm.optimize --K 250 --voters plain --target 0.5,1e-6 --overlap 1

The free optimum often rises and falls near the tie: privacy limits averages of γ, and a γ that switches between
1 and 0 has the same average as one that rises gently. Choose --shape monotone where every l must make sense by
itself; it costs a few per cent of expected error."""

PROGRESS_AFTER_SECONDS = 1.0


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.optimize", description=DESCRIPTION, epilog=EPILOG)
    problem = parser.add_argument_group("the problem")
    problem.add_argument("--K", default="11", metavar="INT", help="number of voters (default 11)")
    problem.add_argument("--m", metavar="REAL", help="privacy allowance, 1 <= m <= K (default 3)")
    problem.add_argument("--epsilon", metavar="REAL", help="ε of each voter (default 0.1)")
    problem.add_argument("--each-delta", metavar="REAL", help="Δ of each voter (default 1e-5)")
    problem.add_argument("--delta", metavar="REAL", help="δ of the release (default 1 - (1 - Δ)^m)")
    problem.add_argument(
        "--voters",
        default="private",
        choices=("private", "plain"),
        help="plain: voters that are not private, with the release's --target instead of --m, --epsilon and the δs",
    )
    problem.add_argument("--target", metavar="EPS,DELTA", help="what the release must satisfy, for --voters plain")
    problem.add_argument("--overlap", metavar="INT", help="how many voters one person's data can reach (default K)")
    search = parser.add_argument_group("the search")
    search.add_argument(
        "--prior",
        metavar="PRIOR",
        help="what is publicly believed about the voters' probabilities: uniform (independent on [0.5, 1], the "
        "default), uniform:LOW,HIGH (uniform:0,1 is the default of --objective expected-error), two-sided:LOW,HIGH "
        "(independent on [1-HIGH, 1-LOW] or [LOW, HIGH]), common (one p for all) or point:P",
    )
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
        "--shape", default="free", choices=SHAPES, help="free (default), or monotone: more votes, more truth"
    )
    search.add_argument(
        "--solver", default="production", choices=SOLVERS, help="reference writes every row down, in cvxpy"
    )
    search.add_argument(
        "--time-limit", default="inf", metavar="SECONDS", help="stop with the best proven γ (default inf)"
    )
    search.add_argument(
        "--gap", default="1e-9", metavar="RELATIVE", help="relative optimality gap to reach (default 1e-9)"
    )
    add_outputs(parser, table="the table", picture="γ over l")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, optimise, print or save."""
    options = build_parser().parse_args(arguments)
    check_outputs(options)
    problem = _problem(options)
    usual = "uniform" if options.objective == "linear" else "uniform:0,1"
    prior = priors.parse(usual if options.prior is None else options.prior)
    if options.draws is not None and options.objective == "linear":
        raise ValueError("--draws is about --objective expected-error: the linear objective needs none")
    progress = _ProgressLine(enabled=not options.quiet and sys.stderr.isatty())
    table = optimize_gamma(
        problem,
        prior=prior,
        shape=options.shape,
        objective=options.objective,
        solver=options.solver,
        draws=None if options.draws is None else integer("--draws", options.draws, 2),
        options=SolveOptions(gap=real("--gap", options.gap), time_limit=real("--time-limit", options.time_limit)),
        report=progress,
    )
    progress.close()
    entries = compare(table, prior)
    if options.output is not None:
        table.save(options.output)
    if options.plot is not None:
        plot_report(options.plot, table, entries)
    if options.format == "json":
        sys.stdout.write(json.dumps(json_report(table, entries, options.output), indent=1, ensure_ascii=False) + "\n")
    elif not options.quiet:
        sys.stdout.write(text_report(table, entries, options.output))
    return 0


def _problem(options: argparse.Namespace) -> MajorityProblem:
    voters = integer("--K", options.K, 1)
    overlap = None if options.overlap is None else integer("--overlap", options.overlap, 1)
    if options.voters == "plain":
        return MajorityProblem(Voters(voters, PrivacyParams("inf"), overlap=overlap), _target(options))
    if options.target is not None:
        raise ValueError("--target is about --voters plain: for private voters the target is given by --m and --delta")
    each = PrivacyParams(_or(options.epsilon, "0.1"), _or(options.each_delta, "1e-5"))
    return MajorityProblem.from_allowance(
        Voters(voters, each, overlap=overlap), _or(options.m, "3"), delta=options.delta
    )


def _or(typed: str | None, default: str) -> str:
    return default if typed is None else typed


def _target(options: argparse.Namespace) -> PrivacyParams:
    """Read EPS,DELTA, and refuse what says something about private voters."""
    for flag in ("m", "epsilon", "each_delta", "delta"):
        if getattr(options, flag) is not None:
            raise ValueError(f"--{flag.replace('_', '-')} is about private voters: --voters plain needs --target alone")
    return privacy_pair("--target", options.target, "0.5,1e-5 for --voters plain")


class _ProgressLine:
    """Says where a long solve stands, once a round."""

    def __init__(self, *, enabled: bool) -> None:
        self.line = StatusLine(enabled=enabled)

    def __call__(self, progress: Progress) -> None:
        if progress.seconds >= PROGRESS_AFTER_SECONDS:
            gap = progress.value - progress.bound
            self.line.show(f"round {progress.rounds}: {progress.rows} rows, gap {gap:.2e}, {progress.seconds:.0f} s")

    def close(self) -> None:
        """Wipe the line."""
        self.line.close()


if __name__ == "__main__":
    sys.exit(run(main))
