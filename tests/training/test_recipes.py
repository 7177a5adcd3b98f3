"""Recipes: batches, plain data, and random changes of images."""

import json
import math
from fractions import Fraction
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

WIDE = (2, 3, 5, 7)  # images, channels, height, width
SIDE = 12


@pytest.mark.statistical
def test_poisson_batches_have_the_right_rate_and_are_independent_between_steps() -> None:
    recipe = PrivateSGD(0.1, 1, 0.03, 1.0)
    sizes = np.array([len(recipe.batch(RandomSource(0), 0, step, 200)) for step in range(4000)])
    # the mean of 4,000 Bin(200, 0.03) has a standard deviation of 0.0381; 5 of them are exceeded with chance 6e-7
    assert sizes.mean() == pytest.approx(6.0, abs=5 * 0.0381)
    assert sizes.var() == pytest.approx(5.82, rel=0.2)  # a fixed batch size would give 0


@pytest.mark.parametrize(("rate", "batch"), [(1e-6, []), (1.0, [0, 1, 2, 3, 4])])
def test_batches_may_be_empty_or_hold_all_records(rate: float, batch: list[int]) -> None:
    assert PrivateSGD(0.1, 1, rate, 1.0).batch(RandomSource(0), 0, 0, 5).tolist() == batch


@pytest.mark.parametrize(("size", "batch_size", "steps"), [(10, 3, 4), (9, 3, 3), (2, 5, 1)])
def test_an_epoch_sees_every_record_once_in_a_new_order(size: int, batch_size: int, steps: int) -> None:
    recipe = PlainSGD(0.1, 2, batch_size)
    assert recipe.step_count(size) == 2 * steps
    batches = [recipe.batch(RandomSource(0), 0, step, size).tolist() for step in range(2 * steps)]
    first, second = ([place for batch in part for place in batch] for part in (batches[:steps], batches[steps:]))
    assert sorted(first) == sorted(second) == list(range(size))
    assert size < 5 or first != second


def test_shuffled_batches_need_a_seed() -> None:
    with pytest.raises(ValueError, match="seeded source"):
        PlainSGD(0.1, 1, 2).batch(RandomSource(), 0, 0, 10)


def test_recipes_survive_plain_data() -> None:
    adam = PlainSGD(0.1, 5, 32, adam=True, augmentation=Augmentation(2.0, 0.1, mirror=True))
    for recipe in (PlainSGD(0.1, 5, 32), adam, PrivateSGD(0.05, 130, 5 / 130, 12.0)):
        assert recipe_from(json.loads(json.dumps(recipe.to_dict()))) == recipe
    old = {"kind": "plain", "learning_rate": 0.1, "epochs": 5, "batch_size": 32}  # of a release that had these alone
    assert PlainSGD(0.1, 5, 32).to_dict() == old
    with pytest.raises(ValueError, match="kind must be one of plain, private"):
        recipe_from({"kind": "adam"})


