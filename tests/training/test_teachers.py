"""Partitions, and ensembles of teachers: training, votes and files."""

import functools
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from hypothesis import given
from hypothesis import strategies as st

from darrm.errors import CheckpointError
from darrm.training import teachers, training
from darrm.training.calibration import compute_privacy
from darrm.training.network import convolutional_network
from darrm.training.recipes import PlainSGD, PrivateSGD
from darrm.training.teachers import (
    SEED_CONSENT,
    Partition,
    PredictableNoiseWarning,
    TeacherEnsemble,
    load_votes,
    majority,
    save_votes,
    train_teachers,
)
from darrm.training.training import load_tensors, save_tensors
from tests.training.support import BUILD, CPU, make_images

PRIVATE = PrivateSGD(0.1, 2, 0.3, 1.0)


def build_with_tanh() -> Any:
    """Build the network of `BUILD` with the same parameters and another activation."""
    network = BUILD()
    network[1] = torch.nn.Tanh()
    return network


def train(recipe: Any = None, **settings: Any) -> TeacherEnsemble:
    partition = Partition.random(120, 3, seed=0)
    arguments = {"build": BUILD, "seed": 1, **CPU, **settings}
    return train_teachers(*make_images(120), partition, recipe or PlainSGD(0.2, 8, 8), **arguments)


def list_equal(one: TeacherEnsemble, other: TeacherEnsemble) -> list[bool]:
    """Return for each teacher whether its parameters are equal to the bit."""
    pairs = [(value, other.parameters[name]) for name, value in one.parameters.items()]
    return [all((a[teacher] == b[teacher]).all() for a, b in pairs) for teacher in range(one.K)]


@pytest.fixture(scope="module")
def trained() -> TeacherEnsemble:
    return train()


