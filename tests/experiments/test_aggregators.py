"""The comparison of aggregators: claims that can fail, expected label accuracy, and pages made from their data."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.majority.closed_form import best_for_non_private_voters
from darrm.plan import MECHANISMS
from darrm.plurality.accuracy_bound import right_at_most
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters, Workload
from darrm.votes import Votes
from experiments import pages
from experiments.aggregators import budgets
from experiments.aggregators.comparison import BY_COUNTS, Comparison, compare, decide_claims
from experiments.aggregators.plurality_page import compute_label_costs, compute_three_outcomes, compute_two_class_curve
from experiments.aggregators.votes import EnsembleVotes
from tests.planned import ONE, share


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    share(monkeypatch)


def comparison(ours: list[float], theirs: list[float], *, queries: int = 1) -> Comparison:
    workload = {"K": 5, "voters": "plain", "overlap": 1, "queries": queries, "epsilon": 1.0, "delta": 1e-5}
    difference = np.array(ours) - np.array(theirs)
    rival = {"name": "rival", "accuracy": float(np.mean(theirs)), "truth": theirs}
    worst = {"worst_margin": 1, "worst_difference": float(difference.min())}
    options = [{"name": "ours", "accuracy": float(np.mean(ours)), "truth": ours}, rival | worst]
    return Comparison(workload, options, [], 0.0, levels=[3, 4, 5])


def test_claims_can_fail() -> None:
    better, crossing = ([0.6, 0.7, 0.9], [0.6, 0.6, 0.8]), ([0.5, 0.7, 0.9], [0.6, 0.6, 0.8])
    assert [claim.holds for claim in decide_claims([comparison(*better)])] == [True, True]
    broken = {claim.statement.split(": ")[1]: claim.holds for claim in decide_claims([comparison(*crossing)])}
    every, expected = "ours is at least as good at every margin", "ours has at least the expected accuracy"
    assert broken == {every: False, expected: True}
    worse = decide_claims([comparison(*reversed(better), queries=7)])
    assert [claim.holds for claim in worse] == [False, False]
    assert all("many queries" in claim.statement for claim in worse)


def test_one_workload() -> None:
    found, options = compare(ONE, mechanisms=MECHANISMS[-2:])
    best = best_for_non_private_voters(Problem(Voters(11, ONE.voters.each, overlap=1), ONE.total))
    assert found.options[0]["truth"] == pytest.approx((0.5 + 0.5 * best.half).tolist(), abs=1e-6)
    assert found.options[0]["name"] == options[0].name == "ours"
    assert found.levels == [6, 7, 8, 9, 10, 11]
    assert all(option["worst_difference"] >= -1e-12 for option in found.options[1:])
    assert "K = 11, plain, overlap 1, Q = 1" in found.title


def of_ones(ones: list[int], labels: list[int], K: int) -> EnsembleVotes:
    counts = [[K - each, each] for each in ones]
    return EnsembleVotes("hand", Votes.from_counts(counts), np.array(labels))


def test_label_accuracy_averages_the_noise() -> None:
    votes = of_ones([5, 3, 2, 0], [1, 0, 0, 1], 5)
    truth = np.array([0.6, 0.8, 0.9])  # for 3, 4 and 5 votes
    # right with 0.9; says 1 with 0.6 where the label is 0; right with 0.6; says 0 with 0.9 where the label is 1
    assert votes.accuracy(truth) == pytest.approx((0.9 + 0.4 + 0.6 + 0.1) / 4)
    assert votes.plurality_accuracy == 0.5
    even = of_ones([2, 4], [1, 1], 4)
    assert even.accuracy(np.array([0.7, 1.0])) == pytest.approx((0.5 + 1.0) / 2)
    assert even.plurality_accuracy == 0.75
    three = EnsembleVotes("ties", Votes.from_counts([[2, 2, 2], [0, 3, 3], [1, 1, 4]]), np.array([0, 0, 2]))
    assert three.plurality_accuracy == pytest.approx((1 / 3 + 0 + 1) / 3)


@pytest.mark.slow
def test_a_plurality_workload_is_compared_by_shares_of_right_labels() -> None:
    """The share of permute-and-flip for one query, from its law by enumeration, lies under the bound of the optimum."""
    work = Workload(Voters(8, PrivacyParams("inf"), overlap=1), 1, PrivacyParams("0.5", "1e-5"), 3)
    found, _ = compare(work, Dirichlet())
    rows = [n for n in product(range(9), repeat=3) if sum(n) == 8]
    coin = np.mean([sum(each == max(n) for each in n) / 3 for n in rows])
    assert found.coin == pytest.approx(float(coin))
    assert found.at_most == pytest.approx(float(np.mean(right_at_most(rows, work.total))))
    assert found.sigma_by_counts is not None
    assert found.sigma_by_counts > found.find_option(BY_COUNTS)["settings"]["sigma"] * 0.999  # type: ignore[index]
    entry = found.find_option("permute-and-flip")
    assert entry is not None
    assert found.coin < entry["right"] <= found.at_most
    assert found.find_option("nothing") is None


FOLDER = Path(__file__).parents[2] / "docs" / "reproduction" / "aggregators"
SAVED: list[dict[str, Any]] = pages.read_json(FOLDER / "budgets.json")


@pytest.mark.slow
@pytest.mark.parametrize(("panel", "point"), [(0, 2), (1, 2), (2, 4)])
def test_the_data_are_those_of_a_sweep(panel: int, point: int) -> None:
    saved = SAVED[panel]["points"][point]
    (again,) = budgets.compute_points(panel, [budgets.PANELS[panel][2].split()[point]])
    assert again["right"] == pytest.approx(saved["right"], abs=1e-6)


def test_three_outcomes_are_those_of_draws() -> None:
    """200,000 draws: a false alarm needs five standard deviations."""
    rng, draws = np.random.default_rng(7), 200_000
    x, y = np.array([0.3, -1.0, 2.5]), np.array([0.9, 0.4, 2.0])
    noise = rng.standard_normal((2, 3, draws))
    a, b = x[:, None] + noise[0], y[:, None] + noise[1]
    seen = [np.mean((a > b) & (a > 0), axis=1), np.mean((b > a) & (b > 0), axis=1), np.mean((a < 0) & (b < 0), axis=1)]
    exact = compute_three_outcomes(x, y)
    assert exact.sum(axis=0) == pytest.approx(np.ones(3), abs=1e-12)
    assert np.all(np.abs(np.array(seen) - exact) < 5.0 * np.sqrt(exact * (1.0 - exact) / draws))


def test_two_classes_are_one_bit() -> None:
    """σ = 40, order 8: 0.003187 for two classes; small orders come near 2/π of the counts' cost."""
    assert compute_two_class_curve(40.0, np.array([8.0]))[0] == pytest.approx(0.003187, abs=1e-6)
    assert compute_two_class_curve(1000.0, np.array([2.0]))[0] * 1000.0**2 / 2.0 == pytest.approx(2.0 / np.pi, abs=1e-4)


def test_the_worst_place_costs_what_the_label_costs() -> None:
    """At the best place of the grid 0.003204 of 0.005, and the certified curve is at most one in a hundred above."""
    costs = compute_label_costs()
    surface, ratio = costs["surface"], costs["ratios"][1]
    assert np.max(surface["shares"]) * 8.0 / 1600.0 == pytest.approx(0.003204, abs=1e-6)
    certified = ratio["label"][ratio["orders"].index(8.0)]
    assert np.max(surface["shares"]) <= certified <= 1.01 * np.max(surface["shares"])
    assert np.all(np.array(ratio["two_classes"]) <= ratio["label"])
