"""Voters that differ: rows, proofs, optima and files against brute force over all corners of every voter."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import models_bound
from darrm.errors import TableError
from darrm.ledger.ledger import PrivacyLedger
from darrm.loss.composition import optimal_epsilon
from darrm.majority import baselines
from darrm.majority.certify import lower_bound
from darrm.majority.corners import corners_of, full_set_size
from darrm.majority.costs import privacy_profile, renyi_divergences
from darrm.majority.groups import GroupCounts, GroupSet, number_of_rows
from darrm.majority.noise_function import NoiseFunction, signed_function
from darrm.numerics import Array
from darrm.numerics.binomial import poisson_binomial_pmf
from darrm.optimize.optimizer import optimize_table
from darrm.optimize.request import fit_voters, least_error
from darrm.plan.mechanism import reduce_workload
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters, Workload
from darrm.table.library import load_table
from darrm.table.release import Release, describe_cost
from darrm.table.table import Table, certify
from darrm.verify.attack import attack
from darrm.verify.audit import judge_file
from darrm.verify.gamma import worst_costs
from darrm.verify.verdicts import ASSUMED, CONSISTENT, PROVED
from tests.doors import validated
from tests.oracle import corner_pairs
from tests.verify.support import gamma_of

EPSILONS, DELTAS = ("0.02", "0.1", "0.5", "1", "2"), ("0", "1e-6", "0.01", "0.2")
HOSPITALS = ("0.02", "0.05", "0.08", "0.1", "0.1", "0.1", "0.15", "0.2", "0.2", "0.3", "0.5")


@st.composite
def voters_that_differ(draw: st.DrawFn, most: int = 4, *, plain: bool = True) -> Voters:
    private = st.builds(PrivacyParams, st.sampled_from(EPSILONS), st.sampled_from(DELTAS))
    pair = st.one_of(private, private, st.just(PrivacyParams("inf"))) if plain else private
    own = draw(st.lists(pair, min_size=2, max_size=most).filter(lambda each: len(set(each)) > 1))
    return Voters.of(own, draw(st.one_of(st.none(), st.integers(1, len(own)))))


@st.composite
def monotone(draw: st.DrawFn, K: int) -> Array:
    size = K - K // 2
    return np.sort(draw(st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size)))


def own_of(voters: Voters) -> tuple[PrivacyParams, ...]:
    return voters.per_voter or (voters.each,) * voters.K


def corner_choices(voters: Voters) -> list[tuple[Array, Array]]:
    """Every choice of one of the eight corners for each voter, with p ≠ p' for at most t of them."""
    options = []
    for each in own_of(voters):
        corners = corners_of(each)
        hi, delta = corners.hi, corners.delta
        pairs = [(0.0, 0.0), (1.0, 1.0), (hi, 1 - hi), (1 - hi, hi)]
        options.append(pairs + ([(0, delta), (delta, 0), (1 - delta, 1), (1, 1 - delta)] if delta else []))
    chosen = (pick for pick in product(*options) if sum(p != q for p, q in pick) <= voters.reached)
    return [(np.array([p for p, _ in pick]), np.array([q for _, q in pick])) for pick in chosen]


def cost(g: Array, ratio: float, p: Array, p_prime: Array) -> float:
    return float(poisson_binomial_pmf(p) @ g - ratio * (poisson_binomial_pmf(p_prime) @ g))


@given(data=st.data(), voters=voters_that_differ(), epsilon=st.sampled_from(EPSILONS))
def test_the_worst_cost_is_that_of_all_eight_corners(data: st.DataObject, voters: Voters, epsilon: str) -> None:
    half, rows = data.draw(monotone(voters.K)), GroupSet(voters, Fraction(epsilon))
    g, ratio = signed_function(half, voters.K), math.exp(float(epsilon))
    true = max(cost(g, ratio, *pair) for pair in corner_choices(voters))
    assert true - 1e-14 * ratio <= rows.worst(half) <= true + 1e-11 * ratio
    assert float(rows.worst_ball(half).mid()) == pytest.approx(true, abs=1e-13 * (1 + ratio))


