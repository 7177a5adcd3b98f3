"""The scaling experiment: what it reports is what it measured."""

import pytest

from experiments import peers
from experiments.scaling import Case, measure, measure_in_process


def test_a_case_is_measured() -> None:
    item = measure(Case(41, 10, "1e-5", "free", "production"), 60.0)
    assert item.rows_full_set == 73_629_072
    assert 0 < item.rows_used < 1000
    assert item.relative_gap < 1e-9
    assert item.over_floor > 1.0


@pytest.mark.slow
def test_a_case_is_measured_in_a_process_of_its_own() -> None:
    apart = measure_in_process(Case(11, 3, "0", "monotone", "production", "numpy"), 60.0)
    here = measure(Case(11, 3, "0", "monotone", "production"), 60.0)
    assert (apart.loops, here.loops) == ("numpy", "compiled")
    assert (apart.expected_error, apart.bound, apart.rounds) == (here.expected_error, here.bound, here.rounds)


def test_both_sides_of_a_comparison_are_timed_and_the_ratio_is_ours_over_theirs() -> None:
    calls = list[str]()

    def work(name: str, size: int) -> None:
        calls.append(name)
        sum(range(size))

    peer = peers.Peer("short", "long", lambda: work("ours", 1_000), lambda: work("theirs", 3_000_000))
    comparison = peers.Comparison(**peers.compare(peer, 3))
    assert calls == ["ours", "theirs"] * 4  # the first two are not timed
    assert (comparison.task, comparison.peer, comparison.runs) == ("short", "long", 3)
    assert 0.0 <= comparison.ratio < 1.0


@pytest.mark.slow
def test_every_peer_does_its_task() -> None:
    for peer in peers.list_peers():
        peer.ours()
        peer.theirs()
