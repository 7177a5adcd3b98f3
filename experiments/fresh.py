"""Release votes of prompts that resample private examples for every question, and compare at equal budgets.

    python -m experiments fresh --recompute --figure digits                          # seconds, no download
    python -m experiments fresh --recompute --figure mnist --figure fashion-mnist    # minutes

There is no language model: a prompt answers with the label of its nearest example, by random features from a public
seed. `darrm.prompts.ResampledPrompts` draws as this program does, with exact coins. The rivals are Gaussian noise on
the counts, and one model trained by DP-SGD on all examples; dp_accounting accounts for both. The file texts.json has
results on texts written by votes, from an earlier version of the library.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.errors import PlanError
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.plan.calibration import CalibratedMechanism
from darrm.plan.planner import find_mechanism, plan
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.subsampling import Subsampling
from darrm.training.recipes import PrivateSGD
from darrm.util.extras import require
from darrm.util.figures import BLACK, BLUE, GRAY, VERMILION, save_figure
from darrm.votes import Votes
from experiments import datasets, pages
from experiments.aggregators.settings import name_mechanism
from experiments.datasets import LabeledImages
from experiments.pages import Row
from experiments.pate.dpsgd import train_linear

NAME, EARLIER_FILE = "fresh", "texts"
FIGURES = ("digits", "mnist", "fashion-mnist", "adult")
FEATURES, SEED = 512, 33  # the public seed of features, draws and questions
BATCH, STEPS, CLIP, LEARNING_RATE, MOMENTUM = 1024, 600, 1.0, 8.0, 0.9  # of DP-SGD
DELTA, EPSILONS = "1e-5", (1, 3, 8)
PRIOR = Dirichlet(0.1)  # prompts mostly agree; fixed before any measurement
BY_LABEL = "gnmax"  # the rival with label-only accounting
FIXED_SLUGS = ("exponential", BY_LABEL, "lnmax")  # mechanisms for examples that are not resampled
PARTS_PER_VOTE = 16  # steps of the noise on counts: ties are rare, as with continuous noise
MAX_RATE, MIN_KEPT = 0.005, 0.99  # sampling rate of a person, and the aim for unchanged labels
# prompts K, average examples of a prompt, questions
PROMPTS = ((10, 4), (25, 4), (50, 4), (10, 16), (25, 16), (50, 16))
SETTINGS = tuple((K, m, queries) for queries in (1_000, 10_000) for K, m in PROMPTS)
DIGITS_SETTINGS, QUICK_SETTINGS = ((10, 4, 300), (25, 4, 300)), ((10, 4, 50),)
SHOWN_K = 25  # K of the rows on the page; the JSON has all
KINDS = {
    "ours": ("ours", BLUE),
    "gaussian": ("Gaussian noise on counts", VERMILION),
    "still": ("ours, if the examples stayed", GRAY),
}


def load(name: str) -> LabeledImages:
    """Load private examples and public questions in random order, both as features (n, d) of length 1."""
    data, rng = datasets.load(name, datasets.ALL_CLASSES), np.random.default_rng(SEED)
    weights = rng.normal(size=(data.train_x[0].size, FEATURES)).astype(np.float32)

    def normalize(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9))

    examples, questions = (
        normalize(np.maximum(normalize(x.reshape(len(x), -1)) @ weights, 0.0)).astype(np.float32)
        for x in (data.train_x, data.test_x)
    )
    order = rng.permutation(len(questions))
    return replace(data, train_x=examples, test_x=questions[order], test_y=data.test_y[order])


def count_classes(data: LabeledImages) -> int:
    return int(max(data.train_y.max(), data.test_y.max())) + 1


def collect_votes(data: LabeledImages, K: int, rate: float, queries: int, *, rng: np.random.Generator) -> Votes:
    """Let K prompts vote on ``queries`` questions, cyclically; a prompt without examples guesses."""
    people, classes, labels = len(data.train_x), count_classes(data), np.empty((queries, K), dtype=np.int64)
    for query in range(queries):
        included = rng.choice(people, rng.binomial(people, rate), replace=False)
        prompts = rng.integers(K, size=included.size)
        similarity = data.train_x[included] @ data.test_x[query % len(data.test_x)]
        order = np.lexsort((similarity, prompts))  # the last example of each prompt is its nearest
        is_nearest = np.append(np.diff(prompts[order]) > 0, True) if included.size else np.empty(0, dtype=bool)
        labels[query] = rng.integers(classes, size=K)
        labels[query, prompts[order][is_nearest]] = data.train_y[included[order[is_nearest]]]
    return Votes.from_labels(labels, classes=classes)


def average_shares(votes: Votes, answers: NDArray[np.int64], law: Array | None = None) -> dict[str, float]:
    """Compute the exact probabilities that a label has the most votes (``kept``) and is true (``accuracy``).

    ``law`` has the (Q, C) probabilities of the classes, sorted by falling votes; None means no noise.
    """
    order = np.argsort(-votes.counts, axis=1, kind="stable")
    sorted_counts = np.take_along_axis(votes.counts, order, axis=1)
    is_top = sorted_counts == sorted_counts[:, :1]
    law = is_top / is_top.sum(axis=1, keepdims=True) if law is None else law
    is_true = order == answers[:, None]
    return {"kept": float((law * is_top).sum(axis=1).mean()), "accuracy": float((law * is_true).sum(axis=1).mean())}


@cache
def find_least_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Find the least noise multiplier of ``steps`` Poisson-sampled Gaussian mechanisms, to 0.01."""
    accounting, pld = require("dp_accounting"), require("dp_accounting.pld.pld_privacy_accountant")
    relation = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

    def make_event(noise: float) -> object:
        step = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(noise))
        return accounting.SelfComposedDpEvent(step, steps)

    make_accountant = partial(pld.PLDAccountant, relation, value_discretization_interval=1e-3)
    bracket = accounting.LowerEndpointAndGuess(0.2, 0.4)
    return float(accounting.calibrate_dp_mechanism(make_accountant, make_event, epsilon, delta, bracket, tol=0.005))


