"""Coordinated votes: public numbers that everybody computes alike, votes of the right law, and agreement."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from darrm.prompts import coordinate_votes
from darrm.prompts.coordination import draw_exponentials, philox

STEPS = 4_000


# the vectors of Random123, kat_vectors, philox4x32 of 10 rounds
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_words(counter: tuple[int, ...], key: tuple[int, int], words: str) -> None:
    bits = philox(np.array(counter, dtype=np.uint64)[:, None], key)[:, 0]
    assert " ".join(f"{word:08x}" for word in bits) == words


def compute_exponential(word: int, seed: str, step: int) -> float:
    """The public number of a word, by Python's integers and its logarithm."""
    digest = hashlib.sha256(seed.encode()).digest()
    key = [int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")]
    a, b, c, d = word % 2**32, word >> 32, step % 2**32, step >> 32
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ key[0], right % 2**32, (left >> 32) ^ d ^ key[1], left % 2**32
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return -math.log((((a << 32 | b) >> 12) + 0.5) / 2**52)


@pytest.mark.parametrize("step", [0, 5, 2**33 + 1])
def test_public_numbers_agree_with_plain_arithmetic(step: int) -> None:
    words = [0, 1, 17, 50_000, 2**31, 2**40 + 3]
    expected = [compute_exponential(word, "seed é", step) for word in words]
    np.testing.assert_allclose(draw_exponentials(np.array(words), "seed é", step), expected, rtol=1e-14)


def test_public_numbers_are_exponential_and_differ_between_steps_and_seeds() -> None:
    numbers = draw_exponentials(np.arange(20_000), 1, 0)
    assert stats.kstest(numbers, "expon").pvalue > 1e-6  # false alarms: 1e-6
    for others in (draw_exponentials(np.arange(20_000), 1, 1), draw_exponentials(np.arange(20_000), 2, 0)):
        assert abs(np.corrcoef(numbers, others)[0, 1]) < 4.9 / math.sqrt(20_000)  # false alarms: 1e-6
    assert np.array_equal(draw_exponentials(np.arange(5), 1, 3), draw_exponentials(np.arange(5), "1", 3))


@pytest.mark.slow
@pytest.mark.statistical
def test_each_vote_has_the_law_of_its_voter() -> None:
    laws = np.random.default_rng(0).dirichlet(np.full(6, 0.7), 4)
    laws[3] = [0.0, 0.0, 0.5, 0.5, 0.0, 0.0]
    votes = np.array([coordinate_votes(laws, "law", step=step) for step in range(STEPS)])
    for law, column in zip(laws, votes.T, strict=True):
        counts = np.bincount(column, minlength=6)
        possible = law > 0.0
        assert counts[~possible].sum() == 0
        assert stats.chisquare(counts[possible], STEPS * law[possible]).pvalue > 2.5e-7  # false alarms: 1e-6 in all


@pytest.mark.slow
@pytest.mark.statistical
def test_two_voters_agree_as_often_as_their_laws_imply() -> None:
    laws = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.3, 0.4, 0.2]])
    ratios = np.divide.outer(laws[:, :3], np.ones(3)).transpose(0, 2, 1) / laws[:, :3, None]  # p(w)/p(v), v then w
    beyond = laws[1, 3] / laws[1, :3]
    expected = float(np.sum(1.0 / (ratios.max(axis=0).sum(axis=1) + beyond)))
    agreement = np.mean([len(set(coordinate_votes(laws, 3, step=step).tolist())) == 1 for step in range(STEPS)])
    assert abs(agreement - expected) <= 4.9 * math.sqrt(expected * (1.0 - expected) / STEPS)  # false alarms: 1e-6
    overlap = float(laws.min(axis=0).sum())
    assert expected >= overlap / (2.0 - overlap)


def test_sparse_laws_vote_as_dense_laws_do() -> None:
    laws = np.random.default_rng(2).dirichlet(np.full(8, 0.3), 5)
    laws[np.arange(5), laws.argmin(axis=1)] = 0.0
    laws /= laws.sum(axis=1, keepdims=True)
    numbers = np.argsort(-laws, axis=1)
    probabilities = np.take_along_axis(laws, numbers, axis=1)
    for step in range(50):
        votes = coordinate_votes(laws, 5, step=step)
        np.testing.assert_array_equal(coordinate_votes((numbers, probabilities), 5, step=step), votes)
        # a truncated law is rescaled to the sum 1
        np.testing.assert_array_equal(coordinate_votes((numbers, 0.5 * probabilities), 5, step=step), votes)
    assert coordinate_votes((numbers + 2**40, probabilities), 5).min() >= 2**40  # without an array of 2⁴⁰ words
    # padding of probability 0 may repeat a word
    assert coordinate_votes(([[4, 0, 0, 0]], [[1.0, 0.0, 0.0, 0.0]]), 1).tolist() == [4]


def test_equal_laws_vote_alike_and_never_for_an_impossible_word() -> None:
    votes = np.array([coordinate_votes([[0.2, 0.0, 0.5, 0.3]] * 9, 1, step=step) for step in range(300)])
    assert np.all(votes == votes[:, :1])
    assert set(np.unique(votes)) == {0, 2, 3}
    assert coordinate_votes([[5e-324, 1.0 - 1e-16]], 1).tolist() == [1]
    assert coordinate_votes([[1.0]], 1).tolist() == [0]


@pytest.mark.parametrize(
    ("laws", "message"),
    [
        ([[0.5, math.nan]], "another number in row 0"),
        ([[0.5, 0.5], [1.5, -0.5]], "another number in row 1"),
        ([[math.inf, 0.0]], "another number in row 0"),
        ([[0.5, 0.4]], "the sum of row 0 of the probabilities must be 1, got 0.9"),
        ([[0.0, 0.0]], "got 0.0"),
        ([[3.0, 2.0]], "got 5.0"),
        ([0.5, 0.5], "numbers of shape"),
        ([[]], "numbers of shape"),
        ([["a", "b"]], "numbers of shape"),
        (([[0, 1]], [[0.0, 0.0]]), "got 0.0"),
        (([[3, 3]], [[0.5, 0.5]]), "a word twice in row 0"),
        (([[-1, 3]], [[0.5, 0.5]]), "whole numbers of at least 0"),
        (([[0.5, 3.0]], [[0.5, 0.5]]), "whole numbers of at least 0"),
        (([[1, 2, 3]], [[0.5, 0.5]]), "whole numbers of at least 0"),
    ],
)
def test_coordinate_votes_refuses_wrong_laws(laws: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        coordinate_votes(laws, 1)


@pytest.mark.parametrize(("seed", "step"), [(1.5, 0), (True, 0), (None, 0), (1, -1), (1, 2**63), (1, 0.5)])
def test_coordinate_votes_refuses_wrong_seeds_and_steps(seed: Any, step: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        coordinate_votes([[1.0, 0.0]], seed, step=step)
