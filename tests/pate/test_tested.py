"""Test, then release: whatever the votes, test and run together are within the budget."""

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.aggregator import load_release, save_release
from darrm.errors import BudgetExceededError, TableError
from darrm.ledger.chain import Entry
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.renyi import RenyiCurve
from darrm.noisy_max import cost_given_votes
from darrm.noisy_max.cost_given_votes import LEAST_MISSED, missed_probabilities
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax, NoisyMax
from darrm.noisy_max.mislabel_bound import GaussianMislabelBound, MislabelBoundByLosses, tightest_mislabel_bound
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import PermuteAndFlip
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian, DiscreteLaplace, IntegerNoise
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
from tests.noisy_max.oracles import divergences, histograms, hockey_stick, law_of, neighbors


def plain(K: int) -> Voters:
    return Voters(K, PrivacyParams("inf"), overlap=1)


def noise_of(mechanism: Mechanism) -> IntegerNoise:
    assert isinstance(mechanism, NoisyMax)
    return mechanism.law


def law(run: TestedRun, counts: np.ndarray) -> np.ndarray:
    """Every answer to one question, the last one none, where the test passes."""
    chosen = winning_probabilities(run.mechanism.law, counts[None])[0]
    if run.check is None:
        return np.append(chosen, 0.0)
    passes = np.exp(run.check.log_probabilities(np.array([counts.max()]))[0][0])
    return np.append(passes * chosen, 1.0 - passes)


def outcomes(run: TestedRun, voters: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, float]:
    """All labels of all questions, not passing last, by the votes of each voter on each question."""
    counts = np.array([np.bincount(answers, minlength=run.classes) for answers in zip(*voters, strict=True)])
    chance = run.pass_chance(Votes.from_counts(counts))
    laws = [law(run, row) for row in counts]
    passing = laws[0]
    for other in laws[1:]:
        passing = np.multiply.outer(passing, other)
    failing = [1.0]
    if run.otherwise is not None:
        instead = [winning_probabilities(noise_of(run.otherwise.mechanism), row[None])[0] for row in counts]
        failing = np.multiply.outer(*instead).ravel()
    return np.append(chance * passing.ravel(), (1.0 - chance) * np.asarray(failing)), chance


SHAPED = AsymmetricMax(AsymmetricNoise(1.0, 1.5, 1.5, 1.5))
RUNS = [
    (6, 2, GNMax(0.7), None, None, (4.0, 0.05), 1.5),
    (6, 2, GNMax(0.6), NoisyCheck(4.0, 0.6), None, (4.0, 0.05), 1.5),
    pytest.param(5, 3, GNMax(0.7), NoisyCheck(4.0, 0.6), None, (4.0, 0.05), 1.3, marks=pytest.mark.slow),
    (3, 3, GNMax(0.7), NoisyCheck(2.0, 0.6), None, (4.0, 0.05), 1.3),
    (6, 2, LNMax(2.0), None, None, (3.0, 0.05), 3.0),
    (6, 2, SHAPED, None, None, (4.0, 0.05), 2.0),
    (6, 2, GNMax(0.7), None, GNMax(3.0), (4.0, 0.05), 1.5),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("K", "C", "mechanism", "check", "other", "budget", "order"), RUNS)
