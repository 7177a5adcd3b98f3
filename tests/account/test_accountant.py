"""The accountant: every kind of charge repeats, every bound is valid, and the cap is never applied unasked."""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from darrm.account.accountant import PrivacyAccountant
from darrm.account.bounds import discretized_bound, dominating_atoms, get_profile, models_bound, on_grid
from darrm.loss.composition import compose_general, compose_optimal
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.renyi import RenyiCurve
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max.mechanisms import GNMax
from darrm.noisy_max.noisy_maximum import NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism
from darrm.pate.confident import ConfidentGNMax, InteractiveGNMax
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import describe_cost
from darrm.table.table import Table, certify

QUERY = PrivacyParams(0.2676, 0.0003)


def bernoulli_profile(p: float, q: float, points: int = 33) -> PrivacyProfile:
    """The exact profile of a mechanism that answers 1 with probability p or q, both ways round."""

    def delta(epsilon: float) -> float:
        x = math.exp(epsilon)
        one_way = max(0.0, p - x * q) + max(0.0, 1.0 - p - x * (1.0 - q))
        other_way = max(0.0, q - x * p) + max(0.0, 1.0 - q - x * (1.0 - p))
        return max(one_way, other_way)

    grid = np.linspace(0.0, 1.5, points).tolist()
    return PrivacyProfile(tuple(grid), tuple(map(delta, grid)))


KINDS = {
    "guarantee": PrivacyCost("a", guarantee=QUERY),
    "pure": PrivacyCost("a", guarantee=PrivacyParams(0.1, 0)),
    "renyi": PrivacyCost("a", renyi=RenyiCurve.of(lambda order: order / 800.0)),
    "profile": PrivacyCost("a", profile=bernoulli_profile(0.5, 0.4)),
    "both": PrivacyCost("a", guarantee=PrivacyParams(0.2, 0), renyi=RenyiCurve.from_pure(0.2)),
    "all": PrivacyCost(
        "a", guarantee=PrivacyParams(0.5, 0), renyi=RenyiCurve.from_pure(0.5), profile=bernoulli_profile(0.5, 0.4)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_n_charges_equal_one_charge_repeated(kind: str) -> None:
    cost, n = KINDS[kind], 12
    one_by_one, at_once, in_lots = PrivacyAccountant(), PrivacyAccountant(), PrivacyAccountant()
    for _ in range(n):
        one_by_one.add(cost)
    at_once.add(cost.repeat(n))
    for size in (5, 3, 4):
        in_lots.add(cost.repeat(size))
    assert one_by_one.spent(0.01) == at_once.spent(0.01) == in_lots.spent(0.01)
    assert one_by_one.queries == at_once.queries == n
    # and repeating costs more: a bound that forgot the count would not
    once = PrivacyAccountant(costs=[cost]).spent(0.01)
    spent = at_once.spent(0.01)
    assert spent.epsilon > 1.5 * once.epsilon
    for bound in spent.bounds:
        alone = next((other.epsilon for other in once.bounds if other.name == bound.name), None)
        assert alone is None or bound.epsilon > alone, bound.name


def test_words_make_no_kind() -> None:
    accountant = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=QUERY), PrivacyCost("b", guarantee=QUERY)])
    assert len(accountant.costs) == 1
    assert accountant.costs[0].count == 2


def test_the_bounds_are_the_compositions() -> None:
    spent = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=QUERY, count=50)]).spent(0.0151)
    found = {bound.name: bound.epsilon for bound in spent.bounds}
    assert found["optimal"] == compose_optimal(QUERY, 50, 0.0151).epsilon
    assert found["simple"] == pytest.approx(50 * 0.2676)
    slack = 1.0 - (1.0 - 0.0151) / (1.0 - 0.0003) ** 50
    assert found["general"] == pytest.approx(compose_general(QUERY, 50, slack).epsilon, rel=1e-9)
    assert found["pld"] == pytest.approx(found["optimal"], rel=1e-6)
    assert found["pld"] >= found["optimal"]
    assert spent.bound == "optimal"
    assert [bound.epsilon for bound in spent.bounds] == sorted(found.values())
    assert "by optimal" in str(spent)


