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

    def numbers(self, pattern: str) -> list[float]:
        """The numbers of the one place that a pattern, with # for a number, describes."""
        form = re.escape(pattern).replace(r"\#", "([-+0-9.e]+)").replace(r"\ ", r"\s+")
        found = re.findall(form, self.text.replace(",", ", "))
        assert len(found) == 1, pattern
        places = found[0] if isinstance(found[0], tuple) else (found[0],)
        return [float(place.rstrip(".")) for place in places]

    def tables(self) -> dict[str, Table]:
        """γ_opt and the baselines that exist."""
        problem, known = self.table.problem, {"γ_opt": self.table}
        drawn = problem.voters.each.is_private and problem.m.is_integer()
        names = BASELINES if drawn else ("γ_const", "γ_flat")
        return known | {name: certify(problem, BASELINES[name](problem)) for name in names}

    def errors(self) -> list[float]:
        """½ Σ w_l (1 − γ(l)) for each of the tables."""
        weights = optimality_of(self.table).prior.weights(self.table.problem.voters.K)
        return [float(0.5 * weights @ (1.0 - table.gamma.half)) for table in self.tables().values()]

    def share_of(self, full: np.ndarray) -> float:
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

    def shares(self) -> list[float]:
        """The accuracy of each of the tables."""
        return [self.share_of(table.gamma.full) for table in self.tables().values()]


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


def printed(arguments: list[str]) -> str:
    with redirect_stdout(StringIO()) as out:
        assert main(arguments) == 0
    return out.getvalue()


