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


@pytest.mark.slow
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


def test_the_loss_on_labels_is_the_generalized_cross_entropy() -> None:
    logits, classes = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]]), torch.tensor([1, 1])
    right, wrong = 0.75, 0.2  # probabilities of the labels
    for q in (0.3, 1.0):
        expected = ((1 - right**q) / q + (1 - wrong**q) / q) / 2
        assert float(label_loss(logits, classes, q)) == pytest.approx(expected, rel=1e-5)
    assert float(label_loss(logits, classes, 0.0)) == pytest.approx(-math.log(right * wrong) / 2, rel=1e-5)


def test_only_sure_inputs_count_for_consistency_and_teach_the_changed_copy() -> None:
    before = torch.tensor([[math.log(19.5), 0.0], [math.log(18.5), 0.0], [0.0, 4.0]], requires_grad=True)
    after = torch.tensor([[0.0, math.log(3.0)], [0.0, 9.0], [0.0, math.log(4.0)]], requires_grad=True)
    loss = consistency_loss(before, after, 0.95)  # sure of the first, 19.5/20.5, and the third, not of 18.5/19.5
    assert float(loss.detach()) == pytest.approx((-math.log(0.25) - math.log(0.8)) / 3, rel=1e-5)
    (gradient,) = torch.autograd.grad(loss, after)
    assert gradient[1].abs().max() == 0.0


def test_the_average_teaches_and_labels_are_trusted_at_first() -> None:
    model, average = nn.Linear(2, 2), nn.Linear(2, 2)
    for one, bias in ((model, 0.0), (average, 9.0)):  # the model is sure of nothing, its average of everything
        with torch.no_grad():
            one.weight.zero_()
            one.bias.copy_(torch.tensor([0.0, bias]))
    x, classes = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    recipe = StudentRecipe(weight=0.0, consistency=2.0, robustness=1.0)
    for done, expected in ((0.0, math.log(2.0)), (0.05, 2 * math.log(2.0)), (0.5, 0.5 + 2 * math.log(2.0))):
        training = _Training(model, average, x, recipe, torch.Generator().manual_seed(0))
        loss = training.loss(x, classes, done)
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


def test_classes_predicted_too_often_count_less_within_the_limit() -> None:
    logits = torch.tensor([[math.log(8.0), 0.0, 0.0]] * 2 + [[0.0, 0.0, math.log(0.5)]])  # 0.8, 0.8, 0.4 for class 0
    marginal = np.array([2.0, (0.1 + 0.1 + 0.4) / 3, (0.1 + 0.1 + 0.2) / 3])
    marginal[0] /= 3.0
    recipe = StudentRecipe(weight=0.0, consistency=1.0, alignment=math.log(1.7))
    training = _Training(nn.Linear(3, 3), nn.Linear(3, 3), logits, recipe, torch.Generator().manual_seed(0))
    moved = (training.align(logits) - logits).exp().numpy()
    expected = np.clip(1.0 / (3.0 * marginal), 1 / 1.7, 1.7)  # the first and the last at the limits
    assert moved == pytest.approx(np.tile(expected, (3, 1)), rel=1e-5)
    training.align(torch.zeros(1, 3))
    assert training.marginal[0].numpy() == pytest.approx(0.99 * marginal + 0.01 / 3.0, rel=1e-5)
    assert training.loss(logits, torch.tensor([0, 0, 1]), 0.5).isfinite()


def test_the_average_follows_its_recursion_from_the_first_update_on() -> None:
    model = nn.Linear(2, 2)
    average = moving_average(model, 0.9)
    expected = None
    for value in (3.0, 5.0, -1.0):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update_parameters(model)
        expected = value if expected is None else 0.9 * expected + 0.1 * value
        assert average.module.weight.detach().numpy() == pytest.approx(np.full((2, 2), expected), rel=1e-5)


def test_the_student_is_the_average() -> None:
    x, y = two_arcs(40, seed=0)
    recipe = StudentRecipe(steps=2, learning_rate=0.1, weight=0.0, averaging=0.999)
    one, two = (
        next(train_student(x, y, x[:0], recipe=each, build=build, seed=5).model.parameters()).detach().numpy()
        for each in (recipe, StudentRecipe(steps=2, learning_rate=0.1, weight=0.0))
    )
    assert np.abs(one - two).max() > 0.05  # it stays within a thousandth of the first step


def test_scores_are_probabilities_and_agree_with_the_answers() -> None:
    x, y = two_arcs(40, seed=0)
    student = train_student(x, y, x[:0], recipe=StudentRecipe(steps=30, learning_rate=1e-2), build=build, seed=5)
    scores = student.scores(x, batch=7)
    assert scores.shape == (40, 2)
    assert np.abs(scores.sum(axis=1) - 1.0).max() < 1e-12
    assert (scores.argmax(axis=1) == student.predict(x)).all()
    with torch.no_grad():
        logits = student.model(torch.tensor(x)).double().numpy()
    assert np.log(scores[:, 1] / scores[:, 0]) == pytest.approx(logits[:, 1] - logits[:, 0], abs=1e-6)


def test_abstentions_count_as_unlabeled_and_a_seed_repeats() -> None:
    x, y = two_arcs(40, seed=0)
    labels = np.where(np.arange(40) < 8, y, -1)
    recipe = StudentRecipe(steps=5, consistency=1.0, threshold=0.0, change=Perturbation(noise=0.1), averaging=0.5)
    one, again = (train_student(x, labels, x[:0], recipe=recipe, build=build, seed=5).scores(x) for _ in range(2))
    assert (one == again).all()
    split = train_student(x[:8], y[:8], x[8:], recipe=recipe, build=build, seed=5)
    assert (split.scores(x) == one).all()


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


def test_a_training_that_was_killed_goes_on_to_the_very_end_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = two_arcs(40, seed=0)
    labels = np.where(np.arange(40) < 8, y, -1)
    recipe = StudentRecipe(
        steps=20, batch=4, consistency=1.0, threshold=0.1, alignment=1.0, averaging=0.9, change=Perturbation(noise=0.1)
    )
    file = tmp_path / "state"
    monkeypatch.setattr(student, "_CHECKPOINT_EVERY", 5)

    def scores(checkpoint: Path | None) -> Any:
        return train_student(x, labels, x[:0], recipe=recipe, build=build, device="cpu", checkpoint=checkpoint).scores(
            x
        )

    whole, loss, calls = scores(None), _Training.loss, iter(range(20))

    def dies(self: _Training, *of: Any) -> Any:
        if next(calls) == 12:
            raise KeyboardInterrupt
        return loss(self, *of)

    monkeypatch.setattr(_Training, "loss", dies)
    with pytest.raises(KeyboardInterrupt):
        scores(file)
    counted: list[float] = []

    def counts(self: _Training, *of: Any) -> Any:
        counted.append(of[2])
        return loss(self, *of)

    monkeypatch.setattr(_Training, "loss", counts)
    assert (scores(file) == whole).all()
    assert counted == [step / 20 for step in range(10, 20)]
    labels[0] = 1 - labels[0]
    with pytest.raises(CheckpointError, match="other labels, inputs, seed or recipe"):
        scores(file)
