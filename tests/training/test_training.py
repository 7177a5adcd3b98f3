"""Training of stacks: gradients and steps agree with their definitions, and a killed training resumes."""

import math
import os
import pickle
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from safetensors.numpy import save_file

from darrm.errors import CheckpointError
from darrm.training import training
from darrm.training.network import initial_parameters, limit_threads, stack
from darrm.training.recipes import INITIAL, NOISE, Augmentation, PlainSGD, PrivateSGD, RandomSource, Recipe, gaussians
from darrm.training.teachers import Partition, TeacherEnsemble, train_teachers
from darrm.training.training import (
    Group,
    load_tensors,
    per_example_gradients,
    sum_clipped,
    train_group,
)
from tests.killed import run_apart, wait_for
from tests.training.support import BUILD, CPU

nn = torch.nn
PRIVATE = PrivateSGD(learning_rate=0.5, steps=10, sampling_rate=0.15, noise=0.5, clip=0.3)
ADAM = PlainSGD(0.01, 6, 4, adam=True, augmentation=Augmentation(shift=1.0, distortion=0.2, mirror=True))


def test_one_of_many_parallel_gradients_moves_the_clipped_sum_by_at_most_the_threshold() -> None:
    # a sum in single precision moves by 1.001: its rounding changes, too
    generator = torch.Generator().manual_seed(0)
    gradients = {"w": 10.0 * torch.randn(1, 1, 50, generator=generator) * (1.0 + torch.rand(1, 60_000, 1))}
    mask = torch.ones(1, 60_000)
    total, moved = sum_clipped(gradients, mask, 1.0)["w"], []
    for one in (0, 30_001):
        others = mask.clone()
        others[0, one] = 0.0
        moved.append(float((total - sum_clipped(gradients, others, 1.0)["w"]).double().norm()))
    assert 0.999 < max(moved) <= 1.0


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e3, 1e15, 1e30])
@pytest.mark.parametrize("others", [0, 1, 300])
def test_one_example_moves_the_clipped_sum_of_all_parameters_by_at_most_the_threshold(size: float, others: int) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = {"w": (40, 5), "b": (7,)}
    gradients = {name: torch.randn(1, others + 1, *shape, generator=generator) for name, shape in shapes.items()}
    for gradient in gradients.values():
        gradient[:, 0] *= size
    mask = torch.ones(1, others + 1)
    total = sum_clipped(gradients, mask, 0.7)
    mask[0, 0] = 0.0
    rest = sum_clipped(gradients, mask, 0.7)
    moved = math.hypot(*(float((total[name].double() - rest[name].double()).norm()) for name in shapes))
    assert moved <= 0.7
    assert not 1.0 <= size <= 1e15 or moved >= 0.699  # squares overflow beyond, and the example is dropped


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [1e-100, 1e-30, 1e-23, 1e-8, 1.0, 1e30, 1e100])
def test_clipping_holds_in_every_precision_and_for_every_threshold(dtype: Any, clip: float) -> None:
    generator = torch.Generator().manual_seed(2)
    for size in (1e-160, 1e-44, 1e-23, 1e-6, 1.0, 1e4, 1e38):
        gradient = (size * torch.randn(1, 1, 4096, generator=generator, dtype=torch.float64)).to(dtype)
        (clipped,) = sum_clipped({"w": gradient}, torch.ones(1, 1), clip).values()
        length = math.hypot(*clipped.flatten().tolist())  # without overflow or underflow
        expected = math.hypot(*(float(entry) for entry in gradient.double().flatten()))
        assert not math.isfinite(expected) or length == pytest.approx(min(clip, expected), rel=2e-4)
        assert length <= clip


@pytest.mark.parametrize("second", [[0.0] * 3, [float("nan"), 1.0, 1.0], [float("inf"), 1.0, 1.0]])
def test_a_gradient_that_is_zero_or_not_finite_contributes_nothing(second: list[float]) -> None:
    gradients = {"w": torch.tensor([[[1.0, 1.0, 1.0], second]])}
    assert sum_clipped(gradients, torch.ones(1, 2), 10.0)["w"].tolist() == [[1.0, 1.0, 1.0]]


X, Y = np.random.default_rng(0).random((20, 6), dtype=np.float32), np.arange(20) % 2
PARTITION = Partition.random(20, 2, seed=0)


def build_frozen() -> Any:
    last, body = nn.Linear(6, 2), nn.Linear(6, 6, bias=False)  # the last layer draws first, as alone
    body.weight = nn.Parameter(7.0 * torch.eye(6), requires_grad=False)
    return nn.Sequential(body, last)


