"""Voters that differ: rows, proofs, optima and files against brute force over all corners of every voter."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
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
from darrm.majority.corners import full_set_size
from darrm.majority.costs import privacy_profile, renyi_divergences
from darrm.majority.groups import GroupCounts, GroupSet, number_of_rows
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
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
from tests.optimality import optimality_of
from tests.oracle import (
    all_coefficients,
    all_multisets,
    corner_rows,
    laws_of_ones,
    privacy_cost,
    signed_floats,
    worst_cost,
)
from tests.strategies import problems
from tests.verify.support import gamma_of

EPSILONS, DELTAS = ("0.02", "0.1", "0.5", "1", "2"), ("0", "1e-6", "0.01", "0.2")
UNIFORM, NON_PRIVATE = priors.Dirichlet(), PrivacyParams("inf")
HOSPITALS = Voters.of([PrivacyParams(f"0.{n:02}", "1e-6") for n in (2, 5, 8, 10, 10, 10, 15, 20, 20, 30, 50)])
PROBLEM = Problem(HOSPITALS, PrivacyParams("0.5", "1e-4"))
FIVE_OF_SEVEN = Voters.of([PrivacyParams("0.1", "1e-5")] * 5 + [NON_PRIVATE] * 2, 4)


@st.composite
def voters_that_differ(draw: st.DrawFn, max_voters: int = 4, *, private: bool = False) -> Voters:
    pair = st.builds(PrivacyParams, st.sampled_from(EPSILONS), st.sampled_from(DELTAS))
    if not private:
        pair = st.one_of(pair, pair, st.just(NON_PRIVATE))
    per_voter = draw(st.lists(pair, min_size=2, max_size=max_voters).filter(lambda pairs: len(set(pairs)) > 1))
    return Voters.of(per_voter, draw(st.one_of(st.none(), st.integers(1, len(per_voter)))))


@st.composite
def monotone(draw: st.DrawFn, K: int) -> NoiseFunction:
    size = K - K // 2
    return NoiseFunction(K, np.sort(draw(st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size))))


def per_voter(voters: Voters) -> tuple[PrivacyParams, ...]:
    return voters.per_voter or (voters.each,) * voters.K


def answer_probabilities(voters: Voters, gamma: NoiseFunction) -> list[Array]:
    """Compute Pr[output 1] under p and under p' for every multiset of corners."""
    h = 0.5 * (1.0 + signed_floats(voters.K, gamma.half))
    return [laws_of_ones(side) @ h for side in all_multisets(voters)]


def state_problem(voters: Voters, epsilon: str) -> Problem:
    return Problem(voters, PrivacyParams(epsilon, "0.5"))


@given(data=st.data(), voters=voters_that_differ(), epsilon=st.sampled_from(EPSILONS))
def test_group_set_finds_the_worst_of_all_multisets(data: st.DataObject, voters: Voters, epsilon: str) -> None:
    gamma, rows = data.draw(monotone(voters.K)), GroupSet(voters, Fraction(epsilon))
    exact, ratio = worst_cost(state_problem(voters, epsilon), gamma), math.exp(float(epsilon))
    assert exact - 1e-14 * ratio <= rows.worst(gamma.half) <= exact + 1e-11 * ratio
    assert float(rows.worst_ball(gamma.half).mid()) == pytest.approx(exact, abs=1e-13 * (1 + ratio))


@given(data=st.data(), voters=voters_that_differ(), order=st.sampled_from((1.01, 1.5, 2.5, 8.0)))
def test_renyi_divergence_is_the_worst_of_all_multisets(data: st.DataObject, voters: Voters, order: float) -> None:
    gamma = data.draw(monotone(voters.K)).scale_by(0.999)
    P, Q = answer_probabilities(voters, gamma)
    exact = np.max(np.log(P**order * Q ** (1 - order) + (1 - P) ** order * (1 - Q) ** (1 - order))) / (order - 1)
    assert exact - 1e-12 <= renyi_divergences(voters, gamma, [order])[0] <= exact * (1 + 1e-9) + 1e-9


