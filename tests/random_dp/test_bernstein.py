import math
from collections.abc import Callable

import numpy as np
import pytest

from darrm.random_dp.bernstein import BernsteinFunction, lattice

LINE = BernsteinFunction(np.array([0.0, 1.0]))
PLANE = BernsteinFunction(np.zeros((3, 3)))


def compute_basis(k: int, y: float) -> np.ndarray:
    return np.array([math.comb(k, j) * y**j * (1 - y) ** (k - j) for j in range(k + 1)])


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize(("k", "dimension"), [(3, 1), (3, 2), (40, 1)])
def test_the_iterated_operator_is_its_definition(k: int, dimension: int, order: int) -> None:
    # Σ C(h, i) (−1)^{i−1} B^i with B as a matrix on the whole lattice
    rows = np.array([compute_basis(k, i / k) for i in range(k + 1)])
    matrix = rows if dimension == 1 else np.kron(rows, rows)
    rng = np.random.default_rng(0)
    coefficients, smoothed = np.zeros(len(matrix)), rng.normal(size=len(matrix))
    function = BernsteinFunction(smoothed.reshape((k + 1,) * dimension), order)
    for i in range(1, order + 1):
        coefficients += math.comb(order, i) * (-1) ** (i - 1) * smoothed
        smoothed = matrix @ smoothed
    points = np.vstack([rng.random((20, dimension)), np.zeros(dimension), np.ones(dimension)])
    for point, value in zip(points, function(points), strict=True):
        bases = [compute_basis(k, y) for y in point]
        weights = bases[0] if dimension == 1 else np.kron(*bases)
        assert value == pytest.approx(weights @ coefficients, abs=1e-12)


def test_points_keep_their_shape() -> None:
    for points, shape in (((), ()), ((3,), (3,)), ((3, 1), (3,)), ((3, 4), (3, 4))):
        assert LINE(np.zeros(points)).shape == shape
    assert PLANE([0.1, 0.2]).shape == ()
    assert PLANE(np.zeros((4, 5, 2))).shape == (4, 5)
    assert (PLANE.size, PLANE.dimension) == (2, 2)


def test_the_values_are_a_read_only_copy() -> None:
    values = np.zeros(3)
    function = BernsteinFunction(values)
    values[0] = 1.0
    assert function(0.0) == 0.0
    with pytest.raises(ValueError, match="read-only"):
        function.values[0] = 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BernsteinFunction(np.array([1.0])), "length of at least 2"),
        (lambda: BernsteinFunction(np.zeros((2, 3))), "one length"),
        (lambda: BernsteinFunction(np.array([0.0, math.nan])), "finite"),
        (lambda: BernsteinFunction(np.array([0.0, 1.0]), 0), "order must be"),
        (lambda: LINE([1.5]), "points must be in"),
        (lambda: LINE([math.nan]), "points must be in"),
        (lambda: PLANE([[0.1, 0.2, 0.3]]), "points must be of shape"),
        (lambda: lattice(0), "size must be"),
        (lambda: lattice(2, 0), "dimension must be"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
