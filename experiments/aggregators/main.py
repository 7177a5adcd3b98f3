"""Every aggregator side by side, at equal budgets.

    python -m experiments aggregators --recompute

Writes OUTPUT/aggregators/{plain,private,private_classes}.json and .png, {votes,pluralities,plurality_votes}.json, and
the pages OUTPUT/aggregators.md and OUTPUT/aggregators_{two,more}_classes.md made from them.
"""

from collections.abc import Sequence
from dataclasses import asdict

from darrm.priors import Prior, RecordedVotes
from darrm.problem import Workload
from darrm.util.files import write_text
from experiments import pages
from experiments.aggregators.comparison import Comparison, compare, compare_private, save_private
from experiments.aggregators.page import PARTS, Results, page
from experiments.aggregators.pictures import save_margins
from experiments.aggregators.settings import (
    name_of,
    plain_workloads,
    plurality_vote_workloads,
    plurality_workloads,
    private_workloads,
    vote_workloads,
)
from experiments.aggregators.votes import available, available_of_ten_classes
from experiments.pages import Row

NAME = "aggregators"
PICTURE_TOTAL = 1.0  # the budget of the panels drawn; the tables and the JSON have all


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.command_line(NAME, __doc__, quick="few workloads: half a minute instead of minutes").parse_args(
        arguments
    )
    folder = pages.data_folder(options, NAME)
    if not options.page:
        for name, workloads in (("plain", plain_workloads), ("private", private_workloads)):
            comparisons = [_compared(work) for work in workloads(quick=options.quick)]
            pages.write_json(folder / f"{name}.json", [asdict(comparison) for comparison in comparisons])
            save_margins(folder / f"{name}.png", _drawn(comparisons))
        pages.write_json(folder / "votes.json", _votes(quick=options.quick))
        pluralities = [_compared(*asked) for asked in plurality_workloads(quick=options.quick)]
        pages.write_json(folder / "pluralities.json", [asdict(comparison) for comparison in pluralities])
        private = compare_private(quick=options.quick)
        pages.write_json(folder / "private_classes.json", private)
        save_private(folder / "private_classes.png", private)
        pages.write_json(folder / "plurality_votes.json", _plurality_votes(quick=options.quick))
    results = Results.read(folder)
    for part in PARTS:
        write_text(folder.with_name(f"{NAME}_{part}.md"), page(results, part=part))
    return pages.finish(folder, page(results))


def _compared(work: Workload, prior: Prior | None = None) -> Comparison:
    comparison, _ = compare(work, prior)
    ours = comparison.options[0]
    print(f"{comparison.title}: {ours['name']} right {ours['right']:.4f} ({comparison.seconds:.1f} s)", flush=True)
    return comparison


def _plurality_votes(*, quick: bool) -> list[Row]:
    """Compute the share of right labels on recorded votes with ten classes."""
    return [
        {**asdict(_compared(work, RecordedVotes(votes.name, votes.votes))), "plurality": votes.plurality_accuracy}
        for votes in available_of_ten_classes(quick=quick)
        for work in plurality_vote_workloads(votes.voters, votes.votes.counts.shape[1], quick=quick)
    ]


def _votes(*, quick: bool) -> list[Row]:
    rows = []
    for recorded in available(quick=quick):
        for work in vote_workloads(recorded.voters, quick=quick):
            comparison, options = compare(work)
            accuracy = {name_of(option): recorded.accuracy(option.curve) for option in options}
            rows.append(
                {
                    "votes": recorded.name,
                    "test points": len(recorded.labels),
                    "majority": recorded.plurality_accuracy,
                    **{key: comparison.workload[key] for key in ("queries", "epsilon", "delta")},
                    "accuracy": accuracy,
                }
            )
            print(f"{recorded.name}, {comparison.title}: ours {accuracy[name_of(options[0])]:.4f}", flush=True)
    return rows


def _drawn(comparisons: list[Comparison]) -> list[Comparison]:
    """Keep one budget and three numbers of non-private voters, so that a picture can be read."""
    return [
        c for c in comparisons if not c.is_plain or (c.workload["epsilon"] == PICTURE_TOTAL and c.workload["K"] != 251)
    ]