@given(data=st.data(), voters=voters_that_differ(max_voters=3))
def test_profile_is_the_worst_of_all_multisets(data: st.DataObject, voters: Voters) -> None:
    gamma = data.draw(monotone(voters.K))
    profile = privacy_profile(Problem(voters, PrivacyParams("0.5")), gamma, points=5)
    P, Q = answer_probabilities(voters, gamma)
    for epsilon, delta in zip((0, 0.25, 0.5, 0.75, 1), profile.deltas, strict=True):
        exact = max(0.0, float(np.max(P - math.exp(epsilon) * Q)))
        assert exact - 1e-13 <= delta <= exact + 1e-11


@given(data=st.data(), voters=voters_that_differ(max_voters=6))
def test_rows_are_counted_belong_to_the_voters_and_have_their_costs(data: st.DataObject, voters: Voters) -> None:
    gamma, problem = data.draw(monotone(voters.K)), state_problem(voters, "0.5")
    rows = GroupSet(voters, Fraction(1, 2))
    assert number_of_rows(voters) == rows.expectations(gamma.half)[0].size <= full_set_size(voters)
    for cost, row in rows.maxima(gamma.half, -math.inf).broken:
        assert row.is_row_of(voters)
        assert sum(part.touched for part in row.parts) <= voters.reached
        assert row.coefficients(voters, problem.cost_ratio) @ gamma.half == pytest.approx(cost, abs=1e-12)
        assert privacy_cost(problem, gamma, *row.probabilities(voters)) == pytest.approx(cost, abs=1e-12)


@given(voters=voters_that_differ(max_voters=5))
def test_a_row_belongs_only_to_voters_of_whom_enough_are_touched(voters: Voters) -> None:
    """A row that touches more, or of other voters, would make the bound on all γ a false one."""
    complete = Voters.of(per_voter(voters))
    for _, row in GroupSet(complete, Fraction(1, 2)).maxima(np.ones(voters.num_upper_levels), -math.inf).broken:
        p, p_prime = row.probabilities(complete)
        touched = np.count_nonzero(p != p_prime)
        for overlap in range(1, voters.K + 1):
            assert row.is_row_of(Voters.of(per_voter(voters), overlap)) == (touched <= overlap)
        for place, part in enumerate(row.parts):
            larger = replace(part, ones=part.ones + 1)
            assert not GroupCounts((*row.parts[:place], larger, *row.parts[place + 1 :])).is_row_of(complete)


@given(voters=st.one_of(voters_that_differ(max_voters=5), problems(most_voters=5).map(lambda problem: problem.voters)))
@example(Voters(5, PrivacyParams("0.1", "1e-3")))
@example(Voters(5, PrivacyParams("0.1"), 3))
@example(Voters(4, NON_PRIVATE, 1))
def test_full_set_size_is_the_number_of_multisets(voters: Voters) -> None:
    assert full_set_size(voters) == len(list(corner_rows(voters)))


def test_states_of_large_groups_are_those_within_the_overlap() -> None:
    """All states of 100 voters with moves are five million, and one person influences one voter."""
    voters = Voters.of([PrivacyParams("0.1", "1e-6")] * 60 + [PrivacyParams("0.2", "1e-6")] * 61, 1)
    rows = GroupSet(voters, Fraction(1, 10))
    assert max(map(len, rows.states)) < 1000
    assert rows.expectations(np.linspace(0.0, 0.9, 61))[0].size == number_of_rows(voters)


