"""Release votes of prompts with private examples resampled for every question, against rivals at equal budgets.

    python -m experiments fresh --recompute --figure digits                          # seconds, no download
    python -m experiments fresh --recompute --figure mnist --figure fashion-mnist    # minutes

No language model is at hand: a prompt answers as the nearest of its few examples. Each data set is a figure. The file
texts.json has the numbers of texts written by votes, measured by an earlier version of the library.

Distances use random features with a public seed, fitted to nothing. A separate coin draws each person for a question,
and a separate draw assigns them to a prompt, as in `darrm.prompts.ResampledPrompts` with exact coins. The rivals are
Gaussian noise on the counts, and one model trained by DP-SGD on all examples; dp_accounting accounts for both.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from darrm.plan.planner import named, plan
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.subsampling import Subsampling
from darrm.training.recipes import PrivateSGD
from darrm.util.extras import require
from darrm.util.figures import BLACK, BLUE, GRAY, VERMILION, saved_figure
from darrm.votes import Votes
from experiments import datasets, pages
from experiments.aggregators.settings import name_of
from experiments.pages import Row
from experiments.pate.dpsgd import train_linear

NAME = "fresh"
EARLIER = "texts"
FIGURES = ("digits", "mnist", "fashion-mnist", "adult")
FEATURES, SEED = 512, 33  # the seed is public: of the features, the draws and the questions
BATCH, STEPS, CLIP, RATE, MOMENTUM = 1024, 600, 1.0, 8.0, 0.9  # of DP-SGD
DELTA, EPSILONS = "1e-5", (1, 3, 8)
PRIOR = Dirichlet(0.1)  # prompts agree more often than not: fixed before any of them is asked
BY_LABEL = "gnmax"  # the rival whose noise is charged for its labels, as ours
FIXED = ("exponential", BY_LABEL, "lnmax")  # tried with fixed examples
PARTS = 16  # of a vote
SELDOM, ENOUGH = 0.005, 0.99  # how often a person is among the examples, and the aim of labels kept
KINDS = {
    "ours": ("ours", BLUE),
    "gaussian": ("Gaussian noise on counts", VERMILION),
    "still": ("ours, if the examples stayed", GRAY),
}
Features = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Examples:
    """Private examples, one a person, and public questions with their answers, all as features of length 1."""

    name: str
    x: Features  # (N, d)
    y: Labels  # (N,)
    questions: Features  # (Q, d)
    answers: Labels  # (Q,)

    @property
    def classes(self) -> int:
        return int(max(self.y.max(), self.answers.max())) + 1


def load(name: str) -> Examples:
    """Load examples and questions of a data set; `experiments.datasets` says where from."""
    data = datasets.load(name, datasets.ALL_CLASSES)
    rng = np.random.default_rng(SEED)
    x, questions = (part.reshape(len(part), -1) for part in (data.train_x, data.test_x))
    weights = rng.normal(size=(x.shape[1], FEATURES)).astype(np.float32)
    order = rng.permutation(len(questions))
    return Examples(name, _features(x, weights), data.train_y, _features(questions, weights)[order], data.test_y[order])


def _features(x: Features, weights: Features) -> Features:
    """Rectify random projections of vectors of length 1: (n, p) → (n, d), of length 1."""
    return _scaled(np.maximum(_scaled(x) @ weights, 0.0)).astype(np.float32)


def _scaled(x: Features) -> Features:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9))


def votes_of(examples: Examples, K: int, rate: float, queries: int, *, rng: np.random.Generator) -> Votes:
    """Let K prompts vote on the first questions, cyclically if there are fewer; an empty one guesses."""
    people, labels = len(examples.x), np.empty((queries, K), dtype=np.int64)
    for query in range(queries):
        drawn = rng.choice(people, rng.binomial(people, rate), replace=False)
        prompts = rng.integers(K, size=drawn.size)
        similarity = examples.x[drawn] @ examples.questions[query % len(examples.questions)]
        order = np.lexsort((similarity, prompts))  # the last example of each prompt is its nearest
        last = np.append(np.diff(prompts[order]) > 0, True) if drawn.size else np.empty(0, dtype=bool)
        labels[query] = rng.integers(examples.classes, size=K)
        labels[query, prompts[order][last]] = examples.y[drawn[order[last]]]
    return Votes.of_labels(labels, classes=examples.classes)


def shares(votes: Votes, answers: Labels, law: Array | None = None) -> dict[str, float]:
    """Average how often labels have the most votes (``kept``), and how often they are true (``accuracy``), exactly.

    ``law`` has the (Q, C) probabilities of the classes in falling order of their votes; None for the votes alone.
    """
    order = np.argsort(-votes.counts, axis=1, kind="stable")
    falling = np.take_along_axis(votes.counts, order, axis=1)
    leads = falling == falling[:, :1]
    law = leads / leads.sum(axis=1, keepdims=True) if law is None else law
    right = order == answers[:, None]
    return {"kept": float((law * leads).sum(axis=1).mean()), "accuracy": float((law * right).sum(axis=1).mean())}


@cache
def least_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Find the least noise multiplier of Poisson-sampled Gaussian mechanisms, to a hundredth."""
    accounting, pld = require("dp_accounting"), require("dp_accounting.pld.pld_privacy_accountant")
    relation = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    found: float = accounting.calibrate_dp_mechanism(
        partial(pld.PLDAccountant, relation, value_discretization_interval=1e-3),
        lambda noise: accounting.SelfComposedDpEvent(
            accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(noise)), steps
        ),
        epsilon,
        delta,
        accounting.LowerEndpointAndGuess(0.2, 0.4),
        tol=0.005,
    )
    return found


