"""Recompute numbers that follow from the printed columns of [P, Table 2] and [D, Table 4], without votes."""

import math

import numpy as np

from darrm.loss.gaussian import analytic_sigma, renyi_sigma
from darrm.pate.gnss import exact_cost, printed_cost
from darrm.privacy import PrivacyParams
from experiments.pages import Row
from experiments.pate.settings import MNIST_COST, TABLE_2, TABLE_4


def table_2() -> list[Row]:
    """Recompute the last column of [P, Table 2] from the others, and the mechanism's exact cost."""
    rows: list[Row] = []
    for row in TABLE_2:
        smoothness, sensitivities, scales = zip(*row.publications, strict=True)
        printed, exact = (
            sum(cost(row.order, *parameters) for parameters in zip(smoothness, scales, strict=True))
            for cost in (printed_cost, exact_cost)
        )
        deviations = (sensitivity * scale for sensitivity, scale in zip(sensitivities, scales, strict=True))
        recomputed = {
            "name": row.name,
            "printed_total": row.sanitized,
            "recomputed_total": row.epsilon + printed,
            "printed_deviation": row.deviation,
            "recomputed_deviation": math.hypot(*deviations),
            "theorem_23": printed,
            "exact": exact,
            "order_times_beta": row.order * max(smoothness),
            "total_with_exact_cost": row.epsilon + exact,
        }
        rows.append(recomputed)
    return rows


def fixed_part() -> dict[str, float]:
    """Convert MNIST's costs to ε as printed, with 1/λ, and by [P, Theorem 5], with 1/(λ − 1)."""
    row = TABLE_2[0]
    ((smoothness, _, noise_scale),) = row.publications
    cost = printed_cost(row.order, smoothness, noise_scale)
    return {
        "printed_cost": MNIST_COST,
        "theorem_23": cost,
        "delta": row.delta,
        "order": row.order,
        "printed_total": MNIST_COST + cost - math.log(row.delta) / row.order,
        "by_theorem_5": MNIST_COST + cost - math.log(row.delta) / (row.order - 1.0),
    }


def figure_10() -> list[Row]:
    """Compute σ² over the orders λ for both targets of [D, Table 4], from one answer's Rényi divergence at λ.

    The orders begin where σ² is finite, at λ_min = log(1/δ)/ε + 1; ``beyond`` is the distance of the printed λ from it.
    """
    rows = []
    for name, epsilon, delta, paper, _ in TABLE_4:
        target = PrivacyParams(epsilon, delta)
        start = 1.0 - math.log(target.delta) / target.epsilon
        orders = [float(order) for order in np.round(np.geomspace(start + 1.0, 500.0, 60), 2)]
        best = renyi_sigma(target)
        points = {"printed": (paper, _compute_variance(target, paper)), "best": (best.settings["order"], best.value**2)}
        row = {
            "name": name,
            "least_order": start,
            "orders": orders,
            "variances": [_compute_variance(target, order) for order in orders],
        }
        row |= {
            key: {"order": order, "beyond": order - start, "variance": variance}
            for key, (order, variance) in points.items()
        }
        rows.append(row)
    return rows


def _compute_variance(target: PrivacyParams, order: float) -> float:
    """Return the σ² with which one answer's Rényi divergence at an order gives the target [D, Section D.2.1]."""
    return order / (target.epsilon + math.log(target.delta) / (order - 1.0))


def table_4() -> list[Row]:
    """Compute σ for the targets of [D, Table 4] by the paper's calibration and by the analytic one."""
    rows = []
    for name, epsilon, delta, order, sigma in TABLE_4:
        target = PrivacyParams(epsilon, delta)
        calibration = renyi_sigma(target)
        row = {
            "name": name,
            "printed_sigma": sigma,
            "sigma": calibration.value,
            "printed_order": order,
            "order": calibration.settings["order"],
            "sigma_at_printed_order": math.sqrt(_compute_variance(target, order)),
            "analytic_sigma": analytic_sigma(target).value,
        }
        rows.append(row)
    return rows