def by_definition(image: np.ndarray, linear: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """What a pixel at p from the center shows: the image at linear·p + offset, interpolated, 0 outside."""
    height, width = image.shape[-2:]
    shown = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            place = np.array([column - (width - 1) / 2, row - (height - 1) / 2])
            x, y = linear @ place + offset + np.array([(width - 1) / 2, (height - 1) / 2])
            for j in (int(np.floor(y)), int(np.floor(y)) + 1):
                for i in (int(np.floor(x)), int(np.floor(x)) + 1):
                    if 0 <= j < height and 0 <= i < width:
                        shown[:, row, column] += image[:, j, i] * (1 - abs(y - j)) * (1 - abs(x - i))
    return shown


def test_images_are_seen_through_the_maps() -> None:
    rng = np.random.default_rng(0)
    square = rng.random((40, 2, 6, 6), dtype=np.float32)
    maps = Augmentation(2.0, 0.3, mirror=True).maps(RandomSource(0).words(40 * WORDS, 0, AUGMENTATION, 0), (6, 6))
    seen = distort(torch.tensor(square), torch.tensor(maps)).numpy()
    for image, shown, map_ in zip(square, seen, maps, strict=True):
        np.testing.assert_allclose(shown, by_definition(image, map_[:, :2], 3.0 * map_[:, 2]), atol=1e-5)


def test_draws_fill_what_the_fields_allow_and_nothing_else() -> None:
    words = RandomSource(0).words(4000 * WORDS, 0, AUGMENTATION, 0)
    maps = Augmentation(shift=2.0, distortion=0.1, mirror=True).maps(words, WIDE)
    pixels = maps[:, :, 2] * np.array([7, 5]) / 2
    mirrored = maps[:, 0, 0] < 0
    maps[mirrored, 0, :2] *= -1
    entries = (maps[:, :, :2] - np.eye(2)).reshape(-1, 4)
    for values, largest in ((pixels, 2.0), (entries, 0.1)):
        assert (np.abs(values).max(axis=0) <= largest + 1e-6).all()
        assert (np.abs(values).max(axis=0) > 0.99 * largest).all()
        correlations = np.corrcoef(values.T) - np.eye(values.shape[1])
        assert np.abs(correlations).max() < 0.1  # each entry has a word of its own
    assert 0.45 < mirrored.mean() < 0.55


def generator(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


def dots(count: int, row: int, column: int) -> Any:
    images = torch.zeros(count, 1, SIDE, SIDE)
    images[:, 0, row, column] = 1.0
    return images


def centers(images: Any) -> np.ndarray:
    """Where the mass of each image lies, (row, column), in pixels from the image's center."""
    places = torch.arange(SIDE) + 0.5 - SIDE / 2
    mass = images.sum(dim=(1, 2, 3))
    return torch.stack([(images.sum(dim=(1, other)) * places).sum(1) / mass for other in (3, 2)], dim=1).numpy()


def test_a_shift_moves_by_so_many_pixels_along_both_axes() -> None:
    moved = centers(Perturbation(shift=3).apply(dots(2000, 6, 6), generator())) - 0.5
    assert np.abs(moved).max() <= 3.0 + 1e-4
    assert (np.abs(moved).max(axis=0) > 2.9).all()  # the whole range is in use
    assert (np.abs(moved.mean(axis=0)) < 0.2).all()
    assert abs(float(np.mean(moved[:, 0] * moved[:, 1]))) < 0.3  # each axis by itself, where the variances are 3


def test_a_rotation_keeps_the_distance_from_the_center_and_stays_within_its_angle() -> None:
    turned = centers(Perturbation(rotation=30).apply(dots(500, 6, 10), generator()))
    angles = np.degrees(np.arctan2(turned[:, 0], turned[:, 1])) - np.degrees(np.arctan2(0.5, 4.5))
    assert np.abs(np.hypot(turned[:, 0], turned[:, 1]) - np.hypot(0.5, 4.5)).max() < 0.4  # pixels are interpolated
    assert np.abs(angles).max() < 33.0
    assert angles.max() > 26.0
    assert angles.min() < -26.0


def test_scales_and_shear_move_as_the_map_says() -> None:
    scaled = np.abs(centers(Perturbation(scale=0.5).apply(dots(500, 8, 8), generator()))) / 2.5
    assert scaled.max() < np.exp(0.5) * 1.15
    assert (scaled.max(axis=0) > 1.3).all()
    assert (scaled.min(axis=0) < 0.75).all()
    sheared = centers(Perturbation(shear=0.5).apply(dots(500, 9, 6), generator()))
    assert np.abs(sheared[:, 0] - 3.5).max() < 0.2  # rows stay, columns move by as much as the row is off the middle
    assert np.abs(sheared[:, 1] - 0.5).max() > 1.4


def test_a_flip_mirrors_half_of_the_images_left_to_right() -> None:
    image = torch.rand(1, 1, SIDE, SIDE, generator=generator(1))
    flipped = Perturbation(flip=True).apply(image.repeat(400, 1, 1, 1), generator())
    same = (flipped - image).abs().amax(dim=(1, 2, 3)) < 1e-5
    mirrored = (flipped - image.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert bool((same ^ mirrored).all())
    assert 140 < int(mirrored.sum()) < 260


def test_fading_and_noise_work_on_inputs_that_are_no_images() -> None:
    rows = torch.ones(2000, 5)
    faded = Perturbation(fading=0.3).apply(rows, generator())
    assert bool((faded == faded[:, :1]).all())  # one factor for each input
    assert np.log(float(faded.max())) == pytest.approx(0.3, abs=0.01)
    assert np.log(float(faded.min())) == pytest.approx(-0.3, abs=0.01)
    noisy = Perturbation(noise=0.2).apply(rows, generator())
    assert float((noisy - rows).std()) == pytest.approx(0.2, rel=0.05)
    with pytest.raises(ValueError, match=r"x must be images, got inputs of shape \(5,\)"):
        Perturbation(shift=1).apply(rows, generator())


def test_a_seed_repeats_and_every_input_has_a_draw_of_its_own() -> None:
    everything = Perturbation(2, 20, 0.2, 0.2, True, 0.2, 0.1)
    image = torch.rand(1, 1, SIDE, SIDE, generator=generator(1)).repeat(3, 1, 1, 1)
    one, again, other = (everything.apply(image, generator(seed)) for seed in (4, 4, 5))
    assert bool((one == again).all())
    assert not bool((one == other).any(dim=0).all())
    assert float((one[0] - one[1]).abs().max()) > 0.01


@pytest.mark.parametrize(
    ("kind", "arguments", "name"),
    [
        *(
            (PrivateSGD, {"learning_rate": 0.1, "steps": 3, "sampling_rate": 0.1, "noise": 1.0, **wrong}, name)
            for wrong, name in (
                ({"learning_rate": 0.0}, "learning_rate"),
                ({"steps": 0}, "steps"),
                ({"sampling_rate": 0.0}, "sampling_rate"),
                ({"sampling_rate": 1.5}, "sampling_rate"),
                ({"noise": float("nan")}, "noise"),
                ({"noise": 0.0}, "noise"),
                ({"clip": float("inf")}, "clip"),
            )
        ),
        (Augmentation, {"shift": -1.0}, "shift"),
        (Augmentation, {"distortion": 1.0}, "distortion"),
        (Augmentation, {"distortion": -0.1}, "distortion"),
        (Perturbation, {"shift": -1.0}, "shift"),
        (Perturbation, {"scale": -0.1}, "scale"),
        (Perturbation, {"noise": float("nan")}, "noise"),
    ],
)
def test_numbers_out_of_range_are_refused(kind: Any, arguments: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        kind(**arguments)


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
    key = read_or_create_key(tmp_path / "key")
    assert read_or_create_key(tmp_path / "key") == key
    source = RandomSource(key=key)
    one, again, other = (source.bind_to(name) for name in ("data", "data", "other data"))
    assert (one.words(40, 0, NOISE, 3) == again.words(40, 0, NOISE, 3)).all()
    for different in (other.words(40, 0, NOISE, 3), one.words(40, 0, NOISE, 4), one.words(40, 1, NOISE, 3)):
        assert not (one.words(40, 0, NOISE, 3) == different).any()
    assert RandomSource(7).bind_to("data") == RandomSource(7)
    assert key.hex() not in repr(source) + str(source.name)
    destroy_key(tmp_path / "key")
    assert not list(tmp_path.iterdir())
    destroy_key(tmp_path / "key")


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    read_or_create_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(CheckpointError, match="others made or may read this key"):
        read_or_create_key(tmp_path / "key")


def test_a_key_that_is_being_destroyed_is_gone_before_it_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_or_create_key(tmp_path / "key")

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        destroy_key(tmp_path / "key")
    assert not list(tmp_path.iterdir())