@pytest.mark.slow
@given(voters=voters_that_differ(), target=st.sampled_from(["0.05", "0.3", "1"]), delta=st.sampled_from(["0", "0.01"]))
def test_optimum_is_that_of_the_whole_program(voters: Voters, target: str, delta: str) -> None:
    problem = Problem(voters, PrivacyParams(target, delta))
    table, size = optimize_table(problem, prior=UNIFORM), voters.num_upper_levels
    whole = all_coefficients(problem)
    falls = np.eye(size)[:-1] - np.eye(size)[1:]
    weights = priors.compute_weights(UNIFORM, voters.K)
    limits = np.append(np.full(len(whole), problem.budget), np.zeros(size - 1))
    best = linprog(-0.5 * weights, A_ub=np.vstack([whole, falls]), b_ub=limits, bounds=(0, 1))
    optimality = optimality_of(table)
    assert optimality.value == pytest.approx(0.5 * np.sum(weights) + best.fun, abs=1e-7)
    assert optimality.gap <= 1e-9
    assert not optimality.claimed
    # the independent checker's bound is below the proved one, by no more than rounding
    result = worst_costs(gamma_of(table.problem, table.gamma), [problem.target.exact_epsilon])
    assert result is not None
    proved = table.certificate.worst_cost
    assert proved - 1e-11 * problem.cost_ratio <= result[0].upper <= proved + 1e-25


@given(data=st.data(), voters=voters_that_differ(max_voters=3))
def test_any_multipliers_of_any_rows_give_a_bound(data: st.DataObject, voters: Voters) -> None:
    problem = Problem(voters, PrivacyParams("0.3", "0.01"))
    table = optimize_table(problem, prior=UNIFORM)
    rows = [row for _, row in GroupSet(voters, Fraction(3, 10)).maxima(table.gamma.half, -math.inf).broken]
    multipliers = data.draw(st.lists(st.tuples(st.floats(0.0, 0.1), st.sampled_from(rows)), max_size=3))
    weights = priors.compute_weights(UNIFORM, voters.K)
    bound = lower_bound(problem, weights, "monotone", multipliers)
    assert bound <= optimality_of(table).value
    reduced = -0.5 * weights
    for y, row in multipliers:
        reduced = reduced + y * row.coefficients(voters, problem.cost_ratio)
    total = sum(y for y, _ in multipliers)
    expected = 0.5 * np.sum(weights) - problem.budget * total + min(0.0, np.min(np.cumsum(reduced[::-1])))
    assert bound == pytest.approx(max(0.0, expected), abs=1e-9)


def test_a_start_for_equal_voters_lends_no_rows() -> None:
    """A corner of the weakest voter for all is no row: a bound made of it would be false."""
    alike = Problem(Voters(11, PrivacyParams("0.5", "1e-6")), PROBLEM.target)
    start = optimize_table(alike, prior=UNIFORM, shape="monotone")
    multipliers = optimality_of(start).multipliers
    assert multipliers
    assert not any(row.is_row_of(HOSPITALS) for _, row in multipliers)
    errors = [
        optimize_table(PROBLEM, prior=UNIFORM, start=table).gamma.expected_error(UNIFORM) for table in (None, start)
    ]
    assert errors[0] == pytest.approx(errors[1], abs=1e-9)


def test_equal_voters_are_written_one_way() -> None:
    mixed = [PrivacyParams("0.1"), PrivacyParams("0.5"), PrivacyParams("0.1", "1e-5")]
    assert Voters.of(mixed) == Voters.of(mixed[::-1])
    voters = Voters.of([PrivacyParams("0.1", "1e-5")] * 5)
    assert voters == Voters(5, PrivacyParams("0.1", "1e-5"))
    assert voters.per_voter is None


def test_a_file_is_proved_again_and_a_changed_one_refused(tmp_path: Path) -> None:
    table = optimize_table(PROBLEM, prior=UNIFORM)
    assert attack(Release(table), 1).worst == pytest.approx(0.5, abs=1e-6)  # the worst pair attains the target
    path = tmp_path / "table.json"
    table.save(path)
    loaded = Table.load(path)
    assert (loaded.digest, loaded.problem) == (table.digest, table.problem)
    assert not optimality_of(loaded).claimed
    text = path.read_text(encoding="utf-8")
    validated(json.loads(text), "gamma_table")
    changes: list[tuple[Callable[[Any], object], str]] = [
        (lambda data: data["problem"]["own"][0].update(voters=2), "problem"),
        (lambda data: data["problem"]["own"].pop(), "problem"),
        (lambda data: data["problem"]["each"].update(epsilon="0.4"), "problem"),
        (lambda data: data["problem"]["own"][-1].update(epsilon="0.03"), "gamma"),
        (lambda data: data["optimality"]["multipliers"][0].append([1]), "optimality"),
        (lambda data: data["optimality"]["multipliers"][0].__setitem__(0, 7.0), "optimality"),
        (lambda data: data["optimality"]["multipliers"][0].__setitem__(1, 1), "optimality"),
    ]
    for change, field in changes:
        data = json.loads(text)
        change(data)
        with pytest.raises(TableError) as error:
            Table.from_json(data)
        assert error.value.field == field