@pytest.fixture(scope="module", params=SETTINGS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("report") / "table.json"
    arguments = [*request.param.split(), "--output", str(path), "--force"]
    data = json.loads(printed([*arguments, "--format", "json"]))
    return Report(request.param, printed(arguments), printed([*arguments, "--all"]), data, Table.load(path))


NAMES = {
    "γ_opt": "optimal γ",
    "γ_flat": "best constant γ",
    "γ_DSub": "double subsampling",
    "γ_Sub": "subsampling",
    "γ_const": "randomized response",
}


def test_the_short_report_says_who_votes_how_well_and_that_it_is_proved(report: Report) -> None:
    problem, optimality = report.table.problem, optimality_of(report.table)
    assert f"Problem   {problem.voters.K} voters, " in report.short
    assert f"Release   one label is {problem.target}-DP" in report.short
    assert f"(--prior {optimality.prior.text}); {optimality.shape} shape" in report.short
    rows = dict(re.findall(r"^[* ] (\S.*?) {2,}([\d.]+) % +\S+(?: +\S+)?$", report.short, re.MULTILINE))
    known = dict(zip(report.tables(), report.shares(), strict=True))
    guess = report.share_of(np.zeros(problem.voters.K + 1))
    wanted = {NAMES[name]: share for name, share in known.items()} | {"a fair coin": guess}
    assert {name: float(share) for name, share in rows.items()} == pytest.approx(
        {name: 100.0 * share for name, share in wanted.items()}, abs=5.001e-3
    )
    errors = re.findall(r"^[* ] \S.*% +(\S+)(?: +\S+)?$", report.short, re.MULTILINE)
    assert sorted(map(float, errors[:-1])) == pytest.approx(sorted(report.errors()), rel=0.06, abs=5.001e-5)
    gain = known["γ_opt"] - known["γ_flat"]
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


def test_every_gamma_and_every_expected_error(report: Report) -> None:
    tables = report.tables()
    lines = [line.partition("(")[0].split() for line in report.text.splitlines()]
    rows = {
        line[0]: line[1:] for line in lines if line and (line[0].isdigit() or line[0] in {"l", "accuracy", "error"})
    }
    assert [name.rstrip("*") for name in rows["l"]] == list(tables)
    for index, level in enumerate(report.table.gamma.levels):
        half = [table.gamma.half[index] for table in tables.values()]
        assert [float(word) for word in rows[str(level)]] == pytest.approx(half, abs=5.001e-5)
    assert [float(word) for word in rows["error"]] == pytest.approx(report.errors(), abs=5.001e-5)
    assert [float(word) for word in rows["accuracy"]] == pytest.approx(report.shares(), abs=5.001e-5)
    assert report.numbers("a coin: #)") == pytest.approx(
        [report.share_of(np.zeros(report.table.gamma.K + 1))], abs=5.001e-5
    )
    for name, table in tables.items():
        scale = re.search(rf"{name}\*.*as certify scaled it, by ([0-9.e-]+)", report.text)
        assert (scale is not None) == (table.certificate.scale < 1.0 - 1e-9), name
        if scale is not None:
            assert float(scale.group(1)) == pytest.approx(table.certificate.scale, rel=1e-5)


def test_what_is_absent_is_told_on_demand() -> None:
    asked = ["--K", "5", "--m", "2.5"]
    short, longer = printed(asked), printed([*asked, "--all"])
    entries = json.loads(printed([*asked, "--format", "json"]))["noise_functions"]
    absent = [entry for entry in entries if entry["gamma"] is None]
    assert len(absent) == 2
    assert "  (2 more do not apply; --all shows the reasons)" in short.splitlines()
    for entry in absent:
        assert entry["remark"] not in short
        assert f"  {entry['name']} does not apply: {entry['remark']}" in longer.splitlines()


def test_the_certificate(report: Report) -> None:
    problem, certificate = report.table.problem, report.table.certificate
    assert f"{certificate.rows:,} (every multiset of corners)" in report.text
    if problem.voters.overlap is None:
        kinds = 8 if problem.voters.each.delta else 4
        assert certificate.rows == comb(problem.voters.K + kinds - 1, kinds - 1)
    assert report.numbers("worst cost #") == [certificate.worst_cost]
    assert report.numbers("budget #") == [certificate.budget]
    assert certificate.budget == pytest.approx(np.expm1(problem.target.epsilon) + 2.0 * problem.target.delta, rel=1e-12)


def test_the_same_as_plain_data(report: Report) -> None:
    tables, optimality, said = report.tables(), optimality_of(report.table), report.data["optimality"]
    found = [entry for entry in report.data["noise_functions"] if entry["gamma"] is not None]
    assert [entry["name"] for entry in found] == list(tables)
    assert [entry["gamma"] for entry in found] == [table.gamma.half.tolist() for table in tables.values()]
    assert [entry["expected_error"] for entry in found] == pytest.approx(report.errors(), rel=1e-12)
    assert [entry["accuracy"] for entry in found] == pytest.approx(report.shares(), rel=1e-9)
    seconds, K = [entry["second_error"] for entry in found], report.table.problem.voters.K
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
    assert (said["value"], said["bound"]) == (optimality.value, optimality.bound)
    assert said["gap"] == max(0.0, said["value"] - said["bound"])
    assert said["claimed"] is optimality.claimed is ("claimed" in report.text)
    assert priors.from_json(said["prior"]) == optimality.prior


def test_the_numbers_of_a_sampled_objective(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    arguments = ["--K", "7", "--m", "2", "--prior", "uniform", "--draws", "300"]
    output = ["--output", str(path), "--force"]
    short, text = printed([*arguments, *output]), printed([*arguments, *output, "--all"])
    table = Table.load(path)
    report, held_out = Report("", short, text, {}, table), held_out_of(table)
    assert f"expected error on other draws: {held_out}" in short
    mean, error, draws = report.numbers("held out expected error # ± # (# draws)")
    assert [mean, draws] == pytest.approx([held_out.mean, 300], rel=1e-5)
    assert error == pytest.approx(held_out.standard_error, rel=0.051)
    assert report.numbers("below # on the fitted draws") == pytest.approx([optimality_of(table).bound], rel=1e-9)


def test_what_missing_votes_do(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    arguments = ["--K", "6", "--m", "2", "--prior", "point:0.7", "--missing", "5", "--output", str(path), "--force"]
    text, rows = printed(arguments), json.loads(printed([*arguments, "--format", "json"]))["missing"]
    gamma, prior = Table.load(path).gamma, priors.Point(0.7)
    lines = [line.split() for line in text[text.index(" missing accuracy") :].splitlines()]
    assert lines[:8] == [["missing", "accuracy", "error"], *lines[1:7], []]
    for missing, (row, line) in enumerate(zip(rows, lines[1:7], strict=True)):
        found = gamma.with_missing(missing)
        truth = [found.accuracy(prior), found.expected_error(prior)]
        assert (row["missing"], line[0]) == (missing, str(missing))
        assert [row["accuracy"], row["expected_error"]] == pytest.approx(truth, rel=1e-12)
        assert [float(word) for word in line[1:]] == pytest.approx(truth, abs=5.001e-5)
    assert rows[0]["expected_error"] == gamma.expected_error(prior) < rows[-1]["expected_error"]
    assert "missing" not in printed(arguments[:6])
    assert "missing" not in json.loads(printed([*arguments[:6], "--format", "json"]))


def test_a_report_on_many_rows_is_no_wider_than_a_screen() -> None:
    table = load_table(Problem.from_allowance(Voters(301, PrivacyParams("0.1", "1e-5")), 1))
    lines = GammaReport(table, ()).text(None).splitlines()
    assert max(map(len, lines)) == 100


def test_many_missing_votes_are_shown_in_few_lines() -> None:
    table = load_table(Problem.from_allowance(Voters(101, PrivacyParams("0.1", "1e-5")), 10))
    rows = evaluate_missing(table, priors.Dirichlet(), range(101))
    assert [row.missing for row in rows] == list(range(101))
    text = GammaReport(table, (), rows).text(None)
    shown = text[text.index(" missing accuracy") :].partition("\n\n")[0].splitlines()
    assert shown[-1] == "  (60 of 101 lines shown; --format json has all)"
    assert (len(shown), shown[1].split()[0], shown[60].split()[0]) == (62, "0", "100")


@pytest.mark.parametrize("most", ["11", "0", "-1", "two", "1.5"])
def test_how_many_votes_may_be_missing(most: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(main, ["--missing", most], "--missing must be", capsys)
    assert re.search("below K = 11|an integer of at least 1", said)