@given(K=st.integers(1, 30), extra=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_shards_are_disjoint_complete_and_of_nearly_equal_size(K: int, extra: int, seed: int) -> None:
    partition = Partition.random(K + extra, K, seed=seed)
    records = np.concatenate([partition.shard(teacher) for teacher in range(K)])
    assert sorted(records.tolist()) == list(range(K + extra))
    assert max(partition.sizes) - min(partition.sizes) <= 1


def test_a_partition_is_shuffled_by_its_seed() -> None:
    assert Partition.random(1000, 2, seed=0).teacher_of[:500].mean() == pytest.approx(0.5, abs=0.1)
    first, again, other = (Partition.random(100, 7, seed=seed).teacher_of for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_a_partition_copies_its_array_and_makes_it_read_only() -> None:
    array = np.array([0, 1])
    partition = Partition(2, array)
    array[0] = 1
    assert partition.sizes == (1, 1)
    with pytest.raises(ValueError, match="read-only"):
        partition.teacher_of[0] = 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Partition(2, np.array([0, 2])), r"teacher_of must be in 0 … K - 1 = 0 … 1, got \(0, 2\)"),
        (lambda: Partition(2, np.array([0, -1])), "teacher_of must be in"),
        (lambda: Partition(2, np.array([0, 0])), "every one of the K = 2 teachers"),
        (lambda: Partition(2, np.array([], dtype=np.int64)), "every one of the K = 2 teachers"),
        (lambda: Partition(2, np.array([0.0, 1.0])), "list of integers"),
        (lambda: Partition(2, np.array([[0, 1]])), "list of integers"),
        (lambda: Partition.random(2, 3, seed=0), "n must be an integer of at least 3"),
        (lambda: Partition.random(5, 0, seed=0), "K must be"),
        (lambda: Partition.random(5, 2.0, seed=0), "K must be"),  # type: ignore[arg-type]
        (lambda: Partition.random(4, 2, seed=-1), "seed must be an integer of at least 0"),
        (lambda: Partition.random(4, 2, seed=0).shard(2), r"teacher must be in 0 … K - 1 = 0 … 1, got 2"),
        (lambda: Partition.random(4, 2, seed=0).shard(-1), "teacher must be an integer of at least 0"),
        (lambda: save_votes(Path("votes.txt"), [[0, 1]]), r"a name that ends in \.npy"),
        *(
            (functools.partial(majority, votes), "votes must be")
            for votes in ([0, 1], [[0.5, 1.0]], np.empty((2, 0), dtype=int), [[-1, 0]], [[2, 0]])
        ),
    ],
)
def test_partitions_and_votes_refuse_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_teachers_learn_and_their_votes_are_the_answers_of_each(
    trained: TeacherEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    # stacks of two teachers and of one; through sys.modules, because tests without torch import the module again
    monkeypatch.setattr(sys.modules[TeacherEnsemble.__module__], "_CPU_STACK", 2)
    x, y = make_images(50, seed=9)
    votes = trained.votes(x, device="cpu", batch=7)
    assert votes.shape == (50, 3)
    for teacher in range(3):
        model = BUILD()
        model.load_state_dict({name: torch.tensor(value[teacher]) for name, value in trained.parameters.items()})
        assert (model(torch.tensor(x)).argmax(dim=1).numpy() == votes[:, teacher]).all()
    assert (majority(votes) == y).mean() > 0.95
    assert trained.votes(x[:0]).shape == (0, trained.K) == (0, 3)
    with pytest.raises(ValueError, match="x must be inputs that the network takes"):
        trained.votes(np.zeros((5, 64)), device="cpu")
    with pytest.raises(ValueError, match="parameters must be stacks of the network's parameters"):
        TeacherEnsemble(trained.parameters, convolutional_network, trained.recipe)


def test_votes_take_read_only_parameters_and_inputs(trained: TeacherEnsemble) -> None:
    # as Ray sends them to its workers; a warning would be an error here
    x = make_images(20, seed=4)[0].copy()
    parameters = {name: value.copy() for name, value in trained.parameters.items()}
    for array in (x, *parameters.values()):
        array.setflags(write=False)
    votes = TeacherEnsemble(parameters, BUILD, trained.recipe).votes(x, device="cpu", batch=7)
    assert (votes == trained.votes(x, device="cpu", batch=7)).all()


def test_votes_refuse_classes_beyond_a_byte() -> None:
    parameters = {"weight": np.zeros((2, 200, 1), dtype=np.float32), "bias": np.zeros((2, 200), dtype=np.float32)}
    ensemble = TeacherEnsemble(parameters, functools.partial(torch.nn.Linear, 1, 200), PlainSGD(0.1, 1, 1))
    parameters["bias"][:, 127] = 1.0
    assert ensemble.votes(np.zeros((1, 1)), device="cpu").tolist() == [[127, 127]]
    parameters["bias"][1, 128] = 2.0
    with pytest.raises(ValueError, match="a vote must be a class of at most 127, got 128"):
        ensemble.votes(np.zeros((1, 1)), device="cpu")


def test_a_teacher_depends_on_its_own_shard_only() -> None:
    x, y = make_images(60)
    partition, shifted = Partition.random(60, 3, seed=0), y.copy()
    shifted[partition.shard(0)] = 1 - shifted[partition.shard(0)]
    recipe = PrivateSGD(0.1, 5, 0.3, 1.0)
    with pytest.warns(PredictableNoiseWarning, match="not private"):
        one, other = (train_teachers(x, each, partition, recipe, build=BUILD, seed=1, **CPU) for each in (y, shifted))
    assert list_equal(one, other) == [False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"stack_size": 1}, {"stack_size": 2, "jobs": 2}], ids=str)
def test_stacks_and_processes_train_the_same_teachers_up_to_rounding(
    trained: TeacherEnsemble, settings: dict[str, int]
) -> None:
    for name, value in train(**settings).parameters.items():
        np.testing.assert_allclose(value, trained.parameters[name], atol=1e-4)


@pytest.mark.slow
def test_threads_of_one_process_train_the_same_teachers() -> None:
    expected = train(stack_size=1)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        for _ in range(3):
            assert all(list_equal(expected, train(stack_size=1)))