@pytest.mark.filterwarnings("ignore::darrm.training.teachers.PredictableNoiseWarning")
@pytest.mark.parametrize("recipe", [PRIVATE, PlainSGD(0.1, 1, 5), PlainSGD(0.1, 1, 5, adam=True)])
def test_frozen_parameters_keep_their_values_without_gradient_and_noise(recipe: Any, tmp_path: Path) -> None:
    ensemble = train_teachers(X, Y, PARTITION, recipe, build=build_frozen, seed=1, **CPU)
    assert (ensemble.parameters["0.weight"] == 7.0 * np.eye(6)).all()
    # the last layer alone, on multiplied inputs, has the same gradients, norms and noise
    alone = train_teachers(7.0 * X, Y, PARTITION, recipe, build=partial(nn.Linear, 6, 2), seed=1, **CPU)
    np.testing.assert_allclose(ensemble.parameters["1.weight"], alone.parameters["weight"], atol=1e-5)
    path = tmp_path / "frozen.safetensors"
    ensemble.save(path)
    assert (TeacherEnsemble.load(path, build_frozen).parameters["0.weight"] == 7.0 * np.eye(6)).all()
    with pytest.raises(CheckpointError, match="another network"):
        TeacherEnsemble.load(path, lambda: build_frozen().requires_grad_(True))


@pytest.mark.parametrize("recipe", [PRIVATE, PlainSGD(0.1, 1, 5)])
def test_a_full_memory_is_one_line_with_advice(recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = train_teachers(X, Y, PARTITION, recipe, build=build_frozen, **CPU)

    def fill_memory(*_: Any) -> Any:
        raise torch.OutOfMemoryError("tried to allocate\n9 GiB")

    monkeypatch.setattr(training._Run, "advance", fill_memory)
    with pytest.raises(MemoryError, match=r"the memory of cpu is full \(tried to allocate 9 GiB\): .*stack_size="):
        train_teachers(X, Y, PARTITION, recipe, build=build_frozen, **CPU)
    monkeypatch.setattr(nn.Linear, "forward", fill_memory)
    with pytest.raises(MemoryError, match="a smaller batch="):
        ensemble.votes(X)


def make_group(recipe: Recipe = PRIVATE, seed: int = 0, sizes: tuple[int, ...] = (9, 8)) -> Group:
    rng = np.random.default_rng(1)
    return Group(
        x=tuple(rng.random((size, 1, 8, 8), dtype=np.float32) for size in sizes),
        y=tuple(rng.integers(0, 2, size) for size in sizes),
        teachers=tuple(range(3, 3 + len(sizes))),
        build=BUILD,
        recipe=recipe,
        source=RandomSource(seed),
    )


def test_the_gradients_of_a_stack_are_those_of_each_example_alone() -> None:
    x, y = torch.rand(3, 5, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(15).view(3, 5) % 2
    with limit_threads(torch.device("cpu")):
        states = [initial_parameters(BUILD, seed) for seed in (1, 2, 3)]
        gradients = per_example_gradients(BUILD())(stack(states), x, y)
        for teacher, state in enumerate(states):
            model = BUILD()
            model.load_state_dict(state)
            for example in range(5):
                loss = nn.functional.cross_entropy(model(x[teacher, [example]]), y[teacher, [example]])
                expected = torch.autograd.grad(loss, list(model.parameters()))
                for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
                    torch.testing.assert_close(gradients[name][teacher, example], gradient, rtol=0, atol=1e-6)


def build_initial(group: Group, teacher: int) -> Any:
    model = BUILD()
    seed = int(group.source.words(1, teacher, INITIAL, 0)[0]) >> 1
    model.load_state_dict(initial_parameters(BUILD, seed))
    return model


def train_by_definition(group: Group, row: int) -> Any:
    """Train one teacher by DP-SGD or SGD in loops, with one backward pass for each example."""
    teacher, size, recipe = group.teachers[row], len(group.y[row]), group.recipe
    model = build_initial(group, teacher)
    total = sum(parameter.numel() for parameter in model.parameters())
    for step in range(recipe.step_count(size)):
        batch = recipe.batch(group.source, teacher, step, size)
        update = torch.zeros(total, dtype=torch.float64)
        for example in batch:
            model.zero_grad()
            x, y = torch.tensor(group.x[row][[example]]), torch.tensor(group.y[row][[example]])
            nn.functional.cross_entropy(model(x), y).backward()
            gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()
            if isinstance(recipe, PrivateSGD):
                gradient *= min(1.0, recipe.clip / float(gradient.norm()))
            update += gradient
        if isinstance(recipe, PrivateSGD):
            words = group.source.words(total + total % 2, teacher, NOISE, step)
            update += recipe.noise * recipe.clip * torch.tensor(gaussians(words)[:total])
            update /= recipe.sampling_rate * size
        else:
            update /= len(batch)
        start = 0
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(recipe.learning_rate * update[start : start + parameter.numel()].view_as(parameter))
                start += parameter.numel()
    return model


def train_by_torch(group: Group, row: int) -> Any:
    """Train one teacher by torch's Adam, with a rate that falls linearly to 0."""
    teacher, x, y, recipe = group.teachers[row], group.x[row], group.y[row], group.recipe
    assert isinstance(recipe, PlainSGD)
    model, steps = build_initial(group, teacher), recipe.step_count(len(y))
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for step in range(steps):
        batch = recipe.batch(group.source, teacher, step, len(y))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.tensor(x[batch])), torch.tensor(y[batch])).backward()
        optimizer.step()
        schedule.step()
    return model


