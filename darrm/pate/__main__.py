"""The command ``darrm pate``: the cost of a PATE run, its publication, and the picture of Figure 5."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from darrm.commands.command import command, run_command
from darrm.commands.options import (
    CLASSES,
    FILE,
    Integer,
    Output,
    Real,
    argument,
    classes_option,
    collect,
    option,
    output_options,
)
from darrm.loss.renyi import CONVERSIONS
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noise_law import NOISES
from darrm.pate.analysis import CHECKS, WARNING, Analysis, PateAggregator, analyze, hide_warnings
from darrm.pate.confident import CheckedGNMax, ConfidentGNMax, InteractiveGNMax
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.publication import Expected, Refused, on_vote_scale, table_2
from darrm.pate.vote_scale import PublicationParameters, publication_rule
from darrm.privacy import at_most
from darrm.util import checks
from darrm.util.figures import BLACK, BLUE, LIGHT_GRAY, SKY_BLUE, Figure, save_figure
from darrm.util.files import write_text
from darrm.util.progress import StatusLine
from darrm.votes import LAYOUTS, Votes
from darrm.votes.reading import load_matrix

EXAMPLES = """\
VOTES is a table, one row a query: the labels of K teachers (Q, K), or the
counts of C classes (Q, C) with --layout counts. Labels of more classes
than 0 and 1 need --classes C: it is public, and never read off the votes.

--sigma2 alone is GNMax; with --threshold and --sigma1 Confident-GNMax; with
--scores and --confidence Interactive-GNMax; --gamma alone is LNMax.

example:
  darrm pate VOTES.npy --threshold 200 --sigma1 150 --sigma2 40 --queries 640 \\
    --delta 1e-5
