"""Beliefs about histograms: recorded votes are what was recorded, and text is read back."""

import math
from collections import Counter
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

from darrm.priors import Dirichlet, Led, RecordedVotes, from_json, is_built_in, log_arrangements, parse, to_json
from darrm.votes import Votes

SEEN = Votes.from_counts([[3, 0, 1], [0, 1, 3], [2, 2, 0], [2, 1, 1], [2, 1, 1]])


def histograms(K: int, classes: int) -> np.ndarray:
    return np.array([row for row in product(range(K + 1), repeat=classes) if sum(row) == K])


def test_recorded_votes_are_the_recorded_ones_with_their_classes_renamed() -> None:
    everything = histograms(4, 3)
    expected: Counter[tuple[int, ...]] = Counter()
    for row in SEEN.counts.tolist():
        for renamed in permutations(row):
            expected[renamed] += 1
    share = np.array([expected[tuple(row)] for row in everything.tolist()]) / (5 * 6)
    prior = RecordedVotes("seen.csv", SEEN)
    assert np.exp(prior.log_probabilities(everything)) == pytest.approx(share, abs=1e-12)
    drawn = prior.sample(4, 3, 30_000, rng=np.random.default_rng(1))
    frequency = Counter(map(tuple, drawn.tolist()))
    for row, p in zip(everything.tolist(), share.tolist(), strict=True):
        # 6 standard deviations
        assert abs(frequency[tuple(row)] / 30_000 - p) <= 6 * math.sqrt(p * (1 - p) / 30_000)


def test_more_voters_choose_as_one_of_a_recorded_question_did() -> None:
    drawn = RecordedVotes("two", Votes.from_counts([[3, 1, 0]])).sample(400, 3, 2000, rng=np.random.default_rng(2))
    assert set(drawn.sum(axis=1).tolist()) == {400}
    ordered = np.sort(drawn, axis=1).mean(axis=0)
    assert ordered == pytest.approx([0.0, 100.0, 300.0], abs=2.0)
    assert drawn.mean(axis=0) == pytest.approx([400 / 3] * 3, abs=20.0)


def test_arrangements_are_counted() -> None:
    for row in histograms(6, 4)[::7]:
        assert np.exp(log_arrangements(row[None]))[0] == pytest.approx(len(set(permutations(row.tolist()))))


@pytest.mark.parametrize("concentration", [5e-324, 1e-8, 0.5, 1.0, 1e5, 1e8, 1e12, 1.7e308])
def test_a_dirichlet_law_is_exact_for_every_concentration(concentration: float) -> None:
    def rising(first: Fraction, count: int) -> Fraction:
        return math.prod((first + i for i in range(count)), start=Fraction(1))

    a, result = Fraction(concentration), histograms(6, 3)
    exact = [
        math.prod(rising(a, n) / math.factorial(n) for n in row) * math.factorial(6) / rising(3 * a, 6)
        for row in result.tolist()
    ]
    probabilities = np.exp(Dirichlet(concentration).log_probabilities(result))
    assert probabilities == pytest.approx([float(each) for each in exact], rel=1e-12, abs=1e-15)


def test_one_class_leads_as_exact_fractions_say() -> None:
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
    ours = np.exp(Led(1.5, 0.25).log_probabilities(np.array(list(exact))))
    assert ours == pytest.approx([float(each) for each in exact.values()], rel=1e-12)


def test_a_prior_like_public_votes_is_one_in_numbers(tmp_path: Path) -> None:
    path = tmp_path / "seen.npy"
    np.save(path, Led(4, 0.25).sample(30, 3, 1000, rng=np.random.default_rng(5)))
    prior = parse(f"like:{path}", 3)
    assert isinstance(prior, Led)
    assert (prior.leader, prior.others) == pytest.approx((4, 0.25), rel=0.2)
    assert parse(prior.text, 3) == from_json(to_json(prior, 30, 3)) == prior
    unanimous = Led.fit(Votes.from_counts([[9, 0, 0], [0, 9, 0]]))
    assert np.exp(unanimous.log_probabilities(np.array([[9, 0, 0]]))) == pytest.approx(1 / 3, abs=1e-3)
    with pytest.raises(ValueError, match="at least one query"):
        Led.fit(SEEN[:0])


def test_recorded_votes_are_known_by_their_digest() -> None:
    other = Votes.from_counts([[3, 0, 1], [0, 1, 3], [2, 2, 0], [2, 1, 1], [1, 2, 1]])
    assert RecordedVotes("a", SEEN) == RecordedVotes("a", Votes.from_counts(SEEN.counts))
    assert hash(RecordedVotes("a", SEEN)) == hash(RecordedVotes("a", Votes.from_counts(SEEN.counts)))
    assert RecordedVotes("a", SEEN) != RecordedVotes("a", other)
    assert RecordedVotes("a", SEEN) != RecordedVotes("b", SEEN)


def test_text_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "seen.npy"
    np.save(path, SEEN.counts)
    prior = parse(f"votes:{path}", 3)
    assert isinstance(prior, RecordedVotes)
    assert prior.votes.counts.tolist() == SEEN.counts.tolist()
    assert is_built_in(prior)
    assert parse(prior.text, 3) == prior


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("common", "dirichlet:CONCENTRATION"),
        ("dirichlet:x", "dirichlet:CONCENTRATION"),
        ("dirichlet:0", "concentration must be a positive"),
        ("dirichlet:nan", "dirichlet:CONCENTRATION"),
        ("votes:", "votes:FILE"),
    ],
)
def test_what_is_no_prior_is_refused(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse(text, 3)


def test_votes_on_other_classes_are_refused() -> None:
    prior = RecordedVotes("seen", SEEN)
    with pytest.raises(ValueError, match="the 3 of the recorded votes"):
        prior.sample(4, 4, 1, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="histograms of the 4 recorded voters"):
        prior.log_probabilities(np.array([[1, 1, 1]]))
    with pytest.raises(ValueError, match="at least one query"):
        RecordedVotes("none", SEEN[:0])
