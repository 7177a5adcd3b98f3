"""The command line that accounts; neighbors that are never added up; what (ε, δ) means for a person."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain, combinations
from math import exp
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from darrm.account import __main__ as account
from darrm.account.__main__ import main
from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import models_bound
from darrm.account.meaning import belief_after, power_of_test
from darrm.commands.command_line import run
from darrm.ledger.ledger import PrivacyLedger
from darrm.ledger.report import ledger_text
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.plan.mechanism import no_report
from darrm.privacy import PrivacyParams, at_most
from darrm.problem import Problem, Voters
from darrm.subsampling import SCHEMES, Subsampling
from darrm.table.release import Release
from darrm.table.table import Table, certify
from tests.doors import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    problem = Problem.from_allowance(Voters(3, PrivacyParams("0.2", "1e-5")), "1.5")
    certify(problem, NoiseFunction(3, [0.5, 1.0])).save(tmp_path / "table.json")
    return tmp_path


def test_account_of_a_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cost = Release(Table.load(folder / "table.json")).privacy_cost()
    made = PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(2, "1e-3"), population="ward 7")
    made.debit(cost.repeat(4), note="first")
    assert run(lambda: account.main(["--ledger", str(folder / "l.sqlite")])) == 0
    out = capsys.readouterr().out
    ledger = PrivacyLedger(folder / "l.sqlite")
    spent = ledger.spent
    lines = [line for line in out.splitlines() if str(folder) not in line]  # a path may be long
    assert len(out.splitlines()) <= 15
    assert max(map(len, lines)) <= 100
    said = " ".join(out.split())
    assert "l.sqlite, population ward 7 " in said
    assert "Budget (2, 0.001), which all labels together keep to" in said
    share = at_most(100 * spent.epsilon / 2, 3)
    assert f"4 queries: ({at_most(spent.epsilon)}, 0.001), {share} % of epsilon, {spent.condition}" in said
    assert f"Bound {spent.bound}: {spent.explanation}" in said
    assert f"Remaining {ledger.queries_that_fit(cost)} more queries of DaRRM over 3 voters" in said
    assert f"darrm account {folder / 'l.sqlite'} --digest" in said
    assert "first" not in out
    assert run(lambda: account.main(["--ledger", str(folder / "l.sqlite"), "--format", "json"])) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["budget"] == {"epsilon": "2", "delta": "0.001"}
    assert document["spent"]["epsilon"] == spent.epsilon
    assert document["entries"][0]["count"] == 4
    assert (document["ledger_digest"]["text"], document["population"]) == (str(ledger.digest()), "ward 7")
    assert run(lambda: account.main([str(folder / "l.sqlite"), "--all"])) == 0
    out = capsys.readouterr().out
    assert "DaRRM over 3 voters  first\n" in out
    assert f"\nDigest       {ledger.digest()}\n" in out
    assert run(lambda: account.main(["--ledger", str(folder / "l.sqlite"), "--digest"])) == 0
    assert capsys.readouterr().out == f"{ledger.digest()}\n"
    assert run(lambda: account.main(["--ledger", str(folder / "l.sqlite"), "--digest", "--format", "json"])) == 0
    assert json.loads(capsys.readouterr().out) == document["ledger_digest"]
    assert account.main([str(folder / "l.sqlite"), "--json"]) == 0  # a path is a ledger
    assert json.loads(capsys.readouterr().out) == document


def test_labels_that_wait_are_listed_with_the_command_that_writes_them(folder: Path) -> None:
    ledger = PrivacyLedger.create(folder / "l.sqlite", PrivacyParams(2, "1e-3"))
    cost = Release(Table.load(folder / "table.json")).privacy_cost()
    for number in (1, 2, 3):
        ledger.debit(cost, labels=np.array([number % 2]), output=folder / f"{number}.csv")
    first, second = (ledger.recovery(number, str(folder / f"{number}.csv")) for number in (1, 2))
    text = ledger_text(ledger)
    assert "1 labels of entry 1, and those of 2 more entries (--all)" in text
    assert (text.count(first), text.count(second)) == (1, 0)
    assert all(ledger_text(ledger, everything=True).count(command) == 1 for command in (first, second))


def test_account_of_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--table", str(folder / "table.json"), "--queries", "50,20", "--delta", "1e-3"]
    assert run(lambda: account.main(base)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["queries", "simple", "general", "optimal", "profile", "pld"]
    aggregator = Release(Table.load(folder / "table.json"))
    for line, count in zip(lines[3:5], (20, 50), strict=True):
        spent = PrivacyAccountant(costs=[aggregator.privacy_cost(count)]).spent(1e-3)
        found = {bound.name: bound.epsilon for bound in spent.bounds}
        cells = line.split()
        assert cells[0] == str(count)
        printed = [float(cell.rstrip("*")) for cell in cells[1:]]
        assert printed == [float(at_most(found[name])) for name in lines[2].split()[1:]]
        assert line.count("*") == 1
    # the last line explains the row of the most queries
    most = PrivacyAccountant(costs=[aggregator.privacy_cost(50)]).spent(1e-3)
    assert lines[-1] == f"* smallest; for 50 queries by {most.bound}: {most.explanation}"
    assert run(lambda: account.main([*base, "--models", "--format", "json"])) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["queries"]["20"]["bounds"]["private models"] > 0
    assert run(lambda: account.main([*base, "--models", "--overlap", "1"])) == 0
    assert "post-processing of models that are already private" in capsys.readouterr().out


def models_table(folder: Path) -> list[str]:
    voters = Voters(3, PrivacyParams("0.1"), overlap=2, models=True)
    table = certify(Problem.from_allowance(voters, 1), NoiseFunction(3, [0.5, 1 / 3]))
    table.save(folder / "models.json")
    return ["--table", str(folder / "models.json"), "--delta", "1e-3", "--queries"]


@pytest.mark.slow
def test_a_table_for_models_keeps_its_word(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = models_table(folder)
    cap = {overlap: models_bound(Voters(3, PrivacyParams("0.1"), overlap, models=True), 1e-3) for overlap in (1, 2)}
    for words, overlap in (([], 2), (["--models"], 2), (["--overlap", "1"], 1)):
        assert run(lambda words=words: account.main([*base, "1,9", *words, "--format", "json"])) == 0  # type: ignore[misc]
        found = json.loads(capsys.readouterr().out)["queries"]
        known = cap[overlap]
        assert known is not None
        assert set(found["9"]["bounds"]) == {"private models", "non-private voters", "joint bound"}
        assert found["9"]["bounds"]["private models"] == known.epsilon
        assert {"simple", "profile", "private models"} <= set(found["1"]["bounds"])
    assert run(lambda: account.main([*base, "2"])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["queries", "private", "models", "non-private", "voters", "joint", "bound"]


def test_an_overlap_above_that_of_the_table_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*models_table(folder), "1", "--models", "--overlap", "3"]
    assert "no larger overlap" in refused(account.main, words, "reach at most 2 of them", capsys)


def test_where_nothing_bounds_the_queries(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # the models' own deltas pass what is allowed, and the release tells the majority of three votes for sure
    voters = Voters(3, PrivacyParams("0.1", "1e-2"), models=True)
    certify(Problem.from_allowance(voters, 3), NoiseFunction(3, [1.0, 1.0])).save(folder / "models.json")
    picture = ["--plot", str(folder / "none.png")]
    words = ["--table", str(folder / "models.json"), "--delta", "1e-3", "--queries", "5", *picture]
    assert run(lambda: account.main(words)) == 0
    assert "for 5 queries nothing bounds epsilon: answers of trained models share" in capsys.readouterr().out
    assert (folder / "none.png").read_bytes().startswith(b"\x89PNG")


def test_every_point_of_the_picture_is_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure()

    @contextmanager
    def kept(_: Path) -> Iterator[Figure]:
        yield figure

    monkeypatch.setattr(account, "save_figure", kept)
    table = Table.load(folder / "table.json")
    cost = Release(table).privacy_cost()
    account.plot_bounds(folder / "none.png", cost, 4, 1e-3, table.problem.voters, no_report)
    drawn = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].lines}
    assert set(drawn) >= {"simple", "optimal", "profile"}
    for queries in (1, 2, 3, 4):
        found = PrivacyAccountant(costs=[cost.repeat(queries)]).spent(1e-3).bounds
        shown = {name: points[queries - 1][1] for name, points in drawn.items()}
        drawn_here = {name: epsilon for name, epsilon in shown.items() if not math.isnan(epsilon)}
        assert drawn_here == {bound.name: bound.epsilon for bound in found}
        assert all(points[queries - 1][0] == queries for points in drawn.values())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--table", "TABLE", "--queries", "0", "--delta", "0.1"], "at least 1"),
        (["--table", "TABLE", "--queries", "5", "--delta", "1"], "--delta must be in"),
        (["--ledger", "LEDGER", "--delta", "0.1"], "--delta is about a table"),
    ],
)
def test_account_refuses(arguments: list[str], word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = {"TABLE": str(folder / "table.json"), "LEDGER": str(folder / "none.sqlite")}
    refused(account.main, [places.get(argument, argument) for argument in arguments], word, capsys)


PLAIN, RATE = PrivacyParams("inf"), Subsampling.of("0.004").record_rate
OF = {
    sampling and sampling.scheme: NoisyMaximum(LNMax(0.5), Voters(10, PLAIN, 1, sampled=sampling), 2)
    for sampling in (None, Subsampling(RATE), Subsampling(RATE, "fixed"))
}


BY_HAND = PrivacyCost("by hand", PrivacyParams("0.1"))
NEIGHBORS = {  # two costs are added only if they are of one group
    "answers change": [OF[None].privacy_cost(3), GNMax(40.0).privacy_cost(), BY_HAND],
    "a person more or less": [OF["poisson"].privacy_cost(3), replace(BY_HAND, sampling=Subsampling.of(1))],
    "a person is exchanged": [
        OF["fixed"].privacy_cost(3),
        replace(BY_HAND, sampling=Subsampling(Fraction(1), "fixed")),
    ],
}


@pytest.mark.parametrize("composition", ["planned", "renyi", "adaptive"])
@pytest.mark.parametrize("group", NEIGHBORS)
def test_costs_add_up_for_the_same_neighbors_only(group: str, composition: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first, *more = NEIGHBORS[group]
    PrivacyLedger.create(path, PrivacyParams(9, "1e-5"), composition=composition).debit(first)
    ledger = PrivacyLedger(path)  # it knows only what is in the file
    for others in (NEIGHBORS[name] for name in NEIGHBORS if name != group):
        for other in others:
            with pytest.raises(ValueError, match="do not add up"):
                ledger.debit(other)
            with pytest.raises(ValueError, match="do not add up"):
                ledger.queries_that_fit(other)
    for cost in more:
        ledger.debit(cost)
    assert len(ledger.entries()) == len(NEIGHBORS[group])


def test_what_queries_would_cost_says_for_which_neighbors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for release in OF.values():
        sampling = release.voters.sampled
        path = tmp_path / "release.json"
        release.save(path)
        assert main(["--table", str(path), "--queries", "10", "--delta", "1e-5"]) == 0
        said = capsys.readouterr().out.partition(", for neighbors that ")[2].partition(":")[0]
        assert said == ("" if sampling is None else SCHEMES[sampling.scheme])


def test_no_event_of_a_private_pair_tells_more() -> None:
    rng = np.random.default_rng(11)
    for _ in range(60):
        one, other = rng.dirichlet(np.full(5, 0.7), 2)
        epsilon = float(rng.uniform(0.0, 2.0))
        delta = max(float(np.maximum(0.0, a - exp(epsilon) * b).sum()) for a, b in ((one, other), (other, one)))
        for event in map(list, chain.from_iterable(combinations(range(5), size) for size in range(1, 6))):
            level, prior = float(other[event].sum()), float(rng.uniform())
            hit = float(one[event].sum())
            assert hit <= power_of_test(epsilon, delta, level) + 1e-12
            least = float(rng.uniform(0.0, level)) + 1e-9  # it is as likely as that, or more
            after = prior * hit / (prior * hit + (1.0 - prior) * level)
            assert after <= belief_after(epsilon, delta, prior, least) + 1e-9


def test_the_worst_pair_of_laws_attains_both() -> None:
    epsilon, delta = 0.7, 0.02
    rest = (1.0 - delta) / (1.0 + exp(epsilon))
    one, other = (delta, rest * exp(epsilon), rest), (0.0, rest, rest * exp(epsilon))  # and what only `other` says
    assert one[0] + one[1] == pytest.approx(power_of_test(epsilon, delta, other[1]), abs=1e-15)
    after = 0.3 * (one[0] + one[1]) / (0.3 * (one[0] + one[1]) + 0.7 * other[1])
    assert belief_after(epsilon, delta, [0.0, 0.3, 1.0], other[1]) == pytest.approx([0.0, after, 1.0], abs=1e-15)


@pytest.mark.slow
def test_a_ledger_says_and_draws_what_its_total_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    ledger = PrivacyLedger.create(tmp_path / "l.sqlite", PrivacyParams(2, "1e-5"))
    flags = ["--ledger", str(tmp_path / "l.sqlite"), "--plot", str(tmp_path / "m.svg"), "--force"]
    assert run(partial(main, flags)) == 0
    assert "Meaning" not in capsys.readouterr().out  # nothing was spent
    ledger.debit(PrivacyCost("one", guarantee=PrivacyParams("0.5")))
    assert run(partial(main, flags)) == 0
    text = capsys.readouterr().out
    assert "times as likely, plus 1e-05" in " ".join(text.split())
    assert "5 % false alarms has power 36.95 % at most" in " ".join(text.split())  # the budget: 5 % times e^2, plus δ
    assert "<svg" in (tmp_path / "m.svg").read_text(encoding="utf-8")
    assert run(partial(main, [*flags, "--format", "json"])) == 0
    assert json.loads(capsys.readouterr().out)["spent"]["epsilon"] == pytest.approx(0.5, rel=1e-3)


def test_what_has_no_probability_at_all_tells_all_or_e_to_the_epsilon() -> None:
    assert belief_after(1.0, 0.0, [0.0, 0.5, 1.0], 0.0) == pytest.approx([0.0, exp(1) / (1 + exp(1)), 1.0])
    assert belief_after(1.0, 0.1, [0.0, 0.5, 1.0], 0.0).tolist() == [0.0, 1.0, 1.0]
