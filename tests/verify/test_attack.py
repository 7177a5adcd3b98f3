"""Attacks: worst pairs and laws by enumeration, honest releases are not refuted, and planted bugs are detected."""

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from darrm import NoiseFunction, PrivacyParams, Problem, Release, Table, Voters, certify, optimize_table
from darrm.aggregator import Released
from darrm.noisy_max import mechanisms
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics import exact_sampling
from darrm.numerics.binomial import binomial_pmf, poisson_binomial_pmf
from darrm.numerics.exact_sampling import ExactCoins
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian
from darrm.plurality.plurality_law import ONE, PluralityLaw, true_plurality
from darrm.table import release as release_module
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
from tests.noisy_max.oracles import selection_law
from tests.oracle import all_multisets

NON_PRIVATE = PrivacyParams("inf")


def make_private(K: int, epsilon: str, delta: str, m: str, overlap: int | None = None) -> Table:
    return optimize_table(Problem.from_allowance(Voters(K, PrivacyParams(epsilon, delta), overlap), m))


def make_non_private(K: int, epsilon: str, delta: str, overlap: int) -> Table:
    return optimize_table(Problem(Voters(K, NON_PRIVATE, overlap), PrivacyParams(epsilon, delta)))


def make_falling(K: int) -> Table:
    """Make a table that is not monotone: the worst rows need not be in the dominating family."""
    problem = Problem.from_allowance(Voters(K, PrivacyParams("1.5", "1e-3")), "1.2")
    return certify(problem, NoiseFunction(K, np.linspace(1.0, 0.0, K - K // 2)))


def make_mechanism(mechanism: Mechanism, K: int = 20) -> NoisyMaximum:
    return NoisyMaximum(mechanism, Voters(K, NON_PRIVATE, mechanism.reached), 3)


def make_plurality(voters: Voters, epsilon: str, delta: str, classes: int = 3) -> Release:
    return Release(certify(Problem(voters, PrivacyParams(epsilon, delta), classes), true_plurality(voters.K, classes)))


TABLES: dict[str, Callable[[], Table]] = {
    "K=1": lambda: make_private(1, "0.5", "0", "1"),
    "K=4": lambda: make_private(4, "0.3", "0", "2"),
    "K=5": lambda: make_private(5, "0.8", "1e-2", "2"),
    "K=5, overlap 2": lambda: make_private(5, "0.8", "1e-2", "1.5", overlap=2),
    "K=6, falling": lambda: make_falling(6),
    "K=5, non-private": lambda: make_non_private(5, "1", "1e-2", overlap=1),
    "K=11, non-private, some answers impossible": lambda: make_non_private(11, "0.5", "0.1", overlap=1),
    "K=5, non-private, overlap 2": lambda: make_non_private(5, "1", "1e-2", overlap=2),
}
DIFFERENT = Voters.of([PrivacyParams("0.2")] * 3 + [PrivacyParams("0.6")] * 2)
RELEASES: dict[str, Callable[[], Released]] = {
    "GNMax": lambda: make_mechanism(GNMax(3.0)),
    "LNMax": lambda: make_mechanism(LNMax(0.4)),
    "exponential": lambda: make_mechanism(ExponentialMechanism(1.0)),
    "permute and flip": lambda: make_mechanism(PermuteAndFlip(1.0, reached=2)),
    "two classes": lambda: NoisyMaximum(GNMax(2.0), Voters(5, NON_PRIVATE, 1), 2),
    "plurality, five classes": lambda: make_plurality(Voters(5, NON_PRIVATE, 2), "0.7", "0", classes=5),
    "private plurality, overlap": lambda: make_plurality(Voters(6, PrivacyParams("0.3", "1e-2"), 3), "0.6", "0.03"),
    "different voters": lambda: make_plurality(DIFFERENT, "0.7", "0"),
    "GNMax of three votes": lambda: make_mechanism(GNMax(6.0, reached=3)),
    "AsymmetricMax": lambda: make_mechanism(AsymmetricMax(AsymmetricNoise(3.0, 6.0, 2.0, 1.5))),
    "plurality": lambda: make_plurality(Voters(9, NON_PRIVATE, 1), "1", "1e-3"),
    "private plurality": lambda: make_plurality(Voters(6, PrivacyParams("0.4")), "0.8", "0"),
}


# ------------------------------------------------------------------------------------------------ bounds and laws


@pytest.mark.parametrize("name", TABLES)
def test_the_worst_pair_is_the_worst_of_all_multisets(name: str) -> None:
    table = TABLES[name]()
    voters, delta, gamma = table.problem.voters, table.problem.target.delta, table.gamma
    first, second = (0.5 * (1.0 + poisson_binomial_pmf(p) @ gamma.signed) for p in all_multisets(voters))
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.log(np.maximum(first - delta, 0.0)) - np.log(second)
    epsilon, (p, p_prime) = find_worst_pair(table)
    assert epsilon == pytest.approx(float(np.max(losses, where=first > delta + 1e-12, initial=0.0)), abs=1e-12)
    one, one_prime = (0.5 * (1.0 + float(poisson_binomial_pmf(side) @ gamma.signed)) for side in (p, p_prime))
    assert math.log((one - delta) / one_prime) == pytest.approx(epsilon, abs=1e-12)
    assert np.sum(p != p_prime) <= voters.reached


@pytest.mark.parametrize("n", [1, 7, 30])
@pytest.mark.parametrize("miss", [0.2, 0.01])
def test_an_interval_fails_with_about_the_stated_probability(n: int, miss: float) -> None:
    bounds = ConfidenceIntervals.from_counts(np.arange(n + 1), n, miss)
    laws = [(P, binomial_pmf(n, P)) for P in np.linspace(0.001, 0.999, 999)]
    assert 0.5 * miss < max(float(law[bounds.lower > P].sum()) for P, law in laws) <= miss
    assert 0.5 * miss < max(float(law[bounds.upper < P].sum()) for P, law in laws) <= miss


def test_the_refuted_epsilon_is_the_largest_that_no_law_within_the_bounds_has() -> None:
    bounds = ConfidenceIntervals(np.array([[0.3, 0.1], [0.1, 0.5]]), np.array([[0.4, 0.2], [0.2, 0.7]]))
    assert bounds.epsilon(0.0) == pytest.approx(math.log(0.5 / 0.2))  # the second event, from the second side
    assert bounds.epsilon(0.25) == pytest.approx(math.log(0.25 / 0.2))
    assert bounds.epsilon(0.45) == 0.0
    impossible = ConfidenceIntervals(np.array([[0.0, 0.0], [0.0, 0.3]]), np.array([[0.0, 0.0], [0.0, 0.4]]))
    assert (impossible.epsilon(0.3), impossible.epsilon(0.2)) == (0.0, np.inf)


def compute_law(release: Released, counts: tuple[int, ...]) -> Any:
    return label_law(release)(np.array([counts]))[0]


@pytest.mark.parametrize("counts", [(3, 1, 1), (0, 3, 2), (5, 0, 0)])
def test_the_laws_of_selection_are_those_of_their_definitions(counts: tuple[int, ...]) -> None:
    for mechanism in (ExponentialMechanism(1.3, 2), PermuteAndFlip(1.3, 2)):
        law = compute_law(make_mechanism(mechanism, K=5), counts)
        assert law == pytest.approx(selection_law(mechanism, counts), abs=1e-14)


@pytest.mark.parametrize("name", ["private plurality, overlap", "different voters"])
def test_labels_of_private_voters_are_averaged_over_all_votes(name: str) -> None:
    release = RELEASES[name]()
    pair = dict(list_near_ties(release.voters, 3))["3 classes at a lead of 1, 1 moving to 1 and 2"]
    voters = [np.repeat(side, pair.sizes, axis=0) for side in pair.sides]
    for side, labels in zip(voters, pair.labels(label_law(release)), strict=True):
        total = np.zeros(3)
        for votes in product(range(3), repeat=len(side)):
            chance = math.prod(law[c] for law, c in zip(side, votes, strict=True))
            total += chance * compute_law(release, tuple(np.bincount(votes, minlength=3)))
        assert labels == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize(
    ("voters", "classes"),
    [
        (Voters(9, PrivacyParams("0.5", "1e-3"), 4), 2),
        (Voters(7, PrivacyParams("0.5", "1e-3"), 4), 4),
        (Voters(7, NON_PRIVATE, 2), 5),
        (Voters.of([PrivacyParams("0.1")] * 3 + [PrivacyParams("1", "1e-2")] * 2 + [NON_PRIVATE], 4), 3),
        (Voters(1, NON_PRIVATE), 2),
    ],
)
def test_pairs_are_neighbors(voters: Voters, classes: int) -> None:
    pairs = [pair for _, pair in list_near_ties(voters, classes)]
    assert max(count_moving_voters(pair, voters) for pair in pairs) == voters.reached


def count_moving_voters(pair: Pair, voters: Voters) -> int:
    """Check the laws of each voter on both sides against the definition; return how many voters move."""
    assert pair.sizes.sum() == voters.K
    assert pair.sides.sum(axis=2) == pytest.approx(1.0)
    delta, needed = max(voter.delta for _, voter in voters.groups), list[float]()
    for n, before, after in zip(pair.sizes, *pair.sides, strict=True):
        if not np.array_equal(before, after):
            losses = [
                math.log((p.sum() - delta) / q.sum()) if q.sum() > 1e-12 else math.inf
                for one, other in ((before, after), (after, before))
                for labels in product([False, True], repeat=before.size)
                for p, q in [(one[list(labels)], other[list(labels)])]
                if p.sum() > delta + 1e-12
            ]
            needed += [max(losses)] * int(n)
    # each moving voter needs another voter with as large an ε
    epsilons = sorted(
        (v.epsilon if v.is_private else math.inf for n, v in voters.groups for _ in range(n)), reverse=True
    )
    assert all(x <= epsilon + 1e-9 for x, epsilon in zip(sorted(needed, reverse=True), epsilons, strict=False))
    return len(needed)


# ------------------------------------------------------------------------------------------------ attacks


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("name", TABLES)
def test_an_honest_table_is_not_refuted_and_its_loss_is_estimated(name: str) -> None:
    table = TABLES[name]()
    result = attack(Release(table), 80_000, rng=np.random.default_rng(5))  # a false alarm in 1e-6 of all seeds
    assert (result.refuted, result.departures) == (False, ())
    assert 0.5 * result.worst <= result.epsilon <= result.worst <= table.problem.target.epsilon * (1.0 + 1e-12)
    assert all(bound.refuted <= bound.true for bound in result.bounds)


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("name", RELEASES)
def test_an_honest_release_is_not_refuted(name: str) -> None:
    result = attack(RELEASES[name](), 20_000, rng=np.random.default_rng(3))  # a false alarm in 1e-6 of all seeds
    assert (result.refuted, result.departures) == (False, ())
    for bound in result.bounds:
        assert bound.refuted <= bound.true <= bound.claimed * (1.0 + 1e-9)
    assert result.bounds[0].true > 0.4 * result.bounds[0].claimed


@pytest.mark.slow
@pytest.mark.statistical
def test_all_bounds_hold_together_with_the_stated_confidence() -> None:
    table = make_private(5, "0.8", "1e-2", "2")
    results = [attack(Release(table), 400, confidence=0.5, rng=np.random.default_rng(seed)) for seed in range(60)]
    # half is allowed; discrete counts and events that imply each other leave a sixth, and a bound that forgets
    # the four pairs more than half
    assert 3 <= sum(bool(result.departures) for result in results) <= 25


Patch = pytest.MonkeyPatch


def halve_lies(patch: Patch) -> None:
    patch.setattr(release_module, "ExactCoins", lambda lies: ExactCoins([lie / 2 for lie in lies]))


def share_coins(patch: Patch) -> None:
    """Use one coin for two queries."""
    draw = exact_sampling._draw_digits
    patch.setattr(
        exact_sampling, "_draw_digits", lambda size, *rest: np.repeat(draw(size, *rest)[: (size + 1) // 2], 2)[:size]
    )


def let_minorities_win(patch: Patch) -> None:
    def release(self: Release, votes: Any, *, rng: Any = None) -> Any:
        majority = 2 * votes.ones + 1 >= votes.voters  # one vote too few is enough
        return (majority ^ vars(self)["_sampler"].error_coins.flip(votes.ones, source=rng.bytes)).astype(np.int64)

    patch.setattr(Release, "release", release)


def halve_noise(patch: Patch) -> None:
    draw = mechanisms.noise_draws

    def draw_half(law: DiscreteGaussian, rng: Any, **settings: bool) -> Any:
        return draw(DiscreteGaussian(law.sigma / 2.0), rng, **settings)

    patch.setattr(mechanisms, "noise_draws", draw_half)


def let_first_class_win_ties(patch: Patch) -> None:
    def find_winners(counts: Any, draw: Any, _rng: Any) -> Any:
        return (counts + draw(counts.size).reshape(counts.shape)).argmax(axis=1)

    patch.setattr(mechanisms, "noisy_argmax", find_winners)


def double_rate(patch: Patch) -> None:
    draw = ExponentialMechanism.release

    def release(self: ExponentialMechanism, votes: Any, **settings: Any) -> Any:
        return draw(ExponentialMechanism(2 * self.epsilon, self.reached), votes, **settings)

    patch.setattr(ExponentialMechanism, "release", release)


def swap_weights(patch: Patch) -> None:
    """Exchange the weights of the first two groups of a partition: the leaders and the runners-up."""
    make_sampler: Any = release_module._make_sampler

    def make_swapped(law: PluralityLaw) -> Any:
        rows = [[*row[1::-1], *row[2:]] for row in law.to_json()]
        return make_sampler(PluralityLaw.from_json(law.K, law.classes, rows))

    patch.setattr(release_module, "_make_sampler", make_swapped)


def draw_first_of_group(patch: Patch) -> None:
    below = exact_sampling.uniform_below
    patch.setattr(release_module, "uniform_below", lambda rng: lambda bounds: below(rng)(bounds) * (bounds == ONE))


PRIVATE = partial(make_private, 11, "0.1", "1e-5", "1")
PUBLIC = partial(make_non_private, 11, "0.2676", "0.0003", overlap=1)
# a bug, the name of a release or a table, and whether its claim is refuted, too
BUGS: list[tuple[Callable[[Patch], None], str | Callable[[], Table], bool]] = [
    *((bug, make, True) for bug in (halve_lies, share_coins) for make in (PRIVATE, PUBLIC)),
    (let_minorities_win, partial(make_private, 11, "0.1", "1e-5", "3"), False),
    (halve_noise, "GNMax", True),
    (halve_noise, "two classes", True),
    (double_rate, "exponential", True),
    (swap_weights, "plurality", False),
    (swap_weights, "private plurality", False),
    (let_first_class_win_ties, "GNMax", False),
    (let_first_class_win_ties, "LNMax", False),
    (draw_first_of_group, "plurality", False),
]


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize(("bug", "make", "is_refuted"), BUGS)
def test_a_planted_bug_is_detected(
    bug: Callable[[Patch], None], make: str | Callable[[], Table], is_refuted: bool, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    release, draws = (RELEASES[make](), 20_000) if isinstance(make, str) else (Release(make()), 80_000)
    result = attack(release, draws, rng=np.random.default_rng(2))
    assert result.departures
    assert result.refuted or not is_refuted
    if not isinstance(make, str):
        assert any("worst pair" in event for event in result.departures)
        assert not is_refuted or result.epsilon > 1.2 * result.bounds[0].claimed


def test_a_law_that_costs_too_much_is_refuted(monkeypatch: Patch) -> None:
    """The labels are those of the release, and refute a claim that is too small: a false proof."""
    table = make_plurality(Voters(9, NON_PRIVATE, 1), "1", "1e-3").table
    false_problem = Problem(table.problem.voters, PrivacyParams("0.5", "1e-3"), 3)
    monkeypatch.setattr(Table, "problem", false_problem, raising=False)
    object.__setattr__(table, "problem", false_problem)
    result = attack(Release(table), 20_000, rng=np.random.default_rng(5))
    assert [bound.delta for bound in result.bounds if bound.is_false] == [1e-3]
    assert result.departures == ()


def test_progress_and_json_name_pairs_and_bounds() -> None:
    lines: list[str] = []
    release = Release(make_private(5, "0.8", "1e-2", "2"))
    result = attack(release, 3_000, rng=np.random.default_rng(1), report=lines.append)
    data = result.to_json()
    assert (data["refuted_epsilon"], data["worst_epsilon"]) == (result.epsilon, result.worst)
    assert data["claimed"] == {"epsilon": "1.6", "delta": "0.0199"}
    assert [(row["delta"], row["refuted"]) for row in data["epsilons"]] == [(b.delta, b.refuted) for b in result.bounds]
    assert lines == [f"drawing labels on the {pair}" for pair in ("worst pair", "worst pair without noise")]


@pytest.mark.statistical
def test_the_verdict_names_the_refuted_epsilon_or_a_departure(monkeypatch: Patch) -> None:
    def judge(release: Released, draws: int) -> tuple[dict[str, Any] | None, str, str]:
        return judge_attack(json.dumps(release.to_json()).encode(), draws, lambda _: None)

    # labels from the operating system: a false alarm in 1e-6 of all runs
    data, verdict, reason = judge(RELEASES["GNMax"](), 2_000)
    assert verdict == CONSISTENT
    assert data is not None
    assert f"refuted {data['refuted_epsilon']:.6g}" in reason
    data, verdict, reason = judge(NoisyMaximum(GNMax(3.0), Voters(20, NON_PRIVATE, 1), 1001), 2_000)
    assert (data, verdict) == (None, UNKNOWN)
    assert "more than 1,000 classes" in reason
    halve_noise(monkeypatch)
    data, verdict, reason = judge(RELEASES["GNMax"](), 20_000)
    assert verdict == FALSE
    assert data is not None
    assert data["departures"][0] in reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": 0}, "draws must be an integer"),
        ({"draws": 10**9 + 1}, "draws must be an integer .*1000000000"),
        ({"draws": 10, "confidence": 1.0}, r"confidence must be in \(0, 1\)"),
        ({"aggregator": GNMax(3.0), "draws": 10}, "a Release or a NoisyMaximum"),  # it knows no voters
    ],
)
def test_attack_refuses_wrong_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attack(**{"aggregator": Release(make_private(1, "0.5", "0", "1"))} | arguments)
