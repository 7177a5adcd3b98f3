"""Propose-test-release: for any votes, test and run together are within the budget."""

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.aggregator import load_release, save_release
from darrm.errors import BudgetExceededError, TableError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max.cost_given_votes import LEAST_MISSED, missed_probabilities
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.mislabel_bound import GaussianMislabelBound, tightest_mislabel_bound
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import PermuteAndFlip
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian
from darrm.pate.confident import NoisyCheck
from darrm.pate.tested import BudgetTest, TestedRun
from darrm.pate.vote_scale import CheckedCost
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.release.delivery import release_debited
from darrm.release.one_by_one import open_release
from darrm.release.partitions import survey
from darrm.votes import Votes
from tests.doors import validated
from tests.noisy_max.oracles import Counts, histograms, hockey_stick, label_laws, neighbors, worst_divergence


def build_maximum(mechanism: Mechanism, K: int, C: int) -> NoisyMaximum:
    return NoisyMaximum(mechanism, Voters(K, PrivacyParams("inf"), overlap=1), C)


def answer_law(run: TestedRun, counts: Counts) -> np.ndarray:
    """Compute the probability of every answer to one question, and of none last, if the test passes."""
    labels = label_laws(run.mechanism.law, counts, fair=True)
    if run.check is None:
        return np.append(labels, 0.0)
    passes = np.exp(run.check.log_probabilities(np.array([max(counts)]))[0][0])
    return np.append(passes * labels, 1.0 - passes)


def run_law(run: TestedRun, answers: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, float]:
    """Compute the law of all labels of two questions, for a failed test last, by the answers of each voter."""
    counts = [np.bincount(votes, minlength=run.classes) for votes in zip(*answers, strict=True)]
    chance = run.pass_chance(Votes.from_counts(counts))
    passed = np.multiply.outer(*(answer_law(run, tuple(row.tolist())) for row in counts)).ravel()
    failed = np.ones(1)
    if isinstance(run.otherwise, NoisyMaximum):
        law = run.otherwise.mechanism.law  # type: ignore[union-attr]  # a noisy maximum in these tests
        failed = np.multiply.outer(*(winning_probabilities(law, row[None])[0] for row in counts)).ravel()
    return np.append(chance * passed, (1.0 - chance) * failed), chance


