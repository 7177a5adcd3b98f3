"""Rényi curves against integrals, the analytic Gaussian, and each other."""

import math

import mpmath
import numpy as np
import pytest

from darrm.loss.renyi import CONVERSIONS, DEFAULT_ORDERS, RenyiCurve, RenyiGridWarning, log_renyi_sums


def gaussian(sigma: float) -> RenyiCurve:
    return RenyiCurve.of(lambda order: order / (2.0 * sigma**2))


@pytest.mark.parametrize("order", [1.5, 2.0, 7.25, 200.0])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0, 50.0])
def test_pure_curve_is_randomized_response(order: float, epsilon: float) -> None:
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
    epsilon = gaussian(sigma).convert(delta, conversion=conversion).epsilon
    # the exact δ of the Gaussian mechanism at that ε
    with mpmath.workdps(40):
        exact = mpmath.ncdf(1 / (2 * sigma) - epsilon * sigma) - mpmath.exp(epsilon) * mpmath.ncdf(
            -1 / (2 * sigma) - epsilon * sigma
        )
    assert exact <= delta
    # and not by far: the classic one loses a factor of about 300 at worst here, the tight one is smaller
    assert exact >= delta / 1000
    assert gaussian(sigma).convert(delta).epsilon <= epsilon


def test_classic_has_a_closed_form() -> None:
    # min over orders of order/(2σ²) + log(1/δ)/(order − 1) is 1/(2σ²) + √(2 log(1/δ))/σ
    fine = RenyiCurve.of(lambda order: order / 18.0, orders=np.linspace(1.01, 60.0, 200_000))
    conversion = fine.convert(1e-5, conversion="classic")
    assert conversion.epsilon == pytest.approx(1.0 / 18.0 + math.sqrt(2.0 * math.log(1e5)) / 3.0, rel=1e-6)
    assert conversion.order == pytest.approx(1.0 + 3.0 * math.sqrt(2.0 * math.log(1e5)), rel=1e-3)


def test_curves_add_and_repeat() -> None:
    curve, other = gaussian(2.0), gaussian(3.0)
    assert curve + curve + curve == curve.repeat(3)
    assert np.allclose((curve + other).values, DEFAULT_ORDERS * (1.0 / 8.0 + 1.0 / 18.0), rtol=1e-15)
    assert curve.repeat(0).convert(1e-5).epsilon == 0.0
    assert hash(curve) == hash(gaussian(2.0))
    assert curve != other
    assert curve != 3


def test_edges_warn() -> None:
    narrow = RenyiCurve.of(lambda order: order / 8.0, orders=[2.0, 3.0])
    with pytest.warns(RenyiGridWarning, match=r"the best order 3 is at the edge of the grid \[2, 3\]"):
        narrow.convert(1e-9)
    assert narrow.best(1e-9).at_edge
    high = RenyiCurve.of(lambda order: order / 8.0, orders=[30.0, 40.0])
    with pytest.warns(RenyiGridWarning, match="30"):
        high.convert(1e-2)
    assert not RenyiCurve.of(lambda order: order / 8.0, orders=[3.0]).best(1e-9).at_edge


def test_an_unknown_order_is_skipped() -> None:
    curve = RenyiCurve(np.array([2.0, 4.0, 8.0]), np.array([0.1, math.inf, 0.5]))
    assert curve.best(0.1).order == 8.0
    assert RenyiCurve(np.array([2.0]), np.array([math.inf])).best(0.1).epsilon == math.inf


def test_the_callers_arrays_stay_writable() -> None:
    orders, values = np.array([2.0, 3.0]), np.array([0.1, 0.2])
    curve = RenyiCurve(orders, values)
    orders[0] = 1.5
    assert curve.orders[0] == 2.0
    with pytest.raises(ValueError, match="read-only"):
        curve.values[0] = 0.0


@pytest.mark.parametrize(
    ("orders", "values", "word"),
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
def test_what_is_no_curve(orders: list[float], values: list[float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        RenyiCurve(np.array(orders), np.array(values))


def test_bad_arguments() -> None:
    curve = gaussian(1.0)
    with pytest.raises(ValueError, match="delta"):
        curve.convert(0.0)
    with pytest.raises(ValueError, match="conversion must be one of classic, tight"):
        curve.convert(0.1, conversion="best")
    with pytest.raises(ValueError, match="same grid"):
        curve + RenyiCurve(np.array([2.0]), np.array([0.1]))
    with pytest.raises(ValueError, match="count"):
        curve.repeat(-1)


def test_sums_over_outcomes_count_impossible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]]), np.array([[0.25, 0.75, 0.0]] * 3)
    q[2] = [1.0, 0.0, 0.0]  # an outcome that only p has
    orders = np.array([1.5, 3.0, 40.0])
    with np.errstate(divide="ignore"):
        logs = np.log(p), np.log(q)
    true = [[float(np.log(np.sum(p[n, :2] ** o * q[n, :2] ** (1.0 - o)))) for n in range(2)] for o in orders]
    sums = log_renyi_sums(*logs, orders)
    assert sums[:, :2] == pytest.approx(np.array(true), rel=1e-12, abs=1e-15)
    assert np.all(np.isposinf(sums[:, 2]))
    monkeypatch.setattr("darrm.loss.renyi._TERMS_PER_BLOCK", 1)
    assert np.array_equal(sums, log_renyi_sums(*logs, orders))
    tiny = log_renyi_sums(np.array([[-1e5, -2e5]]), np.array([[-1e5, -2e5]]), orders)
    assert tiny[:, 0].tolist() == [-1e5] * 3  # no probability underflows
