"""Priors: their laws of histograms and weights of levels in exact fractions, their draws, and their text."""

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from darrm.priors import (
    Dirichlet,
    Independent,
    Led,
    Point,
    Prior,
    RecordedVotes,
    TwoSided,
    from_json,
    is_built_in,
    log_arrangements,
    parse,
    to_json,
)
from darrm.votes import Votes
from tests.oracle import laws_of_ones

SEEN = Votes.from_counts([[3, 0, 1], [0, 1, 3], [2, 2, 0], [2, 1, 1], [2, 1, 1]])


def histograms(K: int, classes: int) -> np.ndarray:
    return np.array([row for row in product(range(K + 1), repeat=classes) if sum(row) == K])


def test_recorded_votes_are_drawn_with_their_classes_renamed() -> None:
    everything = histograms(4, 3)
    expected: Counter[tuple[int, ...]] = Counter()
    for row in SEEN.counts.tolist():
        for renamed in permutations(row):
            expected[renamed] += 1
    share = np.array([expected[tuple(row)] for row in everything.tolist()]) / (5 * 6)
    prior = RecordedVotes("seen.csv", SEEN)
    assert np.exp(prior.log_probabilities(everything)) == pytest.approx(share, abs=1e-12)
    sample = prior.sample(4, 3, 30_000, rng=np.random.default_rng(1))
    frequency = Counter(map(tuple, sample.tolist()))
    for row, p in zip(everything.tolist(), share.tolist(), strict=True):
        # 6 standard deviations
        assert abs(frequency[tuple(row)] / 30_000 - p) <= 6 * math.sqrt(p * (1 - p) / 30_000)


def test_more_voters_than_recorded_choose_like_the_recorded_ones() -> None:
    sample = RecordedVotes("two", Votes.from_counts([[3, 1, 0]])).sample(400, 3, 2000, rng=np.random.default_rng(2))
    assert set(sample.sum(axis=1).tolist()) == {400}
    ordered = np.sort(sample, axis=1).mean(axis=0)
    assert ordered == pytest.approx([0.0, 100.0, 300.0], abs=2.0)
    assert sample.mean(axis=0) == pytest.approx([400 / 3] * 3, abs=20.0)


def test_log_arrangements_counts_permutations() -> None:
    for row in histograms(6, 4)[::7]:
        assert np.exp(log_arrangements(row[None]))[0] == pytest.approx(len(set(permutations(row.tolist()))))


@pytest.mark.parametrize("concentration", [5e-324, 1e-8, 0.5, 1.0, 1e5, 1e8, 1e12, 1.7e308])
def test_dirichlet_law_is_exact_for_every_concentration(concentration: float) -> None:
    def rising(first: Fraction, count: int) -> Fraction:
        return math.prod((first + i for i in range(count)), start=Fraction(1))

    a, result = Fraction(concentration), histograms(6, 3)
    exact = [
        math.prod(rising(a, n) / math.factorial(n) for n in row) * math.factorial(6) / rising(3 * a, 6)
        for row in result.tolist()
    ]
    probabilities = np.exp(Dirichlet(concentration).log_probabilities(result))
    assert probabilities == pytest.approx([float(each) for each in exact], rel=1e-12, abs=1e-15)


def test_led_law_is_that_of_polyas_urn() -> None:
    """Pólya's urn: each voter chooses c with a probability that grows by one for each vote for c."""
    leader, others = Fraction(3, 2), Fraction(1, 4)

    def urn(votes: tuple[int, ...]) -> Fraction:
        parameters = [others + leader, others, others]
        law = Fraction(1)
        for place, vote in enumerate(votes):
            law *= (parameters[vote] + votes[:place].count(vote)) / (leader + 3 * others + place)
        return law

    exact: dict[tuple[int, ...], Fraction] = {}
    for votes in product(range(3), repeat=4):
        for turn in range(3):  # who leads
            counts = tuple(votes.count((cls + turn) % 3) for cls in range(3))
            exact[counts] = exact.get(counts, Fraction(0)) + urn(votes) / 3
    probabilities = np.exp(Led(1.5, 0.25).log_probabilities(np.array(list(exact))))
    assert probabilities == pytest.approx([float(each) for each in exact.values()], rel=1e-12)


def test_like_fits_a_led_law_to_public_votes(tmp_path: Path) -> None:
    path = tmp_path / "seen.npy"
    np.save(path, Led(4, 0.25).sample(30, 3, 1000, rng=np.random.default_rng(5)))
    prior = parse(f"like:{path}", 3)
    assert isinstance(prior, Led)
    assert (prior.leader, prior.others) == pytest.approx((4, 0.25), rel=0.2)
    assert parse(prior.text, 3) == from_json(to_json(prior, 30, 3)) == prior
    unanimous = Led.fit(Votes.from_counts([[9, 0, 0], [0, 9, 0]]))
    assert np.exp(unanimous.log_probabilities(np.array([[9, 0, 0]]))) == pytest.approx(1 / 3, abs=1e-3)


