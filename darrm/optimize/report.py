"""Reports of `python -m darrm.optimize` as text, JSON and a picture, and the comparison with simpler rules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from textwrap import fill

import numpy as np

from darrm.commands.command_line import spread
from darrm.majority import baselines
from darrm.majority.noise_function import ESTIMATE_SEED, NoiseFunction, compute_errors, differences, number_of_draws
from darrm.numerics import Array
from darrm.optimize.request import fit_voters
from darrm.priors import Independent, Prior, compute_weights, describe_prior, find_surrogate, find_two_sided
from darrm.privacy import at_most
from darrm.problem import Problem, Voters, is_open
from darrm.table.optimality import Optimality
from darrm.table.table import Table, certify
from darrm.table.text import (
    MEANING,
    choose_histograms,
    describe_allowance,
    describe_bound,
    plot_noise_functions,
    write_accuracy,
    write_answers,
    write_heading,
    write_proof,
)
from darrm.util import checks
from darrm.util.files import Document

_MAX_LINES = 60  # in the table of γ
_COLUMN_WIDTH = 9  # characters
_SMALL_ACCURACY_GAIN = 0.001  # of accuracy
_MAX_SAMPLED_VOTERS = 51  # voters: with more, draws of the second prior take too long, and only --all has its errors
_MAX_SHORT_VALUES, _VALUES_PER_LINE = 12, 6  # of γ in the short report
_CONSTANT = "γ_flat"
_RULES = {
    "γ_opt": "optimal γ",
    _CONSTANT: "best constant γ",
    "γ_DSub": "double subsampling",
    "γ_Sub": "subsampling",
    "γ_const": "randomized response",
}
_NOTES = """\
accuracy: agreement with the noiseless majority or plurality, expected under the prior
error: the expected error of [D, Eq. 2], for two classes
gap: how much better another private mechanism can be, at most"""


@dataclass(frozen=True, eq=False)
class Entry:
    """One noise function of the comparison; its numbers are None if it does not exist for this problem."""

    name: str  # "γ_opt", "γ_Sub", "γ_DSub", "γ_const" or "γ_flat"
    table: Table | None  # certified
    accuracy: float | None  # the accuracy under the prior of the comparison; None if it is unknown
    expected_error: float | None  # under the same prior
    second_error: float | None  # the expected error under `second_prior`
    remark: str  # why it is absent, or how certification changed it; may be empty

    @classmethod
    def of(cls, name: str, table: Table, prior: Prior, second: Array | None) -> Entry:
        """Evaluate a table under a prior, and its error for draws of a second one."""
        scale, gamma = table.certificate.scale, table.gamma
        remark = f"shown as certify scaled it, by {scale:.6g}" if scale < 1.0 - 1e-9 else ""
        if name == _CONSTANT:
            scaling = remark or "1 as it stands"
            remark = f"the largest private constant, {scaling}; γ_const is p_const by simple composition"
        elif name == "γ_DSub" and not baselines.is_covered_by_theorem(table.problem):
            remark = f"its theorem needs δ ≥ 1 − (1 − Δ)^m; {remark or 'certified as it stands'}"
        second_error = None if second is None else float(np.mean(compute_errors(gamma.half, second)))
        return cls(name, table, gamma.accuracy(prior), gamma.expected_error(prior), second_error, remark)


def second_prior(prior: Prior) -> Prior | None:
    """Return the two-sided prior behind a surrogate, or else the paper's surrogate of a prior, if any."""
    partner = find_two_sided(prior) or find_surrogate(prior)
    return None if partner == prior else partner


def _sample_differences(prior: Prior, K: int) -> Array:
    """Compute α_l − α_{K−l} of draws, shape (draws, n); their mean alone if the error is linear."""
    if prior.has_closed_form:
        return compute_weights(prior, K)[None, :]
    return differences(prior.probabilities(K, number_of_draws(K, None), rng=np.random.default_rng(ESTIMATE_SEED)))


