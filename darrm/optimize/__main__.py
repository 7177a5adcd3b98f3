"""Command line: find the best private noise function or plurality, with its proof."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import click

from darrm import priors
from darrm.commands.command import PAIR, command, run_command
from darrm.commands.options import (
    CLASS_COUNT,
    EXACT,
    EXACTS,
    RELEASED,
    SEARCH,
    Integer,
    Output,
    Real,
    Value,
    VoterOptions,
    as_one,
    classes_option,
    collect,
    option,
    output_options,
    prior_option,
    time_limit_option,
    voters_options,
)
from darrm.commands.values import privacy_pair
from darrm.majority.kernels import advice
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.report import GammaReport, fit_and_report, make_report, rows_data, rows_document, rows_text
from darrm.optimize.request import OBJECTIVES, SOLVERS, least_error, prior_to_optimize
from darrm.priors import Prior
from darrm.privacy import PrivacyParams, at_least, at_most
from darrm.problem import Problem, Voters, is_law_a_gamma
from darrm.table.optimality import SHAPES
from darrm.table.table import Table
from darrm.util import checks
from lp_models.options import Progress, SolveOptions

DESCRIPTION = """\
Find the noise function γ with which the majority of K private voters is released as accurately as its privacy
target allows, prove that it is private, and compare it with subsampling and randomized response. With more classes,
find the best private plurality, with its proof."""

EXAMPLES = """\
examples:
  darrm optimize --K 11 --m 3 --output table.json --plot gamma.png
  darrm optimize --K 11 --m 1,3,5
  darrm optimize --K 101 --m 10 --prior common --shape monotone
  darrm optimize --K 250 --non-private --target 0.5,1e-6 --overlap 1
  darrm optimize --epsilon 0.02,0.05,0.1,0.5 --each-delta 1e-6 --target 0.5,1e-4
  darrm optimize --K 7 --epsilon 0.1 --classes 5 --m 3
  darrm optimize --K 30 --classes 3 --non-private --target 0.5,1e-5 --overlap 1

