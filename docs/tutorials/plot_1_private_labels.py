"""
Private labels from a scikit-learn ensemble
===========================================

| **For whom:** you have private records and a scikit-learn classifier, and met
  differential privacy this month.
| **At the end:** labels for 300 public questions, and a ledger that shows what they
  cost the people in the records.
| **How long:** ten minutes of reading, half a minute of computing.
| **It needs:** ``python -m pip install -e '.[sklearn,plot]'`` in a checkout.

A classifier that was trained on private records can give them away: its answers depend
on each of them. Here many small classifiers vote instead, and only a noisy majority of
their votes is released. The labels are *(ε, δ)-differentially private*: any event is at
most e^ε times as likely, plus δ, as it would be with other data of one person.
"""

# %%
# The records and the questions
# -----------------------------
# Simulated, so that this page may show them. The questions are public: inputs that need
# a label.

import math
import shutil
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from darrm import PrivacyLedger, PrivacyParams, Voters, Votes, Workload, release_debited
from darrm.errors import BudgetExceededError
from darrm.plan import plan

folder = Path(tempfile.mkdtemp())  # for the ledger; keep a real one
inputs, answers = make_classification(
    13_000,
    n_features=12,
    n_informative=8,
    n_redundant=0,
    class_sep=1.2,
    flip_y=0.02,
    random_state=0,
)
private_x, private_y = inputs[:12_500], answers[:12_500]
questions, true_answers = inputs[12_500:12_800], answers[12_500:12_800]

# %%
# Teachers on disjoint shards
# ---------------------------
# Every record goes to exactly one of 250 teachers. It is dealt by its position and not
# by its content: then changing one person's record changes one teacher, and moves one
# vote. All privacy below depends on this (``overlap=1``). If people have several
# records, deal people instead.

K = 250
teacher_of = np.random.default_rng(1).permutation(len(private_y)) % K
teachers = [
    LogisticRegression(C=0.3).fit(
        private_x[teacher_of == k], private_y[teacher_of == k]
    )
    for k in range(K)
]
spoken = np.stack(
    [teacher.predict(questions) for teacher in teachers], axis=1
)  # one row a question
votes = Votes.from_labels(spoken, classes=2)
print(votes)
by_one = np.mean(spoken == true_answers[:, None])
print(f"one teacher is right about {by_one:.3f} of the questions")
majority = votes.ones > K / 2
by_all = np.mean(majority == true_answers)
print(f"their bare majority, which is not private, about {by_all:.3f}")

# %%
# A plan within a budget
# ----------------------
# 300 answers may cost (2, 1e-5) together. `plan` finds the release with the highest
# accuracy within that total. It sees no votes, only public numbers: voters, questions
# and the budget.

budget = PrivacyParams(2, "1e-5")
workload = Workload(
    Voters(K, PrivacyParams("inf"), overlap=1), queries=len(questions), total=budget
)
found = plan(workload)
factor = math.exp(2)
print(f"anything is at most {factor:.2f} times as likely, plus {budget.delta:g}")
print(found.spent)

# %%
# ``PrivacyParams("inf")`` declares that a teacher is not private: all privacy comes
# from the noise. The plan is a *noise function*: the probability of returning the
# majority, given its votes. If all agree it is almost 1; near a tie one person decides,
# so the answer must be close to a coin.

levels, told = found.best.levels, found.best.curve
fig, (above, below) = plt.subplots(
    2, 1, sharex=True, figsize=(7, 5), layout="constrained"
)
above.plot(levels, told, color="#0072b2", linewidth=2)
above.axhline(0.5, color="#767676", linestyle="--")
above.annotate(
    "a coin",
    (levels[-1], 0.5),
    xytext=(0, 4),
    textcoords="offset points",
    ha="right",
    color="#767676",
)
above.set_ylabel("Pr[the majority is returned]")
below.hist(
    np.maximum(votes.ones, K - votes.ones),
    bins=np.arange(K // 2, K + 5, 5),
    color="#d55e00",
)
below.set_ylabel("questions")
below.set_xlabel(f"votes for the majority, of {K}")
fig.suptitle("The noise function, and the votes")
plt.show()

# %%
# The lower half shows the votes. With real records it is private: do not publish it.

# %%
# Labels, paid for
# ----------------
# The ledger holds the budget of these people's data. It is debited, durably, before a
# label leaves. The labels are drawn with exactly the plan's probabilities from the
# operating system's randomness, so they differ a little each time that this page is
# built.

ledger = PrivacyLedger.create(folder / "ledger.sqlite", budget)
labels = release_debited(found.aggregator, votes, ledger=ledger, note="first questions")
right = np.mean(labels == true_answers)
print(f"private labels: right about {right:.3f} of {len(labels)} questions")
print(f"the majority was returned for {np.mean(labels == majority):.3f} of them")
print(ledger.spent)

# %%
# The budget is spent, so the ledger refuses the next question: nothing is drawn and
# nothing is paid.

try:
    release_debited(found.aggregator, votes[:1], ledger=ledger)
except BudgetExceededError as error:
    print("refused:", error)
shutil.rmtree(folder)

# %%
# What next
# ---------
# * More than two classes: :doc:`plot_2_ten_classes`.
# * Other teachers, from torch modules to people: :doc:`/how-to/own-teacher`.
# * A model that answers for ever: train it on such labels, :doc:`plot_3_student`.
# * The whole as a scikit-learn estimator with ``fit`` and ``predict``:
#   :doc:`/estimators`.
# * From the shell the same is ``python -m darrm.plan`` and ``python -m darrm.release``.
# * Before you rely on any of it: :doc:`the sharp edges </sharp-edges>`.
