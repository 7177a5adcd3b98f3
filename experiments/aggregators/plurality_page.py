"""Write the page *Any number of classes*: ``python -m experiments label_costs``.

The program computes the cost of a label and writes it to OUTPUT/reproduction/aggregators/label.json. It reads the best
mechanisms from the comparison's pluralities.json.
"""

import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr, ndtr

from darrm.noisy_max.label_cost import label_curve
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.util.figures import BLUE, VERMILION, save_figure
from darrm.util.files import write_text
from experiments import pages
from experiments.aggregators.comparison import BY_COUNTS, Comparison
from experiments.pages import CommandLine, Row

SIGMA, ORDER = 40.0, 8.0  # of the surface picture
SIGMAS = (10.0, 40.0)
GRID = 31  # points on each axis, in [-HALF_WIDTH, HALF_WIDTH] standard deviations
HALF_WIDTH = 3.0
MAX_ORDER_RATIO = 2.5  # largest plotted order ÷ σ
NODES = 80  # of the quadrature
SHOWN_CLASSES = 10  # classes of the table; the pages of the comparison have all


def main(arguments: list[str] | None = None) -> int:
    """Compute the cost of a label, draw it, and write the page."""
    parser = CommandLine("experiments label_costs", "Write docs/plurality.md and its pictures.")
    parser.add_argument("--output", type=Path, default=Path("docs"), metavar="FOLDER", help="for plurality.md")
    parser.add_argument("--recompute", action="store_true", help="compute the costs again, not only the page")
    options = parser.parse_args(arguments)
    folder = options.output / "reproduction" / "aggregators"
    if options.recompute:
        folder.mkdir(parents=True, exist_ok=True)
        costs = compute_label_costs()
        pages.write_json(folder / "label.json", costs)
        save_surface(folder / "label_surface.png", costs["surface"])
        save_ratios(folder / "label_ratio.png", costs["ratios"])
    write_text(options.output / "plurality.md", fill_page(folder))
    print(f"wrote {options.output / 'plurality.md'}")
    return 0


def compute_three_outcomes(x: Array, y: Array) -> Array:
    """Compute Pr[a], Pr[b] and Pr[another class] where a is x and b is y deviations above the others: (3, …).

    >>> compute_three_outcomes(np.array(0.0), np.array(0.0)).round(6).tolist()
    [0.375, 0.375, 0.25]
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)

    def compute_first(x: Array, y: Array) -> Array:
        """Compute Pr[x wins]: integrate over its noise, above the others, the chance that it also exceeds y."""
        low = np.maximum(-x, -9.0)[..., None]
        half_width = (9.0 - low) / 2.0
        z = low + half_width * (nodes + 1.0)
        density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
        return np.asarray(np.sum(half_width * weights * density * ndtr(x[..., None] + z - y[..., None]), axis=-1))

    return np.stack([compute_first(x, y), compute_first(y, x), ndtr(-x) * ndtr(-y)])


def compute_label_costs() -> Row:
    """Compute the cost of three outcomes on the grid, and the label's curve, both ÷ the cost of the counts."""
    axis = np.linspace(-HALF_WIDTH, HALF_WIDTH, GRID)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    step = 1.0 / SIGMA
    p, q = compute_three_outcomes(x, y), compute_three_outcomes(x - step, y + step)
    divergence = np.log(np.sum(p**ORDER * q ** (1.0 - ORDER), axis=0)) / (ORDER - 1.0)
    shares = (divergence * SIGMA**2 / ORDER).round(6).tolist()
    ratios = []
    for sigma in SIGMAS:
        curve = label_curve(DiscreteGaussian(sigma))
        is_drawn = curve.orders <= MAX_ORDER_RATIO * sigma
        orders = curve.orders[is_drawn]
        costs = {"label": curve.values[is_drawn], "two_classes": compute_two_class_curve(sigma, orders)}
        costs_per_count = {name: (values / (orders / sigma**2)).round(6).tolist() for name, values in costs.items()}
        ratios.append({"sigma": sigma, "orders": orders.tolist(), **costs_per_count})
    surface = {"sigma": SIGMA, "order": ORDER, "axis": axis.round(6).tolist(), "shares": shares}
    return {"surface": surface, "ratios": ratios}


