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
from experiments.aggregators import settings
from experiments.aggregators.comparison import Comparison, compare, compare_private
from experiments.aggregators.page import PAGE_PARTS, fill_page, read_data
from experiments.aggregators.pictures import save_margins, save_private
from experiments.aggregators.settings import name_mechanism
from experiments.aggregators.votes import record_ten_class_votes, record_two_class_votes
from experiments.pages import Row

NAME = "aggregators"
PICTURE_TOTAL = 1.0  # ε of the plotted panels; the JSON has all budgets


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(NAME, __doc__, quick="few workloads: half a minute instead of minutes")
    options = parser.parse_args(arguments)
    folder, quick = pages.prepare_folder(options, NAME), options.quick
    if not options.page:
        plain = [_compare_and_print(work) for work in settings.list_plain_workloads(quick=quick)]
        private = [_compare_and_print(work) for work in settings.list_private_workloads(quick=quick)]
        pluralities = [_compare_and_print(*setting) for setting in settings.list_plurality_workloads(quick=quick)]
        private_classes = compare_private(quick=quick)
        data = {
            "plain": list(map(asdict, plain)),
            "private": list(map(asdict, private)),
            "votes": _compare_votes(quick=quick),
            "pluralities": list(map(asdict, pluralities)),
            "private_classes": private_classes,
            "plurality_votes": _compare_plurality_votes(quick=quick),
        }
        for name, content in data.items():
            pages.write_json(folder / f"{name}.json", content)
        # one budget and three numbers of non-private voters, to keep the picture readable
        plotted = [item for item in plain if item.workload["epsilon"] == PICTURE_TOTAL and item.workload["K"] != 251]
        save_margins(folder / "plain.png", plotted)
        save_margins(folder / "private.png", private)
        save_private(folder / "private_classes.png", private_classes)
    results = read_data(folder)
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
        asdict(_compare_and_print(work, RecordedVotes(recorded.name, recorded.votes)))
        | {"plurality": recorded.plurality_accuracy}
        for recorded in record_ten_class_votes(quick=quick)
        for work in settings.list_plurality_vote_workloads(recorded.voters, recorded.votes.counts.shape[1], quick=quick)
    ]


def _compare_votes(*, quick: bool) -> list[Row]:
    """Compute accuracies on recorded votes with two classes."""
    rows = []
    for recorded in record_two_class_votes(quick=quick):
        for work in settings.list_vote_workloads(recorded.voters, quick=quick):
            comparison, options = compare(work)
            accuracy = {name_mechanism(option): recorded.accuracy(option.curve) for option in options}
            row = {
                "votes": recorded.name,
                "test points": len(recorded.labels),
                "majority": recorded.plurality_accuracy,
            }
            row |= {key: comparison.workload[key] for key in ("queries", "epsilon", "delta")}
            rows.append(row | {"accuracy": accuracy})
            print(f"{recorded.name}, {comparison.title}: ours {accuracy[name_mechanism(options[0])]:.4f}", flush=True)
    return rows
