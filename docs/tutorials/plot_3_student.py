"""
PATE: from private labels to a student
======================================

| **For whom:** you want a model that may be published and asked for ever, not labels.
| **At the end:** a student that was trained on private labels alone, and an ε that may
  be published with it.
| **How long:** ten minutes of reading, half a minute of computing.
| **It needs:** ``python -m pip install -e '.[sklearn,plot]'`` in a checkout.

PATE (*private aggregation of teacher ensembles*) goes two steps: teachers that saw
private data label some public inputs, privately, and a student learns from the labels.
Whatever the student does afterwards is post-processing of the labels and costs nothing
more.
"""

# %%
# Teachers, and a public pool
# ---------------------------

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import SelfTrainingClassifier

from darrm import Votes
from darrm.pate import ConfidentGNMax, analyze, publication_rule, sanitize
from darrm.pate.analysis import PrivateFigureWarning

CLASSES, K, ASKED = 4, 250, 640
inputs, kinds = make_classification(
    18_000,
    n_features=16,
    n_informative=10,
    n_redundant=0,
    n_classes=CLASSES,
    n_clusters_per_class=1,
    class_sep=1.6,
    random_state=0,
)
private_x, private_y = inputs[:15_000], kinds[:15_000]
pool_x, pool_y = (
    inputs[15_000:16_500],
    kinds[15_000:16_500],
)  # public inputs; their classes serve for measuring alone
test_x, test_y = inputs[16_500:], kinds[16_500:]

teacher_of = np.random.default_rng(1).permutation(len(private_y)) % K
teachers = [
    LogisticRegression().fit(private_x[teacher_of == k], private_y[teacher_of == k])
    for k in range(K)
]
votes = Votes.from_labels(
    np.stack([each.predict(pool_x[:ASKED]) for each in teachers], axis=1),
    classes=CLASSES,
)
print(votes)

# %%
# Ask, and let the aggregator decline
# -----------------------------------
# Confident-GNMax answers only if a noisy check finds that many teachers agree. Such an
# answer costs little and is usually right; a declined question costs next to nothing.
# Threshold and noise are the PATE paper's for 250 teachers, fixed before looking at
# votes.

aggregator = ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_answer=40)
released = aggregator.release(votes)
answered = released >= 0  # −1 for declined
right = np.mean(released[answered] == pool_y[:ASKED][answered])
print(f"{answered.sum()} of {ASKED} questions answered, {right:.3f} of them right")

# %%
# The cost
# --------
# The cost is counted from the votes: agreement makes it small. That makes the figure
# itself private data, and the library warns whenever one is computed. Here the warning
# is expected and put aside; the records are made up.

DELTA = 1e-5
with warnings.catch_warnings():
    warnings.simplefilter("ignore", PrivateFigureWarning)
    analysis = analyze(votes, aggregator, delta=DELTA, answered=answered)
worst = analysis.to_epsilon(analysis.worst_curve)
print(f"private:     ε = {analysis.best.epsilon:.3f} for these votes")
print(
    f"publishable: ε = {worst:.3f}, whatever the votes, if all questions were answered"
)

# %%
# `sanitize` makes a figure of the first kind publishable: it adds noise, and the cost
# of this to the total. Call it once; each further call is another release. Its
# parameters come from a rule that sees no votes.

published = sanitize(analysis, publication_rule(epsilon=2.0, delta=DELTA, safety=2.0))
print(published)

# %%
# The student
# -----------
# It sees only the public pool and the released labels. scikit-learn's semi-supervised
# models read −1, the aggregator's sign for declined, as "not labeled".

labels = np.full(len(pool_x), -1)
labels[:ASKED] = released
student = SelfTrainingClassifier(LogisticRegression(), threshold=0.95).fit(
    pool_x, labels
)
one_teacher = np.mean([each.score(test_x, test_y) for each in teachers])
everything = LogisticRegression().fit(private_x, private_y).score(test_x, test_y)
scores = {
    "one teacher\n(not private)": one_teacher,
    f"the student\n(ε = {published.epsilon:.2f})": student.score(test_x, test_y),
    "trained on all records\n(not private)": everything,
}
for name, score in scores.items():
    print(f"{' '.join(name.split()):>40}: {score:.3f}")

fig, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
bars = axis.barh(
    list(scores), list(scores.values()), color=["#767676", "#0072b2", "#767676"]
)
axis.bar_label(bars, fmt="%.3f", padding=3)
axis.axvline(1 / CLASSES, color="black", linestyle=":")
axis.set_xlim(0, 1.08)
axis.invert_yaxis()
axis.set_xlabel("share of right answers about inputs that no teacher was asked about")
axis.set_title("A student may be asked for ever (dotted: a guess)")
plt.show()

# %%
# What next
# ---------
# :doc:`How to read PATE's output </pate>` has the two ways of counting and of
# publishing; :doc:`/how-to/own-student` has other students; ``python -m
# experiments pate`` does all this for the paper's data sets.
