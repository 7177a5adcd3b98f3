"""`darrm plan`: its report, its files, its refusals, and that the table it writes can be released from."""

import csv
import json
import math
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.commands.command_line import run
from darrm.plan import Plan, find_mechanism
from darrm.plan.__main__ import main
from darrm.plan.report import plan_text, workload_words
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.release.__main__ import main as release
from darrm.subsampling import Subsampling
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.verify.__main__ import main as verify
from tests.doors import refused, validated
from tests.planned import FRESH, MANY, MANY_FLAGS, ONE, completed, planned, share
from tests.planned import MODELS as FEW_MODELS

PRIVATE = "--epsilon 0.1 --each-delta 1e-5"
MODELS = "--K 3 --epsilon 0.1 --each-delta 1e-5 --overlap 2 --models --queries 2 --total 2,1e-5"


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    share(monkeypatch)


def curve_of(table: Table) -> list[float]:
    """How often the aggregator of a table answers the majority, from its own exact coins."""
    aggregator = Release(table)
    return [float(aggregator.probability_of_one(int(level))) for level in table.gamma.levels]


def workload_of(words: list[str]) -> Workload:
    """The workload that the command reads."""
    seen: list[Workload] = []

    def keep(work: Workload, **_: object) -> None:
        seen.append(work)
        raise ValueError("enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darrm.plan.__main__.planner.plan", keep)
        assert run(lambda: main([*words, "--quiet"])) == 2
    return seen[0]


def printed(found: Plan) -> dict[str, tuple[list[float], str]]:
    """The numbers and the mark of every mechanism, as a reader finds them in the report."""
    text = plan_text(found, everything=True)
    table = {}
    for line in text.partition("  bound\n")[2].splitlines()[: len(found.rows)]:
        slug, *words = line[2:].removesuffix("joint bound").split()
        table[slug] = ([float(word) for word in words if word[0].isdigit()], line[0])
    return table


def said(text: str) -> str:
    """A report without its line breaks."""
    return " ".join(text.replace("\\\n", " ").split())


