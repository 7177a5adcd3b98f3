"""Compare our estimators with other private classifiers at equal budgets (needs the extra benchmark).

python -m experiments estimators --recompute --figure wine --figure digits      # minutes, no download
python -m experiments estimators --recompute --figure adult --figure mnist      # longer

All settings are fixed in advance. The rows of the six data sets are scaled to [-1, 1] by bounds that all contenders
treat as public: the range of each column, rounded outwards to one digit, as a domain expert might state it. The bounds
come from the rows, and no guarantee, ours or diffprivlib's, covers that. Images are averaged over 2 × 2 pixels.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError
from darrm.estimators import PATEClassifier, PrivateModelsVotingClassifier, PrivateVotingClassifier
from darrm.numerics import Array
from darrm.util import checks
from darrm.util.extras import Untyped, require
from darrm.util.figures import COLORS, GRAY, save_figure
from experiments import datasets, pages
from experiments.pages import Row

NAME = "estimators"
SGD = "DP-SGD"  # one model, without a vote
EPSILONS = (0.5, 1, 2, 4, 8)
SEEDS = 10
MIN_SHARE_OF_CELLS = 2 / 3  # for a claim to hold
MAX_QUESTIONS, MAX_PUBLIC = 100, 500  # and each at most a fifth of the rows
TITLES = {
    "wine": "wine",
    "breast-cancer": "breast cancer",
    "digits": "digits",
    "synthetic": "synthetic of seven classes",
    "adult": "Adult",
    "mnist": "MNIST 5 against 8",
}
DELTA = 1e-5
ROWS_PER_TEACHER, MIN_TEACHERS, MAX_TEACHERS = 25, 10, 250
STUDENT_ANSWERS = 50  # labels for a student
MODELS = 3  # private models that vote
STEPS, BATCH, LEARNING_RATE = 100, 250, 2.0  # of DP-SGD
PRIOR_NAME = "dirichlet:0.1"  # teachers mostly agree
DARRM, DIFFPRIVLIB, NON_PRIVATE = "ours", "diffprivlib", "not private"
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Private rows with labels, public rows without labels, and questions with answers."""

    x: Array  # (N, d) in [-1, 1]
    y: Labels  # (N,)
    public: Array
    questions: Array
    answers: Labels
    classes: int


def load(name: str) -> tuple[Array, Labels]:
    """Load all rows of a data set, scaled to [-1, 1], and their classes as whole numbers from 0."""
    sets = require("sklearn.datasets")
    if name == "synthetic":
        options = {"n_informative": 10, "n_classes": 7, "n_clusters_per_class": 1, "class_sep": 1.5, "random_state": 37}
        return scale_to_bounds(*sets.make_classification(10_000, 20, **options))
    if name not in ("adult", "mnist"):
        return scale_to_bounds(*getattr(sets, f"load_{name.replace('-', '_')}")(return_X_y=True))
    data = datasets.load(name)
    x, y = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    if name == "adult":
        return scale_to_bounds(x.astype(np.float64), y)
    averaged = x[:, 0].astype(np.float64).reshape(len(x), 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(x), -1)
    return 2.0 * averaged - 1.0, y


def scale_to_bounds(x: Array, y: Labels) -> tuple[Array, Labels]:
    """Scale columns to [-1, 1] by their rounded ranges.

    >>> scale_to_bounds(np.array([[0.0, 3.0], [7.0, 3.0], [3.5, 3.0]]), np.arange(3))[0].tolist()
    [[-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
    """
    low, high = round_outwards(x.min(axis=0), np.floor), round_outwards(x.max(axis=0), np.ceil)
    low = np.where(low == high, 0.0, low)
    width = np.where(low == high, 1.0, high - low)
    return 2.0 * (x - low) / width - 1.0, np.asarray(y, dtype=np.int64)