SKEWED = AsymmetricMax(AsymmetricNoise(1.0, 1.5, 1.5, 1.5))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("K", "C", "mechanism", "check", "otherwise", "epsilon", "order"),
    [
        (6, 2, GNMax(0.7), None, None, 4.0, 1.5),
        (3, 3, GNMax(0.7), NoisyCheck(2.0, 0.6), None, 4.0, 1.3),
        (6, 2, GNMax(0.6), NoisyCheck(4.0, 0.6), None, 4.0, 1.5),
        (5, 3, GNMax(0.7), NoisyCheck(4.0, 0.6), None, 4.0, 1.3),
        (6, 2, LNMax(2.0), None, None, 3.0, 3.0),
        (6, 2, SKEWED, None, None, 4.0, 2.0),
        (6, 2, GNMax(0.7), None, GNMax(3.0), 4.0, 1.5),
    ],
)
def test_all_neighbors_of_all_votes_are_within_the_budget(
    K: int,
    C: int,
    mechanism: Mechanism,
    check: NoisyCheck | None,
    otherwise: GNMax | None,
    epsilon: float,
    order: float,
) -> None:
    other = None if otherwise is None else build_maximum(otherwise, K, C)
    run = TestedRun(build_maximum(mechanism, K, C), 2, PrivacyParams(epsilon, 0.05), order, check, other)
    ballots = list(itertools.product(range(C), repeat=2))
    laws = {answers: run_law(run, answers) for answers in itertools.combinations_with_replacement(ballots, K)}
    worst = 0.0
    for answers, (here, _) in laws.items():
        assert math.isclose(here.sum(), 1.0, rel_tol=1e-9)
        for place, ballot in itertools.product(range(K), ballots):
            there, _ = laws[tuple(sorted((*answers[:place], ballot, *answers[place + 1 :])))]
            worst = max(worst, hockey_stick(here, there, epsilon))
    assert 0.05 * 0.05 < worst <= 0.05
    assert len({round(chance, 6) for _, chance in laws.values()}) > 1  # some votes pass more likely than others


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("K", "C", "mechanism", "check", "order"),
    [
        (9, 3, GNMax(1.2), NoisyCheck(5.0, 1.0), 6.0),
        (14, 2, GNMax(0.5), NoisyCheck(14.0, 0.5), 2.0),  # many q are below the least reported one: the check costs
        (8, 3, LNMax(2.5), None, 1.5),
        (9, 3, AsymmetricMax(AsymmetricNoise(2.0, 4.0, 3.0, 2.0)), None, 4.0),
        (12, 2, AsymmetricMax(AsymmetricNoise(1.5, 1.0, 1.0, 3.0)), None, 2.0),
        (10, 3, LNMax(0.6), None, 5.0),
        (12, 2, GNMax(1.5), NoisyCheck(8.0, 2.0), 3.0),
        (8, 4, GNMax(2.0), NoisyCheck(9.0, 3.0), 12.0),
    ],
)
def test_plurality_and_q_bound_the_cost_before_and_after_a_vote(
    K: int, C: int, mechanism: AsymmetricMax | GNMax | LNMax, check: NoisyCheck | None, order: float
) -> None:
    run = TestedRun(build_maximum(mechanism, K, C), 1, PrivacyParams(1, 0.01), order, check)
    laws = {row: answer_law(run, row) for row in histograms(K, C)}
    costs, missed = (
        dict(zip(laws, values, strict=True))
        for values in (run.bound_costs(np.array(list(laws))), missed_probabilities(mechanism.law, np.array(list(laws))))
    )
    (places, shift), tightness = tightest_mislabel_bound(mechanism.law, order).places, 0.0
    for row in laws:
        exact = worst_divergence(laws, row, order)
        assert exact <= costs[row] * (1.0 + 1e-9)
        tightness = max(tightness, exact / costs[row])
        after = np.interp(costs[row], *run.bound.after_one_vote)
        assert max(costs[moved] for moved in neighbors(row)) <= after * (1.0 + 1e-9)
        place = int(np.flatnonzero(places >= missed[row])[-1])
        assert max(missed[moved] for moved in neighbors(row)) <= places[max(place - shift, 0)] * (1.0 + 1e-9)
    assert tightness > 0.05


@pytest.mark.parametrize(
    ("K", "C", "sigma", "check", "order"), [(12, 2, 1.5, (8.0, 2.0), 3.0), (16, 4, 2.0, (9.0, 1.5), 6.0)]
)
def test_the_bound_after_a_vote_is_above_every_place(
    K: int, C: int, sigma: float, check: tuple[float, float], order: float
) -> None:
    bound = CheckedCost(GaussianMislabelBound(sigma, order), NoisyCheck(*check), K, C)
    rows = np.array(histograms(K, C))
    plurality, missed = rows.max(axis=1), missed_probabilities(DiscreteGaussian(sigma), rows)
    q, shift = bound.label.places
    reported = np.flatnonzero(q >= LEAST_MISSED)
    largest_q = {int(m): float(missed[plurality == m].max()) for m in np.unique(plurality)}
    assert len(largest_q) > 5
    for m, top in largest_q.items():
        assert top <= q[bound._first_places[m]] * (1.0 + 1e-9)
        places = reported[q[reported] <= top]
        before = bound.cost(q[places], np.full(places.size, m))
        for n in {m - 1, m, m + 1} & largest_q.keys():
            after = bound.cost(np.minimum(q[places - shift], largest_q[n]), np.full(places.size, n))
            assert np.all(after <= np.interp(before, *bound.after_one_vote) * (1.0 + 1e-12))


@pytest.mark.parametrize("check", [None, NoisyCheck(-8.0, 1.0)])
def test_a_cost_that_no_vote_changes_has_few_levels(check: NoisyCheck | None) -> None:
    run = TestedRun(build_maximum(GNMax(1.0), 6, 2), 3, PrivacyParams(16, 1e-3), 15.0, check)
    assert 1 <= run.costs.size < 20
    assert run.costs[-1] >= 3 * max(run.bound_costs(np.array(histograms(6, 2))))


