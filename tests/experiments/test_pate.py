"""PATE: stored numbers against direct calls, the authors' votes, and the models that vote and learn."""

import hashlib
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from sklearn.ensemble import RandomForestClassifier

from darrm.noisy_max.mechanisms import GNMax, LNMax
from darrm.pate.confident import ConfidentGNMax
from darrm.pate.gnss import printed_cost
from darrm.pate.theorem_6 import gaussian_renyi
from darrm.privacy import PrivacyParams
from darrm.training.calibration import compute_privacy
from darrm.training.recipes import PrivateSGD, recipe_from
from darrm.training.teachers import Partition
from darrm.training.training import per_example_gradients, sum_clipped
from darrm.votes import ABSTAIN, Votes
from experiments import datasets
from experiments.datasets import ALL_CLASSES, LabeledImages, load
from experiments.download import RemoteFile
from experiments.pages import list_differences, read_json, write_json
from experiments.pate import dpsgd, ensembles, outside, paper_votes
from experiments.pate.__main__ import main
from experiments.pate.accounting import account, compute_costs, compute_label_epsilon
from experiments.pate.page import fill_page
from experiments.pate.printed import figure_10, fixed_part, table_2, table_4
from experiments.pate.recorded import load_counts
from experiments.pate.settings import STUDIES, VoteSize, draw_pate_votes
from experiments.teachers import Machine

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"
AGGREGATORS = {"LNMax": LNMax, "GNMax": GNMax, "ConfidentGNMax": ConfidentGNMax}


def read_aggregator(text: str) -> Any:
    return eval(text, AGGREGATORS)  # noqa: S307 (the page's own words)


def test_printed_columns_are_computed_again() -> None:
    numbers: dict[str, Any] = {part.__name__: part() for part in (table_2, fixed_part, table_4, figure_10)}
    assert list_differences(numbers, read_json(PAGES / "pate" / "printed.json"), tolerance=1e-6) == []
    for row in numbers["figure_10"]:
        assert min(row["variances"]) >= row["best"]["variance"] * (1.0 - 1e-4)  # of a grid of steps of a half


@pytest.mark.parametrize("gap", [5.0, 6.0, 8.0, 12.0])
def test_corollary_11_is_what_theorem_6_tends_to_and_is_printed_larger(gap: float) -> None:
    for sigma in (20.0, 40.0, 150.0):
        order = gap * sigma / 4.0  # λ = (n₁ − n₂)/4, where q ≤ exp(−(n₁ − n₂)²/4σ²) = exp(−4λ²/σ²)
        bound = float(gaussian_renyi([-4.0 * order**2 / sigma**2], sigma, [order])[0, 0])
        assert bound == pytest.approx(math.log1p(math.exp(-(3.0 * order + 1.0) / sigma**2)) / (order - 1.0), rel=0.02)
        assert bound < math.exp(-2.0 * order / sigma**2) / order


