"""Command line ``python -m darrm.pate``: what a PATE run costs, how to publish it, and the pictures of Figure 5."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm import checks
from darrm.losses.renyi import CONVERSIONS
from darrm.pate.analysis import CHECKS, WARNING, PateAggregator
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.gnss import GnssParameters, rules_of_thumb
from darrm.pate.interactive import InteractiveGNMax
from darrm.pate.noise_tails import NOISES
from darrm.pate.noisy_max import GNMax, LNMax
from darrm.pate.report import quiet_analysis, report_text, table_1_row, table_2_row
from darrm.pate.vote_counts import check_histograms, counts_from_labels
from darrm.system.command_line import CommandLine, run
from darrm.system.files import write_text
from darrm.system.votes_file import load_votes

EPILOG = """\
votes: a .npy or .csv matrix, one row a query: the labels of K teachers (Q, K), or the counts of C classes (Q, C)
aggregators: --sigma2 alone is GNMax; with --threshold and --sigma1 Confident-GNMax; with --scores and --confidence
Interactive-GNMax; --gamma alone is LNMax

example: python -m darrm.pate VOTES.npy --threshold 200 --sigma1 150 --sigma2 40 --queries 640 --delta 1e-5
"""


def parser() -> CommandLine:
    """Describe the command line."""
    line = CommandLine(
        prog="python -m darrm.pate",
        description="Privacy cost of a PATE run from its votes: the rows of Tables 1 and 2 of the paper.",
        epilog=EPILOG,
    )
    line.add_argument("votes", type=Path, help="file of labels (Q, K) or counts (Q, C)")
    line.add_argument("--format", choices=("auto", "labels", "counts"), default="auto", help="what the file holds")
    line.add_argument("--classes", type=int, help="number of classes C, where the file holds labels")
    line.add_argument("--queries", type=int, help="use the first so many rows (default: all)")
    line.add_argument("--delta", type=float, required=True, help="delta of the (epsilon, delta) statement")
    line.add_argument("--threshold", type=float, help="T of the noisy check, in votes")
    line.add_argument("--sigma1", type=float, help="noise of the check, in votes")
    line.add_argument("--sigma2", type=float, help="noise of the answer, in votes")
    line.add_argument("--gamma", type=float, help="inverse scale of Laplace noise: LNMax")
    line.add_argument("--scores", type=Path, help="file of the student's scores (Q, C): Interactive-GNMax")
    line.add_argument("--confidence", type=float, help="score from which a student is reinforced")
    line.add_argument("--noise", choices=NOISES, default="discrete", help="which noise is accounted for")
    line.add_argument("--conversion", choices=sorted(CONVERSIONS), default="classic", help="classic is Theorem 5")
    line.add_argument("--check", choices=CHECKS, default="data-independent", help="how the check is accounted for")
    line.add_argument("--order", type=float, help="GNSS: order at which the cost is published")
    line.add_argument("--beta", type=float, help="GNSS: smoothness")
    line.add_argument("--sigma-ss", type=float, help="GNSS: noise, in units of the smooth sensitivity")
    line.add_argument("--expect-epsilon", type=float, help="GNSS: choose all three by rules of thumb for this epsilon")
    line.add_argument("--no-table-2", action="store_true", help="leave out the smooth sensitivity (it takes longest)")
    line.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON to FILE (- for the screen)")
    line.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="write figure_5_left.png, figure_5_right.png there"
    )
    return line


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the votes, account for them, print or save."""
    options = parser().parse_args(arguments)
    aggregator = aggregator_of(options)
    parameters = gnss_of(options)
    counts = read_counts(options.votes, options.format, options.classes)
    counts = first_rows(counts, options.queries)
    scores = None if options.scores is None else first_rows(read_matrix(options.scores), counts.shape[0])
    analysis = quiet_analysis(
        counts, aggregator, options.delta, conversion=options.conversion, check=options.check, scores=scores
    )
    table_1 = table_1_row(analysis)
    table_2 = None if options.no_table_2 else table_2_row(analysis, parameters)
    if options.pictures is not None:
        from darrm.pate.pictures import draw_figure_5  # noqa: PLC0415 (matplotlib is an extra)

        for path in draw_figure_5(analysis, options.pictures):
            sys.stderr.write(f"wrote {path}\n")
    if options.json is None:
        sys.stdout.write(report_text(table_1, table_2) + "\n")
        return 0
    text = json.dumps({"warning": WARNING, "table_1": table_1, "table_2": table_2}, indent=2) + "\n"
    if str(options.json) == "-":
        sys.stdout.write(text)
    else:
        write_text(options.json, text)
    return 0


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


