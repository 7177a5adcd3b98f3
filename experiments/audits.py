"""Audit tables by attacks on their labels, and DP-SGD teachers by canaries in one training.

    python -m experiments audits --recompute --quick --output results     # ten seconds
    python -m experiments audits --recompute                              # four minutes

All seeds are fixed, so the page can be reproduced. `darrm.verify.attack` uses the operating system's randomness when it
attacks a real release.

The teacher is a linear classifier of the digits with one more feature for each canary. A canary has the value
`CANARY_SIZE` in its feature and 0 elsewhere. Its gradient is clipped, and touches two weights that no other record
touches. Fair coins select about half of the canaries for the training data; the others are blank records, whose
gradient is zero: DP-SGD's accounting assumes this relation between neighbors. The auditor sees the trained weights. It
guesses that canaries with the largest weights are in the data, and that those with the smallest are not.

**The bound.** The auditor fixes r, guesses r of the m coins from the trained model, and v guesses are right. If the
training is (ε, δ)-private, then

    Pr[at least v are right] ≤ β + 2mδ·α,   β = Pr[B ≥ v],   α = max over i = 1 … v of Pr[v − i ≤ B < v]/i,

with B ~ Bin(r, e^ε/(1 + e^ε)) [SNJ23, Appendix D]. For δ = 0 the proof is short. Given the output and the previous
coins, the odds of a coin are at most e^ε. A guess depends on the output alone, so it is right with probability at most
e^ε/(1 + e^ε), and B dominates v. A claim with a smaller ε implies every claim with a larger ε. So if the data refute
an ε, they refute every smaller ε.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray
from torch import nn

from darrm.numerics.binomial import binomial_pmf
from darrm.numerics.bisection import bisect_safe
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import Release
from darrm.training import Partition, PrivateSGD, compute_privacy, train_teachers
from darrm.training.network import Module
from darrm.util import checks
from darrm.verify.attack import attack
from experiments import pages
from experiments.datasets import load
from experiments.pages import Row

NAME = "audits"
SEED = 20_230_515
NON_PRIVATE = PrivacyParams("inf")
PRIVATE = PrivacyParams("0.1", "1e-5")
PROBLEMS = {
    "K = 11, each (0.1, 1e-5), m = 1": Problem.from_allowance(Voters(11, PRIVATE), 1),
    "K = 11, each (0.1, 1e-5), m = 3": Problem.from_allowance(Voters(11, PRIVATE), 3),
    "K = 101, each (0.1, 1e-5), m = 10": Problem.from_allowance(Voters(101, PRIVATE), 10),
    "K = 41, each (1, 0), a person reaches 3": Problem.from_allowance(Voters(41, PrivacyParams(1), 3), 2),
    "K = 11, not private, a person reaches 1": Problem(Voters(11, NON_PRIVATE, 1), PrivacyParams("0.2676", "0.0003")),
    "K = 250, not private, a person reaches 1": Problem(Voters(250, NON_PRIVATE, 1), PrivacyParams("1", "1e-5")),
}
NOISES = (10.0, 5.0)  # σ of DP-SGD
TRAINING_CONFIDENCE = 0.999
MIN_ATTAINED_SHARE = 0.85  # the aim for refuted ε ÷ claimed ε
CANARY_SIZE = 20.0  # at the first step, a canary's gradient is 14 times the clipping threshold
CLIP_FACTOR = 100.0  # times the clipping threshold C: large enough to clip nothing
DELTA = 1e-8  # far below 1/canaries: the bound has the factor canaries·δ
_MAX_EPSILON = 100.0


def audit_training(recipe: PrivateSGD, canaries: int, confidence: float, *, clipped: bool, seed: int) -> Row:
    """Train with canaries and guess half of the coins; ``clipped=False`` omits clipping but keeps the noise σC.

    ``claimed`` is ε at `DELTA` by the accounting of DP-SGD, and ``refuted`` the largest ε that the guesses refute.
    """
    coins = np.random.default_rng([seed, canaries]).integers(0, 2, canaries).astype(bool)
    factor = 1.0 if clipped else CLIP_FACTOR
    trained_recipe = replace(recipe, clip=factor * recipe.clip, noise=recipe.noise / factor)
    guesses_each, order = canaries // 4, np.argsort(measure_canary_weights(trained_recipe, coins, seed))
    num_right = int(np.sum(coins[order[-guesses_each:]]) + np.sum(~coins[order[:guesses_each]]))
    counts = {"canaries": canaries, "guesses": 2 * guesses_each, "right": num_right}
    claimed = compute_privacy(recipe, DELTA).epsilon
    refuted = find_refuted_epsilon(**counts, delta=DELTA, confidence=confidence)
    result: Row = {**counts, "noise": recipe.noise, "clipped": clipped}
    return result | {"claimed": claimed, "refuted": refuted, "confidence": confidence}


def measure_canary_weights(recipe: PrivateSGD, included: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """Train one teacher on the digits and the included canaries; return each canary's difference of weights."""
    digits = load("digits")
    images = digits.train_x.reshape(len(digits.train_x), -1)
    records, pixels, canaries = *images.shape, included.size
    x = np.zeros((records + canaries, pixels + canaries), dtype=np.float32)
    x[:records, :pixels] = images
    x[records + np.flatnonzero(included), pixels + np.flatnonzero(included)] = CANARY_SIZE
    y = np.concatenate([digits.train_y, np.ones(canaries, dtype=np.int64)])
    partition = Partition(K=1, teacher_of=np.zeros(len(x), dtype=np.int64))

    def build() -> Module:
        network = nn.Linear(pixels + canaries, 2, bias=False)
        nn.init.zeros_(network.weight)
        return network

    teacher = train_teachers(x, y, partition, recipe, build=build, seed=seed, device="cpu", progress=False)
    weights = teacher.parameters["weight"][0, :, pixels:].astype(np.float64)
    return np.asarray(weights[1] - weights[0])


