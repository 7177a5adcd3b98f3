"""``darrm account``: the report of a ledger, the bounds of a table, their picture, and what is refused."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from darrm.account import __main__ as account
from darrm.account.__main__ import main
from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import MODELS_BOUNDS, models_bound
from darrm.ledger.ledger import PrivacyLedger
from darrm.noisy_max.mechanisms import LNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.plan.mechanism import no_report
from darrm.privacy import PrivacyParams, at_most
from darrm.problem import Voters
from darrm.subsampling import SCHEMES, Subsampling
from darrm.table.release import Release
from tests.account.support import NON_PRIVATE, list_epsilons, make_table
from tests.doors import refused

TABLE = make_table(Voters(3, PrivacyParams("0.2", "1e-5")), [0.5, 1.0], 1.5)
MODELS = Voters(3, PrivacyParams("0.1"), overlap=2, models=True)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TABLE.save("table.json")
    make_table(MODELS, [0.5, 1 / 3], 1).save("models.json")


def read_json(words: str, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main([*words.split(), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def read_text(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words.split()) == 0
    return capsys.readouterr().out


def test_the_report_of_a_ledger_shows_budget_cost_and_rest(capsys: pytest.CaptureFixture[str]) -> None:
    cost = Release(TABLE).privacy_cost()
    ledger = PrivacyLedger.create("l.sqlite", PrivacyParams(2, "1e-3"), population="ward 7")
    assert "Meaning" not in read_text("l.sqlite", capsys)  # nothing is spent
    ledger.debit(cost.repeat(4), note="first")
    spent, text = ledger.spent, read_text("--ledger l.sqlite", capsys)
    assert len(text.splitlines()) <= 15
    assert max(map(len, text.splitlines())) <= 100
    for part in (
        "l.sqlite, population ward 7 ",
        "Budget (2, 0.001), which all labels together keep to",
        f"4 queries: ({at_most(spent.epsilon)}, 0.001), {at_most(50 * spent.epsilon, 3)} % of epsilon, if the number",
        f"Bound {spent.bound}: {spent.explanation}",
        f"Remaining {ledger.queries_that_fit(cost)} more queries of DaRRM over 3 voters",
        "Meaning Any event of all labels together is at most e^2 = 7.39 times as likely, plus 0.001, as with",
        "darrm account {} --digest".format(Path("l.sqlite").absolute()),
    ):
        assert part in " ".join(text.split())
    assert "first" not in text
    everything = read_text("l.sqlite --all --plot meaning.svg", capsys)
    assert "<svg" in Path("meaning.svg").read_text(encoding="utf-8")
    assert "DaRRM over 3 voters  first\n" in everything
    assert f"\nDigest       {ledger.digest()}\n" in everything


def test_the_json_of_a_ledger_has_its_entries_and_digest(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = PrivacyLedger.create("l.sqlite", PrivacyParams(2, "1e-3"), population="ward 7")
    ledger.debit(Release(TABLE).privacy_cost(4))
    document = read_json("--ledger l.sqlite", capsys)
    assert document["budget"] == {"epsilon": "2", "delta": "0.001"}
    assert document["spent"]["epsilon"] == ledger.spent.epsilon
    assert [entry["count"] for entry in document["entries"]] == [4]
    assert document["population"] == "ward 7"
    assert document["ledger_digest"]["text"] == str(ledger.digest())
    assert read_json("--ledger l.sqlite --digest", capsys) == document["ledger_digest"]
    assert read_text("--ledger l.sqlite --digest", capsys) == f"{ledger.digest()}\n"


def test_the_rows_of_a_table_are_the_bounds_of_the_accountant(capsys: pytest.CaptureFixture[str]) -> None:
    lines = read_text("--table table.json --queries 50,20 --delta 1e-3", capsys).splitlines()
    names = lines[2].split()[1:]
    assert names == ["simple", "general", "optimal", "profile", "pld"]
    for line, count in zip(lines[3:5], (20, 50), strict=True):
        spent = PrivacyAccountant(costs=[Release(TABLE).privacy_cost(count)]).spent(1e-3)
        epsilons, (first, *cells) = list_epsilons(spent), line.split()
        assert first == str(count)
        assert [float(cell.rstrip("*")) for cell in cells] == [float(at_most(epsilons[name])) for name in names]
        assert cells[names.index(spent.bound)].endswith("*")
    assert lines[-1] == f"* smallest; for 50 queries by {spent.bound}: {spent.explanation}"
    text = read_text("--table table.json --queries 50,20 --delta 1e-3 --models --overlap 1", capsys)
    assert "post-processing of models that are already private" in text


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("words", "overlap"), [("--overlap 1", 1), ("--models", 2), ("", 2)])
def test_a_table_for_models_is_bounded_for_its_models(
    words: str, overlap: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = read_json(f"--table models.json --delta 1e-3 --queries 1,9 {words}", capsys)["queries"]
    models = models_bound(replace(MODELS, overlap=overlap), 1e-3)
    assert models is not None
    assert rows["9"]["bounds"]["private models"] == models.epsilon
    assert set(rows["9"]["bounds"]) == set(MODELS_BOUNDS) - {"subsampling"}
    assert {"simple", "profile", "private models"} <= set(rows["1"]["bounds"])


def test_a_table_that_nothing_bounds_has_an_explanation_and_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    # the models' own δ exceed the total, and the release is the majority without noise
    make_table(Voters(3, PrivacyParams("0.1", "1e-2"), models=True), [1.0, 1.0]).save("certain.json")
    text = read_text("--table certain.json --delta 1e-3 --queries 5 --plot none.png", capsys)
    assert "for 5 queries nothing bounds epsilon: answers of trained models share" in text
    assert Path("none.png").read_bytes().startswith(b"\x89PNG")


def test_the_points_of_the_picture_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, cost = Figure(), Release(TABLE).privacy_cost()

    @contextmanager
    def keep_figure(_: Path) -> Iterator[Figure]:
        yield figure

    monkeypatch.setattr(account, "save_figure", keep_figure)
    account.plot_bounds(Path("none.png"), cost, 4, 1e-3, TABLE.problem.voters, no_report)
    lines = {str(line.get_label()): np.asarray(line.get_xydata()) for line in figure.axes[0].lines}
    for queries in (1, 2, 3, 4):
        points = {name: line[queries - 1] for name, line in lines.items()}
        assert all(x == queries for x, _ in points.values())
        epsilons = {name: y for name, (_, y) in points.items() if not math.isnan(y)}
        assert epsilons == list_epsilons(PrivacyAccountant(costs=[cost.repeat(queries)]).spent(1e-3))


@pytest.mark.parametrize("scheme", [None, *SCHEMES])
def test_the_bounds_name_the_neighbors_of_sampled_voters(
    scheme: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    sampling = None if scheme is None else Subsampling(Fraction(4, 1000), scheme)
    NoisyMaximum(LNMax(0.5), Voters(10, NON_PRIVATE, 1, sampled=sampling), 2).save("release.json")
    text = read_text("--table release.json --queries 10 --delta 1e-5", capsys)
    assert text.partition(", for neighbors that ")[2].partition(":")[0] == SCHEMES.get(scheme or "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--table table.json --queries 0 --delta 0.1", "at least 1"),
        ("--table table.json --queries 5 --delta 1", "--delta must be in"),
        ("--ledger none.sqlite --delta 0.1", "--delta is about a table"),
        ("--table table.json --queries 5 --delta 0.1 --digest", "--log and --digest are about a ledger"),
        ("--table table.json --queries 5 --delta 0.1 --overlap 1", "--overlap is about models"),
        ("--table models.json --queries 1 --delta 1e-3 --models --overlap 3", "no larger overlap"),
    ],
)
def test_account_refuses(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(main, words, message, capsys)
