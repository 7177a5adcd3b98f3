import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from darrm.errors import CheckpointError
from darrm.training.recipes import BATCH, NOISE, RandomSource, coins, destroy_key, gaussians, kept_key

TOP = 2**64 - 1


@given(st.floats(0.0, 1.0))
def test_a_coin_shows_one_never_more_often_than_asked(probability: float) -> None:
    # the largest 53-bit word that counts tells the exact probability
    threshold = math.floor(Fraction(probability) * 2**53)
    edge = np.array([(max(threshold, 1) - 1) << 11, min(threshold << 11, TOP)], dtype=np.uint64)
    shown = coins(edge, probability)
    assert bool(shown[0]) == (threshold > 0)
    assert bool(shown[1]) == (threshold == 2**53)
    assert Fraction(threshold, 2**53) <= Fraction(probability)


def test_extreme_words_and_probabilities() -> None:
    words = np.array([0, TOP, TOP, 0], dtype=np.uint64)
    assert coins(words, 1.0).all()
    assert not coins(words, 0.0).any()
    assert np.isfinite(gaussians(words)).all()


@pytest.mark.statistical
def test_gaussians_have_the_normal_distribution() -> None:
    sample = np.sort(gaussians(RandomSource(3).words(200_000, 0, NOISE, 0)))
    exact = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in sample[::20]])
    empirical = np.arange(0, sample.size, 20) / sample.size
    # Kolmogorov and Smirnov: P[D > 2.69/sqrt(n)] < 1e-6
    assert np.abs(exact - empirical).max() < 2.69 / math.sqrt(sample.size) + 20 / sample.size


def test_streams_differ_by_teacher_purpose_and_step() -> None:
    source = RandomSource(1)
    streams = [source.words(4, *key).tolist() for key in [(0, BATCH, 0), (1, BATCH, 0), (0, NOISE, 0), (0, BATCH, 1)]]
    assert len({tuple(stream) for stream in streams}) == 4


def test_without_a_seed_the_operating_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RandomSource().words(4, 0, NOISE, 0).tolist() != RandomSource().words(4, 0, NOISE, 0).tolist()
    asked: list[int] = []

    def urandom(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr("os.urandom", urandom)
    assert RandomSource().words(3, 0, NOISE, 0).tolist() == [0, 0, 0]
    assert asked == [24]


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_a_bad_seed_is_refused(seed: object) -> None:
    with pytest.raises(ValueError, match="seed must be an integer of at least 0"):
        RandomSource(seed)  # type: ignore[arg-type]


def test_a_key_gives_every_training_noise_of_its_own(tmp_path: Path) -> None:
    """The same noise on two data sets would cancel: a folder's key is never used for two trainings as it is."""
    key = kept_key(tmp_path / "key")
    assert kept_key(tmp_path / "key") == key
    source = RandomSource(key=key)
    one, again, other = (source.bound_to(name) for name in ("data", "data", "other data"))
    assert (one.words(40, 0, NOISE, 3) == again.words(40, 0, NOISE, 3)).all()
    for different in (other.words(40, 0, NOISE, 3), one.words(40, 0, NOISE, 4), one.words(40, 1, NOISE, 3)):
        assert not (one.words(40, 0, NOISE, 3) == different).any()
    assert RandomSource(7).bound_to("data") == RandomSource(7)
    assert key.hex() not in repr(source) + str(source.name)
    destroy_key(tmp_path / "key")
    assert not list(tmp_path.iterdir())
    destroy_key(tmp_path / "key")


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    kept_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(CheckpointError, match="others made or may read this key"):
        kept_key(tmp_path / "key")


def test_a_key_that_is_being_destroyed_is_gone_before_it_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_key(tmp_path / "key")

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        destroy_key(tmp_path / "key")
    assert not list(tmp_path.iterdir())