@given(data=st.data(), voters=voters_that_differ(), order=st.sampled_from((1.01, 1.5, 2.5, 8.0)))
def test_the_worst_renyi_divergence_is_that_of_all_eight_corners(
    data: st.DataObject, voters: Voters, order: float
) -> None:
    half = 0.999 * data.draw(monotone(voters.K))
    h = 0.5 * (1.0 + signed_function(half, voters.K))
    sides = zip(*(pair for pair in corner_choices(voters)), strict=True)
    P, Q = (poisson_binomial_pmf(np.array(side)) @ h for side in sides)
    true = np.max(np.log(P**order * Q ** (1 - order) + (1 - P) ** order * (1 - Q) ** (1 - order))) / (order - 1)
    result = renyi_divergences(voters, NoiseFunction(voters.K, half), [order])[0]
    assert true - 1e-12 <= result <= true * (1 + 1e-9) + 1e-9


def test_a_ledger_goes_on_that_knew_no_curve() -> None:
    voters = Voters.of([PrivacyParams(1), PrivacyParams("0.1"), PrivacyParams("0.2")])
    cost = describe_cost(certify(Problem(voters, PrivacyParams("0.5")), NoiseFunction(3, [0.2, 0.4])))
    assert cost.renyi is not None
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(5, "0.01"))
    ledger.debit(replace(cost, renyi=None))
    ledger.debit(cost.repeat(3))
    assert ledger.accountant().costs == (replace(cost, renyi=None, count=4),)
    with pytest.raises(ValueError, match="queries of one kind"):
        ledger.debit(replace(cost, guarantee=PrivacyParams("0.6")))


def test_a_certain_answer_has_no_curve() -> None:
    voters = Voters.of([PrivacyParams(1), PrivacyParams("0.1"), PrivacyParams("inf")], overlap=1)
    gamma = NoiseFunction(3, [0.5, 1.0])
    assert np.isinf(renyi_divergences(voters, gamma, [2.0])).all()
    assert describe_cost(certify(Problem(voters, PrivacyParams(5, "0.9")), gamma)).renyi is None


@given(data=st.data(), voters=voters_that_differ(most=6))
def test_rows_are_rows_and_their_coefficients_are_costs(data: st.DataObject, voters: Voters) -> None:
    half, rows = data.draw(monotone(voters.K)), GroupSet(voters, Fraction(1, 2))
    g, ratio = signed_function(half, voters.K), math.exp(0.5)
    assert number_of_rows(voters) == rows.expectations(half)[0].size <= full_set_size(voters)
    for result, row in rows.maxima(half, -math.inf).broken:
        assert row.is_row_of(voters)
        assert sum(part.touched for part in row.parts) <= voters.reached
        assert row.coefficients(voters, ratio) @ half == pytest.approx(result, abs=1e-12)
        assert cost(g, ratio, *row.probabilities(voters)) == pytest.approx(result, abs=1e-12)


@given(voters=voters_that_differ(most=5))
def test_a_row_is_of_voters_of_whom_as_many_are_reached(voters: Voters) -> None:
    """A row that touches more would make the bound on all γ a false one, and so would one of other voters."""
    of_all = Voters.of(own_of(voters))
    for _, row in GroupSet(of_all, Fraction(1, 2)).maxima(np.ones(voters.num_upper_levels), -math.inf).broken:
        p, p_prime = row.probabilities(of_all)
        touched = np.count_nonzero(p != p_prime)
        within = [row.is_row_of(Voters.of(own_of(voters), reached)) for reached in range(1, voters.K + 1)]
        assert within == [touched <= reached for reached in range(1, voters.K + 1)]
        for place, part in enumerate(row.parts):
            one_more = replace(part, ones=part.ones + 1)
            assert not GroupCounts((*row.parts[:place], one_more, *row.parts[place + 1 :])).is_row_of(of_all)


@given(voters=voters_that_differ(most=5))
def test_the_rows_of_the_full_set_are_all_multisets(voters: Voters) -> None:
    """Kind by kind, a multiset of corners with p ≠ p' for at most t voters in all: listed here one by one."""
    kinds = [combinations_with_replacement(corner_pairs(Voters(1, each)).tolist(), n) for n, each in voters.groups]
    chosen = (sum(p != p_prime for corners in pick for p, p_prime in corners) for pick in product(*kinds))
    assert full_set_size(voters) == sum(touched <= voters.reached for touched in chosen)