@pytest.mark.parametrize(
    "name",
    ["digits", *(pytest.param(name, marks=pytest.mark.slow) for name in ("adult", "fashion-mnist", "mnist"))],
)
def test_costs_by_label_follow_from_public_numbers(name: str) -> None:
    result = read_json(PAGES / "pate" / f"{name}.json")
    rows = [row for part in ("rows", "points", "searched") for row in result[part] if ";" not in row["aggregator"]]
    for row in rows:
        aggregator = read_aggregator(row["aggregator"])
        epsilon = compute_label_epsilon(aggregator, row["queries"], row["answered"], result["delta"])
        assert row["costs"]["by_label"] == pytest.approx(epsilon, rel=1e-9)
    for row in result["by_label"]:
        curve = read_aggregator(row["aggregator"]).guarantee.repeat(row["queries"])
        assert row["epsilon"] == pytest.approx(curve.best(result["delta"]).epsilon, rel=1e-9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("path", sorted((PAGES / "pate").glob("*-counts.npz")), ids=lambda path: str(path.stem))
def test_costs_are_those_of_the_stored_counts(path: Path) -> None:
    """The exact cost and Theorem 6, of labels that are drawn again from the page's seed."""
    result = read_json(PAGES / "pate" / f"{path.stem.removesuffix('-counts')}.json")
    recorded, _ = load_counts(path)
    assert path.stat().st_size < 1_000_000
    assert recorded.digest == result["digest"]
    for row in result["rows"]:
        aggregator, votes = read_aggregator(row["aggregator"]), recorded.votes[: row["queries"]]
        labels = aggregator.release(votes, rng=np.random.default_rng([result["label_seed"], row["queries"]]))
        answered = labels != ABSTAIN if isinstance(aggregator, ConfidentGNMax) else None
        costs = compute_costs(account(votes, aggregator, result["delta"], answered))
        assert row["answered"] == int(np.sum(labels != ABSTAIN))
        assert {name: row["costs"][name] for name in costs} == pytest.approx(costs, rel=1e-9)


@pytest.mark.slow
def test_recount_finds_every_number_that_the_stored_counts_do_not_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--recount", "--quiet", "--output", str(PAGES)]) == 0
    folder = tmp_path / "pate"
    folder.mkdir()
    shutil.copy(PAGES / "pate" / "digits-counts.npz", folder)
    result = read_json(PAGES / "pate" / "digits.json")
    result["rows"][-1]["ours"]["deviation"] *= 1.001
    result["figure_4"]["right"][1]["points"][0]["accuracy"] += 0.01
    write_json(folder / "digits.json", result)
    capsys.readouterr()
    assert main(["--recount", "--quiet", "--output", str(tmp_path)]) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "digits-counts: 2 figures differ"
    expected = [".rows.2.ours.deviation", ".figure_4.right.1.points.0.accuracy"]
    assert [line.partition(":")[0] for line in lines] == expected


@pytest.mark.slow
def test_a_second_run_on_digits_reads_the_stored_results(tmp_path: Path) -> None:
    arguments = ["--recompute", "--dataset", "digits", "--quick", "--quiet", "--jobs", "1", "--output", str(tmp_path)]
    folder = tmp_path / "pate"
    assert main(arguments) == 0
    first = read_json(folder / "digits.json")
    assert all(0.0 < accuracy <= 1.0 for row in (*first["rows"], *first["by_label"]) for accuracy in row["students"])
    assert first["in_one_go"]
    assert first["baseline"][0] > 0.9
    assert first["plurality_accuracy"] > first["teacher_accuracy"]
    assert len(list(folder.glob("digits-*.png"))) == 4
    assert (tmp_path / "pate.md").read_text(encoding="utf-8") == fill_page(folder)
    times = {path: path.stat().st_mtime_ns for path in (folder / "kept").iterdir()}
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "kept").iterdir()} == times
    second = read_json(folder / "digits.json")
    assert not second["in_one_go"]  # so the page does not say how long it took
    assert first == second | {name: first[name] for name in ("seconds", "teacher_seconds", "in_one_go")}


ARCHIVE = replace(paper_votes.ARCHIVES[0], queries=60, laplace=((20, 2.0),))
COUNTS = draw_pate_votes(VoteSize(80, 250, 10, (6.0, 1.0)))


def test_read_archive_refuses_a_file_that_is_not_the_authors(tmp_path: Path) -> None:
    path = tmp_path / "mnist_250_teachers.npy"
    np.save(path, COUNTS.astype(np.float64))
    with pytest.raises(ValueError, match="not the file of the authors"):
        paper_votes.read_archive(tmp_path, ARCHIVE)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert np.array_equal(paper_votes.read_archive(tmp_path, replace(ARCHIVE, digest=digest)).counts, COUNTS)


