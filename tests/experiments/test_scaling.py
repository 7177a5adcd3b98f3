"""The scaling experiment: a measured solve, and both sides of a comparison."""

import pytest

from experiments import peers
from experiments.scaling import Case, measure


def test_a_measurement_describes_its_solve() -> None:
    measurement = measure(Case(41, 10, "1e-5", "free", "production"))
    assert measurement["rows_full_set"] == 73_629_072
    assert 0 < measurement["rows_used"] < 1000
    assert measurement["relative_gap"] < 1e-9
    assert measurement["seconds"] > measurement["separation_seconds"] > 0.0


def test_both_sides_run_alternately_and_the_ratio_is_ours_over_theirs() -> None:
    calls = list[str]()

    def work(name: str, size: int) -> None:
        calls.append(name)
        sum(range(size))

    peer = peers.Peer("short", "long", lambda: work("ours", 1_000), lambda: work("theirs", 3_000_000))
    comparison = peers.compare(peer, 3)
    assert calls == ["ours", "theirs"] * 4  # the first two fill caches
    assert 0.0 <= comparison["seconds"] < comparison["peer_seconds"]


@pytest.mark.slow
def test_every_peer_does_its_task() -> None:
    for peer in peers.list_peers():
        peer.ours()
        peer.theirs()