def test_a_table_holds_only_for_voters_as_private_as_its_own() -> None:
    alike = Problem(Voters(5, PrivacyParams("0.1")), PrivacyParams("0.2"))
    table = optimize_table(alike, shape="monotone")
    weaker, stronger = (Voters.of([PrivacyParams("0.1")] * 4 + [PrivacyParams(epsilon)]) for epsilon in ("0.5", "0.05"))
    assert certify(Problem(weaker, alike.target), table.gamma).certificate.scale < 0.9
    assert certify(alike, table.gamma).certificate.scale == 1.0
    with pytest.raises(ValueError, match="as private as those of the table"):
        describe_cost(table, voters=weaker)
    assert describe_cost(table, voters=stronger).guarantee == alike.target


def test_a_certain_answer_has_no_curve() -> None:
    voters = Voters.of([PrivacyParams(1), PrivacyParams("0.1"), NON_PRIVATE], overlap=1)
    gamma = NoiseFunction(3, [0.5, 1.0])
    assert np.isinf(renyi_divergences(voters, gamma, [2.0])).all()
    assert describe_cost(certify(Problem(voters, PrivacyParams(5, "0.9")), gamma)).renyi is None


def list_groups(voters: Voters) -> list[tuple[int, str, str]]:
    return [(n, each.epsilon_text, each.delta_text if each.is_private else "") for n, each in voters.groups]


def test_a_ledger_adds_costs_without_a_curve_to_costs_with_one() -> None:
    voters = Voters.of([PrivacyParams(1), PrivacyParams("0.1"), PrivacyParams("0.2")])
    cost = describe_cost(certify(Problem(voters, PrivacyParams("0.5")), NoiseFunction(3, [0.2, 0.4])))
    assert cost.renyi is not None
    ledger = PrivacyLedger.create(":memory:", PrivacyParams(5, "0.01"))
    ledger.debit(replace(cost, renyi=None))
    ledger.debit(cost.repeat(3))
    assert ledger.accountant().costs == (replace(cost, renyi=None, count=4),)
    with pytest.raises(ValueError, match="queries of one kind"):
        ledger.debit(replace(cost, guarantee=PrivacyParams("0.6")))


def test_round_up_to_asks_for_as_little_as_possible() -> None:
    pairs = (("0.10", "0"), ("0.11", "1e-5"), ("0.12", "0"), ("0.40", "0"), ("0.45", "1e-6"))
    voters = Voters.of([PrivacyParams(*pair) for pair in pairs], 2, models=True)
    rounded = voters.round_up_to(2)
    assert list_groups(rounded) == [(2, "0.45", "0.000001"), (3, "0.12", "0.00001")]
    assert rounded.cover(voters)
    assert not voters.cover(rounded)
    assert (rounded.overlap, rounded.models) == (2, True)
    assert voters.round_up_to(5) == voters == voters.round_up_to(9)
    assert voters.round_up_to(1) == Voters(5, PrivacyParams("0.45", "1e-5"), 2, models=True)
    for K, groups in ((11, 11), (40, 3), (300, 1)):
        assert len(fit_voters(Voters.of([PrivacyParams(f"0.{100 + n}") for n in range(K)])).groups) == groups


def test_round_up_to_keeps_non_private_voters_apart() -> None:
    # of 300 pairs only some places between them are tried as a cut
    many = Voters.of([*(PrivacyParams(f"0.{1000 + n}") for n in range(300)), NON_PRIVATE])
    few = Voters.of([NON_PRIVATE, *(PrivacyParams(f"0.{n}") for n in (10, 11, 40, 45))])
    assert list_groups(many.round_up_to(2)) == [(1, "inf", ""), (300, "0.1299", "0")]
    assert list_groups(few.round_up_to(3)) == [(1, "inf", ""), (2, "0.45", "0"), (2, "0.11", "0")]


