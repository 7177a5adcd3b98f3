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
    rows = []
    for row in TABLE_2:
        printed_cost_sum = sum(
            printed_cost(row.order, publication.smoothness, publication.noise_scale) for publication in row.publications
        )
        exact_cost_sum = sum(
            exact_cost(row.order, publication.smoothness, publication.noise_scale) for publication in row.publications
        )
        deviations = (publication.sensitivity * publication.noise_scale for publication in row.publications)
        rows.append(
            {
                "name": row.name,
                "printed_total": row.sanitized,
                "recomputed_total": row.epsilon + printed_cost_sum,
                "printed_deviation": row.deviation,
                "recomputed_deviation": math.hypot(*deviations),
                "theorem_23": printed_cost_sum,
                "exact": exact_cost_sum,
                "order_times_beta": row.order * max(publication.smoothness for publication in row.publications),
                "total_with_exact_cost": row.epsilon + exact_cost_sum,
            }
        )
    return rows


def fixed_part() -> dict[str, float]:
    """Convert MNIST's costs to ε as printed, with 1/λ, and by [P, Theorem 5], with 1/(λ − 1)."""
    row = TABLE_2[0]
    (published,) = row.publications
    cost = printed_cost(row.order, published.smoothness, published.noise_scale)
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
        rows.append(
            {
                "name": name,
                "least_order": start,
                "orders": orders,
                "variances": [_compute_variance(target, order) for order in orders],
                "printed": {"order": paper, "beyond": paper - start, "variance": _compute_variance(target, paper)},
                "best": {"order": best.settings["order"], "beyond": best.settings["order"] - start}
                | {"variance": best.value**2},
            }
        )
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
        row = {"name": name, "printed_sigma": sigma, "sigma": calibration.value}
        row |= {"printed_order": order, "order": calibration.settings["order"]}
        row["sigma_at_printed_order"] = math.sqrt(_compute_variance(target, order))
        row["analytic_sigma"] = analytic_sigma(target).value
        rows.append(row)
    return rows
