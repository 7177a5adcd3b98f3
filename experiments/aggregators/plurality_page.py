"""Write the page *Any number of classes*: ``python -m experiments label_costs``.

The cost of a label is computed here and written to OUTPUT/reproduction/aggregators/label.json; the best mechanisms come
from the comparison's pluralities.json.
"""

import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr, ndtr

from darrm.noisy_max.label_cost import label_curve
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.util.figures import BLUE, VERMILION, saved_figure
from darrm.util.files import write_text
from experiments import pages
from experiments.aggregators.comparison import BY_COUNTS, Comparison
from experiments.pages import CommandLine, Row

SIGMA, ORDER = 40.0, 8.0  # of the picture of all places
SIGMAS = (10.0, 40.0)
GRID = 31  # places on each axis, in [-REACH, REACH] standard deviations
REACH = 3.0
MOST_ORDERS = 2.5  # standard deviations: the range of the drawn orders
NODES = 80
SHOWN = 10  # classes of the table; the page of the comparison has the rest


def main(arguments: list[str] | None = None) -> int:
    """Compute the cost of a label, draw it, and write the page."""
    line = CommandLine("experiments label_costs", "Write docs/plurality.md and its pictures.")
    line.add_argument("--output", type=Path, default=Path("docs"), metavar="FOLDER", help="for plurality.md")
    line.add_argument(
        "--recompute", action="store_true", help="compute the costs again; without it, the page alone is written"
    )
    options = line.parse_args(arguments)
    folder = options.output / "reproduction" / "aggregators"
    if options.recompute:
        folder.mkdir(parents=True, exist_ok=True)
        costs = label_costs()
        pages.write_json(folder / "label.json", costs)
        save_surface(folder / "label_surface.png", costs["surface"])
        save_ratios(folder / "label_ratio.png", costs["ratios"])
    write_text(options.output / "plurality.md", page(folder))
    print(f"wrote {options.output / 'plurality.md'}")
    return 0


def three_outcomes(x: Array, y: Array) -> Array:
    """Compute Pr[a], Pr[b], Pr[another] for classes x and y standard deviations above the others: (3, …).

    >>> three_outcomes(np.array(0.0), np.array(0.0)).round(6).tolist()
    [0.375, 0.375, 0.25]
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)

    def first(x: Array, y: Array) -> Array:
        """Integrate over the noise of the first, above the others, that it also passes the second."""
        low = np.maximum(-x, -9.0)[..., None]
        half = (9.0 - low) / 2.0
        z = low + half * (nodes + 1.0)
        density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
        return np.asarray(np.sum(half * weights * density * ndtr(x[..., None] + z - y[..., None]), axis=-1))

    return np.stack([first(x, y), first(y, x), ndtr(-x) * ndtr(-y)])


def label_costs() -> Row:
    """Compute the divergence of three outcomes at all places, and the label's curve, as shares of the counts' cost."""
    axis = np.linspace(-REACH, REACH, GRID)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    step = 1.0 / SIGMA
    p, q = three_outcomes(x, y), three_outcomes(x - step, y + step)
    divergence = np.log(np.sum(p**ORDER * q ** (1.0 - ORDER), axis=0)) / (ORDER - 1.0)
    shares = divergence * SIGMA**2 / ORDER
    ratios = []
    for sigma in SIGMAS:
        curve = label_curve(DiscreteGaussian(sigma))
        drawn = curve.orders <= MOST_ORDERS * sigma
        orders = curve.orders[drawn]
        counts = orders / sigma**2
        ratios.append(
            {
                "sigma": sigma,
                "orders": orders.tolist(),
                "label": (curve.values[drawn] / counts).round(6).tolist(),
                "two_classes": (two_classes(sigma, orders) / counts).round(6).tolist(),
            }
        )
    surface = {"sigma": SIGMA, "order": ORDER, "axis": axis.round(6).tolist(), "shares": shares.round(6).tolist()}
    return {"surface": surface, "ratios": ratios}


def two_classes(sigma: float, orders: Array) -> Array:
    """Compute the Rényi divergence of the label of two classes: one bit, at the worst lead."""
    lead = np.linspace(-6.0, 6.0, 1201)[:, None]
    move = 2.0 / (sigma * math.sqrt(2.0))
    logs = [orders * log_ndtr(s * lead) - (orders - 1.0) * log_ndtr(s * (lead - move)) for s in (1.0, -1.0)]
    return np.asarray(np.max(np.logaddexp(*logs), axis=0) / (orders - 1.0))


def save_surface(path: Path, surface: Row) -> None:
    reach = surface["axis"][-1]
    with saved_figure(path, width=6.4, height=5.2, dpi=100) as figure:
        axis = figure.add_subplot()
        shares = np.array(surface["shares"])
        image = axis.imshow(
            shares.T, origin="lower", extent=(-reach, reach, -reach, reach), cmap="cividis", interpolation="bilinear"
        )
        worst = np.unravel_index(np.argmax(shares), shares.shape)
        axis.plot(*(surface["axis"][place] for place in worst), "o", color=VERMILION, markersize=7)
        axis.set(xlabel="x: a above the best of the others, in σ", ylabel="y: b above the best of the others, in σ")
        axis.set_title(
            f"cost of the three outcomes ÷ cost of the counts\nσ = {surface['sigma']:g}, order 8", fontsize=9
        )
        figure.colorbar(image, ax=axis)


def save_ratios(path: Path, ratios: list[Row]) -> None:
    """Draw the label's cost over the order, as a share of the counts' cost."""
    with saved_figure(path, width=6.4, height=4.2, dpi=100) as figure:
        axis = figure.add_subplot()
        for entry, color in zip(ratios, (BLUE, VERMILION), strict=True):
            scaled = np.array(entry["orders"]) / entry["sigma"]
            axis.plot(scaled, entry["label"], color=color, label=f"any number of classes, σ = {entry['sigma']:g}")
            axis.plot(scaled, entry["two_classes"], "--", color=color, label=f"two classes, σ = {entry['sigma']:g}")
        axis.axhline(1.0, color="black", linewidth=1.0, label="by the noisy counts")
        axis.set(xlabel="Rényi order ÷ σ", ylabel="cost ÷ cost of the counts", ylim=(0.5, 1.05))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)


def page(folder: Path) -> str:
    costs = pages.read_json(folder / "label.json")
    comparisons = Comparison.read(folder / "pluralities.json")
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
        "winners": [_winner(item) for item in comparisons if item.prior == "dirichlet:1" and item.classes == SHOWN],
        "wins": ", ".join(f"{name} in {count}" for name, count in wins),
    }
    return pages.filled("aggregators", facts, template="plurality")


def _winner(item: Comparison) -> pages.Row:
    counts = item.of(BY_COUNTS)
    by_counts = None if counts is None else counts["right"]
    return {**item.workload, "best": item.best, "by_counts": by_counts, "coin": item.coin, "at_most": item.at_most}