@given(voters=voters_that_differ(), kinds=st.integers(2, 3))
@example(Voters.of([PrivacyParams("0.02", "0.2"), PrivacyParams("0.02")], overlap=1), 2)
def test_least_error_bounds_the_cost_of_rounding(voters: Voters, kinds: int) -> None:
    target = PrivacyParams("0.4", "0.01")
    assume(voters.round_up_to(kinds).per_voter is not None)  # equal voters have no target below their own ε
    rounded = optimize_table(Problem(voters.round_up_to(kinds), target), prior=UNIFORM)
    best = optimize_table(Problem(voters, target), prior=UNIFORM).gamma.expected_error(UNIFORM)
    bound = least_error(voters, rounded, UNIFORM)
    assert bound <= best + 1e-12
    if rounded.problem.voters == voters:
        assert bound == pytest.approx(best, abs=1e-9)


def test_a_table_with_some_non_private_voters_rests_on_the_others(tmp_path: Path) -> None:
    plain = Voters(7, NON_PRIVATE, 4)
    problem = Problem(FIVE_OF_SEVEN, PrivacyParams("0.5", "1e-4"))
    table, plain_table = (optimize_table(replace(problem, voters=v), prior=UNIFORM) for v in (FIVE_OF_SEVEN, plain))
    assert optimality_of(table).value < 0.95 * optimality_of(plain_table).value
    assert certify(problem, plain_table.gamma).certificate.scale == pytest.approx(1.0)
    assert certify(plain_table.problem, table.gamma).certificate.scale < 0.99
    table.save(tmp_path / "table.json")
    assert Table.load(tmp_path / "table.json").problem == problem
    _, verdicts = judge_file((tmp_path / "table.json").read_bytes())
    assert {PROVED} <= {verdict.verdict for verdict in verdicts} <= {PROVED, ASSUMED, CONSISTENT}
    assert "5 of 7 voters are (0.1, 1e-05)-DP" in {verdict.claim for verdict in verdicts}
    assert describe_cost(table).with_non_private_voters(4) is None
    assert describe_cost(plain_table).with_non_private_voters(4) is not None
    with pytest.raises(ValueError, match="as private as those of the table"):
        describe_cost(table, voters=plain)


def test_voters_cover_others_with_no_more_privacy_loss_in_any_place() -> None:
    assert not FIVE_OF_SEVEN.are_non_private
    assert [n for n, _ in FIVE_OF_SEVEN.private_groups] == [5]
    assert Voters(7, NON_PRIVATE, 4).cover(FIVE_OF_SEVEN)
    assert FIVE_OF_SEVEN.cover(Voters.of([PrivacyParams("0.1")] * 6 + [NON_PRIVATE], 4))
    assert not Voters.of([PrivacyParams(9)] * 6 + [NON_PRIVATE], 4).cover(FIVE_OF_SEVEN)
    assert not Voters.of([PrivacyParams(9, "1e-6")] * 5 + [NON_PRIVATE] * 2, 4).cover(FIVE_OF_SEVEN)


@pytest.mark.slow
def test_models_with_a_non_private_one_among_them_have_no_cap() -> None:
    """Several answers cost what they cost for non-private voters: nothing else is proved."""
    models, total = replace(FIVE_OF_SEVEN, models=True), PrivacyParams(1, "1e-4")
    assert models.are_private_models
    assert models_bound(models, 1e-4) is None
    release = reduce_workload(Workload(models, 10, total))
    assert release.voters == Voters(7, NON_PRIVATE, 4)
    assert release.total.exact_epsilon <= total.exact_epsilon
    one_by_one = reduce_workload(Workload(models, 10, total), one_by_one=True)
    assert one_by_one.total.epsilon == pytest.approx(0.25, rel=1e-5)
    cost = describe_cost(optimize_table(Problem(models, PrivacyParams("0.5", "1e-4"))), 10)
    account = PrivacyAccountant(costs=[cost])
    assert account.spent(0.5).bound in {"non-private voters", "joint bound"}
    assert account.spent(1e-9).epsilon > 10 * 0.5


