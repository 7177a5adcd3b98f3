"""Compare all aggregators at equal budgets.

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
from experiments.aggregators.page import PAGE_PARTS, Results, fill_page
from experiments.aggregators.pictures import save_margins
from experiments.aggregators.settings import (
    list_plain_workloads,
    list_plurality_vote_workloads,
    list_plurality_workloads,
    list_private_workloads,
    list_vote_workloads,
    name_mechanism,
)
from experiments.aggregators.votes import record_ten_class_votes, record_two_class_votes
from experiments.pages import Row

NAME = "aggregators"
PICTURE_TOTAL = 1.0  # ε of the plotted panels; the JSON has all budgets


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(
        NAME, __doc__, quick="few workloads: half a minute instead of minutes"
    ).parse_args(arguments)
    folder = pages.prepare_folder(options, NAME)
    if not options.page:
        for name, workloads in (("plain", list_plain_workloads), ("private", list_private_workloads)):
            comparisons = [_compare_and_print(work) for work in workloads(quick=options.quick)]
            pages.write_json(folder / f"{name}.json", [asdict(comparison) for comparison in comparisons])
            save_margins(folder / f"{name}.png", _select_drawn(comparisons))
        pages.write_json(folder / "votes.json", _compare_votes(quick=options.quick))
        pluralities = [_compare_and_print(*setting) for setting in list_plurality_workloads(quick=options.quick)]
        pages.write_json(folder / "pluralities.json", [asdict(comparison) for comparison in pluralities])
        private = compare_private(quick=options.quick)
        pages.write_json(folder / "private_classes.json", private)
        save_private(folder / "private_classes.png", private)
        pages.write_json(folder / "plurality_votes.json", _compare_plurality_votes(quick=options.quick))
    results = Results.read(folder)
    for part in PAGE_PARTS:
        write_text(folder.with_name(f"{NAME}_{part}.md"), fill_page(results, part=part))
    return pages.write_page(folder, fill_page(results))


def _compare_and_print(work: Workload, prior: Prior | None = None) -> Comparison:
    comparison, _ = compare(work, prior)
    first = comparison.options[0]
    print(f"{comparison.title}: {first['name']} right {first['right']:.4f} ({comparison.seconds:.1f} s)", flush=True)
    return comparison


def _compare_plurality_votes(*, quick: bool) -> list[Row]:
    """Compute accuracies on recorded votes with ten classes."""
    return [
        {
            **asdict(_compare_and_print(work, RecordedVotes(votes.name, votes.votes))),
            "plurality": votes.plurality_accuracy,
        }
        for votes in record_ten_class_votes(quick=quick)
        for work in list_plurality_vote_workloads(votes.voters, votes.votes.counts.shape[1], quick=quick)
    ]


def _compare_votes(*, quick: bool) -> list[Row]:
    rows = []
    for recorded in record_two_class_votes(quick=quick):
        for work in list_vote_workloads(recorded.voters, quick=quick):
            comparison, options = compare(work)
            accuracy = {name_mechanism(option): recorded.accuracy(option.curve) for option in options}
            rows.append(
                {
                    "votes": recorded.name,
                    "test points": len(recorded.labels),
                    "majority": recorded.plurality_accuracy,
                    **{key: comparison.workload[key] for key in ("queries", "epsilon", "delta")},
                    "accuracy": accuracy,
                }
            )
            print(f"{recorded.name}, {comparison.title}: ours {accuracy[name_mechanism(options[0])]:.4f}", flush=True)
    return rows


def _select_drawn(comparisons: list[Comparison]) -> list[Comparison]:
    """Select one budget and three numbers of non-private voters, to keep the picture readable."""
    return [
        comparison
        for comparison in comparisons
        if not comparison.is_plain
        or (comparison.workload["epsilon"] == PICTURE_TOTAL and comparison.workload["K"] != 251)
    ]
