"""Analyze the original votes of [P]: its Tables 1 and 2, and our bounds on the same runs.

    python -m experiments pate_votes --recompute --votes FOLDER

FOLDER has the histograms that the authors published for their analysis: mnist_250_teachers.npy, svhn_250_teachers.npy
and adult_250_teachers.npy. https://github.com/frhrdr/patepy has them in test_application/pate2018_test_data. They are
not part of this project, so the page depends only on the figures in OUTPUT/pate_votes/pate_votes.json.
"""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from darrm.loss.renyi import DEFAULT_ORDERS, RenyiGridWarning
from darrm.noisy_max.mechanisms import LNMax
from darrm.numerics import Array
from darrm.pate.analysis import Analysis, PateAggregator, PrivateFigureWarning, analyze
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.gnss import printed_cost
from darrm.pate.smooth_sensitivity import smooth_cost
from darrm.util.files import check_regular
from darrm.votes import Votes
from experiments import pages
from experiments.pages import Row
from experiments.pate.settings import LNMAX, MNIST_WAY, SVHN_WAY, TABLE_2, Table2Row
from experiments.tested import PASS_PROBABILITY, find_least_budget

NAME = "pate_votes"
_MAX_BYTES = 2**24
_EARLY_ORDERS = DEFAULT_ORDERS[DEFAULT_ORDERS <= 9.0]  # [P17] has 8 moments; its moment l is order l + 1


@dataclass(frozen=True)
class Archive:
    """The votes on one data set, and the runs of [P] on the first of them."""

    name: str
    digest: str  # SHA-256 of the file
    confident: ConfidentGNMax
    queries: int
    answered: int  # as printed in [P, Table 1]
    row: Table2Row
    laplace: tuple[tuple[int, float], ...]  # queries to LNMax, and the printed ε


_DIGESTS = (
    "da4832fc6613b515a54918d4fa32fdeffca4e8330f576d77a273fa1ecdd0a423",
    "96b6497af4304283e666b7e963c8f4b86ef3355b34b2d6f9b250666d8d9dde3f",
    "0b725d5d95b476f71f3ba74fcc879fc4a92e1d73690d2eabbf7645358ef15174",
)
ARCHIVES = (
    Archive("mnist", _DIGESTS[0], MNIST_WAY, 640, 286, TABLE_2[0], ((100, 2.04), (1_000, 8.03))),
    Archive("svhn", _DIGESTS[1], SVHN_WAY, 8_500, 3_098, TABLE_2[1], ((500, 5.04), (1_000, 8.19))),
    Archive("adult", _DIGESTS[2], SVHN_WAY, 1_500, 524, TABLE_2[2], ((500, 2.66),)),
)


def read_archive(folder: Path, archive: Archive) -> Votes:
    """Read the histograms of one data set; `ValueError` if the hash is not that of the authors' file."""
    path = folder / f"{archive.name}_250_teachers.npy"
    check_regular(path, _MAX_BYTES)
    if hashlib.sha256(path.read_bytes()).hexdigest() != archive.digest:
        raise ValueError(f"{str(path)!r} is not the file of the authors: its SHA-256 must be {archive.digest}")
    return Votes.from_counts(np.load(path).astype(np.int64))


def measure(votes: Votes, archive: Archive) -> Row:
    """Compute the columns of [P] with continuous noise, and our bounds with discrete noise."""
    row, run_votes = archive.row, votes[: archive.queries]
    ((smoothness, printed_sensitivity, noise_scale),) = row.publications
    continuous, orders = replace(archive.confident, noise="continuous"), np.append(DEFAULT_ORDERS, row.order)
    reference = _analyze(run_votes, continuous, row.delta, orders)
    analysis = _analyze(run_votes, archive.confident, row.delta)
    epsilon = reference.theorem_6.curve.best(row.delta, conversion="classic")
    sensitivity = smooth_cost(reference, row.order, smoothness).sensitivity(reference.probabilities, smoothness)
    tested_epsilon, order = find_least_budget(
        run_votes, archive.confident, row.delta, analysis.data_independent_epsilon
    )
    return {
        "name": row.name,
        "queries": archive.queries,
        "delta": row.delta,
        "order": row.order,
        "printed": {
            "answered": archive.answered,
            "epsilon": row.epsilon,
            "sensitivity": printed_sensitivity,
            "deviation": row.deviation,
            "sanitized": row.sanitized,
        },
        "answered": reference.expected_answered,
        "epsilon": epsilon.epsilon,
        "best_order": epsilon.order,
        "sensitivity": sensitivity,
        "deviation": sensitivity * noise_scale,
        "sanitized": epsilon.epsilon + printed_cost(row.order, smoothness, noise_scale),
        "theorem_6": analysis.to_epsilon(analysis.theorem_6.curve),
        "exact": None if analysis.exact is None else analysis.to_epsilon(analysis.exact.curve),
        "data_independent": analysis.data_independent_epsilon,
        "tested": tested_epsilon,
        "tested_order": order,
        "laplace": [_analyze_laplace(votes[:count], count, row.delta, paper) for count, paper in archive.laplace],
    }


def _analyze_laplace(votes: Votes, queries: int, delta: float, printed: float) -> Row:
    """Return ε of LNMax by Theorem 6: with the orders of [P17], and with all of ours."""
    aggregator = LNMax(LNMAX.gamma, noise="continuous")
    early_epsilon, epsilon = (
        _analyze(votes, aggregator, delta, orders).theorem_6.curve.best(delta, conversion="classic").epsilon
        for orders in (_EARLY_ORDERS, DEFAULT_ORDERS)
    )
    return {"queries": queries, "printed": printed, "epsilon": early_epsilon, "all_orders": epsilon}


def _analyze(votes: Votes, aggregator: PateAggregator, delta: float, orders: Array = DEFAULT_ORDERS) -> Analysis:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivateFigureWarning)  # the authors published these votes
        warnings.simplefilter("ignore", RenyiGridWarning)
        return analyze(votes, aggregator, delta, orders=np.unique(orders))


def fill_page(rows: Sequence[Row]) -> str:
    shown_rows = [row | {"share": row["exact"] / row["printed"]["epsilon"]} for row in rows]
    shares = {kind: [row[kind] / row["printed"]["epsilon"] for row in rows] for kind in ("tested", "exact")}
    holds = {"tested": max(shares["tested"]) < 1.0, "exact": max(shares["exact"]) < 2.0 / 3.0}
    return pages.fill_template(NAME, {"rows": shown_rows, "chance": PASS_PROBABILITY, "shares": shares, "holds": holds})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(NAME, __doc__)
    parser.add_argument("--votes", type=Path, metavar="FOLDER", help="the folder with the authors' three files")
    options = parser.parse_args(arguments)
    if options.votes is None and not options.page:
        parser.error("--votes FOLDER is required: the folder with the authors' three files")
    return pages.run_measurement(
        options,
        f"{NAME}/{NAME}.json",
        lambda: [measure(read_archive(options.votes, archive), archive) for archive in ARCHIVES],
        fill_page,
    )
