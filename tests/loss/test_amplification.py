"""Costs of voters that resample their examples, against every sample that small ensembles can draw."""

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyAccountant, PrivacyParams, Problem, Release, Table, Voters, certify
from darrm.account.bounds import _compose_on_grid
from darrm.loss.amplification import amplify, amplify_profile, amplify_pure, subsampled_curve
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.plurality.plurality_law import PluralityLaw
from darrm.subsampling import Subsampling
from tests.noisy_max.oracles import divergences, histograms, hockey_stick, neighbors, selection_law

LabelLaw = Callable[[tuple[int, ...]], Array]  # of a histogram of the votes
VoterLaw = Callable[[int, tuple[int, ...]], int]  # a voter and the people in its sample → its vote
ORDERS = (1.25, 2.0, 4.0, 6.0)
TENTH = Subsampling(Fraction(1, 10))
NON_PRIVATE = PrivacyParams("inf")


def list_poisson_samples(people: int, K: int, rate: float) -> Iterator[tuple[float, tuple[int, ...]]]:
    """List the voter of each person, or K without one, with its probability."""
    chances = [rate / K] * K + [1.0 - rate]
    for voters in itertools.product(range(K + 1), repeat=people):
        yield math.prod(chances[voter] for voter in voters), voters


def list_fixed_samples(people: int, K: int, size: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """List samples without replacement, dealt to the voters one after another."""
    orders = list(itertools.permutations(range(people), size))
    for order in orders:
        voters = [K] * people
        for place, person in enumerate(order):
            voters[person] = place % K
        yield 1.0 / len(orders), tuple(voters)


def compute_law(
    samples: Iterator[tuple[float, tuple[int, ...]]], K: int, vote: VoterLaw, label: LabelLaw, C: int
) -> Array:
    """Compute the law of one label over all samples."""
    total = np.zeros(C)
    for chance, voters in samples:
        members = [tuple(person for person, voter in enumerate(voters) if voter == k) for k in range(K)]
        votes = [vote(k, group) for k, group in enumerate(members)]
        total += chance * label(tuple(votes.count(c) for c in range(C)))
    return total


def draw_voters(rng: np.random.Generator, C: int) -> VoterLaw:
    votes: dict[tuple[int, tuple[int, ...]], int] = {}
    return lambda k, members: votes.setdefault((k, members), int(rng.integers(C)))


def compute_delta(P: Array, Q: Array, epsilon: float) -> float:
    return max(hockey_stick(P, Q, epsilon), hockey_stick(Q, P, epsilon))


@cache
def gnmax_law(sigma: float) -> LabelLaw:
    return cache(lambda counts: winning_probabilities(DiscreteGaussian(sigma), np.array([counts]))[0])


def label_cost(mechanism: Mechanism, K: int, C: int, sampled: Subsampling, overlap: int = 1) -> PrivacyCost:
    return NoisyMaximum(mechanism, Voters(K, NON_PRIVATE, overlap, sampled=sampled), C).privacy_cost()


def check(cost: PrivacyCost, P: Array, Q: Array) -> float:
    """Check both directions of one label, and return the share of the bound on δ(0) that is attained."""
    profile = cost.profile
    assert profile is not None
    for epsilon in (0.0, 0.02, 0.1, 0.4, 1.0):
        assert compute_delta(P, Q, epsilon) <= profile.delta_at(epsilon) * (1.0 + 1e-9) + 1e-15
    if cost.renyi is not None:
        for order in ORDERS:
            bound = float(cost.renyi.values[cost.renyi.orders == order][0])
            worst = max(divergences(P, Q, np.array([order]))[0], divergences(Q, P, np.array([order]))[0])
            assert worst <= bound * (1.0 + 1e-7) + 1e-13, order
    return hockey_stick(P, Q, 0.0) / profile.delta_at(0.0)


# one label, over all samples


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("scheme", "C", "sigma", "records"),
    [
        *(("fixed", 2, 0.8, 1), ("poisson", 2, 0.7, 1), ("poisson", 2, 0.9, 2)),
        *(("poisson", C, sigma, records) for C, sigma, records in ((2, 1.5, 1), (3, 0.7, 1), (3, 1.5, 1), (3, 0.9, 2))),
    ],
)
def test_no_sample_costs_more_than_the_cost(scheme: str, C: int, sigma: float, records: int) -> None:
    rng, is_poisson = np.random.default_rng(C), scheme == "poisson"
    K, rate = (3, Fraction(1, 10)) if is_poisson else (2, Fraction(1, 2))
    cost = label_cost(GNMax(sigma, reached=records), K, C, Subsampling(rate, scheme, records=records), records)
    for people in 6 * (records, records + 1, 4):
        vote = draw_voters(rng, C)

        def vote_of_neighbor(k: int, members: tuple[int, ...], vote: VoterLaw = vote) -> int:
            another = () if is_poisson else (9,) * (0 in members)
            return vote(k, (*another, *(person for person in members if person >= records)))

        laws = [
            compute_law(
                list_poisson_samples(people, K, 0.1) if is_poisson else list_fixed_samples(4, K, 2),
                *(K, voters, gnmax_law(sigma), C),
            )
            for voters in (vote, vote_of_neighbor)
        ]
        check(cost, *laws)