def test_all_neighbors_of_all_votes_are_within_the_budget(
    K: int,
    C: int,
    mechanism: Mechanism,
    check: NoisyCheck | None,
    other: GNMax | None,
    budget: tuple[float, float],
    order: float,
) -> None:
    otherwise = None if other is None else NoisyMaximum(other, plain(K), C)
    run = TestedRun(NoisyMaximum(mechanism, plain(K), C), 2, PrivacyParams(*budget), order, check, otherwise)
    kinds = list(itertools.product(range(C), repeat=2))
    found = {votes: outcomes(run, votes) for votes in itertools.combinations_with_replacement(kinds, K)}
    worst, chances = 0.0, Counter[float]()
    for votes, (here, chance) in found.items():
        assert math.isclose(here.sum(), 1.0, rel_tol=1e-9)
        chances[round(chance, 6)] += 1
        for place, kind in itertools.product(range(K), kinds):
            there, _ = found[tuple(sorted((*votes[:place], kind, *votes[place + 1 :])))]
            worst = max(worst, hockey_stick(here, there, budget[0]))
    assert worst <= budget[1]
    assert worst > 0.05 * budget[1]  # what is tested costs something
    assert len(chances) > 1  # of the votes some pass more likely than others


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    seen = (p > 0.0) & (q > 0.0)  # of what floats can tell
    return float(divergences(p[seen], q[seen], np.array([order]))[0])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("K", "C", "mechanism", "check", "order"),
    [
        (12, 2, GNMax(1.5), NoisyCheck(8.0, 2.0), 3.0),
        (9, 3, GNMax(1.2), NoisyCheck(5.0, 1.0), 6.0),
        pytest.param(8, 4, GNMax(2.0), NoisyCheck(9.0, 3.0), 12.0, marks=pytest.mark.slow),
        (14, 2, GNMax(0.5), NoisyCheck(14.0, 0.5), 2.0),  # many are missed by less than what is told: the check costs
        (10, 3, LNMax(0.6), None, 5.0),
        (8, 3, LNMax(2.5), None, 1.5),
        (9, 3, AsymmetricMax(AsymmetricNoise(2.0, 4.0, 3.0, 2.0)), None, 4.0),
        pytest.param(12, 2, AsymmetricMax(AsymmetricNoise(1.5, 1.0, 1.0, 3.0)), None, 2.0, marks=pytest.mark.slow),
    ],
)
def test_two_numbers_bound_the_cost_and_how_far_a_vote_moves_it(
    K: int, C: int, mechanism: Mechanism, check: NoisyCheck | None, order: float
) -> None:
    run = TestedRun(NoisyMaximum(mechanism, plain(K), C), 1, PrivacyParams(1, 0.01), order, check)
    names = histograms(K, C)
    rows = np.array(names)
    laws = {row: law(run, np.array(row)) for row in names}
    q = missed_probabilities(noise_of(mechanism), rows)
    costs = run.bound_costs(rows)
    cost, missed = (dict(zip(names, values, strict=True)) for values in (costs, q))
    places, shift = tightest_mislabel_bound(noise_of(mechanism), order).places
    looseness = []
    for row, here in laws.items():
        near = neighbors(row)
        assert missed[row] >= 1.0 - winning_probabilities(noise_of(mechanism), np.array([row]))[0].max() - 1e-12
        true = max(max(renyi(here, laws[n], order), renyi(laws[n], here, order)) for n in near)
        assert true <= cost[row] * (1.0 + 1e-9)
        looseness.append(true / cost[row])
        assert max(cost[n] for n in near) <= np.interp(cost[row], *run.bound.after_one_vote) * (1.0 + 1e-9)
        place = int(np.flatnonzero(places >= missed[row])[-1])
        assert max(missed[n] for n in near) <= places[max(place - shift, 0)] * (1.0 + 1e-9)
    assert max(looseness) > 0.05  # few votes of noise of an odd shape cost far less than what bounds them


@pytest.mark.parametrize("check", [None, NoisyCheck(-8.0, 1.0)])
def test_a_cost_that_no_vote_moves_has_few_levels(check: NoisyCheck | None) -> None:
    run = TestedRun(NoisyMaximum(GNMax(1.0), plain(6), 2), 3, PrivacyParams(16, 1e-3), 15.0, check)
    assert 1 <= run.costs.size < 20
    assert run.costs[-1] >= 3 * max(run.bound_costs(np.array(histograms(6, 2))))


def test_noise_that_one_vote_takes_anywhere_is_charged_for_it_or_refused() -> None:
    wild = NoisyMaximum(AsymmetricMax(AsymmetricNoise(2.355, 0.608, 1.5, 3.0)), plain(7), 3)
    run = TestedRun(wild, 100, PrivacyParams(2.7, 1e-3), 1.5)
    assert run.costs[-1] >= 100 * tightest_mislabel_bound(run.mechanism.law, 1.5).cost(np.ones(1))[0] > 0.0
    assert run.pass_chance(Votes.from_counts([[4, 3, 0]] * 2)) < 0.01
    with pytest.raises(ValueError, match="order must be smaller"):
        _ = TestedRun(wild, 100, PrivacyParams(2.7, 1e-3), 10.25).costs