The free optimum often rises and falls near the tie: privacy limits averages of
γ, and a γ that switches between 1 and 0 has the same average as one that rises
slowly. Choose --shape monotone where each γ(l) must make sense by itself; it
costs a few percent of expected error."""


@dataclass(frozen=True)
class ReleaseOptions:
    """What is released: the privacy of a label, the classes, and votes that may be missing."""

    m: list[str] | None
    delta: str | None
    target: PrivacyParams | None
    classes: int
    missing: int | None

    def build_problems(self, voters: Voters) -> list[Problem]:
        return [self._build_problem(voters, m) for m in self.m or (None,)]

    def _build_problem(self, voters: Voters, m: str | None) -> Problem:
        if self.target is not None:
            if m is not None or self.delta is not None:
                name = "--delta" if m is None else "--m"
                raise ValueError(f"{name} and --target both set the privacy of the release: give one of them")
            return Problem(voters, self.target, self.classes)
        if not voters.each.is_private:
            voters_text = "--non-private needs" if voters.are_non_private else "a mix with non-private voters needs"
            raise ValueError(f"{voters_text} --target EPS,DELTA: an allowance --m is about private voters")
        return Problem.from_allowance(voters, "3" if m is None else m, self.delta, self.classes)


@dataclass(frozen=True)
class Search:
    """The objective, and the settings of the search."""

    objective: str
    draws: int | None
    shape: str | None
    solver: str
    time_limit: float
    gap: float

    def solve(self, problem: Problem, prior: Prior | None, report: Callable[[Progress], None]) -> Table:
        return optimize_table(
            problem,
            prior=prior,
            shape=self.shape,
            objective=self.objective,
            solver=self.solver,
            draws=self.draws,
            options=SolveOptions(gap=self.gap, time_limit=self.time_limit),
            report=report,
        )


_RELEASE_OPTIONS = (
    option(
        "--m",
        type=EXACTS,
        metavar="REAL[,REAL…]",
        section=RELEASED,
        help="allowance of private voters, from 1 to K (default 3); several print a row each",
    ),
    option("--delta", type=EXACT, section=RELEASED, help="δ of the release (default 1 - (1 - Δ)^m)"),
    option(
        "--target",
        type=Value("eps,delta", partial(privacy_pair, example="0.5,1e-5")),
        metavar=PAIR,
        section=RELEASED,
        help="(ε, δ) of the release, instead of --m and --delta",
    ),
    classes_option(CLASS_COUNT, "the classes, or their number (default 2)", "2"),
    option(
        "--missing",
        type=Integer(1),
        section=RELEASED,
        help="also report the accuracy where up to this many votes are missing",
    ),
)
_SEARCH_OPTIONS = (
    option(
        "--objective",
        type=click.Choice(OBJECTIVES),
        default=OBJECTIVES[0],
        section=SEARCH,
        help="expected-error (default) under the prior, over draws unless it is linear; or surrogate: the paper's "
        "linear one for a prior on both sides of 1/2",
    ),
    option(
        "--draws",
        type=Integer(2),
        section=SEARCH,
        help="draws of a prior on both sides of 1/2 (default 20000, fewer for large K)",
    ),
    option(
        "--shape",
        type=click.Choice(SHAPES),
        section=SEARCH,
        help="free (default), or monotone: γ does not fall as the majority grows (always so where voters differ)",
    ),
    option(
        "--solver",
        type=click.Choice(SOLVERS),
        default="production",
        section=SEARCH,
        help="reference: the whole linear program in cvxpy",
    ),
    time_limit_option("stop the search with the best γ so far (default inf); the proof takes additional time"),
    option(
        "--gap",
        type=Real(),
        default="1e-9",
        metavar="RELATIVE",
        section=SEARCH,
        help="relative optimality gap to reach (default 1e-9)",
    ),
)
release_options = as_one(_RELEASE_OPTIONS, lambda typed: {"release": collect(ReleaseOptions, typed), **typed})
search_options = as_one(_SEARCH_OPTIONS, lambda typed: {"search": collect(Search, typed), **typed})


@command(
    "optimize",
    about=DESCRIPTION,
    short="the best private noise function for a majority, with its proof",
    first=("--K", "--m", "--output"),
    examples=EXAMPLES,
)
@voters_options(example=True)
@release_options
@prior_option(default="uniform:0.5,1; with more classes dirichlet")
@search_options
@output_options(
    output="write the table, with its proof",
    plot="draw γ over l",
    everything="γ of every rule, the certificate, and why rules do not apply",
    formats=("text", "json", "csv"),
)
def optimize(*, who: VoterOptions, release: ReleaseOptions, prior: str | None, search: Search, output: Output) -> None:
    if not is_law_a_gamma(release.classes):
        _refuse("two classes", {"--plot": output.plot, "--all": output.everything, "--missing": release.missing})
    voters = who.voters()
    problems = release.build_problems(fit_and_report(voters, release.classes, quiet=output.quiet))
    if len(problems) > 1:
        _refuse("one allowance --m", {"--output": output.path, "--plot": output.plot, "--missing": release.missing})
    if release.missing is not None and release.missing >= voters.K:
        checks.fail("--missing", release.missing, f"below K = {voters.K}", "without a vote there is no majority")
    tables = _solve_all(problems, None if prior is None else priors.parse(prior, release.classes), search, output)
    if len(tables) == 1:
        _write_notes(tables[0], voters, output)
        if output.path is not None:
            tables[0].save(output.path)
    if len(tables) > 1 or output.format == "csv":
        output.print(
            text=partial(rows_text, tables), document=partial(rows_document, tables), rows=partial(rows_data, tables)
        )
    else:
        _print_report(tables[0], release.missing, who.remark, output)


def _solve_all(problems: list[Problem], prior: Prior | None, search: Search, output: Output) -> list[Table]:
    is_linear = problems[0].has_noise_function and prior_to_optimize(prior, search.objective).has_closed_form
    if search.draws is not None and is_linear:
        raise ValueError("--draws is about a prior without linear expected error: leave it out, or say --prior uniform")
    with output.status_line() as line:

        def show(progress: Progress) -> None:
            line.show(f"round {progress.rounds}: {progress.rows} rows, gap {abs(progress.value - progress.bound):.2e}")

        return [search.solve(problem, prior, show) for problem in problems]


def _print_report(table: Table, missing: int | None, remark: str, output: Output) -> None:
    numbers = range(0) if missing is None else range(missing + 1)
    with output.status_line() as line:
        report = make_report(table, numbers, line.show, everything=output.everything, remark=remark)
    if output.plot is not None and isinstance(report, GammaReport):
        report.plot(output.plot)
    output.print(text=partial(report.text, output.path), document=partial(report.document, output.path))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(optimize, arguments)


def _refuse(condition: str, typed: Mapping[str, object]) -> None:
    for name, value in typed.items():
        if value:
            raise ValueError(f"{name} is about {condition}: leave it out")


def _write_notes(table: Table, voters: Voters, output: Output) -> None:
    if not table.problem.has_noise_function:
        return
    if (line_to_add := advice()) is not None:
        output.note(line_to_add)
    optimality = table.optimality
    if table.problem.voters == voters or optimality is None or not optimality.prior.has_closed_form:
        return
    bound = least_error(voters, table, optimality.prior)
    largest_loss = optimality.value - bound
    if 0.0 < largest_loss < optimality.value:
        figures = f"{optimality.value:.4g} was found, and no monotone γ for the true ones is below {at_least(bound, 4)}"
        output.note(f"rounding costs at most {at_most(largest_loss, 2)} of the expected error: {figures}")


if __name__ == "__main__":
    sys.exit(main())
