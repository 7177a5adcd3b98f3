"""Measure DaRRM in its own setting: one person's data may influence all voters, and each answer is private.

A voter resamples the training images, and answers with the class whose mean image is nearest. By randomized response,
it keeps this answer with probability e^ε/(1 + e^ε). So each answer is (ε, 0)-private for any data of its voter, with
fresh randomness for every question. Given the voters, the accuracies are exact: the program draws no coin.
"""

import math

import numpy as np
from numpy.typing import NDArray

from darrm import priors
from darrm.account.accountant import PrivacyAccountant
from darrm.majority import baselines
from darrm.majority.noise_function import NoiseFunction
from darrm.numerics.binomial import binomial_pmf
from darrm.optimize.optimizer import optimize_table
from darrm.privacy import PrivacyParams
from darrm.problem import Problem, Voters
from darrm.table.release import describe_cost
from darrm.table.table import certify
from experiments.composition_tables import K
from experiments.datasets import LabeledImages
from experiments.knowledge_transfer import settings
from experiments.pages import Row

EACH = PrivacyParams("0.5")  # of one answer of a voter
SEED = 0  # of the resamples
TOTAL_DELTA = 1e-5  # of all questions together
NO_NOISE = "majority of all, no noise"


def compute_fresh_rows(allowances: tuple[int, ...], data: LabeledImages, queries: int) -> list[Row]:
    """Compute the accuracy for every m, and the ε of one label and of ``queries`` labels."""
    voters, right_voters = Voters(K, EACH), count_right_voters(data)
    always = NoiseFunction(K, np.ones(voters.num_upper_levels))
    no_noise = {
        "m": K,
        "aggregator": NO_NOISE,
        "right": compute_accuracy(right_voters, always),
        "one": K * EACH.epsilon,
    }
    rows: list[Row] = [no_noise]
    for m in allowances:
        problem = Problem.from_allowance(voters, m)
        tables = {
            settings.OPTIMAL: optimize_table(problem, prior=priors.Independent(*settings.PRIOR)),
            settings.SUBSAMPLING: certify(problem, baselines.subsampling(problem)),
            settings.CONSTANT: certify(problem, baselines.best_randomized_response(problem)),
        }
        for name, table in tables.items():
            spent = PrivacyAccountant(voters, [describe_cost(table).repeat(queries)]).spent(TOTAL_DELTA)
            row = {"m": m, "aggregator": name, "right": compute_accuracy(right_voters, table.gamma)}
            rows.append(row | {"one": m * EACH.epsilon, "all": spent.epsilon})
    return [row | {"queries": queries, "each": EACH.epsilon, "delta": TOTAL_DELTA} for row in rows]


def count_right_voters(data: LabeledImages) -> NDArray[np.int64]:
    """Count the voters that are right, before randomized response, for each test image: (n,)."""
    rng = np.random.default_rng(SEED)
    train, test = (x.reshape(len(x), -1) for x in (data.train_x, data.test_x))
    right = np.zeros(len(test), dtype=np.int64)
    for _ in range(K):
        resample = rng.integers(len(train), size=len(train))
        x, y = train[resample], data.train_y[resample]
        distances = [np.sum((test - x[y == label].mean(axis=0)) ** 2, axis=1) for label in (0, 1)]
        right += (distances[1] < distances[0]) == data.test_y
    return right


def compute_accuracy(right_voters: NDArray[np.int64], gamma: NoiseFunction) -> float:
    """Average Pr[the label is right] over questions with these numbers of right voters.

    >>> always = NoiseFunction(1, [1.0])
    >>> round(compute_accuracy(np.array([1]), always), 6)  # e^0.5 / (1 + e^0.5)
    0.622459
    """
    keep = 1.0 / (1.0 + math.exp(-EACH.epsilon))
    law = 0.5 + 0.5 * gamma.signed  # Pr[right label | l votes for the true class]
    accuracies = [
        float(np.convolve(binomial_pmf(count, keep), binomial_pmf(gamma.K - count, 1.0 - keep)) @ law)
        for count in range(gamma.K + 1)
    ]
    return float(np.mean(np.array(accuracies)[right_voters]))