def compare(optimal: Table, prior: Prior, second: Prior | None = None) -> tuple[Entry, ...]:
    """Certify the baselines of the optimal table's problem, and evaluate all five under one or two priors.

    >>> from darrm import Problem, PrivacyParams, Voters, optimize_table
    >>> from darrm.priors import Independent
    >>> problem = Problem.from_allowance(Voters(11, PrivacyParams(0.1, 1e-5)), 3)
    >>> entries = compare(optimize_table(problem), Independent(0.5, 1), Independent(0, 1))
    >>> [(entry.name, round(entry.expected_error, 4), round(entry.second_error, 4)) for entry in entries]
    [('γ_opt', 0.0413, 0.0378), ('γ_Sub', 0.1219, 0.0955), ('γ_DSub', 0.0692, 0.0675), ('γ_const', 0.3271, 0.1416),
    ('γ_flat', 0.0596, 0.0258)]
    """
    problem = optimal.problem
    draws = None if second is None else _sample_differences(second, problem.voters.K)
    proposals: dict[str, Callable[[Problem], NoiseFunction]] = {
        "γ_Sub": baselines.subsampling,
        "γ_DSub": baselines.double_subsampling,
        "γ_const": baselines.randomized_response,
        _CONSTANT: baselines.truth,
    }
    entries = [replace(Entry.of("γ_opt", optimal, prior, draws), remark="")]
    for name, propose in proposals.items():
        try:
            proposal = propose(problem)
        except ValueError as error:
            entries.append(Entry(name, None, None, None, None, str(error)))
        else:
            entries.append(Entry.of(name, certify(problem, proposal), prior, draws))
    return tuple(entries)


@dataclass(frozen=True)
class WithMissing:
    """A table evaluated with some votes replaced by fair coins; the true label is the majority of the other votes."""

    missing: int
    accuracy: float | None  # the accuracy; None if it is unknown
    expected_error: float


def evaluate_missing(
    table: Table, prior: Prior, numbers: Iterable[int], *, report: Callable[[str], object] | None = None
) -> tuple[WithMissing, ...]:
    """Evaluate a table for increasing numbers of missing votes, each below K; call ``report`` before each."""
    rows, gamma = [], table.gamma
    for missing in numbers:
        if report is not None:
            report(f"evaluating with {missing} votes missing")
        gamma = gamma.with_missing(missing - (table.gamma.K - gamma.K))
        rows.append(WithMissing(missing, gamma.accuracy(prior), gamma.expected_error(prior)))
    return tuple(rows)


@dataclass(frozen=True, eq=False)
class Report:
    """A certified law on histograms."""

    table: Table
    everything: bool = field(default=False, kw_only=True)  # with the certificate, and why rules do not apply
    remark: str = field(default="", kw_only=True)  # on the voters' guarantees

    def blocks(self) -> Iterable[str]:
        """Write the paragraphs."""
        problem, law, optimality = self.table.problem, self.table.law, self.table.optimality
        yield write_heading(problem, optimality, self.remark)
        yield write_accuracy(problem, law, optimality)
        yield write_answers(problem, law)
        yield write_proof(problem, law, self.table.certificate, optimality)

    def details(self) -> Document:
        """Write the part of the document that depends on the kind of law."""
        problem, law, share_answered = self.table.problem, self.table.law, dict[str, float | None]()
        histograms = choose_histograms(problem.voters.K, problem.classes)
        if is_open(problem.classes):
            share_answered = {"share_answered": law.share_answered(_require_optimality(self.table).prior)}
        return {
            "format": "darrm plurality report",
            "version": 1,
            "problem": problem.to_json(),
            "accuracy": self.table.accuracy,
            **share_answered,
            "histograms": [
                {"votes": list(counts), "probabilities": law.probabilities([counts])[0].tolist()}
                for counts in histograms
            ],
            "certificate": asdict(self.table.certificate),
        }

    def text(self, output: Path | None) -> str:
        """Write the report for a person."""
        closing = "Not saved: --output FILE.json keeps the table with its proof."
        if output is not None:
            closing = f"Table written to {output}"
        return "\n\n".join(block for block in (*self.blocks(), closing) if block) + "\n"

    def document(self, output: Path | None) -> Document:
        """Write the JSON document; schemas: `optimize_report.json` and `plurality_report.json` in `darrm/schemas`."""
        optimality, optimality_data = self.table.optimality, None
        if optimality is not None:
            optimality_data = {
                **optimality.to_json(self.table.problem),
                "gap": optimality.gap,
                "claimed": optimality.claimed,
            }
            del optimality_data["multipliers"]  # the table keeps them
        return {
            **self.details(),
            "optimality": optimality_data,
            "provenance": dict(self.table.provenance),
            "output": None if output is None else str(output),
        }


