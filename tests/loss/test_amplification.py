"""Costs of voters that draw their examples anew, against every sample that small ensembles can draw."""

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyAccountant, PrivacyParams, Problem, Release, Table, Voters, certify
from darrm.account.bounds import _compose_on_grid, on_grid
from darrm.loss.amplification import (
    amplify,
    amplify_profile,
    amplify_pure,
    subsampled_curve,
    subsampled_penalties,
)
from darrm.loss.privacy_cost import PrivacyCost
from darrm.loss.profile import PrivacyProfile
from darrm.loss.vote_counts import curve_of_votes, profile_of_votes
from darrm.noisy_max.label_cost import label_curve, two_class_errors
from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip, exponential_label_curve
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian, DiscreteLaplace
from darrm.plurality.plurality_law import PluralityLaw
from darrm.subsampling import Subsampling
from tests.noisy_max.oracles import divergences, histograms, hockey_stick, neighbors, selection_law

LabelLaw = Callable[[tuple[int, ...]], Array]  # of a histogram of the votes
VoterLaw = Callable[[int, tuple[int, ...]], int]  # a voter and who sits with him → his vote
ORDERS = (1.25, 2.0, 4.0, 6.0)


def seatings(people: int, K: int, rate: float) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Everybody is drawn by a coin of his own, and seated by himself; K is the place of who is not drawn."""
    chances = [rate / K] * K + [1.0 - rate]
    for seats in itertools.product(range(K + 1), repeat=people):
        yield math.prod(chances[seat] for seat in seats), seats


def deals(people: int, K: int, size: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """A sample of fixed size without replacement, dealt to the voters one after another."""
    orders = list(itertools.permutations(range(people), size))
    for order in orders:
        seats = [K] * people
        for place, person in enumerate(order):
            seats[person] = place % K
        yield 1.0 / len(orders), tuple(seats)


def law_of(draws: Iterator[tuple[float, tuple[int, ...]]], K: int, vote: VoterLaw, label: LabelLaw, C: int) -> Array:
    """The law of one label, added up over all that can be drawn."""
    total = np.zeros(C)
    for chance, seats in draws:
        votes = [vote(k, tuple(person for person, seat in enumerate(seats) if seat == k)) for k in range(K)]
        total += chance * label(tuple(votes.count(c) for c in range(C)))
    return total


def random_voters(rng: np.random.Generator, C: int) -> VoterLaw:
    votes: dict[tuple[int, tuple[int, ...]], int] = {}
    return lambda k, members: votes.setdefault((k, members), int(rng.integers(C)))


def either(P: Array, Q: Array, epsilon: float) -> float:
    return max(hockey_stick(P, Q, epsilon), hockey_stick(Q, P, epsilon))


def divergence(P: Array, Q: Array, order: float) -> float:
    return float(divergences(P, Q, np.array([order]))[0])


@cache
def gnmax(sigma: float) -> LabelLaw:
    return cache(lambda counts: winning_probabilities(DiscreteGaussian(sigma), np.array([counts]))[0])


def noisy(mechanism: Mechanism, K: int, C: int, sampled: Subsampling, overlap: int = 1) -> PrivacyCost:
    return NoisyMaximum(mechanism, Voters(K, PrivacyParams("inf"), overlap, sampled=sampled), C).privacy_cost()


def check(cost: PrivacyCost, P: Array, Q: Array) -> float:
    """Check both directions of one label, and return the largest part of a bound on δ(0) that is attained."""
    profile = cost.profile
    assert profile is not None
    for epsilon in (0.0, 0.02, 0.1, 0.4, 1.0):
        assert either(P, Q, epsilon) <= profile.delta_at(epsilon) * (1.0 + 1e-9) + 1e-15
    if cost.renyi is not None:
        for order in ORDERS:
            bound = float(cost.renyi.values[cost.renyi.orders == order][0])
            assert max(divergence(P, Q, order), divergence(Q, P, order)) <= bound * (1.0 + 1e-7) + 1e-13, order
    return hockey_stick(P, Q, 0.0) / profile.delta_at(0.0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_no_sample_costs_more_than_is_charged(C: int, sigma: float) -> None:
    rng = np.random.default_rng(C)
    K, sampled = 3, Subsampling(Fraction(1, 10))
    cost = noisy(GNMax(sigma), K, C, sampled)
    for people in (1, 2, 4):
        for _ in range(6):
            vote = random_voters(rng, C)
            with_him = law_of(seatings(people, K, 0.1), K, vote, gnmax(sigma), C)
            rest = lambda k, members, vote=vote: vote(k, tuple(person for person in members if person != 0))  # noqa: E731
            without = law_of(seatings(people, K, 0.1), K, rest, gnmax(sigma), C)
            check(cost, with_him, without)
    # alone, and turning every prompt that he sits in: the bound of the two classes is attained
    alone = law_of(seatings(1, K, 0.1), K, lambda k, members: int(bool(members) or k == 0), gnmax(sigma), C)
    nobody = gnmax(sigma)((2, 1, *[0] * (C - 2)))
    check(cost, alone, nobody)


def test_the_bound_of_two_classes_is_attained() -> None:
    K, q, sigma = 3, 0.1, 1.5
    cost = noisy(GNMax(sigma), K, 2, Subsampling(Fraction(1, 10)))
    before, after = gnmax(sigma)((2, 1)), gnmax(sigma)((1, 2))
    assert check(cost, (1.0 - q) * before + q * after, before) == pytest.approx(1.0, abs=1e-9)


def test_a_sample_of_fixed_size_costs_no_more_than_is_charged() -> None:
    rng = np.random.default_rng(3)
    K, people, size, sigma = 2, 4, 2, 0.8
    cost = noisy(GNMax(sigma), K, 2, Subsampling(Fraction(1, 2), "fixed"))
    assert cost.renyi is None
    for _ in range(12):
        vote = random_voters(rng, 2)
        law = law_of(deals(people, K, size), K, vote, gnmax(sigma), 2)
        other = lambda k, members, vote=vote: vote(k, tuple(9 if p == 0 else p for p in members))  # noqa: E731
        check(cost, law, law_of(deals(people, K, size), K, other, gnmax(sigma), 2))


def test_equal_parts_of_a_sample_break_the_promise() -> None:
    # whoever is drawn takes the next place: one person moves all those behind him to other prompts
    K, people, sigma, rate = 3, 4, 4.0, 0.9
    cost = noisy(GNMax(sigma), K, 2, Subsampling(Fraction(9, 10)))

    def cut(present: range) -> Array:
        total = np.zeros(2)
        for drawn in itertools.product((0, 1), repeat=people):
            sample = [person for person in present if drawn[person]]
            votes = [int(any(p == k + 1 for p in sample[k::K])) for k in range(K)]
            chance = math.prod(rate if yes else 1.0 - rate for yes in drawn)
            total += chance * gnmax(sigma)((K - sum(votes), sum(votes)))
        return total

    with pytest.raises(AssertionError):
        check(cost, cut(range(people)), cut(range(1, people)))


@pytest.mark.parametrize("C", [2, 3])
def test_several_questions_cost_no_more_than_their_sum(C: int) -> None:
    K, q, sigma, questions = 3, 0.2, 0.8, 3
    cost = noisy(GNMax(sigma), K, C, Subsampling(Fraction(1, 5)))
    rest = [0] * (C - 2)
    pairs = [((2, 1, *rest), (1, 2, *rest)), ((3, 0, *rest), (2, 1, *rest)), ((1, 2, *rest), (2, 1, *rest))]
    laws = [(gnmax(sigma)(before), gnmax(sigma)(after)) for before, after in pairs]
    account = PrivacyAccountant(costs=[cost.repeat(questions)])
    spent = {delta: account.spent(delta).bounds for delta in (1e-3, 1e-2, 0.1)}
    for chosen in itertools.product(laws, repeat=questions):
        without, with_him = np.ones(1), np.ones(1)
        for before, after in chosen:
            without = np.outer(without, before).ravel()
            with_him = np.outer(with_him, (1.0 - q) * before + q * after).ravel()
        for delta, bounds in spent.items():
            assert {"pld", "renyi"} <= {bound.name for bound in bounds}
            for bound in bounds:
                worst = max(
                    hockey_stick(with_him, without, bound.epsilon), hockey_stick(without, with_him, bound.epsilon)
                )
                assert worst <= delta * (1.0 + 1e-9), bound


def test_people_with_several_records_cost_no_more_than_is_charged() -> None:
    # two records of his, each drawn and seated by itself: he moves up to two of three votes
    K, sigma, rate = 3, 0.9, Fraction(1, 4)
    cost = noisy(GNMax(sigma, reached=2), K, 2, Subsampling(rate, records=2), overlap=2)
    rng = np.random.default_rng(5)
    for _ in range(8):
        vote = random_voters(rng, 2)
        rest = lambda k, members, vote=vote: vote(k, tuple(p for p in members if p > 1))  # noqa: E731
        laws = [law_of(seatings(3, K, 0.25), K, voter, gnmax(sigma), 2) for voter in (vote, rest)]
        check(cost, *laws)


MECHANISMS = [GNMax(0.6), GNMax(2.5), LNMax(0.4), LNMax(2.0), ExponentialMechanism(2.0), PermuteAndFlip(1.5)]


def exact_law(mechanism: Mechanism, counts: tuple[int, ...]) -> Array:
    if isinstance(mechanism, ExponentialMechanism | PermuteAndFlip):
        return selection_law(mechanism, counts)
    return winning_probabilities(mechanism.law, np.array([counts]))[0]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize(("K", "C"), [(5, 2), (4, 3), (3, 4)])
def test_every_pair_of_histograms_costs_no_more(mechanism: Mechanism, K: int, C: int, scheme: str) -> None:
    q = 0.05
    cost = noisy(mechanism, K, C, Subsampling(Fraction(1, 20), scheme))
    laws = {h: exact_law(mechanism, h) for h in histograms(K, C)}
    most = 0.0
    for without, A in laws.items():
        moves = neighbors(without)
        for moved in moves[:4]:
            B = (1.0 - q) * A + q * laws[moved]
            if scheme == "poisson":
                most = max(most, check(cost, B, A))
                continue
            for other in [*moves, without]:
                if sum(map(abs, np.subtract(moved, other))) <= 2:
                    most = max(most, check(cost, B, (1.0 - q) * A + q * laws[other]))
    assert 0.4 <= most <= 1.0 + 1e-9  # permute-and-flip is known to be (ε, 0)-private, and no more


# the height of the third is the worst one; at larger orders of narrow noise half a vote of lead multiplies the cost
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("sigma", "most", "orders"), [(0.9, 1.37, (2.0, 4.0)), (4.0, 1.05, (2.0, 4.0, 8.0))])
@pytest.mark.parametrize("q", [0.001, 0.2])
def test_three_outcomes_are_bounded_closely(sigma: float, most: float, orders: tuple[float, ...], q: float) -> None:
    K, noise = 9, DiscreteGaussian(sigma)
    bound, always = label_curve(noise, rate=q, votes=K), label_curve(noise)
    rows = histograms(K, 3)
    laws = winning_probabilities(noise, np.array(rows))
    place = {row: n for n, row in enumerate(rows)}
    moves = [(n, place[a - 1, b + 1, c]) for (a, b, c), n in place.items() if a and b < K]
    before, after = (laws[list(part)] for part in zip(*moves, strict=True))
    two = curve_of_votes(two_class_errors(noise, K), K, 1, q)
    for order in orders:
        parts = [subsampled_penalties(np.log(B / A), order, q) for A, B in ((before, after), (after, before))]
        sums = [np.sum(A * part, axis=1) for A, sides in zip((before, after), parts, strict=True) for part in sides]
        exact = math.log1p(float(np.max(sums))) / (order - 1.0)
        at = bound.orders == order
        assert two.values[at][0] <= bound.values[at][0] <= always.values[at][0]
        assert exact * (1.0 - 1e-7) <= bound.values[at][0] <= most * exact, order


def test_labels_of_two_classes_are_those_of_the_difference() -> None:
    for noise in (DiscreteGaussian(0.6), DiscreteGaussian(7.0), DiscreteLaplace(0.3), DiscreteLaplace(3.0)):
        counts = np.array([[7 - wins, wins] for wins in range(4, 8)])
        lies = np.log(winning_probabilities(noise, counts)[:, 0])
        assert two_class_errors(noise, 7)[: 3 if noise.deviation < 1.0 else 4] == pytest.approx(
            lies[: 3 if noise.deviation < 1.0 else 4], rel=1e-6
        )


@pytest.mark.parametrize("K", [60, 61])
def test_leads_that_no_float_holds_add_nothing(K: int) -> None:
    # at σ = 0.8 a lead of 50 is lost with probability e^{−900}; few leads cost
    few, many = (noisy(GNMax(0.8), voters, 2, Subsampling(Fraction(1, 100))).renyi for voters in (K % 2 + 24, K))
    assert few is not None
    assert many is not None
    low = few.orders <= 8.0
    assert np.all(np.isfinite(many.values[low]))
    assert many.values[low] == pytest.approx(few.values[low], rel=1e-6)


@pytest.mark.parametrize("q", ["0.9999999999999998", "0.99999", "0.999", "0.9989"])
def test_people_who_are_drawn_nearly_always_cost_what_they_cost(q: str) -> None:
    # randomized response of ε = 60 from A to the mixture: its largest loss is −log(1 − q + q·e^{−60})
    certain = profile_of_votes(np.log([1.0 / (1.0 + math.exp(60.0))]), 1, 1)
    assert certain is not None
    drawn = amplify_profile(certain, Subsampling(Fraction(q)))
    with mpmath.workdps(60):
        rate, lie = mpmath.mpf(q), 1 / (1 + mpmath.exp(60))
        for epsilon in (0.5, 5.0, 12.0, 30.0, 36.0, 45.0):
            for x, y in ((lie, 1 - lie), (1 - lie, lie)):
                exact = x - mpmath.exp(epsilon) * ((1 - rate) * x + rate * y)
                known = (
                    drawn.delta_at(epsilon)
                    if drawn.reverse is None
                    else float(np.interp(math.expm1(epsilon), np.expm1(drawn.epsilons), drawn.reverse))
                )
                assert exact <= known * (1.0 + 1e-9) + 1e-15


def test_a_pair_of_a_label_is_that_of_who_is_drawn() -> None:
    cost = amplify(PrivacyCost("label", PrivacyParams(1, "0.01")), Subsampling(Fraction(1, 10)), None)
    assert cost.guarantee is not None
    assert cost.guarantee.exact_delta == Fraction(1, 1000)
    assert cost.guarantee.epsilon == pytest.approx(math.log1p(0.1 * math.expm1(1.0)), rel=1e-11)
    assert cost.guarantee.epsilon >= math.log1p(0.1 * math.expm1(1.0))


def test_ratios_that_no_float_holds_are_bounded_by_their_logarithms() -> None:
    # A has e^{−60} and B e^{−20} of an outcome, q = e^{−2}: (q·e^{40})^3·e^{−60} = e^{54}, and next to nothing back
    outcome, rest = np.array([-20.0]), np.array([np.log1p(-math.exp(-20.0))])
    other = np.array([-60.0]), np.array([0.0])
    curve = subsampled_curve(np.stack([outcome, rest], axis=1), np.stack(other, axis=1), math.exp(-2.0))
    assert float(curve.values[curve.orders == 3.0][0]) == pytest.approx(54.0 / 2.0, rel=1e-6)


@pytest.mark.parametrize(("certain", "q", "questions", "delta"), [(0.5, 0.5, 2, 0.1), (2.0, 0.5, 3, 0.5)])
def test_a_sum_covers_either_direction(certain: float, q: float, questions: int, delta: float) -> None:
    # of likely bits the direction from with him to without costs more, up to twice as much
    lie = 1.0 / (1.0 + math.exp(certain))
    A, B = np.array([1.0 - lie, lie]), np.array([lie, 1.0 - lie])
    without, with_him = np.ones(1), np.ones(1)
    for _ in range(questions):
        without, with_him = np.outer(without, A).ravel(), np.outer(with_him, (1.0 - q) * A + q * B).ravel()
    cost = amplify(PrivacyCost("bit", PrivacyParams(certain)), Subsampling(Fraction(q)), None).repeat(questions)
    bound = next(b.epsilon for b in PrivacyAccountant(costs=[cost]).spent(delta).bounds if b.name == "pld")
    assert either(with_him, without, bound) <= delta
    assert either(with_him, without, 0.95 * bound) > delta


def test_few_points_of_a_grid_hold_all_that_a_profile_says() -> None:
    epsilons = np.array([0.0, 0.3, 0.30000001, 0.71, 1.4, 2.0])
    profile = PrivacyProfile(tuple(epsilons), tuple(0.5 * np.exp(-2.0 * epsilons)))
    multiples = np.linspace(0.0, 2.0, 41, dtype=np.float64)
    read = on_grid(profile, 0.05)
    assert len(read.epsilons) < multiples.size
    assert read.deltas_at(multiples) == pytest.approx(profile.deltas_at(multiples), rel=1e-9)


@pytest.mark.slow
def test_losses_of_the_rarest_draws_are_added_on_a_coarser_grid() -> None:
    # one of a thousand answers moves with q: all of them with less than δ together
    cost = noisy(GNMax(1.0), 25, 2, Subsampling(Fraction(1, 10**9))).repeat(1000)
    bounds = {bound.name: bound.epsilon for bound in PrivacyAccountant(costs=[cost]).spent(1e-5).bounds}
    assert bounds["pld"] < 0.2


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("rate", ["0.004", "0.3", "1/3"])
def test_points_of_a_profile_are_rounded_up(rate: str) -> None:
    # ε whose amplified ones are next to a number of few digits: what is rounded to it may lie above
    q, sampling = Fraction(rate), Subsampling(Fraction(rate))
    for target in range(10, 3000, 15):
        with mpmath.workdps(50):
            exact_rate = mpmath.mpf(q.numerator) / q.denominator
            near = float(mpmath.log1p(mpmath.expm1(mpmath.mpf(target) / 1000) / exact_rate))
            for epsilon in (near, float(np.nextafter(near, 9.0))):
                exact = mpmath.log1p(exact_rate * mpmath.expm1(mpmath.mpf(epsilon)))
                drawn = amplify_profile(PrivacyProfile((0.0, epsilon), (0.5, 0.0)), sampling)
                assert exact <= drawn.epsilons[-1] <= exact * (1.0 + 3e-11)
                assert drawn.epsilons[-1] == pytest.approx(float(f"{drawn.epsilons[-1]:.12g}"), rel=3e-16)
                assert amplify_pure(epsilon, float(q)) >= exact
    for delta in (0.1, 0.3, 1e-5, 0.7):
        drawn = amplify_profile(PrivacyProfile((0.0, 1.0), (0.9, delta)), sampling)
        assert drawn.reverse is not None
        assert Fraction(drawn.deltas[-1]) >= q * Fraction(delta)
        assert min(Fraction(drawn.deltas[0]), Fraction(drawn.reverse[0])) >= q * Fraction(0.9)


def test_nobody_is_missed_by_more_than_one_who_is_not_drawn() -> None:
    # from without him to with him no answer loses more than 1 − q, however sure it makes of him
    profile = amplify_profile(PrivacyProfile.from_pair(PrivacyParams(1, "0.1")), Subsampling(Fraction(1, 10)))
    reverse = profile.reverse
    assert reverse is not None
    assert profile.deltas[-1] == pytest.approx(0.01)
    assert reverse[-1] == 0.0
    assert min(e for e, d in zip(profile.epsilons, reverse, strict=True) if d == 0.0) == pytest.approx(-math.log(0.9))


def test_only_a_pure_pair_has_a_curve() -> None:
    sampling = Subsampling(Fraction(1, 10))
    assert amplify(PrivacyCost("label", PrivacyParams(1, "1e-9")), sampling, None).renyi is None
    pure = amplify(PrivacyCost("label", PrivacyParams(1)), sampling, None).renyi
    lie = 1.0 / (1.0 + math.e)
    A, B = np.array([1.0 - lie, lie]), np.array([lie, 1.0 - lie])
    assert pure is not None
    for order in ORDERS:
        assert (
            divergence(0.9 * A + 0.1 * B, A, order)
            <= pure.values[pure.orders == order][0]
            <= 1.001 * math.log1p(0.1 * math.expm1(1.0))
        )


def test_an_answer_that_only_he_brings_about_costs_all() -> None:
    with np.errstate(divide="ignore"):
        curve = curve_of_votes(np.log([0.2, 0.0]), 3, 1, 0.01)  # at three votes of three nobody ever lies
    assert np.all(np.isinf(curve.values))
    with np.errstate(divide="ignore"):
        parted = curve_of_votes(np.log([0.0, 0.0]), 3, 1, 0.01)
    assert np.all(np.isinf(parted.values))
    always = curve_of_votes(np.log([0.2, 1e-300]), 3, 1, 0.01)  # and beyond floats it is infinite at large orders only
    assert np.isfinite(always.values[0])
    assert np.isinf(always.values[-1]) or always.values[-1] > 600.0


def test_far_tails_of_labels_of_two_classes() -> None:
    # Pr[X_a − X_b ≥ 9], with fifty digits
    with mpmath.workdps(50):
        f = [mpmath.exp(-(mpmath.mpf(x) ** 2) / 2) for x in range(-40, 41)]
        z = sum(f)
        difference = [sum(f[x] * f[x - d] for x in range(d, 81)) / z**2 for d in range(9, 60)]
        lie = float(mpmath.log(sum(difference) - difference[0] / 2))
    assert two_class_errors(DiscreteGaussian(1.0), 9)[-1] == pytest.approx(lie, rel=1e-12)


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize("q", ["1e-4", "0.3", "0.99", "1"])
def test_profiles_are_those_of_the_mixtures(scheme: str, q: str) -> None:
    rate = float(q)
    lies = np.log([0.3, 0.1, 0.02])
    certain = profile_of_votes(lies, 5, 1)
    assert certain is not None
    drawn = amplify_profile(certain, Subsampling(Fraction(q), scheme))
    h = [0.02, 0.1, 0.3, 0.7, 0.9, 0.98]
    for epsilon in np.linspace(0.0, drawn.epsilons[-1], 23):
        forward = back = 0.0
        for x, y in [*itertools.pairwise(h), *itertools.pairwise(h[::-1])]:
            A, B = np.array([x, 1.0 - x]), np.array([y, 1.0 - y])
            mixture = (1.0 - rate) * A + rate * B
            forward, back = (
                max(forward, hockey_stick(mixture, A, epsilon)),
                max(back, hockey_stick(A, mixture, epsilon)),
            )
        assert drawn.delta_at(epsilon) == pytest.approx(forward, abs=3e-12)
        if scheme == "poisson":
            known = np.interp(math.exp(epsilon), np.exp(drawn.epsilons), drawn.reverse or ())
            assert known == pytest.approx(back, abs=3e-12)
            assert back <= forward + 1e-15


@pytest.mark.parametrize("q", ["1e-6", "0.004", "0.5", "1"])
@pytest.mark.parametrize("epsilon", ["1e-9", "0.01", "3", "600"])
def test_what_a_person_who_takes_part_needs_is_rounded_down(q: str, epsilon: str) -> None:
    certain = Subsampling(Fraction(q)).conditional_on_inclusion(PrivacyParams(epsilon, "1e-9"))
    with mpmath.workdps(400):
        exact = mpmath.log(1 + (mpmath.exp(mpmath.mpf(epsilon)) - 1) / mpmath.mpf(q))
        kept = mpmath.mpf(certain.exact_epsilon.numerator) / certain.exact_epsilon.denominator
        assert 0 < kept <= exact
        assert (exact - kept) / exact < mpmath.mpf("1e-25")
    assert certain.exact_delta == min(Fraction("1e-9") / Fraction(q), 1 - Fraction(1, 2**53))


def test_a_table_is_proved_for_who_takes_part_and_charged_for_who_is_drawn() -> None:
    voters = Voters(5, PrivacyParams("inf"), overlap=1, sampled=Subsampling(Fraction(1, 50)))
    problem = Problem(voters, PrivacyParams("0.02", "1e-6"))
    table = certify(problem, NoiseFunction(5, [1.0, 1.0, 1.0]))
    assert table.certificate == certify(problem.conditional_on_inclusion, NoiseFunction(5, [1.0, 1.0, 1.0])).certificate
    assert Table.from_json(table.to_json()).digest == table.digest
    h = 0.5 + 0.5 * table.gamma.signed
    cost = Release(table).privacy_cost(1)
    assert cost.guarantee == problem.target
    most = 0.0
    for x, y in [*itertools.pairwise(h), *itertools.pairwise(h[::-1])]:
        A, B = np.array([x, 1.0 - x]), np.array([y, 1.0 - y])
        most = max(most, check(cost, 0.98 * A + 0.02 * B, A))
        assert hockey_stick(0.98 * A + 0.02 * B, A, 0.02) <= 1e-6
    assert most == pytest.approx(1.0, abs=1e-6)


def test_a_plurality_is_charged_for_who_is_drawn() -> None:
    voters = Voters(2, PrivacyParams("inf"), overlap=1, sampled=Subsampling(Fraction(1, 50)))
    law = PluralityLaw.from_probabilities(2, 3, [0.9, 0.05, 0.45, 0.1])
    table = certify(Problem(voters, PrivacyParams("0.3", "1e-2"), classes=3), law)
    cost = Release(table).privacy_cost(1)
    laws = {
        counts: table.plurality.probabilities(-np.sort(-np.array([counts])))[0] for counts in [(2, 0, 0), (1, 1, 0)]
    }
    most = 0.0
    for before, after in [((2, 0, 0), (1, 1, 0)), ((1, 1, 0), (2, 0, 0))]:
        A, B = laws[before], laws[after]
        most = max(most, check(cost, 0.98 * A + 0.02 * B, A))
    A, B = laws[1, 1, 0], laws[1, 1, 0][[0, 2, 1]]
    most = max(most, check(cost, 0.98 * A + 0.02 * B, A))
    assert most == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "q", "queries"), [(4.0, "0.02", 400), (3.0, "0.005", 2000)])
def test_counts_cost_what_the_sampled_gaussian_costs(sigma: float, q: str, queries: int) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import pld_privacy_accountant

    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    theirs = pld_privacy_accountant.PLDAccountant(relation, value_discretization_interval=1e-4)
    gaussian = dp_accounting.GaussianDpEvent(sigma / math.sqrt(2.0))
    theirs.compose(dp_accounting.PoissonSampledDpEvent(float(q), gaussian), queries)
    # of three classes or more the profile is that of two noisy counts
    cost = noisy(GNMax(sigma), 200, 3, Subsampling(Fraction(q))).repeat(queries)
    spent = PrivacyAccountant(costs=[cost]).spent(1e-5)
    pld = next(bound.epsilon for bound in spent.bounds if bound.name == "pld")
    assert pld == pytest.approx(theirs.get_epsilon(1e-5), rel=0.01)


def test_penalties_are_convex_and_nothing_where_nothing_moves() -> None:
    ratios = np.linspace(-3.0, 3.0, 401)
    for side in subsampled_penalties(ratios, 3.0, 0.1):
        values = side - 0.0
        r = np.exp(ratios)
        slopes = np.diff(values) / np.diff(r)
        assert np.all(np.diff(slopes) >= -1e-12)
        assert values[200] == 0.0
        assert np.all(values >= 0.0)


def test_the_exponential_mechanism_is_bounded_closely() -> None:
    epsilon, q = 2.0, 0.05
    curve = exponential_label_curve(epsilon, rate=q)
    u = np.linspace(1e-4, 1.0 - 1e-4, 4001)
    for order in ORDERS:
        a = u * math.exp(-epsilon) / (u * math.exp(-epsilon) + 1.0 - u)
        logs = np.log(a / u), np.log((1.0 - a) / (1.0 - u))
        sides = (
            u * subsampled_penalties(logs[0], order, q)[side]
            + (1.0 - u) * subsampled_penalties(logs[1], order, q)[side]
            for side in (0, 1)
        )
        exact = math.log1p(max(float(np.max(side)) for side in sides)) / (order - 1.0)
        bound = float(curve.values[curve.orders == order][0])
        assert exact <= bound <= 1.02 * exact


def test_costs_of_other_neighbors_are_not_added() -> None:
    sampled = [noisy(GNMax(2.0), 5, 2, Subsampling(Fraction(1, 50), scheme)) for scheme in ("poisson", "fixed")]
    plain = GNMax(2.0).privacy_cost()
    for first, second in itertools.permutations([*sampled, plain], 2):
        with pytest.raises(ValueError, match="these do not add up"):
            PrivacyAccountant(costs=[first, second])
    with pytest.raises(ValueError, match="charged for other voters"):
        PrivacyAccountant(Voters(5, PrivacyParams("inf"), overlap=1), [sampled[0]])
    with pytest.raises(ValueError, match="these do not add up"):
        PrivacyAccountant(Voters(5, PrivacyParams("inf"), 1, sampled=Subsampling(Fraction(1, 50))), [plain])
    rarer = noisy(GNMax(2.0), 5, 2, Subsampling(Fraction(1, 100)))
    both = PrivacyAccountant(costs=[sampled[0], rarer])
    assert "add or remove one person" in str(both.spent(1e-5))
    with pytest.raises(ValueError, match="charged for other voters"):
        PrivacyAccountant(Voters(5, PrivacyParams("inf"), 1, sampled=Subsampling(Fraction(1, 50))), [rarer])


def test_a_stored_charge_keeps_its_neighbors() -> None:
    cost = noisy(GNMax(2.0, reached=2), 5, 2, Subsampling(Fraction(1, 50), records=2), overlap=2)
    again = PrivacyCost.from_text(cost.to_text(), what="read")
    assert again.sampling == cost.sampling
    assert again.profile == cost.profile
    assert again.to_text() == cost.to_text()


@pytest.mark.parametrize(
    ("asked", "said"),
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
def test_what_is_no_sampling_is_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Voters(5, **{"each": PrivacyParams("inf"), "overlap": 1, **asked})  # type: ignore[arg-type]


def test_the_direction_that_costs_more_is_counted() -> None:
    """An outcome that he nearly rules out tells most of somebody who is not drawn: the reverse direction."""
    without, with_him, q = np.array([0.5, 0.5]), np.array([1e-3, 1.0 - 1e-3]), 0.9
    mixture = (1.0 - q) * without + q * with_him
    curve = subsampled_curve(np.log(with_him), np.log(without), q)
    for order in (2.0, 8.0):
        forward = float(np.sum(mixture**order * without ** (1.0 - order)))
        reverse = float(np.sum(without**order * mixture ** (1.0 - order)))
        assert reverse > 1.5 * forward
        result = float(np.exp((order - 1.0) * curve.bound_at(order)))
        assert reverse <= result <= reverse * (1.0 + 1e-8)


def test_the_direction_that_costs_more_is_the_one_that_counts() -> None:
    # of wide noise the direction without a person to with him costs 1.017 times the other
    cost = noisy(GNMax(7.0), 25, 2, Subsampling(Fraction(1, 100)))
    assert cost.profile is not None
    spent = PrivacyAccountant(costs=[cost.repeat(1000)]).spent(1e-5)
    pld = next(bound.epsilon for bound in spent.bounds if bound.name == "pld")
    sides = [_compose_on_grid(((cost.profile, 1000),), 1e-4, side).smallest_epsilon(1e-5) for side in (0, 1)]
    assert sides[1] != sides[0]
    assert pld >= max(sides) * (1.0 - 1e-9)
