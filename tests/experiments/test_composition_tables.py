"""The totals of the papers' tables: computed again, they are the printed ones and those of the page."""

from pathlib import Path

import pytest

from experiments.composition_tables import EACH, QUERIES, TABLE_OF_ALLOWANCE, compute_row
from experiments.pages import read_json

DATA = Path(__file__).parents[2] / "docs" / "reproduction" / "composition" / "composition.json"


@pytest.mark.parametrize("count", [QUERIES[0], *(pytest.param(count, marks=pytest.mark.slow) for count in QUERIES[1:])])
@pytest.mark.parametrize("data_set", ["mnist", pytest.param("fashion-mnist", marks=pytest.mark.slow)])
@pytest.mark.parametrize("m", [3, *(pytest.param(m, marks=pytest.mark.slow) for m in (1, 5, 7))])
def test_a_row_of_the_four_tables(m: int, data_set: str, count: int) -> None:
    stored_rows = {(row["m"], row["data_set"], row["queries"]): row for row in read_json(DATA)}
    assert list(stored_rows) == [(m, name, count) for m in TABLE_OF_ALLOWANCE for name in EACH for count in QUERIES]
    row, stored = compute_row(m, data_set, count), stored_rows[m, data_set, count]
    assert [f"{row['general']:.3f}", f"{row['total_delta']:.3f}"] == [f"{total:.3f}" for total in row["printed"]]
    assert row["profile_pld"] <= row["optimal"] * (1.0 + 1e-6)  # the grids round up in the ninth digit
    assert row["optimal"] <= row["pld"] <= row["optimal"] * (1.0 + 1e-6)
    assert row["optimal"] <= row["general"]
    for name in ("data_set", "printed", "models_bound"):
        assert row.pop(name) == stored.pop(name)
    assert row == pytest.approx(stored, rel=1e-6)