def bound_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability that at least ``right`` guesses are right if the training is (ε, δ)-private.

    >>> round(bound_p_value(1000, 100, 75, 0.673, 1e-4), 3)
    0.05
    """
    checks.integer_at_least(0, canaries=canaries, guesses=guesses, right=right)
    if not right <= guesses <= canaries:
        checks.fail("right, guesses, canaries", (right, guesses, canaries), "in ascending order")
    checks.non_negative(epsilon=epsilon)
    checks.probability(delta=delta)
    law = binomial_pmf(guesses, 1.0 / (1.0 + math.exp(-epsilon)))
    alpha = float(np.max(np.cumsum(law[:right][::-1]) / np.arange(1, right + 1), initial=0.0))
    return min(1.0, float(np.sum(law[right:])) + 2.0 * canaries * delta * alpha)


def find_refuted_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Find the largest ε that the guesses refute at δ, or 0 if they refute none.

    The example of the paper [SNJ23, Appendix D]:

    >>> round(find_refuted_epsilon(1000, 100, 75, 1e-4, 0.95), 3)
    0.673
    """
    checks.open_probability(confidence=confidence)

    def is_refuted(epsilon: float) -> bool:
        return bound_p_value(canaries, guesses, right, epsilon, delta) <= 1.0 - confidence

    return bisect_safe(is_refuted, 0.0, _MAX_EPSILON) if is_refuted(0.0) else 0.0


def measure(*, quick: bool) -> Row:
    """Attack every table, and audit one training with clipping and one without for every noise."""
    tables: list[Row] = []
    for number, (name, problem) in enumerate(PROBLEMS.items()):
        rng, draws = np.random.default_rng([SEED, number]), 100_000 if quick else 4_000_000
        result = attack(Release(optimize_table(problem)), draws, rng=rng)
        claim = {"claimed_epsilon": result.bounds[0].claimed, "claimed_delta": result.bounds[0].delta}
        tables.append({"name": name, **result.to_json(), **claim})
    runs: list[Row] = []
    count, steps, noises = (300, 20, NOISES[:1]) if quick else (1000, 50, NOISES)
    for noise, clipped in product(noises, (True, False)):
        recipe = PrivateSGD(learning_rate=0.5, steps=steps, sampling_rate=0.5, noise=noise)
        runs.append(audit_training(recipe, count, TRAINING_CONFIDENCE, clipped=clipped, seed=SEED))
    return {"tables": tables, "one_run_delta": DELTA, "one_run": runs}


def fill_page(data: Row) -> str:
    tables, runs = data["tables"], data["one_run"]
    figures = {
        "false": sum(bool(row["claim_refuted"] or row["departures"]) for row in tables),
        "share": min(row["refuted_epsilon"] / row["claimed_epsilon"] for row in tables),
        "honest": max(run["refuted"] / run["claimed"] for run in runs if run["clipped"]),
        "planted": min(run["refuted"] / run["claimed"] for run in runs if not run["clipped"]),
    }
    holds = {
        "tables": figures["false"] == 0,
        "share": figures["share"] >= MIN_ATTAINED_SHARE,
        "honest": figures["honest"] < 1.0,
        "planted": figures["planted"] > 1.0,
    }
    facts = {"number": len(tables), "found": figures, "holds": holds, "nearly": MIN_ATTAINED_SHARE}
    return pages.fill_template(NAME, facts, data)


def main(arguments: Sequence[str] | None = None) -> int:
    options = pages.make_command_line(NAME, __doc__, quick="fewer draws and one small training").parse_args(arguments)
    return pages.run_measurement(options, f"{NAME}/audits.json", partial(measure, quick=options.quick), fill_page)