def test_teachers_without_a_seed_differ_and_use_the_backend_of_joblib() -> None:
    with joblib.parallel_config(backend="threading", n_jobs=2):
        one, other = train(PRIVATE, seed=None), train(PRIVATE, seed=None)
    assert one.private
    assert not any(list_equal(one, other))


ZEROS = np.zeros(6, dtype=int)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.full((6, 1, 8, 8), np.nan), ZEROS, "x must be finite"),
        (np.full((6, 1, 8, 8), 1e39), ZEROS, "x must be finite in single precision"),
        (np.zeros((6, 1, 8, 16)), ZEROS, r"x must be inputs that the network takes, got .*1, 8, 16"),
        (np.zeros((6, 64)), ZEROS, "x must be inputs that the network takes"),
        (np.zeros((6, 1, 8, 8)), np.array([0, 1, 2, 0, 0, 0]), r"y must be a class of the network, 0 … 1, got 2"),
        (np.zeros((6, 1, 8, 8)), ZEROS[1:], "one for each of 6 records"),
        (np.zeros((6, 1, 8, 8)), -ZEROS - 1, "y must be classes 0, 1"),
        (np.zeros((6, 1, 8, 8)), np.zeros(6), "y must be classes 0, 1"),
        (np.zeros(6), ZEROS, "x must be floats, one row a record"),
        (np.zeros((6, 1, 8, 8), dtype=np.uint8), ZEROS, "x must be floats"),
    ],
)
def test_train_teachers_refuses_wrong_data(x: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_teachers(x, y, Partition.random(6, 2, seed=0), PlainSGD(0.1, 1, 2), build=BUILD)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("recipe", [None, PrivateSGD(0.1, 8, 0.3, 1.0)])
def test_a_killed_training_resumes_with_the_key_of_its_noise_and_destroys_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Any
) -> None:
    folder, key, save = tmp_path / "folder", tmp_path / "folder" / "noise.key", training._Run.save
    keys = set[bytes]()

    def save_and_die(run: Any, path: Path) -> None:
        save(run, path)
        if run.step < run.steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(training._Run, "save", save_and_die)
    monkeypatch.setattr(teachers, "train_group", functools.partial(training.train_group, checkpoint_every=1))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, seed=None, checkpoints=folder)
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert len(key.read_bytes()) == 32
        keys.add(key.read_bytes())
    assert len(keys) == 1  # of two keys the noise of one step would be drawn twice
    without_key = shutil.copytree(folder, tmp_path / "without_key")
    (without_key / "noise.key").unlink()
    with pytest.raises(CheckpointError, match="the key of its noise is gone"):
        train(recipe, seed=None, checkpoints=without_key)
    (without_key / "noise.key").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="holds no key of 32 bytes"):
        train(recipe, seed=None, checkpoints=without_key)
    monkeypatch.setattr(training._Run, "save", save)
    ensemble = train(recipe, seed=None, checkpoints=folder)
    assert not key.exists()
    assert ensemble.private == isinstance(recipe, PrivateSGD)
    assert all(list_equal(ensemble, train(recipe, seed=None, checkpoints=folder)))  # read from the files
    assert not all(list_equal(ensemble, train(recipe, seed=None, checkpoints=tmp_path / "other")))


