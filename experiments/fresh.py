"""Release votes of prompts with private examples resampled for every question, against rivals at equal budgets.

    python -m experiments.fresh --figure digits                          # seconds, no download
    python -m experiments.fresh --figure mnist --figure fashion-mnist    # minutes
    python -m experiments.fresh --figure adult

No language model is at hand: a prompt answers as the nearest of its few examples. Writes OUTPUT/fresh/NAME.json, the
picture of all results in that folder, and OUTPUT/fresh.md.

Distances use random features with a public seed, fitted to nothing. Each person is drawn for a question by a separate
coin, and assigned to a prompt by a separate draw, as in `darrm.prompts.ResampledPrompts` with exact coins.
The rivals are Gaussian noise on the counts, and one model trained by DP-SGD on all examples; dp_accounting accounts for
both, as other people would.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.commands.command_line import run
from darrm.errors import PlanError
from darrm.noisy_max.noisy_law import winning_probabilities
from darrm.numerics import Array
from darrm.numerics.integer_noise import DiscreteGaussian
from darrm.plan.calibration import CalibratedMechanism
from darrm.plan.mechanisms import named
from darrm.plan.planner import plan
from darrm.priors import Dirichlet
from darrm.privacy import PrivacyParams
from darrm.problem import Voters, Workload
from darrm.subsampling import Subsampling
from darrm.util.figures import BLACK, BLUE, GRAY, VERMILION, saved_figure
from darrm.votes import Votes
from experiments import datasets, pages
from experiments.aggregators.settings import name_of
from experiments.census import load_adult
from experiments.pages import Claim, Row

FEATURES = 512
SEED = 33  # public: of the features, the draws and the questions
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
        """How many answers there are."""
        return int(max(self.y.max(), self.answers.max())) + 1


def load(name: str) -> Examples:
    """Load examples and questions of a data set; `experiments.datasets` says where from."""
    if name == "adult":
        table = load_adult()
        parts = table.train_x, table.train_y, table.test_x, table.test_y
    else:
        images = datasets.load(name, datasets.ALL_CLASSES)
        parts = images.train_x, images.train_y, images.test_x, images.test_y
    rng = np.random.default_rng(SEED)
    x, questions = (part.reshape(len(part), -1) for part in parts[::2])
    weights = rng.normal(size=(x.shape[1], FEATURES)).astype(np.float32)
    order = rng.permutation(len(questions))
    return Examples(name, _features(x, weights), parts[1], _features(questions, weights)[order], parts[3][order])


def _features(x: NDArray[np.float32], weights: Features) -> Features:
    """Rectify random projections of vectors of length 1: (n, p) → (n, d), of length 1."""
    rows = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    hidden = np.maximum(rows @ weights, 0.0)
    return np.asarray(hidden / np.maximum(np.linalg.norm(hidden, axis=1, keepdims=True), 1e-9), dtype=np.float32)


def votes_of(examples: Examples, K: int, rate: float, queries: int, *, rng: np.random.Generator) -> Votes:
    """Let K prompts vote on the first questions, cyclically if there are fewer; an empty one guesses."""
    people, labels = len(examples.x), np.empty((queries, K), dtype=np.int64)
    for query in range(queries):
        drawn = rng.choice(people, rng.binomial(people, rate), replace=False)
        seats = rng.integers(K, size=drawn.size)
        near = examples.x[drawn] @ examples.questions[query % len(examples.questions)]
        nearest = np.lexsort((near, seats))  # the last of each seat is its nearest
        last = np.append(np.diff(seats[nearest]) > 0, True) if drawn.size else np.empty(0, dtype=bool)
        labels[query] = rng.integers(examples.classes, size=K)
        labels[query, seats[nearest][last]] = examples.y[drawn[nearest[last]]]
    return Votes.of_labels(labels, classes=examples.classes)


def true_labels(examples: Examples, queries: int) -> Labels:
    """Return the answers to the questions that `votes_of` asks."""
    return examples.answers[np.arange(queries) % len(examples.answers)]


@dataclass(frozen=True)
class Told:
    """How often labels with a law are those of the votes, any of several with the most, and how often they are true."""

    kept: float
    accuracy: float


def told(votes: Votes, answers: Labels, probabilities: Array | None = None) -> Told:
    """Add up exactly: (Q, C) probabilities of the classes in falling order of their votes; None for the votes alone."""
    order = np.argsort(-votes.counts, axis=1, kind="stable")
    falling = np.take_along_axis(votes.counts, order, axis=1)
    leads = falling == falling[:, :1]
    law = leads / leads.sum(axis=1, keepdims=True) if probabilities is None else probabilities
    right = order == answers[:, None]
    return Told(float((law * leads).sum(axis=1).mean()), float((law * right).sum(axis=1).mean()))


BATCH, STEPS, CLIP, RATE, MOMENTUM = 1024, 600, 1.0, 8.0, 0.9
_INTERVAL = 1e-3  # of loss distributions


def _accountant(rate: float, noise: float, steps: int) -> Any:  # noqa: ANN401 (of a library without types)
    import dp_accounting  # noqa: PLC0415 (a second)
    from dp_accounting.pld import pld_privacy_accountant  # noqa: PLC0415

    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    account = pld_privacy_accountant.PLDAccountant(relation, value_discretization_interval=_INTERVAL)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return account.compose(event, steps)


@lru_cache(maxsize=256)
def least_noise(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Find the least noise multiplier of Poisson-sampled Gaussian mechanisms, rounded up to a hundredth."""
    low, high = 0.2, 0.4
    while _accountant(rate, high, steps).get_epsilon(delta) > epsilon:
        low, high = high, 2.0 * high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        admitted = _accountant(rate, middle, steps).get_epsilon(delta) <= epsilon
        low, high = (low, middle) if admitted else (middle, high)
    return high