@pytest.mark.slow
@given(voters=voters_that_differ(), target=st.sampled_from(["0.05", "0.3", "1"]), delta=st.sampled_from(["0", "0.01"]))
def test_the_optimum_is_that_of_the_whole_program(voters: Voters, target: str, delta: str) -> None:
    problem, prior = Problem(voters, PrivacyParams(target, delta)), priors.Dirichlet()
    table = optimize_table(problem, prior=prior)
    size, ratio = voters.num_upper_levels, problem.cost_ratio
    signed = [signed_function(unit, voters.K) for unit in np.eye(size)]
    whole = [[cost(g, ratio, *pair) for g in signed] for pair in corner_choices(voters)]
    rising = [np.eye(size)[k] - np.eye(size)[k + 1] for k in range(size - 1)]
    weights = priors.compute_weights(prior, voters.K)
    limits = [problem.budget] * len(whole) + [0.0] * len(rising)
    best = linprog(-0.5 * weights, A_ub=np.array(whole + rising), b_ub=limits, bounds=(0, 1))
    assert table.optimality is not None
    assert table.optimality.value == pytest.approx(0.5 * np.sum(weights) + best.fun, abs=1e-7)
    assert table.optimality.gap <= 1e-9
    assert not table.optimality.claimed
    # what the independent checker finds is below what was proved, by no more than rounding
    result = worst_costs(gamma_of(table.problem, table.gamma), [problem.target.exact_epsilon])
    assert result is not None
    worst = result[0]
    assert table.certificate.worst_cost - 1e-11 * ratio <= worst.upper <= table.certificate.worst_cost + 1e-25


def hospitals(overlap: int | None = None, delta: str = "1e-6") -> Problem:
    voters = Voters.of([PrivacyParams(epsilon, delta) for epsilon in HOSPITALS], overlap)
    return Problem(voters, PrivacyParams("0.5", "1e-4"))


def test_equal_voters_are_written_one_way() -> None:
    own = [PrivacyParams("0.1", "1e-5")] * 5
    assert Voters.of(own) == Voters(5, own[0])
    tables = [optimize_table(Problem.from_allowance(voters, 2)) for voters in (Voters.of(own), Voters(5, own[0]))]
    assert json.dumps(tables[0].to_json()) == json.dumps(tables[1].to_json())
    mixed = [PrivacyParams("0.1"), PrivacyParams("0.5"), PrivacyParams("0.1", "1e-5")]
    assert Voters.of(mixed) == Voters.of(mixed[::-1])


def test_a_file_is_proved_again_and_a_changed_one_refused(tmp_path: Path) -> None:
    table = optimize_table(hospitals(), prior=priors.Dirichlet())
    table.save(tmp_path / "table.json")
    again = Table.load(tmp_path / "table.json")
    assert (again.digest, again.problem) == (table.digest, table.problem)
    assert again.optimality is not None
    assert not again.optimality.claimed
    document = json.loads((tmp_path / "table.json").read_text())
    validated(document, "gamma_table")

    def refused(change: Any, field: str) -> None:
        other = json.loads(json.dumps(document))
        change(other)
        with pytest.raises(TableError) as error:
            Table.from_json(other)
        assert error.value.field == field

    refused(lambda data: data["problem"]["own"][0].update(voters=2), "problem")
    refused(lambda data: data["problem"]["own"].pop(), "problem")
    refused(lambda data: data["problem"]["each"].update(epsilon="0.4"), "problem")
    refused(lambda data: data["problem"]["own"][-1].update(epsilon="0.03"), "gamma")
    refused(lambda data: data["optimality"]["multipliers"][0].append([1]), "optimality")
    refused(lambda data: data["optimality"]["multipliers"][0].__setitem__(0, 7.0), "optimality")
    refused(lambda data: data["optimality"]["multipliers"][0].__setitem__(1, 1), "optimality")


def test_a_gamma_of_the_equal_is_scaled_down_for_the_weaker() -> None:
    """The table of voters at 0.1 is no table of a consortium in which one has 0.5."""
    alike = Problem(Voters(5, PrivacyParams("0.1")), PrivacyParams("0.2"))
    table = optimize_table(alike, shape="monotone")
    one_weak = Voters.of([PrivacyParams("0.1")] * 4 + [PrivacyParams("0.5")])
    assert certify(Problem(one_weak, alike.target), table.gamma).certificate.scale < 0.9
    assert certify(alike, table.gamma).certificate.scale == 1.0
    with pytest.raises(ValueError, match="as private as those of the table"):
        describe_cost(table, voters=one_weak)
    stronger = Voters.of([PrivacyParams("0.1")] * 4 + [PrivacyParams("0.05")])
    assert describe_cost(table, voters=stronger).guarantee == alike.target