@pytest.mark.parametrize("other", [None, 0.1])
def test_the_chances_hold_and_are_nearly_the_largest(other: float | None) -> None:
    order, budget = 6.0, PrivacyParams(1.2, 1e-3)
    costs = np.asarray(0.002 * 1.6 ** np.arange(20), dtype=np.float64)
    curve = None if other is None else RenyiCurve.from_pure(other)
    test = BudgetTest(order, budget, curve)
    chances = test.chances(costs)
    assert test.all_hold(chances, costs)
    assert chances[0] > 0.99
    assert np.all(np.diff(chances) <= 0.0)
    for p, q, cost in zip(chances[:-1], chances[1:], costs[:-1], strict=True):
        assert all(test.holds(*pair, cost) for pair in ((p, q), (q, p), (p, p)))
    # one chance that is a hundredth larger is refused, wherever it is less than 1
    for level in np.flatnonzero(chances < 0.98).tolist():
        more = chances.copy()
        more[level] *= 1.01
        assert not test.all_hold(more, costs)
    assert not test.all_hold(np.append(chances[1:], 1.0), costs)
    assert not test.all_hold(chances[:-1], costs)


def test_what_a_run_cannot_be_is_said() -> None:
    answer = NoisyMaximum(GNMax(5.0), plain(20), 3)
    budget = PrivacyParams(1, 1e-5)
    whole: dict[str, Any] = {"answer": answer, "queries": 5, "budget": budget, "order": 9.0}
    for fields, words in (
        ({"queries": 0}, "queries"),
        ({"budget": PrivacyParams(1)}, "epsilon and delta above 0"),
        ({"order": 1.0}, "order"),
        ({"answer": NoisyMaximum(GNMax(5.0, reached=2), plain(20), 3)}, "one person reaches one"),
        ({"answer": NoisyMaximum(GNMax(5.0), Voters(20, PrivacyParams(1), overlap=1), 3)}, "plain"),
        ({"answer": NoisyMaximum(PermuteAndFlip(1.0), plain(20), 3)}, "GNMax, LNMax or AsymmetricMax"),
        ({"answer": NoisyMaximum(LNMax(1.0), plain(20), 3), "check": NoisyCheck(15.0, 3.0)}, "GNMax"),
        ({"otherwise": NoisyMaximum(GNMax(5.0), plain(20), 4)}, "same voters and classes"),
        ({"answer": NoisyMaximum(LNMax(1e-9), plain(20), 3)}, "at most 1000 votes"),
        ({"answer": NoisyMaximum(GNMax(1e6), plain(20), 3)}, "at most 1000 votes"),
    ):
        with pytest.raises(ValueError, match=words):
            TestedRun(**{**whole, **fields})
    run = TestedRun(answer, 5, budget, 9.0)
    for votes, words in (
        (Votes.from_counts([[20, 0, 0]] * 6), "at most 5"),
        (Votes.from_counts([[20, 0]]), "C = 3"),
        (Votes.from_counts([[21, 0, 0]]), "K = 20"),
    ):
        with pytest.raises(ValueError, match=words):
            run.release(votes)
    with pytest.raises(ValueError, match="queries"):
        run.privacy_cost(6)


@pytest.mark.slow
def test_a_run_passes_as_often_as_it_says_and_is_written_and_read() -> None:
    run = TestedRun(NoisyMaximum(GNMax(0.6), plain(6), 2), 2, PrivacyParams(4, 0.05), 1.5, NoisyCheck(4.0, 0.6))
    votes = Votes.from_counts([[6, 0], [6, 0]])
    chance = run.pass_chance(votes)
    assert 0.05 < chance < 0.95
    rng = np.random.default_rng(5)
    passed = np.mean([np.any(run.release(votes, rng=rng) >= 0) for _ in range(150)])
    assert abs(passed - chance) < 5.0 * math.sqrt(chance * (1 - chance) / 150)
    assert TestedRun.from_json(run.to_json()) == run
    for field, value in (("order", "0.5"), ("queries", "3"), ("check", {"threshold": "9"}), ("extra", 1)):
        with pytest.raises(TableError):
            TestedRun.from_json({**run.to_json(), field: value})


def test_a_run_is_paid_for_once_and_its_labels_are_those_of_all_queries(tmp_path: Path) -> None:
    budget = PrivacyParams(2, "1e-5")
    run = TestedRun(NoisyMaximum(GNMax(20.0), plain(250), 3), 40, budget, 8.0)
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
    for door in (lambda: open_release(run, ledger), lambda: survey(run, tmp_path, tmp_path / "out")):
        with pytest.raises(ValueError, match="charged as a whole"):
            door()


