"""Lower bounds from outside: the labels of tables, and DP-SGD teachers by canaries in one training.

    python -m experiments audits --recompute --quick --output results     # ten seconds
    python -m experiments audits --recompute                              # four minutes

Everything is drawn from fixed seeds, for a page that can be made again; an attack on a release of one's own draws from
the operating system, see `darrm.verify.attack`.

The teacher is a linear classifier of the digits with one more feature for each canary. A canary has the value `SIZE`
in its feature and 0 elsewhere, so its gradient touches two weights that no other record touches, and is clipped. Half
of the canaries, by fair coins, are in the training data; the others are blank records, whose gradient is zero: that is
the relation between neighbors that DP-SGD's accounting assumes. The auditor sees the trained weights, and guesses that
canaries with the largest weights are in, those with the smallest out.

**The bound.** From the trained model the auditor guesses r of the m coins, r fixed beforehand, and v guesses are right.
Were the training (ε, δ)-private, then

    Pr[at least v are right] ≤ β + 2mδ·α,   β = Pr[B ≥ v],   α = max over i = 1 … v of Pr[v − i ≤ B < v]/i,

with B ~ Bin(r, e^ε/(1 + e^ε)) [SNJ23, Appendix D]. For δ = 0 the proof is short: given the output and the coins before
it, the odds of a coin are at most e^ε, so a guess, which depends on the output alone, is right with probability at most
e^ε/(1 + e^ε), and v is dominated by B. A claim with a smaller ε implies one with a larger: so every ε is refuted that
is not above a refuted one.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import nn

from darrm.numerics.binomial import binomial_pmf
from darrm.numerics.bisection import bisect_safe
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release
from darrm.training import Partition, PrivateSGD, privacy_of, train_teachers
from darrm.training.network import Module
from darrm.util import checks
from darrm.verify.attack import attack
from experiments import pages
from experiments.datasets import load
from experiments.pages import Row

NAME = "audits"
SEED = 20_230_515
PLAIN = PrivacyParams("inf")
PRIVATE = PrivacyParams("0.1", "1e-5")
PROBLEMS = {
    "K = 11, each (0.1, 1e-5), m = 1": Problem.from_allowance(Voters(11, PRIVATE), 1),
    "K = 11, each (0.1, 1e-5), m = 3": Problem.from_allowance(Voters(11, PRIVATE), 3),
    "K = 101, each (0.1, 1e-5), m = 10": Problem.from_allowance(Voters(101, PRIVATE), 10),
    "K = 41, each (1, 0), a person reaches 3": Problem.from_allowance(Voters(41, PrivacyParams(1), 3), 2),
    "K = 11, not private, a person reaches 1": Problem(Voters(11, PLAIN, 1), PrivacyParams("0.2676", "0.0003")),
    "K = 250, not private, a person reaches 1": Problem(Voters(250, PLAIN, 1), PrivacyParams("1", "1e-5")),
}
NOISES = (10.0, 5.0)  # σ of DP-SGD
TRAINING_CONFIDENCE = 0.999
NEARLY_ATTAINED = 0.85  # of ε: the aim of a million labels
SIZE = 20.0  # a canary's gradient is 14 times the clipping threshold at first
UNCLIPPED = 100.0  # a threshold in this many C clips nothing here
DELTA = 1e-8  # far below 1/canaries, which multiplies it in the bound
_MOST_EPSILON = 100.0


@dataclass(frozen=True)
class OneRun:
    canaries: int
    guesses: int
    right: int
    noise: float
    clipped: bool  # False with the planted bug: no clipping
    claimed: float  # ε at `DELTA` by the accounting of DP-SGD
    refuted: float  # the largest ε that the guesses refute
    confidence: float


def linear_network(features: int) -> Module:
    network = nn.Linear(features, 2, bias=False)
    nn.init.zeros_(network.weight)
    return network


def one_run(recipe: PrivateSGD, canaries: int, confidence: float, *, clipped: bool, seed: int) -> OneRun:
    """Train with canaries and guess half of them; without ``clipped`` gradients keep their length, the noise its σC."""
    coins = np.random.default_rng([seed, canaries]).integers(0, 2, canaries).astype(bool)
    trained = recipe
    if not clipped:
        trained = replace(recipe, clip=UNCLIPPED * recipe.clip, noise=recipe.noise / UNCLIPPED)
    scores = canary_weights(trained, coins, seed)
    each_way = canaries // 4
    order = np.argsort(scores)
    right = int(np.sum(coins[order[-each_way:]]) + np.sum(~coins[order[:each_way]]))
    claimed = privacy_of(recipe, DELTA).epsilon
    refuted = refuted_epsilon(canaries, 2 * each_way, right, DELTA, confidence)
    return OneRun(canaries, 2 * each_way, right, recipe.noise, clipped, claimed, refuted, confidence)


def canary_weights(recipe: PrivateSGD, included: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """Train one teacher on the digits and the included canaries, and return how far each canary's weights moved."""
    digits = load("digits")
    images = digits.train_x.reshape(len(digits.train_x), -1)
    records, pixels, canaries = *images.shape, included.size
    x = np.zeros((records + canaries, pixels + canaries), dtype=np.float32)
    x[:records, :pixels] = images
    x[records + np.flatnonzero(included), pixels + np.flatnonzero(included)] = SIZE
    y = np.concatenate([digits.train_y, np.ones(canaries, dtype=np.int64)])
    everybody = Partition(K=1, teacher_of=np.zeros(len(x), dtype=np.int64))
    build = partial(linear_network, pixels + canaries)
    teacher = train_teachers(x, y, everybody, recipe, build=build, seed=seed, device="cpu", progress=False)
    weights = teacher.parameters["weight"][0, :, pixels:].astype(np.float64)
    return np.asarray(weights[1] - weights[0])


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least ``right`` right guesses under an (ε, δ)-private training.

    >>> round(p_value(1000, 100, 75, 0.673, 1e-4), 3)
    0.05
    """
    checks.integer_at_least(0, canaries=canaries, guesses=guesses, right=right)
    if not right <= guesses <= canaries:
        checks.fail("right, guesses, canaries", (right, guesses, canaries), "in ascending order")
    checks.non_negative(epsilon=epsilon)
    checks.probability(delta=delta)
    law = binomial_pmf(guesses, 1.0 / (1.0 + math.exp(-epsilon)))
    below = np.cumsum(law[:right][::-1]) / np.arange(1, right + 1)
    alpha = float(np.max(below, initial=0.0))
    return min(1.0, float(np.sum(law[right:])) + 2.0 * canaries * delta * alpha)


def refuted_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Find the largest ε that the guesses refute at δ; 0 if they refute none.

    The example of the paper [SNJ23, Appendix D]:

    >>> round(refuted_epsilon(1000, 100, 75, 1e-4, 0.95), 3)
    0.673
    """
    checks.open_probability(confidence=confidence)

    def refuted(epsilon: float) -> bool:
        return p_value(canaries, guesses, right, epsilon, delta) <= 1.0 - confidence

    return bisect_safe(refuted, 0.0, _MOST_EPSILON) if refuted(0.0) else 0.0


