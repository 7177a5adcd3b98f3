"""Attacks on pluralities and mechanisms: laws by enumeration, neighbors by definition, honest ones stand, bugs show."""

import json
import math
from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from darrm.aggregator import Released
from darrm.noisy_max import mechanisms
from darrm.noisy_max.mechanisms import AsymmetricMax, GNMax, LNMax
from darrm.noisy_max.noisy_maximum import Mechanism, NoisyMaximum
from darrm.noisy_max.selection import ExponentialMechanism, PermuteAndFlip
from darrm.numerics import exact_sampling
from darrm.numerics.integer_noise import AsymmetricNoise, DiscreteGaussian
from darrm.plurality.plurality_law import ONE, PluralityLaw, true_plurality
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table import release
from darrm.table.release import Release
from darrm.table.table import Table, certify
from darrm.verify.attack import attack, judge_attack
from darrm.verify.label_law import Pair, law_of
from darrm.verify.neighbors import near_ties, random_pair
from darrm.verify.verdicts import CONSISTENT, FALSE, UNKNOWN

PLAIN = PrivacyParams("inf")
DRAWS = 20_000


def of_three(mechanism: Mechanism, K: int = 20) -> NoisyMaximum:
    return NoisyMaximum(mechanism, Voters(K, PLAIN, mechanism.reached), 3)


def plurality(voters: Voters, epsilon: str, delta: str, classes: int = 3) -> Release:
    return Release(certify(Problem(voters, PrivacyParams(epsilon, delta), classes), true_plurality(voters.K, classes)))


def file_of(release: Released) -> bytes:
    return json.dumps(release.to_json()).encode()


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
    law = law_of(of_three(mechanism, K=5))(np.array([counts]))[0]
    assert law == pytest.approx(noisy_maximum_by_enumeration(masses, counts), abs=1e-13)


@pytest.mark.parametrize("counts", [(3, 1, 1), (0, 3, 2), (5, 0, 0)])
def test_the_laws_of_selection_are_those_of_their_definitions(counts: tuple[int, ...]) -> None:
    epsilon, reached = 1.3, 2
    heads = [math.exp(-epsilon * (max(counts) - n) / (2 * reached)) for n in counts]
    votes = np.array([counts])
    exponential = law_of(of_three(ExponentialMechanism(epsilon, reached), K=5))(votes)[0]
    assert exponential == pytest.approx([head / sum(heads) for head in heads], abs=1e-14)
    flipped = [0.0] * 3
    for order in permutations(range(3)):
        none = 1.0 / 6.0
        for label in order:
            flipped[label] += none * heads[label]
            none *= 1.0 - heads[label]
    assert law_of(of_three(PermuteAndFlip(epsilon, reached), K=5))(votes)[0] == pytest.approx(flipped, abs=1e-14)


@pytest.mark.parametrize("name", ["private plurality, delta, overlap", "differing voters"])
def test_labels_of_private_voters_are_averaged_over_all_that_they_say(name: str) -> None:
    aggregator = RELEASES[name]()
    assert isinstance(aggregator, Release)
    pair = random_pair(aggregator.voters, 3, np.random.default_rng(2))
    voters = [np.repeat(side, pair.sizes, axis=0) for side in pair.sides]
    for side, label in zip(voters, pair.labels(law_of(aggregator)), strict=True):
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
    rng = np.random.default_rng(1)
    pairs = [random_pair(voters, classes, rng) for _ in range(30)] + [pair for _, pair in near_ties(voters, classes)]
    strengths = sorted(each.epsilon if each.is_private else math.inf for n, each in voters.kinds for _ in range(n))
    moved = [assert_neighbors(pair, voters, strengths) for pair in pairs]
    assert max(moved) == voters.reached


def assert_neighbors(pair: Pair, voters: Voters, strengths: list[float]) -> int:
    """Hold every voter's two laws against the definition; return how many voters move."""
    assert pair.sizes.sum() == voters.K
    assert pair.sides.sum(axis=2) == pytest.approx(1.0)
    needed: list[float] = []
    for n, before, after in zip(pair.sizes, *pair.sides, strict=True):
        if np.array_equal(before, after):
            continue
        delta = max(each.delta for _, each in voters.kinds)
        least = [
            math.log((p.sum() - delta) / q.sum()) if q.sum() > 1e-12 else math.inf
            for one, other in ((before, after), (after, before))
            for chosen in product([False, True], repeat=before.size)
            for p, q in [(one[list(chosen)], other[list(chosen)])]
            if p.sum() > delta + 1e-12
        ]
        needed += [max(least)] * int(n)
    # each of them has a voter of its own who promises as little
    for one, strength in zip(sorted(needed)[::-1], strengths[::-1], strict=False):
        assert one <= strength + 1e-9
    return len(needed)