def gaussian_counts(rate: float, queries: int, epsilon: float, delta: float) -> float:
    """Return σ of the noise on every count of private in-context learning: one moved vote changes two counts by 1."""
    return math.sqrt(2.0) * least_noise(rate, queries, epsilon, delta)


def private_model(examples: Examples, epsilon: float, delta: float, *, rng: np.random.Generator) -> float:
    """Train a linear model by DP-SGD [ACG16] on the same features, and return how many questions it answers rightly."""
    people, classes = len(examples.x), examples.classes
    rate = min(1.0, BATCH / people)
    noise = least_noise(rate, STEPS, epsilon, delta) * CLIP
    weights, moving = np.zeros((2, examples.x.shape[1], classes))
    targets = np.eye(classes)[examples.y]
    for _ in range(STEPS):
        batch = np.flatnonzero(rng.random(people) < rate)
        summed = clipped_sum(examples.x[batch].astype(np.float64), targets[batch], weights)
        gradient = (summed + noise * rng.normal(size=weights.shape)) / (rate * people)
        moving = MOMENTUM * moving + gradient
        weights = weights - RATE * moving
    guessed = np.argmax(examples.questions.astype(np.float64) @ weights, axis=1)
    return float(np.mean(guessed == examples.answers))


def clipped_sum(x: Array, targets: Array, weights: Array) -> Array:
    """Add up the gradients of people whose features have length 1, none of more than ``CLIP``: shape of ``weights``."""
    wrong = _softmax(x @ weights) - targets  # a gradient is the outer product of features and these
    clipped = wrong * np.minimum(1.0, CLIP / np.maximum(np.linalg.norm(wrong, axis=1, keepdims=True), 1e-12))
    return np.asarray(x.T @ clipped)


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