@pytest.mark.slow
def test_bounds_on_the_authors_votes_are_ordered() -> None:
    row = paper_votes.measure(Votes.from_counts(COUNTS), ARCHIVE)
    assert 0.0 < row["exact"] < row["theorem_6"] < row["epsilon"]  # fewer bounds, and a looser conversion
    assert row["exact"] < min(row["tested"], row["data_independent"])
    ((smoothness, _, noise_scale),) = ARCHIVE.row.publications
    assert row["sanitized"] == pytest.approx(row["epsilon"] + printed_cost(ARCHIVE.row.order, smoothness, noise_scale))
    assert row["deviation"] == pytest.approx(row["sensitivity"] * noise_scale)
    assert row["laplace"][0]["all_orders"] <= row["laplace"][0]["epsilon"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(1, "cpu", progress=False, folder=tmp_path / "votes")


def refuse_training(*_: object, **__: object) -> None:
    raise RuntimeError("trained")


@pytest.mark.slow
def test_the_pool_and_the_held_out_images_share_the_test_set_and_votes_are_stored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, data = replace(STUDIES["digits"], teachers=12), load("digits", ALL_CLASSES)
    recorded = ensembles.obtain(study, machine, quick=True)
    x, y = np.concatenate([recorded.pool_x, recorded.test_x]), np.concatenate([recorded.pool_y, recorded.test_y])
    images, expected = (
        sorted((image.tobytes(), label) for image, label in zip(*pair, strict=True))
        for pair in ((x, y), (data.test_x, data.test_y))
    )
    assert images == expected
    assert 0.3 < recorded.teacher_accuracy < recorded.plurality_accuracy - 0.03
    monkeypatch.setattr("experiments.teachers.train_teachers", refuse_training)
    assert ensembles.obtain(study, machine, quick=True).digest == recorded.digest
    monkeypatch.setattr(ensembles, "SEED", 1)
    with pytest.raises(RuntimeError, match="trained"):
        ensembles.obtain(study, machine, quick=True)


def test_every_forest_learns_from_its_shard_and_votes_are_stored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((400, 3), dtype=np.float32)
    y = ((x[:, 0] > 0.5) ^ (rng.random(400) < 0.1)).astype(np.int64)
    table = LabeledImages("adult", x[:300], y[:300], x[300:], y[300:])
    study = replace(STUDIES["adult"], teachers=5, pool=60)
    monkeypatch.setitem(datasets.LOADERS, "adult", lambda _: table)
    recorded = ensembles.obtain(study, machine, quick=True)
    shards, ones = Partition.random(300, 5, seed=ensembles.PARTITION_SEED), np.zeros(60, dtype=int)
    for k in range(5):
        forest = RandomForestClassifier(10, random_state=k).fit(x[shards.shard(k)], y[shards.shard(k)])
        ones += forest.predict(recorded.pool_x)
    assert recorded.votes.counts.tolist() == np.stack([5 - ones, ones], axis=1).tolist()
    with monkeypatch.context() as patch:
        patch.setattr(ensembles, "train_forest", refuse_training)
        assert ensembles.obtain(study, machine, quick=True).digest == recorded.digest
    monkeypatch.setitem(datasets.LOADERS, "adult", lambda _: replace(table, train_y=1 - table.train_y))
    assert ensembles.obtain(study, machine, quick=True).plurality_accuracy < 0.3


@pytest.mark.slow
def test_dpsgd_spends_its_budget(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = PrivacyParams(8, 1e-5)
    monkeypatch.setitem(dpsgd.SETTINGS, "digits", replace(dpsgd.SETTINGS["digits"], epochs=6))
    row = dpsgd.measure_dpsgd(STUDIES["digits"], budget, machine)
    recipe = recipe_from(row["training"])
    assert isinstance(recipe, PrivateSGD)
    assert 0.95 * budget.epsilon < compute_privacy(recipe, budget.delta).epsilon == row["epsilon"] <= budget.epsilon
    assert recipe.expected_batch(1437) == pytest.approx(128, abs=0.5)
    assert row["accuracy"] > 0.3  # random guessing has 0.1


# channel: coefficients at (2, 3) and (4, 2) of the image below, by kymatio 0.3.0's Scattering2D(J=2, shape=(28, 28))
KYMATIO = {
    0: (0.53481245, 0.13903987),
    1: (0.03333918, 0.020931361),
    9: (0.059545875, 0.039413095),
    12: (0.044502746, 0.018276637),
    17: (0.003980694, 0.0035458675),
    80: (0.0029096464, 0.0032908567),
}


def test_scattering_features_are_those_of_kymatio() -> None:
    row, column = np.mgrid[:28, :28]
    image = np.exp(-((row - 9) ** 2 + (column - 15) ** 2) / 20)
    image += 0.5 * np.exp(-((row - 18) ** 2 + 2 * (column - 10) ** 2) / 8)
    (features,) = dpsgd.compute_scattering(image.astype(np.float32)[np.newaxis, np.newaxis])
    assert features.shape == (dpsgd.CHANNELS, 7, 7)
    for channel, expected in KYMATIO.items():
        # kymatio halves the images on the way, and so takes in a little that is beyond their resolution
        assert features[channel, [2, 4], [3, 2]] == pytest.approx(expected, rel=1e-4 if channel < 9 else 0.01)


def test_a_clipped_sum_is_that_of_per_example_gradients() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)).astype(np.float32), rng.integers(3, size=20)
    x[3] *= 1e-3  # its gradient is shorter than the threshold
    weights = rng.normal(size=(6, 3)).astype(np.float32)
    compute_gradients = per_example_gradients(torch.nn.Linear(6, 3, bias=False))
    parameters = {"weight": torch.as_tensor(weights.T.copy())[None]}
    gradients = compute_gradients(parameters, torch.as_tensor(x)[None], torch.as_tensor(y)[None])
    sums = sum_clipped(gradients, torch.ones(1, 20), 0.5)["weight"][0].numpy()
    assert dpsgd.sum_clipped_gradients(x, y, weights, 0.5) == pytest.approx(sums.T, abs=1e-5)