def test_equal_parts_of_a_sample_break_the_promise() -> None:
    # each drawn person takes the next place, so one person moves all those behind to other prompts
    K, people, sigma, rate = 3, 4, 4.0, 0.9
    cost = label_cost(GNMax(sigma), K, 2, Subsampling(Fraction(9, 10)))

    def compute_law_of_parts(present: range) -> Array:
        total = np.zeros(2)
        for coins in itertools.product((0, 1), repeat=people):
            sample = [person for person in present if coins[person]]
            votes = [int(any(person == k + 1 for person in sample[k::K])) for k in range(K)]
            chance = math.prod(rate if coin else 1.0 - rate for coin in coins)
            total += chance * gnmax_law(sigma)((K - sum(votes), sum(votes)))
        return total

    with pytest.raises(AssertionError):
        check(cost, compute_law_of_parts(range(people)), compute_law_of_parts(range(1, people)))


MECHANISMS = [GNMax(0.6), GNMax(2.5), LNMax(0.4), LNMax(2.0), ExponentialMechanism(2.0), PermuteAndFlip(1.5)]


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(("K", "C"), [(5, 2), (4, 3), (3, 4)])
@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_no_pair_of_histograms_costs_more_than_the_cost(mechanism: Mechanism, scheme: str, K: int, C: int) -> None:
    def compute_label(counts: tuple[int, ...]) -> Array:
        if isinstance(mechanism, ExponentialMechanism | PermuteAndFlip):
            return selection_law(mechanism, counts)
        return winning_probabilities(mechanism.law, np.array([counts]))[0]

    q, attained = 0.05, []
    cost = label_cost(mechanism, K, C, Subsampling(Fraction(1, 20), scheme))
    laws = {counts: compute_label(counts) for counts in histograms(K, C)}
    for counts, without in laws.items():
        moves = neighbors(counts)
        for moved in moves[:4]:
            mixture = (1.0 - q) * without + q * laws[moved]
            others = [counts]
            if scheme == "fixed":
                others += [other for other in moves if sum(map(abs, np.subtract(moved, other))) <= 2]
            attained += [check(cost, mixture, (1.0 - q) * without + q * laws[other]) for other in others]
    # permute-and-flip is known to be (ε, 0)-private, and no more
    assert (1.0 - 1e-6 if C == 2 and isinstance(mechanism, GNMax) else 0.4) <= max(attained) <= 1.0 + 1e-9


