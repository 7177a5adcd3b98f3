"""A release of a million labels and more: seconds and memory of the command, nanoseconds of its parts.

    python -m tests.load.releases --quick              # below a minute
    python -m tests.load.releases                      # 10^7 queries as well; some minutes
    python -m tests.load.releases --against CHECKOUT   # and another version, in turns

Writes OUTPUT/releases/releases.json, and OUTPUT/releases.md from the JSON. Every release is a process
`python -m darrm.release`, from a file of votes to a file of labels, with a new ledger: the start of Python, the proof
of the table, the account and the waiting for the disk are part of it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
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
from tests.load.measuring import ROOT, Taken, measured, python

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
QUICK_CASES = tuple((100_000, *files) for queries, *files in CASES if queries == 1_000_000)
PART_ROUNDS = 7
PART_QUERIES = 1_000_000
BUDGET = "1e8,1e-2"  # admits every case
WORDS = ("no", "yes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = pages.command_line(NAME, __doc__, module="tests.load.releases", quick="10^5 queries, below a minute")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another version, measured in turns")
    parser.add_argument("--parts", action="store_true", help="only print what the parts of a release take, as JSON")
    options = parser.parse_args(arguments)
    if options.parts:
        click.echo(json.dumps(parts()))
        return 0

    def measured_all() -> Row:
        checkouts = {"this": ROOT} if options.against is None else {"this": ROOT, "before": options.against}
        return {
            "commits": {version: commit_of(checkout) for version, checkout in checkouts.items()},
            "timings": measure(QUICK_CASES if options.quick else CASES, checkouts),
            "nanoseconds": {version: parts_of(checkout) for version, checkout in checkouts.items()},
        }

    return pages.run_whole(options, f"{NAME}/releases.json", measured_all, page)


def measure(cases: Sequence[tuple[Any, ...]], checkouts: dict[str, Path]) -> list[Row]:
    """Release every case by every version, in turns, and keep the medians."""
    timings: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table().table.save(folder / "table.json")
        for queries, votes, output in cases:
            write_votes(folder / votes, queries)
            rounds: dict[str, list[Taken]] = {version: [] for version in checkouts}
            for _ in range(1 if queries == LONGEST else ROUNDS):
                for version, checkout in checkouts.items():
                    rounds[version].append(release(folder, votes, output, checkout))
            for version, taken in rounds.items():
                middle = Taken.median(taken)
                row = {"queries": queries, "votes": votes, "output": output, "version": version}
                row |= {"seconds": middle.seconds, "cpu_seconds": middle.cpu_seconds}
                timings.append(row | {"peak_megabytes": middle.megabytes})
            (folder / votes).unlink()
    return timings


def table() -> Release:
    """Return the optimum for eleven voters whose answers add up however many they are."""
    return Release(optimize_table(Problem.from_allowance(Voters(K, PrivacyParams("0.1")), 3)))


def drawn_votes(queries: int) -> NDArray[np.uint8]:
    """Draw (queries, K) votes, three of four for 1."""
    return np.asarray(np.random.default_rng(0).random((queries, K), dtype=np.float32) < 0.75, dtype=np.uint8)


def write_votes(path: Path, queries: int) -> None:
    """Write votes as digits or words with commas, or as an array of one or eight bytes a vote."""
    votes = drawn_votes(queries)
    if path.stem == "digits":
        lines = np.full((queries, 2 * K), ord(","), dtype=np.uint8)
        lines[:, ::2] = votes + ord("0")
        lines[:, -1] = ord("\n")
        path.write_bytes(lines.tobytes())
    elif path.stem == "words":
        path.write_text("".join(",".join(WORDS[vote] for vote in row) + "\n" for row in votes.tolist()))
    else:
        np.save(path, votes.astype(np.int64) if path.stem == "int64" else votes)


def release(folder: Path, votes: str, output: str, checkout: Path) -> Taken:
    """Run the command once."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        files = [str(folder / votes), "--table", str(folder / "table.json"), "--output", f"{name}/{output}"]
        words = [*files, "--ledger", f"{name}/ledger.sqlite", "--create-budget", BUDGET, "--quiet"]
        words += ["--classes", ",".join(WORDS)] if "words" in votes else []
        # in the checkout: `-m` looks there first
        return measured("-m", "darrm.release", *words, checkout=checkout, folder=checkout)


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout, shortened."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return found.stdout.strip()


def parts_of(checkout: Path) -> dict[str, float]:
    """Measure the parts of a release with a checkout's modules."""
    return dict(json.loads(python(__file__, "--parts", checkout=checkout, folder=checkout)))


def parts() -> dict[str, float]:
    """Return the nanoseconds of the processor that a label takes in each part, as medians."""
    aggregator, matrix = table(), drawn_votes(PART_QUERIES)
    votes = Votes.of_labels(matrix, 2)
    truth = np.array([float(aggregator.probability_of_one(ones)) for ones in range(K + 1)])
    generator = np.random.default_rng(1)
    actions: dict[str, Callable[[], object]] = {
        "a random byte of the operating system": partial(os.urandom, PART_QUERIES),
        "an exact coin": partial(vars(aggregator)["_sampler"].lies.flip, votes.ones),
        "a floating-point coin, for comparison": lambda: generator.random(PART_QUERIES) < truth[votes.ones],
        "counting the votes, of one byte each": partial(Votes.of_labels, matrix, 2),
        "counting the votes, of eight bytes each": partial(Votes.of_labels, matrix.astype(np.int64), 2),
        "a label, from counted votes": partial(aggregator.release, votes),
    }
    rounds = [{name: nanoseconds(action) for name, action in actions.items()} for _ in range(PART_ROUNDS)]
    return {name: statistics.median(taken[name] for taken in rounds) for name in actions}


def nanoseconds(action: Callable[[], object]) -> float:
    """Return the processor's time of an action on all queries, for one of them."""
    started = time.process_time()
    action()
    return 1e9 * (time.process_time() - started) / PART_QUERIES


def page(data: Row) -> str:
    """Fill the page of the documentation; `earlier` has the numbers of the version before."""
    rows = [dict(row) for row in data["timings"] if row["version"] == "this"]
    before = {(row["queries"], row["votes"]): row for row in data["timings"] if row["version"] == "before"}
    parts_taken: list[Row] = [{"name": name, "ns": taken} for name, taken in data["nanoseconds"]["this"].items()]
    if before:
        for row in rows:
            row["earlier"] = before[row["queries"], row["votes"]]
            row["times_less"] = row["earlier"]["cpu_seconds"] / row["cpu_seconds"]
        for row in parts_taken:
            row["earlier"] = data["nanoseconds"]["before"][row["name"]]
            row["times_less"] = row["earlier"] / row["ns"]
    facts = {"before": before, "voters": K, "rounds": ROUNDS, "longest": LONGEST}
    return pages.filled(NAME, facts, {"timings": rows, "parts": parts_taken}, data)


if __name__ == "__main__":
    sys.exit(run(main))