@dataclass(frozen=True, eq=False)
class GammaReport(Report):
    """A γ, compared with the baselines of the paper and the best constant under the same prior."""

    entries: Sequence[Entry]
    missing: Sequence[WithMissing] = ()
    second: Prior | None = None  # the prior of `Entry.second_error`

    def blocks(self) -> Iterable[str]:
        table, optimality = self.table, _require_optimality(self.table)
        if not self.everything:
            return (
                _write_short_heading(table.problem, optimality, self.remark),
                _write_comparison(table, self.entries, optimality.prior, self.second),
                _write_missing(self.missing),
                _write_short_values(table.gamma),
                _write_short_proof(table, optimality),
            )
        return (
            write_heading(table.problem, optimality, self.remark),
            _write_values(table, self.entries, optimality.prior, self.second),
            _write_remarks(self.entries),
            _write_missing(self.missing),
            write_proof(table.problem, table.law, table.certificate, optimality),
        )

    def details(self) -> Document:
        problem = self.table.problem
        return {
            "format": "darrm optimize report",
            "version": 1,
            "problem": {**problem.to_json(), "m": problem.m if problem.voters.each.is_private else None},
            "levels": self.table.gamma.levels.tolist(),
            "second_prior": None if self.second is None else self.second.text,
            "noise_functions": [
                {
                    "name": entry.name,
                    "gamma": None if entry.table is None else entry.table.gamma.half.tolist(),
                    "accuracy": entry.accuracy,
                    "expected_error": entry.expected_error,
                    "second_error": entry.second_error,
                    "certificate": None if entry.table is None else asdict(entry.table.certificate),
                    "remark": entry.remark,
                }
                for entry in self.entries
            ],
            **({"missing": [asdict(row) for row in self.missing]} if self.missing else {}),
        }

    def plot(self, path: Path) -> None:
        """Draw γ over the number of ones for every noise function that exists."""
        curves = []
        for place, entry in enumerate(self.entries):
            if entry.table is not None:
                accuracy = "" if entry.accuracy is None else f"accuracy {entry.accuracy:.4f}, "
                label = f"{entry.name}   {accuracy}expected error {entry.expected_error:.4g}"
                curves.append((label, place, entry.table.gamma))
        plot_noise_functions(self.table.problem, curves, path)


def rows_text(tables: Sequence[Table]) -> str:
    """Write a line for the table of each privacy allowance."""
    optimality = tables[0].optimality
    lines = [str(tables[0].problem.voters), f"{'m':>6}{'ε':>10}{'δ':>12}{'accuracy':>10}{'error':>10}{'gap':>10}"]
    for row in rows_data(tables):
        accuracy, error, gap = row["accuracy"], row["expected_error"], row["gap"]
        line = f"{row['m']:>6g}{row['epsilon']:>10.4g}{row['delta']:>12.4g}"
        line += f"{'' if accuracy is None else f'{accuracy:.4f}':>10}{'' if error is None else f'{error:.4g}':>10}"
        lines.append(f"{line}{'' if gap is None else at_most(gap, 2):>10}")
    return "\n".join([*lines, "" if optimality is None else f"prior: {optimality.prior}", _NOTES, ""])


def rows_document(tables: Sequence[Table]) -> Document:
    """Write the rows as a JSON document; schema: `darrm/schemas/optimize_rows.json`."""
    voters = tables[0].problem.voters.to_json()
    return {"format": "darrm optimize rows", "version": 1, "voters": voters, "rows": rows_data(tables)}


def rows_data(tables: Sequence[Table]) -> list[dict[str, float | None]]:
    """Return the results of each table."""
    return [
        {
            "m": table.problem.m,
            "epsilon": table.problem.target.epsilon,
            "delta": table.problem.target.delta,
            "accuracy": table.accuracy,
            "expected_error": optimality.value if optimality and table.problem.has_noise_function else None,
            "gap": optimality.gap if optimality else None,
        }
        for table in tables
        for optimality in (table.optimality,)
    ]


def make_report(
    table: Table, missing: Iterable[int], show: Callable[[str], object], *, everything: bool, remark: str
) -> Report:
    """Report on a table; compare a γ, and evaluate it with missing votes, while ``show`` prints progress."""
    if not table.problem.has_noise_function:
        return Report(table, everything=everything, remark=remark)
    prior = _require_optimality(table).prior
    rows = evaluate_missing(table, prior, missing, report=show)
    second = second_prior(prior) if everything or table.gamma.K <= _MAX_SAMPLED_VOTERS else None
    return GammaReport(table, compare(table, prior, second), rows, second, everything=everything, remark=remark)


