import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darrm.training.network import convolutional_network, limit_threads

pytest.importorskip("torch")
import torch

from darrm.errors import CheckpointError
from darrm.training import training
from darrm.training.network import initial_parameters, stack
from darrm.training.recipes import PlainSGD, PrivateSGD
from darrm.training.teachers import Partition, TeacherEnsemble, train_teachers
from darrm.training.training import add_noise, mean_gradients, per_example_gradients, sum_clipped

nn = torch.nn


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e3, 1e15, 1e30])
@pytest.mark.parametrize("others", [0, 1, 300])
def test_one_example_moves_the_sum_by_at_most_the_threshold(size: float, others: int) -> None:
    generator = torch.Generator().manual_seed(1)
    gradients = {"w": torch.randn(1, others + 1, 40, 5, generator=generator), "b": torch.randn(1, others + 1, 7)}
    gradients = {name: torch.cat([size * value[:, :1], value[:, 1:]], dim=1) for name, value in gradients.items()}
    present = torch.ones(1, others + 1)
    absent = present.clone()
    absent[0, 0] = 0.0
    with_it, without = sum_clipped(gradients, present, 0.7), sum_clipped(gradients, absent, 0.7)
    moved = sum(float((with_it[name].double() - without[name].double()).square().sum()) for name in gradients) ** 0.5
    assert moved <= 0.7
    assert not 1.0 <= size <= 1e15 or moved >= 0.699  # squares overflow beyond: dropped, which is as safe


def test_one_of_many_examples_that_point_one_way_moves_the_sum_by_no_more() -> None:
    # a sum in single precision moves by 1.001: its rounding moves, too
    generator = torch.Generator().manual_seed(0)
    gradients = {"w": 10.0 * torch.randn(1, 1, 50, generator=generator) * (1.0 + torch.rand(1, 60_000, 1))}
    mask = torch.ones(1, 60_000)
    everybody, moved = sum_clipped(gradients, mask, 1.0)["w"], []
    for one in (0, 30_001):
        others = mask.clone()
        others[0, one] = 0.0
        moved.append(float((everybody - sum_clipped(gradients, others, 1.0)["w"]).double().norm()))
    assert 0.999 < max(moved) <= 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [1e-100, 1e-30, 1e-23, 1e-8, 1.0, 1e30, 1e100])
def test_no_precision_and_no_threshold_lets_an_example_count_for_more(dtype: Any, clip: float) -> None:
    generator = torch.Generator().manual_seed(2)
    for size in (1e-160, 1e-44, 1e-23, 1e-6, 1.0, 1e4, 1e38):
        gradient = (size * torch.randn(1, 1, 4096, generator=generator, dtype=torch.float64)).to(dtype)
        (moved,) = sum_clipped({"w": gradient}, torch.ones(1, 1), clip).values()
        exact = [float(entry) for entry in gradient.double().flatten()]
        expected = math.hypot(*exact)  # scaled by the largest: nothing overflows or vanishes
        if math.isfinite(expected):
            assert math.hypot(*moved.flatten().tolist()) == pytest.approx(min(clip, expected), rel=2e-4)
        assert math.hypot(*moved.flatten().tolist()) <= clip


@pytest.mark.parametrize("clip", [1e-101, 1e-300, 1e101])
def test_a_threshold_whose_square_is_no_number_is_refused(clip: float) -> None:
    with pytest.raises(ValueError, match=r"clip must be in \[1e-100, 1e\+100\]"):
        PrivateSGD(0.1, 1, 0.5, 1.0, clip)


@pytest.mark.parametrize("second", [[0.0] * 3, [float("nan"), 1.0, 1.0], [float("inf"), 1.0, 1.0]])
def test_a_gradient_of_zero_or_that_is_not_finite_contributes_nothing(second: list[float]) -> None:
    gradients = {"w": torch.tensor([[[1.0, 1.0, 1.0], second]])}
    assert sum_clipped(gradients, torch.ones(1, 2), 10.0)["w"].tolist() == [[1.0, 1.0, 1.0]]


