"""
Hospitals: voters that are private themselves
=============================================

| **For whom:** several parties answer the same question, each privately, and one answer
  is to be published.
| **At the end:** a released majority for one question and for twenty, and the price of
  not knowing who shares patients.
| **How long:** fifteen minutes of reading, half a minute of computing.
| **It needs:** ``python -m pip install -e '.[plot]'`` in a checkout.

Eleven hospitals are asked whether a drug has a side effect in more than a fifth of
their patients. Each answers by a separate test that is (0.1, 1e-5)-differentially
private, with fresh randomness at every question. That alone does not make their
*majority* (0.1, 1e-5)-private: a person who was treated in three of them moves three
answers.
"""

# %%
# The voters
# ----------
# A hospital counts, adds Laplace noise and compares. (``numpy`` draws the noise here,
# for a page; in earnest the noise must be drawn exactly.)

import matplotlib.pyplot as plt
import numpy as np

from darrm import (
    PrivacyLedger,
    PrivacyParams,
    Problem,
    Release,
    Voters,
    Votes,
    Workload,
    certify,
    optimize_table,
    release_debited,
)
from darrm.majority import baselines
from darrm.plan import plan
from darrm.priors import Dirichlet

K, PATIENTS, EACH = 11, 400, PrivacyParams("0.1", "1e-5")
rng = np.random.default_rng(0)


def ask_hospitals(share):
    """Return their answers if this share of patients has the side effect."""
    affected = rng.binomial(PATIENTS, share, K)
    noisy = affected + rng.laplace(scale=1 / EACH.epsilon, size=K)
    return (noisy > PATIENTS / 5).astype(int)


# %%
# One release
# -----------
# Let the answer cost three times as much as a hospital's, (0.3, 3e-5). One patient's
# data may reach all eleven hospitals if no better bound is known. `optimize_table`
# finds the best *noise function*: with l yeses it returns the true majority with
# probability γ(l), else a fair coin.

target = PrivacyParams("0.3", "3e-5")
voters = Voters(K, EACH)  # overlap=None: a patient may reach all of them
problem = Problem(voters, target)
best = optimize_table(problem, prior=Dirichlet())
print("γ at 6 … 11 votes:", best.gamma.half.round(3))
print(best.optimality)
print(best.certificate)

# %%
# The certificate states how many worst cases were covered, for exactly the decimals
# above. Simpler rules within the same target: ask three hospitals at random, or return
# the truth with one fixed probability.

rules = {
    "the best γ": best,
    "ask 3 of 11": certify(problem, baselines.subsampling(problem)),
    "one probability": certify(problem, baselines.randomized_response(problem)),
}
for name, table in rules.items():
    print(f"{name:>16}: expected error {table.gamma.expected_error(Dirichlet()):.4f}")

# %%
# The label, debited from the budget of all patients:

ledger = PrivacyLedger.create(":memory:", PrivacyParams(4, "1e-3"))
answer = release_debited(
    Release(best), Votes.from_labels([ask_hospitals(0.3)], classes=2), ledger=ledger
)
print("more than a fifth?", ["no", "yes"][answer[0]], "|", ledger.spent)

# %%
# Who shares patients?
# --------------------
# Knowledge about this is valuable. If no patient was in more than t hospitals,
# ``overlap=t`` covers that case, and needs less noise.

reached = np.arange(1, K + 1)
errors = [
    optimize_table(
        Problem(Voters(K, EACH, overlap=int(t)), target), prior=Dirichlet()
    ).gamma.expected_error(Dirichlet())
    for t in reached
]
fig, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.plot(reached, errors, color="#0072b2", marker="o", linewidth=2)
for name, color, dash in (
    ("ask 3 of 11", "#d55e00", "--"),
    ("one probability", "#767676", ":"),
):
    level = rules[name].gamma.expected_error(Dirichlet())
    axis.axhline(level, color=color, linestyle=dash)
    axis.annotate(
        f"{name}, whoever shares",
        (1, level),
        (0, 4),
        textcoords="offset points",
        color=color,
    )
axis.annotate(
    "the best γ",
    (K, errors[-1]),
    (-6, 8),
    textcoords="offset points",
    ha="right",
    color="#0072b2",
)
axis.set_xticks(reached)
axis.set_ylim(-0.005, 1.15 * rules["one probability"].gamma.expected_error(Dirichlet()))
axis.set_xlabel("hospitals that one patient's data can reach, at most (overlap)")
axis.set_ylabel("expected error of one answer")
axis.set_title(f"(0.3, 3e-5) for one answer of {K} hospitals, each (0.1, 1e-5)-private")
print({int(t): round(error, 4) for t, error in zip(reached, errors, strict=True)})
plt.show()

# %%
# Up to three hospitals no noise is needed at all: three answers of (0.1, 1e-5) are
# (0.3, 3e-5) together. But ``overlap`` is a promise of yours that nothing in the votes
# can confirm. If you cannot keep it, leave it out.

# %%
# Twenty releases
# ---------------
# Twenty drugs, and (2, 1e-3) for all answers together. A twentieth of the budget for
# each is wasteful, because exact totals grow more slowly than sums. `plan` finds the
# noise function that uses the budget up.

total = PrivacyParams(2, "1e-3")
found = plan(Workload(voters, 20, total))
twentieth = optimize_table(
    Problem(voters, PrivacyParams("0.1", "5e-5")), prior=Dirichlet()
)
print("planned:     ", found.spent, f"| expected error {found.best.expected_error:.4f}")
print(f"a twentieth:  expected error {twentieth.gamma.expected_error(Dirichlet()):.4f}")

# %%
# Half of the drugs have the side effect in more than a fifth of the patients:

shares = np.concatenate([np.full(10, 0.12), np.full(10, 0.28)])
votes = Votes.from_labels([ask_hospitals(share) for share in shares], classes=2)
ledger = PrivacyLedger.create(":memory:", total)
labels = release_debited(found.aggregator, votes, ledger=ledger)
print(
    f"right about {np.sum(labels == (shares > 0.2))} of {len(shares)} drugs |",
    ledger.spent,
)

# %%
# What next
# ---------
# These voters read their data again for every question. Models that were trained once
# do not, and their costs do not add up: :doc:`trained models </trained-models>`. Which
# mechanism for which voters: :doc:`/which-aggregator`.
