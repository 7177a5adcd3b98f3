"""Who votes and learns in PATE's tables: images, the census, DP-SGD, labels of others."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from sklearn.ensemble import RandomForestClassifier

from darrm.privacy import PrivacyParams
from darrm.training.calibration import compute_privacy
from darrm.training.recipes import PrivateSGD, recipe_from
from darrm.training.student import StudentRecipe
from darrm.training.teachers import Partition
from darrm.training.training import per_example_gradients, sum_clipped
from darrm.votes import ABSTAIN, Votes
from experiments import datasets
from experiments.datasets import ALL_CLASSES, LabeledImages, load
from experiments.download import RemoteFile
from experiments.pages import read_json
from experiments.pate import dpsgd, ensembles, outside, random_forests, students
from experiments.pate.recorded import Recorded
from experiments.pate.settings import STUDIES
from experiments.teachers import Machine

DIGITS = replace(STUDIES["digits"], teachers=12)
CENSUS = replace(STUDIES["adult"], teachers=5, pool=60)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(1, "cpu", progress=False, folder=tmp_path / "votes")


def trained(*_: object, **__: object) -> None:
    raise RuntimeError("trained")


@pytest.mark.slow
def test_teachers_of_images_share_the_test_set_with_the_held_out_and_are_trained_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, data = ensembles.obtain(DIGITS, machine, quick=True), load("digits", ALL_CLASSES)
    together = np.concatenate([recorded.pool_x, recorded.test_x]), np.concatenate([recorded.pool_y, recorded.test_y])
    found, expected = (
        sorted((x.tobytes(), y) for x, y in zip(*pair, strict=True)) for pair in (together, (data.test_x, data.test_y))
    )
    assert found == expected
    assert recorded.votes.counts.shape == (DIGITS.pool, 10)
    assert 0.3 < recorded.teacher_accuracy < recorded.plurality_accuracy - 0.03
    right = recorded.votes.counts[np.arange(DIGITS.pool), recorded.pool_y]
    assert recorded.teacher_accuracy == pytest.approx(right.mean() / 12)
    monkeypatch.setattr("experiments.teachers.train_teachers", trained)
    assert ensembles.obtain(DIGITS, machine, quick=True).digest == recorded.digest
    monkeypatch.setattr(ensembles, "SEED", 1)
    with pytest.raises(RuntimeError, match="trained"):
        ensembles.obtain(DIGITS, machine, quick=True)


def test_students_learn_from_labels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """True classes of the pool and the held-out images teach nothing; wrong labels teach wrong classes."""
    monkeypatch.setitem(students.RECIPES, "digits", StudentRecipe(steps=40, learning_rate=3e-3, weight=0.0))
    digits = load("digits", ALL_CLASSES)
    x, y = digits.test_x, digits.test_y
    votes = Votes.from_counts(50 * np.eye(10, dtype=np.int64)[y[:200]])
    data = Recorded("digits", votes, x[:200], y[:200], x[200:], y[200:], 1.0, 0.0)

    def scores(labels: np.ndarray, recorded: Recorded = data) -> np.ndarray:
        return students.train_network_student(recorded, labels, seed=0, quick=False).scores(x)

    right, wrong = ((scores((y[:100] + moved) % 10).argmax(axis=1) == y).mean() for moved in (0, 1))
    assert wrong < 0.2
    assert right > 0.6
    labels = np.where(np.arange(100) % 3 == 0, ABSTAIN, y[:100])
    blind = replace(data, pool_y=np.zeros_like(data.pool_y), test_y=np.zeros_like(data.test_y))
    assert (scores(labels) == scores(labels, blind)).all()
    # labels that stop early are those of a pool whose rest was never asked about
    assert (scores(labels) == scores(np.concatenate([labels, np.full(100, ABSTAIN)]))).all()


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The class is whether the first number is above one half, except for one row in ten."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3), dtype=np.float32)
    return x, ((x[:, 0] > 0.5) ^ (rng.random(n) < 0.1)).astype(np.int64)


TABLE = LabeledImages("adult", *rows(300, 0), *rows(100, 1))


def test_every_forest_sees_its_own_shard_and_is_trained_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(datasets.LOADERS, "adult", lambda _: TABLE)
    recorded = students.obtain(CENSUS, machine, quick=True)
    shards = Partition.random(300, 5, seed=ensembles.PARTITION_SEED)
    ones = np.zeros(60, dtype=int)
    for k in range(5):
        own = shards.shard(k)
        forest = RandomForestClassifier(10, random_state=k).fit(TABLE.train_x[own], TABLE.train_y[own])
        ones += forest.predict(recorded.pool_x)
    assert recorded.votes.counts.tolist() == np.stack([5 - ones, ones], axis=1).tolist()
    assert 0.7 < recorded.teacher_accuracy <= recorded.plurality_accuracy < 1.0
    assert not {row.tobytes() for row in recorded.pool_x} & {row.tobytes() for row in recorded.test_x}
    with monkeypatch.context() as patch:
        patch.setattr(random_forests, "_train_forest", trained)
        assert students.obtain(CENSUS, machine, quick=True).digest == recorded.digest
    monkeypatch.setitem(datasets.LOADERS, "adult", lambda _: replace(TABLE, train_y=1 - TABLE.train_y))
    assert students.obtain(CENSUS, machine, quick=True).plurality_accuracy < 0.3


@pytest.mark.slow
def test_dpsgd_spends_its_budget_and_hardly_more_noise(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = PrivacyParams(8, 1e-5)
    found = dpsgd.measure_dpsgd(STUDIES["digits"], budget, machine, quick=True)
    assert 0.95 * budget.epsilon < found["epsilon"] <= budget.epsilon
    recipe = recipe_from(found["training"])
    assert isinstance(recipe, PrivateSGD)
    assert compute_privacy(recipe, budget.delta).epsilon == found["epsilon"]  # of the very training
    assert recipe.expected_batch(1437) == pytest.approx(128, abs=0.5)
    strict = dpsgd.measure_dpsgd(STUDIES["digits"], PrivacyParams(0.01, 1e-5), machine, quick=True)
    assert strict["accuracy"] < found["accuracy"] - 0.1
    monkeypatch.setattr("experiments.teachers.train_teachers", trained)
    assert dpsgd.measure_dpsgd(STUDIES["digits"], budget, machine, quick=True) == found
    monkeypatch.setitem(dpsgd.SETTINGS, "digits", replace(dpsgd.SETTINGS["digits"], learning_rate=0.1))
    with pytest.raises(RuntimeError, match="trained"):  # another rate is another training
        dpsgd.measure_dpsgd(STUDIES["digits"], budget, machine, quick=True)


# channel: coefficients at (2, 3) and (4, 2) of the image below, by kymatio 0.3.0's Scattering2D(J=2, shape=(28, 28))
KYMATIO = {
    0: (0.53481245, 0.13903987),
    1: (0.03333918, 0.020931361),
    4: (0.01975527, 0.010055539),
    9: (0.059545875, 0.039413095),
    12: (0.044502746, 0.018276637),
    17: (0.003980694, 0.0035458675),
    40: (0.002117261, 0.0016647408),
    80: (0.0029096464, 0.0032908567),
}


def test_features_are_those_of_another_library() -> None:
    row, column = np.mgrid[:28, :28]
    image = np.exp(-((row - 9) ** 2 + (column - 15) ** 2) / 20) + 0.5 * np.exp(
        -((row - 18) ** 2 + 2 * (column - 10) ** 2) / 8
    )
    (found,) = dpsgd.compute_scattering(image.astype(np.float32)[np.newaxis, np.newaxis])
    assert found.shape == (dpsgd.CHANNELS, 7, 7)
    for channel, expected in KYMATIO.items():
        # kymatio halves the images on the way, and so takes in a little that is beyond their resolution
        assert found[channel, [2, 4], [3, 2]] == pytest.approx(expected, rel=1e-4 if channel < 9 else 0.01)


def test_a_clipped_sum_is_that_of_per_example_gradients() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)).astype(np.float32), rng.integers(3, size=20)
    x[3] *= 1e-3  # one example is shorter than the threshold
    weights = rng.normal(size=(6, 3)).astype(np.float32)
    parameters = {"weight": torch.as_tensor(weights.T.copy())[None]}
    gradients_of = per_example_gradients(torch.nn.Linear(6, 3, bias=False))
    gradients = gradients_of(parameters, torch.as_tensor(x)[None], torch.as_tensor(y)[None])
    sums = sum_clipped(gradients, torch.ones(1, 20), 0.5)["weight"][0].numpy()
    assert dpsgd.sum_clipped_gradients(x, y, weights, 0.5) == pytest.approx(sums.T, abs=1e-5)


def test_training_learns_and_its_noise_is_the_recipe_s() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=400)
    x = np.stack([np.ones(400), 2.0 * y - 1.0 + 0.1 * rng.normal(size=400)], axis=1).astype(np.float32)
    quiet = dpsgd.train_linear(x, y, 2, PrivateSGD(1.0, 30, 0.25, noise=0.1), np.random.default_rng(0))
    assert np.mean((x @ quiet).argmax(axis=1) == y) > 0.99
    # features of 0 have no gradient: what is left is noise, of deviation rate/(q·n)·σ·C·√steps
    nothing = np.zeros((400, 500), dtype=np.float32)
    noisy = dpsgd.train_linear(nothing, y, 2, PrivateSGD(2.0, 9, 0.25, noise=5.0, clip=3.0), np.random.default_rng(0))
    assert noisy.std() == pytest.approx(2.0 / 100 * 15.0 * 3.0, rel=0.15)  # of 1,000 weights: 2 % is a deviation


def test_published_labels_are_counted_and_only_those_used_teach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = np.arange(40) % 10
    labels, places = np.where(np.arange(40) < 10, 0, classes), np.array([3, 20, 31])
    files = []
    (tmp_path / "multiple-teachers").mkdir()
    for name, array in {"labels.npy": labels.astype(np.int32), "places.npy": places}.items():
        np.save(tmp_path / "multiple-teachers" / name, array)
        what = (tmp_path / "multiple-teachers" / name).read_bytes()
        files.append(RemoteFile("multiple-teachers", name, len(what), hashlib.sha256(what).hexdigest(), ()))
    monkeypatch.setitem(datasets.FILES, "multiple-teachers", tuple(files))
    monkeypatch.setenv("DARRM_DATA_DIR", str(tmp_path))
    images = np.random.default_rng(0).random((40, 1, 28, 28), dtype=np.float32)
    data = LabeledImages("mnist", images[:0], classes[:0], images, classes)
    monkeypatch.setattr(outside, "split", lambda _: (data, images[:5], classes[:5]))
    taught: list[np.ndarray] = []

    class Student:
        """It notes what it is taught, and always answers 3."""

        def __init__(self, _: object, used: np.ndarray, **__: object) -> None:
            taught.append(used)

        def predict(self, x: np.ndarray) -> np.ndarray:
            return np.full(len(x), 3)

    monkeypatch.setattr(outside, "make_student", Student)
    assert outside.main(["--recompute", "--students", "2", "--output", str(tmp_path)]) == 0
    found = read_json(tmp_path / "pate" / "outside.json")
    assert found["labels_right"] == 31 / 40
    assert (found["used"], found["used_right"], found["students"]) == (3, 2, [0.2, 0.2])
    assert all(np.flatnonzero(used >= 0).tolist() == places.tolist() for used in taught)
    assert all((used[places] == labels[places]).all() for used in taught)
