"""Measure for which γ the costs of single questions add up when trained models answer.

    python -m experiments.boundary --quick     # seconds
    python -m experiments.boundary             # two minutes

Writes OUTPUT/boundary/shapes.json and searches.json, and the page OUTPUT/boundary.md made from them.

**Models.** A pure ε-private model is a post-processing of one randomized-response bit [KOV15, Theorem 3.3]; the largest
ratio of two laws of the labels is attained at extreme points, so that a model has two possible answer vectors, the one
with probability hi = e^ε/(1 + e^ε) on one data set and lo = 1 − hi on the other. Q questions have 4^Q such models, one
vector twice included, and K of them are a multiset. γ treats 0 and 1 alike: it is enough that all labels are 1.

**The same question.** Where every model says one bit to all Q questions, s of the others say 1 and n say their bit, all
labels are 1 with probability E[h(s + Bin(n, hi))^Q], h(l) = (1 + g(l))/2. For Q = 1 and a monotone γ this is every
model there is: g is non-decreasing, so that only the corners (0, 0), (1, 1), (hi, lo) can be worst.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from darrm.commands.command_line import run
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics import Array
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from experiments import pages
from experiments.pages import Row


@dataclass(frozen=True)
class Shape:
    """A γ, the number of questions, and the models: all models, or one-bit ones that agree."""

    kind: str  # falling (all models); optimum, unanimity or ramp (the same question)
    shape: str
    K: int
    epsilon: float
    questions: int
    gamma: NoiseFunction


def falling(K: int, epsilon: float, questions: int, *half: float) -> Shape:
    """Take γ(l) for l > K/2."""
    words = "falling: " + ", ".join(f"{value:.4f}" for value in half)
    return Shape("falling", words, K, epsilon, questions, NoiseFunction(K, half))


def unanimity(K: int, epsilon: float, questions: int, value: float) -> Shape:
    """Take the γ that is ``value`` where all agree and 0 elsewhere."""
    gamma = NoiseFunction(K, [*[0.0] * (K - K // 2 - 1), value])
    return Shape("unanimity", "unanimity", K, epsilon, questions, gamma)


def ramp(K: int, epsilon: float, questions: int, *, step: tuple[int, float], rise: tuple[int, int, float]) -> Shape:
    """Take the γ that is 0 up to some votes, then makes a step, and rises from start to end by a slope a vote.

    >>> ramp(5, 0.1, 2, step=(4, 0.2), rise=(4, 5, 0.1)).gamma.half.round(3).tolist()
    [0.0, 0.2, 0.3]
    """
    (first, height), (start, end, slope) = step, rise
    votes = np.arange(K // 2 + 1, K + 1)
    gamma = NoiseFunction(K, np.where(votes < first, 0.0, height) + slope * np.clip(votes - start, 0, end - start))
    words = f"ramp: {height} from {first}, then {slope} for each vote above {start}, up to {end}"
    return Shape("ramp", words, K, epsilon, questions, gamma)


def optimum(K: int, questions: int) -> Shape:
    """Take the optimal γ for m = 1 and ε = 0.1; by its certificate a question costs at most one voter."""
    table = optimize_table(Problem.from_allowance(Voters(K, PrivacyParams("0.1")), 1))
    return Shape("optimum", "optimum, m = 1", K, 0.1, questions, table.gamma)


SHAPES = (
    falling(3, 0.1, 2, 1.0, 1 / 3),
    falling(3, 2.0, 2, 1.0, 0.7653),
    optimum(51, 10),
    optimum(101, 21),
    optimum(201, 13),
    unanimity(5, 1.0, 100, 0.05),
    unanimity(9, 0.3, 150, 0.05),
    unanimity(11, 0.1, 200, 0.05),
    ramp(51, 0.5, 2, step=(32, 0.367), rise=(34, 43, 0.0199)),
    ramp(101, 0.3, 5, step=(60, 0.202), rise=(59, 83, 0.0118)),
    ramp(201, 0.01, 8, step=(126, 0.155), rise=(131, 156, 0.0092)),
    ramp(401, 0.1, 31, step=(240, 0.118), rise=(249, 296, 0.00508)),
    ramp(401, 0.1, 14, step=(249, 0.229), rise=(258, 286, 0.00898)),
    ramp(1001, 0.1, 16, step=(661, 0.22), rise=(669, 721, 0.00524)),
    ramp(1001, 0.1, 64, step=(642, 0.0939), rise=(660, 736, 0.00253)),
)


def truths(gamma: NoiseFunction) -> Array:
    """Return h(0) … h(K), the probability of the label 1 given the number of ones."""
    return np.asarray((1.0 + gamma.signed) / 2.0)


def same_question(gamma: NoiseFunction, epsilon: float, questions: int) -> float:
    """Return the loss of the same question asked ``questions`` times of one-bit models, by Pascal's triangle.

    >>> round(same_question(NoiseFunction(5, [0, 0, 0.05]), 1.0, 1), 4)
    0.0237
    >>> round(same_question(NoiseFunction(5, [0, 0, 0.05]), 1.0, 100), 3)
    3.365
    """
    hi, lo = 1.0 / (1.0 + math.exp(-epsilon)), 1.0 / (1.0 + math.exp(epsilon))
    h = truths(gamma)
    up = down = (h / h.max()) ** questions
    worst = 0.0
    while len(up) > 1:
        up, down = lo * up[:-1] + hi * up[1:], hi * down[:-1] + lo * down[1:]
        worst = max(worst, _log_ratio(up, down))
    return worst


class AllModels:
    """Every multiset of K models that answer Q questions: the laws of the numbers of ones, as rows.

    >>> AllModels(3, 2, 0.1).rows
    816
    """

    def __init__(self, K: int, questions: int, epsilon: float) -> None:
        hi = 1.0 / (1.0 + math.exp(-epsilon))
        vectors = list(product((0, 1), repeat=questions))
        models = list(product(vectors, vectors))
        laws = np.zeros((1, 2, *(K + 1,) * questions))
        laws.reshape(2, -1)[:, 0] = 1.0  # no voter yet, no ones
        latest = np.zeros(1, dtype=np.int64)  # the last model of each multiset: the next is none before it
        weights = np.array([hi, 1.0 - hi]).reshape(1, 2, *(1,) * questions)
        for _ in range(K):
            grown = [
                weights * _shifted(laws[latest <= kind], first)
                + weights[:, ::-1] * _shifted(laws[latest <= kind], other)
                for kind, (first, other) in enumerate(models)
            ]
            latest = np.repeat(np.arange(len(models)), [len(part) for part in grown])
            laws = np.concatenate(grown)
        self.K, self.questions, self.epsilon, self.rows = K, questions, epsilon, len(laws)
        self._up, self._down = (laws[:, side].reshape(self.rows, -1) for side in (0, 1))

    def loss(self, gamma: NoiseFunction) -> float:
        """Return the worst loss of the labels of all questions."""
        h = truths(gamma)
        labels = h
        for _ in range(self.questions - 1):
            labels = np.multiply.outer(labels, h)
        return _log_ratio(self._up @ labels.ravel(), self._down @ labels.ravel())


def _shifted(laws: Array, answers: tuple[int, ...]) -> Array:
    """Add a model's answers to the numbers of ones; no number passes K."""
    return np.roll(laws, answers, axis=tuple(range(2, laws.ndim)))


