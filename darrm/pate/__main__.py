"""Command line ``python -m darrm.pate``: what a PATE run costs, how to publish it, and the picture of Figure 5."""

import json
import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.errors import checks
from darrm.losses.renyi import CONVERSIONS
from darrm.mechanisms.noise_tails import NOISES
from darrm.mechanisms.noisy_max import GNMax, LNMax
from darrm.pate.analysis import CHECKS, WARNING, PateAggregator
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.report import (
    draw_figure_5,
    quiet_analysis,
    table_1_row,
    table_1_text,
    table_2_row,
    table_2_text,
    vote_scale_row,
    vote_scale_text,
)
from darrm.pate.vote_scale import PublicationParameters, publication_rule
from darrm.system.command_line import CommandLine, add_outputs, check_outputs, print_report, run
from darrm.system.files import write_text
from darrm.system.flags import add_classes, classes_of, integer, real
from darrm.system.progress import StatusLine, status_line
from darrm.system.votes_file import load_matrix
from darrm.votes import FORMATS, Votes

EPILOG = """\
votes: a .npy or .csv matrix, one row a query: the labels of K teachers (Q, K), or the counts of C classes (Q, C);
labels of more classes than 0 and 1 need --classes C, which is public and never found in the votes
aggregators: --sigma2 alone is GNMax; with --threshold and --sigma1 Confident-GNMax; with --scores and --confidence
Interactive-GNMax; --gamma alone is LNMax

example: python -m darrm.pate VOTES.npy --threshold 200 --sigma1 150 --sigma2 40 --queries 640 --delta 1e-5
"""
REALS = ("delta", "threshold", "sigma1", "sigma2", "gamma", "confidence")
PUBLICATION = ("order", "beta", "sigma_ss", "deviation", "expect_epsilon")
SAFETY = 0.0  # deviations


