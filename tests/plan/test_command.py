"""``darrm plan``: what it reads, prints, writes and refuses, and that its commands keep the promise of the plan."""

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
from darrm.plan import find_mechanism, plan
from darrm.plan.__main__ import main
from darrm.plan.report import plan_text, workload_words
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.release.__main__ import main as release
from darrm.subsampling import Subsampling
from darrm.table.release import Release
from darrm.table.table import Table
from darrm.verify.__main__ import main as verify
from darrm.votes import Votes
from tests.doors import refused, validated
from tests.planned import FRESH, MANY, MODELS, ONE, PLAIN, complete_plan, find_mechanisms, plan_once, share

MANY_WORDS = "--K 21 --non-private --overlap 1 --queries 40 --total 2,1e-5 --prior dirichlet"
PRIVATE = "--epsilon 0.1 --each-delta 1e-5"


@pytest.fixture(autouse=True)
def _shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    share(monkeypatch)


def read_text(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command and return its report without line breaks."""
    assert main(shlex.split(words)) == 0
    return " ".join(capsys.readouterr().out.replace("\\\n", " ").split())


# from the plan to the labels


def test_the_table_of_a_plan_releases_all_queries_within_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MANY_WORDS.split(), "--output", "plan.json"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "40 majority votes" in text
    assert "LEDGER.sqlite --create-budget 2,0.00001" in " ".join(text.replace("\\\n", " ").split())
    np.save("votes.npy", np.ones((40, 21), dtype=np.int8))
    words = "votes.npy --table plan.json --ledger l.sqlite --create-budget 2,1e-5 --output labels.npy"
    assert release(words.split()) == 0
    assert np.load("labels.npy").shape == (40,)


@pytest.mark.parametrize("overlap", ["", "--overlap 1 "])
def test_the_darrm_of_the_paper_is_written_and_verified(overlap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It allows a person to influence all voters, so it holds for a smaller overlap, too."""
    words = f"--K 3 {PRIVATE} {overlap}--queries 4 --total 1,1e-3 --mechanism darrm-paper --output plan.json --quiet"
    assert main(words.split()) == 0
    assert verify(["plan.json"]) == 0
    assert "false 0" in capsys.readouterr().out


@pytest.mark.parametrize("work", [MANY, pytest.param(FRESH, marks=pytest.mark.slow)], ids=str)
def test_the_commands_of_a_plan_write_its_best_mechanism(work: Workload) -> None:
    result = plan_once(work)
    darrm, command, *words = shlex.split(result.commands("plan.json")[0])
    assert (darrm, command) == ("darrm", "plan")
    assert main([*words, "--quiet"]) == 0
    claims = json.loads(Path("plan.json").read_text(encoding="utf-8"))["plan"]
    assert (claims["family"], claims["accuracy"]["value"]) == (result.best.slug, result.best.accuracy)
    for row in complete_plan(work).rows:
        assert row.is_released is (row.aggregator is not None)
        if row.aggregator is not None:
            account = PrivacyAccountant(costs=[row.aggregator.privacy_cost(work.queries)])
            assert account.admits(work.total), row.slug
            assert account.spent(work.total.delta).epsilon == pytest.approx(row.spent.epsilon, rel=1e-9), row.slug


def test_every_released_mechanism_is_planned_alone(capsys: pytest.CaptureFixture[str]) -> None:
    work = Workload(Voters(3, PrivacyParams("0.1", "1e-5"), overlap=2), 4, PrivacyParams(1, "1e-3"))
    for row in complete_plan(work, find_mechanisms("permute-and-flip", "subsampling", "gnmax-paper")).rows:
        words = f"{workload_words(work)} --prior dirichlet --mechanism {row.slug}"
        if row.is_released:
            assert f" * {row.slug} " in read_text(words, capsys)
        else:
            refused(main, words, f"these are only compared. {row.slug}: {row.only_compared}", capsys)


def test_a_custom_prior_is_planned_with_in_python() -> None:
    class Custom(priors.Point):
        def weights(self, K: int) -> np.ndarray:
            return 0.5 * super().weights(K)

    result = plan_once(ONE, Custom(0.9))
    assert result.measure.is_error  # its accuracy is unknown
    *python, release_command = result.commands()
    exec("\n".join(python), {"workload": ONE, "prior": Custom(0.9)})  # noqa: S102 (the lines under test)
    assert Table.load("plan.json").gamma.half.tolist() == result.table.gamma.half.tolist()
    assert "--table plan.json" in release_command
    assert "--prior" not in " ".join(result.commands())


# numbers of the report


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("work", [ONE, MANY, FRESH, MODELS], ids=str)
def test_every_number_of_the_text_is_that_of_the_plan(work: Workload) -> None:
    few = find_mechanisms("permute-and-flip", "gnmax", "randomized-response")
    result, K = complete_plan(work, few if work is MODELS else None), work.voters.K
    votes, p = np.arange(K + 1), (np.arange(20_000) + 0.5) / 20_000
    choose = np.array([float(math.comb(K, k)) for k in votes])
    law = choose[:, None] * p ** votes[:, None] * (1.0 - p) ** (K - votes[:, None])
    majority = np.where(2 * votes == K, 0.5, 2 * votes > K)
    text = plan_text(result, everything=True)
    lines = text.partition("  bound\n")[2].splitlines()
    for line, row in zip(lines[: len(result.rows)], result.rows, strict=True):
        assert line[0] == ("*" if row is result.best else "-" if row.only_compared else " ")
        slug, *words = line[2:].removesuffix("joint bound").split()
        low, _, _, accuracy, error, epsilon = (float(word) for word in words if word[0].isdigit())
        # every number of ones from 0 to K is equally likely, and a tie has no wrong answer
        exact = (2.0 * row.curve.sum() + (K % 2 == 0)) / (K + 1)
        assert slug == row.slug
        assert low == accuracy == pytest.approx(100.0 * exact, abs=5.1e-3)
        answers = np.concatenate([1.0 - row.curve[::-1], [0.5] * (K % 2 == 0), row.curve])
        assert error == pytest.approx(np.mean(np.abs((answers - majority) @ law)), abs=6e-5)
        assert epsilon == pytest.approx(row.spent.epsilon, rel=1e-4)
    guess = float(text.partition("random guessing ")[2].split()[0])
    assert guess == pytest.approx(50.0 * (K + 1 + (K % 2 == 0)) / (K + 1), abs=5.1e-3)


def test_json_csv_and_picture_show_the_rows_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    result, figures = plan_once(MANY), []
    report = validated(json.dumps(result.document()), "plan_report")
    assert report["best"] == report["mechanisms"][0]["mechanism"] == result.best.slug
    assert report["counted_as"] == report["workload"]
    assert Voters.from_json(report["workload"]) == MANY.voters
    original = Figure.savefig

    def keep_figure(figure: Figure, *args: Any, **options: Any) -> None:
        figures.append(figure)
        original(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", keep_figure)
    assert main([*MANY_WORDS.split(), "--csv", "plan.csv", "--plot", "plan.png", "--quiet"]) == 0
    with Path("plan.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(report["mechanisms"]) == len(lines) == len(figures[0].axes[0].lines) == len(result.rows) > 1
    for row, entry, line, curve in zip(result.rows, report["mechanisms"], lines, figures[0].axes[0].lines, strict=True):
        assert line["mechanism"] == entry["mechanism"] == row.slug
        assert float(line["accuracy"]) == entry["accuracy"]["value"] == row.accuracy
        assert float(line["epsilon"]) == entry["spent"]["epsilon"] == row.spent.epsilon
        assert entry["settings"] == row.settings
        assert np.asarray(curve.get_xdata()).tolist() == report["levels"] == list(range(11, 22))
        assert np.asarray(curve.get_ydata()).tolist() == entry["curve"] == row.curve.tolist()
        if row.table is not None:
            aggregator = Release(row.table)
            exact = np.array([float(aggregator.probability_of_one(level)) for level in report["levels"]])
            assert entry["curve"] == pytest.approx(exact, abs=1e-15)
            error = float(result.prior.weights(21) @ (1.0 - exact))
            assert entry["expected_error"] == pytest.approx(error, rel=1e-9)
            assert PrivacyParams.from_json(entry["query"]) == row.table.problem.target


@pytest.mark.parametrize(
    ("words", "present", "absent"),
    [
        (
            f"--K 3 {PRIVATE} --overlap 2 --models --queries 2 --total 2,1e-5",
            "planned as non-private voters",
            "new randomness",
        ),
        (f"--K 3 {PRIVATE} --queries 2 --total 1,1e-3", "draw new randomness for each query", "planned as"),
        ("--K 3 --non-private --queries 2 --total 1,1e-5", "one person may change all votes", "new randomness"),
        ("--K 3 --non-private --overlap 1 --queries 2 --total 1,1e-5", "2 majority votes", "default"),
        ("--non-private --overlap 1 --total 1,1e-5", "at most 1 of them (K = 11: default)", "change all"),
    ],
)
def test_a_report_names_its_assumptions(
    words: str, present: str, absent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = read_text(f"{words} --mechanism permute-and-flip", capsys)
    assert present in text
    assert absent not in text


def test_mechanisms_that_are_left_out_have_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", find_mechanisms("optimal", "asymmetric", "permute-and-flip"))
    words = f"--K 3 {PRIVATE} --queries 100 --total 1,1e-5"
    assert "optimal" in read_text(words, capsys).partition("Not shown")[2]
    text = read_text(f"{words} --all", capsys)
    assert "optimal: 100 queries with epsilon = 0.1, the voters' own (m = 1) do not compose within (1, 1e-05)" in text
    assert "asymmetric: it is for 3 to 1,000 classes only" in text


def test_recorded_votes_are_a_prior(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("darrm.plan.planner.MECHANISMS", find_mechanisms("exponential", "permute-and-flip"))
    counts = np.array([[20, 4, 3, 3], [28, 1, 1, 0], [9, 8, 7, 6]])
    np.save("seen.npy", counts)
    work = Workload(Voters(30, PLAIN, overlap=1), 12, PrivacyParams("3", "1e-5"), classes=4)
    assert main([*workload_words(work).split(), "--prior", "votes:seen.npy", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["mechanisms"]
    result = plan(work, prior=priors.RecordedVotes("seen.npy", Votes.from_counts(counts)))
    assert rows == result.document()["mechanisms"]
    assert result.best.law is not None
    accuracy = pytest.approx(np.mean(result.best.law(counts)[:, 0]))
    assert rows[0]["accuracy"] == {"value": accuracy, "standard_error": 0.0}


@pytest.mark.slow
def test_the_affordable_number_is_the_largest_and_printed_before_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    text = read_text("--K 11 --non-private --overlap 1 --total 2,0 --queries 5 --accuracy 0.8", capsys)
    number = text.partition("at most ")[2].split()[0]
    assert text.startswith(f"An accuracy of 0.8 takes at most {number} queries")
    assert f"Budget {number} majority votes" in text
    work = Workload(Voters(11, PLAIN, overlap=1), int(number), PrivacyParams(2))
    assert plan(work).best.accuracy >= 0.8 > plan(replace(work, queries=work.queries + 1)).best.accuracy


# words


@pytest.mark.parametrize(
    "work",
    [
        MANY,
        FRESH,
        MODELS,
        replace(MANY, classes=4, missing=2),
        Workload(Voters.of([PrivacyParams("0.1"), PrivacyParams("0.2")]), 3, PrivacyParams(1, "1e-5")),
        Workload(
            Voters(9, PLAIN, 2, sampled=Subsampling(Fraction(1, 20), "fixed", 2)), 20, PrivacyParams(2, "1e-5"), 3
        ),
    ],
    ids=str,
)
def test_the_words_of_a_workload_are_read_back(work: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    workloads: list[Workload] = []

    def keep_workload(workload: Workload, **_: object) -> None:
        workloads.append(workload)
        raise ValueError("enough")

    monkeypatch.setattr("darrm.plan.__main__.planner.plan", keep_workload)
    assert main([*workload_words(work).split(), "--quiet"]) == 2
    assert workloads == [work]


OPEN = "--K 60 --non-private --overlap 1 --classes open --queries 8 --total 3,1e-4"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{PRIVATE} --total 1,1e-5 --prior two-sided:0.7,1 --objective error", "one with a linear expected error"),
        (f"{PRIVATE} --total 1,1e-5 --prior magic", "the prior must be"),
        (f"{PRIVATE} --total 1,1e-5 --output /nowhere/plan.json", "/nowhere"),
        (f"{PRIVATE} --total 1e-9,0 --queries 100000000000 --mechanism exponential", "no mechanism stays within"),
        (f"{PRIVATE} --total 1,1e-5 --mechanism permutflip", "did you mean permute-and-flip?"),
        (f"{PRIVATE} --total 1,1e-5 --accuracy 0.5", "accuracy must be above 0.5, that of random guessing"),
        (f"{OPEN} --accuracy 0", "accuracy must be above 0"),
        (f"{OPEN} --accuracy 1.5", "accuracy must be"),
        (f"{OPEN} --accuracy x", "--accuracy must be"),
        (f"{OPEN} --find voters", "--find needs --accuracy P"),
        ("--epsilon 0.1,0.2 --each-delta 0 --total 1,0 --accuracy 0.9 --find voters", "these voters differ"),
        (f"{OPEN} --sweep 1,2 --accuracy 0.9", "--sweep excludes --accuracy and --output"),
        (f"{OPEN} --sweep 1,2 --output plan.json", "--sweep excludes --accuracy and --output"),
        (f"{OPEN} --total 3,0", "a threshold hides"),
        (f"{OPEN} --K 5001", "at most 5000"),
        (f"{OPEN} --mechanism permute-and-flip", "it is for 2 to 1,000 classes only"),
        (f"{OPEN} --prior dirichlet", "ewens"),
        (f"{OPEN} --classes 1", "classes must be an integer of at least 2"),
        (f"{OPEN} --classes 2 --prior beta", "the prior must be uniform"),
        (f"{OPEN} --classes a,b,a", "--classes must be their number"),
        (f"{OPEN} --classes 2000000", "classes must be an integer of at most 1000000"),
        (f"{OPEN} --classes 4 --prior common", "like:FILE or votes:FILE for more than two classes"),
        (f"{OPEN} --classes 4 --prior votes:none.npy", "none.npy"),
        (f"{OPEN} --classes 4 --votes-look-like none.csv", "an existing file of public votes"),
    ],
)
def test_plan_refuses(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(main, words, message, capsys)


def test_a_misspelled_mechanism_is_refused() -> None:
    with pytest.raises(ValueError, match="the mechanism must be one of no-noise"):
        find_mechanism("ours")