@given(data=st.data(), voters=voters_that_differ(most=3))
def test_the_profile_is_that_of_all_corners(data: st.DataObject, voters: Voters) -> None:
    half = data.draw(monotone(voters.K))
    g = signed_function(half, voters.K)
    problem = Problem(voters, PrivacyParams("0.5"))
    profile = privacy_profile(problem, NoiseFunction(voters.K, half), points=5)
    for point, delta in enumerate(profile.deltas):
        ratio = math.exp(point / 4)
        true = max(0.0, *((1.0 - ratio + cost(g, ratio, *pair)) / 2.0 for pair in corner_choices(voters)))
        assert true - 1e-13 <= delta <= true + 1e-11


@given(data=st.data(), voters=voters_that_differ(most=3))
def test_any_multipliers_of_any_rows_give_a_bound(data: st.DataObject, voters: Voters) -> None:
    problem, prior = Problem(voters, PrivacyParams("0.3", "0.01")), priors.Dirichlet()
    table = optimize_table(problem, prior=prior)
    rows = GroupSet(voters, Fraction(3, 10)).maxima(table.gamma.half, -math.inf).broken
    chosen = data.draw(st.lists(st.tuples(st.floats(0.0, 0.1), st.sampled_from([row for _, row in rows])), max_size=3))
    weights = priors.compute_weights(prior, voters.K)
    assert table.optimality is not None
    assert lower_bound(problem, weights, "monotone", chosen) <= table.optimality.value
    total, reduced = sum(y for y, _ in chosen), -0.5 * weights
    for y, row in chosen:
        reduced = reduced + y * row.coefficients(voters, problem.cost_ratio)
    by_hand = 0.5 * np.sum(weights) - problem.budget * total + min(0.0, np.min(np.cumsum(reduced[::-1])))
    assert lower_bound(problem, weights, "monotone", chosen) == pytest.approx(max(0.0, by_hand), abs=1e-9)


def test_a_solve_that_starts_from_equal_voters_takes_none_of_their_rows() -> None:
    """A corner of the weakest voter for all would be no row: the bound made of it would be false."""
    problem, prior = hospitals(), priors.Dirichlet()
    alike = Problem(Voters(11, PrivacyParams("0.5", "1e-6")), problem.target)
    start = optimize_table(alike, prior=prior, shape="monotone")
    assert start.optimality is not None
    assert start.optimality.multipliers
    assert not any(row.is_row_of(problem.voters) for _, row in start.optimality.multipliers)
    tables = [optimize_table(problem, prior=prior, start=other) for other in (None, start)]
    assert tables[0].gamma.expected_error(prior) == pytest.approx(tables[1].gamma.expected_error(prior), abs=1e-9)


def test_states_of_large_kinds_are_those_within_reach() -> None:
    """All states of 100 voters with moves are five million, and one person reaches one voter."""
    own = [PrivacyParams("0.1", "1e-6")] * 60 + [PrivacyParams("0.2", "1e-6")] * 61
    table = optimize_table(Problem(Voters.of(own, 1), PrivacyParams("0.1", "1e-5")), prior=priors.Dirichlet())
    rows = GroupSet(table.problem.voters, Fraction(1, 10))
    assert max(map(len, rows.states)) < 1000
    assert rows.expectations(table.gamma.half)[0].size == number_of_rows(table.problem.voters)


def test_rounding_up_asks_for_no_more_than_it_has_to() -> None:
    own = [PrivacyParams(f"0.{n}", delta) for n, delta in ((10, "0"), (11, "1e-5"), (12, "0"), (40, "0"), (45, "1e-6"))]
    voters = Voters.of(own, 2, models=True)
    rounded = voters.round_up_to(2)
    assert [(n, each.epsilon_text, each.delta_text) for n, each in rounded.groups] == [
        (2, "0.45", "0.000001"),
        (3, "0.12", "0.00001"),
    ]
    assert rounded.cover(voters)
    assert not voters.cover(rounded)
    assert (rounded.overlap, rounded.models) == (2, True)
    assert voters.round_up_to(5) == voters == voters.round_up_to(9)
    assert voters.round_up_to(1) == Voters(5, PrivacyParams("0.45", "1e-5"), 2, models=True)
    sizes = [
        len(fit_voters(Voters.of([PrivacyParams(f"0.{100 + n}") for n in range(K)])).groups) for K in (11, 40, 300)
    ]
    assert sizes == [11, 3, 1]