def attacked(draws: int) -> Iterator[Row]:
    for number, (name, problem) in enumerate(PROBLEMS.items()):
        found = attack(Release(optimize_table(problem)), draws, rng=np.random.default_rng([SEED, number]))
        numbers = {"claimed_epsilon": found.bounds[0].claimed, "claimed_delta": found.bounds[0].delta}
        yield {"name": name, **found.to_json(), **numbers}


def trained(count: int, steps: int, noises: Sequence[float]) -> Iterator[Row]:
    """Audit one training with clipping and one without for every noise."""
    for noise in noises:
        recipe = PrivateSGD(learning_rate=0.5, steps=steps, sampling_rate=0.5, noise=noise)
        for clipped in (True, False):
            yield asdict(one_run(recipe, count, TRAINING_CONFIDENCE, clipped=clipped, seed=SEED))


def measured(*, quick: bool) -> Row:
    return {
        "tables": list(attacked(100_000 if quick else 4_000_000)),
        "one_run_delta": DELTA,
        "one_run": list(trained(300, 20, NOISES[:1]) if quick else trained(1000, 50, NOISES)),
    }


def page(data: Row) -> str:
    tables, runs = data["tables"], data["one_run"]
    found = {
        "false": sum(bool(row["claim_refuted"] or row["departures"]) for row in tables),
        "share": min(row["refuted_epsilon"] / row["claimed_epsilon"] for row in tables),
        "honest": max(run["refuted"] / run["claimed"] for run in runs if run["clipped"]),
        "planted": min(run["refuted"] / run["claimed"] for run in runs if not run["clipped"]),
    }
    holds = {
        "tables": found["false"] == 0,
        "share": found["share"] >= NEARLY_ATTAINED,
        "honest": found["honest"] < 1.0,
        "planted": found["planted"] > 1.0,
    }
    counted = {"number": len(tables), "found": found, "holds": holds, "nearly": NEARLY_ATTAINED}
    return pages.filled(NAME, counted, data)


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.command_line(NAME, __doc__, quick="fewer draws and one small training").parse_args(arguments)
    return pages.run_whole(options, f"{NAME}/audits.json", partial(measured, quick=options.quick), page)