def test_a_table_is_proved_for_drawn_people_and_costs_their_rate() -> None:
    voters = Voters(5, NON_PRIVATE, overlap=1, sampled=Subsampling(Fraction(1, 50)))
    problem = Problem(voters, PrivacyParams("0.02", "1e-6"))
    table = certify(problem, NoiseFunction(5, [1.0, 1.0, 1.0]))
    assert table.certificate == certify(problem.conditional_on_inclusion, NoiseFunction(5, [1.0, 1.0, 1.0])).certificate
    assert Table.from_json(table.to_json()).digest == table.digest
    cost = Release(table).privacy_cost(1)
    assert cost.guarantee == problem.target
    one, attained = 0.5 + 0.5 * table.gamma.signed, []
    for x, y in [*itertools.pairwise(one), *itertools.pairwise(one[::-1])]:
        without, moved = np.array([x, 1.0 - x]), np.array([y, 1.0 - y])
        mixture = 0.98 * without + 0.02 * moved
        attained.append(check(cost, mixture, without))
        assert hockey_stick(mixture, without, 0.02) <= 1e-6
    assert max(attained) == pytest.approx(1.0, abs=1e-6)


def test_a_plurality_table_costs_the_rate_of_drawn_people() -> None:
    voters = Voters(2, NON_PRIVATE, overlap=1, sampled=Subsampling(Fraction(1, 50)))
    law = PluralityLaw.from_probabilities(2, 3, [0.9, 0.05, 0.45, 0.1])
    table = certify(Problem(voters, PrivacyParams("0.3", "1e-2"), classes=3), law)
    cost = Release(table).privacy_cost(1)
    agreed, divided = table.plurality.probabilities(np.array([[2, 0, 0], [1, 1, 0]]))
    pairs = [(agreed, divided), (divided, agreed), (divided, divided[[0, 2, 1]])]
    attained = [check(cost, 0.98 * without + 0.02 * moved, without) for without, moved in pairs]
    assert max(attained) == pytest.approx(1.0, abs=1e-6)


# several labels


@pytest.mark.parametrize("C", [2, 3])
def test_no_three_queries_cost_more_than_their_sum(C: int) -> None:
    q, sigma, queries = 0.2, 0.8, 3
    rest = [0] * (C - 2)
    moves = [((2, 1, *rest), (1, 2, *rest)), ((3, 0, *rest), (2, 1, *rest)), ((1, 2, *rest), (2, 1, *rest))]
    laws = [(gnmax_law(sigma)(before), gnmax_law(sigma)(after)) for before, after in moves]
    account = PrivacyAccountant(costs=[label_cost(GNMax(sigma), 3, C, Subsampling(Fraction(1, 5))).repeat(queries)])
    bounds = [(delta, bound) for delta in (1e-3, 1e-2, 0.1) for bound in account.spent(delta).bounds]
    assert {"pld", "renyi"} <= {bound.name for _, bound in bounds}
    for chosen in itertools.product(laws, repeat=queries):
        absent, present = np.ones(1), np.ones(1)
        for before, after in chosen:
            absent = np.outer(absent, before).ravel()
            present = np.outer(present, (1.0 - q) * before + q * after).ravel()
        assert all(compute_delta(present, absent, bound.epsilon) <= delta * (1.0 + 1e-9) for delta, bound in bounds)


def compute_pld(cost: PrivacyCost, delta: float) -> float:
    return next(bound.epsilon for bound in PrivacyAccountant(costs=[cost]).spent(delta).bounds if bound.name == "pld")