NAME, PICTURE = "fresh", "kept.png"
FIGURES = ("digits", "mnist", "fashion-mnist", "adult")
DELTA = "1e-5"
EPSILONS = (1, 3, 8)
PRIOR = Dirichlet(0.1)  # prompts agree more often than not: said before any of them is asked
BY_LABEL = "gnmax"  # the rival whose noise is charged for its labels, as ours
STILL = ("exponential", BY_LABEL, "lnmax")  # tried with fixed examples
PARTS = 16  # of a vote
RARELY = 0.005  # a person is among the examples of a question
KINDS = {
    "ours": ("ours", BLUE),
    "gaussian": ("Gaussian noise on counts", VERMILION),
    "still": ("ours, if the examples stayed", GRAY),
}


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
SMALL = tuple(Setting(K, m, 300) for K, m in ((10, 4), (25, 4)))
QUICK = (Setting(10, 4, 50),)


def settings_of(name: str, *, quick: bool) -> tuple[Setting, ...]:
    """Choose the settings of a data set: few questions for few people."""
    return QUICK if quick else SMALL if name == "digits" else SETTINGS


def rows_of(examples: Examples, setting: Setting) -> list[Row]:
    """Let prompts vote, and release their votes at every budget in every way."""
    rate = Fraction(setting.K * setting.examples, len(examples.x))
    rng = np.random.default_rng(SEED)
    votes = votes_of(examples, setting.K, float(rate), setting.queries, rng=rng)
    answers = true_labels(examples, setting.queries)
    rows = []
    for epsilon in EPSILONS:
        total = PrivacyParams(epsilon, DELTA)
        sampled = Voters(setting.K, PrivacyParams("inf"), overlap=1, sampled=Subsampling(rate))
        drawn = Workload(sampled, setting.queries, total, examples.classes)
        ours, by_label = best(drawn), best(drawn, (BY_LABEL,))
        still = best(Workload(sampled.conditional_on_inclusion, setting.queries, total, examples.classes), STILL)
        sigma = gaussian_counts(float(rate), setting.queries, epsilon, float(DELTA))
        falling = -np.sort(-votes.counts, axis=1)
        # integer noise on votes of 16 parts: ties, which continuous noise never has, are rare
        noisy = told(votes, answers, winning_probabilities(DiscreteGaussian(PARTS * sigma), PARTS * falling))
        rows.append(
            {
                **asdict(setting),
                "rate": float(rate),
                "epsilon": epsilon,
                "accuracy": told(votes, answers).accuracy,
                "family": name_of(ours),
                "spent": ours.spent.epsilon,
                "ours": asdict(released(ours, votes, answers)),
                "still": asdict(released(still, votes, answers)),
                "by_label": asdict(released(by_label, votes, answers)),
                "gaussian": {"sigma": sigma, **asdict(noisy)},
            }
        )
    return rows


def best(workload: Workload, slugs: Sequence[str] | None = None) -> CalibratedMechanism:
    """Plan with the prior that was fixed in advance."""
    return plan(workload, prior=PRIOR, mechanisms=None if slugs is None else list(map(named, slugs))).best


def released(option: CalibratedMechanism, votes: Votes, answers: np.ndarray) -> Told:
    """Average the accuracy of a planned release on these votes."""
    if option.law is None:
        raise PlanError(f"{option.name} has no law")
    falling = -np.sort(-votes.counts, axis=1)
    law = option.law(falling)
    # of two classes a law is that of the number of ones; else of each class
    return told(votes, answers, law)


def result_of(name: str, *, quick: bool) -> Row:
    """Measure all settings of a data set, and a model that was trained privately on the same examples."""
    examples = load(name)
    rows = [row for setting in settings_of(name, quick=quick) for row in rows_of(examples, setting)]
    rng = np.random.default_rng(SEED)
    models = {str(epsilon): private_model(examples, epsilon, float(DELTA), rng=rng) for epsilon in EPSILONS}
    return {"title": name, "people": len(examples.x), "classes": examples.classes, "rows": rows, "models": models}


