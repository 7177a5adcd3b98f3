"""Report a table as text, as JSON and as a picture, for `python -m darrm.optimize`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.commands.command_line import spread
from darrm.majority.noise_function import NoiseFunction
from darrm.optimize.comparison import Entry, WithMissing, compare, with_missing
from darrm.optimize.rounding import fitting
from darrm.priors import Prior
from darrm.problem import Voters
from darrm.table.picture import plot_noise_functions
from darrm.table.table import Table
from darrm.table.text import majority_heading, majority_proof
from darrm.util import checks
from darrm.util.files import Document

_MOST_LINES = 60  # in the table of γ
_COLUMN = 9  # characters
_SMALL_GAIN = 0.1  # labels per 100
_RULES = {
    "γ_opt": "with the best noise found, γ_opt",
    "γ_flat": "with the best constant, the best simple rule, γ_flat",
    "γ_Sub": "by sub-sampling, γ_Sub",
}


@dataclass(frozen=True, eq=False)
class Report(ABC):
    """The report of the command on an optimal table."""

    table: Table

    @abstractmethod
    def blocks(self, *, everything: bool, remark: str) -> Iterable[str]:
        """Write the paragraphs for a person.

        ``everything`` includes the rules that do not apply and the reasons; ``remark`` is a note on the voters'
        guarantees.
        """

    @abstractmethod
    def details(self) -> Document:
        """Write the part of the JSON document that depends on the kind of law."""

    def text(self, output: Path | None, *, everything: bool = False, remark: str = "") -> str:
        """Write the report for a person."""
        unsaved = "Not saved: --output FILE.json keeps the table with its proof."
        closing = unsaved if output is None else f"Table written to {output}"
        return (
            "\n\n".join(block for block in (*self.blocks(everything=everything, remark=remark), closing) if block)
            + "\n"
        )

    def document(self, output: Path | None) -> Document:
        """Write the JSON document; schemas: `optimize_report.json` and `plurality_report.json` in `darrm/schemas`."""
        optimality, written = self.table.optimality, None
        if optimality is not None:
            written = {**optimality.to_json(self.table.problem), "gap": optimality.gap, "claimed": optimality.claimed}
            del written["multipliers"]  # the table keeps them
        return {
            **self.details(),
            "optimality": written,
            "provenance": dict(self.table.provenance),
            "output": None if output is None else str(output),
        }


@dataclass(frozen=True, eq=False)
class GammaReport(Report):
    """The report on a γ, compared with the baselines of the paper and the best constant under the same prior."""

    entries: Sequence[Entry]
    missing: Sequence[WithMissing] = ()

    @classmethod
    def of(cls, table: Table, missing: Iterable[int], show: Callable[[str], object]) -> GammaReport:
        """Compare an optimal table with the baselines and evaluate it with missing votes; ``show`` prints progress."""
        prior = _prior_of(table)
        rows = with_missing(table, prior, missing, report=lambda now: show(f"evaluating with {now} votes missing"))
        return cls(table, compare(table, prior), rows)

    def blocks(self, *, everything: bool, remark: str) -> Iterable[str]:
        """Write the paragraphs, with random guessing under the prior as a reference."""
        return (
            _decision(self.entries, _prior_of(self.table)),
            majority_heading(self.table.problem, self.table.optimality, remark),
            _values(self.table, self.entries, _prior_of(self.table)),
            _remarks(self.entries, everything=everything),
            _missing(self.missing),
            majority_proof(self.table.problem, self.table.certificate, self.table.optimality),
        )

    def details(self) -> Document:
        """Write every noise function of the comparison, with its certificate."""
        problem = self.table.problem
        return {
            "format": "darrm optimize report",
            "version": 1,
            "problem": {**problem.to_json(), "m": problem.m if problem.voters.each.is_private else None},
            "levels": self.table.gamma.levels.tolist(),
            "noise_functions": [
                {
                    "name": entry.name,
                    "gamma": None if entry.table is None else entry.table.gamma.half.tolist(),
                    "share_right": entry.share_right,
                    "expected_error": entry.expected_error,
                    "certificate": None if entry.table is None else asdict(entry.table.certificate),
                    "remark": entry.remark,
                }
                for entry in self.entries
            ],
            **({"missing": [asdict(row) for row in self.missing]} if self.missing else {}),
        }

    def plot(self, path: Path) -> None:
        """Draw γ over the number of ones for every noise function that exists."""
        named = []
        for place, entry in enumerate(self.entries):
            if entry.table is not None:
                right = "" if entry.share_right is None else f"right labels {entry.share_right:.4f}, "
                label = f"{entry.name}   {right}expected error {entry.expected_error:.4g}"
                named.append((label, place, entry.table.gamma))
        plot_noise_functions(self.table.problem, named, path)


def _prior_of(table: Table) -> Prior:
    if table.optimality is None:
        checks.fail(
            "table", checks.Found("one that was not optimized"), "one with a prior", "say optimize_table(problem)"
        )
    return table.optimality.prior


def _decision(entries: Sequence[Entry], prior: Prior) -> str:
    """Count the wrong labels of the best γ and of the simple rules; empty if fewer than two are known."""
    wrong = {entry.name: 100.0 * (1.0 - entry.share_right) for entry in entries if entry.share_right is not None}
    shown = [f"{wrong[name]:>8.3g}  {rule}" for name, rule in _RULES.items() if name in wrong]
    if len(shown) < 2:
        return ""
    gain = wrong["γ_flat"] - wrong["γ_opt"]
    small = f"  the gain over the best constant is small here: {gain:.2g} of 100 labels"
    return "\n".join([f"Of 100 labels are wrong, under {prior}:", *shown, *([small] if gain < _SMALL_GAIN else [])])


def _values(table: Table, entries: Sequence[Entry], prior: Prior) -> str:
    shown = {entry.name + ("*" if entry.remark else ""): entry for entry in entries if entry.table is not None}
    columns = {name: entry.table.gamma.half for name, entry in shown.items() if entry.table is not None}
    elsewhere = "--output or --format json"
    values = _level_table(table.gamma.levels, columns, elsewhere)
    shares = "".join(f"{_short(entry.share_right):>{_COLUMN}}" for entry in shown.values())
    errors = "".join(f"{_short(entry.expected_error):>{_COLUMN}}" for entry in shown.values())
    coin = NoiseFunction(table.gamma.K, np.zeros(table.gamma.half.size)).share_right(prior)
    right = (
        "" if coin is None else f"{'right':>8}{shares}   (share of right labels under the prior; a coin: {coin:.4f})\n"
    )
    return (
        "γ(l): the probability of telling the true majority of l ones, else a fair coin; γ(l) = γ(K − l)\n"
        f"{values}\n{right}{'error':>8}{errors}   (expected, under the prior)"
    )


def _missing(rows: Sequence[WithMissing]) -> str:
    if not rows:
        return ""
    chosen = [rows[place] for place in spread(len(rows), _MOST_LINES)]
    lines = [
        "γ_opt where votes are missing and fair coins stand for them (darrm release --missing coin): right is what",
        "most of the votes that are there say, and at a tie both labels are right",
        f"{'missing':>8}{'right':>{_COLUMN}}{'error':>{_COLUMN}}",
    ]
    for row in chosen:
        share, error = _short(row.share_right), _short(row.expected_error)
        lines.append(f"{row.missing:>8}{share:>{_COLUMN}}{error:>{_COLUMN}}")
    if len(chosen) < len(rows):
        lines.append(f"  ({len(chosen)} of {len(rows)} lines shown; --format json has all)")
    return "\n".join(lines)


def _short(error: float | None) -> str:
    if error is None:
        return ""
    return f"{error:.4f}" if error >= 1e-3 or error == 0.0 else f"{error:.1e}"


def _remarks(entries: Sequence[Entry], *, everything: bool) -> str:
    lines = [f"  {entry.name + '*':<9}{entry.remark}" for entry in entries if entry.remark and entry.table is not None]
    absent = [(entry.name, entry.remark) for entry in entries if entry.table is None]
    return "\n".join([*lines, *_absences(absent, everything=everything)])


def fitted(voters: Voters, classes: int = 2, *, quiet: bool = True) -> Voters:
    """Call `fitting`; unless ``quiet``, report the rounding on standard error."""
    found = fitting(voters, classes)
    if found != voters and not quiet:
        before, after = voters.private_kinds, found.private_kinds
        lost = sum(n for n, _ in before) - sum(n for n, _ in after)
        grown = [sum(each.epsilon * n for n, each in some) for some in (after, before)]
        how = f"{lost} voters to no privacy" if lost else f"all ε together by a factor of {grown[0] / grown[1]:.4g}"
        kinds = ", ".join(f"{n} {'voter' if n == 1 else 'voters'} {each}" for n, each in found.kinds)
        sys.stderr.write(
            f"note: {len(voters.kinds)} kinds of voters have more rows than are looked at, so ε and Δ were rounded up, "
            f"{how}: {kinds}\n"
        )
    return found


def _absences(absent: Sequence[tuple[str, str]], *, everything: bool) -> list[str]:
    """Explain why some rules do not apply, or count them."""
    if everything or not absent:
        return [f"  {name} does not apply: {reason}" for name, reason in absent]
    return [f"  {len(absent)} more {'does' if len(absent) == 1 else 'do'} not apply: --all says why"]


def _level_table(levels: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]], elsewhere: str) -> str:
    """Tabulate functions of l in at most `_MOST_LINES` lines; ``elsewhere`` names the complete output."""
    chosen = spread(len(levels), _MOST_LINES)
    lines = [f"{'l':>8}" + "".join(f"{name:>{_COLUMN}}" for name in columns)]
    lines += [f"{levels[i]:>8}" + "".join(f"{values[i]:>{_COLUMN}.4f}" for values in columns.values()) for i in chosen]
    if len(chosen) < len(levels):
        lines.append(f"  ({len(chosen)} of {len(levels)} lines shown; {elsewhere} has all)")
    return "\n".join(lines)
