import functools
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from safetensors.numpy import save_file

from darrm.errors import CheckpointError
from darrm.training import training
from darrm.training.network import convolutional_network, initial_parameters, limit_threads, network_digest
from darrm.training.recipes import INITIAL, NOISE, Augmentation, PlainSGD, PrivateSGD, RandomSource, Recipe, gaussians
from darrm.training.training import Group, train_group

BUILD = functools.partial(convolutional_network, side=8)
PRIVATE = PrivateSGD(learning_rate=0.5, steps=10, sampling_rate=0.15, noise=0.5, clip=0.3)
ADAM = PlainSGD(0.01, 6, 4, adam=True, augmentation=Augmentation(shift=1.0, distortion=0.2, mirror=True))


def group(recipe: Recipe = PRIVATE, seed: int = 0, sizes: tuple[int, ...] = (9, 8)) -> Group:
    rng = np.random.default_rng(1)
    return Group(
        x=tuple(rng.random((size, 1, 8, 8), dtype=np.float32) for size in sizes),
        y=tuple(rng.integers(0, 2, size) for size in sizes),
        teachers=tuple(range(3, 3 + len(sizes))),
        build=BUILD,
        recipe=recipe,
        source=RandomSource(seed),
    )


def train(what: Group, **arguments: Any) -> dict[str, np.ndarray]:
    return train_group(what, device="cpu", progress=False, **arguments)


def one_at_a_time(what: Group, row: int) -> dict[str, Any]:
    """The definition of DP-SGD, and of SGD, for one teacher: loops, one backward pass for each example."""
    teacher, size, recipe = what.teachers[row], len(what.y[row]), what.recipe
    model = BUILD()
    model.load_state_dict(initial_parameters(BUILD, int(what.source.words(1, teacher, INITIAL, 0)[0]) >> 1))
    names = [name for name, _ in model.named_parameters()]
    total = sum(parameter.numel() for parameter in model.parameters())
    for step in range(recipe.step_count(size)):
        batch = recipe.batch(what.source, teacher, step, size)
        update = torch.zeros(total, dtype=torch.float64)
        for example in batch:
            model.zero_grad()
            x, y = torch.tensor(what.x[row][[example]]), torch.tensor(what.y[row][[example]])
            torch.nn.functional.cross_entropy(model(x), y).backward()
            gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()
            if isinstance(recipe, PrivateSGD):
                gradient *= min(1.0, recipe.clip / float(gradient.norm()))
            update += gradient
        if isinstance(recipe, PrivateSGD):
            words = what.source.words(total + total % 2, teacher, NOISE, step)
            update += recipe.noise * recipe.clip * torch.tensor(gaussians(words)[:total])
            update /= recipe.sampling_rate * size
        else:
            update /= len(batch)
        start = 0
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(recipe.learning_rate * update[start : start + parameter.numel()].view_as(parameter))
                start += parameter.numel()
    return {name: dict(model.named_parameters())[name].detach().numpy() for name in names}


@pytest.mark.parametrize("recipe", [PRIVATE, PlainSGD(0.2, 2, 4)])
def test_stacked_training_is_the_definition(recipe: Recipe) -> None:
    # the sizes 9 and 8 give the plain recipe 3 and 2 batches an epoch, so the stack has a teacher that ends early
    what = group(recipe)
    together = train(what)
    for row in range(2):
        with limit_threads(torch.device("cpu")):
            expected_of = one_at_a_time(what, row)
        for name, expected in expected_of.items():
            np.testing.assert_allclose(together[name][row], expected, rtol=0, atol=2e-3 if recipe is PRIVATE else 1e-5)