def product_delta(pairs: list[tuple[float, float]], epsilon: float) -> float:
    """Hockey-stick divergence of independent Bernoulli answers, over all outcomes."""
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=len(pairs)):
        p = math.prod(a if bit else 1.0 - a for bit, (a, _) in zip(outcome, pairs, strict=True))
        q = math.prod(b if bit else 1.0 - b for bit, (_, b) in zip(outcome, pairs, strict=True))
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


@pytest.mark.parametrize("delta", [1e-4, 0.02, 0.2])
def test_profile_bounds_cover_every_adversary(delta: float) -> None:
    # neighbors may answer (0.5, 0.4), (0.4, 0.5), (0.5, 0.6), … at each query: all have this profile or a smaller one
    moves = [(0.5, 0.4), (0.4, 0.5), (0.6, 0.5), (0.5, 0.6)]
    accountant = PrivacyAccountant(costs=[PrivacyCost("a", profile=bernoulli_profile(0.5, 0.4), count=4)])
    spent = accountant.spent(delta)
    assert {bound.name for bound in spent.bounds} >= {"profile", "pld"}
    for bound in spent.bounds:
        worst = max(product_delta(list(pairs), bound.epsilon) for pairs in itertools.product(moves, repeat=4))
        assert worst <= delta * (1.0 + 1e-9), bound


def test_the_dominating_pair_has_the_profile() -> None:
    profile = bernoulli_profile(0.5, 0.4, points=9)
    losses, first, infinite = dominating_atoms(profile)
    assert first.sum() + infinite == pytest.approx(1.0, abs=1e-12)
    for epsilon in np.linspace(0.0, 2.0, 41):
        divergence = infinite + float(np.sum(first * np.maximum(0.0, 1.0 - np.exp(epsilon - losses))))
        assert divergence == pytest.approx(profile.delta_at(float(epsilon)), abs=1e-12)


def test_a_guarantee_is_confessing_randomised_response() -> None:
    profile = get_profile(PrivacyCost("a", guarantee=PrivacyParams(math.log(3), 0.1)))
    losses, first, infinite = dominating_atoms(profile)
    assert losses == pytest.approx([-math.log(3), math.log(3)])
    assert [*first, infinite] == pytest.approx([0.9 * 0.25, 0.9 * 0.75, 0.1])
    assert get_profile(PrivacyCost("a", guarantee=PrivacyParams(0, 0.1))).deltas == (0.1,)


@pytest.mark.parametrize("step", [0.01, 0.046875, 0.1, 0.7, 2.0])
def test_a_coarser_grid_lies_above(step: float) -> None:
    profile = bernoulli_profile(0.5, 0.4)
    coarse = on_grid(profile, step)
    multiples = np.array(coarse.epsilons) / step
    assert multiples == pytest.approx(np.round(multiples), abs=1e-9)
    assert coarse.epsilons[-1] >= profile.epsilons[-1] * (1.0 - 1e-9)
    for epsilon in np.linspace(0.0, 1.6, 200):
        assert coarse.delta_at(float(epsilon)) >= profile.delta_at(float(epsilon)) - 1e-13
    if step <= 0.1:
        assert coarse.deltas[0] == profile.deltas[0]
        assert coarse.delta_at(0.1) == pytest.approx(profile.delta_at(0.1), abs=3e-4)


def test_many_queries_keep_the_gain_of_the_profile() -> None:
    cost = PrivacyCost("a", guarantee=PrivacyParams(0.5, 0), profile=bernoulli_profile(0.5, 0.4), count=100_000)
    found = {bound.name: bound.epsilon for bound in PrivacyAccountant(costs=[cost]).spent(1e-5).bounds}
    assert found["pld"] < 0.5 * found["optimal"]


