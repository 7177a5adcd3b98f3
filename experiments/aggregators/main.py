"""Compare all aggregators at equal budgets.

    python -m experiments aggregators --recompute

Writes OUTPUT/aggregators/{plain,private,private_classes}.json and .png, {votes,pluralities,plurality_votes}.json, and
the pages OUTPUT/aggregators.md and OUTPUT/aggregators_{two,more}_classes.md made from them.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from darrm.priors import Prior, RecordedVotes
from darrm.problem import Workload
from darrm.util.files import write_text
from experiments import pages
from experiments.aggregators import settings
from experiments.aggregators.comparison import (
    SHOWN_NAMES,
    Comparison,
    compare,
    compare_private,
    decide_claims,
    list_aggregators,
)
from experiments.aggregators.pictures import save_margins, save_private
from experiments.aggregators.settings import name_mechanism
from experiments.aggregators.votes import record_ten_class_votes, record_two_class_votes
from experiments.pages import Row, fill_template, format_bold, format_table, read_json

PAGE_PARTS = ("two_classes", "more_classes")  # separate pages
SHOWN_TOTAL = 1.0  # ε of the rows for non-private voters; the JSON files have all budgets
SHOWN_QUERIES, SHOWN_VOTERS = (1, 1000), (50, 250, 5000)  # of the rows for more than two classes


def read_data(folder: Path) -> Row:
    """Read the rows of all files; in the first three, a row is a comparison."""
    files = ("plain", "private", "pluralities", "votes", "plurality_votes", "private_classes")
    data: Row = {name: read_json(folder / f"{name}.json") for name in files}
    return data | {name: [Comparison(**entry) for entry in data[name]] for name in files[:3]}


def fill_page(data: Row, *, part: str = "page") -> str:
    binary = [*data["plain"], *data["private"]]
    names = {name for item in binary for name in (*item.collect_values("accuracy"), *dict(item.absent))}
    uniform = [item for item in data["pluralities"] if item.prior == "dirichlet:1"]
    ten_classes = [
        Comparison(**{key: value for key, value in row.items() if key != "plurality"})
        for row in data["plurality_votes"]
    ]
    votes = [row for row in data["votes"] if row["epsilon"] == SHOWN_TOTAL]
    facts = {
        "about": [
            {"name": name_mechanism(kind), "about": kind.about}
            for kind in list_aggregators()
            if name_mechanism(kind) in names
        ],
        "claims": decide_claims([*binary, *data["pluralities"]]),
        "plain": _tabulate_two_classes([item for item in data["plain"] if item.workload["epsilon"] == SHOWN_TOTAL]),
        "private": _tabulate_two_classes(data["private"]),
        "votes": _tabulate(
            ["votes", "Q", "majority, no noise"],
            [[row["votes"], row["queries"], f"{row['majority']:.4f}"] for row in votes],
            [row["accuracy"] for row in votes],
        ),
        "more_classes": tabulate_shares(uniform),
        "plurality_votes": tabulate_shares(ten_classes) if ten_classes else "",
        "private_classes": format_table(
            ["C", "K", "m", *SHOWN_NAMES],
            [
                [row["classes"], row["voters"], row["m"], *format_bold(row["right"], SHOWN_NAMES)]
                for row in data["private_classes"]
            ],
        ),
        "truth": {row["prior"].removeprefix("votes:"): row["plurality"] for row in data["plurality_votes"]},
    }
    return fill_template("aggregators", facts, template=part)


def _tabulate_two_classes(comparisons: Sequence[Comparison]) -> str:
    titles = [[item.title] for item in comparisons]
    return _tabulate(["workload"], titles, [item.collect_values("accuracy") for item in comparisons])


def _tabulate(head: list[str], first_cells: Sequence[Sequence[object]], numbers: Sequence[dict[str, float]]) -> str:
    """Write a table with a column for each aggregator that has numbers."""
    present = {name for row in numbers for name in row}
    names = [name_mechanism(kind) for kind in list_aggregators() if name_mechanism(kind) in present]
    rows = [[*cells, *format_bold(row, names)] for cells, row in zip(first_cells, numbers, strict=True)]
    return format_table([*head, *names], rows)


def tabulate_shares(comparisons: Sequence[Comparison]) -> str:
    """Tabulate accuracies for more than two classes, with those of a guess and of the bound, for some workloads."""
    comparisons = [
        item for item in comparisons if item.workload["queries"] in SHOWN_QUERIES and item.workload["K"] in SHOWN_VOTERS
    ] or comparisons
    names = list(dict.fromkeys(name for item in comparisons for name in item.collect_values("right")))
    rows = [
        [item.title, f"{item.coin:.4f}", *format_bold(item.collect_values("right"), names), f"{item.at_most:.4f}"]
        for item in comparisons
    ]
    return format_table(["workload", "a guess", *names, "none exceeds"], rows)


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
            row = {"votes": recorded.name, "test points": len(recorded.labels), "majority": recorded.plurality_accuracy}
            row |= {key: comparison.workload[key] for key in ("queries", "epsilon", "delta")}
            rows.append(row | {"accuracy": accuracy})
            print(f"{recorded.name}, {comparison.title}: ours {accuracy[name_mechanism(options[0])]:.4f}", flush=True)
    return rows
