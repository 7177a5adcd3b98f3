"""What `python -m darrm.optimize` shows: as text, as JSON, and as a picture."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from darrm.errors import checks
from darrm.laws.noise_function import NoiseFunction
from darrm.laws.priors import Prior, in_words
from darrm.optimize.comparison import Entry, WithMissing, compare, with_missing
from darrm.optimize.rounding import fitting
from darrm.problem import Problem, Voters
from darrm.proof.optimality import Optimality
from darrm.proof.table import Table
from darrm.system.command_line import absences, level_table, spread
from darrm.system.figures import saved_figure, style
from darrm.system.files import Document

_MOST_KINDS = 12
_MOST_LINES = 60  # of the table of γ
_COLUMN = 9  # characters
_SMALL_GAIN = 0.1  # of 100 labels
_RULES = {
    "γ_opt": "with the best noise found, γ_opt",
    "γ_flat": "with the best constant, the best simple rule, γ_flat",
    "γ_Sub": "by sub-sampling, γ_Sub",
}


@dataclass(frozen=True, eq=False)
class Report(ABC):
    """What the command says of a table that it found."""

    table: Table

    @abstractmethod
    def blocks(self, *, everything: bool) -> Iterable[str]:
        """Write the paragraphs for a person; ``everything``: also of what does not exist here, and why."""

    @abstractmethod
    def details(self) -> Document:
        """Write the same as plain data, beside what every report has."""

    def text(self, output: Path | None, *, everything: bool = False) -> str:
        """Write it for a person."""
        unsaved = "Not saved: --output FILE.json keeps the table with its proof."
        closing = unsaved if output is None else f"Table written to {output}"
        return "\n\n".join(block for block in (*self.blocks(everything=everything), closing) if block) + "\n"

    def document(self, output: Path | None) -> Document:
        """Write the same as plain data; `optimize_report.json` and `plurality_report.json` in `darrm/schemas`."""
        optimality, written = self.table.optimality, None
        if optimality is not None:
            written = {**optimality.to_json(self.table.problem), "gap": optimality.gap, "claimed": optimality.claimed}
            del written["multipliers"]  # they are the table's
        return {
            **self.details(),
            "optimality": written,
            "provenance": dict(self.table.provenance),
            "output": None if output is None else str(output),
        }


def stopped_early(optimality: Optimality) -> list[str]:
    """Say why the solver stopped before the gap was closed, if it did."""
    if optimality.status == "optimal":
        return []
    return [f"  the solver     {optimality.status}; the proof and the bound above hold all the same"]


@dataclass(frozen=True, eq=False)
class GammaReport(Report):
    """The report on a γ, beside the paper's and the best constant under the same prior."""

    entries: Sequence[Entry]
    missing: Sequence[WithMissing] = ()

    @classmethod
    def of(cls, table: Table, missing: Iterable[int], show: Callable[[str], object]) -> GammaReport:
        """Compare a table that was optimized, also with so many votes missing; ``show`` is told how far it is."""
        prior = _prior_of(table)
        rows = with_missing(table, prior, missing, report=lambda now: show(f"evaluating with {now} votes missing"))
        return cls(table, compare(table, prior), rows)

    def blocks(self, *, everything: bool) -> Iterable[str]:
        """Write the paragraphs, with what a coin does under the prior of the comparison."""
        return (
            _decision(self.entries, _prior_of(self.table)),
            _heading(self.table),
            _values(self.table, self.entries, _prior_of(self.table)),
            _remarks(self.entries, everything=everything),
            _missing(self.missing),
            _proof(self.table),
        )

    def details(self) -> Document:
        """Write what is known about every noise function of the comparison."""
        problem = self.table.problem
        return {
            "format": "darrm optimize report",
            "version": 2,
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
        problem = self.table.problem
        levels = np.arange(problem.voters.K + 1)
        with saved_figure(path) as figure:
            axes = figure.add_subplot()
            for place, entry in enumerate(self.entries):
                if entry.table is not None:
                    how = style(place, width=1.6 if place else 2.6)
                    right = "" if entry.share_right is None else f"right labels {entry.share_right:.4f}, "
                    label = f"{entry.name}   {right}expected error {entry.expected_error:.4g}"
                    axes.plot(levels, entry.table.gamma.full, label=label, **how.line(levels.size))
            axes.set(
                xlabel="l, number of ones among the votes", ylabel="γ(l), probability of telling the true majority"
            )
            axes.set_title(f"{problem.voters}\nreleased {problem.target}-private{_allowance(problem)}", fontsize=9)
            axes.set_ylim(-0.03, 1.03)
            axes.grid(alpha=0.3)
            figure.legend(loc="outside lower center", frameon=False)


def _prior_of(table: Table) -> Prior:
    if table.optimality is None:
        checks.fail(
            "table", checks.Found("one that was not optimized"), "one with a prior", "say optimize_table(problem)"
        )
    return table.optimality.prior


def _decision(entries: Sequence[Entry], prior: Prior) -> str:
    """Say how many labels are wrong by the best γ and by the simple rules; nothing where too little is known."""
    wrong = {entry.name: 100.0 * (1.0 - entry.share_right) for entry in entries if entry.share_right is not None}
    shown = [f"{wrong[name]:>8.3g}  {rule}" for name, rule in _RULES.items() if name in wrong]
    if len(shown) < 2:
        return ""
    gain = wrong["γ_flat"] - wrong["γ_opt"]
    small = f"  the gain over the best constant is small here: {gain:.2g} of 100 labels"
    return "\n".join([f"Of 100 labels are wrong, under {prior}:", *shown, *([small] if gain < _SMALL_GAIN else [])])


def _heading(table: Table) -> str:
    problem, optimality = table.problem, table.optimality
    private = problem.voters.each.is_private
    lines = [
        f"Private majority of {problem.voters.K} voters",
        *_who(problem.voters),
        f"  the release is  {'(mε, δ)' if private else '(ε, δ) '} = {problem.target}-differentially private"
        + _allowance(problem),
    ]
    if problem.voters.overlap is not None:
        lines.append(f"  one person's data reach at most {problem.voters.overlap} of the voters")
    elif problem.voters.own is not None:
        lines.append("  one person's data may reach all of the voters (--overlap T: at most T)")
    if problem.voters.sampled is not None:
        lines.append(f"  {problem.voters.sampled}")
    if problem.voters.K % 2 == 0:
        lines.append("  K is even: a tie is answered by a fair coin")
    if optimality is not None:
        lines.append(f"  optimized for   {in_words(optimality.prior)}, {optimality.shape} shape")
        if optimality.objective != "linear":
            lines.append(f"  objective       {optimality.objective}: the absolute value of [D, Eq. 2] included")
    return "\n".join(lines)


def _who(voters: Voters) -> list[str]:
    if voters.are_plain:
        return ["  each voter is   not private"]
    if voters.own is None:
        return [f"  each voter is   (ε, Δ)  = {voters.each}-differentially private"]
    verbs = {True: "voter is   ", False: "voters are "}
    shown = voters.kinds[:_MOST_KINDS]
    satisfy = [f"(ε, Δ)  = {each}-differentially private" if each.is_private else "not private" for _, each in shown]
    kinds = [f"{n:5d} {verbs[n == 1]} {what}" for (n, _), what in zip(shown, satisfy, strict=True)]
    more = len(voters.kinds) - _MOST_KINDS
    return [*kinds, f"  and so on, {more} more kinds"] if more > 0 else kinds


def _allowance(problem: Problem) -> str:
    if not problem.voters.each.is_private:
        return ""
    return f", m = {problem.m:g}" + ("" if problem.voters.own is None else " of the largest ε")


def _values(table: Table, entries: Sequence[Entry], prior: Prior) -> str:
    shown = {entry.name + ("*" if entry.remark else ""): entry for entry in entries if entry.table is not None}
    columns = {name: entry.table.gamma.half for name, entry in shown.items() if entry.table is not None}
    elsewhere = "--output or --format json"
    values = level_table(table.gamma.levels, columns, width=_COLUMN, most=_MOST_LINES, elsewhere=elsewhere)
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
    return "\n".join([*lines, *absences(absent, everything=everything)])


def _proof(table: Table) -> str:
    certificate, optimality = table.certificate, table.optimality
    exponent = "(mε)" if table.problem.voters.each.is_private else "ε"
    lines = [
        "Certificate of γ_opt",
        f"  rows covered   {certificate.rows:,} (every multiset of corners)",
        f"  worst cost     {certificate.worst_cost!r}",
        f"  budget         {certificate.budget!r}  (e^{exponent} − 1 + 2δ; no real cost is above it)",
        f"  proved by      {certificate.method}",
    ]
    if optimality is not None:
        relative = optimality.gap / optimality.value if optimality.value > 0.0 else 0.0
        where = "" if optimality.held_out is None else " on the fitted draws"
        lines.append(
            f"  optimality     no private γ of this shape has an expected error below {optimality.bound:.10g}{where}: "
            f"gap {optimality.gap:.1e} (relative {relative:.1e})"
        )
        lines.append(
            "  claimed        by the maker: the table does not keep what the bound was computed from"
            if optimality.claimed
            else "  proved again   with the privacy, from the multipliers in the table, by whoever loads it"
        )
        if optimality.held_out is not None:
            lines.append(f"  held out       expected error {optimality.held_out} that were not fitted")
        lines += stopped_early(optimality)
    return "\n".join(lines)


def fitted(voters: Voters, classes: int = 2, *, quiet: bool = True) -> Voters:
    """Return what `fitting` returns, and say on standard error what was rounded and by how much."""
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