@pytest.mark.slow
def test_a_folder_of_checkpoints_belongs_to_one_network(tmp_path: Path, trained: TeacherEnsemble) -> None:
    for _ in range(2):  # the second time from the files
        assert all(list_equal(trained, train(checkpoints=str(tmp_path / "folder"))))
    for build in (build_with_tanh, functools.partial(convolutional_network, side=8, classes=3)):
        with pytest.raises(CheckpointError, match="a training with other data, seed, network or recipe"):
            train(build=build, checkpoints=tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["teachers-0.safetensors"]


@pytest.mark.slow
def test_seeded_teachers_are_not_private_without_consent(tmp_path: Path) -> None:
    expected = compute_privacy(PRIVATE, 1e-5)
    with pytest.warns(PredictableNoiseWarning, match="not private"):
        seeded = train(PRIVATE)
    seeded.save(tmp_path / "ensemble")
    for ensemble in (seeded, TeacherEnsemble.load(tmp_path / "ensemble", BUILD)):
        assert ensemble.seeded
        assert not ensemble.private
        with pytest.raises(ValueError, match=f"say consent='{SEED_CONSENT}'"):
            ensemble.privacy(1e-5)
        assert ensemble.privacy(1e-5, consent=SEED_CONSENT) == expected
    assert train(PRIVATE, seed=None).privacy(1e-5) == expected


def test_a_loaded_ensemble_votes_as_before(trained: TeacherEnsemble, tmp_path: Path) -> None:
    trained.save(tmp_path / "ensemble.safetensors")
    loaded = TeacherEnsemble.load(tmp_path / "ensemble.safetensors", BUILD)
    assert all(list_equal(loaded, trained))
    assert loaded.recipe == trained.recipe
    assert not loaded.private
    with pytest.raises(ValueError, match="these teachers are plain"):
        loaded.privacy(1e-5)


def write_foreign(path: Path, _: TeacherEnsemble) -> None:
    save_tensors(path, {"w": np.zeros(3)}, {"kind": "checkpoint"})


def write_truncated(path: Path, ensemble: TeacherEnsemble) -> None:
    ensemble.save(path)
    path.write_bytes(path.read_bytes()[:-10])


def write_edited(change: Callable[[Any], Any], path: Path, ensemble: TeacherEnsemble) -> None:
    """Write an ensemble with other facts, under a valid digest."""
    ensemble.save(path)
    arrays, facts = load_tensors(path)
    change(facts)
    save_tensors(path, arrays, facts)


@pytest.mark.parametrize(
    ("write", "build", "message"),
    [
        (write_foreign, BUILD, "holds no ensemble"),
        (write_truncated, BUILD, "damaged"),
        *(
            (lambda path, ensemble: ensemble.save(str(path)), build, "trained with another network than build makes")
            for build in (convolutional_network, build_with_tanh)
        ),
        *(
            (functools.partial(write_edited, change), BUILD, "another network|holds no such ensemble")
            for change in (
                lambda facts: facts.pop("network"),
                lambda facts: facts.pop("seeded"),
                lambda facts: facts.update(recipe={"kind": "private"}),
                lambda facts: facts.update(recipe=[]),
                lambda facts: facts["recipe"].update(noise=-1.0),
                lambda facts: facts.update(recipe={"kind": "other"}),
            )
        ),
    ],
)
def test_load_refuses_other_files(write: Any, build: Any, message: str, trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "ensemble.safetensors"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        TeacherEnsemble.load(path, build)
    write(path, trained)
    with pytest.raises(CheckpointError, match=message) as refusal:
        TeacherEnsemble.load(path, build)
    assert "\n" not in str(refusal.value)


def test_private_files_are_written_atomically_for_their_owner_only(
    trained: TeacherEnsemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced: list[tuple[str, int]] = []
    replace = Path.replace

    def replace_and_note_mode(temporary: Path, target: Path) -> Path:
        replaced.append((target.name, stat.S_IMODE(temporary.stat().st_mode)))
        return replace(temporary, target)

    monkeypatch.setattr(Path, "replace", replace_and_note_mode)
    trained.save(tmp_path / "ensemble.safetensors")
    save_votes(tmp_path / "votes.npy", [[0, 1]])
    train(checkpoints=tmp_path)
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 3
    assert set(replaced) == {(name, 0o600) for name in names}


def test_votes_survive_a_file(tmp_path: Path) -> None:
    votes, path = np.array([[0, 1, 1], [1, 1, 1]], dtype=np.int8), tmp_path / "votes.npy"
    save_votes(path, votes)
    assert (load_votes(path) == votes).all()
    path.write_bytes(b"no votes")
    with pytest.raises(ValueError, match="is no table of votes"):
        load_votes(path)
