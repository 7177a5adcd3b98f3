from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")  # its experiments share a machine and a partition with those of the images

from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier  # (after the check for torch)

from darrm.training.partition import Partition
from darrm.votes import ABSTAIN
from experiments.census import LabeledTable
from experiments.pate import random_forests
from experiments.pate.ensembles import PARTITION_SEED
from experiments.pate.random_forests import RICH_SHARE, adult_baseline, census_accuracy, obtain_adult
from experiments.pate.settings import STUDIES
from experiments.teachers import Machine

STUDY = replace(STUDIES["adult"], teachers=5, pool=60)


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The class is whether the first number is above one half, except for one row in ten."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3), dtype=np.float32)
    return x, ((x[:, 0] > 0.5) ^ (rng.random(n) < 0.1)).astype(np.int64)


def private_table() -> LabeledTable:
    return LabeledTable("adult", *rows(300, 0), *rows(100, 1))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(random_forests, "load_adult", private_table)
    return Machine(1, "cpu", progress=False, folder=tmp_path / "votes")


def test_every_forest_sees_its_own_shard_and_answers_for_itself(machine: Machine) -> None:
    recorded = obtain_adult(STUDY, machine, quick=True)
    table = private_table()
    shards = Partition.random(300, 5, seed=PARTITION_SEED)
    ones = np.zeros(60, dtype=int)
    for k in range(5):
        own = shards.shard(k)
        ones += (
            RandomForestClassifier(10, random_state=k)
            .fit(table.train_x[own], table.train_y[own])
            .predict(recorded.pool_x)
        )
    assert recorded.votes.counts.tolist() == np.stack([5 - ones, ones], axis=1).tolist()
    assert (len(recorded.test_y), recorded.votes.voters) == (40, 5)
    assert 0.7 < recorded.teacher_accuracy <= recorded.plurality_accuracy < 1.0
    both = {row.tobytes() for row in recorded.pool_x} & {row.tobytes() for row in recorded.test_x}
    assert not both


def test_votes_are_kept_for_the_same_training_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = obtain_adult(STUDY, machine, quick=True)
    with monkeypatch.context() as patch:
        patch.setattr(random_forests, "_forest", None)  # nothing is trained
        assert obtain_adult(STUDY, machine, quick=True).digest == first.digest
    obtain_adult(replace(STUDY, teachers=4), machine, quick=True)
    wrong = replace(private_table(), train_y=1 - private_table().train_y)
    monkeypatch.setattr(random_forests, "load_adult", lambda: wrong)
    assert obtain_adult(STUDY, machine, quick=True).plurality_accuracy < 0.3
    assert len(list(machine.folder.glob("*.npy"))) == 3


def test_the_student_learns_from_answers_alone(machine: Machine) -> None:
    recorded = obtain_adult(STUDY, machine, quick=True)
    labels = recorded.pool_y[:40].copy()
    labels[::2] = ABSTAIN
    blind = replace(recorded, pool_y=1 - recorded.pool_y, test_y=1 - recorded.test_y)
    (held_out, rest), wrong = (census_accuracy(data, labels, seed=3, quick=True) for data in (recorded, blind))
    assert held_out is not None
    assert rest is not None
    assert wrong == pytest.approx([1.0 - held_out, 1.0 - rest])  # true classes teach nothing
    boosted = GradientBoostingClassifier(
        n_estimators=10, learning_rate=0.05, max_depth=2, subsample=0.7, random_state=3
    )
    boosted.fit(recorded.pool_x[1:40:2], recorded.pool_y[1:40:2])
    scores = boosted.predict_proba(recorded.pool_x)[:, 1]
    richest = scores > np.quantile(scores, 1.0 - RICH_SHARE)
    assert richest.mean() <= RICH_SHARE
    assert rest == float((richest[40:] == recorded.pool_y[40:]).mean())
    assert adult_baseline(recorded, seed=3, quick=True) > 0.75
