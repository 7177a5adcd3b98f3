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

ANSWERS = list(itertools.product((0, 1), repeat=2))  # of one model to two questions


@cache
def charged(voters: Voters, half: tuple[float, ...]) -> PrivacyCost:
    return describe_cost(table_for(voters, list(half)))


def table_for(voters: Voters, half: list[float]) -> Table:
    return certify(Problem.from_allowance(voters, voters.reached), NoiseFunction(voters.K, half))


def laws(table: Table, reached: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The laws of two labels on two data sets, for models of one randomized-response bit and fixed ones, all of them.

    A bit b is 1 with probability e^ε/(1 + e^ε), or 1/(1 + e^ε) on the other data set, and says which answers are given.
    """
    K, voters = table.gamma.K, table.problem.voters
    one = 0.5 * (1.0 + table.gamma.signed)
    high = [1.0 / (1.0 + math.exp(-each.epsilon)) for each, count in voters.largest(reached) for _ in range(count)]
    all_bits = list(itertools.product((0, 1), repeat=reached))
    weights = np.array(
        [
            [math.prod(p if bit == first else 1.0 - p for p, bit in zip(high, bits, strict=True)) for bits in all_bits]
            for first in (1, 0)
        ]
    )
    for frozen in itertools.combinations_with_replacement(ANSWERS, K - reached):
        for moved in itertools.combinations_with_replacement(itertools.product(ANSWERS, repeat=2), reached):
            ones = np.array(
                [
                    np.sum([*frozen, *(pair[bit] for pair, bit in zip(moved, bits, strict=True))], axis=0)
                    for bits in all_bits
                ]
            )
            told = one[ones]  # (bits, questions)
            labels = np.stack([told[:, 0] * told[:, 1], told[:, 0] * (1 - told[:, 1])], axis=1)
            labels = np.hstack([labels, np.stack([(1 - told[:, 0]) * told[:, 1], np.prod(1 - told, axis=1)], axis=1)])
            yield weights[0] @ labels, weights[1] @ labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("K", "reached", "epsilon", "half"),
    [
        (1, 1, "1", [0.6]),
        pytest.param(2, 1, "0.5", [0.8], marks=pytest.mark.slow),
        pytest.param(3, 1, "1", [0.3, 0.9], marks=pytest.mark.slow),
        pytest.param(3, 2, "0.5", [0.4, 0.7], marks=pytest.mark.slow),
        (3, 3, "0.1", [1.0, 1 / 3]),  # the false sum says 0.2 for two questions, and 0.2394 is true
        pytest.param(3, 3, "1", [0.1, 0.5], marks=pytest.mark.slow),
        # one voter drawn at random; the same, and every other label a fair coin
        pytest.param(3, 3, "1", [1 / 3, 1.0], marks=pytest.mark.slow),
        pytest.param(4, 3, "0.5", [0.25, 0.5], marks=pytest.mark.slow),
        (2, 2, "0.2 1", [0.8]),  # models that are not alike
    ],
)
def test_every_bound_holds_for_two_questions(K: int, reached: int, epsilon: str, half: list[float]) -> None:
    each = [PrivacyParams(one) for one in epsilon.split()]
    voters = Voters.of(each if len(each) == K else each * K, overlap=reached, models=True)
    table = table_for(voters, half)
    account = PrivacyAccountant(costs=[describe_cost(table, 2)])
    known = list(laws(table, reached))
    for delta in (0.0, 1e-3, 0.03):
        spent = account.spent(delta)
        assert {bound.name for bound in spent.bounds} <= set(MODELS_BOUNDS)
        assert "joint bound" in {bound.name for bound in spent.bounds}
        for bound in (*spent.bounds, account.spent(delta, adaptive=True).bounds[0]):
            c = math.exp(bound.epsilon)
            worst = max(float(np.maximum(a - c * b, 0.0).sum()) for P, Q in known for a, b in ((P, Q), (Q, P)))
            assert worst <= delta + 1e-12, bound
        smallest = spent.bounds[0].epsilon
        assert account.admits(PrivacyParams(smallest + 1e-9, delta))
        assert not account.admits(PrivacyParams(0.99 * smallest, delta))


def test_both_ends_are_as_small_as_the_models_allow() -> None:
    """One model of one bit that answers every question alike costs exactly what is reported for one question."""
    voters = Voters(1, PrivacyParams(1), overlap=1, models=True)
    truth = math.tanh(0.5)  # (1 + γ)/2 = e/(1 + e): the release of one question has ε' = 1
    account = PrivacyAccountant(costs=[describe_cost(table_for(voters, [truth]), 1)])
    found = {bound.name: bound.epsilon for bound in account.spent(0.0).bounds}
    assert found["joint bound"] == pytest.approx(2.0 * math.atanh(math.tanh(0.5) ** 2), abs=1e-6)
    assert found["joint bound"] == pytest.approx(0.434, abs=1e-3)
    assert found["non-private voters"] == pytest.approx(1.0, abs=1e-9)
    assert found["private models"] == 1.0


@pytest.mark.parametrize(("m", "drawn"), [(1, 1), (2, 1), (3, 3), (4, 3), (7, 7)])
def test_labels_that_look_at_few_models_cost_these(m: int, drawn: int) -> None:
    """A tie of two is a fair coin, so the majority of an even number is that of one less."""
    voters = Voters(31, PrivacyParams("0.1", "1e-6"), models=True)
    problem = Problem.from_allowance(voters, m)
    table = certify(problem, baselines.subsampling(problem))
    queries = 31 // drawn
    for count in (1, 2, queries, queries + 1):
        cost = describe_cost(table, count)
        assert cost.sample is not None
        assert cost.sample.voters == drawn
        read = PrivacyCost.from_text(cost.to_text(), what=cost.what).repeat(count)
        found, again = (subsampling_bound(voters, (one,), 1e-4) for one in (cost, read))
        assert found == again
        if drawn * count < 31:
            assert found is not None
            alone, cap = (optimal_epsilon([(voters.each, models)], 1e-4) for models in (drawn * count, 31))
            assert alone <= found.epsilon <= alone * (1.0 + 1e-6) < cap
        else:
            assert found is None
    # floats are not exactly the law of a sample, so something of δ is needed
    assert subsampling_bound(voters, (describe_cost(table, 1),), 0.0) is None


def test_the_smallest_of_all_is_what_is_reported() -> None:
    voters = Voters(31, PrivacyParams("0.1", "1e-6"), models=True)
    problem = Problem.from_allowance(voters, 1)
    account = PrivacyAccountant(costs=[describe_cost(certify(problem, baselines.subsampling(problem)), 2)])
    spent = account.spent(1e-4)
    assert spent.bound == "subsampling"
    assert spent.epsilon <= 0.2
    assert account.admits(PrivacyParams(spent.epsilon * (1.0 + 1e-9), 1e-4))
    assert not account.admits(PrivacyParams(spent.epsilon * 0.999, 1e-4))


def test_only_what_looks_at_few_voters_is_charged_so() -> None:
    voters = Voters(11, PrivacyParams(1), models=True)
    problem = Problem.from_allowance(voters, 3)
    sampled = certify(problem, baselines.subsampling(problem))
    assert find_sample(sampled) is not None
    for at in range(6):
        half = sampled.gamma.half.copy()
        half[at] *= 1.0 - 1e-9
        assert find_sample(certify(problem, NoiseFunction(11, half))) is None
    assert find_sample(certify(problem, NoiseFunction(11, np.full(6, 0.3)))) is None
    # one kind that looks at few, and one of which nothing is known: no bound for both
    other = describe_cost(certify(problem, NoiseFunction(11, np.full(6, 0.3))))
    assert subsampling_bound(voters, (describe_cost(sampled, 2),), 1e-3) is not None
    assert subsampling_bound(voters, (describe_cost(sampled, 2), other), 1e-3) is None


MODELS = Voters(5, PrivacyParams("0.5", "1e-6"), overlap=2, models=True)
FRESH = replace(MODELS, models=False)
PLAIN = Voters(5, PrivacyParams("inf"), overlap=2)
HALF = [0.1, 0.2, 0.3]
SENTENCE = "was proved for voters that draw fresh randomness at every query"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "ask",
    [
        lambda account, _charge: account.spent(1e-3),
        lambda account, _charge: account.spent(1e-3, adaptive=True),
        lambda account, _charge: account.smallest_epsilon(1e-3),
        lambda account, _charge: account.admits(PrivacyParams("0.1", "1e-3")),
        lambda account, cost: account.queries_that_fit(cost, PrivacyParams("0.1", "1e-3"), most=9),
    ],
)
def test_a_sum_for_fresh_randomness_is_not_written_for_models(
    ask: Callable[[PrivacyAccountant, PrivacyCost], object],
) -> None:
    cost = charged(FRESH, tuple(HALF))
    with pytest.raises(ValueError, match=SENTENCE):
        ask(PrivacyAccountant(MODELS, [cost.repeat(2)]), cost)
    account = PrivacyAccountant(MODELS, [cost])
    for more in (cost, charged(MODELS, tuple(HALF))):
        with pytest.raises(ValueError, match=SENTENCE):
            account.add(more)
    assert account.queries == 1
    # charged again for the models it is bounded, and not by the sum
    account = PrivacyAccountant(MODELS, [describe_cost(table_for(FRESH, HALF), 2, voters=MODELS)])
    names = {bound.name for bound in account.spent(1e-3).bounds}
    assert names == set(MODELS_BOUNDS) - {"subsampling"}


def test_the_voters_of_a_charge_are_as_private_as_those_of_the_table() -> None:
    table = table_for(FRESH, HALF)
    for voters in (
        replace(MODELS, overlap=3),
        replace(MODELS, K=7),
        replace(MODELS, each=PrivacyParams("0.6", "1e-6")),
        replace(MODELS, each=PrivacyParams("0.5", "1e-5")),
        PLAIN,
    ):
        with pytest.raises(ValueError, match="no larger overlap"):
            describe_cost(table, voters=voters)
    assert describe_cost(table, voters=replace(MODELS, overlap=1)).models == replace(MODELS, overlap=1)
    plain = certify(Problem(PLAIN, PrivacyParams(1)), NoiseFunction(5, HALF))
    assert describe_cost(plain, voters=MODELS).for_non_private_voters


def test_votes_alone_count_for_models_too() -> None:
    """PATE's aggregators are private for non-private voters of whom a person reaches one."""
    one = replace(MODELS, overlap=1)
    query = GNMax(40.0).privacy_cost(10)
    account = PrivacyAccountant(one, [query])
    alone = PrivacyAccountant(costs=[query]).spent(1e-5)
    found = {bound.name: bound.epsilon for bound in account.spent(1e-5).bounds}
    assert found["non-private voters"] == alone.epsilon
    assert found["joint bound"] < min(alone.epsilon, found["private models"])


def test_kinds_chosen_after_answers_share_delta_between_the_bounds() -> None:
    """One course of answers may end under one bound, another under another: together they fail as often as both."""
    voters = Voters(31, PrivacyParams("0.1", "1e-6"), models=True)
    problem = Problem.from_allowance(voters, 1)
    account = PrivacyAccountant(costs=[describe_cost(certify(problem, baselines.subsampling(problem)), 20)])
    found = {bound.name: bound.epsilon for bound in account.spent(1e-4, adaptive=True).bounds}
    share, whole = (subsampling_bound(voters, account.costs, delta) for delta in (1e-4 / 4, 1e-4))
    cap = models_bound(voters, 1e-4)
    assert share is not None
    assert whole is not None
    assert cap is not None
    assert found["subsampling"] == share.epsilon > whole.epsilon
    assert found["private models"] == cap.epsilon
    between = PrivacyParams((share.epsilon + whole.epsilon) / 2, "1e-4")
    assert account.admits(between)
    assert not account.admits(between, adaptive=True)
    assert account.admits(PrivacyParams(share.epsilon, "1e-4"), adaptive=True)


def test_equal_costs_hold_for_whom_they_were_proved() -> None:
    """One kind that holds for votes of anybody lends nothing to an equal cost that does not."""
    one = replace(MODELS, overlap=1)
    votes = PrivacyCost("votes", guarantee=PrivacyParams("0.25"), reached=1)
    silent = PrivacyCost("silent", guarantee=PrivacyParams("0.25"))
    problem = Problem(replace(one, models=False), PrivacyParams("0.5", "1e-6"))
    fresh = describe_cost(certify(problem, NoiseFunction(5, HALF)), exact=False)
    equal = PrivacyCost("votes", guarantee=fresh.guarantee, reached=1)
    for pair in itertools.permutations([votes, silent]):
        assert {bound.name for bound in PrivacyAccountant(one, pair).spent(1e-3).bounds} == {"private models"}
    for pair in itertools.permutations([equal, fresh]):
        with pytest.raises(ValueError, match=SENTENCE):
            PrivacyAccountant(one, pair)


def test_costs_for_non_private_voters_of_another_overlap_are_of_another_kind() -> None:
    def cost(overlap: int) -> PrivacyCost:
        plain = PrivacyCost("plain", guarantee=PrivacyParams("0.01"), voters=replace(PLAIN, overlap=overlap))
        return PrivacyCost("models", guarantee=PrivacyParams(1), voters=MODELS, for_non_private_voters=(plain,))

    for pair in itertools.permutations([cost(1), cost(2)]):
        assert "non-private voters" not in {bound.name for bound in PrivacyAccountant(None, pair).spent(1e-3).bounds}
    assert "non-private voters" in {bound.name for bound in PrivacyAccountant(None, [cost(2)]).spent(1e-3).bounds}


@pytest.mark.parametrize(
    "declared",
    [
        replace(FRESH, each=PrivacyParams(3)),
        replace(FRESH, each=PrivacyParams("0.5", "1e-5")),
        replace(FRESH, K=7),
        replace(MODELS, each=PrivacyParams(3)),
        PLAIN,
    ],
)
def test_one_query_holds_for_voters_as_private_as_those_of_its_proof(declared: Voters) -> None:
    cost = describe_cost(table_for(FRESH, HALF))
    with pytest.raises(ValueError, match="is charged for other voters"):
        PrivacyAccountant(declared, [cost])
    for covered in (FRESH, MODELS, replace(FRESH, each=PrivacyParams("0.4")), replace(FRESH, overlap=1)):
        assert PrivacyAccountant(covered, [cost]).queries == 1


def test_the_profile_for_non_private_voters_by_exact_fractions() -> None:
    table = table_for(MODELS, HALF)
    one = [(1 + Fraction(float(g))) / 2 for g in table.gamma.signed]
    for plain in describe_cost(table).for_non_private_voters:
        assert plain.profile is not None
        assert plain.guarantee is not None
        reach = plain.reached or 0
        pairs = [(one[i], one[j]) for i in range(6) for j in range(6) if abs(i - j) <= reach]
        for epsilon, delta in zip(plain.profile.epsilons, plain.profile.deltas, strict=True):
            exact = max(Fraction(0), *(p - Fraction(math.exp(epsilon)) * q for p, q in pairs))
            assert exact <= Fraction(delta) + Fraction(1, 10**16)
            assert delta <= exact + Fraction(3, 10**12)
        growth = Fraction(math.exp(plain.guarantee.epsilon))
        assert max(p - growth * q for p, q in pairs) <= plain.guarantee.exact_delta + Fraction(1, 10**15)


CASES = [  # ε of each model, how many a person reaches, questions
    (["1"], 1, 1),
    (["0.5"] * 2, 2, 2),
    (["0.2", "1"], 2, 2),
    (["0.5"] * 2, 2, 3),
    (["0.2", "1"], 1, 3),
    (["0.5"] * 3, 1, 2),
    (["0.5"] * 3, 2, 2),
    (["0.5"] * 3, 3, 2),
    (["0.1", "0.3", "1.5"], 3, 2),
    (["0.1", "0.3", "1.5"], 1, 2),
    (["1"] * 3, 1, 3),
    (["0.2"] * 4, 1, 2),
    (["1"] * 4, 2, 2),
    (["0.2", "0.2", "0.2", "2"], 2, 2),
    (["0.2", "0.2", "0.2", "2"], 3, 2),
    (["0.3"] * 4, 4, 2),
]


def ones_of(reached: int, fixed: int, questions: int) -> Iterator[Array]:
    """The ones of each question, (strategies, bits of the reached models, questions)."""
    answers = np.array(list(itertools.product((0, 1), repeat=questions)))
    pairs = np.array(list(itertools.product(answers, repeat=2)))  # what a model says where its bit is 0, and where 1
    bits = list(itertools.product((0, 1), repeat=reached))
    chosen = np.array(list(itertools.product(range(len(pairs)), repeat=reached)))
    moved = np.stack([sum(pairs[chosen[:, i], bit[i]] for i in range(reached)) for bit in bits], axis=1)
    for others in itertools.combinations_with_replacement(answers, fixed):
        yield moved + np.sum(others, axis=0, dtype=int)


def exact_loss(one: Array, own: Sequence[float], fixed: int, questions: int) -> float:
    """The worst loss of all labels, each 1 with probability one[s] at s ones, over every strategy of these models."""
    bits = np.array(list(itertools.product((0, 1), repeat=len(own))))
    high = 1.0 / (1.0 + np.exp(-np.asarray(own)))
    weights = [np.prod(np.where(bits == 1, p, 1.0 - p), axis=1) for p in (high, 1.0 - high)]
    worst = 0.0
    for ones in ones_of(len(own), fixed, questions):
        told = one[ones]
        for labels in itertools.product((0, 1), repeat=questions):
            chances = np.prod(np.where(np.array(labels) == 1, told, 1.0 - told), axis=2)
            before, after = chances @ weights[0], chances @ weights[1]
            seen = before > 0.0
            worst = max(worst, float(np.abs(np.log(before[seen] / after[seen])).max(initial=0.0)))
    return worst


def ratios(own: Sequence[str], reached: int, questions: int) -> list[float]:
    """Reported over exact, for three release functions: constant, rising and any."""
    K = len(own)
    voters = Voters.of([PrivacyParams(epsilon) for epsilon in own], overlap=reached, models=True)
    length, result = K - K // 2, []
    drawn = np.random.default_rng(32).uniform(0.1, 0.9, length)
    for half in (np.full(length, 0.5), np.linspace(0.2, 0.8, length), drawn):
        table = certify(Problem.from_allowance(voters, reached), NoiseFunction(K, half))
        one = 0.5 * (1.0 + table.gamma.signed)
        reported = PrivacyAccountant(costs=[describe_cost(table, questions)]).spent(0.0).epsilon
        persons = set(itertools.combinations(map(float, own), reached))
        result.append(reported / max(exact_loss(one, person, K - reached, questions) for person in persons))
    return result


@pytest.mark.slow
def test_no_strategy_of_models_loses_more_than_is_reported() -> None:
    """Never less than the truth, and the truth where a person reaches one model."""
    one: list[float] = []
    several: list[float] = []
    for own, reached, questions in CASES:
        (one if reached == 1 else several).extend(ratios(own, reached, questions))
    assert min(one + several) >= 1.0 - 1e-9  # the enumeration is in floats
    assert max(one) <= 1.0 + 1e-5
    assert np.median(several) < 1.5
