"""The public functions accept convenient arguments and refuse ambiguous ones."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm import (
    DaRRM,
    NoiseFunction,
    PrivacyAccountant,
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Table,
    Voters,
    Votes,
    certify,
    load_table,
    optimize_gamma,
    optimize_table,
    release,
)
from darrm.errors import BudgetExceededError
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.optimize.__main__ import main as optimize
from darrm.plurality.plurality_law import random_law
from darrm.priors import Dirichlet, Independent
from darrm.table.release import Release
from tests.optimality import optimality_of
from tests.planned import share

TWO = certify(Problem.from_allowance(Voters(5, (0.5, 1e-5)), 3), NoiseFunction(5, [0.1, 0.4, 0.8]))
THREE = certify(Problem(Voters.non_private(4, overlap=1), (1, "1e-5"), 3), random_law(4, 3))


@pytest.mark.parametrize("pair", [(2, 1e-5), ("2", "1e-5"), [2.0, "0.00001"], PrivacyParams(2, 1e-5)])
def test_a_pair_is_exact_in_every_spelling(pair: Any) -> None:
    assert PrivacyParams.of(pair) == PrivacyParams("2", "0.00001")
    assert Voters(3, pair).each == Problem(Voters(3, pair), pair).target == PrivacyParams.of(pair)


@pytest.mark.parametrize("wrong", [2, (2,), (2, 1e-5, 0), "2, 1e-5", {"epsilon": 2, "delta": 0}, None])
def test_a_wrong_pair_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"privacy must be a pair \(epsilon, delta\)"):
        PrivacyParams.of(wrong)


def test_optimize_gamma_takes_a_problem_or_its_numbers() -> None:
    problem = Problem.from_allowance(Voters(11, PrivacyParams("0.1", "1e-5")), 3)
    assert optimize_gamma().problem == optimize_gamma(K=11, m=3).problem == problem
    assert optimize_gamma(K=7, m="5/2").problem.m == 2.5
    assert optimize_gamma(problem).gamma.half.tolist() == optimize_gamma(K=11).gamma.half.tolist()
    with pytest.raises(ValueError, match="problem must be left out"):
        optimize_gamma(problem, K=11)
    with pytest.raises(ValueError, match="m must be in"):
        optimize_gamma(K=2)


def test_a_prior_may_be_given_by_its_text() -> None:
    for text, prior in (("uniform", Independent(0.0, 1.0)), ("uniform:0.5,1", Independent(0.5, 1.0))):
        assert optimality_of(optimize_table(TWO.problem, prior=text, draws=20)).prior == prior
        assert TWO.law.accuracy(text) == TWO.law.accuracy(prior)
    assert THREE.law.accuracy("dirichlet") == THREE.law.accuracy(Dirichlet())
    with pytest.raises(ValueError, match="for more than two classes"):
        THREE.law.accuracy("uniform")


def test_gamma_and_tables_are_functions_of_the_votes() -> None:
    assert [TWO.gamma(ones) for ones in (0, 3, 4)] == [0.8, 0.1, 0.4]
    assert TWO([0, 3, 4]).tolist() == [TWO(0), TWO(3), TWO(4)] == [0.8, 0.1, 0.4]
    assert THREE([2, 2, 0]).round(6).tolist() == THREE([[2, 2, 0]])[0].round(6).tolist() == [0.333333] * 3
    two, three = (6, -1, 2.0, True), ([2, 1, 0], [4, 0], [5, -1, 0])
    wrong: list[tuple[Table, Any]] = [*((TWO, votes) for votes in two), *((THREE, votes) for votes in three)]
    for table, votes in wrong:
        with pytest.raises(ValueError, match="must be"):
            table(votes)


def test_a_table_plots_its_noise_function(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (axes,) = TWO.plot(tmp_path / "gamma.png").axes
    assert axes.lines[0].get_ydata().tolist() == TWO.gamma.full.tolist()
    assert (tmp_path / "gamma.png").read_bytes().startswith(b"\x89PNG")
    assert len(TWO.plot().axes) == 1
    with pytest.raises(ValueError, match="two classes"):
        THREE.plot()


def test_arrays_of_predictions_are_votes_on_any_number_of_classes() -> None:
    labels = [[0, 1, 1, 0, 2], [2, 2, 2, 2, 2]]
    table = certify(Problem(Voters.non_private(5, overlap=1), (1, "1e-5"), 3), random_law(5, 3))
    forms: tuple[Any, ...] = (labels, np.array(labels), np.array(labels, dtype=float), Votes.from_labels(labels, 3))
    answers = [Release(table)(votes, rng=np.random.default_rng(3)).tolist() for votes in forms]
    assert answers == [answers[0]] * len(forms)
    ten = NoisyMaximum(GNMax(0.5), Voters.non_private(5, overlap=1), 10)
    assert ten.release(labels).tolist()[1] == 2
    assert DaRRM is Release
    assert DaRRM(TWO)([[1, 1, 1, 1, 1]]).shape == (1,)


def test_arrays_that_may_be_counts_are_refused() -> None:
    table = certify(Problem(Voters.non_private(3, overlap=1), (1, "1e-5"), 3), random_law(3, 3))
    with pytest.raises(ValueError, match="labels and counts look alike"):
        Release(table)([[1, 1, 1]])
    with pytest.raises(ValueError, match="of K = 4 voters, got 5 columns"):
        Release(THREE)([[1, 1, 2, 0, 0]])
    with pytest.raises(ValueError, match="got 3 from voter 0"):
        Release(THREE)([[3, 0, 0, 0]])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", ["from darrm import plan, release", "import darrm.plan.release, darrm.release", ""])
def test_plan_and_release_are_functions_after_any_imports(first: str) -> None:
    script = f"""{first}
