"""The command ``darrm plan``: the most accurate release of many votes within one budget."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from darrm.commands.command import command, run_command
from darrm.commands.options import (
    EXACTS,
    FILE,
    OUTPUT,
    SEARCH,
    WHO,
    Output,
    Real,
    option,
    output_options,
    prior_option,
    time_limit_option,
    to_csv,
    workload_options,
)
from darrm.optimize.report import fit_and_report
from darrm.plan import planner
from darrm.plan.planner import MECHANISMS, TESTED, find_mechanism
from darrm.plan.report import Plan, Sweep, affordable_text, build_csv_row, plan_text, sweep_text
from darrm.priors import Prior, parse
from darrm.problem import Workload
from darrm.util import checks
from darrm.util.files import write_text
from darrm.util.progress import interrupt_after

DESCRIPTION = """\
Find the most accurate release of many votes within one total budget. Every mechanism that applies is calibrated to the
budget, and all are ranked in one table."""

EXAMPLES = """\
examples:
  darrm plan --K 250 --non-private --overlap 1 --queries 1000 --total 2,1e-5 \\
    --output plan.json
  darrm plan --K 11 --epsilon 0.1 --each-delta 1e-5 --queries 100 --total 4,1e-2
  darrm plan --K 50 --non-private --overlap 1 --classes 10 --queries 500 \\
    --total 2,1e-5 --sweep 0.5,1,2,4 --plot sweep.png
  darrm plan --K 250 --non-private --overlap 1 --classes 10 --total 2,1e-5 \\
    --prior dirichlet:0.1 --accuracy 0.9
  darrm plan --K 250 --non-private --overlap 1 --classes 10 --queries 400 \\
    --total 2,1e-5 --votes-look-like PUBLIC.csv --output run.json

darrm release releases labels from the file of --output."""

PUBLIC_HELP = "as --prior, and plan runs that a private test releases if the votes are like these public ones"
OBJECTIVE_HELP = "error: the expected error of two classes, as in the paper (default accuracy)"
FIND_HELP = "with --accuracy: the most queries (default), the fewest voters, or the smallest total ε"
search = partial(option, section=SEARCH)


@command(
    "plan",
    about=DESCRIPTION,
    short="the most accurate release of many votes within one budget",
    first=("--queries", "--total", "--output"),
    examples=EXAMPLES,
)
@workload_options()
@prior_option(default="none: minimax regret over low, medium and high consensus")
@option("--votes-look-like", metavar="FILE|PRIOR", section=WHO, help=PUBLIC_HELP)
@search("--mechanism", "slug", aliases=["--family"], metavar="SLUG", help="plan with one only, like permute-and-flip")
@search("--objective", type=click.Choice(["accuracy", "error"]), default="accuracy", help=OBJECTIVE_HELP)
@search("--accuracy", type=Real(), metavar="P", help="find the queries (or --find) for this accuracy, and plan them")
@search("--find", type=click.Choice(list(planner.QUANTITIES)), help=FIND_HELP)
@search("--sweep", type=EXACTS, metavar="EPS,EPS,…", help="plan at each of these total ε, side by side")
@option("--csv", type=FILE, metavar="FILE", section=OUTPUT, help="write the table with all digits")
@time_limit_option("stop the search with the best so far (default inf)")
@output_options(
    output="write the best mechanism to a file",
    plot="draw the accuracy",
    everything="print everything, and calibrate slow mechanisms to the end, too",
)
def plan(
    *,
    workload: Workload,
    remark: str,
    prior: str | None,
    votes_look_like: str | None,
    slug: str | None,
    objective: str,
    accuracy: float | None,
    find: str | None,
    sweep: list[str] | None,
    csv: Path | None,
    time_limit: float,
    output: Output,
) -> None:
    """Plan, print, save."""
    if sweep is not None and (accuracy is not None or output.path is not None):
        raise ValueError("--sweep excludes --accuracy and --output: write its table with --csv FILE")
    if find is not None and accuracy is None:
        raise ValueError("--find needs --accuracy P, the accuracy to reach")
    workload = replace(workload, voters=fit_and_report(workload.voters, workload.classes, quiet=output.quiet))
    belief = _parse_prior(prior, votes_look_like, workload.classes)
    mechanisms = None if slug is None else [find_mechanism(slug)]
    if votes_look_like is not None and mechanisms is None:
        mechanisms = [*TESTED, *MECHANISMS]
    affordable = ""
    with output.status_line() as line, interrupt_after(time_limit):
        if accuracy is not None:
            quantity = find or "queries"
            workload = planner.affordable(workload, accuracy, quantity, prior=belief, report=line.show, stoppable=True)
            affordable = affordable_text(workload, accuracy, quantity)
        make_plan = planner.plan if sweep is None else partial(planner.sweep, epsilons=sweep)
        result: Plan | Sweep = make_plan(
            workload,
            prior=belief,
            mechanisms=mechanisms,
            objective=objective,
            complete=output.everything,
            report=line.show,
            stoppable=True,
        )
    if isinstance(result, Plan) and output.path is not None:
        result.save(output.path)
    if csv is not None:
        plans = [result] if isinstance(result, Plan) else result.plans
        write_text(csv, to_csv(build_csv_row(plan, row) for plan in plans for row in plan.rows))
    if output.plot is not None:
        result.plot(output.plot)
    if isinstance(result, Sweep):
        output.print(text=partial(sweep_text, result, remark), document=result.document)
    else:
        text = partial(plan_text, result, output.path, remark, affordable, everything=output.everything)
        output.print(text=text, document=partial(result.document, output.path))


def _parse_prior(text: str | None, votes_look_like: str | None, classes: int) -> Prior | None:
    if votes_look_like is None:
        return None if text is None else parse(text, classes)
    if text is not None:
        raise ValueError("--votes-look-like is a prior, too: leave --prior out")
    path = Path(votes_look_like)
    if path.suffix and ":" not in votes_look_like and not path.exists():
        allowed = "an existing file of public votes, or a prior like dirichlet:0.01"
        checks.fail("--votes-look-like", votes_look_like, allowed)
    return parse(f"votes:{votes_look_like}" if path.exists() else votes_look_like, classes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(plan, arguments)


if __name__ == "__main__":
    sys.exit(main())