def test_the_noise_of_a_linear_training_is_that_of_its_recipe() -> None:
    """Features of 0 have no gradient: the rest is noise, of deviation rate/(q·n)·σ·C·√steps."""
    x, y = np.zeros((400, 500), dtype=np.float32), np.arange(400) % 2
    weights = dpsgd.train_linear(x, y, 2, PrivateSGD(2.0, 9, 0.25, noise=5.0, clip=3.0), np.random.default_rng(0))
    assert weights.std() == pytest.approx(2.0 / 100 * 15.0 * 3.0, rel=0.15)  # of 1,000 weights: 2 % is a deviation


def test_only_the_published_labels_of_the_papers_student_teach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = np.arange(40) % 10
    labels, places = np.where(np.arange(40) < 10, 0, classes), np.array([3, 20, 31])
    files = []
    (tmp_path / "multiple-teachers").mkdir()
    for name, array in {"labels.npy": labels.astype(np.int32), "places.npy": places}.items():
        path = tmp_path / "multiple-teachers" / name
        np.save(path, array)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files.append(RemoteFile("multiple-teachers", name, path.stat().st_size, digest, ()))
    monkeypatch.setitem(datasets.FILES, "multiple-teachers", tuple(files))
    monkeypatch.setenv("DARRM_DATA_DIR", str(tmp_path))
    images = np.random.default_rng(0).random((40, 1, 28, 28), dtype=np.float32)
    data = LabeledImages("mnist", images[:0], classes[:0], images, classes)
    monkeypatch.setattr(outside, "split", lambda _: (data, images[:5], classes[:5]))

    class Student:
        """A student that always answers 3."""

        def __init__(self, _: object, student_labels: np.ndarray, **__: object) -> None:
            assert np.flatnonzero(student_labels >= 0).tolist() == places.tolist()
            assert (student_labels[places] == labels[places]).all()

        def predict(self, x: np.ndarray) -> np.ndarray:
            return np.full(len(x), 3)

    monkeypatch.setattr(outside, "make_student", Student)
    assert outside.main(["--recompute", "--students", "2", "--output", str(tmp_path)]) == 0
    result = read_json(tmp_path / "pate" / "outside.json")
    assert result["labels_right"] == 31 / 40
    assert (result["used"], result["used_right"], result["students"]) == (3, 2, [0.2, 0.2])