@pytest.mark.parametrize(
    ("recipe", "train_alone", "tolerance"),
    [
        (PRIVATE, train_by_definition, 2e-3),
        (PlainSGD(0.2, 2, 4), train_by_definition, 1e-5),
        (replace(ADAM, augmentation=None), train_by_torch, 1e-5),
    ],
)
def test_a_stack_trains_as_each_teacher_alone(recipe: Recipe, train_alone: Any, tolerance: float) -> None:
    # the sizes 9 and 8 give plain recipes 3 and 2 batches an epoch, so one teacher of the stack ends early
    group = make_group(recipe)
    parameters = train_group(group, **CPU)
    for row in range(2):
        with limit_threads(torch.device("cpu")):
            expected = train_alone(group, row)
        for name, value in expected.named_parameters():
            np.testing.assert_allclose(parameters[name][row], value.detach().numpy(), rtol=0, atol=tolerance)


def test_each_teacher_of_a_stack_distorts_images_by_its_own_draws() -> None:
    group = make_group(ADAM)
    parameters = train_group(group, **CPU)
    for row in range(2):
        part = slice(row, row + 1)
        one = replace(group, x=group.x[part], y=group.y[part], teachers=group.teachers[part])
        alone, undistorted = (
            train_group(each, **CPU) for each in (one, replace(one, recipe=replace(ADAM, augmentation=None)))
        )
        assert max(np.abs(alone[name][0] - parameters[name][row]).max() for name in alone) < 1e-4
        assert max(np.abs(alone[name] - undistorted[name]).max() for name in alone) > 1e-2


def test_empty_batches_add_noise_alone() -> None:
    recipe = PrivateSGD(learning_rate=0.1, steps=3, sampling_rate=1e-9, noise=2.0, clip=0.5)
    group = make_group(recipe, sizes=(8,))
    parameters = train_group(group, **CPU)
    initial = dict(build_initial(group, 3).named_parameters())
    size = sum(value[0].size for value in parameters.values())
    noise = sum(gaussians(group.source.words(size + size % 2, 3, NOISE, step))[:size] for step in range(3))
    moved = np.concatenate([(parameters[name][0] - initial[name].detach().numpy()).ravel() for name in parameters])
    expected = -0.1 * 2.0 * 0.5 * noise / (1e-9 * 8)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_training_keeps_the_threads_and_the_generator_of_torch() -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(2)  # training uses another number
    train_group(make_group(), **CPU)
    assert (torch.random.get_rng_state() == state).all()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("recipe", [PRIVATE, PlainSGD(0.2, 6, 4), ADAM])