@pytest.mark.parametrize(("epsilon", "queries", "delta"), [(0.5, 2, 0.1), (2.0, 3, 0.5)])
def test_a_sum_of_random_bits_covers_both_directions_closely(epsilon: float, queries: int, delta: float) -> None:
    lie = 1.0 / (1.0 + math.exp(epsilon))
    before, after = np.array([1.0 - lie, lie]), np.array([lie, 1.0 - lie])
    absent, present = np.ones(1), np.ones(1)
    for _ in range(queries):
        absent, present = np.outer(absent, before).ravel(), np.outer(present, 0.5 * before + 0.5 * after).ravel()
    cost = amplify(PrivacyCost("bit", PrivacyParams(epsilon)), Subsampling(Fraction(1, 2)), None)
    bound = compute_pld(cost.repeat(queries), delta)
    assert compute_delta(present, absent, bound) <= delta
    assert compute_delta(present, absent, 0.95 * bound) > delta


def test_a_sum_counts_the_direction_that_costs_more() -> None:
    # of wide noise the direction towards the person costs 1.017 times the other
    cost = label_cost(GNMax(7.0), 25, 2, Subsampling(Fraction(1, 100)))
    assert cost.profile is not None
    sides = [_compose_on_grid(((cost.profile, 1000),), 1e-4, side).smallest_epsilon(1e-5) for side in (0, 1)]
    assert sides[0] != sides[1]
    assert compute_pld(cost.repeat(1000), 1e-5) >= max(sides) * (1.0 - 1e-9)


@pytest.mark.slow
def test_rare_samples_are_added_on_a_coarser_grid() -> None:
    # of a thousand answers one is influenced with a probability below δ
    cost = label_cost(GNMax(1.0), 25, 2, Subsampling(Fraction(1, 10**9)))
    assert compute_pld(cost.repeat(1000), 1e-5) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "q", "queries"), [(4.0, "0.02", 400), (3.0, "0.005", 2000)])
def test_two_counts_cost_what_the_sampled_gaussian_costs(sigma: float, q: str, queries: int) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import pld_privacy_accountant

    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    reference = pld_privacy_accountant.PLDAccountant(relation, value_discretization_interval=1e-4)
    gaussian = dp_accounting.GaussianDpEvent(sigma / math.sqrt(2.0))
    reference.compose(dp_accounting.PoissonSampledDpEvent(float(q), gaussian), queries)
    # for three classes or more the profile is that of two noisy counts
    cost = label_cost(GNMax(sigma), 200, 3, Subsampling(Fraction(q)))
    assert compute_pld(cost.repeat(queries), 1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=0.01)


# profiles and pairs


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize("q", ["1e-4", "0.3", "0.99", "1"])
def test_amplified_profiles_are_those_of_mixtures(scheme: str, q: str) -> None:
    certain = profile_of_votes(np.log([0.3, 0.1, 0.02]), 5, 1)
    assert certain is not None
    profile, rate = amplify_profile(certain, Subsampling(Fraction(q), scheme)), float(q)
    one = [0.02, 0.1, 0.3, 0.7, 0.9, 0.98]
    for epsilon in np.linspace(0.0, profile.epsilons[-1], 23):
        forward = reverse = 0.0
        for x, y in [*itertools.pairwise(one), *itertools.pairwise(one[::-1])]:
            absent = np.array([x, 1.0 - x])
            mixture = (1.0 - rate) * absent + rate * np.array([y, 1.0 - y])
            forward = max(forward, hockey_stick(mixture, absent, epsilon))
            reverse = max(reverse, hockey_stick(absent, mixture, epsilon))
        assert profile.delta_at(epsilon) == pytest.approx(forward, abs=3e-12)
        if scheme == "poisson":
            bound = np.interp(math.exp(epsilon), np.exp(profile.epsilons), profile.reverse or ())
            assert bound == pytest.approx(reverse, abs=3e-12)