def test_the_condition_is_that_of_the_theorem() -> None:
    rng, met = np.random.default_rng(8), Counter[bool]()
    for _ in range(300):
        order, epsilon, cost = rng.uniform(1.5, 30.0), rng.uniform(0.1, 3.0), 10.0 ** rng.uniform(-2.0, 0.5)
        p, q = rng.uniform(0.001, 0.999, size=2)
        pure = rng.uniform(0.01, epsilon) if rng.random() < 0.5 else None

        def bounded(x: float, values: list[tuple[float, float]]) -> float:
            return min(1.0, *((1 - 1 / a) ** (a - 1) / a * math.exp(min((a - 1) * (d - x), 700.0)) for a, d in values))

        run = [(1.0 + (order - 1.0) * 0.02 ** (k / 400), cost) for k in range(401)]
        total = p * bounded(epsilon + math.log(q / p), run)
        left = epsilon + math.log((1 - q) / (1 - p))
        curve = None if pure is None else RenyiCurve.from_pure(pure)
        if curve is None:
            total += (1 - p) * max(0.0, 1 - math.exp(left))
        else:
            total += (1 - p) * bounded(left, list(zip(curve.orders.tolist(), curve.values.tolist(), strict=True)))
        for part in (0.97, 1.2):  # the orders that are looked at are fewer
            if 0.0 < total * part < 1.0:
                budget = PrivacyParams(epsilon, total * part)
                met[bool(BudgetTest(order, budget, curve).holds(p, q, cost))] += 1
                assert bool(BudgetTest(order, budget, curve).holds(p, q, cost)) == (part > 1.0), (p, q, cost, pure)
    assert min(met[False], met[True]) > 200


def test_what_answers_otherwise_is_charged_for_all_queries() -> None:
    run, _other = NoisyMaximum(GNMax(0.7), plain(20), 2), NoisyMaximum(GNMax(4.0), plain(20), 2)
    few, many = (
        TestedRun(run, queries, PrivacyParams(2, 1e-3), 5.0, None, NoisyMaximum(GNMax(4.0), plain(20), 2))
        for queries in (2, 100)
    )
    assert few.chances.size > 1
    with pytest.raises(ValueError, match="used otherwise fits into"):
        _ = many.chances