def gaussian_counts(rate: float, queries: int, epsilon: float, delta: float) -> float:
    """Return σ of the noise on every count of private in-context learning: one moved vote changes two counts by 1."""
    return math.sqrt(2.0) * least_noise(rate, queries, epsilon, delta)


def private_model(examples: Examples, epsilon: float, delta: float, *, rng: np.random.Generator) -> float:
    """Train a linear model by DP-SGD [ACG16] on the same features, and return its share of right answers."""
    rate = min(1.0, BATCH / len(examples.x))
    recipe = PrivateSGD(RATE, STEPS, rate, least_noise(rate, STEPS, epsilon, delta), CLIP)
    weights = train_linear(examples.x, examples.y, examples.classes, recipe, rng, momentum=MOMENTUM)
    return float(np.mean(np.argmax(examples.questions @ weights, axis=1) == examples.answers))


@dataclass(frozen=True)
class Setting:
    """K prompts, the average number of examples of each, and the number of questions."""

    K: int
    examples: int
    queries: int


SETTINGS = tuple(
    Setting(K, m, queries)
    for queries in (1_000, 10_000)
    for K, m in ((10, 4), (25, 4), (50, 4), (10, 16), (25, 16), (50, 16))
)
FEW_PEOPLE = tuple(Setting(K, m, 300) for K, m in ((10, 4), (25, 4)))
QUICK = (Setting(10, 4, 50),)
SHOWN_K = 25  # of the rows on the page; the JSON has all


def rows_of(examples: Examples, setting: Setting) -> list[Row]:
    """Let prompts vote, and release their votes at every budget in every way."""
    rate = Fraction(setting.K * setting.examples, len(examples.x))
    votes = votes_of(examples, setting.K, float(rate), setting.queries, rng=np.random.default_rng(SEED))
    answers = examples.answers[np.arange(setting.queries) % len(examples.answers)]
    falling = -np.sort(-votes.counts, axis=1)

    def released(mechanism: CalibratedMechanism) -> dict[str, float]:
        if mechanism.law is None:
            raise PlanError(f"{mechanism.name} has no law")
        return shares(votes, answers, mechanism.law(falling))

    rows = []
    for epsilon in EPSILONS:
        resampled = Voters(setting.K, PrivacyParams("inf"), overlap=1, sampled=Subsampling(rate))
        work = Workload(resampled, setting.queries, PrivacyParams(epsilon, DELTA), examples.classes)
        fixed = Workload(resampled.conditional_on_inclusion, work.queries, work.total, work.classes)
        ours = _best(work)
        sigma = gaussian_counts(float(rate), setting.queries, epsilon, float(DELTA))
        # integer noise on votes of 16 parts: ties, which continuous noise never has, are rare
        noisy = winning_probabilities(DiscreteGaussian(PARTS * sigma), PARTS * falling)
        row = {
            "rate": float(rate),
            "epsilon": epsilon,
            "accuracy": shares(votes, answers)["accuracy"],
            "family": name_of(ours),
            "spent": ours.spent.epsilon,
            "ours": released(ours),
            "still": released(_best(fixed, FIXED)),
            "by_label": released(_best(work, (BY_LABEL,))),
            "gaussian": {"sigma": sigma, **shares(votes, answers, noisy)},
        }
        rows.append(asdict(setting) | row)
    return rows


