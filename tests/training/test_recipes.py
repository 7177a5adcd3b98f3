"""Recipes: batches, random words, keys, and random changes of images."""

import json
import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from hypothesis import given
from hypothesis import strategies as st

from darrm.errors import CheckpointError
from darrm.training.recipes import (
    AUGMENTATION,
    BATCH,
    NOISE,
    WORDS,
    Augmentation,
    PlainSGD,
    PrivateSGD,
    RandomSource,
    coins,
    destroy_key,
    distort,
    gaussians,
    read_or_create_key,
    recipe_from,
)
from darrm.training.student import Perturbation

MAX_WORD = 2**64 - 1


@pytest.mark.statistical
def test_poisson_batches_have_the_sampling_rate_and_independent_sizes() -> None:
    recipe = PrivateSGD(0.1, 1, 0.03, 1.0)
    sizes = np.array([len(recipe.batch(RandomSource(0), 0, step, 200)) for step in range(4000)])
    # the mean of 4,000 Bin(200, 0.03) has a standard deviation of 0.0381; 5 of them are exceeded with chance 6e-7
    assert sizes.mean() == pytest.approx(6.0, abs=5 * 0.0381)
    assert sizes.var() == pytest.approx(5.82, rel=0.2)  # a fixed batch size would give 0


@pytest.mark.parametrize(("rate", "batch"), [(1e-6, []), (1.0, [0, 1, 2, 3, 4])])
def test_poisson_batches_may_be_empty_or_hold_all_records(rate: float, batch: list[int]) -> None:
    assert PrivateSGD(0.1, 1, rate, 1.0).batch(RandomSource(0), 0, 0, 5).tolist() == batch


@pytest.mark.parametrize(("size", "batch_size", "steps"), [(10, 3, 4), (9, 3, 3), (2, 5, 1)])
def test_each_epoch_holds_every_record_once_in_another_order(size: int, batch_size: int, steps: int) -> None:
    recipe = PlainSGD(0.1, 2, batch_size)
    assert recipe.step_count(size) == 2 * steps
    batches = [recipe.batch(RandomSource(0), 0, step, size).tolist() for step in range(2 * steps)]
    first, second = (np.concatenate(epoch).tolist() for epoch in (batches[:steps], batches[steps:]))
    assert sorted(first) == sorted(second) == list(range(size))
    assert size < 5 or first != second


def test_recipes_survive_json() -> None:
    adam = PlainSGD(0.1, 5, 32, adam=True, augmentation=Augmentation(2.0, 0.1, mirror=True))
    for recipe in (PlainSGD(0.1, 5, 32), adam, PrivateSGD(0.05, 130, 5 / 130, 12.0)):
        assert recipe_from(json.loads(json.dumps(recipe.to_dict()))) == recipe
    # files of older releases hold these settings alone
    assert PlainSGD(0.1, 5, 32).to_dict() == {"kind": "plain", "learning_rate": 0.1, "epochs": 5, "batch_size": 32}


def make_private_recipe(**settings: Any) -> PrivateSGD:
    return PrivateSGD(**({"learning_rate": 0.1, "steps": 3, "sampling_rate": 0.1, "noise": 1.0} | settings))


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        *(
            (make_private_recipe, {name: value}, f"^{name} must be")
            for name, value in (
                ("learning_rate", 0.0),
                ("steps", 0),
                ("sampling_rate", 0.0),
                ("sampling_rate", 1.5),
                ("noise", float("nan")),
                ("noise", 0.0),
                ("clip", float("inf")),
            )
        ),
        *((make_private_recipe, {"clip": clip}, r"clip must be in \[1e-100, 1e\+100\]") for clip in (1e-101, 1e101)),
        (Augmentation, {"shift": -1.0}, "^shift must be"),
        (Augmentation, {"distortion": 1.0}, "^distortion must be"),
        (Augmentation, {"distortion": -0.1}, "^distortion must be"),
        (Perturbation, {"shift": -1.0}, "^shift must be"),
        (Perturbation, {"scale": -0.1}, "^scale must be"),
        (Perturbation, {"noise": float("nan")}, "^noise must be"),
        *((RandomSource, {"seed": seed}, "seed must be an integer of at least 0") for seed in (-1, 1.5, True)),
        (recipe_from, {"data": {"kind": "adam"}}, "kind must be one of plain, private"),
        # the batches of an epoch share one order
        (partial(PlainSGD(0.1, 1, 2).batch, RandomSource(), 0, 0), {"size": 10}, "seeded source"),
    ],
)
def test_recipes_refuse_wrong_numbers(make: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**wrong)


@given(st.floats(0.0, 1.0))
def test_a_coin_has_at_most_the_requested_probability(probability: float) -> None:
    # the words around the threshold reveal the exact probability
    threshold = math.floor(Fraction(probability) * 2**53)
    words = np.array([(max(threshold, 1) - 1) << 11, min(threshold << 11, MAX_WORD)], dtype=np.uint64)
    assert coins(words, probability).tolist() == [threshold > 0, threshold == 2**53]


def test_extreme_words_give_coins_and_finite_gaussians() -> None:
    words = np.array([0, MAX_WORD, MAX_WORD, 0], dtype=np.uint64)
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


def test_words_differ_by_teacher_purpose_and_step() -> None:
    keys = [(0, BATCH, 0), (1, BATCH, 0), (0, NOISE, 0), (0, BATCH, 1)]
    for source in (RandomSource(1), RandomSource(key=bytes(32))):
        assert len({tuple(source.words(4, *key).tolist()) for key in keys}) == 4