@pytest.mark.parametrize("overlap", ["", "--overlap 1 "])
def test_what_a_plan_ranks_it_writes(overlap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also DaRRM as in [D], which counts on every person to reach all voters: that holds for fewer, too."""
    words = [*f"--K 3 --epsilon 0.1 --each-delta 1e-5 {overlap}--queries 4 --total 1,1e-3".split(), "--mechanism"]
    path = tmp_path / "plan.json"
    assert run(lambda: main([*words, "darrm-paper", "--output", str(path), "--quiet"])) == 0
    assert run(lambda: verify([str(path)])) == 0
    assert "false 0" in capsys.readouterr().out


def test_a_mechanism_of_the_ranking_is_planned_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Except those that are only compared, with the reason."""
    work = Workload(Voters(3, PrivacyParams("0.1", "1e-5"), overlap=2), 4, PrivacyParams(1, "1e-3"))
    rows = completed(
        work, mechanisms=[find_mechanism(slug) for slug in ("permute-and-flip", "subsampling", "gnmax-paper")]
    ).rows
    assert {row.is_released for row in rows} == {True, False}
    for row in rows:
        words = [*workload_words(work).split(), "--prior", "dirichlet", "--mechanism", row.slug]
        if row.is_released:
            assert main(words) == 0
            assert f"\n* {row.slug} " in capsys.readouterr().out
        else:
            refused(main, words, f"these are only compared. {row.slug}: {row.only_compared}", capsys)


def test_the_written_table_releases_all_queries_within_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, votes, ledger = tmp_path / "plan.json", tmp_path / "votes.npy", tmp_path / "ledger.sqlite"
    assert run(lambda: main([*MANY_FLAGS, "--prior", "dirichlet", "--output", str(table)])) == 0
    text = capsys.readouterr().out
    assert "40 majority votes" in text
    assert "LEDGER.sqlite --create-budget 2,0.00001" in said(text)
    assert max(map(len, text.replace(str(table), "").splitlines())) <= 80
    cost = Release(Table.load(table)).privacy_cost(40)
    assert PrivacyAccountant(costs=[cost]).admits(PrivacyParams(2, "1e-5"))
    np.save(votes, np.ones((40, 21), dtype=np.int8))
    arguments = [str(votes), "--table", str(table), "--ledger", str(ledger), "--output", str(tmp_path / "l.npy")]
    assert run(lambda: release([*arguments, "--create-budget", "2,1e-5"])) == 0
    assert np.load(tmp_path / "l.npy").shape == (40,)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("work", [MANY, pytest.param(FRESH, marks=pytest.mark.slow), FEW_MODELS, ONE], ids=str)
def test_every_number_of_the_text_is_the_plans(work: Workload) -> None:
    """Compared with what a draw of the prior gives by the definition of the error, and with the accountant."""
    few = [find_mechanism("permute-and-flip"), find_mechanism("gnmax"), find_mechanism("randomized-response")]
    found = completed(work, mechanisms=few if work is FEW_MODELS else None)
    K, p = work.voters.K, (np.arange(20_000) + 0.5) / 20_000
    votes = np.arange(K + 1)
    choose = np.array([float(math.comb(K, k)) for k in votes])
    law = choose[:, None] * p ** votes[:, None] * (1.0 - p) ** (K - votes[:, None])

    def error(curve: np.ndarray) -> float:
        """The mean over p of |Pr[answer is 1] − Pr[majority is 1]|."""
        answers = np.concatenate([1.0 - curve[::-1], [0.5] * (K % 2 == 0), curve])
        majority = np.where(2 * votes == K, 0.5, 2 * votes > K)
        return float(np.mean(np.abs((answers - majority) @ law)))

    shown = printed(found)
    assert set(shown) == {row.slug for row in found.rows}
    for row in found.rows:
        (low, _, _, accuracy, expected_error, epsilon), mark = shown[row.slug]
        # every number of ones from 0 to K is equally likely, and a tie has no wrong answer
        alike = (2.0 * row.curve.sum() + (K % 2 == 0)) / (K + 1)
        assert low == accuracy == pytest.approx(100.0 * alike, abs=5.1e-3)
        assert expected_error == pytest.approx(error(row.curve), abs=6e-5)
        assert epsilon == pytest.approx(row.spent.epsilon, rel=1e-4)
        assert mark == ("*" if row is found.best else "-" if row.only_compared else " ")
    guess = float(str(found).partition("random guessing ")[2].split()[0])
    assert guess == pytest.approx(50.0 * (K + 1 + (K % 2 == 0)) / (K + 1), abs=5.1e-3)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("work", [MANY, FRESH], ids=str)
def test_every_number_of_the_json_is_the_plans(work: Workload) -> None:
    plan, K = planned(work), work.voters.K
    report = validated(json.dumps(plan.document()), "plan_report")
    assert report["best"] == report["mechanisms"][0]["mechanism"] == plan.best.slug
    assert report["levels"] == list(range(K // 2 + 1, K + 1))
    assert Workload(Voters.from_json(report["workload"]), report["workload"]["queries"], work.total) == work
    assert PrivacyParams.from_json(report["workload"]["total"]) == work.total
    assert report["counted_as"] == report["workload"]
    assert len(report["mechanisms"]) == len(plan.rows) > 1
    for shown, row in zip(report["mechanisms"], plan.rows, strict=True):
        assert shown["settings"] == row.settings
        if row.table is None:
            continue
        curve = np.array(curve_of(row.table))
        account = PrivacyAccountant(costs=[Release(row.table).privacy_cost(work.queries)])
        spent = account.spent(work.total.delta)
        assert shown["curve"] == pytest.approx(curve, abs=1e-15)
        assert shown["expected_error"] == pytest.approx(float(plan.prior.weights(K) @ (1.0 - curve)), rel=1e-9)
        assert PrivacyParams.from_json(shown["query"]) == row.table.problem.target
        assert shown["spent"] == {"epsilon": spent.epsilon, "delta": work.total.delta, "bound": spent.bound}


def test_a_file_of_commas_has_a_line_a_mechanism(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    assert run(lambda: main([*MANY_FLAGS, "--prior", "dirichlet", "--csv", str(path), "--quiet"])) == 0
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = planned(MANY).rows
    assert [row["mechanism"] for row in rows] == [row.slug for row in found]
    assert [float(row["accuracy"]) for row in rows] == [row.accuracy for row in found]
    assert [float(row["epsilon"]) for row in rows] == [row.spent.epsilon for row in found]


@pytest.mark.parametrize(
    ("flags", "words", "unsaid"),
    [
        (MODELS, "planned as non-private voters", "new randomness"),
        (f"--K 3 {PRIVATE} --queries 2 --total 1,1e-3", "draw new randomness for each query", "planned as"),
        ("--K 3 --non-private --queries 2 --total 1,1e-5", "one person may change all votes", "new randomness"),
        ("--K 3 --non-private --overlap 1 --queries 2 --total 1,1e-5", "2 majority votes", "default"),
        ("--non-private --overlap 1 --total 1,1e-5", "at most 1 of them (K = 11: default)", "change all"),
    ],
)
def test_what_is_assumed_is_said(flags: str, words: str, unsaid: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: main([*flags.split(), "--mechanism", "permute-and-flip"])) == 0
    text = said(capsys.readouterr().out)
    assert words in text
    assert unsaid not in text


def test_the_picture_shows_the_curve_of_every_mechanism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, path = planned(MANY), tmp_path / "plan.png"
    drawn: list[Any] = []
    original = Figure.savefig

    def savefig(figure: Figure, *args: Any, **options: Any) -> None:
        drawn.append(figure)
        original(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    assert run(lambda: main([*MANY_FLAGS, "--prior", "dirichlet", "--plot", str(path), "--quiet"])) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = drawn[0].axes
    assert len(axes.lines) == len(plan.rows)
    for line, row in zip(axes.lines, plan.rows, strict=True):
        assert line.get_xdata().tolist() == plan.table.gamma.levels.tolist()
        assert line.get_ydata().tolist() == pytest.approx(row.curve.tolist(), abs=1e-15)


def test_what_was_left_out_has_a_reason(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few = [find_mechanism(slug) for slug in ("optimal", "asymmetric", "permute-and-flip")]
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", few)
    asked = ["--K", "3", *PRIVATE.split(), "--queries", "100", "--total", "1,1e-5"]
    assert run(lambda: main(asked)) == 0
    assert "optimal" in said(capsys.readouterr().out).partition("Not shown")[2]
    assert run(lambda: main([*asked, "--all"])) == 0
    text = said(capsys.readouterr().out)
    assert "optimal: 100 queries with epsilon = 0.1, the voters' own (m = 1) do not compose within (1, 1e-05)" in text
    assert "asymmetric: it is for 3 to 1,000 classes only" in text


SAMPLED = Voters(9, PrivacyParams("inf"), 2, sampled=Subsampling(Fraction(1, 20), "fixed", 2))
THREE = Workload(Voters(5, PrivacyParams("inf"), overlap=1), 5, PrivacyParams("2", "1e-5"), classes=3)
WORKS = [
    MANY,
    FRESH,
    FEW_MODELS,
    replace(MANY, classes=4, missing=2),
    Workload(Voters.of([PrivacyParams("0.1"), PrivacyParams("0.2")]), 3, PrivacyParams(1, "1e-5")),
    Workload(SAMPLED, 20, PrivacyParams(2, "1e-5"), 3),
]


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_a_workload_is_read_back(work: Workload) -> None:
    assert workload_of(workload_words(work).split()) == work


@pytest.mark.parametrize(
    "work", [MANY, *(pytest.param(work, marks=pytest.mark.slow) for work in (FRESH, THREE, ONE))], ids=str
)
def test_the_commands_release_what_the_plan_promises(work: Workload, tmp_path: Path) -> None:
    """The first line is read back, and every mechanism that is released stays within the budget."""
    found = planned(work)
    make, _ = found.commands(str(tmp_path / "plan.json"))
    words = shlex.split(make)
    assert words[:2] == ["darrm", "plan"]
    assert run(lambda: main([*words[2:], "--quiet"])) == 0
    written = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["plan"]
    assert written["family"] == found.best.slug
    assert written["accuracy"]["value"] == found.best.accuracy
    for row in completed(work).rows:
        assert row.is_released is (row.aggregator is not None)
        if row.aggregator is not None:
            account = PrivacyAccountant(costs=[row.aggregator.privacy_cost(work.queries)])
            assert account.admits(work.total), row.slug
            assert account.spent(work.total.delta).epsilon == pytest.approx(row.spent.epsilon, rel=1e-9), row.slug


def test_a_prior_of_ones_own_is_planned_with_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No option reads it, whatever its name; its accuracy is not known, so the expected error ranks."""

    class Own(priors.Point):
        def weights(self, K: int) -> np.ndarray:
            return 0.5 * super().weights(K)

    monkeypatch.chdir(tmp_path)
    found = planned(ONE, Own(0.9))
    assert found.measure.is_error
    *python, release_it = found.commands()
    exec("\n".join(python), {"workload": ONE, "prior": Own(0.9)})  # noqa: S102 (the lines under test)
    assert Table.load("plan.json").gamma.half.tolist() == found.table.gamma.half.tolist()
    assert "--table plan.json" in release_it
    assert "--prior" not in " ".join(found.commands())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--total 1,1e-5 --prior two-sided:0.7,1 --objective error", "one with a linear expected error"),
        ("--total 1,1e-5 --prior magic", "the prior must be"),
        ("--total 1e-9,0 --queries 100000000000 --mechanism exponential", "no mechanism stays within this budget"),
        ("--total 1,1e-5 --output /nowhere/plan.json", "/nowhere"),
        ("--total 1,1e-5 --classes 3 --objective error", "defined for two classes"),
        ("--total 1,1e-5 --mechanism best", "the mechanism must be one of no-noise"),
        ("--total 1,1e-5 --mechanism permutflip", "did you mean permute-and-flip?"),
        ("--total 1,1e-5 --accuracy 0.5", "accuracy must be above 0.5, that of random guessing, got 0.5"),
        ("--total 1,1e-5 --accuracy 0 --classes open --non-private --overlap 1", "accuracy must be above 0"),
        ("--K 200 --overlap 1 --total 2,1e-5", "Write --epsilon and --each-delta of each"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(main, arguments if "--overlap" in arguments else f"{PRIVATE} {arguments}", message, capsys)