"""
Part = Analysis | Expected[GnssParameters] | Expected[PublicationParameters] | Refused
AGGREGATORS: dict[type[PateAggregator], tuple[str, ...]] = {
    LNMax: ("gamma",),
    GNMax: ("sigma2",),
    ConfidentGNMax: ("threshold", "sigma1", "sigma2"),
    InteractiveGNMax: ("threshold", "sigma1", "sigma2", "confidence"),
}
VOTES, AGGREGATOR, PUBLICATION = "Votes", "Aggregator", "Publication of the cost"  # sections of the help


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions:
    threshold: float | None
    sigma1: float | None
    sigma2: float | None
    gamma: float | None
    scores: Path | None
    confidence: float | None
    noise: str
    conversion: str
    check: str

    def build_aggregator(self) -> PateAggregator:
        """Return the aggregator that the typed options describe."""
        names = ("gamma", "sigma2", "threshold", "sigma1", "scores", "confidence")
        option_names = [name for name in names if getattr(self, name) is not None]
        for kind, parameters in AGGREGATORS.items():
            if set(option_names) == {*parameters, *(["scores"] if kind is InteractiveGNMax else [])}:
                return kind(*(getattr(self, name) for name in (*parameters, "noise")))
        options = ", ".join(f"--{name}" for name in option_names)
        problem = f"No aggregator has the options {options}" if option_names else "The aggregator is missing"
        raise ValueError(
            f"{problem}. Write --gamma (LNMax), or --sigma2 (GNMax), with --threshold and --sigma1 (Confident-GNMax), "
            "and with --scores and --confidence (Interactive-GNMax)."
        )


@dataclass(frozen=True, kw_only=True)
class PublicationOptions:
    order: float | None
    beta: float | None
    sigma_ss: float | None
    deviation: float | None
    expect_epsilon: float | None
    safety: float | None
    no_table_2: bool

    def build_parameters(self, delta: float) -> tuple[GnssParameters | None, PublicationParameters | None]:
        """Return the parameters of smooth sensitivity and of the scale of votes."""
        options = (self.order, self.beta, self.sigma_ss, self.deviation, self.expect_epsilon)
        values = [value for value in options if value is not None]
        if self.safety is not None and not values:
            raise ValueError("--safety belongs to a publication: give it with --expect-epsilon, or with --order")
        if values and self.no_table_2:
            raise ValueError("--no-table-2 leaves the publications out: give no parameters of them, or leave it out")
        safety = 0.0 if self.safety is None else self.safety
        if self.expect_epsilon is not None:
            if len(values) > 1:
                raise ValueError("--expect-epsilon chooses the parameters of the publications: give it alone")
            target = (self.expect_epsilon, delta)
            return rules_of_thumb(*target, safety=safety), publication_rule(*target, safety=safety)
        smooth = scale = None
        if self.order is not None and self.beta is not None and self.sigma_ss is not None:
            smooth = GnssParameters(self.order, self.beta, self.sigma_ss, safety)
        if self.order is not None and self.deviation is not None:
            scale = PublicationParameters(self.order, self.deviation, safety)
        is_half = smooth is None and (self.beta is not None or self.sigma_ss is not None)
        if values and (is_half or (smooth is None and scale is None)):
            raise ValueError(
                "give --order with --beta and --sigma-ss (smooth sensitivity), with --deviation, or with all"
            )
        return smooth, scale


@command(
    "pate",
    about="Compute the privacy cost of a PATE run from its votes: the rows of Tables 1 and 2 of the paper.",
    short="the privacy cost of a PATE run, and how to publish it",
    first=("--sigma2", "--delta", "--layout"),
    examples=EXAMPLES,
)
@argument("votes", type=FILE, metavar="VOTES", about="file of labels (Q, K) or counts (Q, C)")
@option(
    "--layout", type=click.Choice(LAYOUTS), default="auto", section=VOTES, help="contents of the file (default auto)"
)
@classes_option(CLASSES, "number of classes, or their names (default 2)", section=VOTES)
@option("--queries", type=Integer(1), section=VOTES, help="use only the first rows (default all)")
@option("--delta", type=Real(), required=True, section=AGGREGATOR, help="δ of the (ε, δ) statement")
@option("--threshold", type=Real(-math.inf), section=AGGREGATOR, help="T of the noisy check, in votes")
@option("--sigma1", type=Real(), section=AGGREGATOR, help="noise of the check, in votes")
@option("--sigma2", type=Real(), section=AGGREGATOR, help="noise of the answer, in votes")
@option("--gamma", type=Real(), section=AGGREGATOR, help="inverse scale of Laplace noise: LNMax")
@option("--scores", type=FILE, section=AGGREGATOR, help="the student's scores (Q, C): Interactive-GNMax")
@option("--confidence", type=Real(), section=AGGREGATOR, help="score from which a student is reinforced")
@option(
    "--noise",
    type=click.Choice(NOISES),
    default="discrete",
    section=AGGREGATOR,
    help="which noise is accounted for (default discrete)",
)
@option(
    "--conversion",
    type=click.Choice(sorted(CONVERSIONS)),
    default="tight",
    section=AGGREGATOR,
    help="from RDP to (ε, δ): tight (default), or classic, which is Theorem 5",
)
@option(
    "--check",
    type=click.Choice(CHECKS),
    default="data-independent",
    section=AGGREGATOR,
    help="how the check is accounted for (default data-independent)",
)
@option("--order", type=Real(), section=PUBLICATION, help="order at which the cost is published")
@option("--deviation", type=Real(), section=PUBLICATION, help="scale of votes: noise of it, in votes")
@option("--beta", type=Real(), section=PUBLICATION, help="smooth sensitivity: smoothness")
@option("--sigma-ss", type=Real(), section=PUBLICATION, help="smooth sensitivity: noise, in units of it")
@option(
    "--expect-epsilon", type=Real(), section=PUBLICATION, help="choose these parameters by rules of thumb for this ε"
)
@option(
    "--safety",
    type=Real(),
    section=PUBLICATION,
    help="deviations of its noise that are added to a published cost (default 0)",
)
@option("--no-table-2", is_flag=True, section=PUBLICATION, help="leave out how the cost would be published")
@output_options(output="write the rows as JSON (private data)", plot="draw both panels of Figure 5 (private data)")
def pate(
    *,
    votes: Path,
    layout: str,
    classes: int | tuple[str, ...] | None,
    queries: int | None,
    delta: float,
    output: Output,
    **typed: Any,
) -> None:
    options, publication = collect(AnalysisOptions, typed), collect(PublicationOptions, typed)
    aggregator = options.build_aggregator()
    smooth, scale = publication.build_parameters(delta)
    with output.status_line() as line:
        all_votes = Votes.read(votes, classes=classes, layout=layout, line=line)
        if queries is not None and queries > all_votes.queries:
            checks.fail("--queries", queries, f"from 1 to the number of rows, {all_votes.queries}")
        used_votes = all_votes[:queries]
        _note_shape(output, line, votes.name, all_votes)
        scores = None if options.scores is None else load_matrix(options.scores)[: used_votes.queries]
        if scores is not None and scores.dtype.kind not in "biuf":
            checks.fail("--scores", str(options.scores), "a file of numbers")
        line.show("Table 1")
        conversion, check = options.conversion, options.check
        with hide_warnings():
            analysis = analyze(used_votes, aggregator, delta, conversion=conversion, check=check, scores=scores)
        parts: dict[str, Part | None] = {"table_1": analysis, "table_2": None, "vote_scale": None}
        _print_part(output, line, analysis)
        # without parameters, both are searched
        is_searched = smooth is None and scale is None and not publication.no_table_2
        if smooth is not None or is_searched:
            line.show("Table 2: smooth sensitivity")
            parts["table_2"] = table_2(analysis, smooth, report=line.show)
            _print_part(output, line, parts["table_2"])
        if scale is not None or is_searched:
            line.show("publication on the scale of votes")
            parts["vote_scale"] = on_vote_scale(analysis, scale)
            _print_part(output, line, parts["vote_scale"])
        if output.plot is not None:
            draw_figure_5(analysis, output.plot)
    rows = {name: None if part is None else part.to_json() for name, part in parts.items()}
    document = {"warning": WARNING, **rows}
    if output.path is not None:
        write_text(output.path, json.dumps(document, indent=1) + "\n", private=True)
    output.print(text=str, document=partial(dict, document))  # the text is printed already


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(pate, arguments)


def _print_part(output: Output, line: StatusLine, part: object) -> None:
    if output.format == "text" and not output.quiet:
        line.wipe()
        output.print(text=partial(str, part), document=dict)
        sys.stdout.flush()


def _note_shape(output: Output, line: StatusLine, name: str, votes: Votes) -> None:
    if votes.source_format == "labels" and votes.voters > votes.queries:
        line.wipe()
        shape = f"{votes.queries:,} rows, which are queries, and {votes.voters:,} columns, which are voters"
        output.note(f"{name} has {shape}: if a row is a voter, turn the votes round (votes.T)")


BINS = 25
POINTS = 200
SMALLEST_COST_RATIO = 1e-14  # of the largest: smaller costs are not drawn
NOTE = "private data: computed from the votes"
ALL_COLOR, ANSWER_COLOR, COST_COLOR, CHECK_COLOR = LIGHT_GRAY, SKY_BLUE, BLACK, BLUE


def draw_figure_5(analysis: Analysis, path: Path) -> None:
    """Draw both panels of [P, Figure 5] side by side: **private data**."""
    with save_figure(path, width=16.0, height=5.0, private=True) as figure:
        left, right = figure.subfigures(1, 2)
        draw_plurality_counts(left, analysis)
        draw_total_cost(right, analysis)


def draw_plurality_counts(figure: Figure, analysis: Analysis) -> None:
    plurality = analysis.histograms.max(axis=1)
    edges = np.linspace(0.0, analysis.voters, min(BINS, analysis.voters) + 1)
    total, _ = np.histogram(plurality, edges)
    query_costs, _ = np.histogram(plurality, edges, weights=analysis.cost.answers.at(analysis.order))
    axes = figure.add_subplot()
    axes.hist(plurality, edges, color=ALL_COLOR, label="all queries")
    axes.hist(
        plurality, edges, weights=analysis.probabilities, color=ANSWER_COLOR, alpha=0.85, label=_label_answers(analysis)
    )
    axes.set_title(NOTE, loc="right", fontsize=8, color=COST_COLOR)
    axes.set(xlabel="votes for the plurality class", ylabel="queries", xlim=(0, analysis.voters))
    cost_axes = axes.twinx()
    filled = total > 0
    centers = 0.5 * (edges[1:] + edges[:-1])
    mean_cost = np.maximum(query_costs[filled] / total[filled], np.finfo(np.float64).tiny)
    bottom = max(float(mean_cost.min()) / 3.0, float(mean_cost.max()) * SMALLEST_COST_RATIO)
    is_drawn = mean_cost > bottom
    cost_axes.semilogy(
        centers[filled][is_drawn], mean_cost[is_drawn], "o", color=COST_COLOR, label="mean cost of an answer (right)"
    )
    cost_axes.set_ylim(bottom, float(mean_cost.max()) * 3.0)
    cost_axes.set_ylabel(f"Rényi cost at order {analysis.order:g}, nats")
    handles = [*axes.get_legend_handles_labels()[0], *cost_axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)


def draw_total_cost(figure: Figure, analysis: Analysis) -> None:
    numbers = np.unique(np.linspace(1, analysis.queries, min(POINTS, analysis.queries)).astype(np.int64))
    check_costs = np.outer(numbers, analysis.cost.checks.values / analysis.queries)
    costs = _accumulate_costs(analysis, analysis.probabilities, numbers) + check_costs
    epsilons, best_orders = _convert_costs(analysis, costs)
    answered = np.cumsum(analysis.probabilities)[numbers - 1]
    axes = figure.add_subplot()
    if isinstance(analysis.aggregator, CheckedGNMax):
        points = np.arange(numbers.size)
        check_part = epsilons * check_costs[points, best_orders] / costs[points, best_orders]
        label = "selecting queries (its share of the Rényi cost)"
        axes.fill_between(answered, check_part, color=CHECK_COLOR, lw=0, label=label)
        axes.fill_between(answered, check_part, epsilons, color=ANSWER_COLOR, alpha=0.55, lw=0, label="answering them")
        unchecked, _ = _convert_costs(analysis, _accumulate_costs(analysis, np.ones(analysis.queries), numbers))
        axes.plot(numbers, unchecked, color=COST_COLOR, ls="--", label="answering every query, without a check")
        axes.set_xlim(0, float(answered[-1]))
        axes.set_ylim(0, 1.15 * float(max(epsilons[-1], unchecked[np.searchsorted(numbers, answered[-1]) - 1])))
    else:
        axes.plot(answered, epsilons, color=ANSWER_COLOR, label="answering every query")
        axes.set(xlim=(0, float(answered[-1])), ylim=(0, None))
    axes.set_title(NOTE, loc="right", fontsize=8, color=COST_COLOR)
    axes.set(xlabel=_label_answers(analysis), ylabel=f"ε at δ = {at_most(analysis.delta, 6)}")
    axes.legend(loc="upper left", frameon=False)


def _label_answers(analysis: Analysis) -> str:
    return "answered queries (expected)" if analysis.answered is None else "answered queries"


def _accumulate_costs(
    analysis: Analysis, weights: NDArray[np.float64], numbers: NDArray[np.int64]
) -> NDArray[np.float64]:
    blocks = [
        analysis.cost.answers.total(weights, slice(start, stop))
        for start, stop in zip(np.append(0, numbers[:-1]), numbers, strict=True)
    ]
    return np.asarray(np.cumsum(blocks, axis=0))


def _convert_costs(analysis: Analysis, costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    epsilons = CONVERSIONS[analysis.conversion](analysis.curve.orders, costs, analysis.delta)
    return epsilons.min(axis=1), epsilons.argmin(axis=1)


if __name__ == "__main__":
    sys.exit(main())
