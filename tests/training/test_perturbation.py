from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from darrm.training.student import Perturbation  # noqa: E402 (after the check for torch)

SIDE = 12


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
    moved = centers(Perturbation(shift=3).applied(dots(2000, 6, 6), generator())) - 0.5
    assert np.abs(moved).max() <= 3.0 + 1e-4
    assert (np.abs(moved).max(axis=0) > 2.9).all()  # the whole range is in use
    assert (np.abs(moved.mean(axis=0)) < 0.2).all()
    assert abs(float(np.mean(moved[:, 0] * moved[:, 1]))) < 0.3  # each axis by itself, where the variances are 3


def test_a_rotation_keeps_the_distance_from_the_center_and_stays_within_its_angle() -> None:
    turned = centers(Perturbation(rotation=30).applied(dots(500, 6, 10), generator()))
    angles = np.degrees(np.arctan2(turned[:, 0], turned[:, 1])) - np.degrees(np.arctan2(0.5, 4.5))
    assert np.abs(np.hypot(turned[:, 0], turned[:, 1]) - np.hypot(0.5, 4.5)).max() < 0.4  # pixels are interpolated
    assert np.abs(angles).max() < 33.0
    assert angles.max() > 26.0
    assert angles.min() < -26.0


def test_scales_and_shear_move_as_the_map_says() -> None:
    scaled = np.abs(centers(Perturbation(scale=0.5).applied(dots(500, 8, 8), generator()))) / 2.5
    assert scaled.max() < np.exp(0.5) * 1.15
    assert (scaled.max(axis=0) > 1.3).all()
    assert (scaled.min(axis=0) < 0.75).all()
    sheared = centers(Perturbation(shear=0.5).applied(dots(500, 9, 6), generator()))
    assert np.abs(sheared[:, 0] - 3.5).max() < 0.2  # rows stay, columns move by as much as the row is off the middle
    assert np.abs(sheared[:, 1] - 0.5).max() > 1.4


def test_a_flip_mirrors_half_of_the_images_left_to_right() -> None:
    image = torch.rand(1, 1, SIDE, SIDE, generator=generator(1))
    flipped = Perturbation(flip=True).applied(image.repeat(400, 1, 1, 1), generator())
    same = (flipped - image).abs().amax(dim=(1, 2, 3)) < 1e-5
    mirrored = (flipped - image.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert bool((same ^ mirrored).all())
    assert 140 < int(mirrored.sum()) < 260


def test_fading_and_noise_work_on_inputs_that_are_no_images() -> None:
    rows = torch.ones(2000, 5)
    faded = Perturbation(fading=0.3).applied(rows, generator())
    assert bool((faded == faded[:, :1]).all())  # one factor for each input
    assert np.log(float(faded.max())) == pytest.approx(0.3, abs=0.01)
    assert np.log(float(faded.min())) == pytest.approx(-0.3, abs=0.01)
    noisy = Perturbation(noise=0.2).applied(rows, generator())
    assert float((noisy - rows).std()) == pytest.approx(0.2, rel=0.05)
    with pytest.raises(ValueError, match=r"x must be images, got inputs of shape \(5,\)"):
        Perturbation(shift=1).applied(rows, generator())


def test_a_seed_repeats_and_every_input_has_a_draw_of_its_own() -> None:
    everything = Perturbation(2, 20, 0.2, 0.2, True, 0.2, 0.1)
    image = torch.rand(1, 1, SIDE, SIDE, generator=generator(1)).repeat(3, 1, 1, 1)
    one, again, other = (everything.applied(image, generator(seed)) for seed in (4, 4, 5))
    assert bool((one == again).all())
    assert not bool((one == other).any(dim=0).all())
    assert float((one[0] - one[1]).abs().max()) > 0.01


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"shift": -1.0}, "shift must be"), ({"scale": -0.1}, "scale must be"), ({"noise": float("nan")}, "noise must")],
)
def test_bad_ranges_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Perturbation(**fields)  # type: ignore[arg-type]