def compute_two_class_curve(sigma: float, orders: Array) -> Array:
    """Compute the Rényi divergence of a label of two classes at the worst lead."""
    lead = np.linspace(-6.0, 6.0, 1201)[:, None]
    shift = 2.0 / (sigma * math.sqrt(2.0))
    log_terms = [orders * log_ndtr(s * lead) - (orders - 1.0) * log_ndtr(s * (lead - shift)) for s in (1.0, -1.0)]
    return np.asarray(np.max(np.logaddexp(*log_terms), axis=0) / (orders - 1.0))


def save_surface(path: Path, surface: Row) -> None:
    reach, shares = surface["axis"][-1], np.array(surface["shares"])
    with save_figure(path, width=6.4, height=5.2, dpi=100) as figure:
        axis = figure.add_subplot()
        extent = (-reach, reach, -reach, reach)
        image = axis.imshow(shares.T, origin="lower", extent=extent, cmap="cividis", interpolation="bilinear")
        worst_places = np.unravel_index(np.argmax(shares), shares.shape)
        axis.plot(*(surface["axis"][place] for place in worst_places), "o", color=VERMILION, markersize=7)
        axis.set(xlabel="x: a above the best of the others, in σ", ylabel="y: b above the best of the others, in σ")
        title = f"cost of the three outcomes ÷ cost of the counts\nσ = {surface['sigma']:g}, order 8"
        axis.set_title(title, fontsize=9)
        figure.colorbar(image, ax=axis)


def save_ratios(path: Path, ratios: list[Row]) -> None:
    """Plot the label's cost ÷ the counts' cost over the order."""
    with save_figure(path, width=6.4, height=4.2, dpi=100) as figure:
        axis = figure.add_subplot()
        for entry, color in zip(ratios, (BLUE, VERMILION), strict=True):
            scaled_orders = np.array(entry["orders"]) / entry["sigma"]
            for key, dash, label in (("label", "-", "any number of classes"), ("two_classes", "--", "two classes")):
                axis.plot(scaled_orders, entry[key], dash, color=color, label=f"{label}, σ = {entry['sigma']:g}")
        axis.axhline(1.0, color="black", linewidth=1.0, label="by the noisy counts")
        axis.set(xlabel="Rényi order ÷ σ", ylabel="cost ÷ cost of the counts", ylim=(0.5, 1.05))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)


def fill_page(folder: Path) -> str:
    costs = pages.read_json(folder / "label.json")
    comparisons = [Comparison(**entry) for entry in pages.read_json(folder / "pluralities.json")]
    surface, ratio = costs["surface"], costs["ratios"][-1]
    orders = np.array(ratio["orders"])
    low, high = int(np.argmin(np.abs(orders - ORDER))), -1
    wins = Counter(item.best["name"] for item in comparisons).most_common()
    facts = {
        "surface": surface,
        "ridge": float(np.max(surface["shares"])),
        "certified": ratio["label"][low],
        "low_orders": orders[low] / ratio["sigma"],
        "low_share": ratio["label"][low],
        "high_orders": orders[high] / ratio["sigma"],
        "high_share": ratio["label"][high],
        "workloads": len(comparisons),
        "winners": [
            item.workload | {"best": item.best, "coin": item.coin, "at_most": item.at_most, "by_counts": accuracy}
            for item in comparisons
            if item.prior == "dirichlet:1" and item.classes == SHOWN_CLASSES
            for accuracy in [item.collect_values("right").get(BY_COUNTS)]
        ],
        "wins": ", ".join(f"{name} in {count}" for name, count in wins),
    }
    return pages.fill_template("aggregators", facts, template="plurality")
