"""The report of optimize: its numbers in text and JSON, against the table and against sums computed here."""

import json
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import PrivacyParams, Problem, Table, Voters, certify, load_table, priors
from darrm.majority import baselines
from darrm.optimize.__main__ import main
from darrm.optimize.report import GammaReport, evaluate_missing
from tests.doors import refused, validated
from tests.optimality import held_out_of, optimality_of
from tests.oracle import laws_of_ones, signed_floats

BASELINES = {
    "γ_Sub": baselines.subsampling,
    "γ_DSub": baselines.double_subsampling,
    "γ_const": baselines.randomized_response,
    "γ_flat": baselines.truth,
}
NAMES = {
    "γ_opt": "optimal γ",
    "γ_flat": "best constant γ",
    "γ_DSub": "double subsampling",
    "γ_Sub": "subsampling",
    "γ_const": "randomized response",
}
# one stops early: with a gap of 2e-3 no number of the last line is lost in rounding
SETTINGS = (
    "--K 41 --m 5 --prior dirichlet:1 --gap 0.05",
    "--K 11 --m 3 --prior uniform:0.6666667,1",
    "--K 10 --m 2 --each-delta 0 --prior point:0.7 --shape monotone --overlap 4",
    "--K 12 --non-private --target 0.5,1e-6 --overlap 3 --prior dirichlet:1",
    "--K 7 --m 2.5 --epsilon 0.3 --prior dirichlet:1",
    "--K 11 --m 5 --prior uniform:0.5,1",
)
FOUR_DIGITS, PER_CENT = 5.001e-5, 5.001e-3  # what rounding to the printed digits may change


def compute_accuracy(prior: priors.Prior, full: np.ndarray) -> float:
    """Compute Σ_l Pr[l ones]·(1 + γ(l))/2, at a tie 1, with the law of the ones by quadrature over p."""
    K = len(full) - 1
    if isinstance(prior, priors.Dirichlet):
        nodes, weights = np.polynomial.legendre.leggauss(K + 1)  # exact for these polynomials in p
        means = (1.0 + nodes) / 2.0
    else:
        assert isinstance(prior, priors.Point | priors.Independent)
        means = np.array([prior.p if isinstance(prior, priors.Point) else (prior.low + prior.high) / 2.0])
        weights = np.array([2.0])
    law = [float(weights @ (comb(K, n) * means**n * (1.0 - means) ** (K - n))) / 2.0 for n in range(K + 1)]
    return sum(p * (1.0 if 2 * n == K else (1 + full[n]) / 2) for n, p in enumerate(law))


@dataclass
class Report:
    """One setting: the printed reports, and the table."""

    short: str
    full: str  # by --all
    data: dict[str, Any]
    table: Table

    @cached_property
    def tables(self) -> dict[str, Table]:
        """γ_opt and the baselines that exist."""
        problem = self.table.problem
        has_samples = problem.voters.each.is_private and problem.m.is_integer()
        names = BASELINES if has_samples else ("γ_const", "γ_flat")
        return {"γ_opt": self.table} | {name: certify(problem, BASELINES[name](problem)) for name in names}

    @cached_property
    def errors(self) -> list[float]:
        weights = optimality_of(self.table).prior.weights(self.table.gamma.K)
        return [float(0.5 * weights @ (1.0 - table.gamma.half)) for table in self.tables.values()]

    @cached_property
    def accuracies(self) -> list[float]:
        prior = optimality_of(self.table).prior
        return [compute_accuracy(prior, table.gamma.full) for table in self.tables.values()]

    @property
    def guess(self) -> float:
        return compute_accuracy(optimality_of(self.table).prior, np.zeros(self.table.gamma.K + 1))

    def read_numbers(self, pattern: str) -> list[float]:
        """Read the numbers, # in a pattern, of its only match in the full report."""
        form = re.escape(pattern).replace(r"\#", "([-+0-9.e]+)").replace(r"\ ", r"\s+")
        (match,) = re.findall(form, self.full.replace(",", ", "))
        return [float(number.rstrip(".")) for number in (match if isinstance(match, tuple) else (match,))]


def print_report(arguments: list[str]) -> str:
    with redirect_stdout(StringIO()) as out:
        assert main(arguments) == 0
    return out.getvalue()