def test_a_killed_training_resumes_from_its_checkpoint_to_the_same_end(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / "state.safetensors", list[int]()
    whole, advance = train_group(make_group(recipe), **CPU), training._Run.advance

    def advance_or_die(run: Any) -> None:
        steps.append(run.step)
        if len(steps) == 9:
            raise KeyboardInterrupt
        advance(run)

    monkeypatch.setattr(training._Run, "advance", advance_or_die)
    with pytest.raises(KeyboardInterrupt):
        train_group(make_group(recipe), checkpoint=path, checkpoint_every=3, **CPU)
    resumed = train_group(make_group(recipe), checkpoint=path, checkpoint_every=3, **CPU)
    assert all((whole[name] == resumed[name]).all() for name in whole)
    last = max(steps)
    assert steps == [*range(9), *range(6, last + 1)]
    train_group(make_group(recipe), checkpoint=path, **CPU)  # finished
    assert steps[-1] == last


def train_in_fork(path: Path, recipe: PrivateSGD, output: Path) -> int:
    if number := os.fork():
        return number
    trained: Any = train_group(make_group(recipe), checkpoint=path, checkpoint_every=1, **CPU)
    np.savez(output, **trained)
    os._exit(0)


def kill_repeatedly(folder: Path, max_kills: int) -> int:
    """Kill a training again and again, each time after its checkpoint has changed; let it end, and compare."""
    rng, recipe, path = np.random.default_rng(0), replace(PRIVATE, steps=200), folder / "state.safetensors"
    assert wait_for(train_in_fork(folder / "other", recipe, folder / "whole.npz")) == 0
    for kill in range(max_kills):
        before = path.read_bytes() if path.exists() else b""
        number = train_in_fork(path, recipe, folder / "resumed.npz")
        while not path.exists() or path.read_bytes() == before:
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.02))
        os.kill(number, signal.SIGKILL)
        if wait_for(number) != -signal.SIGKILL:
            return kill
    assert wait_for(train_in_fork(path, recipe, folder / "resumed.npz")) == 0
    whole, resumed = np.load(folder / "whole.npz"), np.load(folder / "resumed.npz")
    assert all((whole[name] == resumed[name]).all() for name in whole)
    return max_kills


@pytest.mark.slow
def test_a_training_that_is_killed_again_and_again_has_the_same_end(tmp_path: Path) -> None:
    assert run_apart(__file__, tmp_path, "kills.kill_repeatedly(folder, 20)").split() == ["20"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "other",
    [
        make_group(seed=1),
        make_group(replace(PRIVATE, noise=0.6)),
        make_group(sizes=(8, 9)),
        replace(make_group(), network="other"),
        replace(make_group(), x=tuple(x.reshape(-1, 1, 4, 16) for x in make_group().x)),  # the same bytes
    ],
)
def test_a_checkpoint_of_another_training_is_refused(other: Group, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    train_group(make_group(), checkpoint=path, **CPU)
    with pytest.raises(CheckpointError, match="belongs to a training with other data, seed, network or recipe"):
        training._Run(other, BUILD(), torch.device("cpu")).resume(path)


def test_a_training_without_a_seed_writes_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="source must be a repeatable one for checkpoints"):
        train_group(replace(make_group(), source=RandomSource()), checkpoint=tmp_path / "state.safetensors", **CPU)
    assert not list(tmp_path.iterdir())


def test_damaged_checkpoints_are_refused_in_one_line(tmp_path: Path) -> None:
    path, rng, refusals = tmp_path / "state.safetensors", np.random.default_rng(0), 0
    train_group(make_group(PlainSGD(0.2, 1, 4)), checkpoint=path, **CPU)
    content, (arrays, facts) = path.read_bytes(), load_tensors(path)
    header = 8 + int.from_bytes(content[:8], "little")
    for case in range(200):
        start, end = sorted(rng.integers(0, len(content) if case % 2 else header, 2).tolist())
        flipped = bytes([content[start] ^ 1 << int(rng.integers(8))])
        middle = (flipped + content[start + 1 : end], b"", bytes(end - start), content[start:end] * 2)[case // 2 % 4]
        path.write_bytes(content[:start] + middle + content[end:])
        try:
            loaded = load_tensors(path)
        except CheckpointError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refusals += 1
        else:
            assert loaded[1] == facts
            assert {name: value.tobytes() for name, value in loaded[0].items()} == {
                name: value.tobytes() for name, value in arrays.items()
            }
    assert refusals > 180


def test_files_without_a_digest_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_file({"w": np.zeros(3, dtype=np.float32)}, path, metadata={"darrm": '{"kind": "ensemble"}'})
    with pytest.raises(CheckpointError, match="train again; a file of an older release carries no digest") as refusal:
        load_tensors(path)
    error = pickle.loads(pickle.dumps(refusal.value))  # noqa: S301 (as a worker process sends it)
    assert (str(error), error.path) == (str(refusal.value), str(path))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_the_same_teachers() -> None:
    on_gpu = train_group(make_group(), device="cuda", progress=False)
    for name, value in train_group(make_group(), **CPU).items():
        np.testing.assert_allclose(on_gpu[name], value, atol=1e-3)
