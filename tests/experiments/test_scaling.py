"""The scaling experiment: what it reports is what it measured."""

from experiments.scaling import Case, measure


def test_a_case_is_measured() -> None:
    item = measure(Case(41, 10, "1e-5", "free", "production"), 60.0)
    assert item.rows_full_set == 73_629_072
    assert 0 < item.rows_used < 1000
    assert item.relative_gap < 1e-9
    assert item.over_floor > 1.0
