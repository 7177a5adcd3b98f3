"""Noisy maxima and selection: exact draws, and the cost of the label.

What GNMax costs is in five files: `mechanisms` (draws), `noise_law` (the law of noise and label), `label_cost` (the
cost for any votes), `label_supremum` (branch and bound) and `cost_given_votes`. `mislabel_bound` has the cost by the
probability of a wrong label, `noisy_law` the law for planning.
"""

__all__ = [
    "cost_given_votes",
    "label_cost",
    "label_supremum",
    "mechanisms",
    "mislabel_bound",
    "noise_law",
    "noisy_law",
    "noisy_maximum",
    "selection",
]