def test_noise_is_scaled_and_used_once_in_order() -> None:
    sums = {"w": torch.ones(2, 2, 3), "b": torch.zeros(2, 2)}
    noise = torch.as_tensor(np.arange(16.0).reshape(2, 8))
    noisy = add_noise(sums, noise, 10.0)
    assert noisy["w"][1].flatten().tolist() == [81.0, 91.0, 101.0, 111.0, 121.0, 131.0]
    assert noisy["b"].tolist() == [[60.0, 70.0], [140.0, 150.0]]


class Reads(nn.Module):  # type: ignore[name-defined,misc]
    """A recurrent layer and a linear one."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.reads, self.out = layer(1, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.out(self.reads(x.unsqueeze(-1))[0][:, -1])


class Mean(nn.Module):  # type: ignore[name-defined,misc]
    """Subtracts the mean of all that it has seen."""

    mean: Any

    def __init__(self, *, in_place: bool = False) -> None:
        super().__init__()
        self.in_place, self.out = in_place, nn.Linear(6, 2)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Any) -> Any:
        if self.in_place:
            self.mean += x.detach().mean(0)
        else:
            self.mean = self.mean + x.detach().mean(0)
        return self.out(x - self.mean)


class Drops(nn.Linear):  # type: ignore[name-defined,misc]
    """Dropout by a function."""

    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


def chain(*layers: Any) -> Any:
    return lambda: nn.Sequential(nn.Linear(6, 6), *(layer() for layer in layers), nn.Linear(6, 2))


def running_statistics() -> Any:
    return nn.Sequential(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten())


X, Y = np.random.default_rng(0).random((20, 6), dtype=np.float32), np.arange(20) % 2
PRIVATE, PLAIN = PrivateSGD(0.1, 3, 0.5, 1.0), PlainSGD(0.1, 1, 5)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about old spectral norms
@pytest.mark.parametrize("recipe", [PRIVATE, PLAIN])
@pytest.mark.parametrize(
    ("build", "line"),
    [
        (chain(partial(nn.BatchNorm1d, 6)), "got 1: BatchNorm1d: use nn.GroupNorm"),
        (chain(partial(nn.Dropout, 0.5)), "free of dropout, got 1: Dropout"),
        (chain(nn.RReLU), "got 1: RReLU: use nn.LeakyReLU"),
        (chain(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))), "_SpectralNorm: use .*weight_norm"),
        (chain(lambda: nn.utils.spectral_norm(nn.Linear(6, 6))), "got 1: Linear: use .*weight_norm"),
        (chain(running_statistics), "got 1.1: InstanceNorm1d: use nn.GroupNorm"),
        (chain(partial(Drops, 6, 6)), "got 1: Drops: write it without what torch.func refuses .*random"),
        (Mean, "got the buffer mean: .*no running statistics"),
        (partial(Mean, in_place=True), "got Mean: write it without what torch.func refuses .*in-place"),
        (lambda: nn.LazyLinear(2), "got the lazy weight: say their sizes"),
        (lambda: nn.Linear(6, 2).half(), "got weight in float16: call .float"),
        (lambda: nn.Sequential(nn.Linear(6, 2).bfloat16()), "got 0.weight in bfloat16"),
        (lambda: nn.Linear(6, 2).requires_grad_(False), "a module with parameters to train"),
        (nn.ReLU, "a module with parameters to train"),
        (nn.Linear(6, 2), "a function that makes a network, got a Linear"),
        (lambda: 5, "a function that makes a torch.nn.Module, got one that makes int"),
        (nn.Linear, "build failed .*missing 2 required positional arguments"),
        (lambda: nn.Linear(-6, 2), "build failed .*negative dimension"),
        (lambda: nn.Linear(6, 129), "for 128 classes at most, got 129"),
    ],
)
def test_networks_that_cannot_be_trained_so_are_refused_by_the_layer(build: Any, line: str, recipe: Any) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        train_teachers(X, Y, Partition.random(20, 2, seed=0), recipe, build=build, progress=False)
    assert "\n" not in str(caught.value)  # one line


@pytest.mark.parametrize("layer", [nn.GRU, nn.RNN])
def test_recurrent_layers_are_trained_without_privacy_only(layer: Any) -> None:
    partition, build = Partition.random(20, 2, seed=0), partial(Reads, layer)
    with pytest.raises(ValueError, match=f"got reads: {layer.__name__}: use nn.LSTM"):
        train_teachers(X, Y, partition, PRIVATE, build=build, progress=False)
    assert train_teachers(X, Y, partition, PLAIN, build=build, progress=False).K == 2


def frozen_body() -> Any:
    out, body = nn.Linear(6, 2), nn.Linear(6, 6, bias=False)
    body.weight = nn.Parameter(7.0 * torch.eye(6), requires_grad=False)
    return nn.Sequential(body, out)


@pytest.mark.filterwarnings("ignore::darrm.training.teachers.PredictableNoiseWarning")
@pytest.mark.parametrize("recipe", [PRIVATE, PLAIN, replace(PLAIN, adam=True)])
def test_frozen_parameters_stay_as_they_are_built(recipe: Any, tmp_path: Path) -> None:
    partition = Partition.random(20, 2, seed=0)
    ensemble = train_teachers(X, Y, partition, recipe, build=frozen_body, seed=1, progress=False)
    assert (ensemble.parameters["0.weight"] == 7.0 * np.eye(6)).all()
    # the same draws train a layer alone on inputs that were multiplied before: no norm and no noise for the frozen one
    alone = train_teachers(7.0 * X, Y, partition, recipe, build=partial(nn.Linear, 6, 2), seed=1, progress=False)
    np.testing.assert_allclose(ensemble.parameters["1.weight"], alone.parameters["weight"], atol=1e-5)
    ensemble.save(tmp_path / "frozen.safetensors")
    loaded = TeacherEnsemble.load(tmp_path / "frozen.safetensors", frozen_body)
    assert (loaded.parameters["0.weight"] == 7.0 * np.eye(6)).all()
    with pytest.raises(CheckpointError, match="another network"):
        TeacherEnsemble.load(tmp_path / "frozen.safetensors", lambda: frozen_body().requires_grad_(True))


def test_frozen_parameters_are_in_no_gradient() -> None:
    model = frozen_body()
    parameters = stack([initial_parameters(frozen_body, 0)])
    gradients = per_example_gradients(model)(parameters, torch.as_tensor(X)[None], torch.as_tensor(Y)[None])
    assert gradients.keys() == {"1.weight", "1.bias"}
    means = mean_gradients(model)(parameters, torch.as_tensor(X)[None], torch.as_tensor(Y)[None], torch.ones(1, 20))
    assert means.keys() == {"1.weight", "1.bias"}


@pytest.mark.parametrize("recipe", [PRIVATE, PLAIN])
def test_a_full_memory_is_one_line_that_says_what_to_do(recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = train_teachers(X, Y, Partition.random(20, 2, seed=0), recipe, build=frozen_body, progress=False)

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("tried to allocate\n9 GiB")

    monkeypatch.setattr(training._Run, "advance", full)
    with pytest.raises(MemoryError, match=r"the memory of cpu is full \(tried to allocate 9 GiB\): .*stack_size="):
        train_teachers(X, Y, Partition.random(20, 2, seed=0), recipe, build=frozen_body, progress=False, device="cpu")
    monkeypatch.setattr(nn.Linear, "forward", full)
    with pytest.raises(MemoryError, match="a smaller batch="):
        ensemble.votes(X)


@pytest.mark.filterwarnings("ignore")  # Opacus uses hooks that torch warns about
def test_gradients_agree_with_opacus() -> None:
    grad_sample = pytest.importorskip("opacus.grad_sample")
    build = partial(convolutional_network, side=8)
    with limit_threads(torch.device("cpu")), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parameters = stack([initial_parameters(build, seed) for seed in (1, 2, 3)])
        x, y = torch.rand(3, 5, 1, 8, 8), torch.randint(0, 2, (3, 5))
        together = per_example_gradients(build())(parameters, x, y)
        for teacher in range(3):
            model = build()
            model.load_state_dict({name: value[teacher] for name, value in parameters.items()})
            wrapped = grad_sample.GradSampleModule(model, loss_reduction="sum")
            nn.functional.cross_entropy(wrapped(x[teacher]), y[teacher], reduction="sum").backward()
            for name, parameter in wrapped._module.named_parameters():
                assert torch.allclose(together[name][teacher], parameter.grad_sample, rtol=0, atol=1e-6)
