"""Noisy maxima and selection: exact draws, and the cost of the label.

The cost of a label of GNMax is in five files: `mechanisms`, `label_cost` (reduction to two classes), `label_supremum`
(three outcomes, and branch and bound), `noise_tails` and `darrm.numerics.integer_noise`. `cost_given_votes` has its
cost at given votes, `mislabel_bound` the cost by the probability of a wrong label, `noisy_law` the law for planning.
"""

__all__ = [
    "best_shape",
    "cost_given_votes",
    "label_cost",
    "label_supremum",
    "mechanisms",
    "mislabel_bound",
    "noise_tails",
    "noisy_law",
    "noisy_maximum",
    "selection",
]
