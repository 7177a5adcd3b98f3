"""Compute the rows for Adult: random forests vote, as in [P, Section 5.1], and boosted trees learn from them.

Every forest has scikit-learn's default parameters, as in the paper that [P] builds on. That paper encodes categories as
numbers 0, 1, …; `experiments.datasets` has a column for each category.

A teacher sees 130 rows, and predicts the rarer class half as often as it occurs. The plurality of teachers and its
students have the same bias. The student also uses public facts: the rows of the pool, and the share of the rarer class
from the data set's description (adult.names, 23.93 %). It assigns that class to this share of the pool, the rows with
the highest scores. The classes of the pool beyond the queries decided the kind of model.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darrm.training.teachers import Partition
from darrm.util.extras import require
from darrm.util.progress import track
from darrm.votes import ABSTAIN
from experiments.datasets import LabeledImages, load
from experiments.pate.ensembles import PARTITION_SEED
from experiments.pate.recorded import Recorded
from experiments.pate.settings import Study
from experiments.result_cache import compute_digest, read_or_train
from experiments.teachers import Machine

TREES, QUICK_TREES = 100, 10  # scikit-learn's default, and for a quick run
RICH_SHARE = 0.2393  # share of class 1 in adult.names


@dataclass(frozen=True, eq=False)
class CensusStudent:
    """A model that predicts class 1 above a threshold of its score."""

    model: Any
    threshold: float

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.asarray(self.model.predict_proba(x)[:, 1] > self.threshold, dtype=np.int64)


def train_census_student(recorded: Recorded, labels: NDArray[np.int64], *, seed: int, quick: bool) -> CensusStudent:
    """Train a supervised student on labels (q,) of the first q inputs of the pool; `ABSTAIN` means no label."""
    answered = np.flatnonzero(labels != ABSTAIN)
    model = require("sklearn.ensemble").GradientBoostingClassifier(
        n_estimators=QUICK_TREES if quick else TREES, learning_rate=0.05, max_depth=2, subsample=0.7, random_state=seed
    )
    model.fit(recorded.pool_x[answered], labels[answered])
    return CensusStudent(model, float(np.quantile(model.predict_proba(recorded.pool_x)[:, 1], 1.0 - RICH_SHARE)))


def measure_adult_baseline(recorded: Recorded, *, seed: int, quick: bool) -> float:
    table = load("adult")
    forest = _train_forest(table.train_x, table.train_y, seed, QUICK_TREES if quick else TREES)
    return float(np.mean(forest.predict(recorded.test_x) == recorded.test_y))


def obtain_forest_labels(
    study: Study, data: LabeledImages, teachers: int, machine: Machine, *, quick: bool
) -> tuple[NDArray[np.int8], float]:
    """Return the forests' votes (Q, K) and seconds; read the votes of an earlier run of the same training."""
    trees = QUICK_TREES if quick else TREES
    arrays = (data.train_x, data.train_y, data.test_x)
    digests = [hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() for array in arrays]
    facts = [teachers, trees, PARTITION_SEED, require("sklearn").__version__, digests]

    def collect_votes() -> NDArray[np.int8]:
        shards = Partition.random(len(data.train_y), teachers, seed=PARTITION_SEED)
        joblib = require("joblib")
        answers = joblib.Parallel(n_jobs=machine.jobs)(
            joblib.delayed(_train_and_predict)(
                data.train_x[shards.shard(k)], data.train_y[shards.shard(k)], data.test_x, k, trees
            )
            for k in track(range(teachers), "forests", enabled=machine.progress)
        )
        return np.stack(answers, axis=1)

    return read_or_train(machine.folder / f"votes-{study.name}-forests-{compute_digest(facts)}.npy", collect_votes)


def _train_and_predict(
    x: NDArray[np.float32], y: NDArray[np.int64], questions: NDArray[np.float32], seed: int, trees: int
) -> NDArray[np.int8]:
    return np.asarray(_train_forest(x, y, seed, trees).predict(questions), dtype=np.int8)


def _train_forest(x: NDArray[np.float32], y: NDArray[np.int64], seed: int, trees: int) -> Any:  # noqa: ANN401 (untyped)
    return require("sklearn.ensemble").RandomForestClassifier(trees, random_state=seed).fit(x, y)