def test_adams_steps_are_torchs_with_a_rate_that_falls_to_zero() -> None:
    recipe = replace(ADAM, augmentation=None)
    what = group(recipe)  # 18 steps of the first teacher, 12 of the second
    together = train(what)
    for row, (teacher, x, y) in enumerate(zip(what.teachers, what.x, what.y, strict=True)):
        model = BUILD()
        model.load_state_dict(initial_parameters(BUILD, int(what.source.words(1, teacher, INITIAL, 0)[0]) >> 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
        steps = recipe.step_count(len(y))
        falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
        with limit_threads(torch.device("cpu")):
            for step in range(steps):
                batch = recipe.batch(what.source, teacher, step, len(y))
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(torch.tensor(x[batch])), torch.tensor(y[batch])).backward()
                optimizer.step()
                falling.step()
        for name, expected in model.named_parameters():
            np.testing.assert_allclose(together[name][row], expected.detach().numpy(), rtol=0, atol=1e-5)


def test_every_teacher_sees_images_distorted_by_its_own_draws() -> None:
    # in a stack, beside a teacher with other batches, as alone; and not as without distortion or with another seed's
    what = group(ADAM)
    together = train(what)
    for row in range(2):
        one = replace(what, x=what.x[row : row + 1], y=what.y[row : row + 1], teachers=what.teachers[row : row + 1])
        alone, undistorted = train(one), train(replace(one, recipe=replace(ADAM, augmentation=None)))
        assert max(np.abs(alone[name][0] - together[name][row]).max() for name in alone) < 1e-4
        assert max(np.abs(alone[name] - undistorted[name]).max() for name in alone) > 1e-2


def test_empty_batches_move_by_noise_alone() -> None:
    recipe = PrivateSGD(learning_rate=0.1, steps=3, sampling_rate=1e-9, noise=2.0, clip=0.5)
    trained = train(group(recipe, sizes=(8,)))
    size = sum(value[0].size for value in trained.values())
    source = RandomSource(0)
    start = initial_parameters(BUILD, int(source.words(1, 3, INITIAL, 0)[0]) >> 1)
    noise = sum(gaussians(source.words(size + size % 2, 3, NOISE, step))[:size] for step in range(3))
    moved = np.concatenate([(trained[name][0] - start[name].numpy()).ravel() for name in trained])
    expected = -0.1 * 2.0 * 0.5 * noise / (1e-9 * 8)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("recipe", [PRIVATE, PlainSGD(0.2, 6, 4), ADAM])
def test_a_killed_training_ends_where_it_would_have_ended(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.safetensors"
    whole = train(group(recipe))
    advance = training._Run.advance

    def killed(run: Any) -> None:
        if run.step == 8:
            raise KeyboardInterrupt
        advance(run)

    monkeypatch.setattr(training._Run, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        train(group(recipe), checkpoint=path, checkpoint_every=3)
    steps: list[int] = []

    def recorded(run: Any) -> None:
        steps.append(run.step)
        advance(run)

    monkeypatch.setattr(training._Run, "advance", recorded)
    resumed = train(group(recipe), checkpoint=path, checkpoint_every=3)
    assert steps[0] == 6
    assert all((whole[name] == resumed[name]).all() for name in whole)
    assert train(group(recipe), checkpoint=path).keys() == whole.keys()  # finished: nothing left to do
    assert steps[-1] < len(steps) + 6


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "other",
    [
        group(seed=1),
        group(PrivateSGD(0.5, 10, 0.15, 0.6, 0.3)),
        group(sizes=(8, 9)),
        replace(group(), network="other"),
        replace(group(), x=tuple(x.reshape(-1, 1, 4, 16) for x in group().x)),  # the same bytes
    ],
)
def test_a_checkpoint_of_another_training_is_refused(other: Group, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    train(group(), checkpoint=path)
    with pytest.raises(CheckpointError, match="belongs to a training with other data, seed, network or recipe"):
        training._Run(other, BUILD(), torch.device("cpu")).resume(path)


KILLED_OFTEN = """
import functools, os, random, sys, time
import numpy as np
from pathlib import Path
from darrm.training import training
from darrm.training.network import convolutional_network
from darrm.training.recipes import RandomSource
from darrm.training.recipes import PrivateSGD

path, result = Path(sys.argv[1]), Path(sys.argv[2])
rng = np.random.default_rng(0)
x, y = rng.random((2, 9, 1, 8, 8), dtype=np.float32), rng.integers(0, 2, (2, 9))
build, recipe = functools.partial(convolutional_network, side=8), PrivateSGD(0.5, 200, 0.15, 0.5, 0.3)
group = training.Group(tuple(x), tuple(y), (3, 4), build, recipe, RandomSource(0))

def child(checkpoint, output):
    number = os.fork()
    if not number:
        options = {"device": "cpu", "progress": False, "checkpoint_every": 1}
        trained = training.train_group(group, checkpoint=checkpoint, **options)
        np.savez(output, **trained)
        os._exit(0)
    return number

assert os.waitstatus_to_exitcode(os.waitpid(child(None, result.with_name("whole.npz")), 0)[1]) == 0
kills = 0
while kills < 35:
    number = child(path, result)
    if path.exists():
        before = path.read_bytes()
        while path.exists() and path.read_bytes() == before and os.waitpid(number, os.WNOHANG) == (0, 0):
            time.sleep(0.001)  # until it has moved
    time.sleep(random.random() * 0.02)
    try:
        os.kill(number, 9)
        status = os.waitpid(number, 0)[1]
    except (ProcessLookupError, ChildProcessError):
        break
    if not os.WIFSIGNALED(status):
        break
    kills += 1
assert os.waitstatus_to_exitcode(os.waitpid(child(path, result), 0)[1]) == 0
print(kills)
"""


@pytest.mark.slow
def test_a_training_that_is_killed_over_and_over_ends_the_same(tmp_path: Path) -> None:
    result = tmp_path / "result.npz"
    command = [sys.executable, "-c", KILLED_OFTEN, str(tmp_path / "state.safetensors"), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 20
    whole, resumed = np.load(tmp_path / "whole.npz"), np.load(result)
    assert all((whole[name] == resumed[name]).all() for name in whole)


def test_a_training_without_a_seed_is_never_continued(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="source must be a repeatable one for checkpoints"):
        train(replace(group(), source=RandomSource()), checkpoint=tmp_path / "state.safetensors")
    assert not list(tmp_path.iterdir())


class OneLayer(torch.nn.Module):  # type: ignore[misc]
    """A linear layer and a curve."""

    def __init__(self, curve: Any = torch.tanh, scale: Any = 1.0, buffer: float = 0.0) -> None:
        super().__init__()
        self.layer, self.curve, self.scale = torch.nn.Linear(4, 2), curve, scale
        self.register_buffer("shift", torch.tensor([buffer]))

    def forward(self, x: Any) -> Any:
        return self.curve(self.layer(x)) * self.scale + self.shift


class Twin(OneLayer):
    def forward(self, x: Any) -> Any:
        return self.curve(self.layer(x)) * self.scale - self.shift


def layers(activation: Any, *, dilation: int = 1) -> Any:
    return lambda: torch.nn.Sequential(torch.nn.Conv1d(1, 1, 2, dilation=dilation), activation, torch.nn.Flatten())


def test_what_a_network_computes_is_in_its_digest() -> None:
    networks = [
        OneLayer,
        Twin,
        functools.partial(OneLayer, torch.relu),
        functools.partial(OneLayer, scale=2.0),
        functools.partial(OneLayer, scale=torch.tensor(2.0)),
        functools.partial(OneLayer, scale=np.array([2.0, 1.0])),
        functools.partial(OneLayer, buffer=1.0),
        functools.partial(OneLayer, functools.partial(torch.clamp, min=0.0)),
        functools.partial(OneLayer, functools.partial(torch.clamp, min=1.0)),
        layers(torch.nn.ReLU()),
        layers(torch.nn.Tanh()),
        layers(torch.nn.LeakyReLU(0.1)),
        layers(torch.nn.LeakyReLU(0.2)),
        layers(torch.nn.ReLU(), dilation=2),
        BUILD,
        functools.partial(convolutional_network, side=8, classes=3),
    ]
    digests = [network_digest(build) for build in networks]
    assert len(set(digests)) == len(networks)
    assert digests == [network_digest(build) for build in networks]


@pytest.mark.slow
def test_another_process_computes_the_same_digest() -> None:
    script = "from functools import partial; from darrm.training.network import convolutional_network as c; "
    script += "from darrm.training.network import network_digest as d; print(d(partial(c, side=8)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == network_digest(BUILD)


def test_a_network_without_source_has_no_digest() -> None:
    names: dict[str, Any] = {"torch": torch, "__name__": "typed"}
    exec("class Typed(torch.nn.Module):\n    pass", names)  # noqa: S102 (as at a prompt)
    with pytest.raises(ValueError, match="build must be code with a readable source, got 'Typed'"):
        network_digest(names["Typed"])


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip, cut, insert, repeat or swap bytes, anywhere or in the header."""
    end = len(content) if rng.random() < 0.5 else min(len(content), 8 + int.from_bytes(content[:8], "little"))
    first, last = sorted(rng.integers(0, end, 2).tolist())
    part = content[first : last + 1]
    one = bytes([content[first] ^ (1 << int(rng.integers(8)))])
    return (
        content[:first] + one + content[first + 1 :],
        content[:first] + content[last:],
        content[:last],
        content[: last + 1] + part + content[last + 1 :],
        content[:first] + part[::-1] + content[last + 1 :],
        content[:first] + bytes(len(part)) + content[last + 1 :],
    )[int(rng.integers(6))]


def test_damaged_checkpoints_are_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    what = group(PlainSGD(0.2, 1, 4))
    train(what, checkpoint=path)
    content = path.read_bytes()
    whole, facts = training.load_tensors(path)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(250):
        path.write_bytes(damaged(content, rng))
        try:
            tensors, found = training.load_tensors(path)
        except CheckpointError as error:
            assert "\n" not in str(error)  # noqa: PT017 (one line)
            refused += 1
        else:
            assert found == facts
            assert tensors.keys() == whole.keys()
            assert all(tensors[name].tobytes() == whole[name].tobytes() for name in whole)
    assert refused > 225


def test_files_without_a_digest_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_file({"w": np.zeros(3, dtype=np.float32)}, path, metadata={"darrm": '{"kind": "ensemble"}'})
    with pytest.raises(CheckpointError, match="train again; a file of an older release carries no digest") as caught:
        training.load_tensors(path)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 (as a worker process hands it over)
    assert (str(again), again.path) == (str(caught.value), str(path))


def test_torch_keeps_its_threads_and_its_generator() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # not the one that a training takes
    state = torch.random.get_rng_state()
    train(group())
    assert (torch.random.get_rng_state() == state).all()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_the_same_teachers() -> None:
    here, there = train(group()), train_group(group(), device="cuda", progress=False)
    for name, value in here.items():
        np.testing.assert_allclose(there[name], value, atol=1e-3)
