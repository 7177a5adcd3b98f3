"""Several answers of trained models: every bound that is reported holds for models whose joint laws are enumerated."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import MODELS_BOUNDS, models_bound, subsampling_bound
from darrm.loss.composition import optimal_epsilon
from darrm.loss.privacy_cost import PrivacyCost
from darrm.majority import baselines
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.pate import GNMax
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import describe_cost, find_sample
from darrm.table.table import Table, certify
from tests.account.support import QUERY, list_epsilons, make_table

MODELS = Voters(5, PrivacyParams("0.5", "1e-6"), overlap=2, models=True)
FRESH = replace(MODELS, models=False)
NON_PRIVATE = Voters.non_private(5, 2)
HALF = (0.1, 0.2, 0.3)
MANY_MODELS = Voters(31, PrivacyParams("0.1", "1e-6"), models=True)


@cache
def describe_query(voters: Voters, half: tuple[float, ...] = HALF) -> PrivacyCost:
    return describe_cost(make_table(voters, half))


@cache
def make_subsampled_table(voters: Voters, m: int) -> Table:
    problem = Problem.from_allowance(voters, m)
    return certify(problem, baselines.subsampling(problem))


# every strategy of models: a pure model is one bit of randomized response, and answers by that bit


def list_label_laws(one: Array, epsilons: Sequence[float], fixed: int, questions: int) -> Iterator[tuple[Array, Array]]:
    """Yield the laws of all labels on two data sets, (strategies, labels), where label 1 has probability one[ones].

    The models of one person have these ε, and the bit of each is 1 with probability e^ε/(1 + e^ε), or 1/(1 + e^ε). The
    fixed models answer as they like.
    """
    answers = np.array(list(itertools.product((0, 1), repeat=questions)))
    pairs = np.array(list(itertools.product(answers, repeat=2)))  # the answers of a model where its bit is 0, and 1
    bits = np.array(list(itertools.product((0, 1), repeat=len(epsilons))))
    strategies = np.array(list(itertools.product(range(len(pairs)), repeat=len(epsilons))))
    moved = np.stack([sum(pairs[strategies[:, i], bit] for i, bit in enumerate(row)) for row in bits], axis=1)
    high = 1.0 / (1.0 + np.exp(-np.asarray(epsilons)))
    weights = [np.prod(np.where(bits == 1, p, 1.0 - p), axis=1) for p in (high, 1.0 - high)]
    for others in itertools.combinations_with_replacement(answers, fixed):
        chances = one[moved + np.sum(others, axis=0, dtype=int)]
        labels = np.stack([np.prod(np.where(label == 1, chances, 1.0 - chances), axis=2) for label in answers], axis=2)
        first, second = (np.einsum("b,sbl->sl", weight, labels) for weight in weights)
        yield first, second
        yield second, first


ROWS = {  # ε of each model, by overlap and questions
    (2, 2): ["0.5 0.5", "0.2 1", "0.5 0.5 0.5", "0.2 0.2 0.2 2"],
    (1, 2): ["1", "0.1 0.3 1.5"],
    (1, 3): ["0.2 1", "1 1 1"],
    (2, 3): ["0.5 0.5"],
    (3, 2): ["0.1 0.3 1.5", "0.2 0.2 0.2 2"],
    (4, 2): ["0.3 0.3 0.3 0.3"],
}
SHAPES: dict[str, Callable[[int], Array]] = {
    "rising": lambda length: np.linspace(0.2, 0.8, length),
    "constant": lambda length: np.full(length, 0.5),
    "random": lambda length: np.random.default_rng(32).uniform(0.1, 0.9, length),
    "falling": lambda _: np.array([1.0, 1 / 3]),
    "one model": lambda _: np.array([1 / 3, 1.0]),
}
CASES = [
    *((row, *case, shape) for case, rows in ROWS.items() for row in rows for shape in ("rising", "constant", "random")),
    ("0.1 0.1 0.1", 3, 2, "falling"),  # the sum over two questions would be 0.2, and 0.2394 is attained
    ("1 1 1", 3, 2, "one model"),  # the vote of one random model
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("epsilons", "overlap", "questions", "shape"), CASES)
def test_no_strategy_of_models_costs_more_than_a_bound(epsilons: str, overlap: int, questions: int, shape: str) -> None:
    """Compare every bound with all strategies; with an overlap of 1 the bound is attained."""
    voters = Voters.of([PrivacyParams(epsilon) for epsilon in epsilons.split()], overlap=overlap, models=True)
    table = make_table(voters, SHAPES[shape](voters.K - voters.K // 2).tolist())
    one = 0.5 * (1.0 + table.gamma.signed)
    each_epsilon = [each.epsilon for each in voters.per_voter or [voters.each] * voters.K]
    persons = set(itertools.combinations(each_epsilon, voters.reached))
    laws = [law for person in persons for law in list_label_laws(one, person, voters.K - voters.reached, questions)]
    account = PrivacyAccountant(costs=[describe_cost(table, questions)])
    for delta in (0.0, 1e-3, 0.03):
        spent = account.spent(delta)
        explanations = {bound.name: bound.explanation for bound in spent.bounds}
        assert (" one model " in explanations["joint bound"]) == (overlap == 1)
        assert account.smallest_epsilon(delta) == spent.epsilon
        assert list_epsilons(spent).keys() <= set(MODELS_BOUNDS)
        for bound in (*spent.bounds, account.spent(delta, adaptive=True).bounds[0]):
            factor = math.exp(bound.epsilon)
            worst = max(float(np.maximum(P - factor * Q, 0.0).sum(axis=1).max()) for P, Q in laws)
            assert worst <= delta + 1e-12, bound
        assert account.admits(PrivacyParams(spent.epsilon + 1e-9, delta))
        assert not account.admits(PrivacyParams(0.99 * spent.epsilon, delta))
    exact = max(float(np.log(P / Q).max()) for P, Q in laws if np.all(P > 0.0))
    reported = account.spent(0.0).epsilon
    assert reported >= exact * (1.0 - 1e-9)
    assert reported <= exact * (1.0 + 1e-5, 1.7, 1.7, 2.8)[voters.reached - 1]


def test_the_joint_bound_multiplies_hyperbolic_tangents() -> None:
    voters = Voters(1, PrivacyParams(1), overlap=1, models=True)
    cost = describe_query(voters, (math.tanh(0.5),))  # (1 + γ)/2 = e/(1 + e): the release has ε' = 1
    epsilons = list_epsilons(PrivacyAccountant(costs=[cost]).spent(0.0))
    assert epsilons["joint bound"] == pytest.approx(2.0 * math.atanh(math.tanh(0.5) ** 2), abs=1e-6)
    assert epsilons["non-private voters"] == pytest.approx(1.0, abs=1e-9)
    assert epsilons["private models"] == 1.0


# the bound of the models alone


@pytest.mark.parametrize("overlap", [1, 2, 11])
def test_declared_models_bound_any_number_of_queries(overlap: int) -> None:
    each = PrivacyParams(0.0892, 1e-4)
    voters = Voters(11, each, overlap=overlap, models=True)
    cost = PrivacyCost("a", guarantee=QUERY, count=10_000)
    spent = PrivacyAccountant(voters, [cost]).spent(0.01)
    assert spent.bound == "private models"
    assert spent.epsilon == pytest.approx(optimal_epsilon([(each, overlap)], 0.01))
    assert "post-processing of models that are already private" in spent.explanation
    assert ("one model" in spent.explanation) == (overlap == 1)
    assert models_bound(voters, 1e-5) is None
    for undeclared in (None, replace(voters, models=False)):
        assert "private models" not in list_epsilons(PrivacyAccountant(undeclared, [cost]).spent(0.999))


def test_costs_of_private_models_do_not_add_up() -> None:
    three = Voters(3, PrivacyParams("0.1"), models=True)
    cost, other = describe_query(three, (1.0, 1 / 3)), describe_query(replace(three, K=5))
    by_hand = PrivacyCost("b", guarantee=PrivacyParams("0.001"), count=2)
    assert PrivacyAccountant(costs=[cost, by_hand]).spent(0.01).bound == "none"
    assert PrivacyAccountant(costs=[cost, other]).spent(0.01).bound == "none"
    assert list_epsilons(PrivacyAccountant(three, [by_hand]).spent(0.01)).keys() == {"private models"}
    with pytest.raises(ValueError, match="charged for other models"):
        PrivacyAccountant(three, [cost, other])


def test_costs_of_models_that_are_not_private_add_up() -> None:
    models = Voters(3, PrivacyParams("inf"), models=True)
    assert PrivacyAccountant(models, [PrivacyCost("b", guarantee=QUERY, count=2)]).spent(0.01).bound == "optimal"
    table = certify(Problem(models, PrivacyParams(1)), NoiseFunction(3, [0.1, 0.2]))
    assert not describe_cost(table).non_composable


def test_one_query_of_private_models_keeps_all_bounds() -> None:
    models = Voters(3, PrivacyParams("0.1"), models=True)
    tables = (make_table(voters, (1.0, 1 / 3), 1) for voters in (models, replace(models, models=False)))
    cost, fresh = map(describe_cost, tables)
    spent = PrivacyAccountant(costs=[cost]).spent(1e-3)
    assert set(PrivacyAccountant(costs=[fresh]).spent(1e-3).bounds) < set(spent.bounds)
    assert PrivacyAccountant(models, [fresh]).spent(1e-3).epsilon == pytest.approx(spent.epsilon)
    assert PrivacyAccountant(costs=[cost]).spent(0.0, adaptive=True).epsilon == pytest.approx(0.1)
    assert PrivacyAccountant(costs=[cost]).admits(PrivacyParams("0.1"))


# labels of few models


@pytest.mark.parametrize(("m", "sample_size"), [(1, 1), (2, 1), (4, 3)])  # a tie of two is random, like one vote
def test_the_subsampling_bound_composes_the_models_behind_the_labels(m: int, sample_size: int) -> None:
    table, cap = make_subsampled_table(MANY_MODELS, m), optimal_epsilon([(MANY_MODELS.each, 31)], 1e-4)
    limit = 31 // sample_size
    for count in (1, 2, limit, limit + 1):
        cost = describe_cost(table, count)
        assert cost.sample is not None
        assert cost.sample.voters == sample_size
        bound = subsampling_bound(MANY_MODELS, (cost,), 1e-4)
        stored = PrivacyCost.from_text(cost.to_text(), what=cost.what).repeat(count)
        assert subsampling_bound(MANY_MODELS, (stored,), 1e-4) == bound
        if sample_size * count >= 31:
            assert bound is None
            continue
        exact = optimal_epsilon([(MANY_MODELS.each, sample_size * count)], 1e-4)
        assert bound is not None
        assert exact <= bound.epsilon <= exact * (1.0 + 1e-6) < cap
    # floats only approximate the law of a sample, so a part of δ is needed
    assert subsampling_bound(MANY_MODELS, (describe_cost(table, 1),), 0.0) is None


def test_only_the_law_of_a_sample_has_the_subsampling_bound() -> None:
    voters = Voters(11, PrivacyParams(1), models=True)
    sampled = make_subsampled_table(voters, 3)
    assert find_sample(sampled) is not None
    for level in range(6):
        half = sampled.gamma.half.copy()
        half[level] *= 1.0 - 1e-9
        assert find_sample(certify(sampled.problem, NoiseFunction(11, half))) is None
    cost, other = describe_cost(sampled, 2), describe_cost(make_table(voters, [0.3] * 6, 3))
    assert subsampling_bound(voters, (cost,), 1e-3) is not None
    assert subsampling_bound(voters, (cost, other), 1e-3) is None


def test_bounds_share_delta_where_kinds_are_chosen_after_answers() -> None:
    account = PrivacyAccountant(costs=[describe_cost(make_subsampled_table(MANY_MODELS, 1), 20)])
    epsilons = list_epsilons(account.spent(1e-4, adaptive=True))
    quarter, whole = (subsampling_bound(MANY_MODELS, account.costs, delta) for delta in (1e-4 / 4, 1e-4))
    assert quarter is not None
    assert whole is not None
    assert epsilons["subsampling"] == quarter.epsilon > whole.epsilon
    # the bound of the models does not depend on the costs, and keeps all of δ
    assert epsilons["private models"] == list_epsilons(account.spent(1e-4))["private models"]
    between = PrivacyParams((quarter.epsilon + whole.epsilon) / 2, "1e-4")
    assert account.admits(between)
    assert not account.admits(between, adaptive=True)
    assert account.admits(PrivacyParams(quarter.epsilon, "1e-4"), adaptive=True)


# the release for non-private voters


def test_pate_costs_count_for_models_of_overlap_one() -> None:
    cost = GNMax(40.0).privacy_cost(10)
    epsilons = list_epsilons(PrivacyAccountant(replace(MODELS, overlap=1), [cost]).spent(1e-5))
    release_epsilon = PrivacyAccountant(costs=[cost]).spent(1e-5).epsilon
    assert epsilons["non-private voters"] == release_epsilon
    assert epsilons["joint bound"] < min(release_epsilon, epsilons["private models"])


def test_costs_for_non_private_voters_of_another_overlap_are_of_another_kind() -> None:
    def make_cost(overlap: int) -> PrivacyCost:
        voters = replace(NON_PRIVATE, overlap=overlap)
        release = PrivacyCost("release", guarantee=PrivacyParams("0.01"), voters=voters)
        return PrivacyCost("models", guarantee=PrivacyParams(1), voters=MODELS, for_non_private_voters=(release,))

    one, two = make_cost(1), make_cost(2)
    for costs, has_bound in (([one, two], False), ([two, one], False), ([two], True)):
        spent = PrivacyAccountant(None, costs).spent(1e-3)
        assert ("non-private voters" in list_epsilons(spent)) == has_bound


def test_the_profile_for_non_private_voters_is_exact() -> None:
    table = make_table(MODELS, HALF)
    one = [(1 + Fraction(float(g))) / 2 for g in table.gamma.signed]
    for cost in describe_cost(table).for_non_private_voters:
        assert cost.profile is not None
        assert cost.guarantee is not None
        overlap = cost.reached or 0
        pairs = [(one[i], one[j]) for i in range(6) for j in range(6) if abs(i - j) <= overlap]
        for epsilon, delta in zip(cost.profile.epsilons, cost.profile.deltas, strict=True):
            exact = max(Fraction(0), *(p - Fraction(math.exp(epsilon)) * q for p, q in pairs))
            assert exact - Fraction(1, 10**16) <= Fraction(delta) <= exact + Fraction(3, 10**12)
        growth = Fraction(math.exp(cost.guarantee.epsilon))
        assert max(p - growth * q for p, q in pairs) <= cost.guarantee.exact_delta + Fraction(1, 10**15)


# costs that were proved for fresh randomness


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "use",
    [
        lambda account, _: account.spent(1e-3),
        lambda account, _: account.spent(1e-3, adaptive=True),
        lambda account, _: account.smallest_epsilon(1e-3),
        lambda account, _: account.admits(PrivacyParams("0.1", "1e-3")),
        lambda account, cost: account.queries_that_fit(cost, PrivacyParams("0.1", "1e-3"), most=9),
    ],
)
def test_models_refuse_several_costs_for_fresh_randomness(
    use: Callable[[PrivacyAccountant, PrivacyCost], object],
) -> None:
    cost, message = describe_query(FRESH), "was proved for voters that draw fresh randomness at every query"
    with pytest.raises(ValueError, match=message):
        use(PrivacyAccountant(MODELS, [cost.repeat(2)]), cost)
    account = PrivacyAccountant(MODELS, [cost])
    for second in (cost, describe_query(MODELS)):
        with pytest.raises(ValueError, match=message):
            account.add(second)
    assert account.queries == 1


def test_a_cost_is_described_for_voters_as_private_as_those_of_the_table() -> None:
    table = make_table(FRESH, HALF)
    for voters in (
        replace(MODELS, overlap=3),
        replace(MODELS, K=7),
        replace(MODELS, each=PrivacyParams("0.6", "1e-6")),
        replace(MODELS, each=PrivacyParams("0.5", "1e-5")),
        NON_PRIVATE,
    ):
        with pytest.raises(ValueError, match="no larger overlap"):
            describe_cost(table, voters=voters)
    assert describe_cost(table, voters=replace(MODELS, overlap=1)).models == replace(MODELS, overlap=1)
    spent = PrivacyAccountant(MODELS, [describe_cost(table, 2, voters=MODELS)]).spent(1e-3)
    assert list_epsilons(spent).keys() == set(MODELS_BOUNDS) - {"subsampling"}
    non_private = certify(Problem(NON_PRIVATE, PrivacyParams(1)), NoiseFunction(5, HALF))
    assert describe_cost(non_private, voters=MODELS).for_non_private_voters
