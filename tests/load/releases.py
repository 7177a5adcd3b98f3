"""A release of a million labels and more: seconds and memory of the command, nanoseconds of its parts.

    python -m tests.load.releases --recompute   # some minutes

Every release is a process
`python -m darrm.release`, from a file of votes to a file of labels, with a new ledger: the start of Python, the proof
of the table, the account and the waiting for the disk are part of it.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.commands.command_line import run
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release
from darrm.votes import Votes
from experiments import pages
from experiments.pages import Row
from tests.load.measuring import Usage, measure_process

NAME = "releases"
K = 11
ROUNDS = 3  # the median counts; one for the longest
LONGEST = 10_000_000
CASES = (
    (1_000_000, "digits.csv", "labels.csv"),
    (1_000_000, "words.csv", "labels.csv"),
    (1_000_000, "int64.npy", "labels.npy"),
    (1_000_000, "bytes.npy", "labels.npy"),
    (LONGEST, "bytes.npy", "labels.npy"),
    (LONGEST, "digits.csv", "labels.csv"),
)
PART_ROUNDS = 7
PART_QUERIES = 1_000_000
BUDGET = "1e8,1e-2"  # admits every case
WORDS = ("no", "yes")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = pages.make_command_line(NAME, __doc__, module="tests.load.releases", quick="10^5 queries, below a minute")
    options = parser.parse_args(arguments)

    def measure_all() -> Row:
        quick = [(100_000, *files) for queries, *files in CASES if queries == 1_000_000]
        return {"timings": measure(quick if options.quick else CASES), "nanoseconds": parts()}

    return pages.run_measurement(options, f"{NAME}/{NAME}.json", measure_all, page)


def measure(cases: Sequence[tuple[Any, ...]]) -> list[Row]:
    timings: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table().table.save(folder / "table.json")
        for queries, votes, output in cases:
            write_votes(folder / votes, queries)
            rounds = range(1 if queries == LONGEST else ROUNDS)
            usage = Usage.median([release(folder, votes, output) for _ in rounds])
            timings.append({"queries": queries, "votes": votes, "output": output, **asdict(usage)})
            (folder / votes).unlink()
    return timings


def table() -> Release:
    """Return the optimum for eleven voters; its guarantees of several queries add up."""
    return Release(optimize_table(Problem.from_allowance(Voters(K, PrivacyParams("0.1")), 3)))


def draw_votes(queries: int) -> NDArray[np.uint8]:
    return np.asarray(np.random.default_rng(0).random((queries, K), dtype=np.float32) < 0.75, dtype=np.uint8)


def write_votes(path: Path, queries: int) -> None:
    """Write votes as digits or words with commas, or as an array of one or eight bytes a vote."""
    votes = draw_votes(queries)
    if path.stem == "digits":
        lines = np.full((queries, 2 * K), ord(","), dtype=np.uint8)
        lines[:, ::2] = votes + ord("0")
        lines[:, -1] = ord("\n")
        path.write_bytes(lines.tobytes())
    elif path.stem == "words":
        path.write_text("".join(",".join(WORDS[vote] for vote in row) + "\n" for row in votes.tolist()))
    else:
        np.save(path, votes.astype(np.int64) if path.stem == "int64" else votes)


def release(folder: Path, votes: str, output: str) -> Usage:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        files = [str(folder / votes), "--table", str(folder / "table.json"), "--output", f"{name}/{output}"]
        words = [*files, "--ledger", f"{name}/ledger.sqlite", "--create-budget", BUDGET, "--quiet"]
        words += ["--classes", ",".join(WORDS)] if "words" in votes else []
        return measure_process("-m", "darrm.release", *words, folder=folder)


def parts() -> dict[str, float]:
    """Return the nanoseconds of the processor that a label takes in each part, as medians."""
    aggregator, matrix = table(), draw_votes(PART_QUERIES)
    votes = Votes.from_labels(matrix, 2)
    truth = np.array([float(aggregator.probability_of_one(ones)) for ones in range(K + 1)])
    generator = np.random.default_rng(1)
    actions: dict[str, Callable[[], object]] = {
        "a random byte of the operating system": partial(os.urandom, PART_QUERIES),
        "an exact coin": partial(vars(aggregator)["_sampler"].error_coins.flip, votes.ones),
        "a floating-point coin, for comparison": lambda: generator.random(PART_QUERIES) < truth[votes.ones],
        "counting the votes, of one byte each": partial(Votes.from_labels, matrix, 2),
        "counting the votes, of eight bytes each": partial(Votes.from_labels, matrix.astype(np.int64), 2),
        "a label, from counted votes": partial(aggregator.release, votes),
    }
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(PART_ROUNDS):
        for name, action in actions.items():
            started = time.process_time()
            action()
            times[name].append(1e9 * (time.process_time() - started) / PART_QUERIES)
    return {name: statistics.median(values) for name, values in times.items()}


def page(data: Row) -> str:
    return pages.fill_template(NAME, {"voters": K, "rounds": ROUNDS, "longest": LONGEST}, data)


if __name__ == "__main__":
    sys.exit(run(main))