def find_count_sigma(rate: float, queries: int, epsilon: float, delta: float) -> float:
    """Return σ of the noise on each count; one changed vote changes two counts by 1."""
    return math.sqrt(2.0) * find_least_noise(rate, queries, epsilon, delta)


def measure_private_model(data: LabeledImages, epsilon: float, delta: float, *, rng: np.random.Generator) -> float:
    """Train a linear model by DP-SGD [ACG16] on the same features, and return its accuracy."""
    rate = min(1.0, BATCH / len(data.train_x))
    recipe = PrivateSGD(LEARNING_RATE, STEPS, rate, find_least_noise(rate, STEPS, epsilon, delta), CLIP)
    weights = train_linear(data.train_x, data.train_y, count_classes(data), recipe, rng, momentum=MOMENTUM)
    return float(np.mean(np.argmax(data.test_x @ weights, axis=1) == data.test_y))


def compute_rows(data: LabeledImages, K: int, m: int, queries: int) -> list[Row]:
    """Let K prompts of m examples vote, and release their votes at every budget by every mechanism."""
    rate, delta = Fraction(K * m, len(data.train_x)), float(DELTA)
    votes = collect_votes(data, K, float(rate), queries, rng=np.random.default_rng(SEED))
    answers = data.test_y[np.arange(queries) % len(data.test_y)]
    sorted_counts = -np.sort(-votes.counts, axis=1)

    def plan_best(workload: Workload, *slugs: str) -> CalibratedMechanism:
        return plan(workload, prior=PRIOR, mechanisms=list(map(find_mechanism, slugs)) or None).best

    def measure_shares(mechanism: CalibratedMechanism) -> dict[str, float]:
        if mechanism.law is None:
            raise PlanError(f"{mechanism.name} has no law")
        return average_shares(votes, answers, mechanism.law(sorted_counts))

    rows = []
    for epsilon in EPSILONS:
        resampled = Voters(K, PrivacyParams("inf"), overlap=1, sampled=Subsampling(rate))
        work = Workload(resampled, queries, PrivacyParams(epsilon, DELTA), count_classes(data))
        best, fixed = plan_best(work), replace(work, voters=resampled.conditional_on_inclusion)
        sigma = find_count_sigma(float(rate), queries, epsilon, delta)
        gaussian_law = winning_probabilities(DiscreteGaussian(PARTS_PER_VOTE * sigma), PARTS_PER_VOTE * sorted_counts)
        row = {
            "K": K,
            "examples": m,
            "queries": queries,
            "rate": float(rate),
            "epsilon": epsilon,
            "accuracy": average_shares(votes, answers)["accuracy"],
            "family": name_mechanism(best),
            "spent": best.spent.epsilon,
            "ours": measure_shares(best),
            "still": measure_shares(plan_best(fixed, *FIXED_SLUGS)),
            "by_label": measure_shares(plan_best(work, BY_LABEL)),
            "gaussian": {"sigma": sigma, **average_shares(votes, answers, gaussian_law)},
        }
        rows.append(row)
    return rows


