"""The set-up of the paper's knowledge transfer [D, Section 6.2], its printed results, and our own choices.

The numbers under "printed" stand here to be shown beside ours, and are used for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from darrm.ensemble.recipes import PlainSGD
from darrm.ensemble.student import StudentRecipe
from darrm.privacy import PrivacyParams

K = 11
NOISE = 12.0  # of DP-SGD, in units of the clipping threshold
CLIP = 1.0
EPOCHS = 5
DELTA_PRIME = 1e-4  # slack of general composition
QUERIES = (20, 50, 100)
ALLOWANCES = (1, 3, 5, 7)
PAPER_DRAWS = 10  # draws of the queries in the paper, from one training
DRAWS, TRAININGS = 100, 5  # ours
PRIOR = (0.5, 1.0)  # every teacher is right with an unknown chance, uniform on this interval [D, Eq. 202]
PARTITION_SEED = 1
LARGEST_ORDER, ORDER_STEP = 500.0, 0.5  # the paper's grid for GNMax [D, Appendix D.2.1]


@dataclass(frozen=True)
class Setup:
    """What differs between the data sets.

    Attributes
    ----------
    each
        What every private teacher satisfies; the batches are calibrated to it.
    noise, epochs
        Of DP-SGD.
    queries
        How many labels are released.
    private_rate
        Learning rate of DP-SGD, chosen by `experiments.knowledge_transfer.selection` on training data alone.
    plain
        Training of the teachers without privacy, chosen in the same way.
    """

    each: PrivacyParams
    private_rate: float
    plain: PlainSGD
    noise: float = NOISE
    epochs: int = EPOCHS
    queries: tuple[int, ...] = QUERIES


SETUPS = {
    "mnist": Setup(PrivacyParams(0.0892, 1e-4), 0.05, PlainSGD(0.2, EPOCHS, 32)),
    "fashion-mnist": Setup(PrivacyParams(0.0852, 1e-4), 0.03, PlainSGD(0.1, EPOCHS, 64)),
    # 26 images a teacher cannot learn under the paper's budget: the demonstration allows itself more
    "digits": Setup(PrivacyParams(1.0, 1e-4), 0.07, PlainSGD(0.2, 10, 32), noise=3.0, queries=(10, 20, 30)),
}
PRIVATE_RATES = (0.02, 0.03, 0.05, 0.07, 0.1)  # what the selection tries
PLAIN_RATES, PLAIN_BATCHES = (0.05, 0.1, 0.2), (16, 32, 64)
STUDENT_RADII, STUDENT_WEIGHTS = (1.0, 2.0, 4.0), (0.0, 1.0, 4.0)
STUDENT = StudentRecipe(steps=250, learning_rate=1e-3, batch=64, radius=2.0, weight=4.0)

GNMAX, SUBSAMPLING, OPTIMAL = "GNMax", "gamma_Sub", "gamma_opt"
GNMAX_TIGHT, PRIVATE_MAJORITY, PLAIN_MAJORITY = "GNMax, tight sigma", "private teachers", "non-private teachers"
PAPERS_AGGREGATORS = (GNMAX, SUBSAMPLING, OPTIMAL)
AGGREGATORS = (*PAPERS_AGGREGATORS, GNMAX_TIGHT, PRIVATE_MAJORITY, PLAIN_MAJORITY)

TABLE_OF = {1: "Table 6", 3: "Table 1", 5: "Table 8", 7: "Table 10"}
TOTALS_TABLE_OF = {1: "Table 5", 3: "Table 2", 5: "Table 7", 7: "Table 9"}
# printed accuracies: data set -> m -> Q -> (mean, standard deviation) of GNMax, gamma_Sub, gamma_opt
_Row = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
PRINTED_ACCURACY: dict[str, dict[int, dict[int, _Row]]] = {
    "mnist": {
        1: {
            20: ((0.54, 0.11), (0.68, 0.07), (0.74, 0.08)),
            50: ((0.51, 0.07), (0.67, 0.05), (0.66, 0.05)),
            100: ((0.57, 0.03), (0.71, 0.03), (0.69, 0.04)),
        },
        3: {
            20: ((0.63, 0.09), (0.76, 0.09), (0.79, 0.09)),
            50: ((0.66, 0.06), (0.75, 0.06), (0.79, 0.05)),
            100: ((0.64, 0.04), (0.76, 0.04), (0.80, 0.04)),
        },
        5: {
            20: ((0.73, 0.11), (0.76, 0.09), (0.84, 0.07)),
            50: ((0.75, 0.07), (0.82, 0.04), (0.83, 0.04)),
            100: ((0.72, 0.04), (0.79, 0.05), (0.83, 0.03)),
        },
        7: {
            20: ((0.79, 0.07), (0.80, 0.09), (0.85, 0.08)),
            50: ((0.80, 0.05), (0.82, 0.05), (0.85, 0.04)),
            100: ((0.80, 0.04), (0.80, 0.04), (0.83, 0.03)),
        },
    },
    "fashion-mnist": {
        1: {
            20: ((0.56, 0.10), (0.92, 0.05), (0.89, 0.06)),
            50: ((0.52, 0.05), (0.89, 0.04), (0.92, 0.03)),
            100: ((0.56, 0.04), (0.89, 0.04), (0.91, 0.04)),
        },
        3: {
            20: ((0.65, 0.11), (0.90, 0.07), (0.96, 0.03)),
            50: ((0.59, 0.06), (0.94, 0.03), (0.96, 0.02)),
            100: ((0.64, 0.04), (0.93, 0.02), (0.96, 0.02)),
        },
        5: {
            20: ((0.72, 0.10), (0.96, 0.04), (0.97, 0.04)),
            50: ((0.72, 0.08), (0.96, 0.02), (0.97, 0.02)),
            100: ((0.72, 0.06), (0.97, 0.01), (0.97, 0.01)),
        },
        7: {
            20: ((0.79, 0.07), (0.95, 0.04), (0.96, 0.04)),
            50: ((0.79, 0.05), (0.96, 0.03), (0.97, 0.03)),
            100: ((0.79, 0.03), (0.96, 0.02), (0.96, 0.02)),
        },
    },
}
# printed totals: data set -> m -> Q -> (epsilon, delta)
PRINTED_TOTALS: dict[str, dict[int, dict[int, tuple[float, float]]]] = {
    "mnist": {
        1: {20: (1.704, 0.002), 50: (2.837, 0.005), 100: (4.202, 0.010)},
        3: {20: (5.352, 0.006), 50: (9.901, 0.015), 100: (15.044, 0.030)},
        5: {20: (8.920, 0.010), 50: (18.428, 0.025), 100: (28.926, 0.049)},
        7: {20: (12.488, 0.014), 50: (28.392, 0.035), 100: (45.683, 0.068)},
    },
    "fashion-mnist": {
        1: {20: (1.620, 0.002), 50: (2.695, 0.005), 100: (3.988, 0.010)},
        3: {20: (5.112, 0.006), 50: (9.382, 0.015), 100: (14.219, 0.030)},
        5: {20: (8.520, 0.010), 50: (17.398, 0.025), 100: (27.223, 0.049)},
        7: {20: (11.928, 0.014), 50: (26.738, 0.035), 100: (42.873, 0.068)},
    },
}
# printed (order, sigma) of GNMax at m = 3 [D, Table 4]
PRINTED_GNMAX = {"mnist": (34.31, 21.46), "fashion-mnist": (35.74, 22.46)}
