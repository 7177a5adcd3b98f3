import functools
import shutil
import stat
import sys
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
from darrm.training.network import choose_device, convolutional_network
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

BUILD = functools.partial(convolutional_network, side=8)


def bright_and_dark(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return (0.5 * rng.random((n, 1, 8, 8)) + 0.5 * y[:, None, None, None]).astype(np.float32), y


def with_tanh() -> Any:
    """The network of `BUILD`, with the same parameters and another curve."""
    network = BUILD()
    network[1] = torch.nn.Tanh()
    return network


def ensemble(recipe: Any = None, **arguments: Any) -> TeacherEnsemble:
    x, y = bright_and_dark(120)
    settings = {"build": BUILD, "seed": 1, "progress": False, "device": "cpu", **arguments}
    return train_teachers(x, y, Partition.random(120, 3, seed=0), recipe or PlainSGD(0.2, 8, 8), **settings)


@pytest.fixture(scope="module")
def trained() -> TeacherEnsemble:
    return ensemble()


def test_teachers_learn_and_vote(trained: TeacherEnsemble) -> None:
    x, y = bright_and_dark(50, seed=9)
    votes = trained.votes(x, device="cpu", batch=7)
    assert votes.shape == (50, 3)
    assert trained.votes(x[:0]).shape == (0, trained.K) == (0, 3)
    assert (majority(votes) == y).mean() > 0.95


def test_votes_are_each_teachers_own_answer(trained: TeacherEnsemble, monkeypatch: pytest.MonkeyPatch) -> None:
    # stacks of two teachers and of one; the module itself: others may have been imported without PyTorch meanwhile
    monkeypatch.setattr(sys.modules[TeacherEnsemble.__module__], "_CPU_STACK", 2)
    x, _ = bright_and_dark(20, seed=4)
    votes = trained.votes(x, device="cpu", batch=7)
    for teacher in range(3):
        model = BUILD()
        model.load_state_dict({name: torch.tensor(value[teacher]) for name, value in trained.parameters.items()})
        assert (model(torch.tensor(x)).argmax(dim=1).numpy() == votes[:, teacher]).all()


def test_parameters_may_be_shared_read_only(trained: TeacherEnsemble) -> None:
    """As Ray hands them to its workers; a warning would be an error here."""
    x, _ = bright_and_dark(20, seed=4)
    shared = {name: value.copy() for name, value in trained.parameters.items()}
    for value in shared.values():
        value.setflags(write=False)
    x.setflags(write=False)
    again = TeacherEnsemble(shared, BUILD, trained.recipe).votes(x, device="cpu", batch=7)
    assert (again == trained.votes(x, device="cpu", batch=7)).all()


def test_teachers_see_their_own_shard_only() -> None:
    # poison the records of teacher 0: the other teachers must not change at all
    x, y = bright_and_dark(60)
    partition = Partition.random(60, 3, seed=0)
    poisoned = np.array(y)
    poisoned[partition.shard(0)] = 1 - poisoned[partition.shard(0)]
    recipe = PrivateSGD(0.1, 5, 0.3, 1.0)
    one, other = (
        train_teachers(x, labels, partition, recipe, build=BUILD, seed=1, progress=False, device="cpu", stack_size=1)
        for labels in (y, poisoned)
    )
    for name, value in one.parameters.items():
        assert (value[1:] == other.parameters[name][1:]).all()
    assert any((value[0] != other.parameters[name][0]).any() for name, value in one.parameters.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [{"stack_size": 1}, pytest.param({"stack_size": 2, "jobs": 2}, marks=pytest.mark.slow)]
)
def test_stacks_and_processes_change_nothing_but_rounding(trained: TeacherEnsemble, arguments: dict[str, int]) -> None:
    other = ensemble(**arguments)
    for name, value in trained.parameters.items():
        np.testing.assert_allclose(other.parameters[name], value, atol=1e-4)


@pytest.mark.slow
def test_threads_of_one_process_do_not_disturb_each_other() -> None:
    one = ensemble(stack_size=1)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        for _ in range(3):
            other = ensemble(stack_size=1)
            assert all((other.parameters[name] == value).all() for name, value in one.parameters.items())


def test_ensembles_save_and_load(trained: TeacherEnsemble, tmp_path: Path) -> None:
    trained.save(tmp_path / "ensemble.safetensors")
    loaded = TeacherEnsemble.load(tmp_path / "ensemble.safetensors", BUILD)
    x, _ = bright_and_dark(20, seed=4)
    assert (loaded.votes(x) == trained.votes(x)).all()
    assert loaded.recipe == trained.recipe
    assert not loaded.private


def test_damaged_or_foreign_files_are_refused(trained: TeacherEnsemble, tmp_path: Path) -> None:
    path = tmp_path / "ensemble.safetensors"
    trained.save(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="damaged"):
        TeacherEnsemble.load(path, BUILD)
    save_tensors(path, {"w": np.zeros(3)}, {"kind": "checkpoint"})
    with pytest.raises(CheckpointError, match="holds no ensemble"):
        TeacherEnsemble.load(path, BUILD)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        TeacherEnsemble.load(tmp_path / "none.safetensors", BUILD)
    trained.save(str(path))
    for other in (convolutional_network, with_tanh):
        with pytest.raises(CheckpointError, match="were trained with another network than build makes"):
            TeacherEnsemble.load(str(path), other)
    with pytest.raises(ValueError, match="parameters must be stacks of the network's parameters"):
        TeacherEnsemble(trained.parameters, convolutional_network, trained.recipe)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.pop("network"),
        lambda facts: facts.pop("seeded"),
        lambda facts: facts.update(recipe={"kind": "private"}),
        lambda facts: facts.update(recipe=[]),
        lambda facts: facts["recipe"].update(noise=-1.0),
        lambda facts: facts.update(recipe={"kind": "other"}),
    ],
)
def test_an_ensemble_s_file_with_other_facts_is_refused(change: Any, trained: TeacherEnsemble, tmp_path: Path) -> None:
    trained.save(path := tmp_path / "ensemble.safetensors")
    arrays, facts = load_tensors(path)
    change(facts)
    save_tensors(path, arrays, facts)
    with pytest.raises(CheckpointError) as caught:
        TeacherEnsemble.load(path, BUILD)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_private_is_of_its_owner_alone(
    trained: TeacherEnsemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = set()
    replace = Path.replace

    def watched(temporary: Path, target: Path) -> Path:
        modes.add(stat.S_IMODE(temporary.stat().st_mode))
        return replace(temporary, target)

    monkeypatch.setattr(Path, "replace", watched)
    trained.save(tmp_path / "ensemble.safetensors")
    save_votes(tmp_path / "votes.npy", [[0, 1]])
    ensemble(checkpoints=tmp_path / "checkpoints")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == modes == {0o600}


def test_votes_save_and_load(tmp_path: Path) -> None:
    votes = np.array([[0, 1, 1], [1, 1, 1]], dtype=np.int8)
    save_votes(tmp_path / "votes.npy", votes)
    assert (load_votes(tmp_path / "votes.npy") == votes).all()
    (tmp_path / "votes.npy").write_bytes(b"no votes")
    with pytest.raises(ValueError, match="is no table of votes"):
        load_votes(tmp_path / "votes.npy")
    with pytest.raises(ValueError, match=r"a name that ends in \.npy"):
        save_votes(tmp_path / "votes.txt", votes)


@pytest.mark.parametrize("votes", [[0, 1], [[0.5, 1.0]], np.empty((2, 0), dtype=int), [[-1, 0]], [[2, 0]]])
def test_bad_votes_are_refused(votes: object) -> None:
    with pytest.raises(ValueError, match="votes must be"):
        majority(votes)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.full((6, 1, 8, 8), np.nan), np.zeros(6, dtype=int), "x must be finite"),
        (np.full((6, 1, 8, 8), 1e39), np.zeros(6, dtype=int), "x must be finite in single precision"),
        (np.zeros((6, 1, 8, 16)), np.zeros(6, dtype=int), r"x must be inputs that the network takes, got .*1, 8, 16"),
        (np.zeros((6, 3, 8, 8)), np.zeros(6, dtype=int), "x must be inputs that the network takes"),
        (np.zeros((6, 64)), np.zeros(6, dtype=int), "x must be inputs that the network takes"),
        (np.zeros((6, 1, 8, 8)), np.array([0, 1, 2, 0, 0, 0]), r"y must be a class of the network, 0 … 1, got 2"),
        (np.zeros((6, 1, 8, 8)), np.zeros(5, dtype=int), "one for each of 6 records"),
        (np.zeros((6, 1, 8, 8)), np.zeros(6), "y must be classes 0, 1"),
        (np.zeros(6), np.zeros(6, dtype=int), "x must be floats, one row a record"),
        (np.zeros((6, 1, 8, 8), dtype=np.uint8), np.zeros(6, dtype=int), "x must be floats"),
    ],
)
def test_bad_data_are_refused(x: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_teachers(x, y, Partition.random(6, 2, seed=0), PlainSGD(0.1, 1, 2), build=BUILD)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("recipe", [None, PrivateSGD(0.1, 8, 0.3, 1.0)])
def test_a_killed_training_goes_on_with_noise_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Any
) -> None:
    """The key of the noise is its owner's alone while it is needed, and gone when all teachers are trained."""
    folder, key = tmp_path / "folder", tmp_path / "folder" / "noise.key"
    saved, seen = training._Run.save, list[bytes]()

    def killed(run: Any, path: Path) -> None:
        saved(run, path)
        seen.append(key.read_bytes())
        if run.step < run.steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(training._Run, "save", killed)
    monkeypatch.setattr(teachers, "train_group", functools.partial(training.train_group, checkpoint_every=1))
    with pytest.raises(KeyboardInterrupt):
        ensemble(recipe, seed=None, checkpoints=folder)
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    lost = shutil.copytree(folder, tmp_path / "lost")
    (lost / "noise.key").unlink()
    with pytest.raises(CheckpointError, match="the key of its noise is gone"):
        ensemble(recipe, seed=None, checkpoints=lost)
    (lost / "noise.key").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="holds no key of 32 bytes"):
        ensemble(recipe, seed=None, checkpoints=lost)
    monkeypatch.setattr(training._Run, "save", saved)
    done = ensemble(recipe, seed=None, checkpoints=folder)
    assert not key.exists()
    assert len(set(seen)) == 1
    assert done.private == isinstance(recipe, PrivateSGD)
    again = ensemble(recipe, seed=None, checkpoints=folder)  # read, not trained
    assert all((again.parameters[name] == value).all() for name, value in done.parameters.items())
    other = ensemble(recipe, seed=None, checkpoints=tmp_path / "other")
    assert not all((other.parameters[name] == value).all() for name, value in done.parameters.items())