def results_of(folder: Path) -> list[Row]:
    """Read the results that lie in a folder."""
    results = [pages.read_json(path) for name in FIGURES if (path := folder / f"{name}.json").is_file()]
    if not results:
        raise ValueError(f"{folder} holds no results: run it without --page first")
    return results


def claims_of(results: Sequence[Row]) -> list[Claim]:
    """Compare the measured numbers with the aims."""
    rows = [row for result in results for row in result["rows"]]
    aimed = [row for row in rows if row["epsilon"] == 3 and row["queries"] <= 1_000 and row["rate"] <= RARELY]
    kept = [row["ours"]["kept"] for row in aimed]
    gains = [row["gaussian"]["kept"] - row["ours"]["kept"] for row in rows]
    rival = [row["ours"]["kept"] - row["by_label"]["kept"] for row in rows]
    models = [
        (result["models"][str(row["epsilon"])], row["ours"]["accuracy"]) for result in results for row in result["rows"]
    ]
    better = sum(model > prompts for model, prompts in models)
    return [
        Claim(
            f"at (3, {DELTA}), up to 1,000 questions, a person in {RARELY:g} of them at most, 99 % of labels are kept",
            f"in {sum(share >= 0.99 for share in kept)} of {len(kept)}, {100.0 * min(kept):.2f} % at least"
            if kept
            else "no such setting",
            bool(kept) and min(kept) >= 0.99,
        ),
        Claim(
            "fewer labels are lost than with Gaussian noise that is charged for its counts, in every setting",
            f"in {sum(gain < 0.0 for gain in gains)} of {len(gains)}; {-100.0 * max(gains):.2f} points more at least",
            max(gains) < 0.0,
        ),
        Claim(
            f"fewer labels are lost than with {name_of(named(BY_LABEL))}, drawn as rarely and charged for its labels, "
            "in every setting",
            f"in {sum(gain > 0.0 for gain in rival)} of {len(rival)}, as many in {sum(gain == 0.0 for gain in rival)}, "
            f"more in {sum(gain < 0.0 for gain in rival)}: {100.0 * max(rival):.2f} points fewer at most, "
            f"{-100.0 * min(rival):.2f} more",
            min(rival) > 0.0,
        ),
        Claim(
            "the released labels are right more often than those of one model by DP-SGD, at the same budget",
            f"in {len(models) - better} of {len(models)} rows",
            better == 0,
        ),
    ]


def page(folder: Path) -> str:
    """Fill the page."""
    results = results_of(folder)
    facts = {
        "claims": pages.claims_table(claims_of(results)),
        "results": [
            {**result, "rows": [{**row, "model": result["models"][str(row["epsilon"])]} for row in result["rows"]]}
            for result in results
        ],
        "delta": DELTA,
        "lacks": [name for name in FIGURES if not (folder / f"{name}.json").is_file()],
        "worse": claims_of(results)[-1],
    }
    return pages.filled(NAME, facts)


def draw(path: Path, results: Sequence[Row]) -> None:
    """Draw the share of labels that are lost over ε, a panel for each number of prompts and questions."""
    result = max(results, key=lambda result: len(result["rows"]))
    panels = dict.fromkeys((row["queries"], row["K"], row["examples"]) for row in result["rows"])
    columns = max(1, len(panels) // len({queries for queries, _, _ in panels}))
    with saved_figure(path, width=2.5 * columns + 0.5, height=2.6 * (len(panels) // columns) + 0.9, dpi=110) as figure:
        axes = figure.subplots(len(panels) // columns, columns, sharex=True, sharey=True, squeeze=False)
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
    """Measure the data sets that were asked for, and write the page about all that were."""
    parser = pages.command_line(NAME, __doc__ or "", quick="one setting of few questions", figures=list(FIGURES))
    options = parser.parse_args(arguments)
    shown = page, lambda folder: draw(folder / PICTURE, results_of(folder))
    return pages.run_figures(options, NAME, FIGURES, partial(result_of, quick=options.quick), shown)


if __name__ == "__main__":
    sys.exit(run(main))
