"""
Ten classes
===========

| **For whom:** your ensemble chooses among more than two classes.
| **At the end:** private labels for images of digits, and why many classes are
  expensive.
| **How long:** ten minutes of reading, half a minute of computing.
| **It needs:** ``python -m pip install -e '.[sklearn,plot]'`` in a checkout.

With two classes a majority is ahead or it is not. With ten, the class with the most
votes (the *plurality*) may have a quarter of them, and the accuracy depends on its lead
over the next one.
"""

# %%
# Fifty teachers and their votes
# ------------------------------
# scikit-learn's digits represent private images. As in :doc:`plot_1_private_labels`
# they are dealt to the teachers by position, so that one person's image reaches one
# teacher.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from darrm import PrivacyLedger, PrivacyParams, Voters, Votes, Workload, release_debited
from darrm.plan import plan

pixels, digit = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digit))
pixels, digit = pixels[order] / 16, digit[order]
K, asked = 50, 60
teacher_of = np.random.default_rng(1).permutation(1500) % K
teachers = [
    LogisticRegression(max_iter=500).fit(
        pixels[:1500][teacher_of == k], digit[:1500][teacher_of == k]
    )
    for k in range(K)
]
questions, true_digits = pixels[1500 : 1500 + asked], digit[1500 : 1500 + asked]
spoken = np.stack([teacher.predict(questions) for teacher in teachers], axis=1)
votes = Votes.from_labels(spoken, classes=10)
by_one = np.mean(spoken == true_digits[:, None])
print(f"a teacher sees about {1500 // K} images and is right about {by_one:.2f}")
by_all = np.mean(votes.counts.argmax(axis=1) == true_digits)
print(f"the bare plurality, which is not private, is right about {by_all:.2f}")

# %%
# Give the classes, ``classes=10``. If they were found in the votes, they would change
# with one voter.

# %%
# Which mechanism?
# ----------------
# `plan` calibrates every mechanism that applies to the same total budget. The accuracy
# is the probability that a label is the plurality of the votes, under three reference
# priors of low, medium and high consensus. Never derive the consensus from private
# votes; ``prior=`` takes public knowledge.

budget = PrivacyParams(2, "1e-5")
workload = Workload(
    Voters(K, PrivacyParams("inf"), overlap=1), asked, budget, classes=10
)
several = plan(workload)
print(several)

# %%
# More teachers, a larger budget or fewer questions raise the accuracy. More teachers
# cost no privacy. `darrm.plan.affordable`, or ``darrm plan --accuracy 0.9``, finds the
# numbers for a given accuracy.

# %%
# Labels
# ------

ledger = PrivacyLedger.create(":memory:", budget)  # a file in earnest
labels = release_debited(several.aggregator, votes, ledger=ledger)
print(f"{asked} private labels, right about {np.mean(labels == true_digits):.2f}")
print(ledger.spent)

# %%
# The teachers' votes are clearer than that belief, so more labels are right than were
# expected. With public votes of the same kind, use a prior of recorded votes:
# :doc:`/how-to/own-prior`.

# %%
# Fewer questions
# ---------------
# Ten questions within the same budget: each may tell more. The picture has the
# probability that the answer is the leading class, by its votes, the other nine sharing
# the rest.

few = plan(Workload(workload.voters, 10, budget, classes=10))
leading = few.best.levels
fig, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.plot(leading, few.best.curve, color="#0072b2", linewidth=2)
axis.plot(leading, several.best.curve, color="#d55e00", linewidth=2, linestyle="--")
axis.axhline(0.1, color="#767676", linestyle=":")
for truth, words, color in (
    (few.best.curve, "10 questions", "#0072b2"),
    (several.best.curve, f"{asked} questions", "#d55e00"),
):
    half = int(np.argmax(truth >= 0.6))
    axis.annotate(
        words,
        (leading[half], truth[half]),
        (8, -12),
        textcoords="offset points",
        color=color,
    )
axis.annotate(
    "a guess",
    (leading[-1], 0.1),
    (0, 4),
    textcoords="offset points",
    ha="right",
    color="#767676",
)
axis.set_xlabel(f"votes for the leading class, of {K}")
axis.set_ylabel("Pr[the answer is that class]")
axis.set_title("One budget for few questions, or for many")
print(f"expected to be right: {few.best.accuracy:.3f} of 10 labels, ", end="")
print(f"{several.best.accuracy:.3f} of {asked}")
plt.show()

# %%
# What next
# ---------
# :doc:`Any number of classes </plurality>` compares costs and mechanisms;
# :doc:`plot_3_student` makes a few labels go a long way.
