from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from darrm.ensemble.network import convolutional_network, initial_parameters, stack, threads_for  # noqa: E402 (as above)
from darrm.ensemble.training import (  # noqa: E402 (after the check for torch)
    add_noise,
    check_model,
    clipped_sums,
    mean_gradients,
    per_example_gradients,
)

nn = torch.nn


def loop_gradients(build: Any, parameters: dict[str, Any], x: Any, y: Any) -> list[list[dict[str, Any]]]:
    """The obvious way: one backward pass for each teacher and example."""
    found = []
    for teacher in range(x.shape[0]):
        model = build().to(x.dtype)
        model.load_state_dict({name: value[teacher] for name, value in parameters.items()})
        rows = []
        for example in range(x.shape[1]):
            model.zero_grad()
            nn.functional.cross_entropy(model(x[teacher, example][None]), y[teacher, example][None]).backward()
            rows.append({name: value.grad.clone() for name, value in model.named_parameters()})
        found.append(rows)
    return found


Small = tuple[Any, dict[str, Any], Any, Any, list[list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def small() -> Iterator[Small]:
    """A network, three teachers' parameters, five examples of each, and the gradients by the obvious way."""

    def build() -> Any:
        return convolutional_network(side=8)

    with threads_for(torch.device("cpu")), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parameters = stack([initial_parameters(build, seed) for seed in (1, 2, 3)])
        x, y = torch.rand(3, 5, 1, 8, 8), torch.randint(0, 2, (3, 5))
        yield build, parameters, x, y, loop_gradients(build, parameters, x, y)


@pytest.mark.slow
def test_gradients_of_each_example_agree_with_a_loop(small: Small) -> None:
    build, parameters, x, y, loop = small
    together = per_example_gradients(build())(parameters, x, y)
    for teacher, rows in enumerate(loop):
        for example, row in enumerate(rows):
            for name, gradient in row.items():
                assert torch.allclose(together[name][teacher, example], gradient, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # Opacus uses hooks that torch warns about
def test_gradients_agree_with_opacus(small: Small) -> None:
    grad_sample = pytest.importorskip("opacus.grad_sample")
    build, parameters, x, y, _ = small
    together = per_example_gradients(build())(parameters, x, y)
    for teacher in range(3):
        model = build()
        model.load_state_dict({name: value[teacher] for name, value in parameters.items()})
        wrapped = grad_sample.GradSampleModule(model, loss_reduction="sum")
        nn.functional.cross_entropy(wrapped(x[teacher]), y[teacher], reduction="sum").backward()
        for name, parameter in wrapped._module.named_parameters():
            assert torch.allclose(together[name][teacher], parameter.grad_sample, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_clipped_sums_agree_with_a_loop(small: Small) -> None:
    build, parameters, x, y, loop = small
    mask = torch.tensor([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).float()
    lengths = torch.tensor([[torch.cat([g.flatten() for g in row.values()]).norm() for row in rows] for rows in loop])
    clip = float(lengths.median()) * 1.001  # some are clipped and some are not
    assert 0 < int((lengths > clip).sum()) < 15
    factors = mask * (clip / lengths).clamp_max(1.0)
    sums = clipped_sums(per_example_gradients(build())(parameters, x, y), mask, clip)
    for teacher, rows in enumerate(loop):
        for name, value in sums.items():
            expected = sum(factor * row[name] for factor, row in zip(factors[teacher], rows, strict=True))
            assert torch.allclose(value[teacher], expected.double(), rtol=2e-4, atol=1e-6)


def test_mean_gradients_agree_with_the_mean_loss(small: Small) -> None:
    build, parameters, x, y, loop = small
    mask = torch.tensor([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).float()
    together = mean_gradients(build())(parameters, x, y, mask)
    for teacher, rows in enumerate(loop):
        chosen = [row for row, used in zip(rows, mask[teacher], strict=True) if used]
        for name in parameters:
            expected = torch.stack([row[name] for row in chosen]).mean(dim=0)
            assert torch.allclose(together[name][teacher], expected, atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e3, 1e15, 1e30])
@pytest.mark.parametrize("others", [0, 1, 300])
def test_one_example_moves_the_sum_by_at_most_the_threshold(size: float, others: int) -> None:
    generator = torch.Generator().manual_seed(1)
    gradients = {"w": torch.randn(1, others + 1, 40, 5, generator=generator), "b": torch.randn(1, others + 1, 7)}
    gradients = {name: torch.cat([size * value[:, :1], value[:, 1:]], dim=1) for name, value in gradients.items()}
    present = torch.ones(1, others + 1)
    absent = present.clone()
    absent[0, 0] = 0.0
    with_it, without = clipped_sums(gradients, present, 0.7), clipped_sums(gradients, absent, 0.7)
    moved = sum(float((with_it[name].double() - without[name].double()).square().sum()) for name in gradients) ** 0.5
    assert moved <= 0.7
    assert not 1.0 <= size <= 1e15 or moved >= 0.699  # squares overflow beyond: dropped, which is as safe


def test_one_of_many_examples_that_point_one_way_moves_the_sum_by_no_more() -> None:
    # a sum in single precision moves by 1.001: its rounding moves, too
    generator = torch.Generator().manual_seed(0)
    gradients = {"w": 10.0 * torch.randn(1, 1, 50, generator=generator) * (1.0 + torch.rand(1, 60_000, 1))}
    mask = torch.ones(1, 60_000)
    everybody, moved = clipped_sums(gradients, mask, 1.0)["w"], []
    for one in range(0, 60_000, 12_001):
        others = mask.clone()
        others[0, one] = 0.0
        moved.append(float((everybody - clipped_sums(gradients, others, 1.0)["w"]).double().norm()))
    assert 0.999 < max(moved) <= 1.0


@pytest.mark.parametrize("second", [[0.0] * 3, [float("nan"), 1.0, 1.0], [float("inf"), 1.0, 1.0], [1e38, 1.0, 1.0]])
def test_a_gradient_of_zero_or_that_is_not_finite_contributes_nothing(second: list[float]) -> None:
    gradients = {"w": torch.tensor([[[1.0, 1.0, 1.0], second]])}
    assert clipped_sums(gradients, torch.ones(1, 2), 10.0)["w"].tolist() == [[1.0, 1.0, 1.0]]


def test_noise_is_scaled_and_used_once_in_order() -> None:
    sums = {"w": torch.ones(2, 2, 3), "b": torch.zeros(2, 2)}
    noise = torch.as_tensor(np.arange(16.0).reshape(2, 8))
    noisy = add_noise(sums, noise, 10.0)
    assert noisy["w"][1].flatten().tolist() == [81.0, 91.0, 101.0, 111.0, 121.0, 131.0]
    assert noisy["b"].tolist() == [[60.0, 70.0], [140.0, 150.0]]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "use nn.GroupNorm"),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), "free of dropout"),
        (nn.ReLU(), "parameters to train"),
        ("a model", "torch.nn.Module"),
    ],
)
def test_models_that_mix_examples_are_refused(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_model(model)