def test_noise_whose_cost_one_vote_makes_maximal_is_charged_the_maximum_or_refused() -> None:
    wild = build_maximum(AsymmetricMax(AsymmetricNoise(2.355, 0.608, 1.5, 3.0)), 7, 3)
    run = TestedRun(wild, 100, PrivacyParams(2.7, 1e-3), 1.5)
    assert run.costs[-1] >= 100 * tightest_mislabel_bound(run.mechanism.law, 1.5).cost(np.ones(1))[0] > 0.0
    assert run.pass_chance(Votes.from_counts([[4, 3, 0]] * 2)) < 0.01
    with pytest.raises(ValueError, match="order must be smaller"):
        _ = TestedRun(wild, 100, PrivacyParams(2.7, 1e-3), 10.25).costs


@pytest.mark.parametrize("pure", [None, 0.1])
def test_the_chances_satisfy_the_condition_and_are_nearly_the_largest(pure: float | None) -> None:
    costs = np.asarray(0.002 * 1.6 ** np.arange(20), dtype=np.float64)
    test = BudgetTest(6.0, PrivacyParams(1.2, 1e-3), None if pure is None else RenyiCurve.from_pure(pure))
    chances = test.chances(costs)
    assert test.all_hold(chances, costs)
    assert chances[0] > 0.99
    assert np.all(np.diff(chances) <= 0.0)
    for p, q, cost in zip(chances[:-1], chances[1:], costs[:-1], strict=True):
        assert all(test.holds(*pair, cost) for pair in ((p, q), (q, p), (p, p)))
    for level in np.flatnonzero(chances < 0.98).tolist():
        raised = chances.copy()
        raised[level] *= 1.01
        assert not test.all_hold(raised, costs)
    assert not test.all_hold(np.append(chances[1:], 1.0), costs)
    assert not test.all_hold(chances[:-1], costs)


def bound_delta(curve: list[tuple[float, float]], x: float) -> float:
    """Bound the hockey stick at e^x by [CKS20, Proposition 12] from pairs (order, divergence)."""
    logs = [(a - 1) * (math.log1p(-1 / a) + d - x) - math.log(a) for a, d in curve]
    return math.exp(min(0.0, *logs))


def test_the_condition_is_that_of_the_theorem() -> None:
    rng, outcomes = np.random.default_rng(8), Counter[bool]()
    for _ in range(300):
        order, epsilon, cost = rng.uniform(1.5, 30.0), rng.uniform(0.1, 3.0), 10.0 ** rng.uniform(-2.0, 0.5)
        p, q = rng.uniform(0.001, 0.999, size=2)
        curve = None if rng.random() < 0.5 else RenyiCurve.from_pure(rng.uniform(0.01, epsilon))
        passed = [(1.0 + (order - 1.0) * 0.02 ** (k / 400), cost) for k in range(401)]
        total = p * bound_delta(passed, epsilon + math.log(q / p))
        left = epsilon + math.log((1 - q) / (1 - p))
        if curve is None:
            total += (1 - p) * max(0.0, 1 - math.exp(left))
        else:
            total += (1 - p) * bound_delta(list(zip(curve.orders.tolist(), curve.values.tolist(), strict=True)), left)
        for share in (0.97, 1.2):  # the library tries fewer orders
            if 0.0 < total * share < 1.0:
                holds = bool(BudgetTest(order, PrivacyParams(epsilon, total * share), curve).holds(p, q, cost))
                outcomes[holds] += 1
                assert holds == (share > 1.0)
    assert min(outcomes[False], outcomes[True]) > 200


@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_a_run_of_unbounded_cost_passes_with_chance_delta(delta: float) -> None:
    test, endless = BudgetTest(8.0, PrivacyParams(1, delta)), 1e6
    assert 0.99 * delta < test.chances(np.array([endless]))[0] < delta
    assert not test.holds(delta, delta, endless)


def test_the_fallback_is_charged_for_all_queries() -> None:
    few, many = (
        TestedRun(
            build_maximum(GNMax(0.7), 20, 2), count, PrivacyParams(2, 1e-3), 5.0, None, build_maximum(GNMax(4.0), 20, 2)
        )
        for count in (2, 100)
    )
    assert few.chances.size > 1
    with pytest.raises(ValueError, match="used otherwise fits into"):
        _ = many.chances