def _best(workload: Workload, slugs: Sequence[str] | None = None) -> CalibratedMechanism:
    return plan(workload, prior=PRIOR, mechanisms=None if slugs is None else list(map(named, slugs))).best


def measure(name: str, *, quick: bool) -> Row:
    """Measure all settings of a data set, and a model that was trained privately on the same examples."""
    examples = load(name)
    settings = QUICK if quick else FEW_PEOPLE if name == "digits" else SETTINGS
    rows = [row for setting in settings for row in rows_of(examples, setting)]
    rng = np.random.default_rng(SEED)
    models = {str(epsilon): private_model(examples, epsilon, float(DELTA), rng=rng) for epsilon in EPSILONS}
    return {"title": name, "people": len(examples.x), "classes": examples.classes, "rows": rows, "models": models}


def page(results: dict[str, Row]) -> str:
    texts = results.pop(EARLIER, None)
    for result in results.values():
        last = result["rows"][-1]["queries"]
        shown = [row for row in result["rows"] if row["K"] == SHOWN_K and row["queries"] == last]
        result["shown"] = shown or result["rows"]
        for row in result["rows"]:
            row["model"] = result["models"][str(row["epsilon"])]
            row["gain"], row["lead"] = (
                100.0 * (row["ours"]["kept"] - row[rival]["kept"]) for rival in ("gaussian", "by_label")
            )
    rows = [row for result in results.values() for row in result["rows"]]
    aimed = [row for row in rows if row["epsilon"] == 3 and row["queries"] <= 1_000 and row["rate"] <= SELDOM]
    kept = [row["ours"]["kept"] for row in aimed]
    leads = [row["lead"] for row in rows]
    facts: Row = {
        "results": list(results.values()),
        "lacks": [name for name in FIGURES if name not in results],
        "number": len(rows),
        "aimed": len(kept),
        "enough": sum(share >= ENOUGH for share in kept),
        "least": 100.0 * min(kept, default=math.nan),
        "gained": sum(row["gain"] > 0.0 for row in rows),
        "least_gain": min(row["gain"] for row in rows),
        "ahead": sum(lead > 0.0 for lead in leads),
        "level": sum(lead == 0.0 for lead in leads),
        "behind": sum(lead < 0.0 for lead in leads),
        "most_lead": max(leads),
        "most_behind": -min(leads),
        "right": sum(row["model"] <= row["ours"]["accuracy"] for row in rows),
    }
    holds = {
        "kept": bool(kept) and min(kept) >= ENOUGH,
        "gaussian": facts["gained"] == len(rows),
        "by_label": facts["ahead"] == len(rows),
        "model": facts["right"] == len(rows),
    }
    return pages.filled(
        NAME, facts, {"holds": holds, "delta": DELTA, "rival": name_of(named(BY_LABEL)), "texts": texts}
    )


def draw(folder: Path, results: dict[str, Row]) -> None:
    """Draw the share of labels that are kept over ε, a panel for each number of prompts and questions."""
    result = max(results.values(), key=lambda result: len(result["rows"]))
    panels = dict.fromkeys((row["queries"], row["K"], row["examples"]) for row in result["rows"])
    lines = len({queries for queries, _, _ in panels})
    columns = len(panels) // lines
    with saved_figure(folder / "kept.png", width=2.5 * columns + 0.5, height=2.6 * lines + 0.9, dpi=110) as figure:
        axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for (queries, K, m), panel in zip(panels, axes.ravel(), strict=True):
            rows = [row for row in result["rows"] if (row["queries"], row["K"], row["examples"]) == (queries, K, m)]
            for kind, (words, color) in KINDS.items():
                kept = [100.0 * row[kind]["kept"] for row in rows]
                panel.plot([row["epsilon"] for row in rows], kept, "o-", color=color, label=words, markersize=4)
            panel.set_title(f"{queries:,} questions, {K} × {m} examples", fontsize=8, color=BLACK)
            panel.set_xscale("log")
            panel.set_xticks(EPSILONS, [str(epsilon) for epsilon in EPSILONS])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        figure.supxlabel("ε of all labels", fontsize=9)
        figure.supylabel(f"labels kept, %, {result['title']}", fontsize=9)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen data sets, and write the page about all that were."""
    parser = pages.command_line(NAME, __doc__, quick="one setting of few questions", figures=FIGURES)
    options = parser.parse_args(arguments)
    return pages.run_figures(options, NAME, FIGURES, partial(measure, quick=options.quick), page, draw, [EARLIER])