def _log_ratio(up: Array, down: Array) -> float:
    """Return the largest log(up / down); both are 0 together."""
    seen = down > 0.0
    return float(np.log(np.max(up[seen] / down[seen], initial=1.0)))


@dataclass(frozen=True)
class Search:
    """Which shapes to search: monotone ones, or all. A question counts as costing one voter at least."""

    K: int
    questions: int
    epsilon: float
    monotone: bool
    shapes: int  # random starts

    def worst(self) -> Row:
        """Climb from every start; return the worst ratio of loss to sum, its γ and the cost of one question."""
        one, many = AllModels(self.K, 1, self.epsilon), AllModels(self.K, self.questions, self.epsilon)
        rng = np.random.default_rng([self.K, self.questions, self.monotone])

        def ratio(point: Array) -> float:
            gamma = self.gamma(point)
            cost = max(one.loss(gamma), self.epsilon)
            return many.loss(gamma) / (self.questions * cost)

        worst, best = -1.0, np.zeros(self.K - self.K // 2)
        for _ in range(self.shapes):
            value, point = climb(ratio, rng.dirichlet(np.full(len(best) + 1, 0.7))[:-1], rng)
            if value > worst:
                worst, best = value, point
        gamma = self.gamma(best)
        cost = one.loss(gamma) / self.epsilon
        return {"models": many.rows, "worst": worst, "gamma": [float(x) for x in gamma.half], "cost": cost}

    def gamma(self, point: Array) -> NoiseFunction:
        """Return the shape of a point with entries in [0, 1]: its running sums, or the entries themselves."""
        half = np.cumsum(point) if self.monotone else point
        return NoiseFunction(self.K, np.clip(half, 0.0, 1.0))


def searches(*, quick: bool) -> list[Search]:
    """List the searches: all sizes, or the two smallest."""
    sizes = [(3, 2, 20), (4, 2, 8)] if quick else [(3, 2, 300), (4, 2, 120), (5, 2, 30), (3, 3, 6)]
    monotone = [Search(K, questions, 0.1, monotone=True, shapes=shapes) for K, questions, shapes in sizes]
    return [*monotone, Search(3, 2, 0.1, monotone=False, shapes=20), Search(4, 2, 0.1, monotone=False, shapes=8)]


def climb(ratio: Callable[[Array], float], point: Array, rng: np.random.Generator) -> tuple[float, Array]:
    """Take random steps uphill, each half as long after a dozen failures."""
    value, step, failures = ratio(point), 0.3, 0
    while step > 1e-4:
        trial = np.clip(point + step * rng.normal(size=len(point)) * (rng.random(len(point)) < 0.7), 0.0, 1.0)
        there = ratio(trial)
        if there > value:
            value, point, failures = there, trial, 0
        else:
            failures += 1
        if failures == 12:
            step, failures = step / 2, 0
    return value, point


KINDS = ("falling", "optimum", "unanimity", "ramp")
EXACT = 1e-9  # what rounding may add to a ratio
NAME = "boundary"


def measure(shape: Shape) -> Row:
    """Measure the losses of one question and of all of them."""
    one, many = (
        AllModels(shape.K, count, shape.epsilon).loss(shape.gamma)
        if shape.kind == "falling"
        else same_question(shape.gamma, shape.epsilon, count)
        for count in (1, shape.questions)
    )
    described = {name: getattr(shape, name) for name in ("kind", "shape", "K", "epsilon", "questions")}
    cost = 1.0 if shape.kind == "optimum" else one / shape.epsilon  # of the optimum the certificate knows more models
    return described | {"cost": cost, "loss": many}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, search, write."""
    options = pages.command_line(NAME, __doc__, quick="short searches: seconds").parse_args(arguments)
    folder = pages.data_folder(options, NAME)
    if not options.page:
        pages.write_json(folder / "shapes.json", [measure(shape) for shape in SHAPES])
        found = [asdict(search) | search.worst() for search in searches(quick=options.quick)]
        pages.write_json(folder / "searches.json", found)
    return pages.finish(folder, page(*(pages.read_json(folder / f"{name}.json") for name in ("shapes", "searches"))))


def page(shapes: Sequence[Row], searches: Sequence[Row]) -> str:
    """Fill the page from both tables."""
    sums = [row["questions"] * row["cost"] * row["epsilon"] for row in shapes]
    rows = [row | {"sum": total, "ratio": row["loss"] / total} for row, total in zip(shapes, sums, strict=True)]
    ratios = {kind: [row["ratio"] for row in rows if row["kind"] == kind] for kind in KINDS}
    ramps = [row for row in shapes if row["kind"] == "ramp"]
    monotone = [row for row in searches if row["monotone"]]
    facts: Row = {
        "smallest": min(row["K"] for row in ramps),
        "fails": {kind: min(ratios[kind]) > 1.0 + EXACT for kind in KINDS},
        "least": {kind: min(ratios[kind]) for kind in KINDS},
        "most": {kind: max(ratios[kind]) for kind in KINDS},
        "cheapest": min(row["cost"] for row in ramps),
        "capped": max(row["loss"] / (row["K"] * row["epsilon"]) for row in shapes),
        "excess": max(0.0, *(row["worst"] - 1.0 for row in monotone)),
        "starts": sum(row["shapes"] for row in monotone),
        "free": max(row["worst"] for row in searches if not row["monotone"]),
    }
    holds = {
        "ramp": facts["fails"]["ramp"] and facts["cheapest"] >= 1.0,
        "cap": facts["capped"] <= 1.0 + EXACT,
        "monotone": facts["excess"] <= EXACT,
        "free": facts["free"] > 1.0 + EXACT,
    }
    return pages.filled(NAME, facts, {"holds": holds, "shapes": rows, "searches": searches})


if __name__ == "__main__":
    sys.exit(run(main))