def round_outwards(bounds: Array, rounding: np.ufunc) -> Array:
    """Round numbers to one digit, up or down by ``rounding``.

    >>> round_outwards(np.array([0.0, 7.2, 1234.0, -31.0]), np.ceil).tolist()
    [0.0, 8.0, 2000.0, -30.0]
    """
    digit = 10.0 ** np.floor(np.log10(np.maximum(np.abs(bounds), 1e-12)))
    return np.asarray(rounding(bounds / digit) * digit)


def split(name: str, seed: int) -> Split:
    """Split a data set at random into private rows, public rows, and questions."""
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(x))
    questions, public = min(MAX_QUESTIONS, len(x) // 5), min(MAX_PUBLIC, len(x) // 5)
    question_rows, public_rows, private_rows = np.split(order, [questions, questions + public])
    return Split(x[private_rows], y[private_rows], x[public_rows], x[question_rows], y[question_rows], int(y.max()) + 1)


def normalize_rows(x: Array) -> Array:
    """Add a column of ones and scale every row to length 1, which bounds the sensitivity."""
    rows = np.column_stack([x, np.ones(len(x))])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def choose_teachers(rows: int) -> int:
    return min(MAX_TEACHERS, max(MIN_TEACHERS, rows // ROWS_PER_TEACHER))


def _make_linear() -> Untyped:
    return require("sklearn.linear_model").LogisticRegression(max_iter=200)


def _list_options(data: Split, epsilon: float, seed: int) -> dict[str, Untyped]:
    """List the options that our votes and PATE share."""
    return {"epsilon": epsilon, "delta": DELTA, "classes": range(data.classes), "random_state": seed}


def _make_vote(data: Split, epsilon: float, seed: int) -> Untyped:
    options, teachers = _list_options(data, epsilon, seed), choose_teachers(len(data.x))
    return PrivateVotingClassifier(_make_linear(), teachers, max_queries=len(data.questions), **options)


def _make_pate(data: Split, epsilon: float, seed: int, **options: Untyped) -> Untyped:
    student = _make_linear() if options["aggregator"] == "best" else None
    options |= _list_options(data, epsilon, seed)
    options |= {"n_teachers": choose_teachers(len(data.x)), "max_answers": min(STUDENT_ANSWERS, len(data.public))}
    return PATEClassifier(_make_linear(), student, **options)


def _make_sgd(data: Split, epsilon: float, models: int = 1) -> Untyped:
    dpsgd, torch = require("darrm.estimators.dpsgd"), require("torch")
    width = data.x.shape[1] + 1
    return dpsgd.PrivateSGDClassifier(
        partial(torch.nn.Linear, width, data.classes, bias=False),
        range(data.classes),
        epsilon=epsilon,
        delta=DELTA,
        learning_rate=LEARNING_RATE,
        steps=STEPS,
        sampling_rate=min(1.0, BATCH / (len(data.x) // models)),
    )


def _make_private_models(data: Split, epsilon: float, seed: int) -> Untyped:
    options, model = _list_options(data, epsilon, seed), _make_sgd(data, epsilon, models=MODELS)
    return PrivateModelsVotingClassifier(model, MODELS, max_queries=len(data.questions), **options)


def _make_theirs(name: str, data: Split, epsilon: float, seed: int) -> Untyped:
    """Make a model of diffprivlib."""
    bounds = (-np.ones(data.x.shape[1]), np.ones(data.x.shape[1]))
    options: dict[str, Untyped] = {
        "LogisticRegression": {"data_norm": 1.0, "max_iter": 500, "fit_intercept": False},
        "GaussianNB": {"bounds": bounds},
        "RandomForestClassifier": {"n_estimators": 10, "bounds": bounds, "classes": list(range(data.classes))},
    }
    return getattr(require("diffprivlib.models"), name)(epsilon=epsilon, random_state=seed, **options[name])


CONTENDERS: dict[str, tuple[str, Callable[[Split, float, int], Untyped]]] = {
    "vote": (DARRM, _make_vote),
    "PATE, best": (DARRM, partial(_make_pate, aggregator="best")),
    "PATE, tested": (DARRM, partial(_make_pate, aggregator="best", accounting="tested", votes_look_like=PRIOR_NAME)),
    "PATE, confident": (DARRM, partial(_make_pate, aggregator="confident")),
    "private models": (DARRM, _make_private_models),
    "DP-SGD": (DARRM, lambda data, epsilon, _: _make_sgd(data, epsilon)),  # its noise has no seed
    "LogisticRegression": (DIFFPRIVLIB, partial(_make_theirs, "LogisticRegression")),
    "GaussianNB": (DIFFPRIVLIB, partial(_make_theirs, "GaussianNB")),
    "RandomForest": (DIFFPRIVLIB, partial(_make_theirs, "RandomForestClassifier")),
    "a model without noise": (NON_PRIVATE, lambda *_: _make_linear()),
    "the largest class": (NON_PRIVATE, lambda *_: require("sklearn.dummy").DummyClassifier(strategy="most_frequent")),
}
NEED_UNIT_ROWS = ("private models", "DP-SGD", "LogisticRegression")


def predict(name: str, data: Split, epsilon: float, seed: int) -> Labels:
    """Train a contender and answer the questions."""
    model = CONTENDERS[name][1](data, epsilon, seed)
    prepare: Callable[[Array], Array] = normalize_rows if name in NEED_UNIT_ROWS else np.asarray
    options = {"X_public": data.public} if name.startswith("PATE") else {}
    return np.asarray(model.fit(prepare(data.x), data.y, **options).predict(prepare(data.questions)))


def measure_accuracy(name: str, data: Split, epsilon: float, seed: int) -> float | None:
    """Return a contender's accuracy on the questions, or None if no plan fits the budget."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence, bounds, and students without answers
        try:
            return float(np.mean(predict(name, data, epsilon, seed) == data.answers))
        except PlanError:
            return None


def compute_result(name: str, *, seeds: int) -> Row:
    """Measure the accuracy of every contender at every budget for each seed."""
    splits = [split(name, seed) for seed in range(seeds)]
    first_split = splits[0]
    return {
        "title": TITLES[name],
        "rows": len(first_split.x),
        "columns": first_split.x.shape[1],
        "classes": first_split.classes,
        "public": len(first_split.public),
        "questions": len(first_split.questions),
        "teachers": choose_teachers(len(first_split.x)),
        "seeds": len(splits),
        "cells": [
            {
                "epsilon": epsilon,
                "right": {
                    contender: [measure_accuracy(contender, data, epsilon, seed) for seed, data in enumerate(splits)]
                    for contender in CONTENDERS
                },
            }
            for epsilon in EPSILONS
        ],
    }


def compute_means(cell: Row) -> dict[str, tuple[float, float]]:
    """Return mean accuracy and standard error over seeds for each contender that fits the budget."""
    shares = {name: np.array(values) for name, values in cell["right"].items() if None not in values}
    return {
        name: (float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
        for name, values in shares.items()
    }


def judge_cell(title: str, cell: Row) -> Row:
    """Find the best private contender, and those within a standard error of it."""
    means = compute_means(cell)
    private = {name: mean for name, mean in means.items() if CONTENDERS[name][0] != NON_PRIVATE}
    best = max(private, key=lambda name: private[name][0])
    equal = [name for name in private if private[name][0] >= private[best][0] - private[best][1]]
    kinds = {name: CONTENDERS[name][0] for name in equal}
    return {
        "title": title,
        "epsilon": cell["epsilon"],
        "best": best,
        "mean": private[best][0],
        "error": private[best][1],
        "level": [name for name in equal if name != best],
        "ours": DARRM in kinds.values(),
        "vote": any(kind == DARRM and name != SGD for name, kind in kinds.items()),
        "sgd": SGD in equal,
        "theirs": DIFFPRIVLIB in kinds.values(),
        "useless": private[best][0] <= means["the largest class"][0],
        "shown": [_format_mean(name, means, bold=name in equal) for name in CONTENDERS],
    }


def _format_mean(name: str, means: dict[str, tuple[float, float]], *, bold: bool) -> str:
    if name not in means:
        return "–"
    mean = f"{means[name][0]:.3f}"
    return f"**{mean}**" if bold else mean


def fill_page(results: dict[str, Row]) -> str:
    cells = {name: [judge_cell(result["title"], cell) for cell in result["cells"]] for name, result in results.items()}
    all_cells = [cell for row in cells.values() for cell in row]
    losses = Counter(cell["title"] for cell in all_cells if not cell["vote"])
    planned = len(TITLES) * len(EPSILONS)  # a missing cell counts against a claim
    counts: Row = {kind: sum(cell[kind] for cell in all_cells) for kind in ("ours", "vote", "sgd")}
    facts = {
        "holds": {kind: counts[kind] >= MIN_SHARE_OF_CELLS * planned for kind in ("ours", "vote")},
        "cells": all_cells,
        "number": len(all_cells),
        "behind": losses.total(),
        "behind_on": ", ".join(f"{title} {number}" for title, number in losses.items()) or "none",
        "planned": planned,
        "seeds": min(result["seeds"] for result in results.values()),
        "where": [
            {"title": results[name]["title"], **{kind: _list_budgets(row, kind) for kind in ("vote", "sgd", "theirs")}}
            for name, row in cells.items()
        ],
        "lost": [
            f"{cell['title']} at ε = {cell['epsilon']} ({cell['best']})" for cell in all_cells if not cell["ours"]
        ],
        "useless": [f"{cell['title']} at ε = {cell['epsilon']}" for cell in all_cells if cell["useless"]],
        "results": results,
        "contenders": list(CONTENDERS),
        "delta": f"{DELTA:g}",
        "lacks": [title for name, title in TITLES.items() if name not in results],
    }
    return pages.fill_template(NAME, counts | facts)


def _list_budgets(cells: Sequence[Row], kind: str) -> str:
    """List the ε at which a kind of contender is best on a data set, or within a standard error of the best."""
    return ", ".join(f"{cell['epsilon']}" for cell in cells if cell[kind]) or "none"


def draw(folder: Path, results: dict[str, Row]) -> None:
    """Plot accuracy over ε, one panel for each data set."""
    bright_colors = [color for color in COLORS if color != GRAY]
    colors = dict(zip(CONTENDERS, (*bright_colors, *bright_colors), strict=False))
    num_rows = (len(results) + 1) // 2  # two panels in a row are readable on a phone
    with save_figure(folder / "right.png", width=6.5, height=2.4 * num_rows + 1.1, dpi=120) as figure:
        panels = figure.subplots(num_rows, 2, sharex=True, squeeze=False).ravel()
        for result, panel in zip(results.values(), panels, strict=False):
            means_by_budget = [compute_means(cell) for cell in result["cells"]]
            for contender, (kind, _) in CONTENDERS.items():
                line = {DARRM: "o-", NON_PRIVATE: ":"}.get(kind, "s--")
                percentages = [100.0 * mean[contender][0] if contender in mean else np.nan for mean in means_by_budget]
                color = GRAY if kind == NON_PRIVATE else colors[contender]
                width = 2.5 if contender == SGD else 1.3
                panel.plot(EPSILONS, percentages, line, color=color, label=contender, markersize=4, linewidth=width)
            panel.set_title(result["title"], fontsize=9)
            pages.set_log_ticks(panel, EPSILONS)
        for panel in panels[len(results) :]:
            panel.set_axis_off()
        figure.supxlabel(f"ε, at δ = {DELTA:g}", fontsize=9)
        figure.supylabel("answers that are right, %", fontsize=9)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the selected data sets, and write the page from all stored results."""
    parser = pages.make_command_line(NAME, __doc__, figures=list(TITLES))
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"how many (default {SEEDS})")
    options = parser.parse_args(arguments)
    checks.integer_at_least(2, seeds=options.seeds, advice="a standard error needs two")
    return pages.run_figures(options, NAME, TITLES, partial(compute_result, seeds=options.seeds), fill_page, draw)