def test_several_kinds_by_every_bound() -> None:
    costs = [
        PrivacyCost("a", guarantee=QUERY, count=20),
        PrivacyCost("b", guarantee=PrivacyParams(0.1, 1e-5), count=30),
        PrivacyCost("c", guarantee=PrivacyParams(0.5, 0), renyi=RenyiCurve.from_pure(0.5), count=2),
    ]
    spent = PrivacyAccountant(costs=costs).spent(0.01)
    found = {bound.name: bound.epsilon for bound in spent.bounds}
    assert set(found) == {"simple", "general", "optimal", "renyi", "pld"}
    # nothing that holds for all such mechanisms can be below the optimal composition
    assert min(found.values()) == found["optimal"]
    assert found["pld"] == pytest.approx(found["optimal"], rel=0.02)


def test_renyi_sets_the_deltas_aside() -> None:
    curve = RenyiCurve.of(lambda order: order / 800.0)
    mixed = [PrivacyCost("a", renyi=curve, count=5), PrivacyCost("b", guarantee=PrivacyParams(0.01, 0.004), count=2)]
    accountant = PrivacyAccountant(costs=mixed)
    assert [bound.name for bound in accountant.spent(0.01).bounds] == ["renyi"]
    left = 1.0 - (1.0 - 0.01) / (1.0 - 0.004) ** 2
    total = curve.repeat(5) + RenyiCurve.from_pure(0.01).repeat(2)
    assert accountant.spent(0.01).epsilon == pytest.approx(total.best(left).epsilon, rel=1e-9)
    assert accountant.spent(0.007).bound == "none"
    assert "no finite epsilon" in str(accountant.spent(0.007))


def test_nothing_and_too_little() -> None:
    assert PrivacyAccountant().spent(0.0).epsilon == 0.0
    assert "nothing spent" in str(PrivacyAccountant().spent(0.1))
    spent = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=QUERY)]).spent(1e-5)
    assert spent.epsilon == math.inf
    assert spent.bounds == ()
    assert not PrivacyAccountant(costs=[PrivacyCost("a", guarantee=QUERY)]).admits(PrivacyParams(10, 1e-5))


@pytest.mark.parametrize("reached", [1, 2, 11])
def test_the_cap_of_private_models(reached: int) -> None:
    each = PrivacyParams(0.0892, 1e-4)
    voters = Voters(11, each, overlap=reached, models=True)
    spent = PrivacyAccountant(voters, [PrivacyCost("a", guarantee=QUERY, count=10_000)]).spent(0.01)
    assert spent.bound == "private models"
    assert spent.epsilon == pytest.approx(compose_optimal(each, reached, 0.01).epsilon)
    assert "post-processing of models that are already private" in spent.explanation
    assert ("one model" in spent.explanation) == (reached == 1)


def test_the_cap_is_never_applied_unasked() -> None:
    each = PrivacyParams(0.0892, 1e-4)
    for voters in (None, Voters(11, each), Voters(11, each, overlap=1)):
        spent = PrivacyAccountant(voters, [PrivacyCost("a", guarantee=QUERY, count=100)]).spent(0.05)
        assert "private models" not in {bound.name for bound in spent.bounds}


def test_the_cap_does_not_hide_a_smaller_bound() -> None:
    voters = Voters(11, PrivacyParams(5.0, 1e-4), models=True)
    spent = PrivacyAccountant(voters, [PrivacyCost("a", guarantee=QUERY)]).spent(0.01)
    assert spent.bound == "optimal"
    assert models_bound(voters, 1e-5) is None


@pytest.mark.parametrize("kind", KINDS)
def test_queries_that_fit(kind: str) -> None:
    cost, budget = KINDS[kind], PrivacyParams(2.0, 0.01)
    accountant = PrivacyAccountant(costs=[cost])
    fit = accountant.queries_that_fit(cost, budget, most=5000)
    assert 1 <= fit < 5000
    assert PrivacyAccountant(costs=[cost.repeat(1 + fit)]).admits(budget)
    assert not PrivacyAccountant(costs=[cost.repeat(2 + fit)]).admits(budget)
    assert PrivacyAccountant(costs=[cost.repeat(1 + fit)]).spent(0.01).epsilon <= 2.0