def test_a_sample_of_models_has_no_cap_where_one_is_non_private() -> None:
    """A sample bounds an answer by the ε of its models, and one of them has none."""
    private = Voters(11, PrivacyParams("0.1"), 4)
    proposal = baselines.double_subsampling(Problem.from_allowance(private, 1))
    models = Voters.of([private.each] * 10 + [NON_PRIVATE], 4, models=True)
    cost = describe_cost(certify(Problem(models, PrivacyParams(1, "1e-4")), proposal), 3)
    assert cost.sample is not None
    assert cost.sample.voters * cost.count < models.reached
    assert PrivacyAccountant(costs=[cost]).spent(1e-3).bound in {"non-private voters", "joint bound"}


@given(voters=voters_that_differ(private=True), delta=st.sampled_from([0.0, 1e-6, 0.01, 0.25, 0.5]))
@example(Voters.of([PrivacyParams(epsilon) for epsilon in ("0.3", "0.7", "1.1")], 2), 0.0)
def test_the_cap_of_models_is_between_every_choice_and_the_weakest(voters: Voters, delta: float) -> None:
    """The cap is no less than the composition of any t models, and equal to the worst one if all Δ are equal."""
    assert models_bound(voters, delta) is None  # voters that resample their examples have none
    cap = models_bound(replace(voters, models=True), delta)
    epsilon = math.inf if cap is None else cap.epsilon
    choices = combinations(per_voter(voters), voters.reached)
    worst = max(optimal_epsilon([(each, 1) for each in choice], delta) for choice in choices)
    assert worst * (1.0 - 1e-9) <= epsilon
    assert epsilon <= optimal_epsilon([(voters.each, voters.reached)], delta) * (1.0 + 1e-9)
    if len({each.exact_delta for each in per_voter(voters)}) == 1 and math.isfinite(worst):
        assert epsilon == pytest.approx(worst, rel=1e-9)
    if delta == 0.0 and math.isfinite(epsilon):  # the sum of the largest, rounded up
        exact = sum(sorted((each.exact_epsilon for each in per_voter(voters)), reverse=True)[: voters.reached])
        assert exact <= Fraction(epsilon) <= exact * (1 + Fraction(1, 10**12))


TOO_MANY = Voters.of([PrivacyParams(f"0.{100 + n}") for n in range(20)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optimize_table(PROBLEM, shape="free"), "shape must be 'monotone' where voters differ"),
        (lambda: optimize_table(PROBLEM, solver="reference"), "'production' where voters differ"),
        (lambda: certify(PROBLEM, NoiseFunction(11, [1, 0, 1, 1, 1, 1])), "never falls"),
        (lambda: optimize_table(Problem(TOO_MANY, PrivacyParams(1))), r"voters\.round_up_to"),
        (lambda: Problem.from_allowance(FIVE_OF_SEVEN, 1), "state the target"),
        (lambda: Voters.of([PrivacyParams(0), PrivacyParams(1)]), "no information"),
        (lambda: Voters.of([]), "one for each voter"),
        (lambda: Voters.of(PrivacyParams(1)), "one for each voter"),  # type: ignore[arg-type]
        (lambda: Voters.of([PrivacyParams(1), 2]), "per_voter must be a pair"),  # type: ignore[list-item]
        (lambda: Voters(2, PrivacyParams(1), per_voter=(PrivacyParams(1), PrivacyParams(2))), r"Voters\.of"),
        (lambda: Problem(HOSPITALS, PrivacyParams(0, "0.1")), "positive"),
        (lambda: load_table(Problem.from_allowance(HOSPITALS, 1)), "all alike"),
    ],
)
def test_voters_that_differ_are_refused_where_nothing_is_proved(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TableError), match=message):
        call()
