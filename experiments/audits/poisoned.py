"""An adversary's lower bound: a record that may be poisoned, a chosen query, teachers trained on the record.

[CJPCN24] audit private prediction so. Teachers are trained on the digits; the adversary sees their votes, and asks the
public image with the most expensive label. Their record is in one teacher's shard. *Poisoned*, it becomes that image
with a wrong or the right class, by the larger move of the label's law, and the teacher is trained again; *plain*, it
becomes another, honest record. Labels are drawn on the votes of both data sets, and bound the divergence from below.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.noisy_max.cost_given_votes import label_costs
from darrm.noisy_max.mechanisms import GNMax
from darrm.numerics import Array
from darrm.training.network import convolutional_network
from darrm.training.partition import Partition
from darrm.verify.attack import Intervals
from darrm.votes import Votes
from experiments.audits.noisy_maxima import DRAWS_AT_ONCE, both_ways, renyi_below
from experiments.datasets import LabeledImages, load
from experiments.pages import Row
from experiments.pate.ensembles import PARTITION_SEED, RECIPES, SEED
from experiments.teachers import Machine, Training

TEACHERS, MECHANISM, ORDER = 50, GNMax(5.0), 2.0
EPOCHS = RECIPES["digits"].epochs
ENSEMBLES = {"two classes, 5 and 8": (5, 8), "ten classes": tuple(range(10))}
Counts = NDArray[np.int64]


def audit(classes: tuple[int, ...], draws: int, confidence: float, rng: np.random.Generator, *, epochs: int) -> Row:
    """Attack one ensemble, with a poisoned record and with a plain one."""
    data = load("digits", classes)
    votes = _votes(data, epochs)
    counts = Votes.of_labels(votes, classes=len(classes)).counts
    found = label_costs(MECHANISM.law, counts, [ORDER])
    query = int(np.argmax(found.both[found.which, 0]))
    honest = counts[query]
    moves = [(a, b) for a in np.flatnonzero(honest).tolist() for b in range(len(classes)) if a != b]
    law = label_law(honest)
    said, wanted = max(moves, key=lambda move: float(both_ways(law, label_law(moved(honest, *move)), ORDER)))
    teacher = int(np.flatnonzero(votes[query] == said)[0])
    record = int(Partition.random(len(data.train_y), TEACHERS, seed=PARTITION_SEED).shard(teacher)[0])
    row: Row = {"order": ORDER, "draws": draws, "confidence": confidence, "said": honest.tolist()}
    row |= {"exact": float(found.both[found.which[query], 0]), "counts": ORDER / MECHANISM.sigma**2}
    row["label"] = float(np.interp(ORDER, MECHANISM.guarantee.orders, MECHANISM.guarantee.values))
    for name, (x, y) in {
        "poisoned": (data.test_x[query], wanted),
        "plain": (data.test_x[query - 1], data.test_y[query - 1]),
    }.items():
        changed = replace(data, train_x=data.train_x.copy(), train_y=data.train_y.copy())
        changed.train_x[record], changed.train_y[record] = x, y
        after = Votes.of_labels(_votes(changed, epochs), classes=len(classes)).counts[query]
        row[name] = refuted(honest, after, draws, confidence, rng) if (after != honest).any() else 0.0
        row[f"{name}_votes"] = after.tolist()
    return row


def _votes(data: LabeledImages, epochs: int) -> NDArray[np.int8]:
    """Train the teachers and ask them about the public images."""
    recipe = replace(RECIPES["digits"], epochs=epochs)
    build = partial(convolutional_network, side=8, classes=int(data.test_y.max()) + 1)
    machine = Machine(1, "cpu", progress=False, folder=Path())
    ensemble = Training(TEACHERS, PARTITION_SEED, recipe, build, SEED).run(data.train_x, data.train_y, machine)
    return ensemble.votes(data.test_x, device="cpu")


def refuted(before: Counts, after: Counts, draws: int, confidence: float, rng: np.random.Generator) -> float:
    """Bound the divergence of the labels of two histograms from below, in the worse direction."""
    seen = [_labels(counts, draws, rng) for counts in (before, after)]
    miss = (1.0 - confidence) / (2 * 2 * len(before))  # sides, bounds from below and above, answers
    return renyi_below(Intervals.of_counts(seen, draws, miss), ORDER)


def _labels(counts: Counts, draws: int, rng: np.random.Generator) -> list[int]:
    """Count the answers of the release itself."""
    seen = np.zeros(len(counts), dtype=np.int64)
    for start in range(0, draws, DRAWS_AT_ONCE):
        size = min(DRAWS_AT_ONCE, draws - start)
        labels = MECHANISM.release(Votes.of_counts(np.tile(counts, (size, 1)), TEACHERS), rng=rng)
        seen += np.bincount(labels, minlength=len(counts))
    return seen.tolist()


def moved(counts: Counts, source: int, target: int) -> Counts:
    """Move one vote."""
    after = counts.copy()
    after[source] -= 1
    after[target] += 1
    return after


def label_law(counts: Counts) -> Array:
    """Compute the probabilities of the answers, with ties shared as between two, for the adversary's choice."""
    reach = round(12 * MECHANISM.sigma)
    noise = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2.0 * MECHANISM.sigma**2))
    noise /= noise.sum()
    below = np.cumsum(noise) - noise / 2.0
    heights = np.arange(-reach, TEACHERS + reach + 1)
    mass, under = (
        np.stack([np.interp(heights - n, np.arange(-reach, reach + 1), values, left=0.0, right=right) for n in counts])
        for values, right in ((noise, 0.0), (below, 1.0))
    )
    law = np.array([(mass[c] * np.delete(under, c, axis=0).prod(axis=0)).sum() for c in range(len(counts))])
    return np.asarray(law / law.sum())
