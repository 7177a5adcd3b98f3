"""Command line: say which aggregator to use.

python -m darrm.advise --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from darrm.advise.advice import NO_NOISE, OURS, Advice, advise
from darrm.gamma import priors
from darrm.gamma.noise_function import NoiseFunction
from darrm.plan.option import ReleaseOption
from darrm.system.command_line import CommandLine, add_outputs, print_report, run
from darrm.system.flags import add_prior, add_workload, flags_of, workload_of

REPORT_FORMAT = "darrm advice"
REPORT_VERSION = 1
DESCRIPTION = """\
Calibrate every aggregator that applies to one total budget, rank them by expected accuracy, and print the command for
the winner."""

EPILOG = """\
examples:
  python -m darrm.advise --K 250 --voters plain --overlap 1 --queries 1000 --total 2,1e-5
  python -m darrm.advise --K 11 --epsilon 0.0892 --each-delta 1e-4 --overlap 1 --models --queries 100 --total 1,1e-4

Accuracy is one minus the expected error under the prior: 1 for the majority itself. A coin has more than 1/2, because
the error is a distance to the law of the majority, which is half a coin itself where the voters are undecided."""


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(prog="python -m darrm.advise", description=DESCRIPTION, epilog=EPILOG)
    add_workload(parser)
    add_prior(parser)
    add_outputs(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, calibrate, rank, print."""
    options = build_parser().parse_args(arguments)
    found = advise(workload_of(options), prior=priors.parse(options.prior))
    print_report(options, text=lambda: text_report(found), document=lambda: json_report(found))
    return 0


def text_report(advice: Advice) -> str:
    """Write the advice for a reader."""
    work = advice.workload
    coin = np.zeros(work.voters.K - work.voters.K // 2)
    lines = [
        f"Which aggregator for {work.queries:,} majority votes of {work.voters.K:,} voters?",
        f"  {work.voters}",
        f"  the budget of all answers together is {work.total}",
        f"  accuracy under {priors.in_words(advice.prior)}",
        f"  a fair coin has {1.0 - NoiseFunction(work.voters.K, coin).expected_error(advice.prior):.5f}",
        "",
        f"  {'accuracy':>8}  {'total ε':>9}   mechanism",
    ]
    winner = releasable(advice)
    for option in advice.options:
        mark = "*" if option is winner else " "
        settings = "".join(f", {name} {value:.6g}" for name, value in option.settings.items())
        accuracy = option.accuracy(advice.prior)
        lines.append(f"{mark} {accuracy:>8.5f}  {option.epsilon:>9.5g}   {option.name}{settings} (by {option.bound})")
    lines += [f"  {'–':>8}  {'–':>9}   {name}: {reason}" for name, reason in advice.absent]
    lines += [
        "",
        *advice.remarks,
        "",
        "Do this:" if winner is advice.options[0] else "Of these the library releases *:",
    ]
    lines += [f"  {line}" for line in commands(winner, advice)]
    return "\n".join(lines) + "\n"


def json_report(advice: Advice) -> dict[str, Any]:
    """Write the advice as plain data; the schema is ``darrm/schemas/advice.json``."""
    winner = releasable(advice)
    return {
        "format": REPORT_FORMAT,
        "version": REPORT_VERSION,
        "workload": flags_of(advice.workload),
        "counted_as": flags_of(advice.counted_as),
        "prior": advice.prior.text,
        "options": [
            {
                "name": option.name,
                "accuracy": option.accuracy(advice.prior),
                "epsilon": option.epsilon,
                "bound": option.bound,
                "settings": dict(option.settings),
            }
            for option in advice.options
        ],
        "absent": [{"name": name, "reason": reason} for name, reason in advice.absent],
        "remarks": list(advice.remarks),
        "winner": winner.name,
        "commands": commands(winner, advice),
    }


def releasable(advice: Advice) -> ReleaseOption:
    """Give the best option that this library releases; some are there for comparison only."""
    for option in advice.options:
        if commands(option, advice):
            return option
    raise ValueError("none of the options that apply is released by this library: ask for another budget")


def commands(option: ReleaseOption, advice: Advice) -> list[str]:
    """Write how to release an option; nothing for one that is there for comparison only."""
    work = advice.counted_as
    if option.name == NO_NOISE:
        return ["publish the majority of the models' votes as it is, for as many queries as you like"]
    if option.name == OURS:
        ledger = f"--ledger ledger.sqlite --create-budget {work.total.epsilon_text},{work.total.delta_text}"
        prior = "" if advice.prior.text == "common" else f" --prior {advice.prior.text}"
        return [
            f"python -m darrm.plan {flags_of(work)}{prior} --output plan.json",
            f"python -m darrm.release VOTES --table plan.json {ledger} --output LABELS",
        ]
    if option.name == "GNMax, paper's σ":
        return [f"darrm.pate.GNMax(sigma={option.settings['sigma']!r}).release(Votes.of_counts(counts))"]
    if option.name == "LNMax":
        return [f"darrm.pate.LNMax(gamma={option.settings['gamma']!r}).release(Votes.of_counts(counts))"]
    return []


if __name__ == "__main__":
    sys.exit(run(main))