@pytest.mark.parametrize("q", ["0.9999999999999998", "0.99999", "0.999", "0.9989"])
def test_rates_near_one_keep_their_digits(q: str) -> None:
    certain = profile_of_votes(np.log([1.0 / (1.0 + math.exp(60.0))]), 1, 1)
    assert certain is not None
    profile = amplify_profile(certain, Subsampling(Fraction(q)))
    deltas = profile.deltas if profile.reverse is None else profile.reverse
    with mpmath.workdps(60):
        rate, lie = mpmath.mpf(q), 1 / (1 + mpmath.exp(60))
        for epsilon, (x, y) in itertools.product((0.5, 5.0, 12.0, 30.0, 36.0, 45.0), ((lie, 1 - lie), (1 - lie, lie))):
            exact = x - mpmath.exp(epsilon) * ((1 - rate) * x + rate * y)
            bound = float(np.interp(math.expm1(epsilon), np.expm1(profile.epsilons), deltas, right=deltas[-1]))
            assert exact <= bound * (1.0 + 1e-9) + 1e-15


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("rate", ["0.004", "0.3", "1/3"])
def test_points_of_an_amplified_profile_are_rounded_up(rate: str) -> None:
    # these ε have amplified values next to a number of few digits
    q, sampling = Fraction(rate), Subsampling(Fraction(rate))
    for target in range(10, 3000, 15):
        with mpmath.workdps(50):
            exact_rate = mpmath.mpf(q.numerator) / q.denominator
            near = float(mpmath.log1p(mpmath.expm1(mpmath.mpf(target) / 1000) / exact_rate))
            for epsilon in (near, float(np.nextafter(near, 9.0))):
                exact = mpmath.log1p(exact_rate * mpmath.expm1(mpmath.mpf(epsilon)))
                last = amplify_profile(PrivacyProfile((0.0, epsilon), (0.5, 0.0)), sampling).epsilons[-1]
                assert exact <= last <= exact * (1.0 + 3e-11)
                assert last == pytest.approx(float(f"{last:.12g}"), rel=3e-16)
                assert amplify_pure(epsilon, float(q)) >= exact
    for delta in (0.1, 0.3, 1e-5, 0.7):
        profile = amplify_profile(PrivacyProfile((0.0, 1.0), (0.9, delta)), sampling)
        assert profile.reverse is not None
        assert Fraction(profile.deltas[-1]) >= q * Fraction(delta)
        assert min(Fraction(profile.deltas[0]), Fraction(profile.reverse[0])) >= q * Fraction(0.9)


def test_the_reverse_direction_ends_at_the_probability_of_absence() -> None:
    pair = PrivacyProfile.from_pair(PrivacyParams(1, "0.1"))
    assert amplify_profile(pair, Subsampling(Fraction(1))).reverse == pytest.approx(pair.deltas, rel=1e-10)
    profile = amplify_profile(pair, TENTH)
    assert profile.reverse is not None
    assert profile.deltas[-1] == pytest.approx(0.01)
    zeros = [epsilon for epsilon, delta in zip(profile.epsilons, profile.reverse, strict=True) if delta == 0.0]
    assert zeros[0] == pytest.approx(-math.log(0.9))


def test_an_amplified_pair_has_a_curve_only_if_it_is_pure() -> None:
    cost = amplify(PrivacyCost("label", PrivacyParams(1, "0.01")), TENTH, None)
    exact = math.log1p(0.1 * math.expm1(1.0))
    assert cost.guarantee is not None
    assert cost.guarantee.exact_delta == Fraction(1, 1000)
    assert exact <= cost.guarantee.epsilon <= exact * (1.0 + 1e-11)
    assert cost.renyi is None
    curve = amplify(PrivacyCost("label", PrivacyParams(1)), TENTH, None).renyi
    lie = 1.0 / (1.0 + math.e)
    absent, present = np.array([1.0 - lie, lie]), np.array([lie, 1.0 - lie])
    assert curve is not None
    for order in ORDERS:
        divergence = divergences(0.9 * absent + 0.1 * present, absent, np.array([order]))[0]
        assert divergence <= curve.values[curve.orders == order][0] <= 1.001 * exact