def gnss_of(options: Namespace) -> GnssParameters | None:
    """Read the GNSS parameters; None where they are to be searched on the votes."""
    given = (options.order, options.beta, options.sigma_ss)
    if options.expect_epsilon is not None:
        if any(value is not None for value in given):
            raise ValueError("--expect-epsilon chooses --order, --beta and --sigma-ss: give it alone or the three")
        return rules_of_thumb(options.expect_epsilon, options.delta)
    if all(value is None for value in given):
        return None
    if any(value is None for value in given):
        raise ValueError("--order, --beta and --sigma-ss go together: give all three or none")
    return GnssParameters(*given)


def read_counts(path: Path, kind: str, classes: int | None) -> NDArray[np.int64]:
    """Read (Q, C) vote counts from a file of labels or counts; ``"auto"`` refuses what could be either."""
    matrix = read_matrix(path)
    if kind == "auto":
        kind = guess_format(matrix)
    if kind == "labels":
        return counts_from_labels(matrix, classes)
    counts = check_histograms(matrix)
    if classes is not None and classes != counts.shape[1]:
        checks.fail("--classes", classes, f"the number of columns of the counts, {counts.shape[1]}")
    return counts


def read_matrix(path: Path) -> NDArray[Any]:
    """Read a matrix of numbers with at least one entry."""
    matrix = load_votes(path, named_classes=False)
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "biuf":
        found = f"shape {matrix.shape} of type {matrix.dtype}"
        raise ValueError(f"{str(path)!r} must hold a matrix of numbers with at least one entry, got {found}")
    return matrix


def guess_format(matrix: NDArray[Any]) -> str:
    """Tell counts (all rows have one sum) from labels (more columns than classes, different sums).

    Examples
    --------
    >>> guess_format(np.array([[3, 0], [1, 2]])), guess_format(np.array([[0, 1, 1], [1, 1, 1]]))
    ('counts', 'labels')
    """
    sums = matrix.sum(axis=1)
    if np.any(np.isnan(sums)) or matrix.min() < 0:
        return "counts"  # the check names what is wrong
    same = bool(np.all(sums == sums[0]))
    if same and matrix.shape[0] > 1 and sums[0] > 0:
        return "counts"
    if not same and matrix.max() < matrix.shape[1]:
        return "labels"
    if same:
        raise ValueError("the votes could be labels or counts: say --format labels or --format counts")
    row = int(np.argmax(sums != sums[0]))
    raise ValueError(
        f"the votes are no counts (row {row} sums to {sums[row]:g}, row 0 to {sums[0]:g}) and hardly labels (values "
        f"up to {matrix.max():g} in {matrix.shape[1]} columns): repair them, or say --format labels"
    )


def first_rows(matrix: NDArray[Any], queries: int | None) -> NDArray[Any]:
    """Take the first rows, or all."""
    if queries is None:
        return matrix
    checks.integer_at_least(1, queries=queries)
    if queries > matrix.shape[0]:
        checks.fail("queries", queries, f"at most the number of rows, {matrix.shape[0]}")
    return matrix[:queries]


def _only(options: Namespace, chosen: str, others: tuple[str, ...]) -> None:
    extra = [f"--{name}" for name in others if getattr(options, name) is not None]
    if extra:
        raise ValueError(f"{chosen} does not go with {', '.join(extra)}: leave them out")


if __name__ == "__main__":
    sys.exit(run(main))
