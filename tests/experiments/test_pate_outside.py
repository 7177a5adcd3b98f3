"""The labels that others published, from files made in their format."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments import datasets
from experiments.datasets import LabeledImages
from experiments.download import RemoteFile
from experiments.pages import read_json
from experiments.pate import outside


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_published_labels_are_counted_and_only_those_used_teach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = np.arange(40) % 10
    labels, places = np.where(np.arange(40) < 10, 0, classes), np.array([3, 20, 31])
    content = {"labels.npy": npy(labels.astype(np.int32)), "places.npy": npy(places)}
    (tmp_path / "multiple-teachers").mkdir()
    for name, what in content.items():
        (tmp_path / "multiple-teachers" / name).write_bytes(what)
    files = [RemoteFile("multiple-teachers", n, len(w), hashlib.sha256(w).hexdigest(), ()) for n, w in content.items()]
    monkeypatch.setitem(datasets.FILES, "multiple-teachers", tuple(files))
    monkeypatch.setenv("DARRM_DATA_DIR", str(tmp_path))
    images = np.random.default_rng(0).random((40, 1, 28, 28), dtype=np.float32)
    data = LabeledImages("mnist", images[:0], classes[:0], images, classes)
    monkeypatch.setattr(outside, "split", lambda _: (data, images[:5], classes[:5]))
    taught: list[np.ndarray] = []
    monkeypatch.setattr(outside, "models_of", lambda _: Fake(taught))
    assert outside.main(["--students", "2", "--output", str(tmp_path)]) == 0
    found = read_json(tmp_path / "pate" / "outside.json")
    assert found["labels_right"] == 31 / 40
    assert (found["used"], found["used_right"], found["students"]) == (3, 2, [0.5, 0.75])
    assert all(np.flatnonzero(used >= 0).tolist() == places.tolist() for used in taught)
    assert all((used[places] == labels[places]).all() for used in taught)


class Fake:
    """A student that notes what it is taught."""

    recipe = "fake"

    def __init__(self, taught: list[np.ndarray]) -> None:
        self.taught = taught

    def accuracy(self, _recorded: object, used: np.ndarray, *, seed: int, quick: bool) -> list[float | None]:
        assert not quick
        self.taught.append(used)
        return [0.5 + 0.25 * seed, None]
