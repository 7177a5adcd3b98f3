import numpy as np
import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from darrm.training.teachers import Partition


@given(K=st.integers(1, 30), extra=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_shards_are_disjoint_complete_and_of_nearly_equal_size(K: int, extra: int, seed: int) -> None:
    partition = Partition.random(K + extra, K, seed=seed)
    together = np.concatenate([partition.shard(teacher) for teacher in range(K)])
    assert sorted(together.tolist()) == list(range(K + extra))
    assert max(partition.sizes) - min(partition.sizes) <= 1


def test_an_overlap_cannot_be_written_down() -> None:
    # one teacher number for each record is all there is
    partition = Partition(K=3, teacher_of=np.array([2, 0, 1, 1]))
    owners = [teacher for record in range(4) for teacher in range(3) if record in partition.shard(teacher)]
    assert owners == [2, 0, 1, 1]


def test_records_are_shuffled_by_the_seed() -> None:
    assert Partition.random(1000, 2, seed=0).teacher_of[:500].mean() == pytest.approx(0.5, abs=0.1)
    first, again, other = (Partition.random(100, 7, seed=seed).teacher_of for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_the_array_is_a_copy_and_read_only() -> None:
    mine = np.array([0, 1])
    partition = Partition(2, mine)
    mine[0] = 1
    assert partition.sizes == (1, 1)
    with pytest.raises(ValueError, match="read-only"):
        partition.teacher_of[0] = 1


@pytest.mark.parametrize(
    ("teacher_of", "message"),
    [
        (np.array([0, 2]), r"teacher_of must be in 0 … K - 1 = 0 … 1, got \(0, 2\)"),
        (np.array([0, -1]), "teacher_of must be in"),
        (np.array([0, 0]), "every one of the K = 2 teachers"),
        (np.array([], dtype=np.int64), "every one of the K = 2 teachers"),
        (np.array([0.0, 1.0]), "list of integers"),
        (np.array([[0, 1]]), "list of integers"),
    ],
)
def test_bad_partitions_are_refused(teacher_of: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Partition(2, teacher_of)


def test_bad_sizes_and_teachers_are_refused() -> None:
    for n, K, message in ((2, 3, "n must be an integer of at least 3"), (5, 0, "K must be"), (5, 2.0, "K must be")):
        with pytest.raises(ValueError, match=message):
            Partition.random(n, K, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"teacher must be in 0 … K - 1 = 0 … 1, got 2"):
        Partition.random(4, 2, seed=0).shard(2)
    with pytest.raises(ValueError, match="teacher must be an integer of at least 0"):
        Partition.random(4, 2, seed=0).shard(-1)
    with pytest.raises(ValueError, match="seed must be an integer of at least 0"):
        Partition.random(4, 2, seed=-1)