@given(voters=voters_that_differ(), kinds=st.integers(2, 3))
@example(Voters.of([PrivacyParams("0.02", "0.2"), PrivacyParams("0.02")], overlap=1), 2)
def test_what_rounding_costs_is_bounded(voters: Voters, kinds: int) -> None:
    target, prior = PrivacyParams("0.4", "0.01"), priors.Dirichlet()
    assume(voters.round_up_to(kinds).per_voter is not None)  # equal voters have no target below their own ε
    rounded = optimize_table(Problem(voters.round_up_to(kinds), target), prior=prior)
    true = optimize_table(Problem(voters, target), prior=prior)
    bound = least_error(voters, rounded, prior)
    assert bound <= true.gamma.expected_error(prior) + 1e-12
    if rounded.problem.voters == voters:
        assert bound == pytest.approx(true.gamma.expected_error(prior), abs=1e-9)


def test_the_worst_pair_of_an_attack_attains_the_claim() -> None:
    table = optimize_table(hospitals(), prior=priors.Dirichlet())
    assert attack(Release(table), 1).worst == pytest.approx(0.5, abs=1e-6)


def some_plain(*, models: bool = False) -> Voters:
    return Voters.of([PrivacyParams("0.1", "1e-5")] * 5 + [PrivacyParams("inf")] * 2, 4, models=models)


def test_some_voters_may_promise_nothing(tmp_path: Path) -> None:
    """What is proved with them rests on what the others promise: it is not about any votes whatsoever."""
    voters, plain = some_plain(), Voters(7, PrivacyParams("inf"), 4)
    problem = Problem(voters, PrivacyParams("0.5", "1e-4"))
    table = optimize_table(problem, prior=priors.Dirichlet())
    plain_table = optimize_table(Problem(plain, problem.target), prior=priors.Dirichlet())
    assert table.optimality is not None
    assert plain_table.optimality is not None
    assert table.optimality.value < 0.95 * plain_table.optimality.value
    assert certify(problem, plain_table.gamma).certificate.scale == pytest.approx(1.0)
    assert certify(plain_table.problem, table.gamma).certificate.scale < 0.99
    table.save(tmp_path / "table.json")
    assert Table.load(tmp_path / "table.json").problem == problem
    _, verdicts = judge_file((tmp_path / "table.json").read_bytes())
    assert {PROVED} <= {verdict.verdict for verdict in verdicts} <= {PROVED, ASSUMED, CONSISTENT}
    assert "5 of 7 voters are (0.1, 1e-05)-DP" in {verdict.claim for verdict in verdicts}
    assert (voters.are_non_private, voters.are_private_models, plain.are_non_private) == (False, False, True)
    assert [n for n, _ in voters.private_groups] == [5]
    assert describe_cost(table).with_non_private_voters(4) is None
    assert describe_cost(plain_table).with_non_private_voters(4) is not None
    with pytest.raises(ValueError, match="as private as those of the table"):
        describe_cost(table, voters=plain)
    assert voters.cover(Voters.of([PrivacyParams("0.1")] * 6 + [PrivacyParams("inf")], 4))
    assert plain.cover(voters)
    assert not Voters.of([PrivacyParams(9)] * 6 + [PrivacyParams("inf")], 4).cover(voters)
    assert not Voters.of([PrivacyParams(9, "1e-6")] * 5 + [PrivacyParams("inf")] * 2, 4).cover(voters)


@pytest.mark.slow
def test_models_of_which_some_promise_nothing_have_no_cap() -> None:
    """Several answers cost what they cost for non-private voters: nothing else is proved."""
    models, total = some_plain(models=True), PrivacyParams(1, "1e-4")
    assert models.are_private_models
    assert models_bound(models, 1e-4) is None
    release = reduce_workload(Workload(models, 10, total))
    assert release.voters == Voters(7, PrivacyParams("inf"), 4)
    assert release.total.exact_epsilon <= total.exact_epsilon
    one_by_one = reduce_workload(Workload(models, 10, total), one_by_one=True)
    assert one_by_one.total.epsilon == pytest.approx(0.25, rel=1e-5)
    cost = describe_cost(optimize_table(Problem(models, PrivacyParams("0.5", "1e-4"))), 10)
    account = PrivacyAccountant(costs=[cost])
    assert account.spent(0.5).bound in {"non-private voters", "joint bound"}
    assert math.isinf(account.spent(1e-9).epsilon) or account.spent(1e-9).epsilon > 10 * 0.5