@pytest.fixture(scope="module", params=SETTINGS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("report") / "table.json"
    arguments = [*request.param.split(), "--output", str(path), "--force"]
    data = validated(print_report([*arguments, "--format", "json"]), "optimize_report")
    assert data["output"] == str(path)
    return Report(print_report(arguments), print_report([*arguments, "--all"]), data, Table.load(path))


def test_short_report_has_accuracies_errors_values_and_the_proof(report: Report) -> None:
    problem, optimality, prior = report.table.problem, optimality_of(report.table), optimality_of(report.table).prior
    for piece in (
        f"Problem   {problem.voters.K} voters, ",
        f"Release   one label is {problem.target}-DP",
        f"(--prior {prior.text}); {optimality.shape} shape",
        "Objective the expected error, linear under this prior",
    ):
        assert piece in report.short
    means = re.findall(r"only the mean of the p_i counts here: (\S+)", report.short)
    assert means == ([f"{(prior.low + prior.high) / 2:g}"] if isinstance(prior, priors.Independent) else [])
    rows = re.findall(r"^[* ] (\S.*?) {2,}([\d.]+) % +(\S+)(?: +\S+)?$", report.short, re.MULTILINE)
    expected = {NAMES[name]: 100.0 * a for name, a in zip(report.tables, report.accuracies, strict=True)}
    expected["a fair coin"] = 100.0 * report.guess
    assert {name: float(accuracy) for name, accuracy, _ in rows} == pytest.approx(expected, abs=PER_CENT)
    errors = sorted(float(error) for *_, error in rows[:-1])
    assert errors == pytest.approx(sorted(report.errors), rel=0.06, abs=FOUR_DIGITS)
    values = {int(ones): float(value) for ones, value in re.findall(r"(\d+): (\d\.\d{4})\b", report.short)}
    assert len(values) == min(12, report.table.gamma.half.size)
    assert values == pytest.approx({ones: report.table.gamma(ones) for ones in values}, abs=FOUR_DIGITS)
    gain = report.accuracies[0] - report.accuracies[list(report.tables).index("γ_flat")]
    assert ("the gain over the best constant is small" in report.short) == (0.0 <= gain < 0.001)
    assert ("the best constant has the higher accuracy" in report.short) == (gain < 0.0)
    assert f"below {optimality.bound_text}" in report.short
    assert f"Proof     {report.table.certificate.rows:,} rows, " in report.short
    assert max(map(len, report.short.splitlines())) <= 100


def test_full_report_has_every_gamma_error_scale_and_the_certificate(report: Report) -> None:
    lines = [line.partition("(")[0].split() for line in report.full.splitlines()]
    rows = {line[0]: line[1:] for line in lines if line and re.fullmatch(r"\d+|l|accuracy|error", line[0])}
    assert [name.rstrip("*") for name in rows["l"]] == list(report.tables)
    expected = {"error": report.errors, "accuracy": report.accuracies}
    for index, level in enumerate(report.table.gamma.levels):
        expected[str(level)] = [table.gamma.half[index] for table in report.tables.values()]
    for label, numbers in expected.items():
        assert [float(word) for word in rows[label]] == pytest.approx(numbers, abs=FOUR_DIGITS)
    assert report.read_numbers("a coin: #)") == pytest.approx([report.guess], abs=FOUR_DIGITS)
    for name, table in report.tables.items():
        scale = re.search(rf"{name}\*.*as certify scaled it, by ([0-9.e-]+)", report.full)
        assert (scale is not None) == (table.certificate.scale < 1.0 - 1e-9), name
        assert scale is None or float(scale.group(1)) == pytest.approx(table.certificate.scale, rel=1e-5)
    certificate, problem = report.table.certificate, report.table.problem
    if problem.voters.overlap is None:  # every multiset of corners
        num_corners = 8 if problem.voters.each.delta else 4
        assert certificate.rows == comb(problem.voters.K + num_corners - 1, num_corners - 1)
    assert certificate.budget == pytest.approx(np.expm1(problem.target.epsilon) + 2.0 * problem.target.delta, rel=1e-12)
    assert f"{certificate.rows:,} (every multiset of corners)" in report.full
    assert report.read_numbers("worst cost #") == [certificate.worst_cost]
    assert report.read_numbers("budget #") == [certificate.budget]


def test_json_report_has_the_same_numbers(report: Report) -> None:
    optimality, claim = optimality_of(report.table), report.data["optimality"]
    entries = [entry for entry in report.data["noise_functions"] if entry["gamma"] is not None]
    assert [entry["name"] for entry in entries] == list(report.tables)
    assert [entry["gamma"] for entry in entries] == [table.gamma.half.tolist() for table in report.tables.values()]
    assert [entry["expected_error"] for entry in entries] == pytest.approx(report.errors, rel=1e-12)
    assert [entry["accuracy"] for entry in entries] == pytest.approx(report.accuracies, rel=1e-9)
    assert (claim["value"], claim["bound"]) == (optimality.value, optimality.bound)
    assert claim["gap"] == max(0.0, claim["value"] - claim["bound"])
    assert claim["claimed"] is optimality.claimed is ("claimed" in report.full)
    assert priors.from_json(claim["prior"]) == optimality.prior


def test_second_error_is_for_voters_on_either_side(report: Report) -> None:
    prior, K = optimality_of(report.table).prior, report.table.gamma.K
    entries = [entry for entry in report.data["noise_functions"] if entry["gamma"] is not None]
    if not isinstance(prior, priors.Independent):
        assert report.data["second_prior"] is None
        return
    rng = np.random.default_rng(7)
    p = prior.probabilities(K, 4_000, rng=np.random.default_rng(6))
    p = np.where(rng.random(p.shape) < 0.5, 1.0 - p, p)
    second = priors.parse(report.data["second_prior"]).probabilities(K, 4_000, rng=rng)
    assert np.mean((p - 0.5) ** 2) == pytest.approx(np.mean((second - 0.5) ** 2), 0.03)
    for entry, table in zip(entries, report.tables.values(), strict=True):
        loss = signed_floats(K, 1.0 - table.gamma.half)
        assert entry["second_error"] == pytest.approx(np.mean(np.abs(laws_of_ones(p) @ loss)) / 2.0, abs=0.01)


def test_baselines_that_do_not_apply_are_explained_with_all() -> None:
    arguments = ["--K", "5", "--m", "2.5"]
    short, full = print_report(arguments), print_report([*arguments, "--all"])
    entries = json.loads(print_report([*arguments, "--format", "json"]))["noise_functions"]
    absent = [entry for entry in entries if entry["gamma"] is None]
    assert len(absent) == 2
    assert "  (2 more do not apply; --all shows the reasons)" in short.splitlines()
    for entry in absent:
        assert entry["remark"] not in short
        assert f"  {entry['name']} does not apply: {entry['remark']}" in full.splitlines()


def test_sampled_objective_is_reported_with_held_out_draws(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    arguments = ["--K", "7", "--m", "2", "--prior", "uniform", "--draws", "300", "--output", str(path), "--force"]
    data = validated(print_report([*arguments, "--format", "json"]), "optimize_report")
    report = Report(print_report(arguments), print_report([*arguments, "--all"]), data, Table.load(path))
    held_out = held_out_of(report.table)
    assert data["optimality"]["held_out"]["draws"] == held_out.draws == 300
    assert f"expected error on other draws: {held_out}" in report.short
    mean, error, draws = report.read_numbers("held out expected error # ± # (# draws)")
    assert [mean, draws] == pytest.approx([held_out.mean, 300], rel=1e-5)
    assert error == pytest.approx(held_out.standard_error, rel=0.051)
    assert report.read_numbers("below # on the fitted draws") == pytest.approx(
        [optimality_of(report.table).bound], rel=1e-9
    )


def test_missing_votes_are_reported_in_text_and_json(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    plain = ["--K", "6", "--m", "2", "--prior", "point:0.7"]
    arguments = [*plain, "--missing", "5", "--output", str(path), "--force"]
    text, data = print_report(arguments), print_report([*arguments, "--format", "json"])
    rows = validated(data, "optimize_report")["missing"]
    gamma, prior = Table.load(path).gamma, priors.Point(0.7)
    lines = [line.split() for line in text[text.index(" missing accuracy") :].splitlines()]
    for missing, (row, line) in enumerate(zip(rows, lines[1:7], strict=True)):
        remaining = gamma.with_missing(missing)
        expected = [remaining.accuracy(prior), remaining.expected_error(prior)]
        assert (row["missing"], line[0]) == (missing, str(missing))
        assert [row["accuracy"], row["expected_error"]] == pytest.approx(expected, rel=1e-12)
        assert [float(word) for word in line[1:]] == pytest.approx(expected, abs=FOUR_DIGITS)
    assert rows[0]["expected_error"] == gamma.expected_error(prior) < rows[-1]["expected_error"]
    assert "missing" not in print_report(plain)


def test_long_reports_are_100_characters_wide_and_shortened_to_60_lines() -> None:
    wide = load_table(Problem.from_allowance(Voters(301, PrivacyParams("0.1", "1e-5")), 1))
    assert max(map(len, GammaReport(wide, ()).text(None).splitlines())) == 100
    table = load_table(Problem.from_allowance(Voters(101, PrivacyParams("0.1", "1e-5")), 10))
    rows = evaluate_missing(table, priors.Dirichlet(), range(101))
    assert [row.missing for row in rows] == list(range(101))
    text = GammaReport(table, (), rows).text(None)
    lines = text[text.index(" missing accuracy") :].partition("\n\n")[0].splitlines()
    assert lines[-1] == "  (60 of 101 lines shown; --format json has all)"
    assert (len(lines), lines[1].split()[0], lines[60].split()[0]) == (62, "0", "100")


@pytest.mark.parametrize("missing", ["11", "0", "-1", "two", "1.5"])
def test_missing_votes_out_of_range_are_refused(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(main, ["--missing", missing], "--missing must be", capsys)
    assert re.search("below K = 11|an integer of at least 1", message)