@pytest.mark.slow
def test_a_seeded_training_says_so_everywhere(tmp_path: Path) -> None:
    recipe = PrivateSGD(0.1, 2, 0.3, 1.0)
    promised = compute_privacy(recipe, 1e-5)
    with pytest.warns(PredictableNoiseWarning, match="not private"):
        seeded = ensemble(recipe)
    seeded.save(tmp_path / "ensemble")
    for one in (seeded, TeacherEnsemble.load(tmp_path / "ensemble", BUILD)):
        assert one.seeded
        assert not one.private
        with pytest.raises(ValueError, match=f"say consent='{SEED_CONSENT}'"):
            one.privacy(1e-5)
        assert one.privacy(1e-5, consent=SEED_CONSENT) == promised
    unseeded = ensemble(recipe, seed=None)
    assert unseeded.private
    assert unseeded.privacy(1e-5) == promised
    with pytest.raises(ValueError, match="these teachers are plain"):
        ensemble(None).privacy(1e-5)


@pytest.mark.slow
def test_a_folder_belongs_to_one_network(tmp_path: Path, trained: TeacherEnsemble) -> None:
    for _ in range(2):  # the second is read, not trained
        again = ensemble(checkpoints=str(tmp_path / "folder"))
        assert all((again.parameters[name] == value).all() for name, value in trained.parameters.items())
    for other in (with_tanh, functools.partial(convolutional_network, side=8, classes=3)):
        with pytest.raises(CheckpointError, match="a training with other data, seed, network or recipe"):
            ensemble(build=other, checkpoints=tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["teachers-0.safetensors"]


def test_votes_for_more_classes_than_they_hold_are_refused() -> None:
    build = functools.partial(torch.nn.Linear, 1, 200)
    parameters = {"weight": np.zeros((2, 200, 1), dtype=np.float32), "bias": np.zeros((2, 200), dtype=np.float32)}
    teachers = TeacherEnsemble(parameters, build, PlainSGD(0.1, 1, 1))
    parameters["bias"][:, 127] = 1.0
    assert teachers.votes(np.zeros((1, 1)), device="cpu").tolist() == [[127, 127]]
    parameters["bias"][1, 128] = 2.0
    with pytest.raises(ValueError, match="a vote must be a class of at most 127, got 128"):
        teachers.votes(np.zeros((1, 1)), device="cpu")


def test_other_inputs_are_refused(trained: TeacherEnsemble) -> None:
    for shape in ((5, 1, 8, 16), (5, 64), (5, 3, 8, 8)):
        with pytest.raises(ValueError, match="x must be inputs that the network takes") as caught:
            trained.votes(np.zeros(shape), device="cpu")
        assert "\n" not in str(caught.value)


def test_private_training_needs_no_seed_and_takes_joblibs_backend() -> None:
    recipe = PrivateSGD(0.1, 2, 0.3, 1.0)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        one, other = ensemble(recipe, seed=None), ensemble(recipe, seed=None)
    assert one.private
    assert any((value != other.parameters[name]).any() for name, value in one.parameters.items())


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "tpu", "cuda:4096"])
def test_devices_that_are_not_there_are_refused(device: str) -> None:
    with pytest.raises(ValueError, match="device must be"):
        choose_device(device)
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@given(K=st.integers(1, 30), extra=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_shards_are_disjoint_complete_and_of_nearly_equal_size(K: int, extra: int, seed: int) -> None:
    partition = Partition.random(K + extra, K, seed=seed)
    together = np.concatenate([partition.shard(teacher) for teacher in range(K)])
    assert sorted(together.tolist()) == list(range(K + extra))
    assert max(partition.sizes) - min(partition.sizes) <= 1


def test_records_are_shuffled_by_the_seed() -> None:
    assert Partition.random(1000, 2, seed=0).teacher_of[:500].mean() == pytest.approx(0.5, abs=0.1)
    first, again, other = (Partition.random(100, 7, seed=seed).teacher_of for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_the_array_is_a_copy_and_read_only() -> None:
    mine = np.array([0, 1])
    partition = Partition(2, mine)
    mine[0] = 1
    assert partition.sizes == (1, 1)
    with pytest.raises(ValueError, match="read-only"):
        partition.teacher_of[0] = 1


@pytest.mark.parametrize(
    ("teacher_of", "message"),
    [
        (np.array([0, 2]), r"teacher_of must be in 0 … K - 1 = 0 … 1, got \(0, 2\)"),
        (np.array([0, -1]), "teacher_of must be in"),
        (np.array([0, 0]), "every one of the K = 2 teachers"),
        (np.array([], dtype=np.int64), "every one of the K = 2 teachers"),
        (np.array([0.0, 1.0]), "list of integers"),
        (np.array([[0, 1]]), "list of integers"),
    ],
)
def test_bad_partitions_are_refused(teacher_of: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Partition(2, teacher_of)


def test_bad_sizes_and_teachers_are_refused() -> None:
    for n, K, message in ((2, 3, "n must be an integer of at least 3"), (5, 0, "K must be"), (5, 2.0, "K must be")):
        with pytest.raises(ValueError, match=message):
            Partition.random(n, K, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"teacher must be in 0 … K - 1 = 0 … 1, got 2"):
        Partition.random(4, 2, seed=0).shard(2)
    with pytest.raises(ValueError, match="teacher must be an integer of at least 0"):
        Partition.random(4, 2, seed=0).shard(-1)
    with pytest.raises(ValueError, match="seed must be an integer of at least 0"):
        Partition.random(4, 2, seed=-1)
