"""The boundary: the losses are those of exact fractions, and the page's claims fail when a row does."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from darrm.majority.noise_function import NoiseFunction
from experiments.boundary import SHAPES, AllModels, Search, climb, measure, same_question
from experiments.pages import read_json
from tests.account import test_counterexamples as exact
from tests.oracle import exponential

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "boundary"
SMALL = [Fraction(1, 4), Fraction(5, 8)]


@pytest.mark.parametrize("questions", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "half", [SMALL, *(pytest.param(half, marks=pytest.mark.slow) for half in (exact.THREE, SMALL[::-1]))]
)
def test_all_models_are_those_of_exact_fractions(half: list[Fraction], questions: int) -> None:
    worst = exact.worst_of(half, exponential(Fraction(7, 10)), questions)
    gamma = NoiseFunction(3, [float(value) for value in half])
    assert AllModels(3, questions, 0.7).loss(gamma) == pytest.approx(exact.loss(worst), rel=1e-12)


def test_one_bit_models_are_among_all_models() -> None:
    gamma = NoiseFunction(4, [0.1, 0.7])
    assert AllModels(4, 1, 0.5).loss(gamma) == pytest.approx(same_question(gamma, 0.5, 1), rel=1e-12)
    assert AllModels(4, 2, 0.5).loss(gamma) >= same_question(gamma, 0.5, 2)


@pytest.mark.parametrize("times", [1, 8])
def test_the_same_question_is_that_of_exact_fractions(times: int) -> None:
    gamma = NoiseFunction(201, [float(value) for value in exact.MONOTONE])
    found = same_question(gamma, float(np.log(1.01)), times)
    assert found == pytest.approx(exact.loss(exact.same_question(exact.MONOTONE, Fraction(101, 100), times)), rel=1e-9)


def test_the_shapes_are_those_of_today() -> None:
    for shape, then in zip(SHAPES, read_json(DATA / "shapes.json"), strict=True):
        now = measure(shape)
        assert {name: then[name] for name in now if name not in ("cost", "loss")}.items() <= now.items()
        assert [now["cost"], now["loss"]] == pytest.approx([then["cost"], then["loss"]], rel=1e-6)  # solvers


def test_the_search_finds_a_failure_and_climbs() -> None:
    found = Search(3, 2, 0.1, monotone=False, shapes=4).worst()
    assert found["worst"] > 1.15
    rng = np.random.default_rng(0)
    value, point = climb(lambda x: -float(np.sum((x - 0.3) ** 2)), np.array([0.9, 0.1]), rng)
    assert value == pytest.approx(0.0, abs=1e-5)
    assert point == pytest.approx([0.3, 0.3], abs=1e-2)