def test_adaptive_kinds_cost_more() -> None:
    accountant = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=PrivacyParams(0.1, 1e-5), count=100)])
    spent = accountant.spent(0.01, adaptive=True)
    # half of δ is set aside; by squares, [WRRW23, Theorem 1], 0.5 + √(2·log 200) = 3.755
    assert accountant.spent(0.01).epsilon < spent.epsilon < 2.98
    assert accountant.admits(PrivacyParams(2.98, 0.01), adaptive=True)
    assert not accountant.admits(PrivacyParams(2.97, 0.01), adaptive=True)
    assert accountant.admits(PrivacyParams(2.97, 0.01))
    # the queries' own deltas pass half of 0.0019
    assert accountant.spent(0.0019, adaptive=True).bound == "none"
    curve = PrivacyAccountant(costs=[KINDS["renyi"]])
    assert curve.spent(0.01, adaptive=True).epsilon >= curve.spent(0.005).epsilon
    assert PrivacyAccountant(costs=[KINDS["pure"]]).spent(0.0, adaptive=True).bound == "simple"


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: PrivacyCost("a"), "at least one of"),
        (lambda: PrivacyCost("a", guarantee=QUERY, count=0), "count"),
        (lambda: PrivacyCost("a", guarantee=QUERY).repeat(0), "times"),
        (lambda: Voters(0, QUERY), "K"),
        (lambda: Voters(3, QUERY, models="False"), "models must be True or False, got 'False'"),  # type: ignore[arg-type]
        (
            lambda: Voters.from_json({"K": 3, "each": QUERY.to_json(), "models": "false"}),
            "models must be True or False",
        ),
        (lambda: PrivacyAccountant().spent(1.0), "delta"),
        (lambda: PrivacyAccountant().spent(math.nan), "delta"),
        (lambda: PrivacyProfile((), ()), "at least one"),
        (lambda: PrivacyProfile((0.0, 0.1), (0.1,)), "as many"),
        (lambda: PrivacyProfile((0.1, 0.2), (0.1, 0.0)), "from 0"),
        (lambda: PrivacyProfile((0.0, 0.0), (0.1, 0.0)), "strictly"),
        (lambda: PrivacyProfile((0.0, 0.1), (0.1, 0.2)), "non-increasing"),
        (lambda: PrivacyProfile((0.0,), (math.nan,)), "non-increasing"),
        (lambda: PrivacyProfile((0.0, 800.0), (0.1, 0.0)), "at most 700"),
    ],
)
def test_bad_arguments(make: Callable[[], object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        make()


def test_profile_inverts() -> None:
    profile = bernoulli_profile(0.5, 0.4)
    for delta in (1e-3, 0.02, 0.05):
        epsilon = profile.epsilon_at(delta)
        assert profile.delta_at(epsilon) <= delta * (1.0 + 1e-12)
        assert profile.delta_at(epsilon - 1e-6) > delta
    assert profile.epsilon_at(0.2) == 0.0
    assert profile.epsilon_at(0.0) == pytest.approx(math.log(0.5 / 0.4), abs=0.1)
    assert PrivacyProfile((0.0,), (0.3,)).epsilon_at(0.2) == math.inf


def test_a_budget_can_be_used_up_exactly() -> None:
    cost = PrivacyCost("a", guarantee=PrivacyParams("0.3", "1e-6"))
    for adaptive, delta in ((False, "2e-6"), (True, "4e-6")):
        account = PrivacyAccountant(costs=[cost.repeat(2)])
        assert account.admits(PrivacyParams("0.6", delta), adaptive=adaptive)
        assert not account.admits(PrivacyParams("0.599999999", delta), adaptive=adaptive)
        assert not account.admits(PrivacyParams("0.6", "1.9e-6"), adaptive=adaptive)
    # half of δ is the slack of the filter, so the queries' own deltas may not use it
    assert not account.admits(PrivacyParams("0.6", "3e-6"), adaptive=True)


def table_of(voters: Voters, half: list[float], m: float = 1) -> Table:
    return certify(Problem.from_allowance(voters, m), NoiseFunction(voters.K, half))


@pytest.mark.parametrize(
    "cost",
    [
        GNMax(40.0).privacy_cost(100),
        ConfidentGNMax(200, 40.0, 40.0).privacy_cost(100),
        InteractiveGNMax(100, 40.0, 40.0, 0.9).with_scores([[0.5, 0.5]]).privacy_cost(),
        describe_cost(
            certify(
                Problem(Voters(250, PrivacyParams("inf"), overlap=1), PrivacyParams("0.3")),
                NoiseFunction(250, [0.1] * 125),
            ),
            3,
            exact=False,
        ),
    ],
    ids=lambda cost: cost.what[:9],
)
def test_a_charge_is_refused_for_people_who_reach_more_voters(cost: PrivacyCost) -> None:
    one, two = (Voters(250, PrivacyParams("inf"), overlap=reached) for reached in (1, 2))
    assert cost.reached == 1
    # the reach is no part of the cost: a stored charge keeps its text, and kinds are counted as before
    assert "reached" not in cost.to_text()
    assert PrivacyCost.from_text(cost.to_text(), what="a") == cost.kind
    assert PrivacyAccountant(one, [cost]).spent(0.01) == PrivacyAccountant(costs=[cost]).spent(0.01)
    for voters in (two, Voters(250, PrivacyParams("inf"))):
        with pytest.raises(ValueError, match=f"at most 1 of the voters.* reaches {voters.reached}: charge a release"):
            PrivacyAccountant(voters, [cost])
        accountant = PrivacyAccountant(voters)
        with pytest.raises(ValueError, match="reaches"):
            accountant.queries_that_fit(cost, PrivacyParams(1, 0.01), most=10)
        assert accountant.queries == 0


def test_a_table_is_charged_for_the_overlap_it_was_proved_for() -> None:
    voters = Voters(11, PrivacyParams("0.1", "1e-5"), overlap=3)
    cost = describe_cost(table_of(voters, [0.1] * 6), exact=False)
    assert cost.reached == 3
    for overlap in (1, 3):
        assert PrivacyAccountant(replace(voters, overlap=overlap), [cost]).queries == 1
    with pytest.raises(ValueError, match="reaches 11"):
        PrivacyAccountant(replace(voters, overlap=11, models=True), [cost])
    with pytest.raises(ValueError, match="reached must be an integer of at least 1, got 0"):
        PrivacyCost("a", guarantee=QUERY, reached=0)


MODELS = Voters(3, PrivacyParams("0.1"), models=True)


def test_nothing_adds_up_beside_private_models() -> None:
    cost = describe_cost(table_of(MODELS, [1.0, 1 / 3]))
    assert PrivacyAccountant(costs=[cost, PrivacyCost("b", guarantee=QUERY)]).spent(0.01).bound == "none"
    # voters that were declared private models: no charge adds up, whatever it says of itself
    spent = PrivacyAccountant(MODELS, [PrivacyCost("b", guarantee=PrivacyParams("0.001"), count=2)]).spent(0.01)
    assert [bound.name for bound in spent.bounds] == ["private models"]
    other = describe_cost(table_of(replace(MODELS, K=5), [0.1, 0.2, 0.3]))
    assert PrivacyAccountant(costs=[cost, other]).spent(0.01).bound == "none"
    with pytest.raises(ValueError, match="charged for other models"):
        PrivacyAccountant(MODELS, [cost, other])
    # models that are not private themselves: the release does not rest on their randomness
    plain = Voters(3, PrivacyParams("inf"), models=True)
    assert PrivacyAccountant(plain, [PrivacyCost("b", guarantee=QUERY, count=2)]).spent(0.01).bound == "optimal"
    assert not describe_cost(certify(Problem(plain, PrivacyParams(1)), NoiseFunction(3, [0.1, 0.2]))).non_composable


def test_one_query_of_private_models_keeps_its_bounds() -> None:
    cost = describe_cost(table_of(MODELS, [1.0, 1 / 3]))
    fresh = describe_cost(table_of(replace(MODELS, models=False), [1.0, 1 / 3]))
    spent = PrivacyAccountant(costs=[cost]).spent(1e-3)
    assert set(PrivacyAccountant(costs=[fresh]).spent(1e-3).bounds) < set(spent.bounds)
    assert PrivacyAccountant(MODELS, [fresh]).spent(1e-3).epsilon == pytest.approx(spent.epsilon)
    assert PrivacyAccountant(costs=[cost]).spent(0.0, adaptive=True).epsilon == pytest.approx(0.1)
    assert {bound.name for bound in PrivacyAccountant(MODELS, [cost]).spent(1e-3).bounds} > {
        "simple",
        "profile",
        "private models",
    }
    assert PrivacyAccountant(costs=[cost]).admits(PrivacyParams("0.1"))


def test_stored_charges_keep_their_models() -> None:
    cost = describe_cost(table_of(MODELS, [0.5, 1 / 3]))
    again = PrivacyCost.from_text(cost.to_text(), what="a")
    assert again == cost
    assert (again.models, again.non_composable) == (MODELS, True)
    assert again.with_non_private_voters(2) == cost.with_non_private_voters(2) is not None
    assert cost != describe_cost(table_of(replace(MODELS, overlap=1), [0.5, 1 / 3]))
    assert '"composes":false' in cost.to_text()  # an older release that reads it adds nothing up
    assert "composes" not in PrivacyCost("a", guarantee=QUERY).to_text()
    for changed, word in (
        ("false", '"false"'),
        ('"plain":[[1,', '"plain":[[0,'),
        ('"voters":{', '"voters":{"x":0,"K":0,'),
    ):
        with pytest.raises(ValueError, match=r"composes|overlap|K must|stored cost"):
            PrivacyCost.from_text(cost.to_text().replace(changed, word).replace('"K":3,', ""), what="a")
    plain = cost.for_non_private_voters[0]
    with pytest.raises(ValueError, match="for_non_private_voters must contain"):
        PrivacyCost("a", guarantee=QUERY, for_non_private_voters=(plain,))
    with pytest.raises(ValueError, match="for_non_private_voters must contain"):
        PrivacyCost("a", guarantee=QUERY, voters=MODELS, for_non_private_voters=(cost,))


def test_a_delta_that_is_too_small_names_the_one_that_is_needed() -> None:
    for count in (1, 20, 50):
        account = PrivacyAccountant(costs=[PrivacyCost("a", guarantee=QUERY, count=count)])
        spent = account.spent(1e-6)
        found = re.fullmatch(r"a delta of at least (\S+) is needed", spent.explanation)
        assert found is not None
        assert spent.epsilon == account.spent(0.66 * float(found[1])).epsilon == math.inf
        assert account.spent(float(found[1])).epsilon < math.inf


def test_what_fits_is_counted_where_more_is_beyond_every_grid() -> None:
    noisy = NoisyMaximum(ExponentialMechanism(700), Voters(9, PrivacyParams("inf"), overlap=1), 3)
    budget = PrivacyParams(700, 0)
    assert PrivacyAccountant().queries_that_fit(noisy.privacy_cost(), budget, most=10**6) == 1
    assert PrivacyAccountant().queries_that_fit(noisy.privacy_cost(), budget, most=1) == 1


def test_a_grid_that_would_end_beyond_every_profile_is_no_bound() -> None:
    # a million losses of up to 600 need cells of 572: the second begins below 700 and ends above
    profile = PrivacyProfile((0.0, 300.0, 600.0), (0.5, 0.1, 0.0))
    for count, within in ((3_000, True), (10**6, False)):
        account = (PrivacyCost("a", profile=profile, count=count),)
        assert (discretized_bound(account, 1e-5) is not None) == within
    assert PrivacyAccountant(costs=account).spent(1e-5).epsilon == math.inf
