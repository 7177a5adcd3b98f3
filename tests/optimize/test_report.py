"""The numbers that a reader of the report reads, against the table and against sums made here."""

import json
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
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
from tests.doors import refused
from tests.optimality import held_out_of, optimality_of

BASELINES = {
    "γ_Sub": baselines.subsampling,
    "γ_DSub": baselines.double_subsampling,
    "γ_const": baselines.randomized_response,
    "γ_flat": baselines.truth,
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


@dataclass
class Report:
    """One setting: what was printed in both formats, and the truth about it."""

    arguments: str
    short: str
    text: str  # by --all
    data: dict[str, Any]
    table: Table

    def read_numbers(self, pattern: str) -> list[float]:
        """The numbers of the one place that a pattern, with # for a number, describes."""
        form = re.escape(pattern).replace(r"\#", "([-+0-9.e]+)").replace(r"\ ", r"\s+")
        places = re.findall(form, self.text.replace(",", ", "))
        assert len(places) == 1, pattern
        places = places[0] if isinstance(places[0], tuple) else (places[0],)
        return [float(place.rstrip(".")) for place in places]

    def tables(self) -> dict[str, Table]:
        """γ_opt and the baselines that exist."""
        problem, tables = self.table.problem, {"γ_opt": self.table}
        has_samples = problem.voters.each.is_private and problem.m.is_integer()
        names = BASELINES if has_samples else ("γ_const", "γ_flat")
        return tables | {name: certify(problem, BASELINES[name](problem)) for name in names}

    def list_errors(self) -> list[float]:
        """½ Σ w_l (1 − γ(l)) for each of the tables."""
        weights = optimality_of(self.table).prior.weights(self.table.problem.voters.K)
        return [float(0.5 * weights @ (1.0 - table.gamma.half)) for table in self.tables().values()]

    def compute_accuracy(self, full: np.ndarray) -> float:
        """Σ_l Pr[l ones]·(1 + γ(l))/2, a tie always right, with the law of the ones by quadrature over p."""
        prior, K = optimality_of(self.table).prior, len(full) - 1
        if isinstance(prior, priors.Dirichlet):
            nodes, weights = np.polynomial.legendre.leggauss(K + 1)  # exact for these polynomials in p
            means = (1.0 + nodes) / 2.0
        else:
            assert isinstance(prior, priors.Point | priors.Independent)
            means = np.array([prior.p if isinstance(prior, priors.Point) else (prior.low + prior.high) / 2.0])
            weights = np.array([2.0])
        binomials = (comb(K, ones) * means**ones * (1.0 - means) ** (K - ones) for ones in range(K + 1))
        law = [float(weights @ each) / 2.0 for each in binomials]
        return sum(law[ones] * (1.0 if 2 * ones == K else (1 + full[ones]) / 2) for ones in range(K + 1))

    def list_accuracies(self) -> list[float]:
        """The accuracy of each of the tables."""
        return [self.compute_accuracy(table.gamma.full) for table in self.tables().values()]


def mean_error(full: np.ndarray, p: np.ndarray) -> float:
    """The mean of [D, Definition 2.4] over rows of probabilities, by convolution."""
    law = np.zeros((len(p), len(full)))
    law[:, 0] = 1.0
    for voter in p.T:
        law[:, 1:] = law[:, 1:] * (1.0 - voter[:, None]) + law[:, :-1] * voter[:, None]
        law[:, 0] *= 1.0 - voter
    ones = np.arange(len(full))
    majority = np.sign(2 * ones - (len(full) - 1))
    return float(np.mean(np.abs(law @ (majority * (1.0 - full)))) / 2.0)


def print_report(arguments: list[str]) -> str:
    with redirect_stdout(StringIO()) as out:
        assert main(arguments) == 0
    return out.getvalue()


@pytest.fixture(scope="module", params=SETTINGS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("report") / "table.json"
    arguments = [*request.param.split(), "--output", str(path), "--force"]
    data = json.loads(print_report([*arguments, "--format", "json"]))
    return Report(request.param, print_report(arguments), print_report([*arguments, "--all"]), data, Table.load(path))


NAMES = {
    "γ_opt": "optimal γ",
    "γ_flat": "best constant γ",
    "γ_DSub": "double subsampling",
    "γ_Sub": "subsampling",
    "γ_const": "randomized response",
}


def test_short_report_has_problem_accuracies_values_and_proof(report: Report) -> None:
    problem, optimality = report.table.problem, optimality_of(report.table)
    assert f"Problem   {problem.voters.K} voters, " in report.short
    assert f"Release   one label is {problem.target}-DP" in report.short
    assert f"(--prior {optimality.prior.text}); {optimality.shape} shape" in report.short
    rows = dict(re.findall(r"^[* ] (\S.*?) {2,}([\d.]+) % +\S+(?: +\S+)?$", report.short, re.MULTILINE))
    tables = dict(zip(report.tables(), report.list_accuracies(), strict=True))
    guess = report.compute_accuracy(np.zeros(problem.voters.K + 1))
    wanted = {NAMES[name]: share for name, share in tables.items()} | {"a fair coin": guess}
    assert {name: float(share) for name, share in rows.items()} == pytest.approx(
        {name: 100.0 * share for name, share in wanted.items()}, abs=5.001e-3
    )
    list_errors = re.findall(r"^[* ] \S.*% +(\S+)(?: +\S+)?$", report.short, re.MULTILINE)
    assert sorted(map(float, list_errors[:-1])) == pytest.approx(sorted(report.list_errors()), rel=0.06, abs=5.001e-5)
    gain = tables["γ_opt"] - tables["γ_flat"]
    assert ("the gain over the best constant is small" in report.short) == (0.0 <= gain < 0.001)
    assert ("the best constant has the higher accuracy" in report.short) == (gain < 0.0)
    values = {int(ones): float(value) for ones, value in re.findall(r"(\d+): (\d\.\d{4})\b", report.short)}
    assert set(values) <= set(report.table.gamma.levels.tolist())
    assert len(values) == min(12, report.table.gamma.half.size)
    assert all(value == pytest.approx(report.table.gamma(ones), abs=5.001e-5) for ones, value in values.items())
    assert f"below {optimality.bound_text}" in report.short
    means = re.findall(r"only the mean of the p_i counts here: (\S+)", report.short)
    prior = optimality.prior
    expected = [f"{(prior.low + prior.high) / 2:g}"] if isinstance(prior, priors.Independent) else []
    assert means == expected
    assert f"Proof     {report.table.certificate.rows:,} rows, " in report.short
    assert "Objective the expected error, linear under this prior" in report.short
    assert max(map(len, report.short.splitlines())) <= 100


def test_full_report_has_every_gamma_and_error(report: Report) -> None:
    tables = report.tables()
    lines = [line.partition("(")[0].split() for line in report.text.splitlines()]
    rows = {
        line[0]: line[1:] for line in lines if line and (line[0].isdigit() or line[0] in {"l", "accuracy", "error"})
    }
    assert [name.rstrip("*") for name in rows["l"]] == list(tables)
    for index, level in enumerate(report.table.gamma.levels):
        half = [table.gamma.half[index] for table in tables.values()]
        assert [float(word) for word in rows[str(level)]] == pytest.approx(half, abs=5.001e-5)
    assert [float(word) for word in rows["error"]] == pytest.approx(report.list_errors(), abs=5.001e-5)
    assert [float(word) for word in rows["accuracy"]] == pytest.approx(report.list_accuracies(), abs=5.001e-5)
    assert report.read_numbers("a coin: #)") == pytest.approx(
        [report.compute_accuracy(np.zeros(report.table.gamma.K + 1))], abs=5.001e-5
    )
    for name, table in tables.items():
        scale = re.search(rf"{name}\*.*as certify scaled it, by ([0-9.e-]+)", report.text)
        assert (scale is not None) == (table.certificate.scale < 1.0 - 1e-9), name
        if scale is not None:
            assert float(scale.group(1)) == pytest.approx(table.certificate.scale, rel=1e-5)


def test_baselines_that_do_not_apply_are_explained_with_all() -> None:
    asked = ["--K", "5", "--m", "2.5"]
    short, longer = print_report(asked), print_report([*asked, "--all"])
    entries = json.loads(print_report([*asked, "--format", "json"]))["noise_functions"]
    absent = [entry for entry in entries if entry["gamma"] is None]
    assert len(absent) == 2
    assert "  (2 more do not apply; --all shows the reasons)" in short.splitlines()
    for entry in absent:
        assert entry["remark"] not in short
        assert f"  {entry['name']} does not apply: {entry['remark']}" in longer.splitlines()


def test_full_report_has_the_certificate(report: Report) -> None:
    problem, certificate = report.table.problem, report.table.certificate
    assert f"{certificate.rows:,} (every multiset of corners)" in report.text
    if problem.voters.overlap is None:
        kinds = 8 if problem.voters.each.delta else 4
        assert certificate.rows == comb(problem.voters.K + kinds - 1, kinds - 1)
    assert report.read_numbers("worst cost #") == [certificate.worst_cost]
    assert report.read_numbers("budget #") == [certificate.budget]
    assert certificate.budget == pytest.approx(np.expm1(problem.target.epsilon) + 2.0 * problem.target.delta, rel=1e-12)


def test_json_report_has_the_same_numbers(report: Report) -> None:
    tables, optimality, claim = report.tables(), optimality_of(report.table), report.data["optimality"]
    places = [entry for entry in report.data["noise_functions"] if entry["gamma"] is not None]
    assert [entry["name"] for entry in places] == list(tables)
    assert [entry["gamma"] for entry in places] == [table.gamma.half.tolist() for table in tables.values()]
    assert [entry["expected_error"] for entry in places] == pytest.approx(report.list_errors(), rel=1e-12)
    assert [entry["accuracy"] for entry in places] == pytest.approx(report.list_accuracies(), rel=1e-9)
    seconds, K = [entry["second_error"] for entry in places], report.table.problem.voters.K
    if isinstance(optimality.prior, priors.Independent):
        other = priors.parse(report.data["second_prior"])
        p, rng = optimality.prior.probabilities(K, 4_000, rng=np.random.default_rng(6)), np.random.default_rng(7)
        p = np.where(rng.random(p.shape) < 0.5, 1.0 - p, p)  # to either side
        assert np.mean((p - 0.5) ** 2) == pytest.approx(
            np.mean((other.probabilities(K, 4_000, rng=rng) - 0.5) ** 2), 0.03
        )
        assert seconds == pytest.approx([mean_error(table.gamma.full, p) for table in tables.values()], abs=0.01)
    else:
        assert [report.data["second_prior"], *seconds] == [None] * (1 + len(tables))
    assert (claim["value"], claim["bound"]) == (optimality.value, optimality.bound)
    assert claim["gap"] == max(0.0, claim["value"] - claim["bound"])
    assert claim["claimed"] is optimality.claimed is ("claimed" in report.text)
    assert priors.from_json(claim["prior"]) == optimality.prior


def test_sampled_objective_is_reported_with_held_out_draws(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    arguments = ["--K", "7", "--m", "2", "--prior", "uniform", "--draws", "300"]
    output = ["--output", str(path), "--force"]
    short, text = print_report([*arguments, *output]), print_report([*arguments, *output, "--all"])
    table = Table.load(path)
    report, held_out = Report("", short, text, {}, table), held_out_of(table)
    assert f"expected error on other draws: {held_out}" in short
    mean, error, draws = report.read_numbers("held out expected error # ± # (# draws)")
    assert [mean, draws] == pytest.approx([held_out.mean, 300], rel=1e-5)
    assert error == pytest.approx(held_out.standard_error, rel=0.051)
    assert report.read_numbers("below # on the fitted draws") == pytest.approx([optimality_of(table).bound], rel=1e-9)


def test_missing_votes_are_reported_in_text_and_json(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    arguments = ["--K", "6", "--m", "2", "--prior", "point:0.7", "--missing", "5", "--output", str(path), "--force"]
    text, rows = print_report(arguments), json.loads(print_report([*arguments, "--format", "json"]))["missing"]
    gamma, prior = Table.load(path).gamma, priors.Point(0.7)
    lines = [line.split() for line in text[text.index(" missing accuracy") :].splitlines()]
    assert lines[:8] == [["missing", "accuracy", "error"], *lines[1:7], []]
    for missing, (row, line) in enumerate(zip(rows, lines[1:7], strict=True)):
        places = gamma.with_missing(missing)
        truth = [places.accuracy(prior), places.expected_error(prior)]
        assert (row["missing"], line[0]) == (missing, str(missing))
        assert [row["accuracy"], row["expected_error"]] == pytest.approx(truth, rel=1e-12)
        assert [float(word) for word in line[1:]] == pytest.approx(truth, abs=5.001e-5)
    assert rows[0]["expected_error"] == gamma.expected_error(prior) < rows[-1]["expected_error"]
    assert "missing" not in print_report(arguments[:6])
    assert "missing" not in json.loads(print_report([*arguments[:6], "--format", "json"]))


def test_a_report_is_at_most_100_characters_wide() -> None:
    table = load_table(Problem.from_allowance(Voters(301, PrivacyParams("0.1", "1e-5")), 1))
    lines = GammaReport(table, ()).text(None).splitlines()
    assert max(map(len, lines)) == 100


def test_many_missing_votes_are_shortened_to_60_lines() -> None:
    table = load_table(Problem.from_allowance(Voters(101, PrivacyParams("0.1", "1e-5")), 10))
    rows = evaluate_missing(table, priors.Dirichlet(), range(101))
    assert [row.missing for row in rows] == list(range(101))
    text = GammaReport(table, (), rows).text(None)
    shown = text[text.index(" missing accuracy") :].partition("\n\n")[0].splitlines()
    assert shown[-1] == "  (60 of 101 lines shown; --format json has all)"
    assert (len(shown), shown[1].split()[0], shown[60].split()[0]) == (62, "0", "100")


@pytest.mark.parametrize("most", ["11", "0", "-1", "two", "1.5"])
def test_missing_votes_out_of_range_are_refused(most: str, capsys: pytest.CaptureFixture[str]) -> None:
    claim = refused(main, ["--missing", most], "--missing must be", capsys)
    assert re.search("below K = 11|an integer of at least 1", claim)
