"""Attacks: worst pairs and laws by enumeration, bounds by exact sums, honest releases stand, planted bugs are found."""

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from darrm.aggregator import Released
from darrm.majority.noise_function import NoiseFunction
from darrm.noisy_max import mechanisms
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics import exact_sampling
from darrm.numerics.binomial import binomial_pmf, poisson_binomial_pmf
from darrm.numerics.exact_sampling import ExactCoins
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian
from darrm.optimize.optimizer import optimize_table
from darrm.plurality.plurality_law import ONE, PluralityLaw, true_plurality
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table import release as release_module
from darrm.table.release import Release
from darrm.table.table import Table, certify
from darrm.verify.attack import (
    ConfidenceIntervals,
    Pair,
    attack,
    find_worst_pair,
    judge_attack,
    label_law,
    list_near_ties,
)
from darrm.verify.verdicts import CONSISTENT, FALSE, UNKNOWN
from tests.oracle import all_multisets

PLAIN = PrivacyParams("inf")


def private(K: int, epsilon: str, delta: str, m: str, overlap: int | None = None) -> Table:
    return optimize_table(Problem.from_allowance(Voters(K, PrivacyParams(epsilon, delta), overlap), m))


def plain(K: int, epsilon: str, delta: str, overlap: int) -> Table:
    return optimize_table(Problem(Voters(K, PLAIN, overlap), PrivacyParams(epsilon, delta)))