def test_words_without_a_seed_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def urandom(count: int) -> bytes:
        counts.append(count)
        return bytes(count)

    monkeypatch.setattr("os.urandom", urandom)
    assert RandomSource().words(3, 0, NOISE, 0).tolist() == [0, 0, 0]
    assert counts == [24]


def test_a_key_gives_different_noise_to_different_trainings(tmp_path: Path) -> None:
    # equal noise on two data sets would cancel
    key = read_or_create_key(tmp_path / "key")
    assert read_or_create_key(tmp_path / "key") == key
    source = RandomSource(key=key)
    one, again, other = (source.bind_to(name) for name in ("data", "data", "other data"))
    words = one.words(40, 0, NOISE, 3)
    assert (words == again.words(40, 0, NOISE, 3)).all()
    assert not (words == other.words(40, 0, NOISE, 3)).any()
    assert RandomSource(7).bind_to("data") == RandomSource(7)
    assert key.hex() not in repr(source) + str(source.name)
    for _ in range(2):  # the second time without a file
        destroy_key(tmp_path / "key")
        assert not list(tmp_path.iterdir())


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    read_or_create_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(CheckpointError, match="others made or may read this key"):
        read_or_create_key(tmp_path / "key")


def test_destroy_key_deletes_the_file_before_it_overwrites_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_: int) -> None:
        raise KeyboardInterrupt

    read_or_create_key(tmp_path / "key")
    monkeypatch.setattr("os.fsync", die)
    with pytest.raises(KeyboardInterrupt):
        destroy_key(tmp_path / "key")
    assert not list(tmp_path.iterdir())


def transform(image: np.ndarray, linear: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Show at p from the center the image at linear·p + offset, interpolated, 0 outside."""
    height, width = image.shape[-2:]
    transformed = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            place = np.array([column - (width - 1) / 2, row - (height - 1) / 2])
            x, y = linear @ place + offset + np.array([(width - 1) / 2, (height - 1) / 2])
            for j in (int(np.floor(y)), int(np.floor(y)) + 1):
                for i in (int(np.floor(x)), int(np.floor(x)) + 1):
                    if 0 <= j < height and 0 <= i < width:
                        transformed[:, row, column] += image[:, j, i] * (1 - abs(y - j)) * (1 - abs(x - i))
    return transformed


def test_augmentation_shows_images_through_maps_of_uniform_draws() -> None:
    words = RandomSource(0).words(40 * WORDS, 0, AUGMENTATION, 0)
    images = np.random.default_rng(0).random((40, 2, 5, 7), dtype=np.float32)
    maps = Augmentation(shift=2.0, distortion=0.3, mirror=True).maps(words, images.shape)
    distorted = distort(torch.tensor(images), torch.tensor(maps)).numpy()
    stretch = np.array([[1, 5 / 7], [7 / 5, 1]])  # the maps are of axes from -1 to 1
    for image, result, draws in zip(images, distorted, words.reshape(-1, WORDS) / 2.0**63 - 1.0, strict=True):
        linear = np.eye(2) + 0.3 * draws[:4].reshape(2, 2)
        linear[0] *= -1.0 if draws[6] < 0.0 else 1.0
        np.testing.assert_allclose(result, transform(image, linear / stretch, 2.0 * draws[4:6]), atol=1e-5)


def seed_generator(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


def test_a_perturbation_shows_images_through_maps_of_uniform_draws() -> None:
    generator, n = seed_generator(), 30

    def draw(*shape: int) -> np.ndarray:
        return np.asarray(2.0 * torch.rand(*shape, generator=generator) - 1.0)

    angles, shears, scales = math.radians(30) * draw(n), 0.5 * draw(n), np.exp(0.4 * draw(n, 2))
    signs = 1.0 - 2.0 * torch.randint(2, (n, 1), generator=generator).numpy()
    shifts, images = 2.0 * draw(n, 2), torch.rand(n, 2, 6, 6, generator=seed_generator(1))
    assert 0 < np.sum(signs > 0) < n
    changed = Perturbation(2, 30, 0.4, 0.5, flip=True).apply(images, seed_generator()).numpy()
    for number in range(n):
        cosine, sine = math.cos(angles[number]), math.sin(angles[number])
        linear = np.array([[cosine, -sine], [sine, cosine]]) @ np.array([[1.0, shears[number]], [0.0, 1.0]])
        linear = linear @ np.diag(scales[number])
        linear[0] *= signs[number]
        expected = transform(images[number].numpy(), linear, shifts[number])
        np.testing.assert_allclose(changed[number], expected, atol=1e-4)


def test_fading_and_noise_change_any_inputs_and_shifts_only_images() -> None:
    rows = torch.ones(2000, 5)
    faded = Perturbation(fading=0.3).apply(rows, seed_generator())
    assert bool((faded == faded[:, :1]).all())  # one factor for each input
    assert np.log(float(faded.max())) == pytest.approx(0.3, abs=0.01)
    assert np.log(float(faded.min())) == pytest.approx(-0.3, abs=0.01)
    noisy = Perturbation(noise=0.2).apply(rows, seed_generator())
    assert float((noisy - rows).std()) == pytest.approx(0.2, rel=0.05)
    with pytest.raises(ValueError, match=r"x must be images, got inputs of shape \(5,\)"):
        Perturbation(shift=1).apply(rows, seed_generator())