ALIKE = {"GNMax of three votes", "AsymmetricMax", "plurality", "private plurality"}  # each beside one that is quick


@pytest.mark.quick_cases(1)
@pytest.mark.statistical
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in RELEASES])
def test_an_honest_release_stands(name: str) -> None:
    result = attack(RELEASES[name](), DRAWS, rng=np.random.default_rng(3))  # a false alarm in 1e-6 of all seeds
    assert (result.refuted, result.departures) == (False, ())
    for bound in result.bounds:
        assert bound.refuted <= bound.true
        assert bound.claimed is None or bound.true <= bound.claimed * (1.0 + 1e-9)
    assert result.bounds[0].true > 0.4 * (result.bounds[0].claimed or 0.0)


def half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = mechanisms.noise_draws

    def halved(law: DiscreteGaussian, rng: Any, **rest: bool) -> Any:
        return draws(DiscreteGaussian(law.sigma / 2.0), rng, **rest)

    monkeypatch.setattr(mechanisms, "noise_draws", halved)


def twice_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ExponentialMechanism.release
    monkeypatch.setattr(
        ExponentialMechanism,
        "release",
        lambda self, votes, *, rng=None: honest(ExponentialMechanism(2 * self.epsilon, self.reached), votes, rng=rng),
    )


def swapped_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two groups of a partition, the leaders and the runners-up, change places."""
    sampler: Any = release._SAMPLERS[PluralityLaw]

    def swapped(law: PluralityLaw) -> Any:
        rows = [[row[1], row[0], *row[2:]] if len(row) > 1 else row for row in law.to_json()]
        return sampler(PluralityLaw.from_json(law.K, law.classes, rows))

    monkeypatch.setitem(release._SAMPLERS, PluralityLaw, swapped)


def first_class_wins_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    def winners(counts: Any, draw: Any, _rng: Any) -> Any:
        return (counts + draw(counts.size).reshape(counts.shape)).argmax(axis=1)

    monkeypatch.setattr(mechanisms, "noisy_argmax", winners)


def first_class_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    below = exact_sampling.uniform_below

    def biased(rng: Any) -> Any:
        return lambda bounds: below(rng)(bounds) * (bounds == ONE)  # the rank within a group is always 0

    monkeypatch.setattr(release, "uniform_below", biased)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("bug", "name", "refuted"),
    [
        (half_the_noise, "GNMax", True),
        (half_the_noise, "two classes", True),
        (twice_the_rate, "exponential", True),
        (swapped_weights, "plurality", False),
        (swapped_weights, "private plurality", False),
        (first_class_wins_ties, "GNMax", False),
        (first_class_wins_ties, "LNMax", False),
        (first_class_of_a_group, "plurality", False),
    ],
)
def test_a_planted_bug_is_false(bug: Any, name: str, refuted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    result = attack(RELEASES[name](), DRAWS, rng=np.random.default_rng(4))
    assert result.departures
    assert "NOT THOSE OF THE RELEASE" in result.text
    if refuted:
        assert result.refuted
        assert "THE CLAIM IS FALSE" in result.text


def test_a_law_that_costs_too_much_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is too small is refuted by labels that are those of the release: a false proof."""
    table = plurality(Voters(9, PLAIN, 1), "1", "1e-3").table
    false = Problem(table.problem.voters, PrivacyParams("0.5", "1e-3"), 3)
    monkeypatch.setattr(Table, "problem", false, raising=False)
    object.__setattr__(table, "problem", false)
    result = attack(Release(table), DRAWS, rng=np.random.default_rng(5))
    assert [bound.at for bound in result.false] == [1e-3]
    assert result.departures == ()


def test_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    data, verdict, reason = judge_attack(file_of(RELEASES["GNMax"]()), 2_000, told.append)
    assert verdict == CONSISTENT
    assert data is not None
    assert f"refuted {data['refuted_epsilon']:.6g}" in reason
    assert len(told) > 1
    too_wide, verdict, reason = judge_attack(file_of(of_three(GNMax(1e7))), 2_000, told.append)
    assert (too_wide, verdict) == (None, UNKNOWN)
    assert "too wide" in reason
    half_the_noise(monkeypatch)
    data, verdict, reason = judge_attack(file_of(RELEASES["GNMax"]()), 20_000, told.append)
    assert verdict == FALSE
    assert data is not None
    assert data["departures"][0] in reason
    with pytest.raises(ValueError, match="a Release or a NoisyMaximum"):
        attack(GNMax(3.0), 10)  # type: ignore[arg-type]  # it knows no voters
