"""The page about releases of Parquet files, written from the numbers of a run and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.pages import Claim, claims_table, read_json, table

MANY_ROWS = 10**8

INTRODUCTION = """\
# Releases of Parquet files: how many rows a second

Written by `python -m experiments.partitions --output docs/reproduction` from the JSON of its run: {rows:,} rows of
{voters} votes in {files} files, compressed as pyarrow does by default, are released by a table, with one debit, in this
process or by Dask workers of the same machine (`LocalCluster`, one thread each). The machine has {cores} cores, and
others may have used them. Every file is read twice: the *survey* checks all votes before anything is paid, the *draw*
reads them again. [How it is done](../how-to/release-parquet.md)."""

LIMITS = """\
## What limits it

Decoding columns of votes takes most of the work, twice. *Busy* is how many cores worked on it (processor time by
time): where it is below the number of workers and of cores, other programs had the rest of the machine, and the times
say more about these than about the release. *Votes a processor second* depend on them less, through caches and cores
that are shared. Each worker proves the table again, and more workers than cores win nothing. The
ledger is debited once, and the label of a row takes one byte to write. On several machines what is left are the file
system, which has to deliver every file twice (and again for its digests), and the largest file: a file is one worker's.
The memory is that of the largest process. It holds the libraries, a batch of rows, a page of every column and what the
allocator keeps for the next ones, and it does not grow with the number of rows.

The last column is the time of 10⁸ rows at this rate, an extrapolation."""


@dataclass(frozen=True)
class Measurement:
    """One release: seconds of time and of the processors, and the memory of the largest process."""

    kind: str
    workers: int
    megabytes: float
    survey_seconds: float
    draw_seconds: float
    processor_seconds: float
    peak_megabytes: float

    @property
    def seconds(self) -> float:
        """Both passes."""
        return self.survey_seconds + self.draw_seconds


@dataclass(frozen=True)
class Results:
    """A run: the machine, how much was released, and every release."""

    cores: int
    voters: int
    files: int
    rows: int
    measured: tuple[Measurement, ...]

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Read what a run wrote."""
        data: Mapping[str, Any] = read_json(path)
        return cls(**{**data, "measured": tuple(Measurement(**each) for each in data["measured"])})

    @cached_property
    def claims(self) -> list[Claim]:
        """Decide what the page says."""
        speeds = [one.seconds / two.seconds for one, two in zip(self._with(1), self._with(2), strict=True)]
        whole = self.rows * self.voters / 1e6
        most = max(each.peak_megabytes for each in self.measured)
        return [
            Claim(
                "two workers are at least 1.6 times as fast as one",
                ", ".join(f"{speed:.2f} times" for speed in speeds),
                min(speeds) >= 1.6,
            ),
            Claim(
                "no process takes 512 MB of memory",
                f"at most {most:.1f} MB; the votes would take {whole:,.1f} MB at a byte each",
                most < 512,
            ),
        ]

    def _with(self, workers: int) -> list[Measurement]:
        return [each for each in self.measured if each.workers == workers]


def page(results: Results) -> str:
    """Write the page."""
    head = ["votes", "workers", "files, MB", "survey, s", "draw, s", "rows a second", "million votes a second"]
    head += ["million votes a processor second", "busy", "memory, MB", "10⁸ rows"]
    rows = [
        [
            each.kind,
            each.workers or "none",
            f"{each.megabytes:.1f}",
            f"{each.survey_seconds:.2f}",
            f"{each.draw_seconds:.2f}",
            f"{results.rows / each.seconds:,.0f}",
            f"{results.rows * results.voters / each.seconds / 1e6:.1f}",
            f"{results.rows * results.voters / each.processor_seconds / 1e6:.1f}",
            f"{each.processor_seconds / each.seconds:.2f}",
            f"{each.peak_megabytes:.1f}",
            f"{MANY_ROWS * each.seconds / results.rows / 60:.1f} min",
        ]
        for each in results.measured
    ]
    introduction = INTRODUCTION.format(
        rows=results.rows, voters=results.voters, files=results.files, cores=results.cores
    )
    parts = [introduction, claims_table(results.claims), table(head, rows), LIMITS]
    return "\n\n".join(parts) + "\n"