def _require_optimality(table: Table) -> Optimality:
    if table.optimality is None:
        origin = checks.Text("one that was not optimized")
        checks.fail("table", origin, "one with a prior", "say optimize_table(problem)")
    return table.optimality


def _write_short_heading(problem: Problem, optimality: Optimality, remark: str) -> str:
    voters = str(problem.voters).replace("-differentially private", f"-DP{remark}")
    tie = "" if problem.voters.K % 2 else "; a tie is answered by a fair coin"
    lines = [
        f"Problem   {voters}",
        f"Release   one label is {problem.target}-DP{describe_allowance(problem)}: proved{tie}",
        f"Prior     {describe_prior(optimality.prior)}; {optimality.shape} shape",
    ]
    if isinstance(optimality.prior, Independent) and optimality.prior.has_closed_form:
        lines.append(f"          only the mean of the p_i counts here: {optimality.prior.mean:g}")
    objective = " of [D, Eq. 2], over draws of the prior; the table is over other draws"
    if optimality.objective == "linear":
        objective = ", linear under this prior: the paper's surrogate is the same"
    return "\n".join([*lines, f"Objective the expected error{objective}"])


def _write_comparison(table: Table, entries: Sequence[Entry], prior: Prior, second: Prior | None) -> str:
    if not entries:
        return ""
    best, *other_entries = (entry for entry in entries if entry.expected_error is not None)
    other_entries.sort(key=_rank_entry)
    coin = NoiseFunction(table.gamma.K, np.zeros(table.gamma.half.size))
    second_error = None if second is None else coin.expected_error(second)
    guess = Entry("a fair coin", table, coin.accuracy(prior), coin.expected_error(prior), second_error, "")
    second_heading = "" if second is None else f"at {second.text}"
    lines = [f"{'':24}{'accuracy':>10}{'expected error':>17}{second_heading:>21}".rstrip()]
    for entry in (best, *other_entries, guess):
        accuracy = "" if entry.accuracy is None else f"{100.0 * entry.accuracy:.2f} %"
        name = f"{'*' if entry is best else ' '} {_RULES.get(entry.name, entry.name)}"
        errors = f"{_format_error(entry.expected_error):>17}{_format_error(entry.second_error):>21}".rstrip()
        lines.append(f"{name:24}{accuracy:>10}{errors}")
    if second is not None and not second.has_closed_form:
        lines.append(f"  at {second.text}: means over {number_of_draws(table.gamma.K, None):,} draws")
    if absent := sum(entry.table is None for entry in entries):
        lines.append(f"  ({absent} more {'does' if absent == 1 else 'do'} not apply; --all shows the reasons)")
    constant = next((entry for entry in other_entries if entry.name == _CONSTANT), best)
    if best.accuracy is not None and constant.accuracy is not None and constant is not best:
        gain = best.accuracy - constant.accuracy
        if gain < 0.0:
            lines.append("  the best constant has the higher accuracy; γ is optimal in expected error")
        elif gain < _SMALL_ACCURACY_GAIN:
            lines.append(f"  the gain over the best constant is small here: {100.0 * gain:.2g} of 100 labels")
    return "\n".join(lines)


def _rank_entry(entry: Entry) -> tuple[float, float]:
    return -(entry.accuracy or 0.0), entry.expected_error or 0.0


def _write_short_values(gamma: NoiseFunction) -> str:
    places = spread(gamma.half.size, _MAX_SHORT_VALUES)
    values = [f"{gamma.levels[place]:>8,}: {gamma.half[place]:.4f}" for place in places]
    lines = ["".join(values[start : start + _VALUES_PER_LINE]) for start in range(0, len(values), _VALUES_PER_LINE)]
    return "\n".join([f"{MEANING}:", *lines])