def build_parser() -> CommandLine:
    """Describe the command line."""
    parser = CommandLine(
        prog="python -m darrm.pate",
        description="Privacy cost of a PATE run from its votes: the rows of Tables 1 and 2 of the paper.",
        epilog=EPILOG,
        renamed={"--json": "--output FILE, or --format json", "--pictures": "--plot FILE.png"},
    )
    add = parser.add_argument
    add("votes", type=Path, metavar="VOTES", help="file of labels (Q, K) or counts (Q, C)")
    add("--votes-format", choices=FORMATS, default="auto", help="what the file holds (default auto)")
    add_classes(parser, "number of classes, or their names (labels: default 2)")
    add("--queries", metavar="INT", help="use the first so many rows (default: all)")
    add("--delta", metavar="REAL", required=True, help="delta of the (epsilon, delta) statement")
    add("--threshold", metavar="REAL", help="T of the noisy check, in votes")
    add("--sigma1", metavar="REAL", help="noise of the check, in votes")
    add("--sigma2", metavar="REAL", help="noise of the answer, in votes")
    add("--gamma", metavar="REAL", help="inverse scale of Laplace noise: LNMax")
    add("--scores", type=Path, metavar="FILE", help="file of the student's scores (Q, C): Interactive-GNMax")
    add("--confidence", metavar="REAL", help="score from which a student is reinforced")
    add("--noise", choices=NOISES, default="discrete", help="which noise is accounted for")
    add("--conversion", choices=sorted(CONVERSIONS), default="tight", help="classic is Theorem 5")
    add("--check", choices=CHECKS, default="data-independent", help="how the check is accounted for")
    add("--order", metavar="REAL", help="order at which the cost is published")
    add("--deviation", metavar="REAL", help="scale of votes: noise of the publication, in votes")
    add("--beta", metavar="REAL", help="GNSS: smoothness")
    add("--sigma-ss", metavar="REAL", help="GNSS: noise, in units of the smooth sensitivity")
    add(
        "--expect-epsilon",
        metavar="REAL",
        help="choose how to publish by rules of thumb for this epsilon",
    )
    add("--safety", metavar="REAL", help="deviations of its noise that are added to a published cost (default 0)")
    add("--no-table-2", action="store_true", help="leave out how the cost would be published")
    add_outputs(parser, made="the rows as JSON (private data)", picture="both panels of Figure 5 (private data)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the votes, account for them, print, write and draw."""
    options = build_parser().parse_args(arguments)
    check_outputs(options)
    _read_numbers(options)
    aggregator = aggregator_of(options)
    smooth, on_votes = publication_of(options)
    with status_line(quiet=options.quiet) as line:
        everything = Votes.read(
            options.votes, classes=classes_of(options.classes), votes_format=options.votes_format, line=line
        )
        votes = everything[: rows_wanted(options.queries, everything.queries)]
        scores = None if options.scores is None else read_scores(options.scores, votes.queries)
        line.show("Table 1")
        analysis = quiet_analysis(
            votes, aggregator, options.delta, conversion=options.conversion, check=options.check, scores=scores
        )
        table_1 = table_1_row(analysis)
        _print(options, line, table_1_text(table_1))
        table_2 = scale = None
        searched = smooth is None and on_votes is None and not options.no_table_2  # both, without parameters
        if smooth is not None or searched:
            line.show("Table 2: smooth sensitivity")
            table_2 = table_2_row(
                analysis, smooth, report=lambda text: line.show(f"Table 2, smooth sensitivity: {text}")
            )
            _print(options, line, table_2_text(table_2))
        if on_votes is not None or searched:
            line.show("publication on the scale of votes")
            scale = vote_scale_row(analysis, on_votes)
            _print(options, line, vote_scale_text(scale))
        if options.plot is not None:
            draw_figure_5(analysis, options.plot)
    document = {"warning": WARNING, "table_1": table_1, "table_2": table_2, "vote_scale": scale}
    if options.output is not None:
        write_text(options.output, json.dumps(document, indent=1) + "\n")
    print_report(options, text=str, document=lambda: document)  # as text it was printed when it was known
    return 0


def _read_numbers(options: Namespace) -> None:
    for name in (*REALS, *PUBLICATION, "safety"):
        text = getattr(options, name)
        flag = f"--{name.replace('_', '-')}"
        least = -math.inf if name == "threshold" else 0.0
        setattr(options, name, None if text is None else real(flag, text, least))


def _print(options: Namespace, line: StatusLine, text: str) -> None:
    if options.format == "text" and not options.quiet:
        line.wipe()
        print_report(options, text=lambda: text, document=dict)
        sys.stdout.flush()


def aggregator_of(options: Namespace) -> PateAggregator:
    """Choose the aggregator that the options describe, or say which options do not go together."""
    if options.gamma is not None:
        _only(options, "--gamma", ("threshold", "sigma1", "sigma2", "scores", "confidence"))
        return LNMax(options.gamma, options.noise)
    if options.sigma2 is None:
        raise ValueError("say which aggregator: --sigma2 (GNMax), with --threshold and --sigma1, or --gamma (LNMax)")
    if options.threshold is None and options.sigma1 is None:
        _only(options, "--sigma2 without --threshold", ("scores", "confidence"))
        return GNMax(options.sigma2, options.noise)
    if options.threshold is None or options.sigma1 is None:
        raise ValueError("--threshold and --sigma1 describe the check together: give both or neither")
    if options.scores is None and options.confidence is None:
        return ConfidentGNMax(options.threshold, options.sigma1, options.sigma2, options.noise)
    if options.scores is None or options.confidence is None:
        raise ValueError("--scores and --confidence describe the student together: give both or neither")
    return InteractiveGNMax(options.threshold, options.sigma1, options.sigma2, options.confidence, options.noise)


def publication_of(options: Namespace) -> tuple[GnssParameters | None, PublicationParameters | None]:
    """Read the parameters of the publications asked for; if both are None they are to be searched on the votes."""
    given = {name: getattr(options, name) for name in PUBLICATION if getattr(options, name) is not None}
    if options.safety is not None and not given:
        raise ValueError("--safety belongs to a publication: give it with --expect-epsilon, or with --order")
    safety = SAFETY if options.safety is None else options.safety
    if given and options.no_table_2:
        raise ValueError("--no-table-2 leaves the publications out: give no parameters of them, or leave it out")
    if "expect_epsilon" in given:
        if len(given) > 1:
            raise ValueError("--expect-epsilon chooses the parameters of the publications: give it alone")
        target = (options.expect_epsilon, options.delta)
        return rules_of_thumb(*target, safety=safety), publication_rule(*target, safety=safety)
    if not given:
        return None, None
    smooth = {"beta", "sigma_ss"} & given.keys()
    if "order" not in given or len(smooth) == 1 or not (smooth or "deviation" in given):
        raise ValueError("give --order with --beta and --sigma-ss (smooth sensitivity), with --deviation, or with all")
    return (
        GnssParameters(options.order, options.beta, options.sigma_ss, safety) if smooth else None,
        PublicationParameters(options.order, options.deviation, safety) if "deviation" in given else None,
    )


def read_scores(path: Path, queries: int) -> NDArray[np.float64]:
    """Read the student's scores for the first so many queries."""
    scores = load_matrix(path)
    if scores.dtype.kind not in "biuf":
        checks.fail("--scores", str(path), "a file of numbers")
    return scores[:queries]


def rows_wanted(text: str | None, rows: int) -> int:
    """Read ``--queries``: how many of the rows are used."""
    wanted = rows if text is None else integer("--queries", text, 1)
    if not 1 <= wanted <= rows:
        checks.fail("--queries", wanted, f"from 1 to the number of rows, {rows}")
    return wanted


def _only(options: Namespace, chosen: str, others: tuple[str, ...]) -> None:
    extra = [f"--{name}" for name in others if getattr(options, name) is not None]
    if extra:
        raise ValueError(f"{chosen} does not go with {', '.join(extra)}: leave them out")


if __name__ == "__main__":
    sys.exit(run(main))
