import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from darrm.ensemble.student import StudentRecipe, train_student, virtual_adversarial_loss  # noqa: E402 (after the check for torch)

nn = torch.nn


def test_the_adversarial_direction_of_a_linear_model_is_known() -> None:
    # two classes with logits (0, w·x + b): the answer changes most along ±w, so the loss is one of two numbers
    model = nn.Linear(3, 2)
    weight, bias, radius = np.array([1.0, -2.0, 0.5]), 0.3, 0.7
    with torch.no_grad():
        model.weight.copy_(torch.tensor(np.array([np.zeros(3), weight])))
        model.bias.copy_(torch.tensor([0.0, bias]))
    x = np.array([[0.2, 0.1, -0.4]])

    def divergence(sign: float) -> float:
        before = 1.0 / (1.0 + math.exp(-(float(x[0] @ weight) + bias)))
        after = 1.0 / (1.0 + math.exp(-(float(x[0] @ weight) + bias + sign * radius * float(np.linalg.norm(weight)))))
        return before * math.log(before / after) + (1 - before) * math.log((1 - before) / (1 - after))

    start = torch.tensor([[1.0, 0.3, 0.2]])
    loss = float(virtual_adversarial_loss(model, torch.tensor(x).float(), start, radius).detach())
    assert min(abs(loss - divergence(sign)) for sign in (1.0, -1.0)) < 1e-3 * loss
    assert loss > 0.1


def build() -> Any:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


def two_arcs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    angle = math.pi * rng.random(n)
    arc = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    arc = np.where(y[:, None] == 1, np.array([1.0, 0.4]) - arc, arc)
    return (arc + 0.05 * rng.standard_normal((n, 2))).astype(np.float32), y


def test_unlabeled_inputs_help() -> None:
    x, y = two_arcs(400, seed=0)
    test_x, test_y = two_arcs(500, seed=1)
    known = np.concatenate([np.flatnonzero(y == 0)[:4], np.flatnonzero(y == 1)[:4]])
    recipe = StudentRecipe(steps=600, learning_rate=1e-2, batch=64, radius=0.3, weight=2.0)
    alone = StudentRecipe(steps=600, learning_rate=1e-2, batch=64, radius=0.3, weight=0.0)
    scores = [
        (train_student(x[known], y[known], x, recipe=one, build=build, seed=1).predict(test_x) == test_y).mean()
        for one in (recipe, alone)
    ]
    assert scores[0] > 0.9
    assert scores[0] > scores[1] + 0.02


def test_abstentions_count_as_unlabeled_and_a_seed_repeats() -> None:
    x, y = two_arcs(40, seed=0)
    labels = np.where(np.arange(40) < 8, y, -1)
    recipe = StudentRecipe(steps=5)
    one, again = (train_student(x, labels, x[:0], recipe=recipe, build=build, seed=5).predict(x) for _ in range(2))
    assert set(one.tolist()) <= {0, 1}
    assert (one == again).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full(4, -1), "at least one label"),
        (np.zeros(3, dtype=int), "4 integers, one for each input"),
        (np.zeros(4), "4 integers"),
        (np.array([0, 1, 2, -1]), "y must be a class of the network, 0 … 1, got 2"),
    ],
)
def test_bad_labels_are_refused(labels: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_student(np.zeros((4, 2)), labels, np.zeros((0, 2)), build=build)


def test_inputs_of_another_width_are_refused() -> None:
    y = np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="x must be inputs that the network takes"):
        train_student(np.zeros((4, 3)), y, np.zeros((0, 3)), build=build)
    with pytest.raises(ValueError, match=r"unlabeled must be inputs of the shape of x, \(2,\), got .*\(4,\)"):
        train_student(np.zeros((4, 2)), y, np.zeros((3, 4)), build=build)  # as many numbers as six inputs
    student = train_student(np.zeros((4, 2)), y, np.zeros((0, 2)), recipe=StudentRecipe(steps=1), build=build)
    with pytest.raises(ValueError, match="x must be inputs that the network takes"):
        student.predict(np.zeros((4, 3)))