@pytest.mark.parametrize("q", ["1e-6", "0.004", "0.5", "1"])
@pytest.mark.parametrize("epsilon", ["1e-9", "0.01", "3", "600"])
def test_the_pair_conditional_on_inclusion_is_rounded_down(q: str, epsilon: str) -> None:
    certain = Subsampling(Fraction(q)).conditional_on_inclusion(PrivacyParams(epsilon, "1e-9"))
    with mpmath.workdps(400):
        exact = mpmath.log(1 + (mpmath.exp(mpmath.mpf(epsilon)) - 1) / mpmath.mpf(q))
        value = mpmath.mpf(certain.exact_epsilon.numerator) / certain.exact_epsilon.denominator
        assert 0 < value <= exact
        assert (exact - value) / exact < mpmath.mpf("1e-25")
    assert certain.exact_delta == min(Fraction("1e-9") / Fraction(q), 1 - Fraction(1, 2**53))


# curves


def test_a_curve_bounds_ratios_by_their_logarithms() -> None:
    # with the person an outcome has e^{−20}, without e^{−60}, and q = e^{−2}: (q·e^{40})^3·e^{−60} = e^{54}
    present = np.array([[-20.0, np.log1p(-math.exp(-20.0))]])
    curve = subsampled_curve(present, np.array([[-60.0, 0.0]]), math.exp(-2.0))
    assert curve.bound_at(3.0) == pytest.approx(54.0 / 2.0, rel=1e-6)


def test_a_curve_counts_the_direction_that_costs_more() -> None:
    absent, present, q = np.array([0.5, 0.5]), np.array([1e-3, 1.0 - 1e-3]), 0.9
    mixture = (1.0 - q) * absent + q * present
    curve = subsampled_curve(np.log(present), np.log(absent), q)
    for order in (2.0, 8.0):
        forward = float(np.sum(mixture**order * absent ** (1.0 - order)))
        reverse = float(np.sum(absent**order * mixture ** (1.0 - order)))
        assert 1.5 * forward < reverse
        assert reverse <= float(np.exp((order - 1.0) * curve.bound_at(order))) <= reverse * (1.0 + 1e-8)


@pytest.mark.parametrize("lies", [[0.2, 0.0], [0.0, 0.0]])
def test_an_answer_that_only_one_person_causes_has_an_infinite_curve(lies: list[float]) -> None:
    with np.errstate(divide="ignore"):
        assert np.all(np.isinf(curve_of_votes(np.log(lies), 3, 1, 0.01).values))
    rare = curve_of_votes(np.log([0.2, 1e-300]), 3, 1, 0.01)
    assert np.isfinite(rare.values[0])
    assert rare.values[-1] > 600.0


@pytest.mark.parametrize("K", [60, 61])
def test_leads_beyond_all_floats_add_nothing_to_a_curve(K: int) -> None:
    # at σ = 0.8 a lead of 50 is lost with probability e^{−900}
    few, many = (label_cost(GNMax(0.8), voters, 2, Subsampling(Fraction(1, 100))).renyi for voters in (K % 2 + 24, K))
    assert few is not None
    assert many is not None
    low = few.orders <= 8.0
    assert np.all(np.isfinite(many.values[low]))
    assert many.values[low] == pytest.approx(few.values[low], rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampled": "0"}, "the sampling rate must be in"),
        ({"sampled": "1e-400"}, "at least 1e-15"),
        ({"sampled": "1.5"}, "the sampling rate must be in"),
        ({"sampled": "often"}, "the sampling rate must be a finite number"),
        ({"sampled": "0.1", "models": True}, "no models"),
        ({"sampled": Subsampling(Fraction(1, 10), records=3), "overlap": 2}, "at least 3"),
        ({"sampled": "0.1", "each": PrivacyParams("0.1")}, "not private themselves"),
    ],
)
def test_voters_refuse_a_sampling(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Voters(5, **{"each": NON_PRIVATE, "overlap": 1, **changes})  # type: ignore[arg-type]
