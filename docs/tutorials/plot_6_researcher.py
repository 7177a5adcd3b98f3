"""
A researcher's own γ, prior and aggregator
==========================================

| **For whom:** you have an idea for a better private majority and want to test it.
| **At the end:** your noise function proved, your belief about voters used, and your
  mechanism ranked with the others.
| **How long:** fifteen minutes of reading, half a minute of computing.
| **It needs:** ``python -m pip install -e '.[plot]'`` in a checkout.

Everything in the library that is proved, accounted and compared accepts your parts.
The details are on the pages :doc:`/how-to/own-gamma`,
:doc:`/how-to/own-prior` and :doc:`/how-to/own-aggregator`.
"""

# %%
# Your own γ
# ----------
# γ(l) is the probability of returning the true majority if l of the K voters answer 1.
# As a list, or as a function of l:

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr

from darrm import (
    NoiseFunction,
    PrivacyParams,
    Problem,
    Voters,
    Workload,
    certify,
    optimize_table,
)
from darrm.majority import baselines
from darrm.plan import find_mechanism, make_mechanism, plan
from darrm.priors import Dirichlet, Point, Prior

K = 21
problem = Problem.from_allowance(Voters(K, PrivacyParams("0.1", "1e-5")), m=4)
steps = NoiseFunction.from_function(K, lambda ones: 1.0 if ones >= 16 else 0.35)
mine = certify(problem, steps)
print(
    "scaled by",
    mine.certificate.scale,
    "so that",
    mine.certificate.worst_cost,
    "≤",
    mine.certificate.budget,
)

# %%
# A noise function is a proposal; `certify` proves it and scales it down if necessary.
# How far from the best is it? The optimum comes with a bound on every other γ:

best = optimize_table(problem, prior=Dirichlet())
monotone = optimize_table(problem, prior=Dirichlet(), shape="monotone")
rivals = {
    "mine, certified": mine,
    "best": best,
    "best monotone": monotone,
    "subsampling": certify(problem, baselines.subsampling(problem)),
}
for name, table in rivals.items():
    print(f"{name:>16}: expected error {table.gamma.expected_error(Dirichlet()):.5f}")
print(best.optimality)

fig, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
looks = (
    ("#d55e00", "s", "-"),
    ("#0072b2", "o", ":"),
    ("#009e73", "^", "--"),
    ("#767676", "x", "-."),
)
for (name, table), (color, marker, dash) in zip(rivals.items(), looks, strict=True):
    axis.plot(
        table.gamma.levels,
        table.gamma.half,
        color=color,
        marker=marker,
        linestyle=dash,
        label=name,
    )
axis.set_xlabel(f"votes for the majority, of {K}")
axis.set_ylabel("γ, probability of telling it")
axis.set_xticks(best.gamma.levels)
axis.set_title("(0.4, 4e-5) for one answer: four proven noise functions")
axis.legend()
plt.show()

# %%
# Why does the best one jump? Privacy limits how fast *averages* of γ change, because
# the number of ones is itself random. If every value must make sense to a reader, use
# the monotone one.

# %%
# Your own prior
# --------------
# The best γ depends on beliefs about the voters. A prior inherits from `Prior`; this
# one knows easy and hard questions. It must be public: never fitted to private votes.


class EasyAndHard(Prior):
    """A voter is right with probability 0.9 in easy questions, and 0.6 in hard ones."""

    text = "easy and hard"

    def weights(self, K):
        """The weight of each γ(l) in the expected error."""
        return 0.5 * (Point(0.9).weights(K) + Point(0.6).weights(K))

    def probabilities(self, K, count, *, rng):
        """The voters' probabilities, drawn count times."""
        return np.repeat(rng.choice([0.9, 0.6], (count, 1)), K, axis=1)


tailored = optimize_table(problem, prior=EasyAndHard())
for name, table in {
    "best for one common p": best,
    "best for easy and hard": tailored,
}.items():
    error = table.gamma.expected_error(EasyAndHard())
    print(f"{name:>24}: expected error {error:.5f} on easy and hard questions")

# %%
# Both are equally private: the prior selects γ and never decides privacy.

# %%
# Your own mechanism
# ------------------
# Yours returns the majority with probability Φ(slope · lead). To be ranked it needs one
# number, the slope, and its γ:


def probit(slope):
    """The γ of a slope."""
    return NoiseFunction.from_function(
        K, lambda ones: 2 * ndtr(slope * (2 * ones - K)) - 1
    )


probit_mechanism = make_mechanism(probit, "probit (mine)", slug="probit", limits=(0, 1))

# %%
# Then it is one entry more in the list. All are calibrated to the same total, 50
# answers of 21 teachers that are not private themselves, each person's data in one of
# them:

workload = Workload(
    Voters(K, PrivacyParams("inf"), overlap=1), 50, PrivacyParams(4, "1e-5")
)
slugs = ("rdp-optimal", "optimal", "gnmax-analytic", "exponential", "permute-and-flip")
mechanisms = [
    *map(find_mechanism, slugs),
    find_mechanism("randomized-response"),
    probit_mechanism,
]
found = plan(workload, mechanisms=mechanisms, complete=True)
print(found)

names = [row.name for row in reversed(found.rows)]
fig, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
bars = axis.barh(
    names,
    [row.accuracy for row in reversed(found.rows)],
    color=["#d55e00" if "mine" in name else "#0072b2" for name in names],
)
axis.bar_label(bars, fmt="%.3f", padding=3)
axis.set_xlim(0.5, 1.0)
axis.set_xlabel("accuracy (random guessing has one half)")
axis.set_title("50 answers within (4, 1e-5), 21 teachers on disjoint shards")
plt.show()

# %%
# What next
# ---------
# The how-to pages go further: aggregators of more than two classes, the contract tests
# to run, and the experiments' tables and pictures with yours in them.