@pytest.mark.parametrize(
    ("K", "C", "sigma", "check", "order"), [(12, 2, 1.5, (8.0, 2.0), 3.0), (16, 4, 2.0, (9.0, 1.5), 6.0)]
)
def test_the_bound_after_a_vote_is_above_every_place(
    K: int, C: int, sigma: float, check: tuple[float, float], order: float
) -> None:
    bound = CheckedCost(GaussianMislabelBound(sigma, order), NoisyCheck(*check), K, C)
    rows = np.array(histograms(K, C))
    largest, missed = rows.max(axis=1), missed_probabilities(noise_of(GNMax(sigma)), rows)
    q, shift = bound.label.places
    told = np.flatnonzero(q >= LEAST_MISSED)
    tops = {int(m): float(missed[largest == m].max()) for m in np.unique(largest)}  # over all votes of m for the first
    assert len(tops) > 5
    for m, top in tops.items():
        assert top <= q[bound._first_places[m]] * (1.0 + 1e-9)
        places = told[q[told] <= top]
        before = bound.cost(q[places], np.full(places.size, m))
        for n in {m - 1, m, m + 1} & tops.keys():
            raised = np.minimum(q[places - shift], tops[n])
            after = bound.cost(raised, np.full(places.size, n))
            assert np.all(after <= np.interp(before, *bound.after_one_vote) * (1.0 + 1e-12))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(0.7), AsymmetricNoise(2.0, 3.0, 2.0, 1.5), AsymmetricNoise(3.0, 2.5, 1.5, 2.0)], ids=str
)
@pytest.mark.parametrize("order", [2.0, 6.0])
def test_losses_of_two_counts_are_those_of_all_their_pairs(noise: IntegerNoise, order: float) -> None:
    f = np.exp(law_of(noise, 60)[1])
    p, after = np.outer(f[1:-1], f[1:-1]).ravel(), np.outer(f[2:], f[:-2]).ravel()  # a loses a vote, b wins one
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0.0, np.log(p) - np.log(after), 0.0)
    bound, ranked = MislabelBoundByLosses(noise, order), np.argsort(loss)
    places, shift = bound.places

    def filled(values: np.ndarray, first: np.ndarray, q: float) -> float:
        """Fill an event of probability q with outcomes in some order, the last of them in part."""
        mass = np.append(0.0, np.cumsum(p[first]))
        return float(np.interp(q, mass, np.append(0.0, np.cumsum(values[first]))))

    kept = p > 1e-200
    forward = np.where(kept, p * np.exp(np.where(kept, (order - 1.0) * loss, 0.0)), 0.0)
    reverse = np.where(kept, p * np.exp(np.where(kept, -order * loss, 0.0)), 0.0)
    grows, (adds, returning), falls = bound._sums
    for q in (1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.2):
        for curve, values, first in (
            (grows, after, ranked),
            (adds, forward, ranked[::-1]),
            (returning, reverse, ranked),
        ):
            assert filled(values, first, q) <= np.interp(q, *curve) * (1.0 + 1e-9) <= 1.15 * filled(values, first, q)
        assert 0.85 * filled(after, ranked[::-1], q) <= np.interp(q, *falls) <= filled(after, ranked[::-1], q)
        grown, fallen = filled(after, ranked, q), filled(after, ranked[::-1], q)
        stays = (1 - q) ** order * (1 - grown) ** (1 - order) + filled(forward, ranked[::-1], q)
        returns = (1 - fallen) ** order * (1 - q) ** (1 - order) + filled(reverse, ranked, q)
        true = min(math.log(max(stays, returns)) / (order - 1.0), bound.ceiling)
        found = float(bound.cost(np.array([q]))[0])
        assert true * (1.0 - 1e-9) <= found <= true * 1.15 + 1e-9, q
        place = int(np.flatnonzero(places >= q)[-1])
        assert filled(after, ranked, places[place]) <= places[place - shift] * (1.0 + 1e-9)
        assert places[place - shift] <= 1.3 * filled(after, ranked, places[place])


@pytest.mark.parametrize(("noise", "order"), [(DiscreteLaplace(400.0), 1.5), (DiscreteLaplace(60.0), 8.0)], ids=str)
def test_losses_that_no_float_holds_are_counted(noise: IntegerNoise, order: float) -> None:
    _, logs = law_of(noise, 60)
    lost, won = (p + order * (r - p) for p, r in ((logs[1:-1], logs[2:]), (logs[1:-1], logs[:-2])))
    rare = np.add.outer(logs[1:-1], logs[1:-1]) < math.log(1e-6) - 10.0  # all of it is less than q
    true = float(np.logaddexp.reduce(np.add.outer(lost, won)[rare])) / (order - 1.0)
    bound = MislabelBoundByLosses(noise, order)
    assert float(bound.cost(np.array([1e-6]))[0]) >= min(true, bound.ceiling) * (1.0 - 1e-9)
    assert bound.after_one_vote[1][-1] == bound.ceiling


def test_an_entry_pays_for_the_labels_of_its_run_and_for_no_more() -> None:
    run, query = Entry("", "a run", 1, "", each=40), Entry("", "queries", 3, "")
    assert (run.answers, query.answers) == (40, 3)
    assert [run.pays_for(n) for n in (1, 40, 41)] == [True, True, False]
    assert [query.pays_for(n) for n in (2, 3, 4)] == [False, True, False]


@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_a_run_that_costs_anything_leaves_with_the_chance_delta_and_no_larger_one(delta: float) -> None:
    test, endless = BudgetTest(8.0, PrivacyParams(1, delta)), 1e6
    assert 0.99 * delta < test.chances(np.array([endless]))[0] < delta
    assert not test.holds(delta, delta, endless)


def test_queries_with_equal_votes_are_computed_as_often_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, histogram = [], cost_given_votes._build_histogram

    def counted(*arguments: Any) -> Any:
        computed.append(arguments)
        return histogram(*arguments)

    monkeypatch.setattr(cost_given_votes, "_build_histogram", counted)
    for counts in ([[250, 0, 0]] * 40, [[250 - n, n, 0] for n in range(40)]):
        missed_probabilities(DiscreteGaussian(20.0), np.array(counts))
        assert len(computed) == 40
        computed.clear()