@pytest.mark.slow
def test_a_run_passes_as_often_as_its_chance() -> None:
    run = TestedRun(build_maximum(GNMax(0.6), 6, 2), 2, PrivacyParams(4, 0.05), 1.5, NoisyCheck(4.0, 0.6))
    votes = Votes.from_counts([[6, 0], [6, 0]])
    chance = run.pass_chance(votes)
    assert 0.05 < chance < 0.95
    rng = np.random.default_rng(5)
    passed = np.mean([np.any(run.release(votes, rng=rng) >= 0) for _ in range(150)])
    assert abs(passed - chance) < 5.0 * math.sqrt(chance * (1 - chance) / 150)  # false alarms: 6e-7


def test_a_run_is_stored_paid_once_and_released_as_a_whole(tmp_path: Path) -> None:
    budget = PrivacyParams(2, "1e-5")
    run = TestedRun(build_maximum(GNMax(20.0), 250, 3), 40, budget, 8.0)
    save_release(tmp_path / "run.json", run)
    validated(tmp_path / "run.json", "tested_run")
    assert load_release(tmp_path / "run.json") == run
    votes = Votes.from_counts([[249, 1, 0]] * 30)
    ledger = PrivacyLedger.create(tmp_path / "ledger.sqlite", budget)
    labels = release_debited(run, votes, ledger=ledger, output=tmp_path / "labels.csv")
    assert labels.shape == (30,)
    (entry,) = ledger.entries()
    assert (entry.count, entry.answers, entry.delivered) == (1, 40, True)
    assert ledger.spent.epsilon == pytest.approx(2.0)
    with pytest.raises(BudgetExceededError):
        release_debited(run, votes, ledger=ledger, output=tmp_path / "again.csv")
    assert PrivacyLedger(tmp_path / "ledger.sqlite").entries() == (entry,)
    for release in (lambda: open_release(run, ledger), lambda: survey(run, tmp_path, tmp_path / "out")):
        with pytest.raises(ValueError, match="charged as a whole"):
            release()


RUN: dict[str, Any] = {
    "answer": build_maximum(GNMax(5.0), 20, 3),
    "queries": 5,
    "budget": PrivacyParams(1, 1e-5),
    "order": 9.0,
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queries": 0}, "queries"),
        ({"budget": PrivacyParams(1)}, "epsilon and delta above 0"),
        ({"order": 1.0}, "order"),
        ({"answer": build_maximum(GNMax(5.0, reached=2), 20, 3)}, "one person reaches one"),
        ({"answer": NoisyMaximum(GNMax(5.0), Voters(20, PrivacyParams(1), overlap=1), 3)}, "plain"),
        ({"answer": build_maximum(PermuteAndFlip(1.0), 20, 3)}, "GNMax, LNMax or AsymmetricMax"),
        ({"answer": build_maximum(LNMax(1.0), 20, 3), "check": NoisyCheck(15.0, 3.0)}, "GNMax"),
        ({"otherwise": build_maximum(GNMax(5.0), 20, 4)}, "same voters and classes"),
        ({"answer": build_maximum(LNMax(1e-9), 20, 3)}, "at most 1000 votes"),
        ({"answer": build_maximum(GNMax(1e6), 20, 3)}, "at most 1000 votes"),
    ],
)
def test_a_run_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TestedRun(**{**RUN, **fields})


def test_a_run_refuses_other_votes_and_other_files() -> None:
    run = TestedRun(**RUN, check=NoisyCheck(4.0, 0.6))
    for counts, message in (([[20, 0, 0]] * 6, "at most 5"), ([[20, 0]], "C = 3"), ([[21, 0, 0]], "K = 20")):
        with pytest.raises(ValueError, match=message):
            run.release(Votes.from_counts(counts))
    with pytest.raises(ValueError, match="queries"):
        run.privacy_cost(6)
    assert TestedRun.from_json(run.to_json()) == run
    for field, value in (("order", "0.5"), ("queries", "3"), ("check", {"threshold": "9"}), ("extra", 1)):
        with pytest.raises(TableError):
            TestedRun.from_json({**run.to_json(), field: value})