def _write_short_proof(table: Table, optimality: Optimality) -> str:
    statement, _, gap = describe_bound(optimality).partition(": ")
    lines = [f"Optimal   {statement}", f"          {gap}"]
    if optimality.held_out is not None:
        lines.append(f"          expected error on other draws: {optimality.held_out}")
    if optimality.status != "optimal":
        lines.append(f"          the solver: {optimality.status}; proof and bound hold")
    rows, method = f"{table.certificate.rows:,} rows", table.certificate.method
    text = f"Proof     {rows}, {method}; --all shows it, with γ of every rule"
    lines.append(fill(text, 100, subsequent_indent=" " * 10, break_on_hyphens=False))
    return "\n".join(lines)


def _write_values(table: Table, entries: Sequence[Entry], prior: Prior, second: Prior | None) -> str:
    columns = {entry.name + ("*" if entry.remark else ""): entry for entry in entries if entry.table is not None}
    value_columns = [entry.table.gamma.half for entry in columns.values() if entry.table is not None]
    lines = [
        _write_row(level, [f"{values[place]:.4f}" for values in value_columns])
        for place, level in enumerate(table.gamma.levels.tolist())
    ]
    block = [MEANING, _write_row("l", columns), *_shorten_lines(lines, "--output or --format json")]
    coin_accuracy = NoiseFunction(table.gamma.K, np.zeros(table.gamma.half.size)).accuracy(prior)
    if coin_accuracy is not None:
        shares = _write_row("accuracy", [_format_error(entry.accuracy) for entry in columns.values()])
        block.append(f"{shares}   (under the prior; a coin: {coin_accuracy:.4f})")
    errors = _write_row("error", [_format_error(entry.expected_error) for entry in columns.values()])
    block.append(f"{errors}   (expected, under the prior)")
    if second is not None:
        second_errors = _write_row("second", [_format_error(entry.second_error) for entry in columns.values()])
        block.append(f"{second_errors}   (expected error under {second.text})")
    return "\n".join(block)


def _write_row(name: object, cells: Iterable[str]) -> str:
    return f"{name:>8}" + "".join(f"{cell:>{_COLUMN_WIDTH}}" for cell in cells)


def _write_missing(rows: Sequence[WithMissing]) -> str:
    if not rows:
        return ""
    heading_lines = [
        "The optimal γ with missing votes replaced by fair coins (darrm release --missing coin). The accuracy is",
        "agreement with the majority of the other votes; at a tie both labels agree.",
        _write_row("missing", ["accuracy", "error"]),
    ]
    lines = [_write_row(row.missing, [_format_error(row.accuracy), _format_error(row.expected_error)]) for row in rows]
    return "\n".join([*heading_lines, *_shorten_lines(lines, "--format json")])


def _format_error(error: float | None) -> str:
    if error is None:
        return ""
    return f"{error:.4f}" if error >= 1e-3 or error == 0.0 else f"{error:.1e}"


def _write_remarks(entries: Sequence[Entry]) -> str:
    present_lines = [
        f"  {entry.name + '*':<9}{entry.remark}" for entry in entries if entry.remark and entry.table is not None
    ]
    absent_lines = [f"  {entry.name} does not apply: {entry.remark}" for entry in entries if entry.table is None]
    return "\n".join([*present_lines, *absent_lines])


def fit_and_report(voters: Voters, classes: int = 2, *, quiet: bool = True) -> Voters:
    """Round voters as `fit_voters` does; unless ``quiet``, report it on standard error."""
    rounded = fit_voters(voters, classes)
    if rounded != voters and not quiet:
        old_groups, new_groups = voters.private_groups, rounded.private_groups
        lost = sum(n for n, _ in old_groups) - sum(n for n, _ in new_groups)
        new, old = (sum(params.epsilon * n for n, params in groups) for groups in (new_groups, old_groups))
        change = f"{lost} voters to no privacy" if lost else f"all ε together by a factor of {new / old:.4g}"
        kinds = ", ".join(f"{n} {'voter' if n == 1 else 'voters'} {params}" for n, params in rounded.groups)
        reason = f"{len(voters.groups)} kinds of voters have more rows than are looked at"
        sys.stderr.write(f"note: {reason}, so ε and Δ were rounded up, {change}: {kinds}\n")
    return rounded


def _shorten_lines(lines: Sequence[str], elsewhere: str) -> list[str]:
    shown_lines = [lines[place] for place in spread(len(lines), _MAX_LINES)]
    note = [f"  ({len(shown_lines)} of {len(lines)} lines shown; {elsewhere} has all)"]
    return shown_lines if len(shown_lines) == len(lines) else shown_lines + note