def test_recorded_votes_are_compared_by_name_and_digest() -> None:
    other = Votes.from_counts([[3, 0, 1], [0, 1, 3], [2, 2, 0], [2, 1, 1], [1, 2, 1]])
    assert RecordedVotes("a", SEEN) == RecordedVotes("a", Votes.from_counts(SEEN.counts))
    assert hash(RecordedVotes("a", SEEN)) == hash(RecordedVotes("a", Votes.from_counts(SEEN.counts)))
    assert RecordedVotes("a", SEEN) != RecordedVotes("a", other)
    assert RecordedVotes("a", SEEN) != RecordedVotes("b", SEEN)


def test_text_of_recorded_votes_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "seen.npy"
    np.save(path, SEEN.counts)
    prior = parse(f"votes:{path}", 3)
    assert isinstance(prior, RecordedVotes)
    assert prior.votes.counts.tolist() == SEEN.counts.tolist()
    assert is_built_in(prior)
    assert parse(prior.text, 3) == prior


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((f"uniform{parameters}", "must be") for parameters in (":", ":0.5", ":0.9,0.6", ":0.6,nan", ":0.5,a,b")),
        *((f"two-sided{parameters}", "must be") for parameters in ("", ":0.7", ":0.3,0.9", ":0.9,0.8")),
        *((f"point{parameters}", "must be") for parameters in ("", ":2", ":0.5", ":1,2")),
        *((text, "must be") for text in ("Uniform", "", "common:1")),
    ],
)
def test_parse_refuses_malformed_priors_of_two_classes(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


RECORDED = RecordedVotes("seen", SEEN)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parse("common", 3), "dirichlet:CONCENTRATION"),
        (lambda: parse("dirichlet:x", 3), "dirichlet:CONCENTRATION"),
        (lambda: parse("dirichlet:0", 3), "concentration must be a positive"),
        (lambda: parse("dirichlet:nan", 3), "dirichlet:CONCENTRATION"),
        (lambda: parse("votes:", 3), "votes:FILE"),
        (lambda: RECORDED.sample(4, 4, 1, rng=np.random.default_rng(0)), "the 3 of the recorded votes"),
        (lambda: RECORDED.log_probabilities(np.array([[1, 1, 1]])), "histograms of the 4 recorded voters"),
        (lambda: RecordedVotes("none", SEEN[:0]), "at least one query"),
        (lambda: Led.fit(SEEN[:0]), "at least one query"),
        (lambda: Independent(0.0, 1.0).weights(11), "must be one with a linear expected error"),
        (lambda: TwoSided(0.7, 1.0).weights(3), "only draws give the expected error"),
        *(
            (partial(Independent(0.0, 1.0).probabilities, *sizes, rng=np.random.default_rng(0)), "must be an integer")
            for sizes in ((0, 3), (3, 0), (2.5, 3))
        ),
    ],
)
def test_priors_refuse_arguments_out_of_range(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("K", [1, 2, 5, 10, 11])
def test_weights_of_independent_laws_depend_on_their_mean_only(K: int) -> None:
    # the exact expectation over a two-point law with the same mean
    law = laws_of_ones(np.array(list(product((0.6, 1.0), repeat=K)))).mean(axis=0)
    levels = np.arange(K // 2 + 1, K + 1)
    np.testing.assert_allclose(Independent(0.6, 1.0).weights(K), law[levels] - law[K - levels], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("K", [1, 4, 11])
def test_weights_of_a_dirichlet_law_are_integrals_over_a_common_p(K: int) -> None:
    def difference(p: float, level: int) -> float:
        law = laws_of_ones(np.full(K, p))
        return abs(float(law[level] - law[K - level]))

    for level, weight in zip(range(K // 2 + 1, K + 1), Dirichlet().weights(K), strict=True):
        value = quad(difference, 0.0, 0.5, args=(level,))[0] + quad(difference, 0.5, 1.0, args=(level,))[0]
        assert weight == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize(("prior", "p", "K"), [(Point(0.500001), "0.500001", 101), (Independent(0.5, 1.0), "3/4", 501)])
def test_weights_keep_their_digits_near_one_half_and_below_1e_30(prior: Prior, p: str, K: int) -> None:
    one, zero = Fraction(p), 1 - Fraction(p)
    exact = [comb(K, n) * (one**n * zero ** (K - n) - one ** (K - n) * zero**n) for n in range(K // 2 + 1, K + 1)]
    np.testing.assert_allclose(prior.weights(K), [float(weight) for weight in exact], rtol=1e-9)


@pytest.mark.parametrize(
    ("prior", "low", "high"),
    [
        (Independent(0.2, 0.9), 0.2, 0.9),
        (Dirichlet(), 0.0, 1.0),
        (Point(0.3), 0.3, 0.3),
        (TwoSided(0.7, 0.9), 0.1, 0.9),
    ],
)
def test_drawn_probabilities_fill_the_priors_range(prior: Prior, low: float, high: float) -> None:
    p = prior.probabilities(5, 2_000, rng=np.random.default_rng(0))
    assert p.shape == (2_000, 5)
    assert low <= p.min() <= low + 0.01
    assert high - 0.01 <= p.max() <= high
    assert np.mean(p) == pytest.approx(0.5 * (low + high), abs=0.03)
    if isinstance(prior, TwoSided):
        assert not np.any((p > 0.3) & (p < 0.7))