@given(voters=voters_that_differ(plain=False), delta=st.sampled_from([0.0, 1e-6, 0.01, 0.25, 0.5]))
def test_the_cap_of_models_that_differ_is_that_of_the_weakest_choice(voters: Voters, delta: float) -> None:
    """The cap is no less than the composition of any t of them, and that of the worst where all Δ are equal."""
    models = Voters.of(own_of(voters), voters.overlap, models=True)
    cap = models_bound(models, delta)
    choices = combinations(own_of(voters), voters.reached)
    worst = max(optimal_epsilon([(each, 1) for each in choice], delta) for choice in choices)
    weakest = optimal_epsilon([(voters.each, voters.reached)], delta)
    assert (math.inf if cap is None else cap.epsilon) >= worst * (1.0 - 1e-9)
    assert (math.inf if cap is None else cap.epsilon) <= weakest * (1.0 + 1e-9)
    if len({each.exact_delta for each in own_of(voters)}) == 1 and math.isfinite(worst):
        assert cap is not None
        assert cap.epsilon == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize("overlap", [None, 1, 2])
def test_the_cap_is_that_of_models_and_rounded_up(overlap: int | None) -> None:
    """Voters that draw fresh randomness have no cap, and a float may lie below what the models cost."""
    own = [PrivacyParams(epsilon) for epsilon in ("0.3", "0.7", "1.1")]
    for voters in (Voters.of(own, overlap), Voters(3, own[0], overlap)):
        assert models_bound(voters, 0.0) is None
        cap = models_bound(replace(voters, models=True), 0.0)
        most = sorted((each.exact_epsilon for each in own_of(voters)), reverse=True)[: voters.reached]
        assert cap is not None
        assert sum(most) <= Fraction(cap.epsilon) <= sum(most) * (1 + Fraction(1, 10**12))


def test_labels_of_few_models_have_no_cap_where_one_promises_nothing() -> None:
    """That few models are looked at bounds an answer by their own ε, and one of them has none."""
    private = Voters(11, PrivacyParams("0.1"), 4)
    proposal = baselines.double_subsampling(Problem.from_allowance(private, 1))
    models = Voters.of([private.each] * 10 + [PrivacyParams("inf")], 4, models=True)
    cost = describe_cost(certify(Problem(models, PrivacyParams(1, "1e-4")), proposal), 3)
    assert cost.sample is not None
    assert cost.sample.voters * cost.count < models.reached
    assert PrivacyAccountant(costs=[cost]).spent(1e-3).bound in {"non-private voters", "joint bound"}


def test_rounding_keeps_who_promises_nothing_apart() -> None:
    """Among many kinds not every place between them is tried as a cut, but this one is."""
    plain, few = PrivacyParams("inf"), [PrivacyParams(f"0.{n}") for n in (10, 11, 40, 45)]
    many = [PrivacyParams(f"0.{1000 + n}") for n in range(300)]
    rounded = (Voters.of([*many, plain]).round_up_to(2), Voters.of([plain, *few]).round_up_to(3))
    kinds = [[(n, each.epsilon_text) for n, each in voters.groups] for voters in rounded]
    assert kinds == [[(1, "inf"), (300, "0.1299")], [(1, "inf"), (2, "0.45"), (2, "0.11")]]


def test_what_is_not_known_of_voters_that_differ_is_refused() -> None:
    problem = hospitals()
    too_many = Voters.of([PrivacyParams(f"0.{100 + n}") for n in range(20)])
    refused: list[tuple[Any, str]] = [
        (lambda: optimize_table(problem, shape="free"), "shape must be 'monotone' where voters differ"),
        (lambda: optimize_table(problem, solver="reference"), "'production' where voters differ"),
        (lambda: certify(problem, NoiseFunction(11, [1, 0, 1, 1, 1, 1])), "never falls"),
        (lambda: optimize_table(Problem(too_many, PrivacyParams(1))), r"voters\.round_up_to"),
        (lambda: Problem.from_allowance(some_plain(), 1), "state the target"),
        (lambda: Voters.of([PrivacyParams(0), PrivacyParams(1)]), "no information"),
        (lambda: Voters.of([]), "one for each voter"),
        (lambda: Voters.of(PrivacyParams(1)), "one for each voter"),  # type: ignore[arg-type]
        (lambda: Voters.of([PrivacyParams(1), 2]), "per_voter must be a pair"),  # type: ignore[list-item]
        (lambda: Voters(2, PrivacyParams(1), per_voter=(PrivacyParams(1), PrivacyParams(2))), "Voters.of"),
        (lambda: Problem(problem.voters, PrivacyParams(0, "0.1")), "positive"),
    ]
    for call, words in refused:
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TableError, match="all alike"):
        load_table(Problem.from_allowance(problem.voters, 1))