def measure(name: str, *, quick: bool) -> Row:
    """Measure all settings of a data set, and a DP-SGD model on the same examples."""
    data, rng = load(name), np.random.default_rng(SEED)
    settings = QUICK_SETTINGS if quick else DIGITS_SETTINGS if name == "digits" else SETTINGS
    rows = [row for setting in settings for row in compute_rows(data, *setting)]
    models = {str(epsilon): measure_private_model(data, epsilon, float(DELTA), rng=rng) for epsilon in EPSILONS}
    return {"title": name, "people": len(data.train_x), "classes": count_classes(data), "rows": rows, "models": models}


def fill_page(results: dict[str, Row]) -> str:
    texts = results.pop(EARLIER_FILE, None)
    for result in results.values():
        last_queries = result["rows"][-1]["queries"]
        shown_rows = [row for row in result["rows"] if row["K"] == SHOWN_K and row["queries"] == last_queries]
        result["shown"] = shown_rows or result["rows"]
        for row in result["rows"]:
            row["model"] = result["models"][str(row["epsilon"])]
            row["gain"], row["lead"] = (
                100.0 * (row["ours"]["kept"] - row[rival]["kept"]) for rival in ("gaussian", "by_label")
            )
    rows = [row for result in results.values() for row in result["rows"]]
    gains, leads = ([row[key] for row in rows] for key in ("gain", "lead"))
    is_target = [row["epsilon"] == 3 and row["queries"] <= 1_000 and row["rate"] <= MAX_RATE for row in rows]
    kept = [row["ours"]["kept"] for row, is_aimed in zip(rows, is_target, strict=True) if is_aimed]
    facts: Row = {
        "results": list(results.values()),
        "lacks": [name for name in FIGURES if name not in results],
        "number": len(rows),
        "aimed": len(kept),
        "enough": sum(share >= MIN_KEPT for share in kept),
        "least": 100.0 * min(kept, default=math.nan),
        "gained": sum(gain > 0.0 for gain in gains),
        "least_gain": min(gains),
        "ahead": sum(lead > 0.0 for lead in leads),
        "level": leads.count(0.0),
        "behind": sum(lead < 0.0 for lead in leads),
        "most_lead": max(leads),
        "most_behind": -min(leads),
        "right": sum(row["model"] <= row["ours"]["accuracy"] for row in rows),
    }
    holds = {
        "kept": 0 < facts["enough"] == facts["aimed"],
        "gaussian": facts["gained"] == len(rows),
        "by_label": facts["ahead"] == len(rows),
        "model": facts["right"] == len(rows),
    }
    rival = name_mechanism(find_mechanism(BY_LABEL))
    return pages.fill_template(NAME, facts, {"holds": holds, "delta": DELTA, "rival": rival, "texts": texts})


def draw(folder: Path, results: dict[str, Row]) -> None:
    """Plot the share of unchanged labels over ε, one panel for each setting."""
    result = max(results.values(), key=lambda result: len(result["rows"]))
    panels = dict.fromkeys((row["queries"], row["K"], row["examples"]) for row in result["rows"])
    num_rows = len({queries for queries, _, _ in panels})
    columns = len(panels) // num_rows
    with save_figure(folder / "kept.png", width=2.5 * columns + 0.5, height=2.6 * num_rows + 0.9, dpi=110) as figure:
        axes = figure.subplots(num_rows, columns, sharex=True, sharey=True, squeeze=False)
        for (queries, K, m), panel in zip(panels, axes.ravel(), strict=True):
            rows = [row for row in result["rows"] if (row["queries"], row["K"], row["examples"]) == (queries, K, m)]
            for kind, (label, color) in KINDS.items():
                percentages = [100.0 * row[kind]["kept"] for row in rows]
                panel.plot([row["epsilon"] for row in rows], percentages, "o-", color=color, label=label, markersize=4)
            panel.set_title(f"{queries:,} questions, {K} × {m} examples", fontsize=8, color=BLACK)
            pages.set_log_ticks(panel, EPSILONS)
        figure.supxlabel("ε of all labels", fontsize=9)
        figure.supylabel(f"labels kept, %, {result['title']}", fontsize=9)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the selected data sets, and write the page from all stored results."""
    parser = pages.make_command_line(NAME, __doc__, quick="one setting of few questions", figures=FIGURES)
    options = parser.parse_args(arguments)
    compute = partial(measure, quick=options.quick)
    return pages.run_figures(options, NAME, FIGURES, compute, fill_page, draw, [EARLIER_FILE])
