from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments.datasets import ALL_CLASSES, load
from experiments.pate import ensembles
from experiments.pate.recorded import Recorded
from experiments.pate.settings import STUDIES
from experiments.teachers import Machine

DIGITS = replace(STUDIES["digits"], teachers=12)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Recorded]:
    machine = Machine(1, "cpu", progress=False, folder=tmp_path_factory.mktemp("votes"))
    return machine, ensembles.obtain(DIGITS, machine, quick=True)


@pytest.mark.slow
def test_the_pool_and_the_held_out_images_share_the_test_set(first: tuple[Machine, Recorded]) -> None:
    _, recorded = first
    data = load("digits", ALL_CLASSES)
    assert len(recorded.pool_x) == len(recorded.pool_y) == len(recorded.votes.counts) == DIGITS.pool
    together = np.concatenate([recorded.pool_x, recorded.test_x])
    classes = np.concatenate([recorded.pool_y, recorded.test_y])
    found, expected = (
        sorted((x.tobytes(), y) for x, y in zip(*pair, strict=True))
        for pair in ((together, classes), (data.test_x, data.test_y))
    )
    assert found == expected


@pytest.mark.slow
def test_teachers_have_learned_and_their_plurality_more(first: tuple[Machine, Recorded]) -> None:
    _, recorded = first
    assert recorded.votes.voters == 12
    assert recorded.votes.counts.shape[1] == 10
    assert 0.3 < recorded.teacher_accuracy < recorded.plurality_accuracy - 0.03
    right = recorded.votes.counts[np.arange(DIGITS.pool), recorded.pool_y]
    assert recorded.teacher_accuracy == pytest.approx(right.mean() / 12)


@pytest.mark.slow
def test_a_second_call_reads_the_votes_of_the_same_training_only(
    first: tuple[Machine, Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, recorded = first

    def trained(*_: object, **__: object) -> None:
        raise RuntimeError("trained")

    monkeypatch.setattr("experiments.teachers.train_teachers", trained)
    again = ensembles.obtain(DIGITS, machine, quick=True)
    assert again.digest == recorded.digest
    assert again.seconds == recorded.seconds > 0
    monkeypatch.setattr(ensembles, "SEED", 1)
    with pytest.raises(RuntimeError, match="trained"):
        ensembles.obtain(DIGITS, machine, quick=True)