def falling(K: int) -> Table:
    """A table that is not monotone: the worst rows need not be in the dominating family."""
    problem = Problem.from_allowance(Voters(K, PrivacyParams("1.5", "1e-3")), "1.2")
    return certify(problem, NoiseFunction(K, np.linspace(1.0, 0.0, K - K // 2)))


def of_three(mechanism: Mechanism, K: int = 20) -> NoisyMaximum:
    return NoisyMaximum(mechanism, Voters(K, PLAIN, mechanism.reached), 3)


def plurality(voters: Voters, epsilon: str, delta: str, classes: int = 3) -> Release:
    return Release(certify(Problem(voters, PrivacyParams(epsilon, delta), classes), true_plurality(voters.K, classes)))


TABLES: dict[str, Callable[[], Table]] = {
    "K=1": lambda: private(1, "0.5", "0", "1"),
    "K=4": lambda: private(4, "0.3", "0", "2"),
    "K=5": lambda: private(5, "0.8", "1e-2", "2"),
    "K=5, overlap 2": lambda: private(5, "0.8", "1e-2", "1.5", overlap=2),
    "K=6, falling": lambda: falling(6),
    "K=5, plain": lambda: plain(5, "1", "1e-2", overlap=1),
    "K=11, plain, some answers impossible": lambda: plain(11, "0.5", "0.1", overlap=1),
    "K=5, plain, overlap 2": lambda: plain(5, "1", "1e-2", overlap=2),
}
RELEASES: dict[str, Callable[[], Released]] = {
    "GNMax": lambda: of_three(GNMax(3.0)),
    "GNMax of three votes": lambda: of_three(GNMax(6.0, reached=3)),
    "LNMax": lambda: of_three(LNMax(0.4)),
    "AsymmetricMax": lambda: of_three(AsymmetricMax(AsymmetricNoise(3.0, 6.0, 2.0, 1.5))),
    "exponential": lambda: of_three(ExponentialMechanism(1.0)),
    "permute and flip": lambda: of_three(PermuteAndFlip(1.0, reached=2)),
    "two classes": lambda: NoisyMaximum(GNMax(2.0), Voters(5, PLAIN, 1), 2),
    "plurality": lambda: plurality(Voters(9, PLAIN, 1), "1", "1e-3"),
    "plurality, five classes": lambda: plurality(Voters(5, PLAIN, 2), "0.7", "0", classes=5),
    "private plurality": lambda: plurality(Voters(6, PrivacyParams("0.4")), "0.8", "0"),
    "private plurality, delta, overlap": lambda: plurality(Voters(6, PrivacyParams("0.3", "1e-2"), 3), "0.6", "0.03"),
    "differing voters": lambda: plurality(
        Voters.of([PrivacyParams("0.2")] * 3 + [PrivacyParams("0.6")] * 2), "0.7", "0"
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_worst_pair_is_the_worst_of_all_multisets(name: str) -> None:
    table = TABLES[name]()
    delta = table.problem.target.delta
    first, second = (
        0.5 * (1.0 + poisson_binomial_pmf(p) @ table.gamma.signed) for p in all_multisets(table.problem.voters)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.log(np.maximum(first - delta, 0.0)) - np.log(second)
    epsilon, (p, p_prime) = find_worst_pair(table)
    assert epsilon == pytest.approx(float(np.max(losses, where=first > delta + 1e-12, initial=0.0)), abs=1e-12)
    one, one_prime = (0.5 * (1.0 + float(poisson_binomial_pmf(side) @ table.gamma.signed)) for side in (p, p_prime))
    assert math.log((one - delta) / one_prime) == pytest.approx(epsilon, abs=1e-12)
    assert np.sum(p != p_prime) <= table.problem.voters.reached


@pytest.mark.parametrize("n", [1, 7, 30])
@pytest.mark.parametrize("miss", [0.2, 0.01])
def test_a_bound_fails_as_seldom_as_it_says_and_not_much_less(n: int, miss: float) -> None:
    bounds = ConfidenceIntervals.from_counts(np.arange(n + 1), n, miss)
    laws = [(P, binomial_pmf(n, P)) for P in np.linspace(0.001, 0.999, 999)]
    assert 0.5 * miss < max(float(law[bounds.lower > P].sum()) for P, law in laws) <= miss
    assert 0.5 * miss < max(float(law[bounds.upper < P].sum()) for P, law in laws) <= miss


def test_a_refuted_epsilon_is_the_largest_that_no_law_within_the_bounds_has() -> None:
    bounds = ConfidenceIntervals(np.array([[0.3, 0.1], [0.1, 0.5]]), np.array([[0.4, 0.2], [0.2, 0.7]]))
    assert bounds.epsilon(0.0) == pytest.approx(math.log(0.5 / 0.2))  # the second event, from the second side
    assert bounds.epsilon(0.25) == pytest.approx(math.log(0.25 / 0.2))
    assert bounds.epsilon(0.45) == 0.0
    impossible = ConfidenceIntervals(np.array([[0.0, 0.0], [0.0, 0.3]]), np.array([[0.0, 0.0], [0.0, 0.4]]))
    assert (impossible.epsilon(0.3), impossible.epsilon(0.2)) == (0.0, np.inf)


def noisy_maximum_by_enumeration(masses: dict[int, float], counts: tuple[int, ...]) -> list[float]:
    result = [0.0] * len(counts)
    for noises in product(masses, repeat=len(counts)):
        noisy = [n + x for n, x in zip(counts, noises, strict=True)]
        winners = [c for c, value in enumerate(noisy) if value == max(noisy)]
        for winner in winners:
            result[winner] += math.prod(masses[x] for x in noises) / len(winners)
    return result


@pytest.mark.parametrize("counts", [(3, 1, 1), (0, 3, 2), (2, 2, 1), (5, 0, 0)])
@pytest.mark.parametrize(
    "mechanism", [GNMax(0.7), LNMax(3.0), AsymmetricMax(AsymmetricNoise(0.6, 0.8, 2.0, 1.5))], ids=repr
)
def test_the_law_of_noise_is_that_of_all_noises(
    mechanism: GNMax | LNMax | AsymmetricMax, counts: tuple[int, ...]
) -> None:
    support = range(-12, 13)
    weights = np.exp(mechanism.law.log_weights(np.array(support)))
    masses = dict(zip(support, (weights / weights.sum()).tolist(), strict=True))
    law = label_law(of_three(mechanism, K=5))(np.array([counts]))[0]
    assert law == pytest.approx(noisy_maximum_by_enumeration(masses, counts), abs=1e-13)


@pytest.mark.parametrize("counts", [(3, 1, 1), (0, 3, 2), (5, 0, 0)])
def test_the_laws_of_selection_are_those_of_their_definitions(counts: tuple[int, ...]) -> None:
    epsilon, reached = 1.3, 2
    heads = [math.exp(-epsilon * (max(counts) - n) / (2 * reached)) for n in counts]
    votes = np.array([counts])
    exponential = label_law(of_three(ExponentialMechanism(epsilon, reached), K=5))(votes)[0]
    assert exponential == pytest.approx([head / sum(heads) for head in heads], abs=1e-14)
    flipped = [0.0] * 3
    for order in permutations(range(3)):
        none = 1.0 / 6.0
        for label in order:
            flipped[label] += none * heads[label]
            none *= 1.0 - heads[label]
    assert label_law(of_three(PermuteAndFlip(epsilon, reached), K=5))(votes)[0] == pytest.approx(flipped, abs=1e-14)


@pytest.mark.parametrize("name", ["private plurality, delta, overlap", "differing voters"])
def test_labels_of_private_voters_are_averaged_over_all_that_they_say(name: str) -> None:
    aggregator = RELEASES[name]()
    assert isinstance(aggregator, Release)
    pair = dict(list_near_ties(aggregator.voters, 3))["3 classes at a lead of 1, 1 moving to 1 and 2"]
    voters = [np.repeat(side, pair.sizes, axis=0) for side in pair.sides]
    for side, label in zip(voters, pair.labels(label_law(aggregator)), strict=True):
        total = np.zeros(3)
        for said in product(range(3), repeat=len(side)):
            votes = np.bincount(said, minlength=3)
            chance = math.prod(law[c] for law, c in zip(side, said, strict=True))
            total += chance * aggregator.table.law.probabilities(votes[None])[0]
        assert label == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize(
    ("voters", "classes"),
    [
        (Voters(9, PrivacyParams("0.5", "1e-3"), 4), 2),
        (Voters(7, PrivacyParams("0.5", "1e-3"), 4), 4),
        (Voters(7, PLAIN, 2), 5),
        (Voters.of([PrivacyParams("0.1")] * 3 + [PrivacyParams("1", "1e-2")] * 2 + [PLAIN], 4), 3),
        (Voters(1, PLAIN), 2),
    ],
)
def test_pairs_are_neighbors(voters: Voters, classes: int) -> None:
    pairs = [pair for _, pair in list_near_ties(voters, classes)]
    strengths = sorted(each.epsilon if each.is_private else math.inf for n, each in voters.groups for _ in range(n))
    assert max(moved_in(pair, voters, strengths) for pair in pairs) == voters.reached


def moved_in(pair: Pair, voters: Voters, strengths: list[float]) -> int:
    """Hold every voter's two laws against the definition; return how many voters move."""
    assert pair.sizes.sum() == voters.K
    assert pair.sides.sum(axis=2) == pytest.approx(1.0)
    delta, needed = max(each.delta for _, each in voters.groups), list[float]()
    for n, before, after in zip(pair.sizes, *pair.sides, strict=True):
        if not np.array_equal(before, after):
            least = [
                math.log((p.sum() - delta) / q.sum()) if q.sum() > 1e-12 else math.inf
                for one, other in ((before, after), (after, before))
                for chosen in product([False, True], repeat=before.size)
                for p, q in [(one[list(chosen)], other[list(chosen)])]
                if p.sum() > delta + 1e-12
            ]
            needed += [max(least)] * int(n)
    # each of them has a voter of its own who promises as little
    assert all(one <= strength + 1e-9 for one, strength in zip(sorted(needed)[::-1], strengths[::-1], strict=False))
    return len(needed)


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("name", TABLES)
def test_an_honest_table_stands_and_the_bound_is_near_the_truth(name: str) -> None:
    table = TABLES[name]()
    found = attack(Release(table), 80_000, rng=np.random.default_rng(5))  # a false alarm in 1e-6 of all seeds
    assert (found.refuted, found.departures) == (False, ())
    assert 0.5 * found.worst <= found.epsilon <= found.worst <= table.problem.target.epsilon * (1.0 + 1e-12)
    assert all(bound.refuted <= bound.true for bound in found.bounds)


ALIKE = {"GNMax of three votes", "AsymmetricMax", "plurality", "private plurality"}  # each beside one that is quick


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in RELEASES])
def test_an_honest_release_stands(name: str) -> None:
    result = attack(RELEASES[name](), 20_000, rng=np.random.default_rng(3))  # a false alarm in 1e-6 of all seeds
    assert (result.refuted, result.departures) == (False, ())
    for bound in result.bounds:
        assert bound.refuted <= bound.true
        assert bound.true <= bound.claimed * (1.0 + 1e-9)
    assert result.bounds[0].true > 0.4 * result.bounds[0].claimed


@pytest.mark.statistical
def test_a_release_from_the_operating_system_stands() -> None:
    assert attack(Release(private(5, "0.8", "1e-2", "2")), 20_000).departures == ()  # a false alarm in 1e-6 of all runs


@pytest.mark.slow
@pytest.mark.statistical
def test_all_bounds_together_hold_with_the_confidence_stated() -> None:
    table = private(5, "0.8", "1e-2", "2")
    found = [attack(Release(table), 400, confidence=0.5, rng=np.random.default_rng(seed)) for seed in range(60)]
    # half is allowed; discrete counts and events that imply each other leave a sixth, and a bound that forgets
    # the four pairs more than half
    assert 3 <= sum(bool(one.departures) for one in found) <= 25


Patch = pytest.MonkeyPatch


def half_the_lies(patch: Patch) -> None:
    patch.setattr(release_module, "ExactCoins", lambda lies: ExactCoins([lie / 2 for lie in lies]))


def one_coin_for_a_call(patch: Patch) -> None:
    draw = exact_sampling._draw_digits
    patch.setattr(exact_sampling, "_draw_digits", lambda size, *rest: np.repeat(draw(1, *rest), size))


def one_coin_for_two_queries(patch: Patch) -> None:
    draw = exact_sampling._draw_digits
    patch.setattr(
        exact_sampling, "_draw_digits", lambda size, *rest: np.repeat(draw(size, *rest)[: (size + 1) // 2], 2)[:size]
    )


def the_wrong_side(patch: Patch) -> None:
    release = Release.release
    patch.setattr(Release, "release", lambda self, votes, *, rng=None: 1 - release(self, votes, rng=rng))


def a_bare_minority_wins(patch: Patch) -> None:
    def release(self: Release, votes: Any, *, rng: Any = None) -> Any:
        told = 2 * votes.ones + 1 >= votes.voters  # one vote too few is enough
        return (told ^ vars(self)["_sampler"].error_coins.flip(votes.ones, source=rng.bytes)).astype(np.int64)

    patch.setattr(Release, "release", release)


def half_the_noise(patch: Patch) -> None:
    draws = mechanisms.noise_draws

    def halved(law: DiscreteGaussian, rng: Any, **rest: bool) -> Any:
        return draws(DiscreteGaussian(law.sigma / 2.0), rng, **rest)

    patch.setattr(mechanisms, "noise_draws", halved)


def twice_the_rate(patch: Patch) -> None:
    honest = ExponentialMechanism.release

    def release(self: ExponentialMechanism, votes: Any, *, rng: Any = None) -> Any:
        return honest(ExponentialMechanism(2 * self.epsilon, self.reached), votes, rng=rng)

    patch.setattr(ExponentialMechanism, "release", release)


def swapped_weights(patch: Patch) -> None:
    """The first two groups of a partition, the leaders and the runners-up, change places."""
    honest: Any = release_module._make_sampler

    def swapped(law: PluralityLaw) -> Any:
        rows = [[row[1], row[0], *row[2:]] if len(row) > 1 else row for row in law.to_json()]
        return honest(PluralityLaw.from_json(law.K, law.classes, rows))

    patch.setattr(release_module, "_make_sampler", swapped)


def first_class_wins_ties(patch: Patch) -> None:
    def winners(counts: Any, draw: Any, _rng: Any) -> Any:
        return (counts + draw(counts.size).reshape(counts.shape)).argmax(axis=1)

    patch.setattr(mechanisms, "noisy_argmax", winners)


def first_class_of_a_group(patch: Patch) -> None:
    below = exact_sampling.uniform_below

    def biased(rng: Any) -> Any:
        return lambda bounds: below(rng)(bounds) * (bounds == ONE)  # the rank within a group is always 0

    patch.setattr(release_module, "uniform_below", biased)


PRIVATE, OF_PLAIN = lambda: private(11, "0.1", "1e-5", "1"), lambda: plain(11, "0.2676", "0.0003", overlap=1)
BUGS: list[tuple[Callable[[Patch], None], str | Callable[[], Table], bool]] = [
    *((bug, table, True) for bug in (half_the_lies, one_coin_for_a_call) for table in (PRIVATE, OF_PLAIN)),
    *((one_coin_for_two_queries, table, True) for table in (PRIVATE, OF_PLAIN)),
    *((bug, lambda: private(11, "0.1", "1e-5", "3"), False) for bug in (the_wrong_side, a_bare_minority_wins)),
    (half_the_noise, "GNMax", True),
    (half_the_noise, "two classes", True),
    (twice_the_rate, "exponential", True),
    (swapped_weights, "plurality", False),
    (swapped_weights, "private plurality", False),
    (first_class_wins_ties, "GNMax", False),
    (first_class_wins_ties, "LNMax", False),
    (first_class_of_a_group, "plurality", False),
]


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize(("bug", "made", "refuted"), BUGS)
def test_a_planted_bug_is_found(
    bug: Callable[[Patch], None], made: str | Callable[[], Table], refuted: bool, monkeypatch: Patch
) -> None:
    make = RELEASES[made] if isinstance(made, str) else partial(Release, made())
    bug(monkeypatch)
    release = make()
    found = attack(release, 20_000 if isinstance(made, str) else 80_000, rng=np.random.default_rng(2))
    assert found.departures
    if bug in {the_wrong_side, a_bare_minority_wins}:
        assert any("worst pair" in event for event in found.departures)
    if refuted:
        assert found.refuted
        assert isinstance(made, str) or found.epsilon > 1.2 * found.bounds[0].claimed


def test_a_law_that_costs_too_much_is_refuted(monkeypatch: Patch) -> None:
    """A claim that is too small is refuted by labels that are those of the release: a false proof."""
    table = plurality(Voters(9, PLAIN, 1), "1", "1e-3").table
    false = Problem(table.problem.voters, PrivacyParams("0.5", "1e-3"), 3)
    monkeypatch.setattr(Table, "problem", false, raising=False)
    object.__setattr__(table, "problem", false)
    result = attack(Release(table), 20_000, rng=np.random.default_rng(5))
    assert [bound.delta for bound in result.bounds if bound.is_false] == [1e-3]
    assert result.departures == ()


def test_the_report_holds_the_numbers() -> None:
    told: list[str] = []
    found = attack(Release(private(5, "0.8", "1e-2", "2")), 3_000, rng=np.random.default_rng(1), report=told.append)
    data = found.to_json()
    assert (data["refuted_epsilon"], data["worst_epsilon"]) == (found.epsilon, found.worst)
    assert data["claimed"] == {"epsilon": "1.6", "delta": "0.0199"}
    assert [(row["delta"], row["refuted"]) for row in data["epsilons"]] == [
        (bound.delta, bound.refuted) for bound in found.bounds
    ]
    assert told == [f"drawing labels on the {pair}" for pair in ("worst pair", "worst pair without noise")]


def test_verdicts(monkeypatch: Patch) -> None:
    def judged(release: Released, draws: int) -> tuple[dict[str, Any] | None, str, str]:
        return judge_attack(json.dumps(release.to_json()).encode(), draws, lambda _: None)

    data, verdict, reason = judged(RELEASES["GNMax"](), 2_000)
    assert verdict == CONSISTENT
    assert data is not None
    assert f"refuted {data['refuted_epsilon']:.6g}" in reason
    too_many, verdict, reason = judged(NoisyMaximum(GNMax(3.0), Voters(20, PLAIN, 1), 1001), 2_000)
    assert (too_many, verdict) == (None, UNKNOWN)
    assert "more than 1,000 classes" in reason
    half_the_noise(monkeypatch)
    data, verdict, reason = judged(RELEASES["GNMax"](), 20_000)
    assert verdict == FALSE
    assert data is not None
    assert data["departures"][0] in reason


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"draws": 0}, "draws must be an integer"),
        ({"draws": 10**9 + 1}, "draws must be an integer .*1000000000"),
        ({"draws": 10, "confidence": 1.0}, r"confidence must be in \(0, 1\)"),
        ({"aggregator": GNMax(3.0), "draws": 10}, "a Release or a NoisyMaximum"),  # it knows no voters
    ],
)
def test_arguments_are_checked(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attack(**{"aggregator": Release(private(1, "0.5", "0", "1"))} | arguments)
