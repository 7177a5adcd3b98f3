"""Students: their losses agree with formulas, and a killed training resumes to the same end."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from darrm.errors import CheckpointError
from darrm.training import student
from darrm.training.student import (
    Perturbation,
    StudentRecipe,
    _Training,
    consistency_loss,
    label_loss,
    moving_average,
    train_student,
    virtual_adversarial_loss,
)

nn = torch.nn


def build() -> Any:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


def make_arcs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make points on two intertwined arcs, and the number of their arc."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    angle = math.pi * rng.random(n)
    arc = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    arc = np.where(y[:, None] == 1, np.array([1.0, 0.4]) - arc, arc)
    return (arc + 0.05 * rng.standard_normal((n, 2))).astype(np.float32), y


X, Y = make_arcs(40)
NONE = X[:0]


def train(recipe: StudentRecipe, labels: np.ndarray = Y, checkpoint: Path | None = None) -> student.Student:
    return train_student(X, labels, NONE, recipe=recipe, build=build, seed=5, device="cpu", checkpoint=checkpoint)


def start_training(model: Any, average: Any, x: Any, recipe: StudentRecipe) -> _Training:
    return _Training(model, average, x, recipe, torch.Generator().manual_seed(0))


def test_the_adversarial_direction_of_a_linear_model_is_along_its_weights() -> None:
    # of logits (0, w·x + b) the answer changes most along ±w, so the loss is one of two numbers
    model = nn.Linear(3, 2)
    weight, bias, radius = np.array([1.0, -2.0, 0.5]), 0.3, 0.7
    with torch.no_grad():
        model.weight.copy_(torch.tensor(np.array([np.zeros(3), weight])))
        model.bias.copy_(torch.tensor([0.0, bias]))
    x = np.array([[0.2, 0.1, -0.4]])

    def compute_divergence(sign: float) -> float:
        before = 1.0 / (1.0 + math.exp(-(float(x[0] @ weight) + bias)))
        after = 1.0 / (1.0 + math.exp(-(float(x[0] @ weight) + bias + sign * radius * float(np.linalg.norm(weight)))))
        return before * math.log(before / after) + (1 - before) * math.log((1 - before) / (1 - after))

    start = torch.tensor([[1.0, 0.3, 0.2]])
    loss = float(virtual_adversarial_loss(model, torch.tensor(x).float(), start, radius).detach())
    assert min(abs(loss - compute_divergence(sign)) for sign in (1.0, -1.0)) < 1e-3 * loss
    assert loss > 0.1


def test_the_loss_on_labels_is_the_generalized_cross_entropy() -> None:
    logits, classes = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]]), torch.tensor([1, 1])
    first, second = 0.75, 0.2  # probabilities of the labels
    for q in (0.3, 1.0):
        expected = ((1 - first**q) / q + (1 - second**q) / q) / 2
        assert float(label_loss(logits, classes, q)) == pytest.approx(expected, rel=1e-5)
    assert float(label_loss(logits, classes, 0.0)) == pytest.approx(-math.log(first * second) / 2, rel=1e-5)


def test_only_confident_inputs_count_for_consistency_and_teach_the_changed_copy() -> None:
    original = torch.tensor([[math.log(19.5), 0.0], [math.log(18.5), 0.0], [0.0, 4.0]], requires_grad=True)
    changed = torch.tensor([[0.0, math.log(3.0)], [0.0, 9.0], [0.0, math.log(4.0)]], requires_grad=True)
    loss = consistency_loss(original, changed, 0.95)  # confidences 19.5/20.5 and 0.98 count, 18.5/19.5 does not
    assert float(loss.detach()) == pytest.approx((-math.log(0.25) - math.log(0.8)) / 3, rel=1e-5)
    (gradient,) = torch.autograd.grad(loss, changed)
    assert gradient[1].abs().max() == 0.0


@pytest.mark.parametrize(
    ("share_done", "expected"), [(0.0, math.log(2.0)), (0.05, 2 * math.log(2.0)), (0.5, 0.5 + 2 * math.log(2.0))]
)
def test_the_average_teaches_and_labels_are_trusted_at_first(share_done: float, expected: float) -> None:
    model, average = nn.Linear(2, 2), nn.Linear(2, 2)
    for network, bias in ((model, 0.0), (average, 9.0)):  # the average is confident, the model is not
        with torch.no_grad():
            network.weight.zero_()
            network.bias.copy_(torch.tensor([0.0, bias]))
    x, classes = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    training = start_training(model, average, x, StudentRecipe(weight=0.0, consistency=2.0, robustness=1.0))
    assert float(training.loss(x, classes, share_done).detach()) == pytest.approx(expected, rel=1e-5)


def test_alignment_reduces_frequent_classes_within_its_limit() -> None:
    logits = torch.tensor([[math.log(8.0), 0.0, 0.0]] * 2 + [[0.0, 0.0, math.log(0.5)]])  # 0.8, 0.8, 0.4 for class 0
    marginal = np.array([0.8 + 0.8 + 0.4, 0.1 + 0.1 + 0.4, 0.1 + 0.1 + 0.2]) / 3
    recipe = StudentRecipe(weight=0.0, consistency=1.0, alignment=math.log(1.7))
    training = start_training(nn.Linear(3, 3), nn.Linear(3, 3), logits, recipe)
    factors = (training.align(logits) - logits).exp().numpy()
    expected = np.clip(1.0 / (3.0 * marginal), 1 / 1.7, 1.7)  # the first and the last at the limits
    assert factors == pytest.approx(np.tile(expected, (3, 1)), rel=1e-5)
    training.align(torch.zeros(1, 3))
    assert training.marginal[0].numpy() == pytest.approx(0.99 * marginal + 0.01 / 3.0, rel=1e-5)
    assert training.loss(logits, torch.tensor([0, 0, 1]), 0.5).isfinite()


def test_the_moving_average_follows_its_recursion_from_the_first_update() -> None:
    model = nn.Linear(2, 2)
    average = moving_average(model, 0.9)
    for value, expected in ((3.0, 3.0), (5.0, 3.2), (-1.0, 2.78)):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update_parameters(model)
        assert average.module.weight.detach().numpy() == pytest.approx(np.full((2, 2), expected), rel=1e-5)


def test_the_student_is_the_moving_average() -> None:
    settings: dict[str, Any] = {"steps": 2, "learning_rate": 0.1, "weight": 0.0}
    students = (train(StudentRecipe(**settings, averaging=averaging)) for averaging in (0.999, 0.0))
    averaged, last = (next(each.model.parameters()).detach().numpy() for each in students)
    assert np.abs(averaged - last).max() > 0.05  # the average stays near the first step


def test_scores_are_the_probabilities_of_the_predictions() -> None:
    trained = train(StudentRecipe(steps=30, learning_rate=1e-2))
    scores = trained.scores(X, batch=7)
    with torch.no_grad():
        expected = trained.model(torch.tensor(X)).double().softmax(dim=1).numpy()
    assert scores == pytest.approx(expected, abs=1e-6)
    assert np.abs(scores.sum(axis=1) - 1.0).max() < 1e-12
    assert (scores.argmax(axis=1) == trained.predict(X)).all()
    with pytest.raises(ValueError, match="x must be inputs that the network takes"):
        trained.predict(np.zeros((4, 3)))


def test_abstentions_count_as_unlabeled_inputs() -> None:
    labels = np.where(np.arange(40) < 8, Y, -1)
    recipe = StudentRecipe(steps=5, consistency=1.0, threshold=0.0, change=Perturbation(noise=0.1), averaging=0.5)
    scores = train(recipe, labels).scores(X)
    assert (train(recipe, labels).scores(X) == scores).all()  # by the seed
    split = train_student(X[:8], Y[:8], X[8:], recipe=recipe, build=build, seed=5, device="cpu")
    assert (split.scores(X) == scores).all()


@pytest.mark.slow
def test_unlabeled_inputs_improve_the_student() -> None:
    x, y = make_arcs(400)
    test_x, test_y = make_arcs(500, seed=1)
    known = np.concatenate([np.flatnonzero(y == 0)[:4], np.flatnonzero(y == 1)[:4]])
    accuracy = {}
    for weight in (2.0, 0.0):
        recipe = StudentRecipe(steps=600, learning_rate=1e-2, batch=64, radius=0.3, weight=weight)
        trained = train_student(x[known], y[known], x, recipe=recipe, build=build, seed=1)
        accuracy[weight] = (trained.predict(test_x) == test_y).mean()
    assert accuracy[2.0] > max(0.9, accuracy[0.0] + 0.02)


ZEROS, CLASSES = np.zeros((4, 2)), np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("x", "labels", "unlabeled", "message"),
    [
        (ZEROS, np.full(4, -1), NONE, "at least one label"),
        (ZEROS, np.zeros(3, dtype=int), NONE, "4 integers, one for each input"),
        (ZEROS, np.zeros(4), NONE, "4 integers"),
        (ZEROS, np.array([0, 1, 2, -1]), NONE, "y must be a class of the network, 0 … 1, got 2"),
        (np.zeros((4, 3)), CLASSES, np.zeros((0, 3)), "x must be inputs that the network takes"),
        # as many numbers as six inputs
        (ZEROS, CLASSES, np.zeros((3, 4)), r"unlabeled must be inputs of the shape of x, \(2,\), got .*\(4,\)"),
    ],
)
def test_train_student_refuses_wrong_data(x: Any, labels: Any, unlabeled: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_student(x, labels, unlabeled, build=build)


def test_a_killed_training_resumes_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, path, loss = np.where(np.arange(40) < 8, Y, -1), tmp_path / "state", _Training.loss
    recipe = StudentRecipe(
        steps=20, batch=4, consistency=1.0, threshold=0.1, alignment=1.0, averaging=0.9, change=Perturbation(noise=0.1)
    )
    whole, shares = train(recipe, labels).scores(X), list[float]()

    def compute_loss_or_die(self: _Training, x: Any, classes: Any, share_done: float) -> Any:
        shares.append(share_done)
        if len(shares) == 13:
            raise KeyboardInterrupt
        return loss(self, x, classes, share_done)

    monkeypatch.setattr(student, "_CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(_Training, "loss", compute_loss_or_die)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, labels, path)
    assert (train(recipe, labels, path).scores(X) == whole).all()
    assert shares[13:] == [step / 20 for step in range(10, 20)]
    labels[0] = 1 - labels[0]
    with pytest.raises(CheckpointError, match="other labels, inputs, seed or recipe"):
        train(recipe, labels, path)
