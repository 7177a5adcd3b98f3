"""Iterated Bernstein polynomials against the definition, and what they reproduce."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darrm.random_dp.bernstein import BernsteinFunction, bernstein_basis, lattice

LINE = BernsteinFunction(np.array([0.0, 1.0]))


def basis(k: int, j: int, y: float) -> float:
    return math.comb(k, j) * y**j * (1 - y) ** (k - j)


@given(k=st.integers(1, 40), y=st.floats(0, 1))
def test_the_basis_is_the_binomial_law(k: int, y: float) -> None:
    assert bernstein_basis(k, y) == pytest.approx([basis(k, j, y) for j in range(k + 1)], abs=1e-14)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("dimension", [1, 2])
def test_the_iterated_operator_by_its_definition(order: int, dimension: int) -> None:
    # Σ C(h, i) (−1)^{i−1} B^i with B as a matrix on the whole lattice
    k = 3
    one = np.array([[basis(k, j, i / k) for j in range(k + 1)] for i in range(k + 1)])
    matrix = one if dimension == 1 else np.kron(one, one)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(k + 1) ** dimension)
    power = np.eye(len(values))
    coefficients = np.zeros(len(values))
    for i in range(1, order + 1):
        coefficients += math.comb(order, i) * (-1) ** (i - 1) * (power @ values)
        power = power @ matrix
    function = BernsteinFunction(values.reshape((k + 1,) * dimension), order)
    points = rng.random((20, dimension))
    for point, found in zip(points, function(points), strict=True):
        rows = [np.array([basis(k, j, y) for j in range(k + 1)]) for y in point]
        weights = rows[0] if dimension == 1 else np.kron(rows[0], rows[1])
        assert found == pytest.approx(weights @ coefficients, abs=1e-12)


@given(slope=st.floats(-100, 100), start=st.floats(-100, 100), k=st.integers(1, 30), order=st.integers(1, 6))
def test_straight_lines_are_reproduced(slope: float, start: float, k: int, order: int) -> None:
    line = BernsteinFunction(start + slope * lattice(k).ravel(), order)
    y = np.linspace(0, 1, 11)
    assert line(y) == pytest.approx(start + slope * y, abs=1e-10)


def test_planes_are_reproduced_but_squares_are_not() -> None:
    points = lattice(4, 2)
    plane = BernsteinFunction((1 + points @ [2.0, -3.0] + points[:, 0] * points[:, 1]).reshape(5, 5), 3)
    query = np.random.default_rng(1).random((7, 2))
    assert plane(query) == pytest.approx(1 + query @ [2.0, -3.0] + query[:, 0] * query[:, 1])
    square = BernsteinFunction(lattice(4).ravel() ** 2)
    assert square(0.5) == pytest.approx(0.25 + 0.25 / 4)  # y² + y(1 − y)/k


@pytest.mark.parametrize(("order", "gain"), [(1, 2), (2, 4), (3, 8)])
def test_the_error_falls_like_k_to_the_minus_h(order: int, gain: float) -> None:
    y = np.linspace(0, 1, 301)
    errors = [
        float(np.max(np.abs(BernsteinFunction(np.sin(3 * lattice(k).ravel()), order)(y) - np.sin(3 * y))))
        for k in (40, 80, 160)
    ]
    assert errors[1] / errors[2] > 0.9 * gain
    assert errors[0] / errors[1] < 1.1 * gain


def test_shapes_of_points() -> None:
    for points, shape in (((), ()), ((3,), (3,)), ((3, 1), (3,)), ((3, 4), (3, 4))):
        assert LINE(np.zeros(points)).shape == shape
    plane = BernsteinFunction(np.zeros((3, 3)))
    assert plane([0.1, 0.2]).shape == ()
    assert plane(np.zeros((4, 5, 2))).shape == (4, 5)
    assert (plane.size, plane.dimension) == (2, 2)


def test_the_callers_array_stays_writable() -> None:
    values = np.zeros(3)
    function = BernsteinFunction(values)
    values[0] = 1.0
    assert function(0.0) == 0.0
    with pytest.raises(ValueError, match="read-only"):
        function.values[0] = 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BernsteinFunction(np.array([1.0])), "length of at least 2"),
        (lambda: BernsteinFunction(np.zeros((2, 3))), "one length"),
        (lambda: BernsteinFunction(np.array([0.0, math.nan])), "finite"),
        (lambda: BernsteinFunction(np.array([0.0, 1.0]), 0), "order must be"),
        (lambda: LINE([1.5]), "points must be in"),
        (lambda: LINE([math.nan]), "points must be in"),
        (lambda: BernsteinFunction(np.zeros((2, 2)))([[0.1, 0.2, 0.3]]), "points must be of shape"),
        (lambda: lattice(0), "size must be"),
        (lambda: lattice(2, 0), "dimension must be"),
    ],
)
def test_bad_arguments(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
