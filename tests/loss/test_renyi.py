"""Rényi curves against integrals, the analytic Gaussian, and each other."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from darrm.loss.renyi import CONVERSIONS, DEFAULT_ORDERS, RenyiCurve, RenyiGridWarning, curve_of_pairs, log_renyi_sums


def gaussian_curve(sigma: float) -> RenyiCurve:
    return RenyiCurve.of(lambda order: order / (2.0 * sigma**2))


@pytest.mark.parametrize("order", [1.5, 2.0, 7.25, 200.0])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0, 50.0])
def test_the_curve_of_a_pure_guarantee_is_that_of_randomized_response(order: float, epsilon: float) -> None:
    with mpmath.workdps(60):
        e, a = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(order)
        p, q = e / (1 + e), 1 / (1 + e)
        exact = mpmath.log(p**a * q ** (1 - a) + q**a * p ** (1 - a)) / (a - 1)
        value = RenyiCurve.from_pure(epsilon, orders=[order]).values[0]
        assert value >= exact or value == epsilon
        assert value <= exact * (1 + mpmath.mpf("1e-13")) + mpmath.mpf("1e-14")


@pytest.mark.parametrize("conversion", sorted(CONVERSIONS))
@pytest.mark.parametrize(("sigma", "delta"), [(1.0, 1e-5), (3.0, 1e-8), (0.5, 1e-3)])
def test_conversions_hold_for_the_gaussian(conversion: str, sigma: float, delta: float) -> None:
    epsilon = gaussian_curve(sigma).convert(delta, conversion=conversion).epsilon
    with mpmath.workdps(40):
        a, b = 1 / (2 * sigma), epsilon * sigma
        exact = mpmath.ncdf(a - b) - mpmath.exp(epsilon) * mpmath.ncdf(-a - b)
    assert delta / 1000 <= exact <= delta  # here the classic conversion loses a factor of 300 at most
    assert gaussian_curve(sigma).convert(delta).epsilon <= epsilon


@pytest.mark.parametrize("order", [1.006, 1.03, 1.2, 1.37, 5.12, 11.9, 17.0, 40.5, 83.0, 3000.0, 15000.0])
def test_a_gaussian_converts_at_its_best_order_and_nearly_so_at_the_default_orders(order: float) -> None:
    rho = math.log(1e6) / (order - 1.0) ** 2  # the classic conversion has its minimum at this order
    exact = rho + 2.0 * math.sqrt(rho * math.log(1e6))
    near, default = (
        RenyiCurve.of(lambda orders: rho * orders, grid).convert(1e-6, conversion="classic")
        for grid in (1.0 + (order - 1.0) * np.array([0.99, 1.0, 1.01]), DEFAULT_ORDERS)
    )
    assert (near.order, near.epsilon) == pytest.approx((order, exact), rel=1e-12)
    assert exact <= default.epsilon <= 1.02 * exact


def test_curves_add_and_repeat() -> None:
    curve, other = gaussian_curve(2.0), gaussian_curve(3.0)
    assert curve + curve + curve == curve.repeat(3)
    assert np.allclose((curve + other).values, DEFAULT_ORDERS * (1.0 / 8.0 + 1.0 / 18.0), rtol=1e-15)
    assert curve.repeat(0).convert(1e-5).epsilon == 0.0
    assert hash(curve) == hash(gaussian_curve(2.0))
    assert curve != other
    assert curve != 3


@pytest.mark.parametrize(("orders", "delta", "edge"), [([2.0, 3.0], 1e-9, "3"), ([30.0, 40.0], 1e-2, "30")])
def test_a_best_order_at_the_edge_warns(orders: list[float], delta: float, edge: str) -> None:
    curve = RenyiCurve.of(lambda order: order / 8.0, orders=orders)
    assert curve.best(delta).at_edge
    with pytest.warns(RenyiGridWarning, match=rf"the best order {edge} is at the edge of the grid \["):
        curve.convert(delta)
    assert not RenyiCurve.of(lambda order: order / 8.0, orders=orders[:1]).best(delta).at_edge


def test_an_unknown_order_is_skipped() -> None:
    curve = RenyiCurve(np.array([2.0, 4.0, 8.0]), np.array([0.1, math.inf, 0.5]))
    assert curve.best(0.1).order == 8.0
    assert RenyiCurve(np.array([2.0]), np.array([math.inf])).best(0.1).epsilon == math.inf


def test_a_curve_copies_its_arrays_and_is_read_only() -> None:
    orders, values = np.array([2.0, 3.0]), np.array([0.1, 0.2])
    curve = RenyiCurve(orders, values)
    orders[0] = 1.5
    assert curve.orders[0] == 2.0
    with pytest.raises(ValueError, match="read-only"):
        curve.values[0] = 0.0


@pytest.mark.parametrize(
    ("orders", "values", "message"),
    [
        ([1.0, 2.0], [0.1, 0.2], "orders"),
        ([3.0, 2.0], [0.1, 0.2], "orders"),
        ([2.0, math.inf], [0.1, 0.2], "orders"),
        ([2.0, math.nan], [0.1, 0.2], "orders"),
        ([2.0, 3.0], [0.1], "values"),
        ([2.0], [-0.1], "values"),
        ([2.0], [math.nan], "values"),
        ([], [], "orders"),
        ([[2.0]], [[0.1]], "orders"),
    ],
)
def test_a_curve_refuses_orders_and_values(orders: list[float], values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RenyiCurve(np.array(orders), np.array(values))


CURVE = gaussian_curve(1.0)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: CURVE.convert(0.0), "delta"),
        (lambda: CURVE.convert(0.1, conversion="best"), "conversion must be one of classic, tight"),
        (lambda: CURVE + RenyiCurve(np.array([2.0]), np.array([0.1])), "same grid"),
        (lambda: CURVE.repeat(-1), "count"),
    ],
)
def test_the_methods_of_a_curve_refuse(use: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use()


def test_a_curve_of_pairs_covers_the_errors_of_its_logarithms() -> None:
    p, q, error = np.log([[0.75, 0.25], [0.6, 0.4]]), np.log([[0.5, 0.5], [0.3, 0.7]]), 1e-3
    exact, bound = curve_of_pairs(p, q).values, curve_of_pairs(p - error, q + error, error).values
    assert np.all((exact <= bound) & (bound <= exact + 3.1 * error / (DEFAULT_ORDERS - 1.0)))


def test_renyi_sums_count_impossible_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]]), np.array([[0.25, 0.75, 0.0]] * 3)
    q[2] = [1.0, 0.0, 0.0]  # only p has the second outcome
    orders = np.array([1.5, 3.0, 40.0])
    with np.errstate(divide="ignore"):
        logs = np.log(p), np.log(q)
    exact = [[float(np.log(np.sum(p[n, :2] ** o * q[n, :2] ** (1.0 - o)))) for n in range(2)] for o in orders]
    sums = log_renyi_sums(*logs, orders)
    assert sums[:, :2] == pytest.approx(np.array(exact), rel=1e-12, abs=1e-15)
    assert np.all(np.isposinf(sums[:, 2]))
    monkeypatch.setattr("darrm.loss.renyi._TERMS_PER_BLOCK", 1)
    assert np.array_equal(sums, log_renyi_sums(*logs, orders))
    tiny = np.array([[-1e5, -2e5]])
    assert log_renyi_sums(tiny, tiny, orders)[:, 0].tolist() == [-1e5] * 3  # no probability underflows
