import numpy as np
import pytest

torch = pytest.importorskip("torch")

from darrm.training.randomness import AUGMENTATION, RandomSource  # noqa: E402 (as above)
from darrm.training.recipes import WORDS, Augmentation, distorted  # noqa: E402 (after the check for torch)

WIDE = (2, 3, 5, 7)  # images, channels, height, width


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
    seen = distorted(torch.tensor(square), torch.tensor(maps)).numpy()
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


@pytest.mark.parametrize("shift", [(1, 0), (0, 2)])
def test_a_shift_is_counted_in_pixels(shift: tuple[int, int]) -> None:
    image = np.arange(35, dtype=np.float32).reshape(1, 1, 5, 7)
    map_ = np.array([[[1.0, 0.0, 2 * shift[0] / 7], [0.0, 1.0, 2 * shift[1] / 5]]], dtype=np.float32)
    seen = distorted(torch.tensor(image), torch.tensor(map_)).numpy()[0, 0]
    np.testing.assert_allclose(seen[: 5 - shift[1], : 7 - shift[0]], image[0, 0, shift[1] :, shift[0] :], atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"shift": -1.0}, "shift"), ({"distortion": 1.0}, "distortion"), ({"distortion": -0.1}, "distortion")],
)
def test_bad_augmentations_are_refused(arguments: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Augmentation(**arguments)  # type: ignore[arg-type]