import darrm
from darrm import Voters, Workload, plan, release
from darrm.plan import Plan, plan as function
from darrm.release import release_debited
work = Workload(Voters.non_private(3, overlap=1), 1, (2, 1e-5))
assert isinstance(plan(work), Plan) and darrm.plan.plan is function
assert len(release([[1] * 3], budget=(2, 1e-5), non_private=True, overlap=1)) == 1
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


@pytest.mark.parametrize(
    ("who", "kind"),
    [
        ({"non_private": True, "overlap": 1}, "labels"),
        ({"epsilon": "0.5", "each_delta": "1e-6", "overlap": 1}, "an array"),
        ({"epsilon": 0.2, "models": False}, "votes"),
    ],
    ids=["non-private teachers", "private models", "fresh randomness"],
)
def test_a_release_plans_draws_and_pays(who: dict[str, Any], kind: str) -> None:
    labels = [["no", "yes", "yes", "yes", "yes"]] * 4
    votes: Any = {"labels": labels, "an array": np.array(labels), "votes": Votes.from_labels(labels, ("no", "yes"))}[
        kind
    ]
    answers = release(votes, budget=("3", "1e-4"), classes=("no", "yes"), **who)
    assert set(answers.labels.tolist()) <= {"no", "yes"}
    assert answers.spent.queries == answers.plan.workload.queries == len(answers) == 4
    assert 0 < answers.spent.epsilon <= 3
    assert repr(answers) == f"ReleasedLabels(4 by {answers.plan.best.slug})"
    assert repr(answers.plan).startswith(f"Plan({answers.plan.rows[0].slug}, ")
    assert str(answers).startswith(f"4 labels by {answers.plan.best.name}\nspent: 4 queries: (")


def test_release_takes_more_classes_and_open_answers() -> None:
    teachers: dict[str, Any] = {"budget": (4, "1e-5"), "non_private": True, "overlap": 1}
    assert release(np.full((3, 4), 2), classes=3, **teachers).labels.shape == (3,)
    assert set(release([["flu"] * 3] * 2, classes="open", **teachers).labels.tolist()) <= {"flu", None}


def test_release_assumes_no_guarantee() -> None:
    votes = [[1, 1, 1]]
    calls: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "pass epsilon=, the guarantee of each model's training, or non_private=True"),
        ({"epsilon": 1, "non_private": True}, "left out for non-private models"),
        ({"non_private": True}, "1 for disjoint shards"),
        ({"epsilon": 1, "queries": 0}, "queries must be an integer of at least 1"),
    )
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            release(votes, budget=(2, 1e-5), **call)


def test_calls_with_one_ledger_share_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share(monkeypatch)  # the three plans are one
    path = tmp_path / "ledger.sqlite"
    who: dict[str, Any] = {"budget": (1, "1e-5"), "non_private": True, "overlap": 1, "ledger": path}
    votes = np.ones((2, 3), dtype=int)
    first = release(votes, queries=4, **who)
    second = release(votes, queries=4, **{**who, "ledger": first.ledger})
    assert (first.spent.queries, second.spent.queries) == (2, 4)
    with pytest.raises(BudgetExceededError):
        release(votes, queries=4, **who)
    with pytest.raises(ValueError, match="budget must be that of the ledger"):
        release(votes, **{**who, "budget": (2, "1e-5")})
    assert PrivacyLedger(path).spent.queries == 4


def test_results_describe_themselves() -> None:
    assert str(Voters(1, PrivacyParams(1))).startswith("1 voter, ")
    assert str(Voters(1_000, PrivacyParams(1))).startswith("1,000 voters, ")
    table = optimize_gamma(K=7, m=2)
    text = str(table)
    assert "Private majority of 7 voters" in text
    assert f"{table.gamma(5):8.4f}" in text
    assert f"worst cost     {table.certificate.worst_cost!r}" in text
    assert f"worst cost     {table.certificate.worst_cost!r}" in str(table.certificate)
    assert "Private plurality of 4 voters, 3 classes" in str(THREE)
    large = load_table(Problem.from_allowance(Voters(1001, ("0.1", 0)), 3), shape="monotone")
    assert max(map(len, str(large).splitlines())) <= 120
    assert str(DaRRM(table)) == text
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(1, "1e-3"))
    assert repr(ledger) == "PrivacyLedger(':memory:')"
    assert str(ledger).startswith("budget: (1, 0.001), which all labels together keep to\nspent:  ")
    accountant = PrivacyAccountant()
    assert str(accountant) == "nothing is charged yet"
    accountant.add(Release(table).privacy_cost(20))
    assert str(accountant).splitlines()[1] == f"        20  DaRRM over 7 voters, {table.problem.target} each"


def test_the_command_prints_the_table_as_it_describes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(["--K", "7", "--m", "2", "--all"]) == 0
    output = capsys.readouterr().out
    heading, _, certificate = str(optimize_gamma(K=7, m=2)).split("\n\n")
    assert certificate in output
    assert heading.splitlines()[0] in output
